//! Operations of a store on its disk.

use base::Block;

/// Identifier of an operation on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoId(pub u32);

/// An operation on the disk. Each completes exactly once, with an [`IoDone`].
#[derive(Clone, Debug)]
pub enum Io {
    /// Read `count` whole blocks from block `at` on, at most [`base::op::BLOCKS_MAX`].
    Read {
        /// Completes with [`IoDone::Read`].
        id: IoId,
        /// First block.
        at: u64,
        /// Number of blocks.
        count: u32,
    },
    /// Write whole blocks from block `at` on.
    Write {
        /// Completes with [`IoDone::Written`].
        id: IoId,
        /// First block.
        at: u64,
        /// The blocks, at most [`base::op::BLOCKS_MAX`].
        blocks: Vec<Block>,
        /// Whether it completes only when these blocks are durable.
        durable: bool,
    },
    /// Make all completed writes durable.
    Flush {
        /// Completes with [`IoDone::Flushed`].
        id: IoId,
    },
}

/// Result of an operation on the disk.
#[derive(Debug)]
pub enum IoDone {
    /// All requested blocks.
    Read(Result<Vec<Block>, base::Error>),
    /// Everything is written.
    Written(Result<(), base::Error>),
    /// Everything is durable.
    Flushed(Result<(), base::Error>),
}

impl Io {
    /// Returns its id.
    pub fn id(&self) -> IoId {
        match self {
            Io::Read { id, .. } | Io::Write { id, .. } | Io::Flush { id } => *id,
        }
    }
}
