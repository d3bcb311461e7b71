;; Has more tables than anybody needs.
;;
;; must: trap
;; served: refused
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (table 1 funcref)
  (func (export "_start")
))
