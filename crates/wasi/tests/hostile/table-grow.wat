;; Grows a table until it may not.
;;
;; must: exit 0
(module
  (memory (export "memory") 1)
  (table $t 1 funcref)
  (func (export "_start")
    (loop $on (br_if $on (i32.ne (table.grow $t (ref.null func) (i32.const 100))
      (i32.const -1))))))
