//! A remote tree and the server it speaks with, in memory: [`far`] is our own server, [`near`] the
//! client with its reactor. [`compare`] asks a tree over that connection whatever it asks another
//! one of the same kind directly; [`chaos`] breaks the connection and lets the server lie.

pub mod chaos;
pub mod compare;
pub mod far;
pub mod near;
