//! Replicated services in the tree of files.
//!
//! Each replica is a tree: clients write operations to a file and read answers from it, and other
//! replicas write messages to another file. The replica itself is [`replica::service`]; this crate
//! connects it to disks, peers and clients.
//!
//! ```text
//!   ops ──▶ talk ──▶ ┌─────────┐ ──▶ journal ──▶ blocks of the replica's volume
//!                    │ replica │
//!   peer ─▶ door ──▶ └─────────┘ ──▶ peer ──▶ remote tree ──▶ `peer` of another server
//! ```

mod account;
mod door;
mod events;
mod files;
mod hosted;
mod journal;
mod letter;
mod members;
mod peer;
mod peer_link;
mod pieces;
mod proof;
mod reads;
mod rejection;
mod seal;
pub mod settings;
mod show;
mod status;
mod strangers;
mod talk;
mod turn;

pub use files::{OPENS_MAX, root};
pub use hosted::{Hosted, Options, PLACE};
pub use journal::{Copying, Kept, MARK, Unreadable, format, is_mark, read_all};
pub use letter::{Answer, Letter, Reader};
pub use members::{ADMINISTRATOR, address, list};
pub use peer_link::SILENT;
pub use proof::{CHALLENGE, Introduction, Seals, VERDICT, Verdict, Verdicts};
pub use seal::{Forged, Seal};
pub use settings::{Secret, Settings};
pub use status::{Counts, MemberCounts};
pub use turn::Limits;

/// Replicated data: any type, with exactly-once operations.
pub(crate) type Data = replica::data::Once<replica::data::Kind>;

pub(crate) type Operator = <Data as replica::data::DataType>::Operator;

pub(crate) type Value = <Data as replica::data::DataType>::Value;

pub(crate) type Snapshot = replica::service::Snapshot<Data>;
