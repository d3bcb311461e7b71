//! Leaves of the tree, for scans that copy no entry: a cell is a key, with its table's number in
//! front, and a value or the extent of one.

pub use crate::btree::look::{Bounds, Visit};
pub use crate::page::{count, entry, key, search};
pub use crate::reader::AHEAD;
