;; Its `_start` is a memory.
;;
;; must: trap _start
(module
  (memory (export "_start") 1))
