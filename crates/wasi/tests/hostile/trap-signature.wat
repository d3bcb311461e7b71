;; Calls a function of another type.
;;
;; must: trap indirect call type mismatch
(module
  (memory (export "memory") 1)
  (table 4 funcref)
  (type $nullary (func))
  (type $unary (func (param i32)))
  (elem (i32.const 1) $nothing)
  (func $nothing)
  (func (export "_start")
    (call_indirect (type $unary) (i32.const 1) (i32.const 1))))
