//! End-to-end tests of programs beside the data: `upcall run`, `POST`, and their list.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

mod guests;
mod http;
mod shares;
mod standing;
mod trees;
mod triggers;

use crate::server::{BINARY, Scratch, Server};
use client::{Client, OpenOptions, Options};
use guests::Guest;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Timeout on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// A server of a directory, and programs.
struct Lab {
    served: Scratch,
    programs: Scratch,
    server: Server,
}

impl Lab {
    fn new(args: &[&str]) -> Lab {
        let (served, programs) = (Scratch::new("storelets"), Scratch::new("programs"));
        let cache = programs.path().join("cache");
        let cache = ["--storelet-cache", cache.to_str().unwrap()];
        std::fs::write(served.path().join("x"), "x\n").unwrap();
        std::fs::create_dir(served.path().join("sub")).unwrap();
        std::fs::write(served.path().join("sub/y"), "y\n").unwrap();
        let server = Server::start(served.path(), &[&cache, args].concat());
        Lab { served, programs, server }
    }

    /// Returns a file with the program.
    fn file(&self, guest: &Guest) -> PathBuf {
        let dir = self.programs.path().join(guest.hash());
        let path = dir.join(format!("{}.wasm", guest.name));
        // Other tests may be reading it.
        if !dir.exists() {
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(&path, guest.wasm()).unwrap();
        }
        path
    }

    /// Returns `upcall run ADDR WORDS`.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("run").arg(self.server.ninep()).args(words).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a program with options to its end.
    fn run(&self, options: &[&str], guest: &Guest) -> Ran {
        let file = self.file(guest);
        let words = [options, &[file.to_str().unwrap()]].concat();
        self.command(&words).output().unwrap().into()
    }

    /// Starts a program.
    fn start(&self, options: &[&str], guest: &Guest) -> Begun {
        let file = self.file(guest);
        let words = [options, &[file.to_str().unwrap()]].concat();
        Begun(self.command(&words).spawn().unwrap())
    }

    /// Returns the lines of the list, one for each storelet.
    fn running(&self) -> Vec<String> {
        self.running_at(self.server.ninep())
    }

    /// Returns the list as seen at this address.
    fn running_at(&self, address: &str) -> Vec<String> {
        let mut command = Command::new(BINARY);
        command.args(["cat", address, "/.upcall/storelets/running"]);
        let ran: Ran = command.output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out.lines().skip(1).map(str::to_owned).collect()
    }

    /// Waits until this number of storelets are in this state.
    fn await_state(&self, state: &str, count: usize) -> Vec<String> {
        self.await_client_state(self.server.ninep(), state, count)
    }

    fn await_client_state(&self, address: &str, state: &str, count: usize) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let lines = self.running_at(address);
            let word = |line: &&String| line.split_whitespace().nth(2) == Some(state);
            if lines.iter().filter(word).count() == count {
                return lines;
            }
            assert!(begun.elapsed() < LONG, "{count} {state}: {lines:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until there is no storelet any more.
    fn await_none(&self) {
        let begun = Instant::now();
        while !self.running().is_empty() {
            assert!(begun.elapsed() < LONG, "{:?}", self.running());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.server.ninep().parse().unwrap(), &Options::default()).unwrap()
    }

    /// Writes a line to the list.
    fn control(&self, line: &str) -> Result<usize, client::Error> {
        let options = OpenOptions::new().write(true);
        let running = self.client().open_with("/.upcall/storelets/running", options)?;
        running.write_at(line.as_bytes(), 0)
    }
}

/// End and output of a command.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        // A message about a long compilation on a busy machine is ignored.
        let is_wait = |line: &&str| line.starts_with("upcall: the server compiles");
        let err = text(output.stderr);
        let err = err.split_inclusive('\n').filter(|line| !is_wait(line)).collect();
        Ran { code: output.status.code(), out: text(output.stdout), err }
    }
}

/// A running command, killed at the end of its test.
struct Begun(Child);

