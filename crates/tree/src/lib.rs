//! The one file interface, and the trees that answer it.
//!
//! Front ends, the mux and the file trees behind it speak one vocabulary ([`request`]). A tree is
//! an automaton: requests and completions in, replies and operations out ([`Input`], [`Output`]).
//!
//! - [`host`]: an existing directory of the host.
//! - [`remote`]: what another 9P server serves.
//! - [`service`]: files whose contents the node makes when they are opened (`/.upcall/`).
//! - [`skeleton`]: empty directories, for others to be mounted at.
//! - [`volume`]: files in a crash-safe store of our own.
//! - [`disk`]: how a store's blocks become operations of the reactor.
//! - [`locks`]: who holds which range of which file, for every tree that needs it.

pub mod disk;
mod entry_queue;
pub mod flat;
pub mod host;
pub mod locks;
pub mod remote;
mod reply;
pub mod request;
pub mod service;
pub mod skeleton;
pub mod volume;

pub use request::{
    Ask, Id, Input, NodeId, OpenId, Output, Refusal, Reply, Request, RequestId, Topic,
};
