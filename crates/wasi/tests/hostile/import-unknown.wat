;; Imports a call that nobody gives.
;;
;; must: refused
(module (import "wasi_snapshot_preview1" "fork" (func (result i32))) (func (export "_start")))
