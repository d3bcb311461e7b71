//! Memory accounting of open files.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes held by open files. Each file is charged before it allocates.
#[derive(Debug, Default)]
pub(crate) struct Account {
    sum: usize,
    of: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
}

impl Account {
    /// Total bytes of all files.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Bytes held by this file.
    pub(crate) fn of(&self, open: usize) -> usize {
        self.of.get(&open).copied().unwrap_or(0)
    }

    /// Sets the bytes held by a file.
    pub(crate) fn set(&mut self, open: usize, bytes: usize) {
        let before = match bytes {
            0 => self.of.remove(&open).unwrap_or(0),
            _ => self.of.insert(open, bytes).unwrap_or(0),
        };
        self.sum = self.sum - before + bytes;
        self.by_size.remove(&(before, open));
        if bytes > 0 {
            self.by_size.insert((bytes, open));
        }
    }

    /// Returns the largest holder: its bytes, then the file.
    pub(crate) fn largest(&self) -> Option<(usize, usize)> {
        self.by_size.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_largest_are_known() {
        let mut account = Account::default();
        for (open, bytes) in [(1, 10), (2, 30), (3, 20), (2, 5), (3, 0)] {
            account.set(open, bytes);
        }
        assert_eq!((account.sum(), account.largest()), (15, Some((10, 1))));
        assert_eq!((account.of(2), account.of(3)), (5, 0));
        [1, 2].into_iter().for_each(|open| account.set(open, 0));
        assert_eq!((account.sum(), account.largest()), (0, None));
    }
}
