//! What a guest's host has seen ahead, what is coming, and what to ask for next.

use crate::contents::{Batch, Contents};
use crate::door::State as Door;
use crate::listings::{Listings, Seen};
use base::{Buf, Error, Stat};
use tree::{Ask, NodeId, Reply};

/// What a guest's host has asked for ahead.
#[derive(Debug)]
enum Coming {
    Listings(Seen),
    Contents(Batch, Seen),
}

/// What a guest's host has seen ahead, and what is coming.
#[derive(Debug, Default)]
pub(crate) struct Foresight {
    /// Directories that were listed.
    pub(crate) listings: Listings,
    /// Files that were read.
    contents: Contents,
    coming: Option<Coming>,
}

impl Foresight {
    /// Takes up what has come.
    pub(crate) fn absorb(&mut self, door: &mut Door) {
        let Some(reply) = door.arrived.take() else { return };
        match (self.coming.take(), reply) {
            (Some(Coming::Listings(seen)), Ok(Reply::Listings(listings, _))) => {
                self.listings.add(listings, seen);
            }
            (Some(Coming::Contents(asked, seen)), Ok(Reply::Contents(contents, _))) => {
                self.contents.add(asked, contents, seen);
            }
            (Some(Coming::Listings(_)), reply) => {
                self.listings.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (Some(Coming::Contents(..)), reply) => {
                self.contents.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (None, reply) => unreachable!("nobody asked for {reply:?}"),
        }
    }

    /// Takes a file that was read ahead.
    pub(crate) fn take_file(&mut self, path: &[u8], now: Seen) -> Option<(Stat, Buf, Seen)> {
        self.contents.take(path, now, &mut self.listings)
    }

    /// Whether this file is among those that are coming.
    pub(crate) fn is_file_coming(&self, path: &[u8]) -> bool {
        match &self.coming {
            Some(Coming::Contents(asked, _)) => asked.paths.iter().any(|other| other == path),
            Some(Coming::Listings(_)) | None => false,
        }
    }

    /// Whether listings are coming.
    pub(crate) fn are_listings_coming(&self) -> bool {
        matches!(self.coming, Some(Coming::Listings(_)))
    }

    /// The guest lists directories: what to ask for meanwhile.
    pub(crate) fn see_directories(&mut self, root: NodeId, now: Seen) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        let (paths, bytes_max) = self.listings.foreseen(now)?;
        self.coming = Some(Coming::Listings(now));
        Some(Ask::ListAll { from: root, paths, bytes_max })
    }

    /// The guest opens a file, and may read so many bytes more: what to ask for meanwhile.
    pub(crate) fn see_files(
        &mut self,
        path: &[u8],
        root: NodeId,
        now: Seen,
        left: u64,
    ) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        let mut batch = self.contents.foreseen(path, &mut self.listings)?;
        // What nobody has asked for must not be what ends a guest.
        batch.bytes_max = u32::try_from(left / 2).unwrap_or(u32::MAX).min(batch.bytes_max);
        let Batch { ref paths, size_max, bytes_max } = batch;
        let ask = Ask::ReadAll { from: root, paths: paths.clone(), size_max, bytes_max };
        self.coming = Some(Coming::Contents(batch, now));
        Some(ask)
    }
}
