//! End-to-end tests of replicas: created, filled, moved to larger files.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{BINARY, Scratch, Server};
use client::{Client, OpenOptions, Options};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command; returns whether it succeeded, and all of its output.
fn run(args: &[&str]) -> (bool, String) {
    let output = Command::new(BINARY).args(args).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

/// Creates the files of the replicas of a new service.
fn made(dir: &Scratch, kind: &str, members: &[&str], size: &str) -> Vec<String> {
    let place = dir.path().to_str().unwrap();
    let args = ["replica", "init", "it", "--type", kind, "--members", &members.join(",")];
    let (well, printed) = run(&[&args[..], &["--dir", place, "--size", size]].concat());
    assert!(well, "{printed}");
    (1..=members.len()).map(|id| format!("{place}/it.{id}.replica")).collect()
}

/// Serves a replica beside an empty directory.
fn serve(dir: &Scratch, file: &str) -> Server {
    Server::start(dir.path(), &["--replica", file])
}

/// Performs an operation at a server.
fn op(server: &Server, words: &[&str]) -> (bool, String) {
    run(&[&["op", "--at", server.ninep(), "it"], words].concat())
}

#[test]
fn a_full_replica_goes_on_in_a_larger_file() {
    let dir = Scratch::new("growing");
    let file = &made(&dir, "log", &["127.0.0.1:1"], "12M")[0];
    let server = serve(&dir, file);
    let record = "x".repeat(60_000);
    let (mut count, mut printed) = (0, String::new());
    while !printed.contains("the volume of this replica is full") {
        let (well, text) = op(&server, &["append", &record]);
        assert_eq!(well, !text.contains("full"), "{text}");
        count += u32::from(well);
        printed = text;
    }
    assert!(printed.contains("upcall replica grow FILE"), "{printed}");
    assert!(count > 20, "{count}");
    let grow = |size| run(&["replica", "grow", file, "--size", size]);
    let (well, printed) = grow("64M");
    assert!(!well && printed.contains("in use by another process"), "{printed}");
    assert_eq!(server.end(), Some(0));
    let (well, printed) = grow("8M");
    assert!(!well && printed.contains("choose a larger --size"), "{printed}");
    let (well, printed) = grow("64M");
    assert!(well && printed.contains("64 MiB now"), "{printed}");
    let (well, printed) = run(&["volume", "check", file]);
    assert!(well && printed.ends_with("nothing is wrong\n"), "{printed}");
    let server = serve(&dir, file);
    assert_eq!(op(&server, &["size"]).1.split_whitespace().next(), Some(&*count.to_string()));
    assert!(op(&server, &["append", &record]).0);
    // Nothing is left beside it, and the key of its service.
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["it.1.replica", "it.key"]);
}

/// Serves a replica at the address known to its peers, on a socket beside its file.
fn serve_at(dir: &Scratch, file: &str, address: &str) -> Server {
    let ports = ["--9p", address, "--http", "127.0.0.1:0"];
    Server::with(&[&[dir.path().to_str().unwrap()], &ports[..], &["--replica", file]].concat())
}

/// After a stop, the file is replaced by an older copy: the others have more of its operations than
/// it has itself.
#[test]
fn an_older_copy_of_a_replica_is_found_out() {
    let dir = Scratch::new("outdated");
    let place = dir.path().to_str().unwrap();
    let addresses = ["1", "2"].map(|id| format!("unix:{place}/{id}.sock"));
    let members: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let files = made(&dir, "counter", &members, "16M");
    let second = serve_at(&dir, &files[1], members[1]);
    let first = serve_at(&dir, &files[0], members[0]);
    assert!(op(&first, &["add", "1", "--strict"]).0);
    assert_eq!(first.end(), Some(0));
    let copy = format!("{place}/copy");
    std::fs::copy(&files[0], &copy).unwrap();
    let first = serve_at(&dir, &files[0], members[0]);
    // Stable operations are at the other one, too.
    assert_eq!(op(&first, &["add", "1", "--strict"]), (true, "2\n".to_string()));
    assert_eq!(first.end(), Some(0));
    std::fs::rename(&copy, &files[0]).unwrap();
    let first = serve_at(&dir, &files[0], members[0]);
    // It works until it hears from the other one.
    let printed = (0..1000).map(|_| op(&first, &["read"])).find(|(well, _)| !well);
    let (_, printed) = printed.expect("it is found out");
    assert!(printed.contains("not done: this replica is an older copy of itself"), "{printed}");
    assert!(printed.contains("find its newest file"), "{printed}");
    let (_, status) = run(&["replica", "status", "--at", first.ninep(), "it"]);
    assert!(status.contains("\nfailed   an older copy of itself\n"), "{status}");
    // The other one continues.
    assert!(op(&second, &["read"]).1.starts_with("2\n"));
}

