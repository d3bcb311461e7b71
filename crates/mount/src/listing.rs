//! Entries of an open directory, read ahead from the server.
//!
//! The kernel may ask again for entries that it has been given, so the last two batches stay.
//! Offsets are the server's cookies; `.` and `..` are made here and have offsets of their own.

use crate::attr::Attr;
use wire::ninep::{Qid, Reader, Stat, dirents};

/// Offsets behind `.` and `..`: no file system has used them as cookies. The largest number is the
/// end of a directory in ext4.
pub(crate) const AFTER_DOT: u64 = i64::MAX as u64 - 3;
pub(crate) const AFTER_DOTS: u64 = i64::MAX as u64 - 2;

/// Maximum length of a name in the kernel's protocol, in bytes.
const NAME_MAX: usize = 1024;

/// Directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) qid: Qid,
    /// Offset of the next entry.
    pub(crate) cookie: u64,
    /// `d_type`, 0 if unknown.
    pub(crate) kind: u8,
    /// Name; empty if the entry is not shown.
    pub(crate) name: Vec<u8>,
    /// Attributes, in 9P2000 and if the directory was sent ahead.
    pub(crate) attr: Option<Attr>,
}

impl Item {
    /// Returns the entry, without its name if that is not shown: the kernel refuses names with a
    /// slash, and the whole reply with them. Its cookie can be looked for nevertheless.
    pub(crate) fn checked(mut self) -> Item {
        let bad = self.name.iter().any(|byte| [0, b'/'].contains(byte));
        if bad || self.name.len() > NAME_MAX || self.name == b"." || self.name == b".." {
            self.name = Vec::new();
        }
        self
    }
}

/// Read position of a directory, and the entries around it.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    items: Vec<Item>,
    /// Offset of the first entry.
    base: u64,
    /// Number of entries of earlier batches than the last.
    older: usize,
    /// Offset of the next batch.
    pub(crate) next: u64,
    pub(crate) is_over: bool,
}

/// Result of looking for an offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Index of the entry at the offset.
    At(usize),
    /// The next batch begins there.
    Next,
    /// It is the end.
    End,
    /// The directory must be read from there.
    Elsewhere,
}

impl Listing {
    /// Looks for the entry at an offset.
    pub(crate) fn find(&self, offset: u64) -> Found {
        if offset == self.base && !self.items.is_empty() {
            return Found::At(0);
        }
        let before = self.items.iter().rposition(|item| item.cookie == offset);
        match before {
            Some(index) if index + 1 < self.items.len() => Found::At(index + 1),
            Some(_) if self.is_over => Found::End,
            Some(_) => Found::Next,
            None if offset == self.next && offset == self.base && self.is_over => Found::End,
            None if offset == self.next => Found::Next,
            None => Found::Elsewhere,
        }
    }

    /// Starts anew at an offset.
    pub(crate) fn restart(&mut self, offset: u64) {
        *self = Listing { base: offset, next: offset, ..Listing::default() };
    }

    /// Returns the entries from an index.
    pub(crate) fn from(&self, index: usize) -> &[Item] {
        &self.items[index..]
    }

    /// Returns the index of the first shown entry from an index.
    pub(crate) fn shown_from(&self, index: usize) -> Option<usize> {
        let shown = self.items[index..].iter().position(|item| !item.name.is_empty());
        shown.map(|ahead| index + ahead)
    }

    /// Takes all entries of the directory.
    pub(crate) fn fill(&mut self, items: Vec<Item>) {
        let next = items.last().map_or(0, |item| item.cookie);
        *self = Listing { items, base: 0, older: 0, next, is_over: true };
    }

    fn begin_batch(&mut self) {
        if self.older > 0 {
            self.base = self.items[self.older - 1].cookie;
            self.items.drain(..self.older);
        }
        self.older = self.items.len();
    }

    /// Adds the data of an `Rreaddir`.
    ///
    /// # Errors
    /// Data that is no list of entries, or one that leads in a circle.
    pub(crate) fn add_linux(&mut self, data: &[u8]) -> Result<(), ()> {
        self.begin_batch();
        let before = self.next;
        for (qid, cookie, kind, name) in dirents(data).map_err(|_| ())? {
            self.next = cookie;
            self.add(Item { qid, cookie, kind, name: name.to_vec(), attr: None });
        }
        self.is_over = data.is_empty();
        if self.is_over || self.next != before { Ok(()) } else { Err(()) }
    }

    /// Adds the data of an `Rread` of a directory of 9P2000.
    ///
    /// # Errors
    /// Data that is no list of stats.
    pub(crate) fn add_plan9(&mut self, data: &[u8], owner: (u32, u32)) -> Result<(), ()> {
        self.begin_batch();
        let (mut reader, mut used) = (Reader::new(data), 0);
        while !reader.is_empty() {
            let stat = Stat::get_entry(&mut reader).map_err(|_| ())?;
            let mut bytes = Vec::new();
            stat.put_entry(&mut bytes);
            used += bytes.len() as u64;
            let attr = Attr::plan9(&stat, owner);
            let kind = crate::attr::dirent_type(stat.qid);
            let (name, cookie) = (stat.name.to_vec(), self.next + used);
            self.add(Item { qid: stat.qid, cookie, kind, name, attr: Some(attr) });
        }
        self.next += data.len() as u64;
        self.is_over = data.is_empty();
        Ok(())
    }

    fn add(&mut self, item: Item) {
        self.items.push(item.checked());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ninep::put_dirent;

    fn batch(cookies: &[u64]) -> Vec<u8> {
        let mut data = Vec::new();
        for cookie in cookies {
            let qid = Qid { kind: 0, version: 0, path: *cookie };
            put_dirent(qid, *cookie, 8, format!("f{cookie}").as_bytes(), &mut data);
        }
        data
    }

    #[test]
    fn offsets_of_the_last_two_batches_are_found() {
        let mut listing = Listing::default();
        assert_eq!(listing.find(0), Found::Next);
        listing.add_linux(&batch(&[5, 9])).unwrap();
        assert_eq!((listing.find(0), listing.find(5)), (Found::At(0), Found::At(1)));
        assert_eq!(listing.find(9), Found::Next);
        listing.add_linux(&batch(&[12, 20])).unwrap();
        assert_eq!((listing.find(0), listing.find(9)), (Found::At(0), Found::At(2)));
        listing.add_linux(&batch(&[30])).unwrap();
        assert_eq!((listing.find(0), listing.find(9)), (Found::Elsewhere, Found::At(0)));
        listing.add_linux(&[]).unwrap();
        assert_eq!(listing.find(30), Found::End);
        listing.restart(9);
        assert_eq!(listing.find(9), Found::Next);
    }

    #[test]
    fn an_empty_directory_ends_and_a_circle_is_an_error() {
        let mut listing = Listing::default();
        listing.add_linux(&[]).unwrap();
        assert_eq!(listing.find(0), Found::End);
        listing.restart(7);
        assert_eq!(listing.add_linux(&batch(&[3, 7])), Err(()));
    }

    #[test]
    fn names_that_the_kernel_refuses_are_not_shown() {
        let mut listing = Listing::default();
        let mut data = Vec::new();
        for (cookie, name) in [(1, &b".."[..]), (2, b"a/b"), (3, b"good")] {
            put_dirent(Qid::default(), cookie, 8, name, &mut data);
        }
        listing.add_linux(&data).unwrap();
        let shown: Vec<_> = listing.from(0).iter().filter(|it| !it.name.is_empty()).collect();
        assert_eq!(shown.len(), 1);
        assert_eq!(listing.find(1), Found::At(1));
    }
}
