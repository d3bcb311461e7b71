//! The vocabulary shared by all parts of Upcall.
//!
//! Two traits are the architecture: an [`Automaton`] maps inputs to outputs, a [`Reactor`] performs
//! operations and returns their completions. The rest are the types exchanged by the two: time,
//! buffers, names, file attributes, errors, operations.
//!
//! Nothing in this crate reads a clock, touches the kernel, or blocks.

mod automaton;
mod block;
mod buf;
mod caller;
mod error;
mod file_handle;
mod name;
mod skip;
mod stat;
mod time;

pub mod drawing;
pub mod histogram;
pub mod op;
pub mod rng;
pub mod serial;
pub mod size;
pub mod units;

pub use automaton::{Automaton, Reactor};
pub use block::Block;
pub use buf::Buf;
pub use caller::{Caller, User};
pub use error::Error;
pub use file_handle::{FILE_HANDLE_MAX, FileHandle, TAG_SIZE};
pub use name::{NAME_MAX, Name, is_temporary};
pub use skip::skip;
pub use stat::{
    Access, Expected, FileVersion, Kind, SAYING_DEVICES, SetStat, SetTime, Stat, StatFs,
    file_number,
};
pub use time::{Instant, Time};
