//! End-to-end tests of installed storelets: `upcall storelet`, `GET …?storelet=`, restarts.

use super::guests::{self, Guest};
use super::http::body;
use super::{Lab, Ran};
use crate::server::{BINARY, Scratch, Server, get};
use client::{Client, OpenOptions, Options};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of a storelet's output that its reader has not consumed, from which on it is blocked.
const IN_FLIGHT_MAX: u64 = 256 << 10;

/// Bytes of one write of [`guests::FLOOD`].
const FLOOD_WRITE: u64 = 1000;

/// A server with a state store of installed storelets, also reachable by a Unix socket.
pub(super) struct Shop {
    pub(super) lab: Lab,
    pub(super) state: Scratch,
}

/// Returns the arguments of a server with its state in that directory, with further options.
fn args(state: &Path, more: &[&str]) -> Vec<String> {
    let (socket, http) = (state.join("9p.sock"), state.join("http.sock"));
    let kept = state.join("kept");
    let socket = format!("unix:{}", socket.display());
    let http = format!("unix:{}", http.display());
    let mut args = vec!["--9p".to_string(), socket, "--http".to_string(), http];
    args.extend(["--storelet-state".to_string(), kept.display().to_string()]);
    args.extend(more.iter().map(|arg| (*arg).to_string()));
    args
}

