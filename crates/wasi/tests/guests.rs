//! Real programs, over a tree in memory, as built by `cargo xtask guests`.
//!
//! With `UPCALL_GUESTS` set to the directory of the modules, each must be there. Without it these
//! tests are skipped.

mod support;

use base::Kind;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use support::drive::{self, Run, Session};
use support::ram::Ram;
use wasi::{Ended, Engine, Pace, Program};

/// Fuel of a slice: large enough for real programs.
const SLICE_FUEL: u64 = 1_000_000;

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(Pace::Fuel(SLICE_FUEL)).expect("an engine"))
}

/// Compiled programs by name, each compiled once.
static PROGRAMS: Mutex<BTreeMap<String, Arc<OnceLock<Program>>>> = Mutex::new(BTreeMap::new());

/// Runs a program by name; `None` if the guests have not been built.
fn run(ram: &mut Ram, name: &str, session: &Session) -> Option<Run> {
    let Some(dir) = std::env::var_os("UPCALL_GUESTS").map(PathBuf::from) else {
        base::skip("UPCALL_GUESTS is not set: cargo xtask guests builds them");
        return None;
    };
    let file = dir.join(format!("{name}.wasm"));
    let program = Arc::clone(
        PROGRAMS.lock().expect("no test has failed").entry(name.to_owned()).or_default(),
    );
    let program = program.get_or_init(|| {
        let wasm = std::fs::read(&file);
        let wasm = wasm.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        engine().compile(&wasm).expect("it compiles")
    });
    let run = drive::run(ram, program, session);
    eprintln!("{name}: {:?} {:?}\n{}", run.ended, run.used, String::from_utf8_lossy(&run.error));
    Some(run)
}

/// Runs it with these arguments; it must succeed.
fn output(ram: &mut Ram, args: &[&str], input: &str) -> Option<String> {
    let session = Session { input: input.as_bytes().to_vec(), writes: true, ..Session::new(args) };
    let run = run(ram, args[0], &session)?;
    assert_eq!(run.ended, Ended::Exit(0), "{}", String::from_utf8_lossy(&run.error));
    Some(run.text())
}

