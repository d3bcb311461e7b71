;; Writes to a file without end.
;;
;; with: bytes=1M writes
;; must: killed bytes
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "new")
  (func (export "_start")
    (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 3)
      (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 8)))
    (i32.store (i32.const 16) (i32.const 0))
    (i32.store (i32.const 20) (i32.const 60000))
    (loop $on (drop (call $fd_write (i32.load (i32.const 8)) (i32.const 16) (i32.const 1)
      (i32.const 24)))
      (br $on))))
