;; Clocks that are not there, and random bytes for more memory than there is.
;;
;; must: exit 0
(module
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_res_get"
    (func $clock_res_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (call $is (i32.const 1) (call $clock_time_get (i32.const 4) (i64.const 0) (i32.const 0))
      (i32.const 28))
    (call $is (i32.const 2) (call $clock_time_get (i32.const -1) (i64.const 0) (i32.const 0))
      (i32.const 28))
    (call $is (i32.const 3) (call $clock_res_get (i32.const 4) (i32.const 0)) (i32.const 28))
    (call $is (i32.const 4) (call $clock_time_get (i32.const 3) (i64.const 0) (i32.const 0))
      (i32.const 0))
    (call $is (i32.const 5) (call $random_get (i32.const 0) (i32.const -1)) (i32.const 21))
    (call $is (i32.const 6) (call $random_get (i32.const 0) (i32.const 65537)) (i32.const 21))
    (call $is (i32.const 7) (call $random_get (i32.const 65536) (i32.const 0)) (i32.const 0))
    (call $is (i32.const 8) (call $random_get (i32.const 65537) (i32.const 0)) (i32.const 21))
    (call $is (i32.const 9) (call $random_get (i32.const 0) (i32.const 65536)) (i32.const 0))))
