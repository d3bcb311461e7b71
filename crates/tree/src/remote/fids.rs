//! Numbers of fids. One is used again only when the server has said that it is free.

use std::collections::BTreeSet;
use wire::ninep::NO_FID;

/// The numbers of one connection.
#[derive(Debug, Default)]
pub(super) struct Fids {
    next: u32,
    free: Vec<u32>,
}

impl Fids {
    /// A number that means nothing to the server.
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.next < NO_FID, "there are as many fids as handles, and few more");
            self.next += 1;
            self.next - 1
        })
    }

    /// The number means nothing to the server any more.
    pub(super) fn give(&mut self, fid: u32) {
        assert!(fid < self.next, "only what was taken is given back");
        self.free.push(fid);
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        let free: BTreeSet<u32> = self.free.iter().copied().collect();
        assert_eq!(free.len(), self.free.len(), "a number is given back once");
        assert!(free.last().is_none_or(|fid| *fid < self.next), "free numbers were taken before");
    }

    /// How many mean something.
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }
}
