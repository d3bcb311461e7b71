;; A loop through a table of branches, so that no branch is the same as the last one.
;;
;; pace: ticks
;; must: killed cpu
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (local $n i32)
    (loop $a (loop $b (loop $c
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_table $a $b $c (i32.rem_u (local.get $n) (i32.const 3))))))))
