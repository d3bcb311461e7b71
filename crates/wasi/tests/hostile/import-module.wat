;; Imports from a module that nobody gives.
;;
;; must: refused
(module (import "env" "system" (func (param i32) (result i32))) (func (export "_start")))