fn tree() -> Ram {
    let mut ram = Ram::new(&[
        ("src/main.rs", Kind::File, "fn main() {\n    needle();\n}\n"),
        ("src/deep/er/lib.rs", Kind::File, "// no such thing\nfn needle() {}\n"),
        ("doc/read.me", Kind::File, "a needle\nin a haystack\n"),
        ("doc/link.md", Kind::Symlink, "read.me"),
        ("numbers", Kind::File, "10\n9\n8\n"),
        ("data.json", Kind::File, r#"{"rows":[{"n":1,"s":"a"},{"n":2,"s":"b"}]}"#),
    ]);
    let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    ram.put("long", Kind::File, long.as_bytes());
    ram.entries_max = 3;
    ram
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ripgrep_finds_lines_in_files() {
    let args = ["rg", "-n", "--no-ignore", "-j1", "needle", "/"];
    let Some(printed) = output(&mut tree(), &args, "") else { return };
    let all = ["/doc/read.me:1:a needle", "/src/deep/er/lib.rs:2:fn needle() {}"];
    assert_eq!(lines(&printed), [all[0], all[1], "/src/main.rs:2:    needle();"]);
    let args = ["rg", "--no-ignore", "-j1", "-c", "line 1.*9$", "/long"];
    assert_eq!(output(&mut tree(), &args, "").expect("it is there").trim(), "1111");
}

#[test]
fn coreutils_count_sort_and_sum() {
    let mut ram = tree();
    let mut core = |words: &str| {
        let args: Vec<_> = std::iter::once("coreutils").chain(words.split(' ')).collect();
        output(&mut ram, &args, "b\na\n")
    };
    let Some(printed) = core("wc /doc/read.me") else { return };
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["2", "5", "23", "/doc/read.me"]);
    let mut core = |words: &str| core(words).expect("it is there");
    assert_eq!(core("sort -n /numbers"), "8\n9\n10\n");
    assert_eq!(core("sort"), "a\nb\n");
    assert_eq!(core("head -n 1 /long"), "line 0\n");
    assert_eq!(core("tail -n 1 /long"), "line 19999\n");
    assert_eq!(core("cat /doc/link.md /numbers"), "a needle\nin a haystack\n10\n9\n8\n");
    assert_eq!(lines(&core("ls /")), ["data.json", "doc", "long", "numbers", "src"]);
    let sum = "293970a16b6f2597eb78546bcec447f73888f6a0193305b363a5d4d25c4e16ce";
    assert_eq!(core("sha256sum /numbers"), format!("{sum}  /numbers\n"));
    assert!(core("b2sum /numbers").ends_with("  /numbers\n"));
    assert!(core("cksum /numbers").ends_with(" 7 /numbers\n"));
    core("mkdir -p /new/dir");
    core("cp /numbers /new/dir/copy");
    core("mv /new/dir/copy /new/moved");
    core("truncate -s 2 /new/moved");
    core("sort -o /new/sorted /long");
    core("tee /new/tee");
    core("rm -r /doc");
    core("rmdir /new/dir");
    assert_eq!(lines(&core("ls /new")), ["moved", "sorted", "tee"]);
    assert_eq!(ram.contents("new/moved"), Some(&b"10"[..]));
    assert_eq!(ram.contents("new/tee"), Some(&b"b\na\n"[..]));
    assert_eq!(ram.contents("doc/read.me"), None);
    let sorted = ram.contents("new/sorted").expect("it was made");
    assert!(sorted.starts_with(b"line 0\nline 1\nline 10\nline 100\n"), "sorted");
}

#[test]
fn gojq_filters_json() {
    let args = ["gojq", "-c", ".rows | map(.n) | add, length", "/data.json"];
    let Some(printed) = output(&mut tree(), &args, "") else { return };
    assert_eq!(printed, "3\n2\n");
    let printed = output(&mut tree(), &["gojq", "-r", ".[0].s"], r#"[{"s":"from input"}]"#);
    assert_eq!(printed.expect("it is there"), "from input\n");
}

#[test]
fn sqlite_makes_a_database_and_reads_it_again() {
    let mut ram = tree();
    let make = "create table t(n integer primary key, s text);
        with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000)
        insert into t select x, 'row ' || x from c; create index i on t(s);";
    let Some(_) = output(&mut ram, &["sql", "/data.db", make], "") else { return };
    assert!(ram.contents("data.db").is_some_and(|bytes| bytes.starts_with(b"SQLite format 3")));
    assert_eq!(ram.contents("data.db-journal"), None, "it is removed in the end");
    let ask = "select count(*), sum(n), max(s) from t; pragma integrity_check;";
    let printed = output(&mut ram, &["sql", "/data.db"], ask).expect("it is there");
    assert_eq!(printed, "5000|12502500|row 999\nok\n");
    let undone = "begin; delete from t; rollback; select count(*) from t;";
    let printed = output(&mut ram, &["sql", "/data.db", undone], "").expect("it is there");
    assert_eq!(printed, "5000\n");
    // A read-only guest can still read, and gets an error on writes.
    let reads = Session::new(&["sql", "/data.db", "select count(*) from t; delete from t;"]);
    let run = run(&mut ram, "sql", &reads).expect("it is there");
    assert_eq!((run.ended, run.output), (Ended::Exit(1), b"5000\n".to_vec()));
    let error = String::from_utf8_lossy(&run.error).into_owned();
    assert!(error.contains("readonly"), "{error}");
}

#[test]
fn a_program_in_each_language() {
    let find = output(&mut tree(), &["find", "/", "-name", "*.rs"], "");
    let Some(find) = find else { return };
    assert_eq!(lines(&find), ["/src/deep/er/lib.rs", "/src/main.rs"]);
    let run = |args: &[&str], input| output(&mut tree(), args, input).expect("it is there");
    assert_eq!(run(&["wc", "/numbers"], ""), "3 3 7 /numbers\n");
    assert_eq!(run(&["wc"], "one two\n"), "1 2 8 -\n");
    let sums = run(&["sums", "/"], "");
    let files = lines(&sums).iter().map(|line| line[66..].to_string()).collect::<Vec<_>>();
    let core = ["coreutils", "sha256sum"].into_iter().chain(files.iter().map(String::as_str));
    assert_eq!(lines(&run(&core.collect::<Vec<_>>(), "")), lines(&sums), "by the server and not");
    let all = ["count", "line 1", "/doc/read.me", "/long"];
    assert_eq!(run(&all, ""), "11111 /long\n");
    assert_eq!(
        run(&["count", "need", "/doc/read.me", "/src/main.rs"], ""),
        "1 /doc/read.me\n1 /src/main.rs\n"
    );
    let usage = run(&["usage", "/"], "");
    assert!(usage.lines().any(|line| line == "60 2 rs"), "{usage}");
    assert_eq!(run(&["letters"], "Hello\n"), "e 1\nh 1\nl 2\no 1\n");
}

#[test]
fn programs_in_go_and_rust_see_that_a_file_is_missing() {
    for args in [["sums", "/none"], ["usage", "/none"], ["find", "/none"], ["wc", "/none"]] {
        let Some(run) = run(&mut tree(), args[0], &Session::new(&args)) else { return };
        assert_eq!(run.ended, Ended::Exit(1));
        let error = String::from_utf8_lossy(&run.error).to_lowercase();
        assert!(error.contains("no such file"), "{error}");
    }
}
