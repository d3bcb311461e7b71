//! Keys in order: get, put, delete, and scans of ranges and prefixes both ways.

use crate::Table;
use crate::transaction::{Call, Scan};

/// A table of keys in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(pub Table);

impl Tree {
    /// The value of a key: [`crate::transaction::Reply::Value`].
    pub fn get(self, key: &[u8]) -> Call {
        Call::Get { table: self.0, key: key.to_vec() }
    }

    /// The value of a key that is going to be written.
    pub fn get_for_update(self, key: &[u8]) -> Call {
        Call::GetForUpdate { table: self.0, key: key.to_vec() }
    }

    /// Gives a key a value.
    pub fn put(self, key: &[u8], value: &[u8]) -> Call {
        Call::Put { table: self.0, key: key.to_vec(), value: value.to_vec() }
    }

    /// Takes a key away.
    pub fn delete(self, key: &[u8]) -> Call {
        Call::Delete { table: self.0, key: key.to_vec() }
    }

    /// All entries from a key on and before another; `None`: to the end.
    pub fn range(self, from: &[u8], to: Option<&[u8]>) -> Scan {
        let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        Scan { table: self.0, from, to, reverse: false, limit: usize::MAX }
    }

    /// All entries whose keys begin like this.
    pub fn prefix(self, prefix: &[u8]) -> Scan {
        self.range(prefix, after_prefix(prefix).as_deref())
    }
}

/// What is greater than everything that begins with a prefix; `None`: nothing is.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut after = prefix[..=kept].to_vec();
    after[kept] += 1;
    Some(after)
}

impl Scan {
    /// The same entries, the last one first.
    #[must_use]
    pub fn reversed(mut self) -> Scan {
        self.reverse = !self.reverse;
        self
    }

    /// At most so many of them.
    #[must_use]
    pub fn limited(mut self, limit: usize) -> Scan {
        self.limit = limit;
        self
    }

    /// What is left behind this key.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Scan {
        self.go_on_after(key);
        self
    }

    /// Leaves out what comes up to this key.
    pub fn go_on_after(&mut self, key: &[u8]) {
        if self.reverse {
            self.to = Some(key.to_vec());
        } else {
            self.from = [key, b"\0"].concat();
        }
    }
}
