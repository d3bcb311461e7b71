//! Memory accounting of open files, by file and by client.

use std::collections::{BTreeMap, BTreeSet};

/// A client with open files: the caller of their requests. Peers are none: their files are bounded
/// by the number of members.
pub(crate) type Holder = Option<u32>;

/// Bytes held by open files. Each file is charged before it allocates.
#[derive(Debug, Default)]
pub(crate) struct Account {
    sum: usize,
    of: BTreeMap<usize, (Holder, usize)>,
    /// Files of each client, by size.
    by_size: BTreeSet<(u32, usize, usize)>,
    by_client: BTreeMap<u32, usize>,
    /// Clients, by what they hold.
    by_sum: BTreeSet<(usize, u32)>,
}

impl Account {
    /// Total bytes of all files.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Begins to account a file to a client.
    pub(crate) fn begin(&mut self, open: usize, holder: Holder) {
        let before = self.of.insert(open, (holder, 0));
        assert_eq!(before, None, "a file is opened once");
    }

    /// Ends the accounting of a file.
    pub(crate) fn end(&mut self, open: usize) {
        self.set(open, 0);
        let before = self.of.remove(&open);
        assert!(before.is_some(), "a file is closed once");
    }

    /// Returns the client of a file, and the bytes that the file holds.
    pub(crate) fn of(&self, open: usize) -> (Holder, usize) {
        *self.of.get(&open).expect("it is open")
    }

    /// Returns the bytes that a client holds.
    pub(crate) fn of_client(&self, holder: Holder) -> usize {
        holder.and_then(|client| self.by_client.get(&client)).copied().unwrap_or(0)
    }

    /// Sets the bytes held by a file.
    pub(crate) fn set(&mut self, open: usize, bytes: usize) {
        let entry = self.of.get_mut(&open).expect("it is open");
        let before = std::mem::replace(&mut entry.1, bytes);
        self.sum = self.sum - before + bytes;
        let Some(client) = entry.0 else { return };
        self.by_size.remove(&(client, before, open));
        if bytes > 0 {
            self.by_size.insert((client, bytes, open));
        }
        let sum = self.by_client.entry(client).or_default();
        self.by_sum.remove(&(*sum, client));
        *sum = *sum - before + bytes;
        match *sum {
            0 => _ = self.by_client.remove(&client),
            sum => _ = self.by_sum.insert((sum, client)),
        }
    }

    /// Returns the client that holds most, with its bytes.
    pub(crate) fn greediest(&self) -> Option<(usize, u32)> {
        self.by_sum.last().copied()
    }

    /// Returns the largest file of a client: its bytes, then the file.
    pub(crate) fn largest_of(&self, client: u32) -> Option<(usize, usize)> {
        let files = self.by_size.range((client, 0, 0)..=(client, usize::MAX, usize::MAX));
        files.last().map(|(_, bytes, open)| (*bytes, *open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_and_the_largest_are_known() {
        let mut account = Account::default();
        (1..=3).for_each(|open| account.begin(open, Some(7)));
        account.begin(4, Some(8));
        account.begin(5, None);
        for (open, bytes) in [(1, 10), (2, 30), (3, 20), (2, 5), (3, 0), (4, 12), (5, 100)] {
            account.set(open, bytes);
        }
        assert_eq!((account.sum(), account.of_client(Some(7))), (127, 15));
        assert_eq!((account.greediest(), account.largest_of(7)), (Some((15, 7)), Some((10, 1))));
        assert_eq!((account.of(2), account.of(3)), ((Some(7), 5), (Some(7), 0)));
        assert_eq!((account.of_client(None), account.of(5).1), (0, 100));
        account.end(1);
        assert_eq!(account.greediest(), Some((12, 8)));
        (2..=5).for_each(|open| account.end(open));
        assert_eq!((account.sum(), account.greediest(), account.largest_of(7)), (0, None, None));
    }
}
