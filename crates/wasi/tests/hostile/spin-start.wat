;; Never ends while it is made: before `_start` is called.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (func $begin (loop $on (br $on)))
  (start $begin)
  (func (export "_start")))
