;; Calls while it is made: its memory is there, though nobody has looked for it yet.
;;
;; must: output hi
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\02\00\00\00hi")
  (func $begin (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16))))
  (start $begin)
  (func (export "_start")))
