;; Its `_start` is a memory.
;;
;; must: trap _start
;; served: refused
(module
  (memory (export "_start") 1))
