;; A mistake that the processor or the engine notices.
;;
;; must: trap out of bounds
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (i64.load (i32.const 65529)))))
