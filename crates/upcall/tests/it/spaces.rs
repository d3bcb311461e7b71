//! Namespaces, and servers of several threads.

use super::ninep;
use super::server::{BINARY, Scratch, Server, get, put};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PORTS: [&str; 4] = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];

fn body(server: &Server, path: &str) -> String {
    let answer = get(server.http(), path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split_whitespace().nth(1).expect("a status");
    if status == "200" { body.to_string() } else { status.to_string() }
}

/// Runs a client command; returns its exit code and all of its output.
fn client(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(args).output().expect("it runs");
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

fn files(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        std::fs::write(path, text).expect("it is written");
    }
}

pub(crate) fn serve(scratch: &Scratch, lines: &str, more: &[&str]) -> Server {
    let names = scratch.path().join("names");
    std::fs::write(&names, lines).expect("it is written");
    let args = ["--names", names.to_str().expect("UTF-8")];
    Server::with(&[&args[..], &PORTS, more].concat())
}

#[test]
fn directories_are_joined_by_mount_bind_and_union() {
    let scratch = Scratch::new("joined");
    let dir = scratch.path();
    files(
        dir,
        &[("a/one", "a"), ("a/both", "a"), ("b/two", "b"), ("b/both", "b"), ("b/in/x", "x")],
    );
    let shown = dir.display();
    let lines = format!(
        "mount /u host:{shown}/a\nmount -ac /u host:{shown}/b\nbind /u/in /x\n\
         mount /v volume:{shown}/v.volume\n"
    );
    for threads in ["1", "3"] {
        let server = serve(&scratch, &lines, &["--threads", threads, "--http-write"]);
        assert!(server.greeting().contains("names, 4 lines joined"), "{}", server.greeting());
        for (path, text) in
            [("/u/one", "a"), ("/u/two", "b"), ("/u/both", "a"), ("/x/x", "x"), ("/u/no", "404")]
        {
            assert_eq!(body(&server, path), text, "{path}");
        }
        let listing = body(&server, "/u/");
        for name in ["one", "two", "both", "in/"] {
            assert_eq!(listing.matches(&format!(">{name}<")).count(), 1, "{name}: {listing}");
        }
        let printed = body(&server, "/.upcall/names");
        assert!(printed.contains(&format!("mount -ac /u host:{shown}/b\n")), "{printed}");
        assert!(printed.contains("bind /u/in /x\n"), "{printed}");
        let metrics = body(&server, "/.upcall/metrics");
        for row in ["points 3", "unions 1", "commands_total{result=\"failed\"} 0"] {
            assert!(metrics.contains(&format!("\nupcall_names_{row}\n")), "{row}: {metrics}");
        }
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn a_server_that_is_lost_takes_its_own_files_only_and_comes_back() {
    let scratch = Scratch::new("lost");
    let dir = scratch.path();
    files(dir, &[("far/file", "far"), ("near/file", "near")]);
    // No connection originates from this address, so the port is free when it is needed again.
    let far = dir.join("far");
    let far = far.to_str().expect("UTF-8");
    let serve_far = |at: &str| Server::with(&[far, "--9p", at, "--http", "127.1.0.1:0"]);
    let far = serve_far("127.1.0.1:0");
    let port = far.ninep().to_string();
    let near = dir.join("near");
    let lines = format!("mount /far 9p://{port}\nmount /near host:{}\n", near.display());
    let server = serve(&scratch, &lines, &[]);
    assert_eq!(body(&server, "/far/file"), "far");
    far.kill();
    assert_eq!(body(&server, "/near/file"), "near");
    assert!(["502", "503", "504"].contains(&&*body(&server, "/far/file")));
    assert_eq!(body(&server, "/near/file"), "near");
    let _again = serve_far(&port);
    let start = Instant::now();
    while body(&server, "/far/file") != "far" {
        assert!(start.elapsed() < Duration::from_secs(300), "it does not come back");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn connections_are_spread_over_threads_and_all_see_the_same() {
    let scratch = Scratch::new("threads");
    files(scratch.path(), &[("file", "text")]);
    for form in ["uring", "threads"] {
        let args =
            ["--threads", "4", "--reactor", form, "--http-write", "--connections-max", "4000"];
        let server = Server::start(scratch.path(), &args);
        let many: Vec<_> = (0..200).map(|_| body(&server, "/file")).collect();
        assert!(many.iter().all(|text| text == "text"));
        // The metrics cover all threads.
        let metrics = body(&server, "/.upcall/metrics");
        assert!(metrics.contains("\nupcall_accepted_total 201\n"), "{metrics}");
        let queues = body(&server, "/.upcall/queues");
        let line = queues.lines().find(|line| line.starts_with("connections ")).expect("a line");
        let numbers: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((numbers[0], numbers[2]), ("connections", "4000"));
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn a_name_space_is_shown_and_changed_while_it_is_served() {
    let scratch = Scratch::new("changed");
    let dir = scratch.path();
    files(dir, &[("a/one", "a"), ("b/two", "b")]);
    let far = Server::start(&dir.join("b"), &[]);
    let socket = format!("unix:{}", dir.join("socket").display());
    let lines = format!("mount / host:{}/a\n", dir.display());
    std::fs::create_dir(dir.join("a/far")).expect("it is made");
    let server = serve(&scratch, &lines, &["--9p", &socket]);
    let names = |lines: &[&str]| client(&[&["names", &socket][..], lines].concat());
    let line = format!("mount /far 9p://{}", far.ninep());
    let (code, printed) = names(&[&line]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(&format!("{line}\n")), "{printed}");
    assert_eq!(body(&server, "/far/two"), "b");
    // Any name of a mounted source can be unmounted.
    let (code, printed) = names(&[&format!("unmount 9p://{}/ //far/", far.ninep()), &line]);
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = names(&["unmount /far", "bind /nowhere /far"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("cannot carry out all lines: line 2: "), "{printed}");
    assert_eq!(body(&server, "/far/two"), "404");
    // The same as a file, like any other.
    let file = dir.join("commands");
    std::fs::write(&file, format!("{line}\n")).expect("it is written");
    let file = file.to_str().expect("UTF-8");
    let put = ["put", "--in-place", "--aname", "/.upcall", &socket, file, "/names"];
    let (code, printed) = client(&put);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(body(&server, "/far/two"), "b");
    // Over TCP the client is unauthenticated.
    let (code, printed) = client(&["names", server.ninep(), &line]);
    assert!(code == Some(1) && printed.contains("ermission denied"), "{printed}");
    assert!(printed.contains("over the server's unix socket"), "{printed}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn each_user_is_sent_to_the_server_behind() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
    let scratch = Scratch::new("users");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in"), ("b/private", "private")]);
    let file = dir.join("b/private");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is the owner's");
    let own = file.metadata().expect("it is there").uid();
    // A user other than root can act only for itself.
    let owner = if own == 0 { 1234 } else { own };
    if own == 0 {
        chown(&file, Some(owner), Some(owner)).expect("root may");
    }
    let behind = Server::start(&dir.join("b"), &["--trust-clients"]);
    let source = format!("9p://{}", behind.ninep());
    let words = format!("mount / host:{}/a\nmount /x {source}\n", dir.display());
    let server = serve(&scratch, &words, &["--trust-clients"]);
    for _ in 0..3 {
        let cat =
            |uid: u32| client(&["cat", "--as", &uid.to_string(), server.ninep(), "/x/private"]);
        assert_eq!(cat(owner), (Some(0), "private".to_string()));
        let (code, printed) = cat(owner + 1);
        assert_eq!(code, Some(1));
        assert!(
            printed.to_lowercase().contains("not permitted") || printed.contains("denied"),
            "{printed}"
        );
    }
}

#[test]
fn nobody_commands_a_server_through_another_one() {
    let scratch = Scratch::new("through");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in"), ("b/y/in", "in"), ("secret/file", "secret")]);
    let socket = format!("unix:{}", dir.join("b.socket").display());
    let ports = [&PORTS[..], &["--9p", &socket]].concat();
    let behind = dir.join("b");
    let behind = Server::with(&[&[behind.to_str().expect("UTF-8")][..], &ports].concat());
    let source = format!("9p+{socket}");
    let words = format!("mount / host:{0}/a\nmount /x {source}\n", dir.display());
    // With a Unix socket of its own a server of root keeps its privileges: a potential confused
    // deputy.
    let own = format!("unix:{}", dir.join("a.socket").display());
    let server = serve(&scratch, &words, &["--9p", &own]);
    assert_eq!(body(&server, "/x/y/in"), "in");
    let file = dir.join("b/private");
    std::fs::write(&file, "private").expect("it is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("it is the owner's");
    // A client of the first server has no more rights at the second than at the first.
    let direct = body(&behind, "/private");
    assert_eq!(body(&server, "/x/private"), direct);
    let line = format!("mount /y host:{}/secret", dir.display());
    let (code, printed) = client(&["names", "--aname", "/x", server.ninep(), &line]);
    assert!(code == Some(1) && printed.contains("ermission denied"), "{printed}");
    assert_eq!(body(&behind, "/y/in"), "in");
    // Nor does an authenticated client that comes through the first.
    let write = ["put", "--in-place", &socket, "/dev/null", "/.upcall/names"];
    let (code, printed) = client(&write);
    assert!(code == Some(1) && printed.contains("denied"), "{printed}");
    let (code, printed) = client(&["names", &socket, &line]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(body(&behind, "/y/file"), "secret");
}

#[test]
fn the_names_listing_is_a_names_file() {
    let scratch = Scratch::new("shown");
    let dir = scratch.path();
    files(
        dir,
        &[("a/zz/in", "in"), ("a/u/in", "in"), ("a/a0/in", "in"), ("b/sub/two", "b"), ("c/x", "c")],
    );
    let socket = format!("unix:{}", dir.join("socket").display());
    let root = format!("mount / host:{}/a\n", dir.display());
    let server = serve(&scratch, &root, &["--9p", &socket]);
    let lines = [
        &format!("mount /zz host:{}/b", dir.display()),
        "bind /zz/sub /a0",
        "bind -a /zz /u",
        "unmount /zz",
        &format!("mount -a /zz host:{}/c", dir.display()),
        &format!("mount -b /zz host:{}/b", dir.display()),
        "bind /zz /u",
    ];
    let (code, printed) = client(&[&["names", &socket][..], &lines].concat());
    assert_eq!(code, Some(0), "{printed}");
    // The third line is covered.
    let shown = [&lines[..2], &lines[3..]].concat().join("\n") + "\n";
    let expected = format!("# at the root: {}/a\n{shown}", dir.display());
    assert_eq!(printed, expected);
    let see =
        |server: &Server| ["/zz/in", "/zz/x", "/a0/two", "/u/sub/two"].map(|it| body(server, it));
    let seen = see(&server);
    assert_eq!(seen, ["in", "c", "b", "b"]);
    assert_eq!(server.end(), Some(0));
    let server = serve(&scratch, &format!("{root}{printed}"), &[]);
    assert_eq!(body(&server, "/.upcall/names"), expected);
    assert_eq!(see(&server), seen);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn commands_are_as_long_as_they_are() {
    let scratch = Scratch::new("long");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in"), ("a/y/two", "two")]);
    let socket = format!("unix:{}", dir.join("socket").display());
    let server =
        serve(&scratch, &format!("mount / host:{}/a\n", dir.display()), &["--9p", &socket]);
    // More than fits one message; each but the last ends in the middle of a line.
    let comment = format!("#{}", "x".repeat(1000));
    let mut lines = vec![comment.as_str(); 1100];
    lines.push("bind /y /x");
    let names = |lines: &[&str]| client(&[&["names", &socket][..], lines].concat());
    let (code, printed) = names(&lines);
    assert!(code == Some(0) && printed.contains("bind /y /x\n"), "{printed}");
    assert_eq!(body(&server, "/x/two"), "two");
    lines.extend(["unmount /x", "bind /nowhere /y", "bind /y /x"]);
    lines[1100] = &comment;
    let (code, printed) = names(&lines);
    assert!(
        code == Some(1) && printed.contains("cannot carry out all lines: line 1103: "),
        "{printed}"
    );
    assert_eq!(body(&server, "/x/in"), "in");
    // A partial line of a disconnected client is discarded.
    let mut cut = ninep::Client::connect_unix(&dir.join("socket"), "/.upcall");
    cut.write("/names", b"bind /y /x\nunmount /x").expect("it may");
    wait_until("it is bound", || body(&server, "/x/two") == "two");
    drop(cut);
    wait_until("it is disconnected", || {
        // The other connection is that of this question.
        body(&server, "/.upcall/metrics").contains("_queue_length{queue=\"connections\"} 1\n")
    });
    assert_eq!(body(&server, "/x/two"), "two");
    assert_eq!(names(&["unmount /x"]).0, Some(0));
    // A line without an end is executed at the close.
    let file = dir.join("commands");
    std::fs::write(&file, "bind /y /x").expect("it is written");
    let file = file.to_str().expect("UTF-8");
    let put = ["put", "--in-place", "--aname", "/.upcall", &socket, file, "/names"];
    let (code, printed) = client(&put);
    assert_eq!(code, Some(0), "{printed}");
    wait_until("it is bound", || body(&server, "/x/two") == "two");
    std::fs::write(file, "bind /nowhere /x").expect("it is written");
    let (code, printed) = client(&[&put[..], &["--sync"]].concat());
    assert_eq!(code, Some(1), "{printed}");
    let printed = body(&server, "/.upcall/names");
    assert!(printed.contains("# the last change failed: line 1: file does not exist"), "{printed}");
    assert_eq!(server.end(), Some(0));
}

/// Sends a server a signal, by its name.
fn signal(server: &Server, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &server.pid().to_string()]).status();
    assert!(sent.expect("it runs").success());
}

#[test]
fn a_server_that_hangs_holds_no_change_up_for_long() {
    let scratch = Scratch::new("hangs");
    let dir = scratch.path();
    files(dir, &[("a/y/in", "in"), ("a/far/in", "in"), ("b/sub/two", "b")]);
    let far = Server::start(&dir.join("b"), &[]);
    let socket = format!("unix:{}", dir.join("socket").display());
    let names = |lines: &[&str]| client(&[&["names", &socket][..], lines].concat());
    let root = format!("mount / host:{}/a\n", dir.display());
    let server = serve(&scratch, &root, &["--9p", &socket]);
    let mount = format!("mount /far 9p://{}", far.ninep());
    assert_eq!(names(&[&mount]).0, Some(0));
    assert_eq!(body(&server, "/far/sub/two"), "b");
    signal(&far, "STOP");
    let start = Instant::now();
    let (code, printed) = names(&["bind /far/sub /y"]);
    assert!(code == Some(1) && printed.contains("line 1: timed out; the server at"), "{printed}");
    assert!(start.elapsed() > Duration::from_secs(8), "{:?}", start.elapsed());
    // A disconnected client leaves nothing behind that would block others.
    let lines = ["bind /far/sub /y"; 100];
    let begin = || {
        let args = [&["names", socket.as_str()], &lines[..]].concat();
        let child = Command::new(BINARY).args(args).stderr(Stdio::null()).spawn();
        wait_until("the first line is executed", || {
            body(&server, "/.upcall/machines").contains("changes     making")
        });
        child.expect("it runs")
    };
    let mut child = begin();
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let start = Instant::now();
    let (code, printed) = names(&["unmount /far"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(body(&server, "/far/in"), "in");
    // The end of the server waits for no command either.
    signal(&far, "CONT");
    assert_eq!(names(&[&mount]).0, Some(0));
    assert_eq!(body(&server, "/far/sub/two"), "b");
    signal(&far, "STOP");
    let mut child = begin();
    let start = Instant::now();
    assert_eq!(server.end(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(child.wait().expect("it ended").code(), Some(1));
    far.kill();
}

#[test]
fn the_end_of_a_server_waits_for_nothing_that_is_being_opened() {
    let scratch = Scratch::new("opening");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in")]);
    let volume = dir.join("v.volume");
    let path = volume.to_str().expect("UTF-8");
    assert_eq!(client(&["volume", "create", path, "--size", "64M"]).0, Some(0));
    let _has_it = Server::start(&volume, &[]);
    let socket = format!("unix:{}", dir.join("socket").display());
    let words = format!("mount / host:{}/a\n", dir.display());
    for form in ["uring", "threads"] {
        // A slow run may be caused by the machine.
        let took = std::iter::repeat_with(|| {
            let server = serve(&scratch, &words, &["--9p", &socket, "--reactor", form]);
            // Opening a volume used by another process is retried for two seconds.
            let line = format!("mount /x volume:{path}");
            let mut names = Command::new(BINARY);
            let names = names.args(["names", &socket, &line]).stderr(Stdio::null());
            let mut child = names.spawn().expect("it runs");
            wait_until("it is being opened", || {
                body(&server, "/.upcall/machines").contains("changes     opening")
            });
            let start = Instant::now();
            assert_eq!(server.end(), Some(0));
            let took = start.elapsed();
            assert_eq!(child.wait().expect("it ended").code(), Some(1));
            took
        });
        assert!(took.take(10).any(|took| took < Duration::from_millis(1200)), "each waits");
    }
}

/// Returns whether no process uses the volume.
fn is_free(volume: &Path) -> bool {
    let (code, printed) = client(&["volume", "info", volume.to_str().expect("UTF-8")]);
    code == Some(0) && !printed.contains("\nserved ")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_source_is_mounted_and_given_back_while_the_server_runs() {
    let scratch = Scratch::new("sources");
    let dir = scratch.path();
    files(dir, &[("a/one", "a"), ("a/x/in", "in"), ("b/two", "b"), ("b/plain", "")]);
    let volume = dir.join("v.volume");
    let (shown, path) = (dir.display(), volume.to_str().expect("UTF-8"));
    assert_eq!(client(&["volume", "create", path, "--size", "64M"]).0, Some(0));
    let socket = format!("unix:{}", dir.join("socket").display());
    let names = |lines: &[&str]| client(&[&["names", &socket][..], lines].concat());
    let far = Server::start(&dir.join("b"), &[]);
    let by_name = far.ninep().replace("127.0.0.1", "localhost");
    for form in ["uring", "threads"] {
        let words = format!("mount / host:{shown}/a\n");
        let server = serve(&scratch, &words, &["--9p", &socket, "--reactor", form]);
        let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map(Iterator::count);
        let before = open().expect("it runs");
        let sources =
            [format!("host:{shown}/b"), format!("volume:{path}"), format!("9p://{by_name}")];
        for source in sources {
            let mount = format!("mount -c /x {source}");
            let (code, printed) = names(&[&mount]);
            assert!(code == Some(0) && printed.contains(&mount), "{printed}");
            match source.starts_with("volume:") {
                true => assert!(!is_free(&volume)),
                false => assert_eq!(body(&server, "/x/two"), "b", "{source}"),
            }
            assert_eq!(names(&["unmount /x"]).0, Some(0));
            assert_eq!(body(&server, "/x/in"), "in");
            wait_until("the volume is given back", || is_free(&volume));
        }
        wait_until("files are closed", || open().expect("it runs") <= before);
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn a_volume_that_is_joined_has_its_snapshots_in_its_root() {
    let scratch = Scratch::new("snapshots");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in")]);
    let words = format!("mount / host:{0}/a\nmount -c /x volume:{0}/v.volume\n", dir.display());
    let socket = format!("unix:{}", dir.join("socket").display());
    let server = serve(&scratch, &words, &["--9p", &socket, "--http-write"]);
    assert!(put(server.http(), "/x/file", b"old").is_some_and(|answer| answer.contains(" 201 ")));
    let (code, printed) = client(&["mkdir", &socket, "/x/.snapshots/monday"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(put(server.http(), "/x/file", b"new").is_some_and(|answer| answer.contains(" 204 ")));
    assert_eq!(body(&server, "/x/.snapshots/monday/file"), "old");
    assert_eq!(body(&server, "/x/file"), "new");
    assert!(!body(&server, "/x/").contains("snapshots"));
    assert_eq!(body(&server, "/.snapshots/monday/file"), "404");
    // One that is mounted later too.
    let lines = [&format!("mount -c /x volume:{}/w.volume", dir.display()), "unmount /x"];
    let other = dir.join("w.volume");
    let other = other.to_str().expect("UTF-8");
    assert_eq!(client(&["volume", "create", other, "--size", "64M"]).0, Some(0));
    let (code, printed) = client(&["names", &socket, lines[1], lines[0]]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(client(&["mkdir", &socket, "/x/.snapshots/tuesday"]).0, Some(0));
    let (_, printed) = client(&["ls", &socket, "/x/.snapshots"]);
    assert!(printed.contains("tuesday") && !printed.contains("monday"), "{printed}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn an_unmounted_tree_ends_with_its_last_user() {
    let scratch = Scratch::new("inside");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in")]);
    let volume = dir.join("v.volume");
    let path = volume.to_str().expect("UTF-8");
    assert_eq!(client(&["volume", "create", path, "--size", "64M"]).0, Some(0));
    // With data that is read ahead, and checked when the volume is opened.
    std::fs::write(dir.join("large"), vec![7; 24 << 20]).expect("it is written");
    let large = dir.join("large");
    let to = format!("{path}:/large");
    assert_eq!(client(&["volume", "copy", large.to_str().expect("UTF-8"), &to]).0, Some(0));
    let socket = format!("unix:{}", dir.join("socket").display());
    let names = |lines: &[&str]| client(&[&["names", &socket][..], lines].concat());
    let root = format!("mount / host:{}/a\n", dir.display());
    let server = serve(&scratch, &root, &["--9p", &socket]);
    let (code, printed) = names(&[&format!("mount /x volume:{path}")]);
    assert_eq!(code, Some(0), "{printed}");
    let mut inside = ninep::Client::connect(server.ninep());
    inside.walk("/x").expect("it is there");
    assert_eq!(names(&["unmount /x"]).0, Some(0));
    assert_eq!(body(&server, "/x/in"), "in");
    std::thread::sleep(Duration::from_millis(200));
    assert!(!is_free(&volume), "somebody is in it");
    drop(inside);
    wait_until("the volume is given back", || is_free(&volume));
    // It can be mounted again, any number of times.
    for _ in 0..20 {
        let (code, printed) = names(&[&format!("mount /x volume:{path}"), "unmount /x"]);
        assert_eq!(code, Some(0), "{printed}");
    }
    assert_eq!(server.end(), Some(0));
    assert!(is_free(&volume));
}

#[test]
fn unmountable_sources_are_refused_with_a_reason() {
    let scratch = Scratch::new("refused");
    let dir = scratch.path();
    files(dir, &[("a/x/in", "in"), ("plain", "no volume")]);
    let (shown, volume) = (dir.display(), dir.join("v.volume"));
    let path = volume.to_str().expect("UTF-8");
    assert_eq!(client(&["volume", "create", path, "--size", "64M"]).0, Some(0));
    assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().expect("it runs").success());
    let socket = format!("unix:{}", dir.join("socket").display());
    let root = format!("mount / host:{shown}/a\n");
    let server = serve(&scratch, &root, &["--9p", &socket]);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map(Iterator::count);
    let before = open().expect("it runs");
    let wrong = [
        (format!("host:{shown}/nowhere"), "name a directory of the server's host"),
        (format!("host:{shown}/plain"), "not a directory"),
        (format!("volume:{shown}/nowhere"), "upcall volume create"),
        (format!("volume:{shown}/plain"), "it is no volume of this version"),
        (format!("volume:{shown}/a"), "is a directory; name a file or a block device"),
        ("volume:/dev/null".into(), "operation not supported; name a file or a block device"),
        (format!("volume:{shown}/pipe"), "operation not supported; name a file or a block device"),
        ("9p://127.0.0.1:99999".into(), "is no port"),
        ("9p://127.0.0.1:564/.upcall".into(), "clients of this server may not send commands"),
        // No resolver sends a query for a label of this length.
        (format!("9p://{}:5640", "n".repeat(64)), "no host of that name"),
    ];
    for (source, why) in wrong {
        let (code, printed) = client(&["names", &socket, &format!("mount /x {source}")]);
        assert!(code == Some(1) && printed.contains(why), "{source}: {printed}");
    }
    let (code, printed) = client(&["names", &socket, &format!("mount /nowhere volume:{path}")]);
    assert!(code == Some(1) && printed.contains("no such directory in the namespace"), "{printed}");
    wait_until("the volume is given back", || is_free(&volume));
    wait_until("files are closed", || open().expect("it runs") <= before);
    assert_eq!(body(&server, "/x/in"), "in");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_tree_that_is_fetched_again_does_not_follow_its_own_links_out() {
    let scratch = Scratch::new("out");
    let dir = scratch.path();
    files(dir, &[("far/plain", "x"), ("precious", "mine")]);
    std::os::unix::fs::symlink(dir.join("precious"), dir.join("far/x")).expect("it is made");
    let server = Server::start(&dir.join("far"), &[]);
    let to = dir.join("copy");
    let get = || client(&["get", "-r", server.ninep(), "/", to.to_str().expect("UTF-8")]);
    let (code, printed) = get();
    assert_eq!(code, Some(0), "{printed}");
    std::fs::remove_file(dir.join("far/x")).expect("it is removed");
    std::fs::write(dir.join("far/x"), "theirs").expect("it is written");
    let (code, printed) = get();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(std::fs::read_to_string(dir.join("precious")).expect("it is there"), "mine");
    assert_eq!(std::fs::read_to_string(to.join("x")).expect("it is there"), "theirs");
}
