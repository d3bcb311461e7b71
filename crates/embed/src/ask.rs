//! What can be asked for: in a transaction, of a snapshot, or by itself.

use crate::{Error, Tree};
use store::transaction::{Call, Entry, Reply, Scan, Stretch};

/// How many entries of a scan come at first, for who wants but a few; then each time twice as
/// many, up to where the cost of asking does not count any more.
const BATCH_MIN: usize = 32;
const BATCH_MAX: usize = 2048;

/// Somewhere calls are done: a [`crate::Volume`] or a [`crate::Local`] (each call by itself), a
/// [`crate::Transaction`], a [`crate::Snapshot`].
///
/// The methods with a body are short forms for what [`Tree`] does.
pub trait Ask {
    /// Does one thing and gives the answer.
    ///
    /// # Errors
    /// As the call's; `Closed`.
    fn call(&self, call: Call) -> Result<Reply, Error>;

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(self.call(tree.0.get(key))?)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn put(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.call(tree.0.put(key, value)).map(drop)
    }

    /// Takes a key away, if it is there.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn delete(&self, tree: Tree, key: &[u8]) -> Result<(), Error> {
        self.call(tree.0.delete(key)).map(drop)
    }

    /// Drops the table of that name, of whatever kind; whether there was one. Waits for who uses
    /// it in a transaction; who uses it later is refused (`Dropped`). What it has is freed by and
    /// by.
    ///
    /// # Errors
    /// As [`Ask::call`].
    fn drop_table(&self, name: &str) -> Result<bool, Error> {
        expect_found(self.call(Call::DropTable { name: name.as_bytes().to_vec() })?)
    }

    /// Entries from a key on and before another, in order.
    fn scan(&self, tree: Tree, from: &[u8], to: Option<&[u8]>) -> Entries<'_, Self>
    where
        Self: Sized,
    {
        tree.range(self, from, to)
    }
}

/// A key and its value, where they stand in memory.
pub type Shown<'a> = (&'a [u8], &'a [u8]);

/// Entries of a scan, fetched some hundreds at a time.
///
/// In a transaction and of a snapshot they are all of the same moment; else each batch is of its
/// own. [`Entries::advance`] shows them where they are; as an iterator each is a copy.
#[derive(Debug)]
pub struct Entries<'a, A: Ask> {
    on: &'a A,
    scan: Scan,
    batch: Stretch,
    /// How many come with the next batch.
    next: usize,
    over: bool,
}

impl<'a, A: Ask> Entries<'a, A> {
    pub(crate) fn new(on: &'a A, scan: Scan) -> Entries<'a, A> {
        Entries { on, scan, batch: Stretch::default(), next: BATCH_MIN, over: false }
    }

    /// The same, the last one first. To be said before the first is taken.
    #[must_use]
    pub fn backwards(mut self) -> Entries<'a, A> {
        self.scan = self.scan.reversed();
        self
    }

    /// The next entry; nothing is copied.
    ///
    /// ```text
    /// let mut entries = tree.iter(&volume);
    /// while let Some((key, value)) = entries.advance()? { ... }
    /// ```
    ///
    /// # Errors
    /// As [`Ask::call`]; then there are no more.
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
