;; Has no `_start`.
;;
;; must: trap _start
;; served: refused
(module
  (memory (export "memory") 1)
  (func (export "main")))
