;; Calls that return, without end and without a loop that is not a call.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (func $tree (param $deep i32)
    (if (local.get $deep) (then
      (call $tree (i32.sub (local.get $deep) (i32.const 1)))
      (call $tree (i32.sub (local.get $deep) (i32.const 1))))))
  (func (export "_start")
    (call $tree (i32.const 60))))