impl Begun {
    fn interrupt(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    fn end(mut self) -> Ran {
        let (mut out, mut err) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ran { code: self.0.wait().unwrap().code(), out, err }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_has_arguments_an_environment_and_an_exit_code_of_its_own() {
    let lab = Lab::new(&[]);
    let file = lab.file(&guests::ARGS);
    let words = ["--env", "A=1", "--env", "B=a%b\nc", file.to_str().unwrap(), "--", "-n", "a b"];
    let ran: Ran = lab.command(&words).output().unwrap().into();
    assert_eq!(ran.out, "args\0-n\0a b\0", "{ran:?}");
    assert_eq!(ran.err, "A=1\0B=a%b\nc\0");
    assert_eq!(ran.code, Some(0));
    let ran = lab.run(&[], &guests::EXIT);
    assert_eq!((ran.code, &ran.out[..], &ran.err[..]), (Some(7), "", ""));
}

#[test]
fn input_streams_in_while_output_streams_out() {
    let lab = Lab::new(&[]);
    let file = lab.file(&guests::CAT);
    let mut command = lab.command(&[file.to_str().unwrap()]);
    let mut begun = Begun(command.stdin(Stdio::piped()).spawn().unwrap());
    let mut input = begun.0.stdin.take().unwrap();
    let mut output = BufReader::new(begun.0.stdout.take().unwrap());
    for line in ["one\n", "two\n"] {
        input.write_all(line.as_bytes()).unwrap();
        let mut printed = String::new();
        output.read_line(&mut printed).unwrap();
        assert_eq!(printed, line);
    }
    // More than any buffer holds at a time.
    let large: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7) as u8).collect();
    let sent = large.clone();
    let sender = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let mut printed = Vec::new();
    output.read_to_end(&mut printed).unwrap();
    sender.join().unwrap();
    assert!(printed == large, "{} bytes", printed.len());
    assert_eq!(begun.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_program_that_the_server_has_is_run_by_its_hash() {
    let lab = Lab::new(&[]);
    let name = guests::EXIT.hash();
    let ran: Ran = lab.command(&[&name]).output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("no program of this name: run the file itself once"), "{ran:?}");
    assert_eq!(lab.run(&[], &guests::EXIT).code, Some(7));
    let ran: Ran = lab.command(&[&name]).output().unwrap().into();
    assert_eq!(ran.code, Some(7), "{ran:?}");
    // An invalid hash is reported before anything is sent.
    let ran: Ran = lab.command(&["sha256:abc"]).output().unwrap().into();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("64 hexadecimal digits"), "{ran:?}");
}

#[test]
fn invalid_modules_are_refused_with_a_reason() {
    let lab = Lab::new(&[]);
    let file = lab.programs.path().join("garbage");
    std::fs::write(&file, "#!/bin/sh\n".repeat(10_000)).unwrap();
    let ran: Ran = lab.command(&[file.to_str().unwrap()]).output().unwrap().into();
    assert_eq!((ran.code, &ran.out[..]), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("does not begin as WebAssembly does"), "{ran:?}");
    let ran: Ran = lab.command(&["/no/such/program"]).output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("name a WebAssembly module"), "{ran:?}");
    let ran = lab.run(&["--cpu", "10q"], &guests::EXIT);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("cpu 10q") && ran.err.contains("500ms"), "{ran:?}");
    lab.await_none();
}

#[test]
fn a_program_sees_its_root_and_changes_nothing_without_leave() {
    let lab = Lab::new(&[]);
    let code = |options: &[&str], guest: &Guest| lab.run(options, guest).code;
    let [open_x, open_y] = [guests::open("x"), guests::open("y")];
    assert_eq!(code(&[], &open_x), Some(0));
    assert_eq!(code(&["--root", "/sub"], &open_y), Some(0));
    assert_eq!(code(&["--root", "/sub"], &open_x), Some(guests::NOENT));
    assert_eq!(code(&["--root", "/sub"], &guests::open("../x")), Some(guests::NOTCAPABLE));
    assert_eq!(code(&[], &guests::create("new")), Some(guests::ROFS));
    assert!(!lab.served.path().join("new").exists());
    let ran = lab.run(&["--write"], &guests::create("new"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(lab.served.path().join("new").exists());
    let ran = lab.run(&["--root", "/nowhere"], &open_x);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("--root /nowhere: cannot enter its root: no such dir"), "{ran:?}");
    let ran = lab.run(&["--root", "/x"], &open_x);
    assert!(ran.code == Some(2) && ran.err.contains("no such directory"), "{ran:?}");
    let ran = lab.run(&["--stdin", "/nowhere"], &open_x);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let cause = "upcall: --stdin /nowhere: its input cannot be read: there is no such file";
    assert!(
        ran.err.starts_with(cause) && ran.err.ends_with("name a file of the server\n"),
        "{ran:?}"
    );
    let mut log = Command::new(BINARY);
    log.args(["storelet", "log", lab.server.ninep(), "nope"]);
    let ran: Ran = log.output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with("upcall: no storelet 'nope' is installed here; "), "{ran:?}");

    let lab = Lab::new(&["--read-only"]);
    assert_eq!(lab.run(&["--write"], &guests::create("new")).code, Some(guests::ROFS));
}

