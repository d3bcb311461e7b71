;; Grows until it may not, and uses every page: refused, it goes on.
;;
;; must: exit 0
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (local $page i32)
    (loop $on
      (local.set $page (memory.grow (i32.const 1)))
      (if (i32.ne (local.get $page) (i32.const -1)) (then
        (i32.store (i32.mul (local.get $page) (i32.const 65536)) (i32.const 1))
        (br $on))))))
