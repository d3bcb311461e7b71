;; Copies all of its memory by one byte further, over and over.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 64)
  (func (export "_start")
    (loop $on (memory.copy (i32.const 1) (i32.const 0) (i32.const 4194303)) (br $on))))
