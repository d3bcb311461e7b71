;; Calls that fail, for ever: those cost too.
;;
;; pace: ticks
;; must: killed cpu
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $path_open (i32.const 77) (i32.const 0) (i32.const 0)
      (i32.const 1) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))
      (br $on))))
