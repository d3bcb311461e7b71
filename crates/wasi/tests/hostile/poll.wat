;; Polls for nothing, for too much, for what there is not, with results over its questions.
;;
;; must: exit 0
(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  ;; Ends with the number of the first thing that is not as it must be.
  (func $is (param $number i32) (param $got i32) (param $must i32)
    (if (i32.ne (local.get $got) (local.get $must))
      (then (call $proc_exit (local.get $number)))))
  (func (export "_start")
    (call $is (i32.const 1) (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 64)) (i32.const 28))
    (call $is (i32.const 2) (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const -1)
      (i32.const 64)) (i32.const 28))
    (call $is (i32.const 3) (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 257)
      (i32.const 64)) (i32.const 28))
    (i32.store8 (i32.const 8) (i32.const 200))
    (call $is (i32.const 4) (call $poll_oneoff (i32.const 0) (i32.const 100) (i32.const 1)
      (i32.const 64)) (i32.const 0))
    (call $is (i32.const 5) (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 1)
      (i32.const 0)) (i32.const 0))
    (call $is (i32.const 6) (call $poll_oneoff (i32.const 0) (i32.const 65530) (i32.const 1)
      (i32.const 0)) (i32.const 21))
    (call $is (i32.const 7) (call $poll_oneoff (i32.const 65500) (i32.const 0) (i32.const 1)
      (i32.const 0)) (i32.const 21))))
