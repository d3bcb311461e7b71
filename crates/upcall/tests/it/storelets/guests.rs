//! Small programs.

use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// A program: its name, and its body.
pub(super) struct Guest {
    pub(super) name: &'static str,
    body: Cow<'static, str>,
}

impl Guest {
    const fn new(name: &'static str, body: &'static str) -> Guest {
        Guest { name, body: Cow::Borrowed(body) }
    }

    /// Returns the module.
    pub(super) fn wasm(&self) -> Vec<u8> {
        wat::parse_str(format!("(module {PRELUDE} {})", self.body)).unwrap()
    }

    /// Returns the server's name of it.
    pub(super) fn hash(&self) -> String {
        let digest = Sha256::digest(self.wasm());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    }
}

/// Errors of WASI.
pub(super) const NOENT: i32 = 44;
pub(super) const ROFS: i32 = 69;
pub(super) const NOTCAPABLE: i32 = 76;

/// Common prelude; `say` writes bytes to a file descriptor.
const PRELUDE: &str = r#"
    (import "wasi_snapshot_preview1" "fd_write"
        (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read"
        (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get"
        (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_sizes_get"
        (func $environ_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_get"
        (func $environ_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_readdir"
        (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_filestat_get"
        (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff"
        (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (func $say (param $to i32) (param $at i32) (param $length i32)
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (local.get $length))
        (drop (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8))))
"#;

/// Prints its arguments, and its environment to standard error.
pub(super) const ARGS: Guest = Guest::new(
    "args",
    r#"(memory (export "memory") 1)
    (func (export "_start")
        (drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $args_get (i32.const 1024) (i32.const 2048)))
        (call $say (i32.const 1) (i32.const 2048) (i32.load (i32.const 20)))
        (drop (call $environ_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $environ_get (i32.const 1024) (i32.const 2048)))
        (call $say (i32.const 2) (i32.const 2048) (i32.load (i32.const 20))))"#,
);

/// Echoes its input.
pub(super) const CAT: Guest = Guest::new(
    "cat",
    r#"(memory (export "memory") 1)
    (func (export "_start") (local $count i32)
        (loop $on
            (i32.store (i32.const 0) (i32.const 4096))
            (i32.store (i32.const 4) (i32.const 32768))
            (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))
                (then (call $proc_exit (i32.const 1))))
            (local.set $count (i32.load (i32.const 8)))
            (if (local.get $count) (then
                (call $say (i32.const 1) (i32.const 4096) (local.get $count))
                (br $on)))))"#,
);

pub(super) const EXIT: Guest = Guest::new(
    "exit",
    r#"(memory (export "memory") 1) (func (export "_start") (call $proc_exit (i32.const 7)))"#,
);

pub(super) const SPIN: Guest = Guest::new(
    "spin",
    r#"(memory (export "memory") 1) (func (export "_start") (loop $on (br $on)))"#,
);

/// Yields all the time.
pub(super) const YIELD: Guest = Guest::new(
    "yield",
    r#"(memory (export "memory") 1)
    (func (export "_start") (loop $on (drop (call $yield)) (br $on)))"#,
);

pub(super) const TRAP: Guest =
    Guest::new("trap", r#"(memory (export "memory") 1) (func (export "_start") (unreachable))"#);

/// Prints all files of its tree, and stats each directory after listing it; its entries fit in 64
/// KiB.
pub(super) const TOUR: Guest = Guest::new(
    "tour",
    r#"(memory (export "memory") 64) (data (i32.const 24) ".")
    (global $free (mut i32) (i32.const 65536))
    (func $cat (param $file i32) (local $count i32)
        (loop $on
            (i32.store (i32.const 0) (i32.const 4096))
            (i32.store (i32.const 4) (i32.const 32768))
            (if (call $fd_read (local.get $file) (i32.const 0) (i32.const 1) (i32.const 8))
                (then (unreachable)))
            (local.set $count (i32.load (i32.const 8)))
            (if (local.get $count) (then
                (call $say (i32.const 1) (i32.const 4096) (local.get $count))
                (br $on)))))
    (func $enter (param $dir i32) (param $at i32) (param $length i32) (param $kind i32)
        (local $it i32)
        (if (call $path_open (local.get $dir) (i32.const 0) (local.get $at) (local.get $length)
                (select (i32.const 2) (i32.const 0) (i32.eq (local.get $kind) (i32.const 3)))
                (i64.const 16386) (i64.const 16386) (i32.const 0) (i32.const 16))
            (then (unreachable)))
        (local.set $it (i32.load (i32.const 16)))
        (if (i32.eq (local.get $kind) (i32.const 3))
            (then (call $tour (local.get $it)))
            (else (call $cat (local.get $it))))
        (drop (call $fd_close (local.get $it))))
    (func $tour (param $dir i32)
        (local $from i32) (local $at i32) (local $end i32) (local $length i32) (local $kind i32)
        (local.set $from (global.get $free))
        (global.set $free (i32.add (local.get $from) (i32.const 65536)))
        (if (call $fd_readdir (local.get $dir) (local.get $from) (i32.const 65536) (i64.const 0)
                (i32.const 16))
            (then (unreachable)))
        (if (call $path_filestat_get (local.get $dir) (i32.const 0) (i32.const 24) (i32.const 1)
                (i32.const 128))
            (then (unreachable)))
        (local.set $at (local.get $from))
        (local.set $end (i32.add (local.get $from) (i32.load (i32.const 16))))
        (block $over (loop $on
            (br_if $over (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $length (i32.load offset=16 (local.get $at)))
            (local.set $kind (i32.load8_u offset=20 (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 24)))
            (if (i32.and
                    (i32.ne (i32.load8_u (local.get $at)) (i32.const 46))
                    (i32.le_u (i32.sub (local.get $kind) (i32.const 3)) (i32.const 1)))
                (then (call $enter (local.get $dir) (local.get $at) (local.get $length)
                    (local.get $kind))))
            (local.set $at (i32.add (local.get $at) (local.get $length)))
            (br $on)))
        (global.set $free (local.get $from)))
    (func (export "_start") (call $tour (i32.const 3)))"#,
);

/// Sleeps for an hour.
pub(super) const SLEEP: Guest = Guest::new(
    "sleep",
    r#"(memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 3600000000000))
        (drop (call $poll_oneoff
            (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200))))"#,
);

/// Prints without end.
pub(super) const FLOOD: Guest = Guest::new(
    "flood",
    r#"(memory (export "memory") 1)
    (func (export "_start")
        (loop $on (call $say (i32.const 1) (i32.const 1024) (i32.const 1000)) (br $on)))"#,
);

/// Stats a file without end.
pub(super) const LOOK: Guest = Guest::new(
    "look",
    r#"(memory (export "memory") 1) (data (i32.const 1024) "x")
    (func (export "_start")
        (loop $on
            (drop (call $path_filestat_get (i32.const 3) (i32.const 0) (i32.const 1024)
                (i32.const 1) (i32.const 2048)))
            (br $on)))"#,
);

/// Grows by 16 MiB; its exit code shows whether that failed.
pub(super) const GROW: Guest = Guest::new(
    "grow",
    r#"(memory (export "memory") 1)
    (func (export "_start")
        (call $proc_exit (i32.eq (memory.grow (i32.const 256)) (i32.const -1))))"#,
);

/// Has 16 MiB from the start.
pub(super) const LARGE: Guest =
    Guest::new("large", r#"(memory (export "memory") 256) (func (export "_start"))"#);

/// Opens a file for reading; its exit code is the error.
pub(super) fn open(path: &str) -> Guest {
    opening("open", path, (0, 0), 2)
}

/// Opens a file for reading, following a link.
pub(super) fn open_through(path: &str) -> Guest {
    opening("open", path, (1, 0), 2)
}

/// Opens a file for writing.
pub(super) fn open_to_write(path: &str) -> Guest {
    opening("write", path, (0, 0), 2 | 64)
}

/// Creates a file.
pub(super) fn create(path: &str) -> Guest {
    opening("create", path, (0, 1), 64)
}

fn opening(name: &'static str, path: &str, (follow, flags): (u32, u32), rights: u64) -> Guest {
    let length = path.len();
    let body = format!(
        r#"(memory (export "memory") 1) (data (i32.const 1024) "{path}")
        (func (export "_start")
            (call $proc_exit (call $path_open (i32.const 3) (i32.const {follow})
                (i32.const 1024) (i32.const {length}) (i32.const {flags})
                (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 2048))))"#
    );
    Guest { name, body: Cow::Owned(body) }
}
