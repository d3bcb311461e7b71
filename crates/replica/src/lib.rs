//! Replicated data types with consistency chosen per operation: the eventually-serializable data
//! service (paper 001).

pub mod binary;
pub mod data;
pub mod esds;
pub mod ioa;
pub mod ring;
pub mod service;
pub mod work;
