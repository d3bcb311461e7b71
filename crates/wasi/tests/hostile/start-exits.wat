;; Ends while it is made.
;;
;; must: exit 7
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (func $begin (call $proc_exit (i32.const 7)))
  (start $begin)
  (func (export "_start") (unreachable)))
