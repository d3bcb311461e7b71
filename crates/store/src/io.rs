//! What a store asks of its disk.

use base::Block;

/// Names one operation on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoId(pub u32);

/// An operation on the disk. Each completes exactly once, with an [`IoDone`].
#[derive(Clone, Debug)]
pub enum Io {
    /// Read `count` whole blocks from block `at` on, at most [`base::op::BLOCKS_MAX`].
    Read {
        /// Comes back with [`IoDone::Read`].
        id: IoId,
        /// The first block.
        at: u64,
        /// How many.
        count: u32,
    },
    /// Write whole blocks from block `at` on.
    Write {
        /// Comes back with [`IoDone::Written`].
        id: IoId,
        /// The first block.
        at: u64,
        /// At most [`base::op::BLOCKS_MAX`].
        blocks: Vec<Block>,
        /// Whether it completes only when these blocks are durable.
        durable: bool,
    },
    /// Make everything durable whose write has completed.
    Flush {
        /// Comes back with [`IoDone::Flushed`].
        id: IoId,
    },
}

/// How an operation on the disk ended.
#[derive(Debug)]
pub enum IoDone {
    /// Every block asked for.
    Read(Result<Vec<Block>, base::Error>),
    /// All is written.
    Written(Result<(), base::Error>),
    /// All is durable.
    Flushed(Result<(), base::Error>),
}

impl Io {
    /// Its id.
    pub fn id(&self) -> IoId {
        match self {
            Io::Read { id, .. } | Io::Write { id, .. } | Io::Flush { id } => *id,
        }
    }
}
