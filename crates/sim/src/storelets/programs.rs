//! Programs of clients, and their outputs.

use base::Kind;
use std::sync::OnceLock;
use wasi::{Engine, Hash, Pace, Program};

/// Fuel of a slice.
const FUEL: u64 = 20_000;

/// Exit code of programs that completed their work.
pub(super) const DONE: u64 = 7;

/// Number of bytes that the writer writes.
pub(super) const WRITTEN: usize = 20_000;

/// Kind of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Prints the contents of a file.
    Cat,
    /// Prints the names in a directory.
    List,
    /// Prints the contents of all files of a directory.
    Search,
    /// Echoes its input.
    Echo,
    /// Runs forever.
    Spin,
    /// Allocates as much memory as possible.
    Hog,
    /// Writes a file.
    Writer,
    /// Sleeps, and prints a line.
    Sleeper,
    /// Prints something, and traps.
    Trap,
    /// Prints forever.
    Flood,
    /// Opens a file repeatedly.
    Opener,
}

impl Kinds {
    pub(super) const ALL: [Kinds; 11] = [
        Kinds::Cat,
        Kinds::List,
        Kinds::Search,
        Kinds::Echo,
        Kinds::Spin,
        Kinds::Hog,
        Kinds::Writer,
        Kinds::Sleeper,
        Kinds::Trap,
        Kinds::Flood,
        Kinds::Opener,
    ];

    /// Returns whether it never ends by itself.
    pub(super) fn is_endless(self) -> bool {
        matches!(self, Kinds::Spin | Kinds::Flood | Kinds::Opener)
    }

    fn body(self) -> String {
        let body = match self {
            Kinds::Cat => CAT,
            Kinds::List => return for_each_entry(SAY_NAME),
            Kinds::Search => return for_each_entry(SAY_FILE),
            Kinds::Echo => ECHO,
            Kinds::Spin => "(func (export \"_start\") (loop $on (br $on)))",
            Kinds::Hog => HOG,
            Kinds::Writer => WRITER,
            Kinds::Sleeper => SLEEPER,
            Kinds::Trap => TRAP,
            Kinds::Flood => FLOOD,
            Kinds::Opener => OPENER,
        };
        body.to_string()
    }
}

/// A program.
pub(super) struct Compiled {
    pub(super) kind: Kinds,
    pub(super) module: Vec<u8>,
    pub(super) hash: Hash,
    pub(super) program: Program,
}

/// Returns all of them, compiled once for all runs of a process.
pub(super) fn all() -> &'static [Compiled] {
    static ALL: OnceLock<Vec<Compiled>> = OnceLock::new();
    ALL.get_or_init(|| {
        let engine = Engine::new(Pace::Fuel(FUEL)).expect("an engine");
        let compile = |kind: Kinds| {
            let text = format!("(module {PRELUDE} {})", kind.body());
            let module = wat::parse_str(&text).expect("it is a module");
            let prepared = wasi::module::prepare(&module).expect("it is a good one");
            let program = engine.compile(&prepared).expect("it compiles");
            Compiled { kind, hash: Hash::of(&module), module, program }
        };
        Kinds::ALL.map(compile).into_iter().collect()
    })
}

/// Returns one of them.
pub(super) fn of(kind: Kinds) -> &'static Compiled {
    all().iter().find(|it| it.kind == kind).expect("all are there")
}

/// Returns the files on the disk: path, kind, and contents.
pub(super) fn stage() -> Vec<(String, Kind, Vec<u8>)> {
    let text = |length: usize, salt: usize| -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(31) >> 3 ^ at ^ salt) as u8).collect()
    };
    let mut files = vec![
        ("data".to_string(), Kind::Directory, Vec::new()),
        ("out".to_string(), Kind::Directory, Vec::new()),
        ("data/empty".to_string(), Kind::File, Vec::new()),
        ("data/small".to_string(), Kind::File, text(11, 1)),
        ("data/page".to_string(), Kind::File, text(4096, 2)),
        ("data/large".to_string(), Kind::File, text(700_001, 3)),
        ("data/many".to_string(), Kind::Directory, Vec::new()),
    ];
    files.extend(
        (0..60).map(|n| (format!("data/many/name-{n}-{}", "x".repeat(n)), Kind::File, text(n, n))),
    );
    files
}

/// Memory layout: arguments from 0, their text from 256, a descriptor at 64, an iovec at 72, a
/// count at 80; data from 65536 on.
const PRELUDE: &str = r#"
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 128) "slept\n")
  (func $must (param $errno i32)
    (if (local.get $errno)
      (then (call $exit (i32.add (local.get $errno) (i32.const 100))))))
  (func $length (param $at i32) (result i32) (local $end i32)
    (local.set $end (local.get $at))
    (block $done (loop $on
      (br_if $done (i32.eqz (i32.load8_u (local.get $end))))
      (local.set $end (i32.add (local.get $end) (i32.const 1)))
      (br $on)))
    (i32.sub (local.get $end) (local.get $at)))
  (func $open (param $oflags i32) (param $rights i64)
    (call $must (call $args_get (i32.const 0) (i32.const 256)))
    (call $must (call $path_open (i32.const 3) (i32.const 0) (i32.load (i32.const 4))
      (call $length (i32.load (i32.const 4))) (local.get $oflags) (local.get $rights)
      (i64.const 0) (i32.const 0) (i32.const 64))))
  (func $say (param $to i32) (param $at i32) (param $length i32)
    (loop $on
      (if (i32.eqz (local.get $length)) (then (return)))
      (i32.store (i32.const 72) (local.get $at))
      (i32.store (i32.const 76) (local.get $length))
      (call $must (call $fd_write (local.get $to) (i32.const 72) (i32.const 1)
        (i32.const 80)))
      (local.set $at (i32.add (local.get $at) (i32.load (i32.const 80))))
      (local.set $length (i32.sub (local.get $length) (i32.load (i32.const 80))))
      (br $on)))
  (func $copy (param $from i32) (local $count i32)
    (loop $on
      (i32.store (i32.const 72) (i32.const 65536))
      (i32.store (i32.const 76) (i32.const 30000))
      (call $must (call $fd_read (local.get $from) (i32.const 72) (i32.const 1)
        (i32.const 80)))
      (local.set $count (i32.load (i32.const 80)))
      (if (i32.eqz (local.get $count)) (then (return)))
      (call $say (i32.const 1) (i32.const 65536) (local.get $count))
      (br $on)))
