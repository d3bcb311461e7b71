//! Replicated services in the tree of files.
//!
//! Each replica is a tree: clients write operations to a file and read answers from it, and other
//! replicas write messages to another file. The replica itself is [`replica::service`]; this crate
//! connects it to disks, peers and clients.
//!
//! ```text
//!   ops ─▶ session ─▶ ┌─────────┐ ──▶ journal ──▶ blocks of the replica's volume
//!                    │ replica │
//!   peer ─▶ accept ▶ └─────────┘ ──▶ peer ──▶ remote tree ──▶ `peer` of another server
//! ```

mod acceptor;
mod account;
mod events;
mod files;
mod hosted;
mod joining;
mod journal;
mod limits;
mod members;
mod op_session;
mod opened;
mod peer;
mod peer_link;
mod peer_message;
mod pieces;
mod proof;
mod reads;
mod rejection;
mod seal;
pub mod settings;
mod show;
mod silence;
mod status;
mod turn;
mod unauthenticated;

pub use files::{OPENS_MAX, root};
pub use hosted::{Hosted, OLDER_COPY, Options, PLACE};
pub use journal::{Copying, MARK, StoredReplica, Unreadable, format, is_mark, read_all};
pub use limits::Limits;
pub use members::{ADMINISTRATOR, address, list};
pub use peer_link::SILENT;
pub use peer_message::{Answer, PeerMessage, Reader};
pub use proof::{CHALLENGE, Introduction, ProofReplies, ProofReply, Seals, VERDICT};
pub use seal::{Forged, Seal};
pub use settings::{Secret, Settings};
pub use status::{Counts, MemberCounts};

/// Replicated data: any type, with exactly-once operations.
pub(crate) type Data = replica::data::Once<replica::data::Kind>;

pub(crate) type Operator = <Data as replica::data::DataType>::Operator;

pub(crate) type Value = <Data as replica::data::DataType>::Value;

pub(crate) type Snapshot = replica::service::Snapshot<Data>;
