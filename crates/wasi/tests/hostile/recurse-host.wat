;; Calls the host with hardly any stack left: that has stack of its own.
;;
;; with: operations=1000000 cpu=10s
;; must: trap stack
(module
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a/b/text")
  (func $deep
    (drop (call $path_filestat_get (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 8)
      (i32.const 64)))
    (call $deep))
  (func (export "_start")
    (call $deep)))
