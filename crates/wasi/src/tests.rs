//! Guests, driven by hand over a small tree in memory.

use crate::support::drive::{self, Session};
use crate::support::ram::Ram;
use crate::{Budget, Ended, Engine, Pace, Reason, Used, abi};
use base::Kind;
use std::collections::BTreeSet;
use tree::Ask;

/// Result of a run.
struct Run {
    ended: Ended,
    output: String,
    used: Used,
}

/// Runs a module to its end, or for this many slices.
fn run(ram: &mut Ram, wat: &str, budget: Budget, slices_max: u64) -> Run {
    let program = drive::program(&drive::by_fuel(), wat);
    let session = Session { budget, slices_max, ..Session::new(&["guest"]) };
    let run = drive::run(ram, &program, &session);
    Run { ended: run.ended.clone(), output: run.text(), used: run.used }
}

/// Imports of the modules below.
const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
"#;

/// Imports of modules that create directories.
const IMPORTS_OF_MAKERS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_create_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
"#;

/// A module that opens a path and writes its contents to its output; its exit code is the first
/// errno.
fn cat(path: &str) -> String {
    format!(
        r#"(module {IMPORTS}
  (data (i32.const 1000) "{path}")
  (func $must (param i32) (if (local.get 0) (then (call $proc_exit (local.get 0)))))
  (func (export "_start")
    (call $must (call $path_open (i32.const 3) (i32.const 1) (i32.const 1000) (i32.const {len})
      (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
    (i32.store (i32.const 8) (i32.const 4096))
    (loop $more
      (i32.store (i32.const 12) (i32.const 5))
      (call $must
        (call $fd_read (i32.load (i32.const 0)) (i32.const 8) (i32.const 1) (i32.const 4)))
      (i32.store (i32.const 12) (i32.load (i32.const 4)))
      (if (i32.load (i32.const 4)) (then
        (call $must (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 4)))
        (br $more))))))"#,
        len = path.len()
    )
}

fn files() -> Ram {
    let mut ram = Ram::new(&[
        ("a", Kind::Directory, ""),
        ("a/b", Kind::Directory, ""),
        ("a/b/text", Kind::File, "some words that are read"),
        ("a/up", Kind::Symlink, "../a/b/./text"),
        ("a/dir", Kind::Symlink, "b"),
        ("out", Kind::Symlink, "../../etc/passwd"),
        ("host", Kind::Symlink, "/etc/passwd"),
        ("round", Kind::Symlink, "round"),
    ]);
    ram.entries_max = 2;
    ram
}

#[test]
fn a_file_is_read_by_any_way_that_stays_beneath() {
    for path in ["a/b/text", "./a//b/text", "a/b/../b/text", "a/up", "a/dir/text", "a/dir/../up"] {
        let run = run(&mut files(), &cat(path), Budget::default(), u64::MAX);
        assert_eq!((run.ended, run.output.as_str()), (Ended::Exit(0), "some words that are read"));
        assert_eq!(run.used.read, 24, "{path}");
    }
}

#[test]
fn no_path_leads_out_and_mistakes_are_reported() {
    let cases = [
        ("../x", abi::Errno::Notcapable),
        ("a/../../x", abi::Errno::Notcapable),
        ("out", abi::Errno::Notcapable),
        ("host", abi::Errno::Notcapable),
        ("/a", abi::Errno::Notcapable),
        ("round", abi::Errno::Loop),
        ("a/none", abi::Errno::Noent),
        ("none/../a/b/text", abi::Errno::Noent),
        ("a/b/text/x", abi::Errno::Notdir),
        ("a/b/text/", abi::Errno::Notdir),
    ];
    for (path, errno) in cases {
        let run = run(&mut files(), &cat(path), Budget::default(), u64::MAX);
        assert_eq!(run.ended, Ended::Exit(errno as u32), "{path}");
    }
}

#[test]
fn a_directory_is_listed_in_pieces() {
    let wat = format!(
        r#"(module {IMPORTS}
  (func (export "_start") (local $cookie i64)
    (loop $more
      (drop (call $fd_readdir (i32.const 3) (i32.const 4096) (i32.const 60)
        (local.get $cookie) (i32.const 4)))
      (if (i32.ge_u (i32.load (i32.const 4)) (i32.const 24)) (then
        (local.set $cookie (i64.load (i32.const 4096)))
        (i32.store (i32.const 8) (i32.const 4120))
        (i32.store (i32.const 12) (i32.load (i32.const 4112)))
        (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 4)))
        (br $more))))))"#
    );
    let run = run(&mut files(), &wat, Budget::default(), u64::MAX);
    assert_eq!((run.ended, run.output.as_str()), (Ended::Exit(0), "aouthostround"));
}

