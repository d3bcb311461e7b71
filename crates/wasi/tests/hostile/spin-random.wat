;; As many random bytes as fit, over and over.
;;
;; with: cpu=1ms
;; pace: ticks
;; must: killed cpu
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $random_get (i32.const 0) (i32.const 65536))) (br $on))))
