//! Files of a 9P server for programs, in blocking calls from any number of threads.
//!
//! It speaks 9P2000.L, and 9P2000 with servers that know nothing else: `upcall serve`, diod, those
//! of Plan 9 and its descendants. It has no thread of its own and no runtime.
//!
//! ```no_run
//! use client::{Client, Options};
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
//!     // Much data goes piece by piece, with many reads or writes under way.
//!     let file = photos.open("/2025/film.mkv")?;
//!     for piece in file.stream(0, u64::MAX)? {
//!         std::io::stdout().write_all(&piece?)?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Clones of a [`Client`] share one connection, and so do threads:
//!
//! ```no_run
//! # use client::{Client, Error};
//! fn sizes(client: &Client, names: &[&str]) -> Result<Vec<u64>, Error> {
//!     std::thread::scope(|scope| {
//!         let ask = |name| scope.spawn(move || Ok(client.metadata(name)?.size));
//!         let asked: Vec<_> = names.iter().map(ask).collect();
//!         asked.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
//!     })
//! }
//! ```
//!
//! A [`File`] is a [`Read`](std::io::Read), [`Write`](std::io::Write) and
//! [`Seek`](std::io::Seek); `examples/tail.rs` is a program around one.
//!
//! # What can go wrong
//!
//! Everything is an [`Error`], which says the cause and what can be done. A server that breaks the
//! protocol, ends the connection, or says nothing for [`Options::deadline`] ends the connection for
//! all threads: nothing waits for ever, and no reply is believed that was not asked for.
//! [`Client::cancel`] ends what waits from another thread; dropping a [`Stream`] or [`Sink`]
//! cancels what it has under way.

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
pub use line::Dialect;
pub use message::Piece;
pub use metadata::Metadata;
pub use sink::Sink;
pub use std::path::Path;
pub use stream::Stream;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a lock protects. Nothing here panics while it is held; were it so, what it protects would
/// still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