/// No message is sent to the killed member: the end of its connection reveals it.
#[test]
fn a_member_that_was_killed_is_not_taken_for_one_that_is_idle() {
    let dir = Scratch::new("killed-member");
    let place = dir.path().to_str().unwrap();
    let addresses = ["1", "2"].map(|id| format!("unix:{place}/{id}.sock"));
    let members: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let files = made(&dir, "counter", &members, "16M");
    let second = serve_at(&dir, &files[1], members[1]);
    let first = serve_at(&dir, &files[0], members[0]);
    assert!(op(&first, &["add", "1", "--strict"]).0);
    let status = || run(&["replica", "status", "--at", first.ninep(), "it"]).1;
    assert!(status().contains("  idle, has ") || status().contains("  writing, has "));
    second.kill();
    while !status().contains(": not connected, lacks 0") {
        thread::yield_now();
    }
    let metrics = crate::server::get(first.http(), "/.upcall/metrics");
    let row = "upcall_replica_member_up{service=\"it\",replica=\"1\",member=\"2\"} 0\n";
    assert!(metrics.contains(row), "{metrics}");
}

#[test]
fn a_status_in_json_is_one_array() {
    let dir = Scratch::new("statuses");
    let place = dir.path().to_str().unwrap();
    let mut files = Vec::new();
    for service in ["hits", "words"] {
        let args = ["replica", "init", service, "--type", "counter", "--members", "127.0.0.1:1"];
        let (well, printed) = run(&[&args[..], &["--dir", place, "--size", "16M"]].concat());
        assert!(well, "{printed}");
        files.push(format!("{place}/{service}.1.replica"));
    }
    let server = Server::start(dir.path(), &["--replica", &files[0], "--replica", &files[1]]);
    let services = |words: &[&str]| {
        let args = [&["replica", "status", "--json", "--at", server.ninep()], words].concat();
        let (well, printed) = run(&args);
        assert!(well, "{printed}");
        let all: Vec<Value> = serde_json::from_str(&printed).unwrap();
        all.iter().map(|it| it["service"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(services(&[]), ["hits", "words"]);
    assert_eq!(services(&["words"]), ["words"]);
    let plain = Server::start(dir.path(), &[]);
    let (well, printed) = run(&["replica", "status", "--at", plain.ninep()]);
    assert!(!well && printed.starts_with("upcall: the server has no services; "), "{printed}");
}

/// Sends a signal to a server.
fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Waits until the status of a replica contains this text; returns the duration.
fn wait_for(server: &Server, what: &str) -> Duration {
    let begun = Instant::now();
    let status = || run(&["replica", "status", "--at", server.ninep(), "it"]).1;
    while !status().contains(what) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{}", status());
        thread::yield_now();
    }
    begun.elapsed()
}

/// Its process is stopped; its kernel, and so its connections, stay.
#[test]
fn a_member_that_hangs_is_silent_until_it_goes_on() {
    let dir = Scratch::new("hung-member");
    let place = dir.path().to_str().unwrap();
    let addresses = ["1", "2"].map(|id| format!("unix:{place}/{id}.sock"));
    let members: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let files = made(&dir, "counter", &members, "16M");
    let second = serve_at(&dir, &files[1], members[1]);
    let first = serve_at(&dir, &files[0], members[0]);
    assert!(op(&first, &["add", "1", "--strict"]).0);
    let metric = |up: u8| {
        let metrics = crate::server::get(first.http(), "/.upcall/metrics");
        let row = "upcall_replica_member_up{service=\"it\",replica=\"1\",member=\"2\"}";
        assert!(metrics.contains(&format!("{row} {up}\n")), "{metrics}");
    };
    metric(1);
    signal(&second, "-STOP");
    // Messages queued for it meanwhile do not hide that it hangs.
    assert!(op(&first, &["add", "1"]).0);
    let took = wait_for(&first, "  silent: no reply for 6 s, lacks 1");
    assert!((3.0..20.0).contains(&took.as_secs_f64()), "{took:?}");
    metric(0);
    signal(&second, "-CONT");
    wait_for(&first, "  idle, has 1:2, lacks 0");
    metric(1);
    assert_eq!(op(&first, &["read", "--strict"]), (true, "2\n".to_string()));
}

/// The others continue without it; when it continues itself, it is notified, and does nothing more.
#[test]
fn a_member_that_is_silent_for_too_long_is_removed() {
    let dir = Scratch::new("removed-member");
    let place = dir.path().to_str().unwrap();
    let addresses = ["1", "2", "3"].map(|id| format!("unix:{place}/{id}.sock"));
    let members = addresses.join(",");
    let init = |time| {
        let args = ["replica", "init", "it", "--type", "counter", "--members", &members];
        let rest = ["--dir", place, "--size", "16M", "--remove-after", time];
        run(&[&args[..], &rest].concat())
    };
    let (well, printed) = init("2s");
    assert!(!well && printed.contains("use 10s or more"), "{printed}");
    let (well, printed) = init("10s");
    assert!(well, "{printed}");
    let server =
        |id: usize| serve_at(&dir, &format!("{place}/it.{id}.replica"), &addresses[id - 1]);
    let servers = [1, 2, 3].map(server);
    let [first, second, third] = &servers;
    assert!(op(third, &["add", "1", "--strict"]).0);
    assert!(op(first, &["add", "1", "--strict"]).0);
    let (_, status) = run(&["replica", "status", "--at", first.ninep(), "it"]);
    assert!(status.contains("removal  of a member that is silent for 10 s"), "{status}");
    signal(third, "-STOP");
    // Strict operations wait for it, as long as it is a member.
    let (well, printed) = op(first, &["add", "1", "--strict", "--wait", "1s"]);
    assert!(!well && printed.contains("replica 3"), "{printed}");
    let took = wait_for(first, "one of 2, epoch 2");
    assert!((6.0..40.0).contains(&took.as_secs_f64()), "{took:?}");
    assert_eq!(op(second, &["add", "1", "--strict"]), (true, "4\n".to_string()));
    signal(third, "-CONT");
    wait_for(third, "failed   no member any more");
    for strict in [&["add", "1"][..], &["read", "--strict"]] {
        let (well, printed) = op(third, strict);
        assert!(!well && printed.contains("no member of its service"), "{printed}");
    }
    assert_eq!(op(first, &["read", "--strict"]), (true, "4\n".to_string()));
}

/// Servers of version 3 cannot take part in a removal; of two members neither is removed.
#[test]
fn a_service_that_removes_members_says_what_it_needs() {
    let note = "of fewer than three members none is removed";
    for (members, rest, version, is_noted) in [
        ("127.0.0.1:1,127.0.0.1:2", &["--remove-after", "30s"][..], 4, true),
        ("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", &["--remove-after", "30s"], 4, false),
        ("127.0.0.1:1,127.0.0.1:2", &[], 3, false),
    ] {
        let dir = Scratch::new("removal-needs");
        let place = dir.path().to_str().unwrap();
        let args = ["replica", "init", "it", "--type", "counter", "--members", members];
        let (well, printed) = run(&[&args[..], &["--dir", place, "--size", "16M"], rest].concat());
        assert!(well && printed.contains(note) == is_noted, "{printed}");
        let key = std::fs::read_to_string(dir.path().join("it.key")).unwrap();
        assert!(key.contains(&format!("\"version\": {version},")), "{key}");
        let server = serve(&dir, &format!("{place}/it.1.replica"));
        assert!(op(&server, &["read"]).0);
    }
}

/// Sends these lines to a service, and waits for the replies.
fn ask(client: &Client, lines: &str) -> Vec<String> {
    let flags = OpenOptions::new().read(true).write(true);
    let mut ops = client.open_with("/services/it/ops", flags).unwrap();
    for piece in lines.as_bytes().chunks(100_000) {
        ops.write_all(piece).unwrap();
    }
    let count = lines.lines().count();
    BufReader::new(ops).lines().take(count).map(|line| line.unwrap()).collect()
}

/// A client requests formulas at the limit of cost, each many milliseconds of work; another one
/// reads a file meanwhile.
#[test]
fn a_replica_at_work_delays_no_file() {
    let dir = Scratch::new("at-work");
    let file = &made(&dir, "sheet", &["127.0.0.1:1"], "64M")[0];
    std::fs::write(dir.path().join("small"), [7; 4096]).unwrap();
    let server = serve(&dir, file);
    let connect =
        || Client::connect(&server.ninep().parse().unwrap(), &Options::default()).unwrap();
    let (asks, reads) = (connect(), connect());
    for rows in (1..=10_000).collect::<Vec<u32>>().chunks(5000) {
        let mut cells = String::new();
        rows.iter().for_each(|row| write!(cells, ",\"A{row}\":\"7\"").unwrap());
        let printed = ask(&asks, &format!("{{\"op\":{{\"load\":{{{}}}}}}}\n", &cells[1..]));
        assert!(printed[0].starts_with("{\"value\""), "{printed:?}");
    }
    let (mut lines, formulas) = (String::new(), 40);
    for number in 1..=formulas {
        let sums = ["SUM(A1:A10000)"; 30].join("+");
        writeln!(lines, "set B{number} ={sums}\nget B{number}").unwrap();
    }
    let asking = thread::spawn(move || ask(&asks, &lines));
    let mut count = 0;
    while !asking.is_finished() {
        assert_eq!(reads.read_file("/small").unwrap().len(), 4096);
        count += 1;
    }
    let printed = asking.join().unwrap();
    assert!(printed[1].contains("#LIMIT!"), "{}", printed[1]);
    assert!(count > 5 * formulas, "the file was read {count} times beside {formulas} formulas");
    assert_eq!(server.end(), Some(0));
}

/// Performs operations, one a line, at a server: returns exit code, standard output, standard
/// error.
fn op_lines(server: &Server, options: &[&str], lines: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(BINARY);
    command.args(["op", "--at", server.ninep(), "it"]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn values_go_to_standard_output_and_status_to_standard_error() {
    let dir = Scratch::new("bare");
    // Without its peer nothing becomes stable.
    let file = &made(&dir, "map", &["127.0.0.1:1", "127.0.0.1:2"], "16M")[0];
    let server = serve(&dir, file);
    let lines = "put a b\nget a\nget nothing\n";
    let (code, printed, errors) = op_lines(&server, &["--wait", "500ms"], lines);
    assert_eq!((code, &printed[..]), (Some(0), "b\n"), "{errors}");
    let status = errors.lines().skip(1).collect::<Vec<_>>();
    assert_eq!(status, ["(not final yet)", "(nothing, not final yet)"], "{errors}");
    assert!(errors.starts_with("done"), "{errors}");
    let (code, _, errors) = op_lines(&server, &[], "put a b\n\n{\"puts\": 1}\nc,d\n");
    assert_eq!(code, Some(1));
    assert!(errors.contains("upcall: line 3: no operation in JSON: "), "{errors}");
    assert!(errors.contains("upcall: line 4: unknown operation \"c,d\""), "{errors}");
    assert!(errors.contains("  put KEY VALUE "), "{errors}");
    let csv = dir.path().join("in.csv");
    std::fs::write(&csv, "a,b\n").unwrap();
    let (well, printed) =
        run(&["replica", "import", "--at", server.ninep(), "it", csv.to_str().unwrap()]);
    assert!(
        !well && printed.contains("'it' is a map, and CSV and XLSX files are for"),
        "{printed}"
    );
    assert!(printed.contains("each in a line like 'put KEY VALUE'"), "{printed}");
}

/// The cell of a formula that cannot be evaluated is named once.
#[test]
fn an_import_names_the_replaced_cells() {
    let dir = Scratch::new("notes");
    let file = &made(&dir, "sheet", &["127.0.0.1:1"], "16M")[0];
    let server = serve(&dir, file);
    let csv = dir.path().join("in.csv");
    std::fs::write(&csv, "1,2,3,4,=NOW()\n").unwrap();
    let (well, printed) =
        run(&["replica", "import", "--at", server.ninep(), "it", csv.to_str().unwrap()]);
    assert!(
        well && printed.contains("E1: NOW depends on more") && !printed.contains("E1: E1"),
        "{printed}"
    );
    let (well, printed) = op(&server, &["set", "E1", "=NOW()"]);
    assert!(
        !well && printed.contains("E1: NOW depends") && !printed.contains("E1: E1"),
        "{printed}"
    );
}
