//! Blocks of volumes through the ring.

use super::{Slot, Uring, fd};
use crate::blocks::{BlockTransfer, Phase};
use crate::errno;
use crate::job::Work;
use base::op::{BLOCKS_MAX, File, OpId};
use io_uring::{opcode, types};
use rustix::io::Errno;

impl Uring {
    /// Starts the next call of a transfer of blocks. `slices` is memory for reuse.
    pub(super) fn move_blocks(
        &mut self,
        id: OpId,
        file: File,
        mut block_transfer: BlockTransfer,
        mut slices: Vec<libc::iovec>,
    ) {
        let Some(phase) = block_transfer.phase() else {
            return self.common.ready(id, block_transfer.end(Ok(())));
        };
        slices.clear();
        match phase {
            Phase::Read => slices.extend(block_transfer.targets().map(slice_to_fill)),
            Phase::Write | Phase::WriteDurable | Phase::WriteThenSync => {
                slices.extend(block_transfer.sources().map(slice_to_read));
            }
            Phase::Sync => {}
        }
        let (at, fd) = (block_transfer.position(), fd(file.0));
        assert!(slices.len() <= BLOCKS_MAX, "one call moves no more");
        let (vector, count) = (slices.as_ptr(), u32::try_from(slices.len()).expect("BLOCKS_MAX"));
        let entry = match phase {
            Phase::Read => opcode::Readv::new(fd, vector, count).offset(at).build(),
            Phase::Write | Phase::WriteThenSync => {
                opcode::Writev::new(fd, vector, count).offset(at).build()
            }
            Phase::WriteDurable => {
                let flags = libc::RWF_DSYNC;
                opcode::Writev::new(fd, vector, count).offset(at).rw_flags(flags).build()
            }
            Phase::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        let entry = entry.personality(self.personalities.server());
        // Nobody modifies these blocks before the completion: those that are read into are not
        // shared, and those that are written are copied on write.
        self.start(Slot::Blocks { id, file, block_transfer, slices }, entry);
    }

    /// Handles the end of a call of a transfer of blocks.
    pub(super) fn complete_blocks(
        &mut self,
        id: OpId,
        file: File,
        mut block_transfer: BlockTransfer,
        slices: Vec<libc::iovec>,
        result: i32,
    ) {
        if result == -libc::EAGAIN {
            // The ring cannot do it.
            return self.common.push(id, file, Work::Blocks { file, block_transfer });
        }
        let moved = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        match block_transfer.step(moved) {
            None => self.move_blocks(id, file, block_transfer, slices),
            Some(over) => {
                self.common.ready(id, block_transfer.end(over.map_err(errno::translate)));
            }
        }
    }
}

fn slice_to_fill(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn slice_to_read(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
