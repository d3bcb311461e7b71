;; Every call that takes a path, with one that leads out; and a link that would.
;;
;; with: writes
;; must: exit 0
(module
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_readlink"
    (func $path_readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_create_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory"
    (func $path_remove_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file"
    (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink"
    (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename"
    (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link"
    (func $path_link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_set_times"
    (func $path_filestat_set_times (param i32 i32 i32 i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "../evil")
  (data (i32.const 8) "x/etc")
  (data (i32.const 16) "file")
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (call $is (i32.const 1) (call $path_filestat_get (i32.const 3) (i32.const 1) (i32.const 0)
      (i32.const 7) (i32.const 64)) (i32.const 76))
    (call $is (i32.const 2) (call $path_readlink (i32.const 3) (i32.const 0) (i32.const 7)
      (i32.const 64) (i32.const 8) (i32.const 80)) (i32.const 76))
    (call $is (i32.const 3) (call $path_create_directory (i32.const 3) (i32.const 0)
      (i32.const 7)) (i32.const 76))
    (call $is (i32.const 4) (call $path_remove_directory (i32.const 3) (i32.const 0)
      (i32.const 7)) (i32.const 76))
    (call $is (i32.const 5) (call $path_unlink_file (i32.const 3) (i32.const 0) (i32.const 7))
      (i32.const 76))
    (call $is (i32.const 6) (call $path_symlink (i32.const 8) (i32.const 1) (i32.const 3)
      (i32.const 0) (i32.const 7)) (i32.const 76))
    (call $is (i32.const 7) (call $path_rename (i32.const 3) (i32.const 0) (i32.const 7)
      (i32.const 3) (i32.const 8) (i32.const 1)) (i32.const 76))
    (call $is (i32.const 8) (call $path_rename (i32.const 3) (i32.const 8) (i32.const 1)
      (i32.const 3) (i32.const 0) (i32.const 7)) (i32.const 76))
    (call $is (i32.const 9) (call $path_link (i32.const 3) (i32.const 0) (i32.const 0)
      (i32.const 7) (i32.const 3) (i32.const 8) (i32.const 1)) (i32.const 76))
    (call $is (i32.const 10) (call $path_link (i32.const 3) (i32.const 0) (i32.const 16)
      (i32.const 4) (i32.const 3) (i32.const 0) (i32.const 7)) (i32.const 76))
    (call $is (i32.const 11) (call $path_filestat_set_times (i32.const 3) (i32.const 1)
      (i32.const 0) (i32.const 7) (i64.const 0) (i64.const 0) (i32.const 0)) (i32.const 76))
    (call $is (i32.const 12) (call $path_open (i32.const 3) (i32.const 1) (i32.const 0)
      (i32.const 7) (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 64))
      (i32.const 76))
    (call $is (i32.const 13) (call $path_symlink (i32.const 9) (i32.const 4) (i32.const 3)
      (i32.const 8) (i32.const 1)) (i32.const 76))))
