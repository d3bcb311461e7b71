;; Begins with more memory than it may have.
;;
;; must: killed memory
(module
  (memory (export "memory") 1024)
  (func (export "_start")
))
