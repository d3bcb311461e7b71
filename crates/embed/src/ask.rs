//! What can be asked for: in a transaction, of a snapshot, or by itself.

use crate::{Error, Tree};
use std::vec;
use store::transaction::{Call, Entry, Reply, Scan};

/// How many entries of a scan come at once.
const BATCH: usize = 256;

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

    /// Entries from a key on and before another, in order.
    fn scan(&self, tree: Tree, from: &[u8], to: Option<&[u8]>) -> Entries<'_, Self>
    where
        Self: Sized,
    {
        tree.range(self, from, to)
    }
}

/// Entries of a scan, fetched a few hundred at a time.
///
/// In a transaction and of a snapshot they are all of the same moment; else each batch is of its
/// own.
#[derive(Debug)]
pub struct Entries<'a, A: Ask> {
    on: &'a A,
    scan: Scan,
    batch: vec::IntoIter<Entry>,
    /// Entries that may still be given out.
    left: usize,
    over: bool,
}

impl<'a, A: Ask> Entries<'a, A> {
    pub(crate) fn new(on: &'a A, scan: Scan) -> Entries<'a, A> {
        let left = scan.limit;
        Entries { on, scan, batch: Vec::new().into_iter(), left, over: false }
    }

    /// The same, the last one first. To be said before the first is taken.
    #[must_use]
    pub fn backwards(mut self) -> Entries<'a, A> {
        self.scan = self.scan.reversed();
        self
    }

    fn fetch(&mut self) -> Result<(), Error> {
        self.scan.limit = BATCH.min(self.left);
        let Reply::Entries { entries, more } = self.on.call(Call::Scan(self.scan.clone()))? else {
            unreachable!("a scan gives entries")
        };
        self.over = !more;
        if let Some((last, _)) = entries.last() {
            self.scan = self.scan.clone().after(last);
        }
        self.batch = entries.into_iter();
        Ok(())
    }
}

impl<A: Ask> Iterator for Entries<'_, A> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        loop {
            if let Some(entry) = self.batch.next() {
                self.left -= 1;
                return Some(Ok(entry));
            }
            if self.over || self.left == 0 {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.over = true;
                return Some(Err(error));
            }
        }
    }
}

pub(crate) fn expect_value(reply: Reply) -> Result<Option<Vec<u8>>, Error> {
    let Reply::Value(value) = reply else { unreachable!("{reply:?} is no value") };
    Ok(value)
}