#[test]
fn a_list_from_the_beginning_is_of_the_directory_as_it_is_now() {
    let wat = format!(
        r#"(module {IMPORTS_OF_MAKERS}
  (data (i32.const 0) "new")
  (func $list (result i32)
    (drop (call $fd_readdir (i32.const 3) (i32.const 4096) (i32.const 4096)
      (i64.const 0) (i32.const 64)))
    (i32.load (i32.const 64)))
  (func (export "_start") (local $before i32)
    (local.set $before (call $list))
    (drop (call $path_create_directory (i32.const 3) (i32.const 0) (i32.const 3)))
    (call $proc_exit (i32.sub (call $list) (local.get $before)))))"#
    );
    let program = drive::program(&drive::by_fuel(), wat);
    let session = Session { writes: true, ..Session::new(&["guest"]) };
    let run = drive::run(&mut files(), &program, &session);
    assert_eq!(run.ended, Ended::Exit(24 + 3), "one entry more");
}

#[test]
fn a_large_file_is_read_ahead_and_may_be_closed_meanwhile() {
    const SIZE: usize = 1 << 20;
    let text: String = (0..SIZE / 8).map(|number| format!("{number:07}\n")).collect();
    let mut ram = files();
    ram.put("large", Kind::File, text.as_bytes());
    let wat = format!(
        r#"(module {IMPORTS}
  (data (i32.const 1000) "large")
  (func (export "_start") (local $left i32)
    (drop (call $path_open (i32.const 3) (i32.const 1) (i32.const 1000) (i32.const 5)
      (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
    (local.set $left (i32.const 12))
    (i32.store (i32.const 8) (i32.const 4096))
    (loop $more
      (i32.store (i32.const 12) (i32.const 32768))
      (drop (call $fd_read (i32.load (i32.const 0)) (i32.const 8) (i32.const 1) (i32.const 4)))
      (i32.store (i32.const 12) (i32.load (i32.const 4)))
      (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 4)))
      (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $proc_exit (call $fd_close (i32.load (i32.const 0))))))"#
    );
    let program = drive::program(&drive::by_fuel(), wat);
    let mut reads = Vec::new();
    let run = drive::run_with(&mut ram, &program, &Session::new(&["guest"]), &mut |ram, ask| {
        if let Ask::Read { offset, count, .. } = &ask {
            reads.push((*offset >> 10, *count >> 10));
        }
        ram.answer(ask)
    });
    assert_eq!(run.ended, Ended::Exit(0));
    assert_eq!(run.text(), text[..12 * 32768]);
    assert_eq!(reads, [(64, 128), (192, 256), (448, 256)], "the last one is not needed");
    assert_eq!(run.used.read, 704 << 10, "it is charged all the same");
}

#[test]
fn as_many_random_bytes_as_there_is_memory() {
    let wat = r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 4)
  (func (export "_start")
    (call $proc_exit (call $random_get (i32.const 100) (i32.const 262044)))))"#;
    let run = run(&mut files(), wat, Budget::default(), u64::MAX);
    assert_eq!(run.ended, Ended::Exit(0));
    assert!(run.used.slices > 3, "it gives way to others: {}", run.used.slices);
}

