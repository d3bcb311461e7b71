;; Asks for the same file for ever.
;;
;; with: operations=100
;; must: killed operations
(module
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a")
  (func (export "_start")
    (loop $on (drop (call $path_filestat_get (i32.const 3) (i32.const 0) (i32.const 0)
      (i32.const 1) (i32.const 64))) (br $on))))
