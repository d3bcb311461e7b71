;; A loop that fetches its arguments.
;;
;; pace: ticks
;; must: killed cpu
(module
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $args_get (i32.const 0) (i32.const 1024))) (br $on))))
