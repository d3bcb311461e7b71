;; Fills a table by one instruction, over and over.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (table $t 1000 funcref)
  (func (export "_start")
    (loop $on (table.fill $t (i32.const 0) (ref.null func) (i32.const 1000)) (br $on))))
