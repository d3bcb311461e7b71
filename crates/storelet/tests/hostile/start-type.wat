;; Its `_start` wants something.
;;
;; must: trap _start
(module
  (memory (export "memory") 1)
  (func (export "_start") (param i32)))
