//! Numbers of fids. One is reused only after the server has reported that it is free.

use std::collections::BTreeSet;
use wire::ninep::NO_FID;

/// The fids of one connection.
#[derive(Debug, Default)]
pub(super) struct Fids {
    next: u32,
    free: Vec<u32>,
}

impl Fids {
    /// Returns a fid unknown to the server.
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.next < NO_FID, "there are as many fids as handles, and few more");
            self.next += 1;
            self.next - 1
        })
    }

    /// Marks a fid as free on the server.
    pub(super) fn give(&mut self, fid: u32) {
        assert!(fid < self.next, "only what was taken is given back");
        self.free.push(fid);
    }

    /// Asserts all invariants.
    pub(super) fn check(&self) {
        let free: BTreeSet<u32> = self.free.iter().copied().collect();
        assert_eq!(free.len(), self.free.len(), "a number is given back once");
        assert!(free.last().is_none_or(|fid| *fid < self.next), "free numbers were taken before");
    }

    /// Returns the number of fids in use.
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }
}
