;; A mistake that the processor or the engine notices.
;;
;; must: trap unreachable
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (unreachable)))
