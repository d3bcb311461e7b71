;; Calls itself until there is no stack.
;;
;; pace: ticks
;; must: trap stack
(module
  (memory (export "memory") 1)
  (func $deep (call $deep))
  (func (export "_start")
    (call $deep)))
