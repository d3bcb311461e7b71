;; Fills all of its memory by one instruction, over and over: one of them cannot be interrupted, but
;; is charged, and they can be distinguished.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 64)
  (func (export "_start")
    (loop $on (memory.fill (i32.const 0) (i32.const 1) (i32.const 4194304)) (br $on))))