#[test]
fn an_endless_guest_is_killed_and_releases_everything() {
    let wat = format!(r#"(module {IMPORTS} (func (export "_start") (loop $on (br $on))))"#);
    let run = run(&mut files(), &wat, Budget::default(), 100);
    assert_eq!((run.ended, run.used.slices), (Ended::Killed(Reason::Cancelled), 101));
}

#[test]
fn budgets_are_kept() {
    let tight = Budget { operations: 3, ..Budget::default() };
    let mut plain = files();
    plain.prefetch = false;
    let run_1 = run(&mut plain, &cat("a/b/text"), tight, u64::MAX);
    assert_eq!(run_1.ended, Ended::Killed(Reason::Operations));
    let quiet = Budget { output: 8, ..Budget::default() };
    let run_2 = run(&mut files(), &cat("a/b/text"), quiet, u64::MAX);
    assert_eq!((run_2.ended, run_2.output.as_str()), (Ended::Killed(Reason::Output), "some "));
    let grows = format!(
        r#"(module {IMPORTS} (func (export "_start")
          (loop $on (br_if $on (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))))"#
    );
    let small = Budget { memory: 4 << 20, ..Budget::default() };
    let run_3 = run(&mut files(), &grows, small, u64::MAX);
    assert_eq!(run_3.ended, Ended::Exit(0), "growing fails, and the guest hears of it");
    assert!(run_3.used.memory <= 4 << 20 && run_3.used.memory > 3 << 20, "{}", run_3.used.memory);
}

#[test]
fn by_fuel_every_run_is_the_same() {
    let fuel: BTreeSet<u64> = (0..5)
        .map(|_| run(&mut files(), &cat("a/up"), Budget::default(), u64::MAX).used.fuel)
        .collect();
    assert_eq!(fuel.len(), 1, "{fuel:?}");
}

#[test]
fn fuel_is_exact_whatever_ends_slices() {
    let wat = r#"(module (memory (export "memory") 1) (func (export "_start") (local i32)
        (loop (br_if 0 (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1)))
            (i32.const 3000000))))))"#;
    let run = |pace: Pace, fuel: u64| {
        let engine = Engine::new(pace).expect("an engine");
        let budget = Budget { fuel, ..Budget::default() };
        let session = Session { budget, ..Session::new(&["guest"]) };
        drive::run(&mut files(), &drive::program(&engine, wat), &session)
    };
    let used = run(Pace::Metered, u64::MAX - 1).used;
    assert!(used.fuel > 3_000_000, "{used:?}");
    // A slice consumes at most a million.
    assert!(used.slices >= used.fuel / 1_000_000, "{used:?}");
    for pace in [Pace::Metered, Pace::Fuel(777)] {
        let enough = run(pace, used.fuel);
        assert_eq!((enough.ended, enough.used.fuel), (Ended::Exit(0), used.fuel));
        // Fuel is checked at loop heads.
        let short = run(pace, used.fuel - 20);
        assert_eq!(short.ended, Ended::Killed(Reason::Fuel), "{pace:?}");
        assert_eq!(short.used.fuel, used.fuel - 20);
    }
    assert_eq!(run(Pace::Ticks, u64::MAX).used.fuel, 0, "nobody counts");
}

#[test]
fn mistakes_of_a_guest_end_only_the_guest() {
    for (body, shows) in [
        ("(unreachable)", "unreachable"),
        ("(drop (i32.load (i32.const 2000000)))", "out of bounds"),
        ("(call $deep)", "stack"),
    ] {
        let wat = format!(
            r#"(module {IMPORTS} (func $deep (call $deep)) (func (export "_start") {body}))"#
        );
        let ended = run(&mut files(), &wat, Budget::default(), u64::MAX).ended;
        assert!(matches!(&ended, Ended::Trap(why) if why.contains(shows)), "{body}: {ended:?}");
    }
}
