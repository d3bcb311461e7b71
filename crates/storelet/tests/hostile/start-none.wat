;; Has no `_start`.
;;
;; must: trap _start
(module
  (memory (export "memory") 1)
  (func (export "main")))
