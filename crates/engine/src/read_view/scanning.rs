//! Scans: leaf by leaf, merged with the transaction's own writes.

use super::{ReadView, Stop, ends};
use crate::locks::{Mode, Span};
use crate::scan::{ScanBatch, next};
use crate::{ANSWER_MAX, Scan};
use std::iter;
use std::ops::{ControlFlow, Range};
use store::leaf::AHEAD;
use store::leaf::Bounds;
use store::{Block, Missing, leaf};

/// Number of entries for which one more leaf is prefetched.
const ENTRIES_AHEAD: usize = 16;

/// Results of a scan so far.
struct Found {
    batch: ScanBatch,
    bytes: usize,
    limit: usize,
    reverse: bool,
}

impl Found {
    fn is_full(&self) -> bool {
        self.batch.len() >= self.limit || self.bytes >= ANSWER_MAX
    }

    fn add(&mut self, key: &[u8], value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.batch.push(key, value);
    }

    /// Adds an own write of the transaction, if it fits and is no deletion.
    fn add_own(&mut self, full: &[u8], value: Option<&[u8]>) {
        if let Some(value) = value.filter(|_| !self.is_full()) {
            self.add(&full[4..], value.to_vec());
        }
    }

    /// Adds cells up to one with an extent, as far as they fit; returns the others.
    fn add_cells(&mut self, leaf: &Block, cells: Range<usize>) -> Range<usize> {
        let (mut rest, mut room) = (cells.clone(), self.limit - self.batch.len());
        loop {
            let mut behind = rest.clone();
            let index = next(&mut behind, self.reverse);
            let Some(index) = index.filter(|_| room > 0 && self.bytes < ANSWER_MAX) else { break };
            let (key, value, extent) = leaf::entry(leaf, index);
            if extent {
                break;
            }
            (rest, room) = (behind, room - 1);
            self.bytes += key.len() - 4 + value.len();
        }
        let added = if self.reverse { rest.end..cells.end } else { cells.start..rest.start };
        assert!(added.len() + rest.len() == cells.len(), "each cell is added, or left");
        self.batch.push_cells(leaf, added);
        rest
    }
}

impl<'a> ReadView<'a> {
    /// Returns entries in order, and whether there may be more. The call must not have written
    /// before.
    pub(crate) fn scan(&mut self, scan: &Scan) -> Result<(ScanBatch, bool), Stop> {
        assert!(self.write_set.is_empty(), "a scan precedes the writes of its call");
        let batch = ScanBatch::new(scan.reverse);
        let limit = scan.limit.max(1);
        let mut found = Found { batch, bytes: 0, limit, reverse: scan.reverse };
        self.gather(scan, &mut found)?;
        let more = found.is_full();
        // The range seen is locked, including the gaps between the entries, so that none appears
        // there.
        self.lock(Mode::Shared, || {
            let last = found.batch.last().filter(|_| more).map(|(key, _)| key);
            let (from, to) = (&scan.from[..], scan.to.as_deref());
            match last {
                Some(key) if scan.reverse => Span::range(scan.table, key, to),
                Some(key) => Span::range(scan.table, from, Some(&[key, b"\0"].concat())),
                None => Span::range(scan.table, from, to),
            }
        })?;
        Ok((found.batch, more))
    }

    fn gather(&self, scan: &Scan, found: &mut Found) -> Result<(), Missing> {
        let (from, to) = ends(scan);
        let mut own = self.written.range(&from, &to);
        let mut own = iter::from_fn(|| if scan.reverse { own.next_back() } else { own.next() });
        let mut next_own = own.next();
        let ahead = AHEAD.min(found.limit / ENTRIES_AHEAD);
        let bounds = Bounds { from: &from, to: Some(&to), reverse: scan.reverse, ahead };
        self.reader.leaves(&bounds, &mut |leaf, mut cells| {
            while let Some((key, value)) = next_own
                && let Some((before, behind)) = divide(leaf, &cells, key, scan.reverse)
            {
                self.add_cells(found, leaf, before)?;
                found.add_own(key, value);
                (cells, next_own) = (behind, own.next());
            }
            self.add_cells(found, leaf, cells)?;
            Ok(if found.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let rest = next_own.into_iter().chain(own);
        rest.for_each(|(key, value)| found.add_own(key, value));
        Ok(())
    }

    /// Adds cells of a leaf, as far as they fit.
    fn add_cells(
        &self,
        found: &mut Found,
        leaf: &'a Block,
        cells: Range<usize>,
    ) -> Result<(), Missing> {
        let mut rest = found.add_cells(leaf, cells);
        // The next one, if it fits, has an extent.
        while !found.is_full()
            && let Some(index) = next(&mut rest, found.reverse)
        {
            let value = self.reader.value(leaf, index)?.bytes().into_owned();
            found.add(&leaf::key(leaf, index)[4..], value);
            rest = found.add_cells(leaf, rest);
        }
        Ok(())
    }
}

/// Divides cells at a key: those that come before it in the order of a scan, and those after it.
/// `None` if it comes after all of them.
fn divide(
    leaf: &[u8],
    cells: &Range<usize>,
    key: &[u8],
    reverse: bool,
) -> Option<(Range<usize>, Range<usize>)> {
    let (low, high) = match leaf::search(leaf, key) {
        Ok(index) => (index, index + 1),
        Err(index) => (index, index),
    };
    let (less, greater) = (cells.start..low, high..cells.end);
    let (before, behind) = if reverse { (greater, less) } else { (less, greater) };
    (before != *cells).then_some((before, behind))
}
