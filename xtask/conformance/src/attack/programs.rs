//! Attackers' storelets.

use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// Touches its memory, then sleeps until its time limit.
const SLEEPER: &str = r#"
(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1500)
  (func (export "_start")
    (memory.fill (i32.const 65536) (i32.const 7) (i32.const 98000000))
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const -1))
    (drop (call $poll_oneoff (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200)))))
"#;

/// Computes until its CPU time limit.
const SPINNER: &str = r#"
(module (memory (export "memory") 1) (func (export "_start") (loop $on (br $on))))
"#;

/// Lists the directory `many` from its beginning, over and over.
const READER: &str = r#"
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $list (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 0) "many")
  (func (export "_start")
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 2)
          (i64.const 16384) (i64.const 0) (i32.const 0) (i32.const 8))
      (then (unreachable)))
    (loop $on
      (drop (call $list (i32.load (i32.const 8)) (i32.const 65536) (i32.const 131072)
        (i64.const 0) (i32.const 16)))
      (br $on))))
"#;

pub(super) fn sleeper() -> Result<Vec<u8>> {
    Ok(wat::parse_str(SLEEPER)?)
}

pub(super) fn spinner() -> Result<Vec<u8>> {
    Ok(wat::parse_str(SPINNER)?)
}

pub(super) fn reader() -> Result<Vec<u8>> {
    Ok(wat::parse_str(READER)?)
}

/// Returns a module that is slow to compile and in no cache: a unique custom section at its end
/// (core specification, 5.5.3) makes each one different.
pub(super) fn slow(attacker: usize) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut module = crate::hostile::slow();
    let name = format!("{attacker:08}{number:08}");
    let length = u8::try_from(name.len()).expect("sixteen digits");
    module.extend([0, length + 1, length]);
    module.extend(name.as_bytes());
    module
}
