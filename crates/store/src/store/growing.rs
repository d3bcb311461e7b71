//! Growth of a volume.
//!
//! A checkpoint has the new size, and larger maps if necessary; until its superblock is durable
//! nothing is allocated beyond the old end. So after a crash the size is the old or the new one,
//! with the same contents.

use super::{Job, Output, Store};
use crate::{Error, Io, Layout, Superblock, Ticket};
use base::Instant;

/// A growth in progress.
#[derive(Debug)]
pub(super) struct Growing {
    ticket: Ticket,
    layout: Layout,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the read of the new last block, which may not exist.
    Probing,
    /// Waiting for the end of the checkpoint in progress.
    Waiting,
    /// Waiting for the checkpoint with the new size.
    Frozen,
}

impl Store {
    /// Grows the volume to `blocks` blocks in all: the file or device must be that long already.
    /// [`Output::Committed`] follows, with `TooLarge` if the volume is not smaller, cannot be so
    /// large, or has no room for larger maps behind its present end; `TooShort` if the new last
    /// block cannot be read; `Exists` if the volume is growing already.
    pub fn grow(&mut self, ticket: Ticket, blocks: u64, out: &mut Vec<Output>) {
        let layout = match self.expect_writable() {
            Ok(()) if self.growing.is_some() => Err(Error::Exists),
            Ok(()) => self.present.layout.grown(blocks),
            Err(error) => Err(error),
        };
        match layout {
            Err(error) => out.push(Output::Committed(ticket, Err(error))),
            Ok(layout) => {
                self.growing = Some(Growing { ticket, layout, phase: Phase::Probing });
                let at = layout.blocks - 1;
                self.submit(Job::Probe, |id| Io::Read { id, at, count: 1 }, out);
            }
        }
    }

    /// Handles the read of the new last block.
    pub(super) fn probed(&mut self, now: Instant, is_there: bool, out: &mut Vec<Output>) {
        // A failure of the disk has ended the growth.
        let Some(growing) = &mut self.growing else { return };
        assert_eq!(growing.phase, Phase::Probing, "it is read once");
        if !is_there {
            return self.refuse_growth(Error::TooShort, out);
        }
        growing.phase = Phase::Waiting;
        self.begin_checkpoint(now, out);
    }

    /// Returns whether a growth waits for a checkpoint.
    pub(super) fn is_growth_due(&self) -> bool {
        self.growing.as_ref().is_some_and(|growing| growing.phase == Phase::Waiting)
    }

    /// Applies a waiting growth to the checkpoint being frozen.
    pub(super) fn begin_growth(&mut self) {
        let is_due = self.is_growth_due();
        if let Some(growing) = self.growing.as_mut().filter(|_| is_due) {
            growing.phase = Phase::Frozen;
            self.present.space.grow(&growing.layout);
            self.present.layout = growing.layout;
        }
    }

    /// Ends the growth when its checkpoint is durable.
    pub(super) fn end_growth(&mut self, out: &mut Vec<Output>) {
        if let Some(growing) = self.growing.take_if(|growing| growing.phase == Phase::Frozen) {
            assert_eq!(self.superblock.layout, growing.layout, "the superblock says so");
            out.push(Output::Committed(growing.ticket, Ok(())));
        }
    }

    /// Fails the growth.
    pub(super) fn refuse_growth(&mut self, error: Error, out: &mut Vec<Output>) {
        let refused = self.growing.take();
        out.extend(refused.map(|growing| Output::Committed(growing.ticket, Err(error))));
    }

    /// Starts the writes of the first superblock of its version to all positions but that of the
    /// present one, which is overwritten last; returns their number.
    pub(super) fn write_copies(&mut self, superblock: &Superblock, out: &mut Vec<Output>) -> u32 {
        if superblock.version() == self.superblock.version() {
            return 0;
        }
        let copies = superblock.copies(&self.superblock);
        for at in &copies {
            let (at, blocks) = (*at, vec![superblock.encode()]);
            self.submit(Job::Map, |id| Io::Write { id, at, blocks, durable: false }, out);
        }
        u32::try_from(copies.len()).expect("there are few")
    }
}
