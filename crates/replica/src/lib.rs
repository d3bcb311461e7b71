//! Replicated data types with consistency chosen per operation: the eventually-serializable data
//! service (paper 001). The paper's own algorithms are in the crate `esds`.

pub mod binary;
pub mod data;
pub mod service;
pub mod work;
