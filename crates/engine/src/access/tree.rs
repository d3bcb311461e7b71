//! Ordered keys: get, put, delete, and scans of ranges and prefixes in both directions.

use crate::{Call, Scan};
use store::Table;

/// A table of ordered keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(pub Table);

impl Tree {
    /// Gets the value of a key: [`crate::Reply::Value`].
    pub fn get(self, key: &[u8]) -> Call {
        Call::Get { table: self.0, key: key.to_vec() }
    }

    /// Gets the value of a key to be written.
    pub fn get_for_update(self, key: &[u8]) -> Call {
        Call::GetForUpdate { table: self.0, key: key.to_vec() }
    }

    /// Sets the value of a key.
    pub fn put(self, key: &[u8], value: &[u8]) -> Call {
        Call::Put { table: self.0, key: key.to_vec(), value: value.to_vec() }
    }

    /// Deletes a key.
    pub fn delete(self, key: &[u8]) -> Call {
        Call::Delete { table: self.0, key: key.to_vec() }
    }

    /// Scans all entries from a key on and before another; `None`: to the end.
    pub fn range(self, from: &[u8], to: Option<&[u8]>) -> Scan {
        let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        Scan { table: self.0, from, to, reverse: false, limit: usize::MAX }
    }

    /// Scans all entries with this prefix.
    pub fn prefix(self, prefix: &[u8]) -> Scan {
        self.range(prefix, after_prefix(prefix).as_deref())
    }
}

/// Returns the least key greater than all keys with a prefix; `None` if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut after = prefix[..=kept].to_vec();
    after[kept] += 1;
    Some(after)
}

impl Scan {
    /// Returns a scan of the same entries, the last one first.
    #[must_use]
    pub fn reversed(mut self) -> Scan {
        self.reverse = !self.reverse;
        self
    }

    /// Returns a scan of at most `limit` of the entries.
    #[must_use]
    pub fn limited(mut self, limit: usize) -> Scan {
        self.limit = limit;
        self
    }

    /// Returns a scan of the rest behind this key.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Scan {
        self.go_on_after(key);
        self
    }

    /// Leaves out the entries up to this key.
    pub fn go_on_after(&mut self, key: &[u8]) {
        if self.reverse {
            self.to = Some(key.to_vec());
        } else {
            self.from = [key, b"\0"].concat();
        }
    }
}
