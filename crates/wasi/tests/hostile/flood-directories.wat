;; Makes directories without end, each in the last one.
;;
;; with: operations=200 writes
;; must: killed operations
(module
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_create_directory (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "d")
  (func (export "_start")
    (local $len i32)
    (local.set $len (i32.const 1))
    (loop $on
      (drop (call $path_create_directory (i32.const 3) (i32.const 0) (local.get $len)))
      (i32.store16 (local.get $len) (i32.const 0x642f))
      (local.set $len (i32.add (local.get $len) (i32.const 2)))
      (br $on))))
