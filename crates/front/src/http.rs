//! HTTP/1.1 (to come).
