;; A mistake that the processor or the engine notices.
;;
;; must: trap divide by zero
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (i32.div_s (i32.const 1) (i32.const 0)))))
