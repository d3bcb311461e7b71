;; Memory with addresses of 64 bits.
;;
;; must: refused
(module (memory (export "memory") i64 1) (func (export "_start")))
