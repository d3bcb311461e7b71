;; Opens directories until it may not, gives one back, and gets one.
;;
;; with: files=8
;; must: exit 0
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a/b/text")
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (local $n i32)
    (loop $on
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $on (i32.eqz (call $path_open (i32.const 3) (i32.const 0) (i32.const 0)
        (i32.const 3) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)))))
    ;; Eight, and the ninth is refused.
    (call $is (i32.const 1) (local.get $n) (i32.const 9))
    (call $is (i32.const 2)
      (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 0)
        (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)) (i32.const 33))
    (call $is (i32.const 3) (call $fd_close (i32.const 7)) (i32.const 0))
    (call $is (i32.const 4)
      (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 0)
        (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)) (i32.const 0))
    (call $is (i32.const 5) (i32.load (i32.const 64)) (i32.const 7))
    (call $is (i32.const 6) (call $path_open (i32.const 3) (i32.const 0) (i32.const 0)
      (i32.const 3) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 33))))
