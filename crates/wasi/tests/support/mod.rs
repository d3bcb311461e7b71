//! Test support for guests: a tree in memory, and a driver without threads and clocks.
#![allow(dead_code, reason = "each test uses another part")]

pub(crate) mod drive;
pub(crate) mod ram;
