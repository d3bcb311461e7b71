;; A loop without calls.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (br $on))))
