;; Links that name each other four times over: as many ways as there are paths, but only forty are
;; followed.
;;
;; must: exit 32
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "bomb9")
  (func (export "_start")
    (call $proc_exit (call $path_open (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 5)
      (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)))))
