;; Moves descriptors onto each other, its root among them.
;;
;; must: exit 0
(module
  (import "wasi_snapshot_preview1" "fd_renumber" (func $fd_renumber (param i32 i32)
    (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a/b/text")
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (call $is (i32.const 1) (call $fd_renumber (i32.const 3) (i32.const 3)) (i32.const 0))
    (call $is (i32.const 2) (call $fd_renumber (i32.const 3) (i32.const 99)) (i32.const 8))
    (call $is (i32.const 3) (call $fd_renumber (i32.const 99) (i32.const 3)) (i32.const 8))
    (call $is (i32.const 4) (call $fd_renumber (i32.const 3) (i32.const -1)) (i32.const 8))
    (call $is (i32.const 5)
      (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 0)
        (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)) (i32.const 0))
    (call $is (i32.const 6) (call $fd_renumber (i32.const 4) (i32.const 3)) (i32.const 0))
    (call $is (i32.const 7) (call $fd_close (i32.const 4)) (i32.const 8))
    (call $is (i32.const 8)
      (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 0)
        (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)) (i32.const 54))
    (call $is (i32.const 9) (call $fd_renumber (i32.const 3) (i32.const 1)) (i32.const 0))
    (call $is (i32.const 10) (call $fd_renumber (i32.const 1) (i32.const 0)) (i32.const 0))
    (call $is (i32.const 11) (call $fd_close (i32.const 0)) (i32.const 0))
    (call $is (i32.const 12) (call $fd_close (i32.const 3)) (i32.const 8))))
