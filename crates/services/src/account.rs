//! Memory accounting of open files, by file and by client.

use std::collections::{BTreeMap, BTreeSet};

/// A client with open files: the caller of their requests. Peers are none: their files are bounded
/// by the number of members.
pub(crate) type Holder = Option<u32>;

/// Maximum number of files whose order is out of date: bringing it up to date takes a fraction of a
/// millisecond.
const STALE_MAX: usize = 1024;

/// Bytes held by open files. Each file is charged before it allocates.
///
/// The order by size is needed when memory is short only, and is brought up to date then.
#[derive(Debug, Default)]
pub(crate) struct Account {
    sum: usize,
    of: BTreeMap<usize, Charge>,
    by_client: BTreeMap<u32, Sum>,
    /// Files that were charged since the order was up to date.
    stale: BTreeSet<usize>,
    /// Files of each client, by size.
    by_size: BTreeSet<(u32, usize, usize)>,
    /// Clients, by what they hold.
    by_sum: BTreeSet<(usize, u32)>,
}

/// Bytes held by a file.
#[derive(Debug)]
struct Charge {
    holder: Holder,
    bytes: usize,
    /// Bytes by which it is ordered.
    ordered: usize,
}

/// Bytes held by a client, and those by which it is ordered.
#[derive(Debug, Default)]
struct Sum {
    bytes: usize,
    ordered: usize,
}

impl Account {
    /// Total bytes of all files.
    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// Begins to account a file to a client.
    pub(crate) fn begin(&mut self, open: usize, holder: Holder) {
        let charge = Charge { holder, bytes: 0, ordered: 0 };
        let before = self.of.insert(open, charge);
        assert!(before.is_none(), "a file is opened once");
    }

    /// Ends the accounting of a file.
    pub(crate) fn end(&mut self, open: usize) {
        self.set(open, 0);
        self.order(open);
        self.stale.remove(&open);
        let before = self.of.remove(&open);
        assert!(before.is_some(), "a file is closed once");
    }

    /// Returns the client of a file, and the bytes that the file holds.
    pub(crate) fn of(&self, open: usize) -> (Holder, usize) {
        let charge = self.of.get(&open).expect("it is open");
        (charge.holder, charge.bytes)
    }

    /// Returns the bytes that a client holds.
    pub(crate) fn of_client(&self, holder: Holder) -> usize {
        holder.and_then(|client| self.by_client.get(&client)).map_or(0, |sum| sum.bytes)
    }

    /// Sets the bytes held by a file.
    pub(crate) fn set(&mut self, open: usize, bytes: usize) {
        let charge = self.of.get_mut(&open).expect("it is open");
        let before = std::mem::replace(&mut charge.bytes, bytes);
        if bytes == before {
            return;
        }
        self.sum = self.sum - before + bytes;
        let Some(client) = charge.holder else { return };
        self.stale.insert(open);
        let sum = self.by_client.entry(client).or_default();
        sum.bytes = sum.bytes - before + bytes;
        if self.stale.len() >= STALE_MAX {
            self.order_all();
        }
    }

    /// Brings the order of a file and its client up to date.
    fn order(&mut self, open: usize) {
        let charge = self.of.get_mut(&open).expect("it is open");
        let Charge { holder: Some(client), bytes, ordered, .. } = charge else { return };
        if bytes != ordered {
            self.by_size.remove(&(*client, *ordered, open));
            if *bytes > 0 {
                self.by_size.insert((*client, *bytes, open));
            }
            *ordered = *bytes;
        }
        let Some(sum) = self.by_client.get_mut(client) else { return };
        if sum.bytes != sum.ordered {
            self.by_sum.remove(&(sum.ordered, *client));
            if sum.bytes > 0 {
                self.by_sum.insert((sum.bytes, *client));
            }
            sum.ordered = sum.bytes;
        }
        if sum.bytes == 0 {
            self.by_client.remove(client);
        }
    }

    fn order_all(&mut self) {
        for open in std::mem::take(&mut self.stale) {
            self.order(open);
        }
    }

    /// Returns the client that holds most, with its bytes.
    pub(crate) fn greediest(&mut self) -> Option<(usize, u32)> {
        self.order_all();
        self.by_sum.last().copied()
    }

    /// Returns the largest file of a client: its bytes, then the file.
    pub(crate) fn largest_of(&mut self, client: u32) -> Option<(usize, usize)> {
        self.order_all();
        let files = self.by_size.range((client, 0, 0)..=(client, usize::MAX, usize::MAX));
        files.last().map(|(_, bytes, open)| (*bytes, *open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::seeded;

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

    #[test]
    fn the_order_is_that_of_all_files() {
        let mut rng = seeded(7);
        let (mut account, mut files) = (Account::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let open = rng.usize(0..12);
            match (rng.usize(0..8), files.get_mut(&open)) {
                (_, None) => {
                    let holder = [None, Some(1), Some(2), Some(3)][rng.usize(0..4)];
                    account.begin(open, holder);
                    files.insert(open, (holder, 0));
                }
                (0, Some(_)) => {
                    account.end(open);
                    files.remove(&open);
                }
                (1, Some(_)) => {
                    let of = |client| files.iter().filter(move |(_, file)| file.0 == Some(client));
                    let sum = |client| of(client).map(|(_, file)| file.1).sum::<usize>();
                    let sums = (1..=3).map(|client| (sum(client), client)).filter(|it| it.0 > 0);
                    assert_eq!(account.greediest(), sums.max());
                    let sizes = of(2).map(|(open, file)| (file.1, *open)).filter(|it| it.0 > 0);
                    assert_eq!(account.largest_of(2), sizes.max());
                }
                (_, Some(file)) => {
                    file.1 = rng.usize(0..5);
                    account.set(open, file.1);
                }
            }
        }
        files.keys().for_each(|open| account.end(*open));
        let Account { of, by_client, stale, by_size, by_sum, .. } = &account;
        assert!(of.is_empty() && by_client.is_empty() && stale.is_empty());
        assert!(by_size.is_empty() && by_sum.is_empty());
    }
}
