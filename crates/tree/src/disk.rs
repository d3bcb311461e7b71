//! A store's disk, implemented by a file of the reactor.

use base::op::{BLOCKS_MAX, Done, File, Op, OpId};
use store::{Io, IoDone, IoId};

/// Converts an I/O request of a store to an operation of the reactor.
pub fn op(id: OpId, file: File, block: usize, io: Io) -> Op {
    let offset = |at: u64| at * block as u64;
    match io {
        Io::Read { id: _, at, count } => {
            assert!((1..=BLOCKS_MAX as u32).contains(&count), "{count} blocks at once");
            let size = u32::try_from(block).expect("blocks are small");
            Op::ReadBlocks { id, file, offset: offset(at), count, size }
        }
        Io::Write { id: _, at, blocks, durable } => {
            assert!((1..=BLOCKS_MAX).contains(&blocks.len()), "{} blocks at once", blocks.len());
            Op::WriteBlocks { id, file, offset: offset(at), blocks, durable }
        }
        Io::Flush { id: _ } => Op::Sync { id, file, data_only: true },
    }
}

/// Converts a completion to the store's form.
///
/// # Panics
/// If it is no completion of an operation of [`op`].
pub fn done(local: u64, done: Done) -> (IoId, IoDone) {
    let id = IoId(u32::try_from(local).expect("counts of the store fit 32 bits"));
    let done = match done {
        Done::Blocks(blocks) => IoDone::Read(blocks),
        Done::Stored(result) => IoDone::Written(result),
        Done::Synced(result) => IoDone::Flushed(result),
        // The reactor completes every operation with its own variant.
        other @ (Done::Accepted(_)
        | Done::Connected(_)
        | Done::Envelope(_)
        | Done::Received(_)
        | Done::Sent(_)
        | Done::Read(_)
        | Done::Written(_)
        | Done::Path(_)
        | Done::Closing { .. }
        | Done::Stop
        | Done::Unresponsive(_)) => unreachable!("{other:?} for a volume"),
    };
    (id, done)
}
