;; Gives its turn back at once, for ever: each turn is charged.
;;
;; must: killed cpu
(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $sched_yield (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $sched_yield)) (br $on))))
