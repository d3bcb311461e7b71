;; Begins with more of a table than it may have.
;;
;; must: killed memory
;; served: refused
(module
  (memory (export "memory") 1)
  (table 10000000 funcref)
  (func (export "_start")
))
