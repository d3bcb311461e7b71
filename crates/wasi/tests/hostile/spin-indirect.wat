;; A loop that calls by a table.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (elem (i32.const 0) $nothing)
  (type $nullary (func))
  (func $nothing)
  (func (export "_start")
    (loop $on (call_indirect (type $nullary) (i32.const 0)) (br $on))))