#[test]
fn a_program_starts_no_other() {
    let lab = Lab::new(&[]);
    for path in [".upcall/storelets/new", ".upcall/storelets/running"] {
        let ran = lab.run(&["--write"], &guests::open_to_write(path));
        assert_eq!(ran.code, Some(guests::NOTCAPABLE), "{path}: {ran:?}");
    }
    let ran = lab.run(&["--write", "--root", "/.upcall/storelets"], &guests::create("new"));
    assert_eq!(ran.code, Some(guests::NOTCAPABLE), "{ran:?}");
}

#[test]
fn a_program_over_its_budget_is_ended_and_the_reason_told() {
    let lab = Lab::new(&[]);
    let cases: [(&[&str], &Guest, &str); 5] = [
        (&["--cpu", "50ms"], &guests::SPIN, "its processor time is used up"),
        (&["--fuel", "100000"], &guests::SPIN, "its fuel is used up"),
        (&["--time", "200ms"], &guests::SLEEP, "its time is over"),
        (&["--output", "10k"], &guests::FLOOD, "output budget exceeded"),
        (&["--io", "10"], &guests::LOOK, "request budget exceeded"),
    ];
    for (options, guest, reason) in cases {
        let ran = lab.run(options, guest);
        assert_eq!(ran.code, Some(137), "{options:?}: {}", ran.err);
        assert!(ran.err.contains(reason), "{options:?}: {}", ran.err);
        assert!(ran.out.len() <= 10 << 10, "{} bytes", ran.out.len());
    }
    // The memory limit is reached before the program ends.
    assert_eq!(lab.run(&["--memory", "8M"], &guests::GROW).code, Some(1));
    assert_eq!(lab.run(&["--memory", "32M"], &guests::GROW).code, Some(0));
    let ran = lab.run(&["--memory", "8M"], &guests::LARGE);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("memory"), "{ran:?}");
    let ran = lab.run(&[], &guests::TRAP);
    assert_eq!(ran.code, Some(134), "{ran:?}");
    assert!(ran.err.contains("the program trapped: "), "{ran:?}");
    lab.await_none();
}

#[test]
fn resource_usage_is_reported_as_text_and_json() {
    let lab = Lab::new(&[]);
    let ran = lab.run(&["--report"], &guests::EXIT);
    assert_eq!((ran.code, &ran.out[..]), (Some(7), ""), "{ran:?}");
    let words = ["processor", "memory 64", "file requests", "written", "output"];
    assert!(words.iter().all(|word| ran.err.contains(word)), "{ran:?}");
    let ran = lab.run(&["--json", "--output", "10k"], &guests::FLOOD);
    let report: Value = serde_json::from_str(ran.err.lines().next().unwrap()).unwrap();
    assert_eq!(report["end"], "killed", "{report}");
    assert_eq!(report["reason"], "output budget exceeded", "{report}");
    assert_eq!(format!("sha256:{}", report["module"].as_str().unwrap()), guests::FLOOD.hash());
    assert!(report["time_ns"].as_u64().unwrap() > 0, "{report}");
    let ran = lab.run(&["--json"], &guests::ARGS);
    let report: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
    assert_eq!((&report["end"], &report["exit"]), (&"exit".into(), &0.into()), "{report}");
    assert_eq!(report["output"], 5, "{report}");
}

