//! Client commands against a server of ours, in both dialects.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::server::{BINARY, Scratch, Server};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const DIALECTS: [&str; 2] = ["9P2000.L", "9P2000"];

/// Runs `upcall COMMAND ADDR …`.
pub(crate) fn run(server: &str, command: &str, words: &[&str]) -> Output {
    Command::new(BINARY).arg(command).arg(server).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Runs it successfully; returns the output.
pub(crate) fn works(server: &str, command: &str, words: &[&str]) -> String {
    let output = run(server, command, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command} {words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs it with an error; returns the error output.
pub(crate) fn fails(server: &str, command: &str, words: &[&str]) -> String {
    let output = run(server, command, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command} {words:?}: {errors}");
    errors
}

pub(crate) fn large() -> Vec<u8> {
    (0..5 << 20).map(|number: u32| (number / 11) as u8).collect()
}

/// Creates a tree whose directories are writable for everybody.
fn plant(top: &Path) {
    for dir in ["", "sub", "sub/deep", "empty"] {
        let dir = top.join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    }
    std::fs::write(top.join("notes"), "notes\n").unwrap();
    std::fs::write(top.join("sub/large"), large()).unwrap();
    std::fs::write(top.join("sub/deep/none"), "").unwrap();
    std::fs::write(top.join("sub/tool"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(top.join("sub/tool"), PermissionsExt::from_mode(0o755)).unwrap();
    for number in 0..300 {
        std::fs::write(top.join(format!("sub/deep/{number}")), vec![7; number * 10]).unwrap();
    }
}

/// Returns names and contents of everything below, in order.
pub(crate) fn described(top: &Path) -> Vec<(String, Vec<u8>)> {
    fn visit(dir: &Path, top: &Path, all: &mut Vec<(String, Vec<u8>)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            let kind = path.symlink_metadata().unwrap();
            if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                all.push((name, target.into_os_string().into_encoded_bytes()));
            } else if kind.is_dir() {
                all.push((name, Vec::new()));
                visit(&path, top, all);
            } else {
                let mode = kind.permissions().mode() & 0o100;
                all.push((format!("{name} {mode:o}"), std::fs::read(&path).unwrap()));
            }
        }
    }
    let mut all = Vec::new();
    visit(top, top, &mut all);
    all.sort();
    all
}

/// Serves a directory with a tree in it.
pub(crate) fn serve(name: &str) -> (Scratch, Server) {
    let dir = Scratch::new(name);
    plant(dir.path());
    let server = Server::start(dir.path(), &[]);
    (dir, server)
}

#[test]
fn a_tree_comes_and_goes_as_it_is() {
    for dialect in DIALECTS {
        let (dir, server) = serve("tree");
        if dialect == "9P2000.L" {
            symlink("../notes", dir.path().join("sub/link")).unwrap();
            symlink("nowhere", dir.path().join("dangling")).unwrap();
        }
        let here = Scratch::new("tree-here");
        let (got, sent) = (here.path().join("got"), dir.path().join("sent"));
        let got_text = got.to_str().unwrap();
        let as_dialect = ["--protocol", dialect];
        let words = |more: &[&'static str]| [&as_dialect[..], more].concat();
        // Excludes the server's own files.
        let from: Vec<&str> = [&words(&["-r", "--json", "/sub"])[..], &[got_text]].concat();
        let text = works(server.ninep(), "get", &from);
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(summary["errors"].as_array().unwrap().len(), 0, "{text}");
        assert_eq!(summary["files"], 303, "{text}");
        assert!(described(&got) == described(&dir.path().join("sub")), "{dialect}");
        let to: Vec<&str> = [&words(&["-r"])[..], &[got_text, "/sent"]].concat();
        let output = run(server.ninep(), "put", &to);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        match dialect {
            "9P2000" => assert!(output.status.success(), "{text}"),
            _linux => assert_eq!(output.status.code(), Some(0), "{text}"),
        }
        assert!(described(&got) == described(&sent), "{dialect}");
        // Once more, over existing files.
        assert!(run(server.ninep(), "put", &to).status.success());
        assert!(run(server.ninep(), "get", &from).status.success());
        assert!(described(&got) == described(&sent), "{dialect}");
        works(server.ninep(), "rm", &words(&["-r", "/sent"]));
        assert!(!sent.exists());
    }
}

#[test]
fn one_file_goes_through_every_command() {
    for dialect in DIALECTS {
        let (dir, server) = serve("file");
        let here = Scratch::new("file-here");
        let at = |command: &str, words: &[&str]| {
            works(server.ninep(), command, &[&["--protocol", dialect][..], words].concat())
        };
        assert_eq!(at("cat", &["/notes", "notes"]), "notes\nnotes\n");
        assert_eq!(at("cat", &["--offset", "2", "--length", "3", "/notes"]), "tes");
        assert_eq!(at("cat", &["--offset", "100", "/notes"]), "");
        let own = here.path().join("copy");
        at("get", &["/sub/large", own.to_str().unwrap()]);
        assert!(std::fs::read(&own).unwrap() == large());
        at("get", &["/notes", here.path().to_str().unwrap()]);
        assert_eq!(std::fs::read(here.path().join("notes")).unwrap(), b"notes\n");
        assert_eq!(at("get", &["/notes", "-"]), "notes\n");
        at("mkdir", &["-p", "/new/deep/er"]);
        at("mkdir", &["-p", "/new/deep/er"]);
        at("put", &["--sync", own.to_str().unwrap(), "/new/deep"]);
        assert!(std::fs::read(dir.path().join("new/deep/copy")).unwrap() == large());
        at("put", &[here.path().join("notes").to_str().unwrap(), "/new/deep/copy"]);
        assert_eq!(std::fs::read(dir.path().join("new/deep/copy")).unwrap(), b"notes\n");
        let listing = at("ls", &["-R", "/new"]);
        assert_eq!(listing, "deep\ndeep/copy\ndeep/er\n");
        let line = at("ls", &["-l", "/notes"]);
        assert!(line.starts_with("-rw") && line.ends_with("Z /notes\n"), "{line}");
        let all: Value = serde_json::from_str(&at("ls", &["--json", "/sub"])).unwrap();
        let names: Vec<_> = all.as_array().unwrap().iter().map(|it| it["path"].clone()).collect();
        assert_eq!(names, ["/sub/deep", "/sub/large", "/sub/tool"]);
        let one: Value = serde_json::from_str(&at("stat", &["--json", "/sub/large"])).unwrap();
        assert_eq!((&one[0]["size"], &one[0]["kind"]), (&(5 << 20).into(), &"file".into()));
        at("rm", &["/new/deep/copy", "/new/deep/er"]);
        assert_eq!(at("ls", &["/new/deep"]), "");
        let left: Vec<_> = std::fs::read_dir(here.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "no temporary names");
    }
}

#[test]
fn standard_input_is_put_and_unix_sockets_are_reached() {
    let dir = Scratch::new("stdin");
    let socket = Scratch::new("stdin-socket");
    let address = format!("unix:{}/s", socket.path().display());
    let _server = Server::start(dir.path(), &["--9p", &address]);
    let mut put = Command::new(BINARY)
        .args(["put", &address, "-", "/in"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(&large()).unwrap();
    assert!(put.wait().unwrap().success());
    assert!(std::fs::read(dir.path().join("in")).unwrap() == large());
}

#[test]
fn errors_name_cause_and_next_step() {
    for dialect in DIALECTS {
        let (dir, server) = serve("refused");
        let no = |command: &str, words: &[&str]| {
            fails(server.ninep(), command, &[&["--protocol", dialect][..], words].concat())
        };
        let error = no("cat", &["/nothing"]);
        assert!(error.contains("cannot open /nothing: "), "{error}");
        assert!(error.contains("; look for its name in the directory above"), "{error}");
        let error = no("ls", &["/notes/x"]);
        assert!(error.contains("/notes/x: "), "{error}");
        let error = no("get", &["/sub", dir.path().join("x").to_str().unwrap()]);
        assert!(error.contains("take all of it with -r"), "{error}");
        let error = no("rm", &["/sub"]);
        assert!(error.contains("cannot remove /sub: "), "{error}");
        let error = no("rm", &["-r", "/"]);
        assert!(error.contains("no name of its own"), "{error}");
        let error = no("mkdir", &["/sub"]);
        assert!(error.contains("/sub: ") && error.contains("exists"), "{error}");
        // The remaining paths are processed.
        let output = run(server.ninep(), "cat", &["--protocol", dialect, "/nothing", "/notes"]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b"notes\n"[..]));
    }
    let error = fails("127.0.0.1:1", "ls", &[]);
    assert!(error.contains("cannot reach 127.0.0.1:1"), "{error}");
    for words in [&["ls"][..], &["cat", ":1"], &["ls", "nonsense:x"], &["ls", ":1", "--as", "me"]] {
        let output = Command::new(BINARY).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

/// Starts a server that accepts writes and never replies.
fn mute() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let streams: Vec<_> = listener.incoming().take(8).collect();
        drop(streams);
    });
    address
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let started = Instant::now();
    let error = fails(&mute(), "ls", &["--timeout", "1"]);
    assert!(error.contains("has not replied for 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Waits until a condition holds.
fn until(mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(300), "it never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(process: &std::process::Child) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

#[test]
fn interrupted_transfers_leave_no_partial_file() {
    for dialect in DIALECTS {
        let dir = Scratch::new("interrupted");
        let server = Server::start(dir.path(), &[]);
        // Standard input without an end: the command runs as long as needed.
        let mut put = Command::new(BINARY)
            .args(["put", "--protocol", dialect, server.ninep(), "-", "/half"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = put.stdin.take().unwrap();
        input.write_all(&large()).unwrap();
        until(|| std::fs::read_dir(dir.path()).unwrap().count() == 1);
        interrupt(&put);
        assert_eq!(put.wait().unwrap().code(), Some(130));
        drop(input);
        let mut printed = String::new();
        put.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(printed.contains("interrupted"), "{printed}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{dialect}: {printed}");
    }
}

#[test]
fn only_what_is_written_in_place_is_left_half_written() {
    for dialect in DIALECTS {
        let dir = Scratch::new("in-place");
        let file = dir.path().join("file");
        std::fs::write(&file, large()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).unwrap());
        let before = inode();
        let server = Server::start(dir.path(), &[]);
        // Lengths of the written files: of a temporary one, or of the file once it is truncated.
        let written = |in_place: bool| {
            let entries = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
            let written = entries.filter(|entry| (entry.path() == file) == in_place);
            written.map(|entry| entry.metadata().map_or(0, |meta| meta.len())).sum::<u64>()
        };
        let begin = |options: &[&str]| {
            let to = ["--protocol", dialect, server.ninep(), "-", "/file"];
            let mut put = Command::new(BINARY)
                .arg("put")
                .args(options)
                .args(to)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            put.stdin.as_mut().unwrap().write_all(&vec![b'x'; 1 << 20]).unwrap();
            put
        };
        let end = |mut put: std::process::Child| {
            let input = put.stdin.take();
            interrupt(&put);
            assert_eq!(put.wait().unwrap().code(), Some(130));
            drop(input);
            let mut printed = String::new();
            put.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
            printed
        };
        let put = begin(&[]);
        until(|| written(false) > 0);
        let printed = end(put);
        assert!(printed.contains("nothing half-done is left"), "{printed}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{dialect}: {printed}");
        assert!(std::fs::read(&file).unwrap() == large(), "it was destroyed");
        let put = begin(&["--in-place"]);
        until(|| (1..=1 << 20).contains(&written(true)));
        let printed = end(put);
        assert!(printed.contains("the partial file /file is kept"), "{printed}");
        let left = std::fs::read(&file).unwrap();
        assert!((1..=1 << 20).contains(&left.len()) && left.iter().all(|byte| *byte == b'x'));
        let mut put = begin(&["--in-place"]);
        drop(put.stdin.take());
        assert!(put.wait().unwrap().success());
        assert_eq!((std::fs::read(&file).unwrap().len(), inode()), (1 << 20, before));
        assert_eq!(server.end(), Some(0));
    }
}

/// A directory without room for new files does not permit overwriting its files.
#[test]
fn unreplaceable_targets_are_not_overwritten() {
    let dir = Scratch::new("no-room");
    let file = dir.path().join("in/file");
    std::fs::create_dir(dir.path().join("in")).unwrap();
    std::fs::write(&file, "old").unwrap();
    std::fs::write(dir.path().join("new"), "new").unwrap();
    let server = Server::start(dir.path(), &["--read-only"]);
    let new = dir.path().join("new");
    fails(server.ninep(), "put", &[new.to_str().unwrap(), "/in/file"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let server =
        Server::with(&[dir.path().to_str().unwrap(), "--9p", &socket, "--http", "127.0.0.1:0"]);
    fails(&socket, "put", &[new.to_str().unwrap(), "/.upcall/names"]);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_fetch_that_is_interrupted_leaves_nothing_here() {
    let (dir, server) = serve("fetch");
    // It takes longer than this test.
    std::fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
    let here = Scratch::new("fetch-here");
    let mut get = Command::new(BINARY)
        .args(["get", server.ninep(), "/huge"])
        .arg(here.path().join("copy"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(|| std::fs::read_dir(here.path()).unwrap().count() == 1);
    interrupt(&get);
    assert_eq!(get.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn a_recursive_list_goes_on_after_unreadable_directories() {
    let (dir, server) = serve("unreadable");
    for closed in ["closed", "sub/closed"] {
        std::fs::create_dir(dir.path().join(closed)).unwrap();
        std::fs::write(dir.path().join(closed).join("hidden"), "x").unwrap();
        std::fs::set_permissions(dir.path().join(closed), PermissionsExt::from_mode(0o000))
            .unwrap();
    }
    for options in [&["-R"][..], &["-lR"], &["-R", "--json"]] {
        let output = run(server.ninep(), "ls", &[options, &["/"]].concat());
        let (printed, errors) = (output.stdout, String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("sub/deep/299") && printed.contains("closed"), "{printed}");
        assert!(!printed.contains("hidden"), "{printed}");
        for closed in ["/closed", "/sub/closed"] {
            let user = rustix::process::getuid().as_raw();
            let line = format!("upcall: cannot list {closed} as user {user}: Permission denied;");
            assert!(errors.contains(&line), "{errors}");
        }
    }
    let here = Scratch::new("unreadable-here");
    let to = here.path().join("got");
    let errors = fails(server.ninep(), "get", &["-r", "/sub", to.to_str().unwrap()]);
    assert!(errors.contains("cannot list /sub/closed"), "{errors}");
    assert!(to.join("deep/299").exists() && to.join("large").exists());
}

#[test]
fn a_slash_at_the_end_of_a_target_means_a_directory() {
    for dialect in DIALECTS {
        let (dir, server) = serve("slash");
        let here = Scratch::new("slash-here");
        std::fs::write(here.path().join("own"), "own\n").unwrap();
        let own = here.path().join("own").to_str().unwrap().to_string();
        let as_dialect = ["--protocol", dialect, &own];
        works(server.ninep(), "put", &[&as_dialect[..], &["sub/"]].concat());
        assert_eq!(std::fs::read(dir.path().join("sub/own")).unwrap(), b"own\n");
        let error = fails(server.ninep(), "put", &[&as_dialect[..], &["/nowhere/"]].concat());
        assert!(error.contains("cannot put a file into /nowhere/: no such directory"), "{error}");
        let error = fails(server.ninep(), "put", &[&as_dialect[..], &["/notes/"]].concat());
        assert!(error.contains("cannot put a file into /notes/: not a directory"), "{error}");
        assert!(!dir.path().join("nowhere").exists());
        assert_eq!(std::fs::read(dir.path().join("notes")).unwrap(), b"notes\n");
    }
}
