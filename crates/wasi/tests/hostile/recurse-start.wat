;; Runs out of stack while it is made.
;;
;; must: trap stack
(module
  (memory (export "memory") 1)
  (func $deep (call $deep))
  (start $deep)
  (func (export "_start")))