"#;

const CAT: &str = r#"
  (func (export "_start")
    (call $open (i32.const 0) (i64.const 2))
    (call $copy (i32.load (i32.const 64)))
    (call $exit (i32.const 7)))
"#;

/// Returns a program that acts on each entry of a directory with the descriptor `$dir`; an entry's
/// name follows 24 bytes at `$at`, and its length is at offset 16.
fn for_each_entry(act: &str) -> String {
    format!(
        r#"
  (func (export "_start") (local $dir i32) (local $cookie i64) (local $at i32) (local $end i32)
      (local $behind i32)
    (call $open (i32.const 2) (i64.const 16384))
    (local.set $dir (i32.load (i32.const 64)))
    (loop $more
      (call $must (call $fd_readdir (local.get $dir) (i32.const 100000) (i32.const 500)
        (local.get $cookie) (i32.const 80)))
      (local.set $at (i32.const 100000))
      (local.set $end (i32.add (local.get $at) (i32.load (i32.const 80))))
      (block $out (loop $on
        (br_if $out (i32.gt_u (i32.add (local.get $at) (i32.const 24)) (local.get $end)))
        (local.set $behind (i32.add (i32.add (local.get $at) (i32.const 24))
          (i32.load (i32.add (local.get $at) (i32.const 16)))))
        (br_if $out (i32.gt_u (local.get $behind) (local.get $end)))
        (local.set $cookie (i64.load (local.get $at)))
        {act}
        (local.set $at (local.get $behind))
        (br $on)))
      (br_if $more (i32.eq (i32.sub (local.get $end) (i32.const 100000)) (i32.const 500))))
    (call $exit (i32.const 7)))
"#
    )
}

/// Prints the name of an entry.
const SAY_NAME: &str = r#"
        (call $say (i32.const 1) (i32.add (local.get $at) (i32.const 24))
          (i32.load (i32.add (local.get $at) (i32.const 16))))
        (call $say (i32.const 1) (i32.const 133) (i32.const 1))
"#;

/// Prints the contents of an entry's file.
const SAY_FILE: &str = r#"
        (call $must (call $path_open (local.get $dir) (i32.const 0)
          (i32.add (local.get $at) (i32.const 24))
          (i32.load (i32.add (local.get $at) (i32.const 16)))
          (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)))
        (call $copy (i32.load (i32.const 64)))
        (call $must (call $fd_close (i32.load (i32.const 64))))
"#;

const ECHO: &str = r#"
  (func (export "_start")
    (call $copy (i32.const 0))
    (call $exit (i32.const 7)))
"#;

const HOG: &str = r#"
  (func (export "_start") (local $page i32)
    (loop $on
      (local.set $page (memory.grow (i32.const 3)))
      (if (i32.ne (local.get $page) (i32.const -1)) (then
        (i32.store (i32.mul (local.get $page) (i32.const 65536)) (i32.const 1))
        (br $on))))
    (call $exit (i32.const 7)))
"#;

const WRITER: &str = r#"
  (func (export "_start") (local $left i32)
    (call $open (i32.const 9) (i64.const 64))
    (memory.fill (i32.const 65536) (i32.const 119) (i32.const 1000))
    (local.set $left (i32.const 20))
    (loop $on
      (call $say (i32.load (i32.const 64)) (i32.const 65536) (i32.const 1000))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $on (local.get $left)))
    (call $must (call $fd_close (i32.load (i32.const 64))))
    (call $exit (i32.const 7)))
"#;

const SLEEPER: &str = r#"
  (func (export "_start")
    (i32.store (i32.const 600) (i32.const 0))
    (i32.store (i32.const 616) (i32.const 1))
    (i64.store (i32.const 624) (i64.const 50000000))
    (call $must (call $poll_oneoff (i32.const 600) (i32.const 700) (i32.const 1)
      (i32.const 800)))
    (call $say (i32.const 2) (i32.const 128) (i32.const 6))
    (call $exit (i32.const 7)))
"#;

const TRAP: &str = r#"
  (func (export "_start")
    (call $say (i32.const 1) (i32.const 128) (i32.const 6))
    (unreachable))
"#;

const FLOOD: &str = r#"
  (func (export "_start")
    (loop $on
      (call $say (i32.const 1) (i32.const 65536) (i32.const 9000))
      (br $on)))
"#;

const OPENER: &str = r#"
  (func (export "_start")
    (loop $on
      (call $open (i32.const 0) (i64.const 2))
      (call $must (call $fd_close (i32.load (i32.const 64))))
      (br $on)))
"#;
