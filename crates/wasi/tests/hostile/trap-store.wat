;; A mistake that the processor or the engine notices.
;;
;; must: trap out of bounds
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const -1) (i32.const 0))))
