//! Blocking client library for files of a 9P server, usable from any number of threads.
//!
//! Supports 9P2000.L, and 9P2000 for servers without it: `upcall serve`, diod, and the servers of
//! Plan 9 and its descendants. The library has no thread of its own and no runtime.
//!
//! ```no_run
//! use upcall_client::{Client, Options};
//! use std::io::Write as _;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let photos = Client::connect(&"nas:5640".parse()?, &Options::default())?;
//!     for entry in photos.read_dir("/2025")? {
//!         let entry = entry?;
//!         println!("{} {:?}", entry.name.display(), entry.kind);
//!     }
//!     let notes = photos.read_file("/notes.txt")?;
//!     photos.create_dir_all("/backup/today")?;
//!     photos.write_file("/backup/today/notes.txt", &notes)?;
//!
//!     // Bulk data is transferred in pieces, with many reads or writes in flight.
//!     let file = photos.open("/2025/film.mkv")?;
//!     for piece in file.stream(0, u64::MAX)? {
//!         std::io::stdout().write_all(&piece?)?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Clones of a [`Client`] share one connection, also between threads:
//!
//! ```no_run
//! # use upcall_client::{Client, Error};
//! fn sizes(client: &Client, names: &[&str]) -> Result<Vec<u64>, Error> {
//!     std::thread::scope(|scope| {
//!         let ask = |name| scope.spawn(move || Ok(client.metadata(name)?.size));
//!         let asked: Vec<_> = names.iter().map(ask).collect();
//!         asked.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
//!     })
//! }
//! ```
//!
//! A [`File`] implements [`Read`](std::io::Read), [`Write`](std::io::Write) and
//! [`Seek`](std::io::Seek); see `examples/tail.rs`.
//!
//! # Errors
//!
//! Every failure is an [`Error`] with its cause and a next step. If the server violates the
//! protocol, closes the connection, or sends nothing for [`Options::deadline`], the connection ends
//! for all threads: no call waits forever, and no unsolicited reply is accepted. [`Client::cancel`]
//! ends pending calls from another thread; dropping a [`Stream`] or [`Sink`] cancels its
//! outstanding requests.

mod address;
mod attributes;
mod client;
mod dir;
mod error;
mod file;
mod handshake;
mod line;
mod message;
mod metadata;
mod raw;
mod reader;
mod sink;
mod socket;
mod stream;
mod tree;

pub use address::{Address, PORT};
pub use attributes::FileSystem;
pub use base::{Kind, Time};
pub use client::{Client, DEPTH_MAX, Options};
pub use dir::{Entry, ReadDir};
pub use error::{Error, Refusal};
pub use file::{File, OpenOptions};
pub use message::Piece;
pub use metadata::Metadata;
pub use raw::{Call, Interrupt, Raw, Reply};
pub use session::Dialect;
pub use sink::Sink;
pub use std::path::Path;
pub use stream::Stream;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning: no code panics while holding one, and the data would be
/// consistent even then.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
