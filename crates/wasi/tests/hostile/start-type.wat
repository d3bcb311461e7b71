;; Its `_start` wants something.
;;
;; must: trap _start
;; served: refused
(module
  (memory (export "memory") 1)
  (func (export "_start") (param i32)))
