;; A mistake that the processor or the engine notices.
;;
;; must: trap out of bounds
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (v128.load offset=4294967295 (i32.const -1)))))
