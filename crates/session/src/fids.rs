//! Numbers of fids.

use std::collections::BTreeSet;
use wire::ninep::NO_FID;

/// Fids of one session.
#[derive(Debug, Default)]
pub(crate) struct Fids {
    next: u32,
    free: Vec<u32>,
}

impl Fids {
    /// Returns a fid unknown to the server; `None` if all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let fid = Some(self.next).filter(|fid| *fid != NO_FID)?;
            self.next += 1;
            Some(fid)
        })
    }

    /// Marks a fid as free.
    pub(crate) fn give(&mut self, fid: u32) {
        assert!(fid < self.next, "a free fid was taken before");
        self.free.push(fid);
    }

    /// Returns the number of fids in use.
    pub(crate) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }

    pub(crate) fn check(&self) {
        let free: BTreeSet<u32> = self.free.iter().copied().collect();
        assert_eq!(free.len(), self.free.len(), "a fid is freed once");
        assert!(free.last().is_none_or(|fid| *fid < self.next), "a free fid was taken before");
    }
}
