;; Opens files and puts their numbers where its memory is not: it gets none, and loses none.
;;
;; must: exit 21
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a/b/text")
  (func (export "_start")
    (local $n i32)
    (loop $on
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (if (i32.ne (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 8)
        (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const -2))
        (i32.const 21)) (then (call $proc_exit (i32.const 1))))
      (br_if $on (i32.lt_u (local.get $n) (i32.const 100))))
    (call $proc_exit (i32.const 21))))
