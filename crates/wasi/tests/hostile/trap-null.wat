;; Calls nothing.
;;
;; must: trap uninitialized element
(module
  (memory (export "memory") 1)
  (table 4 funcref)
  (type $nullary (func))
  (type $unary (func (param i32)))
  (elem (i32.const 1) $nothing)
  (func $nothing)
  (func (export "_start")
    (call_indirect (type $nullary) (i32.const 0))))
