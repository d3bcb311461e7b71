;; Writes the same memory a thousand times in one call.
;;
;; with: output=1M
;; must: killed output
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (local $at i32)
    (loop $on
      (i32.store offset=4 (local.get $at) (i32.const 65536))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $on (i32.lt_u (local.get $at) (i32.const 8192))))
    (loop $on (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1024)
      (i32.const 9000))) (br $on))))