impl Shop {
    pub(super) fn new(more: &[&str]) -> Shop {
        let state = Scratch::new("standing");
        let args = args(state.path(), more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Shop { lab: Lab::new(&args), state }
    }

    /// Kills the server as a power failure would, and starts another one in its place.
    pub(super) fn crash(self, more: &[&str]) -> Shop {
        let Shop { lab: Lab { served, programs, server }, state } = self;
        server.kill();
        for socket in ["9p.sock", "http.sock"] {
            std::fs::remove_file(state.path().join(socket)).unwrap();
        }
        let cache = programs.path().join("cache");
        let mut args = args(state.path(), more);
        args.extend(["--storelet-cache".to_string(), cache.display().to_string()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = Server::start(served.path(), &args);
        Shop { lab: Lab { served, programs, server }, state }
    }

    pub(super) fn socket(&self) -> String {
        format!("unix:{}", self.state.path().join("9p.sock").display())
    }

    /// Runs `upcall storelet WORDS[0] SOCKET WORDS[1..]`.
    pub(super) fn storelet(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(BINARY);
        command.args(["storelet", words[0], &self.socket()]).args(&words[1..]);
        command.output().unwrap().into()
    }

    pub(super) fn install(&self, name: &str, guest: &Guest, options: &[&str]) -> Ran {
        let file = self.lab.file(guest);
        self.storelet(&[&["install", name, file.to_str().unwrap()], options].concat())
    }

    /// Returns from `list` for each name: the version in use, and the number of kept ones.
    fn list(&self) -> Vec<(String, u64, usize)> {
        let ran = self.storelet(&["list", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        let one = |it: &Value| {
            let versions = it["versions"].as_array().unwrap().len();
            (it["name"].as_str().unwrap().to_string(), it["current"].as_u64().unwrap(), versions)
        };
        all.iter().map(one).collect()
    }

    fn get(&self, path: &str) -> String {
        get(self.lab.server.http(), path)
    }

    /// Returns the number of bytes that ended storelets have written to their outputs.
    fn output_bytes(&self) -> u64 {
        let metrics = self.get("/.upcall/metrics");
        let name = "upcall_storelet_bytes_total{kind=\"output\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse().unwrap()
    }

    /// Waits until this line is in the list of machines.
    fn await_machine(&self, line: &str) {
        let begun = Instant::now();
        while !self.get("/.upcall/machines").lines().any(|it| it == line) {
            assert!(begun.elapsed() < super::LONG, "{}", self.get("/.upcall/machines"));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Runs an installed storelet on a file.
    fn run(&self, name: &str, file: &str) -> Ran {
        // Storelets have the lowest priority.
        let words = ["--time", "10m", "--storelet", name, "--stdin", file];
        self.lab.command(&words).output().unwrap().into()
    }
}

#[test]
fn an_installed_storelet_runs_for_its_readers() {
    let installed = Shop::new(&[]);
    assert_eq!(installed.install("cat", &guests::CAT, &[]).out, "cat@1 installed\n");
    assert_eq!(body(&installed.get("/x?storelet=cat")), "x\n");
    assert_eq!(body(&installed.get("/sub/y?storelet=cat%7Ccat@1&storelet=cat")), "y\n");
    let ran = installed.run("cat|cat", "/sub/y");
    assert_eq!((ran.code, &ran.out[..]), (Some(0), "y\n"), "{ran:?}");
    let answer = installed.get("/x?storelet=cat");
    assert!(!answer.contains("ETag") && answer.contains("Accept-Ranges: none"), "{answer}");
    for (path, code, why) in [
        ("/x?storelet=dog", "404", "no storelet 'dog' is installed here: there are cat"),
        ("/x?storelet=cat@2", "404", "no version 2"),
        ("/nowhere?storelet=cat", "404", "no such file"),
        ("/sub/?storelet=cat", "409", "directory"),
        ("/.upcall/storelets/new?storelet=cat", "403", "cannot be used"),
        ("/x?storelet=cat&write", "422", "at installation"),
        ("/x?storelet=cat&root=/sub", "422", "at installation"),
        ("/x?storelet=cat&stdin=/sub/y&colour=red", "422", "no such word"),
        ("/x?storelet=..%2Fcat", "422", "NAME or NAME@VERSION"),
        ("/x?storelet=cat%0Amodule%201", "422", "NAME or NAME@VERSION"),
        ("/x?storelet=%00%ff", "422", "NAME or NAME@VERSION"),
        ("/x?storelet", "422", "NAME or NAME@VERSION"),
        ("/x?storelet=a%7Cb%7C", "422", "NAME or NAME@VERSION"),
        (&format!("/x?storelet=cat{}", "%7Ccat".repeat(8)), "422", "at most 8"),
    ] {
        let answer = installed.get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {answer}");
        assert!(answer.contains(why), "{path}: {answer}");
    }
    // Others' files stay protected, if there are other users.
    let own = installed.lab.served.path().join("own");
    std::fs::write(&own, "secret").unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    if installed.lab.server.greeting().contains("act as user 65534") {
        assert!(installed.get("/own?storelet=cat").starts_with("HTTP/1.1 403 "));
        let ran = installed.run("cat", "/own");
        assert!(ran.err.contains("its permissions refuse that"), "{ran:?}");
    }
    let ran = installed.run("cat", "/nowhere");
    assert!(ran.err.contains("its input cannot be read: there is no such file"), "{ran:?}");
    installed.lab.await_none();
}

#[test]
fn a_head_runs_nothing_and_conditions_do_not_apply_to_the_file() {
    let installed = Shop::new(&[]);
    installed.install("spin", &guests::SPIN, &["--cpu", "10m", "--time", "10m"]);
    let ask = |fields: &[&str], path: &str| {
        let url = format!("http://{}{path}", installed.lab.server.http());
        let fields = fields.iter().flat_map(|field| ["-H", field]);
        let ran =
            Command::new("curl").args(["-s", "-I", "-m", "60"]).args(fields).arg(url).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    };
    assert!(ask(&[], "/x?storelet=spin").starts_with("HTTP/1.1 200 "));
    assert!(ask(&[], "/x?storelet=other").starts_with("HTTP/1.1 404 "));
    assert!(ask(&[], "/other?storelet=spin").starts_with("HTTP/1.1 404 "));
    assert!(ask(&["If-Match: \"a\""], "/x?storelet=spin").starts_with("HTTP/1.1 412 "));
    let raw = ask(&[], "/x");
    let tag = raw.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().trim();
    let answer = ask(&[&format!("If-None-Match: {tag}"), "Range: bytes=0-0"], "/x?storelet=spin");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(installed.lab.running().is_empty());
}

#[test]
fn a_chain_streams_and_fails_as_a_whole() {
    let installed = Shop::new(&[]);
    let large: String = (0..300_000).map(|at| format!("{at:09}\n")).collect();
    std::fs::write(installed.lab.served.path().join("large"), &large).unwrap();
    for (name, guest) in [
        ("cat", &guests::CAT),
        ("flood", &guests::FLOOD),
        ("exit", &guests::EXIT),
        ("trap", &guests::TRAP),
        ("sleep", &guests::SLEEP),
    ] {
        installed.install(name, guest, &[]);
    }
    let url = format!("http://{}/large?storelet=cat%7Ccat%7Ccat", installed.lab.server.http());
    let printed = Command::new("curl").args(["-sS", "-m", "100", &url]).output().unwrap();
    assert!(printed.stdout == large.as_bytes(), "{} bytes", printed.stdout.len());
    // A slow reader blocks the stages before it: data in flight is bounded.
    let before = installed.output_bytes();
    let mut child = installed.lab.command(&["--storelet", "flood|sleep", "--stdin", "/x"]);
    let begun = super::Begun(child.spawn().unwrap());
    installed.await_machine("storelet    waiting for its reader 1");
    drop(begun);
    installed.lab.await_none();
    let in_flight = installed.output_bytes() - before;
    assert!((IN_FLIGHT_MAX..IN_FLIGHT_MAX + FLOOD_WRITE).contains(&in_flight), "{in_flight} bytes");
    // The end of the last stage ends all; a trap ends all, and names the stage.
    let ran = installed.run("flood|exit", "/x");
    assert_eq!((ran.code, &ran.out[..]), (Some(7), ""), "{ran:?}");
    let ran = installed.run("cat|trap|cat", "/large");
    assert_eq!(ran.code, Some(134), "{ran:?}");
    assert!(ran.err.contains("'trap@1' trapped: "), "{ran:?}");
    let ran = installed.run("flood|cat", "/x");
    assert_eq!(ran.code, Some(137), "{}", ran.err);
    assert!(ran.err.contains("output budget exceeded"), "{}", ran.err);
    let answer = installed.get("/x?storelet=sleep%7Ctrap");
    assert!(answer.contains("\"stage\":\"trap@1\""), "{answer}");
    installed.lab.await_none();
}

#[test]
fn versions_are_installed_used_and_removed() {
    let installed = Shop::new(&["--http-write"]);
    installed.install("it", &guests::EXIT, &[]);
    let ran = installed.install("it", &guests::ARGS, &["--env", "A=1", "--", "-n"]);
    assert_eq!(ran.out, "it@2 installed\n", "{ran:?}");
    assert_eq!(installed.list(), [("it".to_string(), 2, 2)]);
    let ran = installed.run("it", "/x");
    assert_eq!((&ran.out[..], &ran.err[..]), ("it\0-n\0", "A=1\0"), "{ran:?}");
    let ran: Ran =
        installed.lab.command(&["--storelet", "it", "--", "b%"]).output().unwrap().into();
    assert_eq!(ran.out, "it\0-n\0b%\0", "{ran:?}");
    assert_eq!(installed.run("it@1", "/x").code, Some(7));
    assert_eq!(installed.storelet(&["use", "it@1"]).out, "it@1 used\n");
    assert_eq!(installed.run("it", "/x").code, Some(7));
    let ran = installed.storelet(&["use", "it@9"]);
    assert!(ran.code != Some(0) && ran.err.contains("no version 9"), "{ran:?}");
    // Over HTTP, by an authorised user.
    let curl = |words: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-m", "60", "--unix-socket"])
            .arg(installed.state.path().join("http.sock"));
        let ran: Ran = curl.args(words).stdin(Stdio::null()).output().unwrap().into();
        ran.out
    };
    let file = format!("@{}", installed.lab.file(&guests::CAT).display());
    let place = "http://localhost/.upcall/storelets/install";
    let printed = curl(&["--data-binary", &file, &format!("{place}?name=cat&cpu=1s")]);
    assert_eq!(printed, "cat@1\n");
    assert_eq!(body(&installed.get("/x?storelet=cat")), "x\n");
    assert!(
        curl(&["--data-binary", "junk", &format!("{place}?name=cat")]).contains("cannot be run")
    );
    assert!(curl(&["-X", "POST", &format!("{place}?remove=dog")]).contains("no storelet 'dog'"));
    assert_eq!(curl(&["-X", "POST", &format!("{place}?remove=cat")]), "cat removed\n");
    assert_eq!(installed.storelet(&["remove", "it"]).out, "it removed\n");
    assert!(installed.list().is_empty());
    let kept = installed.state.path().join("kept/modules");
    assert_eq!(std::fs::read_dir(kept).unwrap().count(), 0, "their modules are gone too");
}

#[test]
fn only_administrators_install_storelets() {
    let installed = Shop::new(&[]);
    let file = installed.lab.file(&guests::CAT);
    let file = file.to_str().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["storelet", "install", installed.lab.server.ninep(), "cat", file]);
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("over a unix socket"), "{ran:?}");
    // Nor over read-only HTTP, nor a program that runs on this host.
    let mut curl = Command::new("curl");
    curl.args(["-s", "-m", "60", "--unix-socket"]).arg(installed.state.path().join("http.sock"));
    curl.args(["--data-binary", "x", "http://localhost/.upcall/storelets/install?name=a"]);
    let ran: Ran = curl.output().unwrap().into();
    assert!(ran.out.contains("--http-write"), "{ran:?}");
    let ran = installed.lab.run(&["--write"], &guests::open_to_write(".upcall/storelets/install"));
    assert_eq!(ran.code, Some(guests::NOTCAPABLE), "{ran:?}");
    assert!(installed.list().is_empty());
}

#[test]
fn invalid_storelets_are_not_installed() {
    let installed = Shop::new(&[]);
    let address = installed.socket().parse().unwrap();
    let options = Options { aname: "/.upcall".to_string(), ..Options::default() };
    let client = Client::connect(&address, &options).unwrap();
    let send = |bytes: &[u8]| {
        let options = OpenOptions::new().read(true).write(true);
        let session = client.open_with("/storelets/install", options).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            let count = (bytes.len() - at).min(60_000);
            at += session.write_at(&bytes[at..at + count], 0).unwrap();
        }
        let mut answer = vec![0; 4096];
        let count = session.read_at(&mut answer, 0).unwrap();
        String::from_utf8(answer[..count].to_vec()).unwrap()
    };
    let long = format!("name a\n{}module 3\n\nabc", "env A=b\n".repeat(3000));
    for (printed, why) in [
        (&b"\n\n"[..], "add 'name NAME'"),
        (b"name ../x\nmodule 3\n\nabc", "at most 64 letters"),
        (b"name a\nmodule 99999999999\n\n", "at most"),
        (b"name a\nmodule 3\n\nabc", "cannot be run"),
        (b"name a\nmodule 3\nstdin /x\n\nabc", "when it is run"),
        (b"\xff\xfe\n\n", "UTF-8"),
        (b"use a@1\n\n", "no storelet 'a'"),
        (b"remove a\nremove b\n\n", "alone"),
        (long.as_bytes(), "cannot be run"),
        (&[b'a'; 300_000], "too long"),
    ] {
        let answer = send(printed);
        assert!(answer.contains(why), "{:?}: {answer}", String::from_utf8_lossy(printed));
    }
    // A client that disconnects in the middle leaves nothing behind.
    let options = OpenOptions::new().read(true).write(true);
    let session = client.open_with("/storelets/install", options).unwrap();
    session.write_at(b"name a\nmodule 100\n\nabc", 0).unwrap();
    drop(session);
    assert!(installed.list().is_empty());
    assert_eq!(installed.install("a", &guests::CAT, &[]).out, "a@1 installed\n");
}

#[test]
fn installed_storelets_survive_a_crash() {
    let mut installed = Shop::new(&[]);
    for (round, guest) in [&guests::EXIT, &guests::CAT, &guests::ARGS].into_iter().enumerate() {
        let ran = installed.install("it", guest, &[]);
        assert_eq!(ran.out, format!("it@{} installed\n", round + 1), "{ran:?}");
        installed = installed.crash(&[]);
        assert_eq!(installed.list(), [("it".to_string(), round as u64 + 1, round + 1)]);
    }
    installed.storelet(&["use", "it@1"]);
    installed = installed.crash(&[]);
    assert_eq!(installed.run("it", "/x").code, Some(7));
    // Without the cache of compiled modules: the module itself was kept.
    std::fs::remove_dir_all(installed.lab.programs.path().join("cache")).unwrap();
    std::fs::write(installed.state.path().join("kept/names/other"), "{\"format\":7}").unwrap();
    installed = installed.crash(&[]);
    assert_eq!(installed.run("it@2", "/x").out, "x\n");
    assert_eq!(installed.list().len(), 1);
    assert!(installed.state.path().join("kept/names/other").exists());
    // One directory, one server.
    let kept = installed.state.path().join("kept");
    let mut command = Command::new(BINARY);
    let other = format!("unix:{}", installed.state.path().join("other.sock").display());
    command.arg("serve").arg(installed.lab.served.path()).args(["--9p", &other, "--http", "none"]);
    let ran: Ran = command.arg("--storelet-state").arg(kept).output().unwrap().into();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("another server keeps its storelets there"), "{ran:?}");
}

#[test]
fn run_results_are_shown_to_the_installer() {
    let installed = Shop::new(&[]);
    installed.install("args", &guests::ARGS, &["--env", "A=1"]);
    installed.install("exit", &guests::EXIT, &[]);
    installed.run("args", "/x");
    installed.get("/sub/y?storelet=exit");
    let ran = installed.storelet(&["log", "exit", "--json"]);
    let runs: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(run["run"]["trigger"], "request /sub/y", "{run}");
    assert_eq!((&run["run"]["exit"], &run["run"]["version"]), (&7.into(), &1.into()), "{run}");
    let ran = installed.storelet(&["log", "args"]);
    assert_eq!(ran.out.lines().count(), 3, "{ran:?}");
    assert!(ran.out.contains("    A=1?") && ran.out.contains("request /x"), "{ran:?}");
}
