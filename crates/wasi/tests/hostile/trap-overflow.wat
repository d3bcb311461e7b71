;; A mistake that the processor or the engine notices.
;;
;; must: trap overflow
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))))
