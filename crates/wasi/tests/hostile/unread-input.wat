;; Wants input that never comes, and does not look at what it got.
;;
;; must: killed cpu
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32)
    (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 4) (i32.const 1000))
    (loop $on (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br $on))))
