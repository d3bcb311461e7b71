;; Imports a call with other parameters.
;;
;; must: refused
(module (import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32)))
  (func (export "_start")))
