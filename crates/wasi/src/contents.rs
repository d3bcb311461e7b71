//! Prefetch cache of small files, each as a whole.
//!
//! Programs that search a tree open one file after the other, in directory order or by name. After
//! that pattern is detected, the next files are read together ([`tree::Ask::ReadAll`]), and more
//! each time as long as prefetched files are used. Prefetched data is valid for a moment, like
//! everything in the cache.

use crate::listings::{Listings, Seen};
use base::op::Content;
use base::{Buf, Stat};
use std::collections::VecDeque;
use std::mem;

/// Largest file that is prefetched, bytes; most bytes of a batch; least and most files of a batch.
const SIZE_MAX: u32 = 256 << 10;
const BYTES_MAX: u32 = 1 << 20;
const FILES: (usize, usize) = (4, 64);

/// A batch of files to be read together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Paths from the guest's root.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Size of the largest file to include, bytes.
    pub(crate) size_max: u32,
    /// Maximum size of the batch, bytes.
    pub(crate) bytes_max: u32,
}

/// A file, or `None` if the batch left it out.
type Whole = Option<(Stat, Buf)>;

/// Prefetched files.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Files in the order in which they are expected to be opened.
    files: VecDeque<(Vec<u8>, Whole, Seen)>,
    /// Size of the next batch, files; zero while no sequential pattern is detected.
    many: usize,
    /// Path of the file that was opened last in the expected order.
    last: Vec<u8>,
    /// Whether the last open was out of order.
    is_astray: bool,
    /// Whether the tree does not support batch reads.
    pub(crate) unsupported: bool,
}

impl Contents {
    /// Takes a prefetched file and drops those that were expected before it.
    ///
    /// A single open out of order drops nothing: programs look into a file of their own in each
    /// directory, such as `.gitignore`, before the others.
    pub(crate) fn take(
        &mut self,
        path: &[u8],
        now: Seen,
        listings: &mut Listings,
    ) -> Option<(Stat, Buf, Seen)> {
        let place = self.files.iter().position(|(other, ..)| other == path);
        let is_first = place == Some(0);
        let is_astray = self.many > 0 && !is_first && !listings.is_next(&self.last, path);
        if is_astray && !mem::replace(&mut self.is_astray, is_astray) {
            let (_, whole, seen) = self.files.remove(place?)?;
            let (stat, data) = whole.filter(|_| seen.is_fresh(now))?;
            return Some((stat, data, seen));
        }
        self.is_astray = is_astray;
        let last = mem::replace(&mut self.last, path.to_vec());
        match place {
            Some(place) if place > self.many / 2 => self.many /= 2,
            Some(_) => self.many = (self.many * 2).clamp(FILES.0, FILES.1),
            None if listings.is_next(&last, path) => {
                // The prefetched ones are from where it was expected to go.
                self.files.clear();
                self.many = self.many.max(FILES.0);
            }
            None => (self.files, self.many) = (VecDeque::new(), 0),
        }
        let (_, whole, seen) = self.files.drain(..=place?).next_back()?;
        let (stat, data) = whole.filter(|_| seen.is_fresh(now))?;
        Some((stat, data, seen))
    }

    /// Returns the batch to prefetch after this file was opened.
    pub(crate) fn foreseen(&mut self, path: &[u8], listings: &mut Listings) -> Option<Batch> {
        if self.unsupported || self.many == 0 || self.files.len() > self.many {
            return None;
        }
        let from = self.files.back().map_or(path, |(path, ..)| path);
        let paths = listings.files_behind(from, self.many);
        let batch = Batch { paths, size_max: SIZE_MAX, bytes_max: BYTES_MAX };
        (!batch.paths.is_empty()).then_some(batch)
    }

