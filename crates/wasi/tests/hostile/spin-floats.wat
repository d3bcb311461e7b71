;; Slow arithmetic without end: square roots and divisions of subnormal numbers.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (local $x f64)
    (loop $on
      (local.set $x (f64.div (f64.sqrt (f64.add (local.get $x) (f64.const 4.9e-324)))
        (f64.const 3)))
      (br $on))))
