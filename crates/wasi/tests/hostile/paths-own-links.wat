;; Makes links that lead out and opens them, also to make what they name.
;;
;; with: writes
;; must: exit 0
;; served: exit 5
(module
  (import "wasi_snapshot_preview1" "path_symlink"
    (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "../evil")
  (data (i32.const 8) "x")
  (data (i32.const 16) "none")
  (data (i32.const 32) "ly")
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (call $is (i32.const 1) (call $path_symlink (i32.const 0) (i32.const 7) (i32.const 3)
      (i32.const 8) (i32.const 1)) (i32.const 0))
    (call $is (i32.const 2) (call $path_open (i32.const 3) (i32.const 1) (i32.const 8)
      (i32.const 1) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 76))
    (call $is (i32.const 3) (call $path_open (i32.const 3) (i32.const 0) (i32.const 8)
      (i32.const 1) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 32))
    (call $is (i32.const 4) (call $path_symlink (i32.const 16) (i32.const 4) (i32.const 3)
      (i32.const 32) (i32.const 2)) (i32.const 0))
    (call $is (i32.const 5) (call $path_open (i32.const 3) (i32.const 1) (i32.const 32)
      (i32.const 2) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 20))
    (call $is (i32.const 6) (call $path_open (i32.const 3) (i32.const 1) (i32.const 32)
      (i32.const 2) (i32.const 5) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 20))))
