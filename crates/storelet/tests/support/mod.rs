//! What drives guests in tests: a tree in memory, and a driver without threads or clocks.
#![allow(dead_code, reason = "each test uses another part")]

pub(crate) mod drive;
pub(crate) mod ram;
