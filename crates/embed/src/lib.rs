//! Volumes for programs: a crash-safe transactional store in a file, as a library.
//!
//! There are three ways to use a store, the composition alternatives of the BUDS paper (§3):
//!
//! | caller | use | cost |
//! |---|---|---|
//! | an automaton in the same thread | [`engine::Engine`] | nothing |
//! | a state machine in another thread | [`Service`], [`Client`] | a queue |
//! | straight-line code, many threads | [`Volume`] | a queue and a sleep |
//! | straight-line code, one thread | [`Local`] | nothing |
//!
//! A service takes requests from a bounded queue and delivers completions to the port of each
//! client; a volume sends a request and sleeps until its completion; a local volume owns its store,
//! and has neither thread nor queue.
//!
//! *In the same thread* the caller routes outputs to their destinations in one `match`. A caller
//! that needs neither locks nor transactions uses [`store::Store`] itself, as the file tree does.
//!
//! ```text
//! engine.request(now, ticket, request, &mut out);
//! engine.tick(now, &mut out);                       // at the end of a turn
//! for output in out.drain(..) {
//!     match output {
//!         Output::Io(io) => reactor.submit(operation(io)),      // its end: engine.done(...)
//!         Output::Reply(ticket, reply) => ...                   // exactly one for each request
//!         Output::Opened(result) => ...
//!     }
//! }
//! ```
//!
//! *Blocking*, which suits most programs:
//!
//! ```
//! use upcall_embed::{Ask as _, Durability, Error, Session as _, Volume};
//!
//! fn main() -> Result<(), Error> {
//!     let path = std::env::temp_dir().join(format!("bank-{}.volume", std::process::id()));
//!     let volume = Volume::create(&path, 64 << 20)?;
//!     let accounts = volume.tree("accounts")?;
//!     accounts.put(&volume, b"alice", b"100")?;               // by itself, durable
//!
//!     let transfer = volume.begin()?;                         // or several changes at once
//!     accounts.put(&transfer, b"alice", b"70")?;
//!     accounts.put(&transfer, b"bob", b"30")?;
//!     transfer.commit(Durability::Durable)?;
//!
//!     let mut names = Vec::new();
//!     let mut all = accounts.iter(&volume);                   // in order, or `backwards`
//!     while let Some((name, _money)) = all.advance()? {       // borrowed, not copied
//!         names.push(name.to_vec());
//!     }
//!     assert_eq!(names, [b"alice".to_vec(), b"bob".to_vec()]);
//!     drop(all);
//!     drop(volume);
//!     std::fs::remove_file(path).expect("the volume is there");
//!     Ok(())
//! }
//! ```
//!
//! Functions that take `on: &impl Ask` work on their own on a [`Volume`] or a [`Local`], inside a
//! [`Transaction`], and on a [`Snapshot`]. A transaction that fails with [`Error::is_deadlock`] is
//! rolled back and retried: [`Session::transact`] does that.
//!
//! `examples/bank.rs` demonstrates most of it.

mod ask;
mod clock;
mod disk;
mod error;
mod local;
mod port;
mod queue;
mod service;
mod session;
mod tables;
mod volume;
mod workers;

pub use ask::{Ask, Entries, Shown};
pub use disk::FileDisk;
pub use engine::{Call, Entry, Failure, Reply, Request, Scan, ScanBatch};
pub use error::Error;
pub use local::Local;
pub use port::Completion;
pub use service::{Client, Service};
pub use session::{Session, Snapshot, TRIES_MAX, Transaction};
pub use store::{Durability, Ticket};
pub use tables::{Hash, Raw, Records, Tree};
pub use volume::{Options, Volume};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
