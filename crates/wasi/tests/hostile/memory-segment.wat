;; Puts data where its memory is not.
;;
;; must: trap out of bounds
(module
  (memory (export "memory") 1)
  (data (i32.const 65530) "too long")
  (func (export "_start")
))
