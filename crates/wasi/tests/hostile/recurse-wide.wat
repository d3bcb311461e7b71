;; The same with large frames.
;;
;; must: trap stack
(module
  (memory (export "memory") 1)
  (func $deep (param v128 v128 v128 v128 v128 v128 v128 v128 v128 v128 v128 v128)
    (local v128 v128 v128 v128 v128 v128 v128 v128 v128 v128 v128 v128)
    (call $deep
      (local.get 12) (local.get 13) (local.get 14) (local.get 15) (local.get 16) (local.get 17)
      (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)))
  (func (export "_start")
    (call $deep (v128.const i64x2 1 2) (v128.const i64x2 1 2) (v128.const i64x2 1 2)
      (v128.const i64x2 1 2) (v128.const i64x2 1 2) (v128.const i64x2 1 2)
      (v128.const i64x2 1 2) (v128.const i64x2 1 2) (v128.const i64x2 1 2)
      (v128.const i64x2 1 2) (v128.const i64x2 1 2) (v128.const i64x2 1 2))))
