//! What a run says: to people, to programs, and as pictures.

pub mod units;
