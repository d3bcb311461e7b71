//! End-to-end tests of `upcall load`. The effect of the machine on its times is not judged here.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::server::{BINARY, Scratch, Server};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `upcall load …`, which yields the processor to others.
fn load(words: &[&str]) -> Output {
    Command::new(BINARY).arg("load").args(words).stdin(Stdio::null()).output().unwrap()
}

/// Runs it successfully; returns its report as JSON. It exits with 0 or, on a busy machine, 3.
fn measures(words: &[&str]) -> Value {
    let output = load(&[words, &["--policy", "sleep", "--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let valid = report["verdict"]["valid"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if valid { 0 } else { 3 }), "{words:?}: {errors}");
    report
}

/// Runs it unsuccessfully; returns the reason.
fn refuses(words: &[&str]) -> String {
    let output = load(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    assert!(output.stdout.is_empty(), "nothing was measured");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the number of I/Os of a kind, all of which must have succeeded.
fn count(report: &Value, kind: &str) -> u64 {
    assert_eq!(report["failed"], 0, "{report}");
    report["times"][kind]["service"]["count"].as_u64().unwrap_or(0)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

#[test]
fn null_says_how_well_the_instrument_keeps_time() {
    let report = measures(&["--target", "null", "--rate", "2000", "--seconds", "1"]);
    assert!((1700..2300).contains(&count(&report, "read")), "{report}");
    let output = load(&["--target", "null", "--rate", "500", "--seconds", "0.5"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    for part in ["lateness", "issued", "≤ 10 µs", "VALID"] {
        assert!(printed.contains(part), "{printed}");
    }
}

#[test]
fn a_trace_with_enormous_ios_is_refused() {
    let dir = Scratch::new("load-enormous");
    let trace = dir.path().join("trace.spc");
    // Unit, block, bytes, kind, seconds.
    std::fs::write(&trace, "0,0,4096,r,0.1\n0,8,4294967295,r,0.2\n").unwrap();
    let why = refuses(&["replay", &text(&trace), "--target", "null"]);
    assert!(why.contains("cannot replay an I/O of 4294967295 bytes"), "{why}");
}

#[test]
fn a_file_is_made_and_not_written_again_without_leave() {
    let dir = Scratch::new("load-file");
    let path = dir.path().join("data");
    let target = format!("file:{}", path.display());
    let target = ["--target", &target, "--file-size", "4M", "--rate", "500", "--seconds", "0.5"];
    let report = measures(&[&target[..], &["--mix", "read=1,write=1"]].concat());
    assert!(count(&report, "read") > 50 && count(&report, "write") > 50);
    let before = std::fs::read(&path).unwrap();
    assert_eq!(before.len(), 4 << 20);
    assert!(before.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));

    let why = refuses(&[&target[..], &["--mix", "write"]].concat());
    assert!(why.contains("exists") && why.contains("--destroy"), "{why}");
    measures(&target);
    assert!(std::fs::read(&path).unwrap() == before, "reading changed it");
    measures(&[&target[..], &["--mix", "write,sync", "--destroy"]].concat());
    assert!(std::fs::read(&path).unwrap() != before, "leave was given");
    for engine in ["uring", "threads"] {
        let users = &target[..4];
        let closed = ["--users", "4", "--seconds", "0.2", "--engine", engine];
        let report = measures(&[users, &closed].concat());
        assert!(count(&report, "read") > 4, "{engine}");
        let verdict = report["verdict"].to_string();
        assert!(
            verdict.contains("The loop is closed") && !verdict.contains("\"near\""),
            "{verdict}"
        );
        let limits = ["--limit", "near=0%", "--limit", "tail=1h", "--limit", "rate=100%"];
        let report = measures(&[users, &closed, &limits].concat());
        let reasons = report["verdict"]["reasons"].as_array().unwrap();
        let limit =
            |rule: &str| reasons.iter().find(|it| it["rule"] == rule).unwrap()["limit"].clone();
        assert_eq!((limit("near"), limit("tail")), (0.0.into(), 3.6e12.into()), "{report}");
    }
}

/// A mistyped path in a run that only reads creates nothing, whatever the target.
#[test]
fn a_read_only_run_creates_nothing_without_create() {
    let dir = Scratch::new("load-mistyped");
    let server = Server::start(dir.path(), &["--http-write", "--nfs", "127.0.0.1:0"]);
    let place = dir.path().display();
    let targets = [
        format!("file:{place}/file"),
        format!("dir:{place}/dir"),
        format!("volume:{place}/volume"),
        format!("9p://{}/nine", server.ninep()),
        format!("nfs://{}/nfs", server.nfs()),
        format!("http://{}/http", server.http()),
    ];
    for target in &targets {
        let run = ["--target", target, "--file-size", "1M", "--rate", "100", "--seconds", "0.1"];
        let why = refuses(&run);
        assert!(why.contains("does not exist") && why.contains("--create"), "{target}: {why}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert!(left.is_empty(), "{target}: {left:?}");
    }
    for target in &targets {
        let run = ["--target", target, "--file-size", "1M", "--rate", "100", "--seconds", "0.1"];
        measures(&[&run[..], &["--create"]].concat());
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_run_that_only_reads_changes_nothing_in_a_volume() {
    let dir = Scratch::new("load-volume-read");
    let path = dir.path().join("v.volume");
    let created = ["volume", "create", &text(&path), "--size", "64M"];
    assert!(Command::new(BINARY).args(created).output().unwrap().status.success());
    let before = std::fs::read(&path).unwrap();
    let target = format!("volume:{}", path.display());
    let run = ["--target", &target, "--file-size", "1M", "--rate", "100", "--seconds", "0.1"];
    let why = refuses(&run);
    assert!(why.contains("no load ever wrote") && why.contains("--destroy"), "{why}");
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
    measures(&[&run[..], &["--destroy"]].concat());
    let before = std::fs::read(&path).unwrap();
    measures(&run);
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
}

/// The reported cause is the status, not the resulting end of the connection.
#[test]
fn a_server_that_takes_no_writes_is_named_as_the_cause() {
    let dir = Scratch::new("load-read-only");
    let server = Server::start(dir.path(), &[]);
    let http = format!("http://{}/new", server.http());
    let why = refuses(&["--target", &http, "--mix", "write", "--file-size", "64M"]);
    assert!(why.contains("405") && why.contains("--http-write"), "{why}");
    assert_eq!(server.end(), Some(0));

    let server = Server::start(dir.path(), &["--read-only"]);
    let ninep = format!("9p://{}/new", server.ninep());
    let why = refuses(&["--target", &ninep, "--mix", "write", "--file-size", "1M"]);
    assert!(why.contains("read-only") || why.contains("Read-only"), "{why}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn invalid_options_are_refused_with_a_next_step() {
    let dir = Scratch::new("load-refusals");
    let path = text(dir.path());
    std::fs::write(dir.path().join("trace"), "what is this\n").unwrap();
    let trace = format!("{path}/trace");
    for (words, advice) in [
        (vec![], "--target null"),
        (vec!["--target", "nowhere"], "write null, file:PATH"),
        (vec!["--target", &path], "name a file in it"),
        (
            vec!["--target", "9p://127.0.0.1:1/x"],
            "upcall: cannot reach 127.0.0.1:1: Connection refused (os error 111); check whether a \
             server listens there\n",
        ),
        (vec!["--target", "null", "--late", "never"], "skip:1ms"),
        (vec!["replay", &trace, "--target", "null"], "--format FORMAT"),
        (vec!["compare", &trace, &trace], "--format FORMAT"),
        (vec!["trace", "info", "/no/such/trace"], "No such file"),
    ] {
        let why = refuses(&words);
        assert!(why.contains(advice), "{words:?}: {why}");
    }
}

/// Writes a trace of 300 I/Os, 1 ms apart, in the format of MSR Cambridge.
fn trace(path: &Path) {
    let mut text = String::new();
    for number in 0_u64..300 {
        let (time, offset) = (128_166_372_003_061_629 + number * 10_000, number * 8192);
        let kind = if number % 3 == 0 { "Write" } else { "Read" };
        writeln!(text, "{time},host,0,{kind},{offset},4096,2500").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_trace_is_replayed_and_compared_with_what_became_of_it() {
    let dir = Scratch::new("load-replay");
    let file = |name: &str| text(&dir.path().join(name));
    trace(&dir.path().join("trace"));
    let (target, records) = (format!("file:{}", file("data")), file("records"));
    let replay = ["replay", &file("trace"), "--target", &target, "--file-size", "4M"];
    let report = measures(&[&replay[..], &["--records", &records]].concat());
    assert_eq!((count(&report, "read"), count(&report, "write")), (200, 100));

    let output = load(&["compare", &file("trace"), &records, "--json"]);
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(comparison["issue"]["matched_share"], 1.0);
    let faithful = comparison["faithful"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if faithful { 0 } else { 3 }));
    let output = load(&["compare", &records, &records]);
    assert_eq!(output.status.code(), Some(0), "a run has its own load");

    for way in ["fast", "loaded", "dependent"] {
        let report = measures(&[&replay[..], &["--destroy", "--way", way]].concat());
        assert_eq!((count(&report, "read"), count(&report, "write")), (200, 100), "{way}");
    }
    for scheme in ["select", "sleep", "clock"] {
        let naive = ["--read-only", "--scheme", scheme, "--json"];
        let output = load(&[&replay[..], &naive].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(count(&report, "read"), 300, "{scheme}");
    }
    let spoilt = ["--read-only", "--quantize", "10ms", "--delay", "1ms"];
    assert_eq!(count(&measures(&[&replay[..], &spoilt].concat()), "read"), 300);
    let part = ["--read-only", "--skip", "10", "--take", "50", "--speed", "4"];
    let report = measures(&[&replay[..], &part].concat());
    assert_eq!((count(&report, "read"), count(&report, "write")), (50, 0));
}

#[test]
fn traces_are_described_converted_and_made_anonymous() {
    let dir = Scratch::new("load-traces");
    let file = |name: &str| text(&dir.path().join(name));
    trace(&dir.path().join("trace"));
    let shows = |words: &[&str]| {
        let output = load(&[&["trace"], words].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(shows(&["info", &file("trace")]).contains("300 I/Os"));
    assert!(shows(&["convert", &file("trace"), &file("recording")]).contains("300 I/Os written"));
    let again = ["convert", &file("recording"), &file("msr"), "--into", "msr"];
    assert!(shows(&again).contains("300 I/Os written"));
    shows(&["anonymize", &file("recording"), &file("hidden"), "--key", "7"]);
    let hidden = std::fs::read(dir.path().join("hidden")).unwrap();
    assert!(!hidden.windows(4).any(|bytes| bytes == b"host"), "the name is not there");
    let output = load(&["compare", &file("trace"), &file("hidden")]);
    assert_eq!(output.status.code(), Some(0), "its times and places are the same");
}

#[test]
fn every_report_is_written_where_it_was_asked_for() {
    let dir = Scratch::new("load-reports");
    let file = |name: &str| text(&dir.path().join(name));
    let names = [file("page"), file("fio"), file("log"), file("records")];
    let [page, fio, log, records] = &names;
    let run = ["--target", "null", "--rate", "1000", "--seconds", "0.3"];
    let files = ["--html", page, "--fio", fio, "--hdr", log, "--records", records];
    measures(&[&run[..], &files].concat());
    let read = |name: &String| std::fs::read_to_string(name).unwrap();
    assert!(read(page).contains("<svg") && !read(page).contains("<script"));
    let fio: Value = serde_json::from_str(&read(fio)).unwrap();
    assert!(fio["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 200);
    assert!(read(log).starts_with("#["), "an HdrHistogram log");
    assert!(std::fs::metadata(records).unwrap().len() > 64 * 200);
}

/// Waits for the message that a load prints once it handles signals.
fn await_start(printed: &mut impl BufRead) {
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.starts_with("load: "), "{line}");
}

#[test]
fn an_interrupt_ends_it_with_the_report_of_what_was_measured() {
    let words = ["load", "--target", "null", "--rate", "1000", "--seconds", "60"];
    let mut child = Command::new(BINARY);
    child.args(words).args(["--policy", "sleep", "--json"]).stdin(Stdio::null());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    await_start(&mut printed);
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "it ends soon");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(count(&report, "read") > 0, "{report}");
    assert!(report["verdict"]["notes"].to_string().contains("interrupted"), "{report}");
}

#[test]
fn files_of_an_nfs_server_are_read_written_and_committed() {
    let dir = Scratch::new("load-nfs");
    let server = Server::start(dir.path(), &["--nfs", "127.0.0.1:0"]);
    std::fs::create_dir(dir.path().join("deep")).unwrap();
    let run = |path: &str, more: &[&str]| {
        let target = format!("nfs://{}/{path}", server.nfs());
        let closed = ["--target", &target, "--users", "8", "--seconds", "0.3"];
        measures(&[&closed[..], &["--file-size", "4M"], more].concat())
    };
    let report = run("deep/{}", &["--files", "3", "--mix", "read=2,write=1,sync=1"]);
    for kind in ["read", "write", "sync"] {
        assert!(count(&report, kind) > 5, "{kind}: {report}");
    }
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
    assert_eq!([size("deep/0"), size("deep/1"), size("deep/2")], [4 << 20; 3]);
    let report = run("1", &["--files", "1", "--aname", "/deep", "--size", "3M"]);
    assert!(count(&report, "read") > 1, "{report}");
    let read = &report["times"]["read"];
    assert_eq!(read["bytes"].as_u64().unwrap(), count(&report, "read") * (3 << 20), "{read}");

    let target = format!("nfs://{}/deep/1", server.nfs());
    let words = ["--target", &target, "--mix", "write"];
    assert!(refuses(&words).contains("--destroy"));
    let words = ["--target", &target, "--mount-port", "1"];
    assert!(refuses(&words).contains("127.0.0.1:1"));
    let words = ["--target", &format!("nfs://{}/none/1", server.nfs())];
    assert!(refuses(&words).contains("No such file"));
    let words = ["--target", &format!("nfs://{}/deep/1", server.ninep())];
    assert_eq!(load(&words).status.code(), Some(2), "9P is no NFS");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn servers_and_volumes_are_loaded_as_files_are() {
    let dir = Scratch::new("load-servers");
    std::fs::write(dir.path().join("data"), vec![7; 4 << 20]).unwrap();
    let server = Server::start(dir.path(), &[]);
    let ninep = format!("9p://{}/data", server.ninep());
    let http = format!("http://{}/data", server.http());
    let volume = format!("volume:{}", text(&dir.path().join("volume")));
    for target in [&ninep, &http, &volume] {
        let run = ["--target", target, "--rate", "300", "--seconds", "0.5"];
        let more = ["--connections", "3", "--file-size", "4M", "--create"];
        let report = measures(&[&run[..], &more].concat());
        assert!(count(&report, "read") > 80, "{target}: {report}");
    }
    assert!(refuses(&["--target", &ninep, "--mix", "write"]).contains("--destroy"));
    assert!(refuses(&["--target", &http, "--mix", "write"]).contains("--destroy"));
    assert!(refuses(&["--target", &volume, "--mix", "write"]).contains("--destroy"));
    let report = measures(&[
        "--target",
        &volume,
        "--mix",
        "write,sync",
        "--destroy",
        "--durable",
        "--file-size",
        "4M",
        "--users",
        "3",
        "--seconds",
        "0.3",
    ]);
    assert!(count(&report, "write") > 5, "{report}");
    assert_eq!(server.end(), Some(0));
}

/// Every kind of statement of a workload file, on files that are created and removed.
const MAIL: &str = "
[run]
name = \"small\"
seconds = \"0.5s\"

[[stream]]
name = \"pages\"
rate = 200
span = \"1MiB\"

[[users]]
name = \"thinkers\"
users = 3
think = \"2ms\"
span = \"1MiB\"

[[postmark]]
name = \"boxes\"
files = 40
transactions = 60
";

#[test]
fn a_file_combines_workloads_without_programming() {
    let dir = Scratch::new("load-run");
    let file = |name: &str| text(&dir.path().join(name));
    std::fs::write(dir.path().join("mail.toml"), MAIL).unwrap();
    let target = format!("dir:{}", file("tree"));
    let run = ["run", &file("mail.toml"), "--target", &target, "--file-size", "1M"];
    let report = measures(&run);
    for kind in ["read", "create", "remove"] {
        assert!(count(&report, kind) >= 40, "{kind}: {report}");
    }
    assert!(report["title"]["workload"].as_str().unwrap().contains("`boxes` PostMark-like"));
    let left: Vec<_> = std::fs::read_dir(dir.path().join("tree/0")).unwrap().collect();
    assert_eq!(left.len(), 1, "what it made it has removed, but for the shared file");

    let stream = "[run]\nseconds = 1\n[[stream]]\nrate = 100\narrival = \"uniform\"\n";
    std::fs::write(dir.path().join("stream.toml"), stream).unwrap();
    let report = measures(&["run", &file("stream.toml"), "--scale", "5", "--target", "null"]);
    assert!((499..=501).contains(&count(&report, "read")), "{report}");

    let why = refuses(&run);
    assert!(why.contains("--destroy"), "{why}");
    let why = refuses(&["run", &file("mail.toml"), "--target", &format!("file:{}", file("x"))]);
    assert!(why.contains("dir:PATH"), "{why}");
    std::fs::write(dir.path().join("bad.toml"), "[[stream]]\nrate = 5\ncolour = 1\n").unwrap();
    let why = refuses(&["run", &file("bad.toml"), "--target", "null"]);
    assert!(why.contains("bad.toml") && why.contains("`colour`"), "{why}");
}

/// Relays the first connection to a server; the others never get a reply.
fn silent_behind_the_first(server: &str) -> u16 {
    let server = server.to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let first = listener.accept().unwrap().0;
        let server = TcpStream::connect(server).unwrap();
        for (from, to) in [(&first, &server), (&server, &first)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        let held: Vec<_> = listener.incoming().collect();
        drop(held);
    });
    own
}

#[test]
fn an_interrupt_while_a_server_is_waited_for_ends_it_at_once() {
    let dir = Scratch::new("load-silent");
    std::fs::write(dir.path().join("data"), [1; 8192]).unwrap();
    let server = Server::start(dir.path(), &[]);
    let target = format!("9p://127.0.0.1:{}/data", silent_behind_the_first(server.ninep()));
    let mut child = Command::new(BINARY);
    child.args(["load", "--target", &target, "--rate", "10"]).stdin(Stdio::null());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    await_start(&mut printed);
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "it ends soon");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    let printed = rest;
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(printed.contains("before it began"), "{printed}");
}
