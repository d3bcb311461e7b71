//! Numbers of fids. One is used again only when the server has said that it is free.

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
        self.free.push(fid);
    }

    /// How many mean something.
    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }
}