#[test]
fn fuel_is_counted_if_that_is_wanted_and_is_the_same_each_time() {
    let lab = Lab::new(&[]);
    let report = |options: &[&str], guest: &Guest| -> Value {
        let ran = lab.run(&[&["--json"], options].concat(), guest);
        serde_json::from_str(ran.err.lines().find(|line| line.starts_with('{')).unwrap()).unwrap()
    };
    for number in 0..20 {
        let text = "some text\n".repeat(number * 1000);
        std::fs::write(lab.served.path().join(format!("sub/{number}")), text).unwrap();
    }
    let plain = report(&[], &guests::TOUR);
    assert_eq!((&plain["end"], &plain["fuel"]), (&"exit".into(), &0.into()), "{plain}");
    let all = [(); 3].map(|()| report(&["--fuel", "1000000000"], &guests::TOUR));
    let fuel = all[0]["fuel"].as_u64().unwrap();
    assert!((2000..1_000_000_000).contains(&fuel), "{fuel}");
    for run in &all {
        assert_eq!((&run["end"], run["fuel"].as_u64()), (&"exit".into(), Some(fuel)), "{run}");
    }
    // A program that does not begin uses nothing.
    let none = report(&["--fuel", "1000", "--memory", "64K"], &guests::TOUR);
    assert_eq!((&none["end"], &none["fuel"]), (&"killed".into(), &0.into()), "{none}");
    // The report shows the fuel at its end, too.
    let spun = report(&["--fuel", "123456"], &guests::SPIN);
    assert_eq!((&spun["end"], &spun["fuel"]), (&"killed".into(), &123_456.into()), "{spun}");
    let spun = report(&["--fuel", "99000000000", "--cpu", "50ms"], &guests::SPIN);
    assert!(spun["reason"].as_str().unwrap().contains("processor"), "{spun}");
    assert!(spun["fuel"].as_u64() > Some(1_000_000), "{spun}");
    let ran = lab.run(&["--report", "--fuel", "5000"], &guests::EXIT);
    assert!(ran.err.contains(" of fuel\nmemory"), "{ran:?}");
}

#[test]
fn listed_storelets_can_be_killed() {
    let lab = Lab::new(&[]);
    let begun = lab.start(&[], &guests::SLEEP);
    let lines = lab.await_state("running", 1);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.ends_with("sleep"), "{line}");
    let number = line.split_whitespace().next().unwrap();
    assert!(lab.control("kill 4000").unwrap_err().is_not_found());
    assert!(lab.control("hello").is_err());
    lab.control(&format!("kill {number}\n")).unwrap();
    let ran = begun.end();
    assert_eq!(ran.code, Some(137), "{ran:?}");
    assert!(ran.err.contains("it was cancelled"), "{ran:?}");
    lab.await_none();
}

#[test]
fn an_interrupted_run_leaves_nothing_on_the_server() {
    let lab = Lab::new(&[]);
    for guest in [&guests::SLEEP, &guests::SPIN, &guests::CAT] {
        let mut command = lab.command(&["--cpu", "10m", lab.file(guest).to_str().unwrap()]);
        let begun = Begun(command.stdin(Stdio::piped()).spawn().unwrap());
        lab.await_state("running", 1);
        begun.interrupt();
        lab.await_none();
        let ran = begun.end();
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.err.contains("interrupted; the program was ended"), "{ran:?}");
    }
    // Like a killed client, or one whose power fails.
    let begun = lab.start(&["--cpu", "10m"], &guests::SPIN);
    lab.await_state("running", 1);
    drop(begun);
    lab.await_none();
}

#[test]
fn the_end_of_the_server_is_the_end_of_its_programs() {
    let lab = Lab::new(&[]);
    let begun = [lab.start(&[], &guests::SLEEP), lab.start(&["--cpu", "10m"], &guests::SPIN)];
    lab.await_state("running", 2);
    let started = Instant::now();
    assert_eq!(lab.server.end(), Some(0));
    assert!(started.elapsed() < LONG);
    for begun in begun {
        let ran = begun.end();
        assert!(ran.code != Some(0) && !ran.err.is_empty(), "{ran:?}");
    }
}

#[test]
fn a_server_that_runs_no_programs_says_so() {
    for args in [&["--storelet-threads", "0"][..], &["--no-status"]] {
        let lab = Lab::new(args);
        let ran = lab.run(&[], &guests::EXIT);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("runs no programs"), "{ran:?}");
        assert!(ran.err.contains("--storelet-threads"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn files_are_served_while_programs_never_end() {
    let lab = Lab::new(&[]);
    let options = ["--cpu", "10m", "--time", "10m", "--memory", "1M"];
    let begun: Vec<Begun> = (0..20).map(|_| lab.start(&options, &guests::SPIN)).collect();
    lab.await_state("running", 20);
    let started = Instant::now();
    for _ in 0..5 {
        let mut command = Command::new(BINARY);
        let ran: Ran = command.args(["cat", lab.server.ninep(), "/x"]).output().unwrap().into();
        assert_eq!((ran.code, &ran.out[..]), (Some(0), "x\n"), "{ran:?}");
        assert!(crate::server::get(lab.server.http(), "/x").ends_with("x\n"));
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    // One more gets its turn.
    assert_eq!(lab.run(&["--memory", "1M"], &guests::EXIT).code, Some(7));
    drop(begun);
    lab.await_none();
}
