//! Prefetch state of a guest: cached results, the request in flight, and the choice of the next
//! one.

use crate::contents::{Batch, Contents};
use crate::host_channel::State as HostChannel;
use crate::listings::{Listings, Seen};
use base::{Buf, Error, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

/// A prefetch in flight.
#[derive(Debug)]
enum Coming {
    Listings(Seen),
    Contents(Batch, Seen),
    /// Bytes of an open file from an offset on.
    Bytes(OpenId, u64, Seen),
}

/// Prefetched bytes of an open file, from an offset on.
#[derive(Debug)]
struct Bytes {
    open: OpenId,
    from: u64,
    pieces: Vec<Buf>,
    seen: Seen,
}

/// Prefetched data, and the prefetch in flight.
#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    /// Prefetched directories.
    pub(crate) listings: Listings,
    /// Prefetched files.
    contents: Contents,
    /// The next part of a file that is read sequentially.
    bytes: Option<Bytes>,
    coming: Option<Coming>,
}

impl Prefetcher {
    /// Stores the reply of a prefetch, if it has arrived.
    pub(crate) fn absorb(&mut self, channel: &mut HostChannel) {
        let Some(reply) = channel.arrived.take() else { return };
        match (self.coming.take(), reply) {
            (Some(Coming::Listings(seen)), Ok(Reply::Listings(listings, _))) => {
                self.listings.add(listings, seen);
            }
            (Some(Coming::Contents(requested, seen)), Ok(Reply::Contents(contents, _))) => {
                self.contents.add(requested, contents, seen);
            }
            (Some(Coming::Bytes(open, from, seen)), Ok(Reply::Data(data))) => {
                self.bytes = Some(Bytes { open, from, pieces: vec![data], seen });
            }
            (Some(Coming::Bytes(open, from, seen)), Ok(Reply::Pieces(pieces))) => {
                self.bytes = Some(Bytes { open, from, pieces, seen });
            }
            // The guest reads for itself, and gets the error.
            (Some(Coming::Bytes(..)), _) => {}
            (Some(Coming::Listings(_)), reply) => {
                self.listings.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (Some(Coming::Contents(..)), reply) => {
                self.contents.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (None, reply) => unreachable!("nobody asked for {reply:?}"),
        }
    }

    /// Takes a prefetched file.
    pub(crate) fn take_file(&mut self, path: &[u8], now: Seen) -> Option<(Stat, Buf, Seen)> {
        self.contents.take(path, now, &mut self.listings)
    }

    /// Returns whether this file is being prefetched.
    pub(crate) fn is_file_coming(&self, path: &[u8]) -> bool {
        match &self.coming {
            Some(Coming::Contents(requested, _)) => {
                requested.paths.iter().any(|other| other == path)
            }
            Some(Coming::Listings(_) | Coming::Bytes(..)) | None => false,
        }
    }

    /// Returns whether directories are being prefetched.
    pub(crate) fn are_listings_coming(&self) -> bool {
        matches!(self.coming, Some(Coming::Listings(_)))
    }

    /// Returns whether bytes of this open file are being prefetched.
    pub(crate) fn are_bytes_coming(&self, open: OpenId) -> bool {
        matches!(self.coming, Some(Coming::Bytes(other, ..)) if other == open)
    }

    /// Takes the prefetched bytes of an open file; `None` if there are none from this offset on.
    pub(crate) fn take_bytes(
        &mut self,
        (open, from): (OpenId, u64),
        now: Seen,
    ) -> Option<(Vec<Buf>, Seen)> {
        let bytes = self.bytes.take_if(|bytes| bytes.open == open)?;
        let is_it = bytes.from == from && bytes.seen.is_fresh(now);
        is_it.then_some((bytes.pieces, bytes.seen))
    }

    /// Returns the prefetch request for a guest that reads a file sequentially.
    pub(crate) fn see_bytes(
        &mut self,
        open: OpenId,
        (from, count): (u64, u32),
        now: Seen,
    ) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        self.bytes = None;
        self.coming = Some(Coming::Bytes(open, from, now));
        Some(Ask::Read { open, offset: from, count, headroom: 0 })
    }

    /// Returns the prefetch request for a guest that lists directories.
    pub(crate) fn see_directories(&mut self, root: NodeId, now: Seen) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        let (paths, bytes_max) = self.listings.foreseen(now)?;
        self.coming = Some(Coming::Listings(now));
        Some(Ask::ListAll { from: root, paths, bytes_max })
    }

    /// Returns the prefetch request for a guest that opens files and may read `left` more bytes.
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
        // A prefetch must not exhaust the guest's budget.
        batch.bytes_max = u32::try_from(left / 2).unwrap_or(u32::MAX).min(batch.bytes_max);
        let Batch { ref paths, size_max, bytes_max } = batch;
        let ask = Ask::ReadAll { from: root, paths: paths.clone(), size_max, bytes_max };
        self.coming = Some(Coming::Contents(batch, now));
        Some(ask)
    }
}
