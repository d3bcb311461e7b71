;; A path of two thousand steps down and up: each is looked at once, and paid for.
;;
;; with: operations=500
;; must: killed operations
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (local $at i32)
    (loop $on
      (i32.store (local.get $at) (i32.const 0x2e2f2f61))
      (i32.store8 offset=4 (local.get $at) (i32.const 0x2e))
      (i32.store8 offset=5 (local.get $at) (i32.const 0x2f))
      (local.set $at (i32.add (local.get $at) (i32.const 6)))
      (br_if $on (i32.lt_u (local.get $at) (i32.const 4086))))
    (i32.store8 (i32.const 4086) (i32.const 97))
    (loop $on (drop (call $path_open (i32.const 3) (i32.const 1) (i32.const 0)
      (i32.const 4087) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0)
      (i32.const 5000))) (br $on))))