    /// Stores the files of a completed batch.
    pub(crate) fn add(&mut self, requested: Batch, read: Vec<Content>, seen: Seen) {
        let bytes: u64 = read.iter().map(|content| content.data.len() as u64).sum();
        let mut read = read.into_iter().peekable();
        for path in requested.paths {
            // Files after the last one that fitted were not examined.
            if read.peek().is_none()
                && bytes + u64::from(requested.size_max) > u64::from(requested.bytes_max)
            {
                break;
            }
            let whole = read.next_if(|content| content.path == path);
            let whole = whole.map(|content| (content.stat, content.data));
            self.files.push_back((path, whole, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::op::{Entry, Listing};
    use base::{Kind, Name};

    /// A directory of plain files, just listed.
    fn listed(names: &[String]) -> Listings {
        let entry = |name: &String| Entry {
            cookie: 1,
            inode: 1,
            device: None,
            kind: Kind::File,
            name: Name::new(name.as_bytes()).expect("a name"),
            stat: None,
            handle: None,
        };
        let mut listings = Listings::default();
        let entries = names.iter().map(entry).collect();
        listings.add(vec![Listing { path: b"d".to_vec(), entries }], Seen::default());
        listings
    }

    fn content(path: &[u8], len: usize) -> Content {
        let data = Buf::from(&vec![7; len][..]);
        Content { path: path.to_vec(), stat: Stat::default(), data }
    }

    #[test]
    fn sequential_opens_find_prefetched_files() {
        let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
        let (mut listings, mut contents) = (listed(&names), Contents::default());
        let (mut batches, mut hits) = (Vec::new(), 0);
        for name in &names {
            let path = [b"d/", name.as_bytes()].concat();
            hits += usize::from(contents.take(&path, Seen::default(), &mut listings).is_some());
            if let Some(batch) = contents.foreseen(&path, &mut listings) {
                let read = batch.paths.iter().map(|path| content(path, 10)).collect();
                batches.push(batch.paths.len());
                contents.add(batch, read, Seen::default());
            }
        }
        assert_eq!(hits, 298, "all but the first two");
        assert_eq!(batches[..5], [4, 8, 16, 32, 64]);
    }

    #[test]
    fn a_file_out_of_order_does_not_end_it_and_two_do() {
        let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
        let (mut listings, mut contents) = (listed(&names), Contents::default());
        let mut open = |number: usize| {
            let path = format!("d/{number:03}").into_bytes();
            let taken = contents.take(&path, Seen::default(), &mut listings).is_some();
            if let Some(batch) = contents.foreseen(&path, &mut listings) {
                let read = batch.paths.iter().map(|path| content(path, 10)).collect();
                contents.add(batch, read, Seen::default());
            }
            taken
        };
        assert_eq!((0..20).filter(|number| open(*number)).count(), 18);
        assert!(open(23) && open(20) && open(21) && open(22), "those before it are still there");
        assert!(!open(299) && open(24) && open(25), "the others are, too");
        assert!(!open(299) && !open(298) && !open(26), "it goes elsewhere");
    }

    #[test]
    fn files_of_a_place_that_was_not_reached_are_dropped() {
        let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
        let (mut listings, mut contents) = (listed(&names), Contents::default());
        contents.many = 4;
        contents.last = b"d/100".to_vec();
        let elsewhere: Vec<Vec<u8>> = (0..9).map(|number| vec![b'e', b'/', number]).collect();
        let read = elsewhere.iter().map(|path| content(path, 10)).collect();
        let requested = Batch { paths: elsewhere, size_max: SIZE_MAX, bytes_max: BYTES_MAX };
        contents.add(requested, read, Seen::default());
        assert!(contents.take(b"d/101", Seen::default(), &mut listings).is_none());
        let batch = contents.foreseen(b"d/101", &mut listings).expect("it goes on");
        assert_eq!((batch.paths.len(), &batch.paths[0][..]), (4, &b"d/102"[..]));
    }

    #[test]
    fn random_opens_are_not_prefetched() {
        let names: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
        let (mut listings, mut contents) = (listed(&names), Contents::default());
        for number in [7, 3, 250, 9, 100] {
            let path = format!("d/{number:03}").into_bytes();
            assert!(contents.take(&path, Seen::default(), &mut listings).is_none());
            assert_eq!(contents.foreseen(&path, &mut listings), None);
        }
    }

    #[test]
    fn files_left_out_of_a_batch_are_not_cached() {
        let (mut contents, mut none) =
            (Contents { many: 4, ..Contents::default() }, Listings::default());
        let requested = [b"a", b"b", b"c", b"d"].map(|path| path.to_vec()).to_vec();
        let large = (BYTES_MAX - SIZE_MAX) as usize + 1;
        let requested = Batch { paths: requested, size_max: SIZE_MAX, bytes_max: BYTES_MAX };
        contents.add(requested, vec![content(b"b", 5), content(b"c", large)], Seen::default());
        assert_eq!(contents.files.len(), 3, "nobody has looked at the last one");
        assert!(contents.take(b"a", Seen::default(), &mut none).is_none());
        assert_eq!(contents.many, 8, "it was expected all the same");
        assert!(contents.take(b"b", Seen { changes: 1, at: 0 }, &mut none).is_none(), "it is old");
        assert!(contents.take(b"c", Seen::default(), &mut none).is_some());
    }
}
