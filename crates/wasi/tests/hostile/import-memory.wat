;; Wants memory from outside.
;;
;; must: refused
(module (import "env" "memory" (memory 1)) (func (export "_start")))
