;; Copies beyond the end.
;;
;; must: trap out of bounds
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (memory.copy (i32.const 1) (i32.const 0) (i32.const -1))))
