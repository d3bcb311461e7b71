//! Calls on a volume: in a transaction, on a snapshot, or on their own.

use crate::{Error, Tree};
use engine::{Call, Entry, Reply, Scan, ScanBatch};

/// Size of a scan's first batch, in entries, small for callers that need only a few. It doubles
/// with each batch until the cost per call is negligible.
const BATCH_MIN: usize = 32;
const BATCH_MAX: usize = 2048;

/// Target of calls: a [`crate::Volume`] or a [`crate::Local`] (each call on its own), a
/// [`crate::Transaction`], a [`crate::Snapshot`].
///
/// The provided methods are shorthands for those of [`Tree`].
pub trait Ask {
    /// Performs one call and returns its reply.
    ///
    /// # Errors
    /// Those of the call; `Closed`.
    fn call(&self, call: Call) -> Result<Reply, Error>;

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(self.call(tree.0.get(key))?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn put(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.call(tree.0.put(key, value)).map(drop)
    }

    /// Removes a key, if present.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn delete(&self, tree: Tree, key: &[u8]) -> Result<(), Error> {
        self.call(tree.0.delete(key)).map(drop)
    }

    /// Drops the table of this name, of any kind; returns whether it existed. Waits for
    /// transactions that use it; later uses are refused (`Dropped`). Its space is freed gradually.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn drop_table(&self, name: &str) -> Result<bool, Error> {
        expect_found(self.call(Call::DropTable { name: name.as_bytes().to_vec() })?)
    }

    /// Returns an iterator over the entries from a key on and before another, in order.
    fn scan(&self, tree: Tree, from: &[u8], to: Option<&[u8]>) -> Entries<'_, Self>
    where
        Self: Sized,
    {
        tree.range(self, from, to)
    }
}

/// A key and its value, borrowed.
pub type Shown<'a> = (&'a [u8], &'a [u8]);

/// Entries of a scan, fetched in batches of some hundreds.
///
/// In a transaction and on a snapshot they are a consistent view; otherwise each batch is.
/// [`Entries::advance`] borrows entries without a copy; as an iterator each is a copy.
#[derive(Debug)]
pub struct Entries<'a, A: Ask> {
    on: &'a A,
    scan: Scan,
    batch: ScanBatch,
    /// Size of the next batch, in entries.
    next: usize,
    over: bool,
}

impl<'a, A: Ask> Entries<'a, A> {
    pub(crate) fn new(on: &'a A, scan: Scan) -> Entries<'a, A> {
        Entries { on, scan, batch: ScanBatch::default(), next: BATCH_MIN, over: false }
    }

    /// Reverses the order. Must be called before the first entry is fetched.
    #[must_use]
    pub fn backwards(mut self) -> Entries<'a, A> {
        self.scan = self.scan.reversed();
        self
    }

    /// Returns the next entry without copying it.
    ///
    /// ```text
    /// let mut entries = tree.iter(&volume);
    /// while let Some((key, value)) = entries.advance()? { ... }
    /// ```
    ///
    /// # Errors
    /// Those of [`Ask::call`], after which there are no more entries.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Shown<'_>>, Error> {
        if self.batch.is_empty() {
            self.fetch()?;
        }
        Ok(self.batch.advance())
    }

    fn fetch(&mut self) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        self.over = true;
        self.scan.limit = self.next;
        self.next = (self.next * 2).min(BATCH_MAX);
        let Reply::Entries { entries, more } = self.on.call(Call::Scan(self.scan.clone()))? else {
            unreachable!("a scan gives entries")
        };
        if let Some((last, _)) = entries.last().filter(|_| more) {
            self.scan.go_on_after(last);
            self.over = false;
        }
        self.batch = entries;
        Ok(())
    }
}

impl<A: Ask> Iterator for Entries<'_, A> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        let entry = self.advance().transpose()?;
        Some(entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

pub(crate) fn expect_value(reply: Reply) -> Result<Option<Vec<u8>>, Error> {
    let Reply::Value(value) = reply else { unreachable!("{reply:?} is no value") };
    Ok(value)
}

pub(crate) fn expect_found(reply: Reply) -> Result<bool, Error> {
    let Reply::Found(found) = reply else { unreachable!("{reply:?} does not say what was there") };
    Ok(found)
}
