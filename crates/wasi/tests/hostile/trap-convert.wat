;; A mistake that the processor or the engine notices.
;;
;; must: trap conversion
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (i32.trunc_f64_s (f64.const nan)))))
