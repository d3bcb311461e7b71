;; Wants a call that is a table.
;;
;; must: refused
(module (import "wasi_snapshot_preview1" "fd_close" (table 1 funcref)) (func (export "_start")))
