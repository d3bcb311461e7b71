//! Batches: whole directories and small files, for traversals of a tree.
//!
//! Missing pages are fetched for the whole batch at once. A plan is made in one go, before other
//! requests have a turn, so it is kept small: a reply may have fewer directories than would fit.

use super::NodeRef;
use super::data::{self, Bounds};
use super::list::{self, End};
use super::permission::{Credentials, READ, SEARCH};
use super::plan::{Answer, Plan, Planned, Planner};
use super::read_view::{ReadView, Stop};
use super::record::Inode;
use crate::request::{NodeId, Reply};
use base::op::{Content, Entry, Listing};
use base::{Error, Kind, Name};
use std::ops::ControlFlow::{self, Break, Continue};
use store::{Change, Missing, View};

/// Size of the listings, in bytes as protocols count, after which no further directory is listed;
/// and the size of each directory besides its entries.
const LISTED: usize = 32 << 10;
const LISTING: usize = 128;

/// Maximum depth beneath each requested directory.
const DEPTH_MAX: usize = 24;

/// Maximum number of places with missing pages that are gathered before a fetch.
const MISSING_MAX: usize = 64;

/// A traversal of a tree.
struct BatchWalk<'a> {
    planner: Planner<'a>,
    read_view: ReadView<'a>,
    view: View,
    start: u64,
    /// Bytes left, and bytes of the reply so far.
    left: usize,
    done: usize,
    /// Pages to fetch first, and the number of places that need them.
    missing: (Option<Missing>, usize),
    /// Changes of access times.
    touched: Vec<Change>,
}

impl Planner<'_> {
    /// Lists directories and those beneath them.
    pub(super) fn list_all(&self, from: NodeId, paths: &[Vec<u8>], bytes_max: u32) -> Planned {
        let mut batch_walk = self.batch_walk(from, bytes_max)?;
        let mut listings = Vec::new();
        for path in paths {
            let found = batch_walk.find(path);
            if let Some((ino, dir)) = batch_walk.settle(found)
                && batch_walk.list(ino, &dir, path, DEPTH_MAX, &mut listings).is_break()
            {
                break;
            }
        }
        batch_walk.end(Reply::Listings(listings, 0))
    }

    /// Reads small plain files as a whole.
    pub(super) fn read_all(
        &self,
        from: NodeId,
        paths: &[Vec<u8>],
        size_max: u32,
        bytes_max: u32,
    ) -> Planned {
        let mut batch_walk = self.batch_walk(from, bytes_max)?;
        let mut contents = Vec::new();
        for path in paths {
            let found = batch_walk.find(path);
            if let Some((ino, file)) = batch_walk.settle(found)
                && file.size <= size_max.into()
                && batch_walk.read(ino, &file, path, &mut contents).is_break()
            {
                break;
            }
        }
        batch_walk.end(Reply::Contents(contents, 0))
    }

    fn batch_walk(&self, from: NodeId, bytes_max: u32) -> Result<BatchWalk<'_>, Stop> {
        let NodeRef::File(view, start) = self.volume.node_ref(from) else {
            return Err(Error::Unsupported.into());
        };
        let (read_view, left) = (self.read_view(view)?, bytes_max as usize);
        let (missing, touched) = ((None, 0), Vec::new());
        Ok(BatchWalk { planner: *self, read_view, view, start, left, done: 0, missing, touched })
    }
}

impl BatchWalk<'_> {
    fn who(&self) -> Credentials<'_> {
        self.planner.who
    }

    /// Returns the file at a path, which leads through directories only.
    fn find(&self, path: &[u8]) -> Result<(u64, Inode), Stop> {
        let (mut ino, mut inode) = (self.start, self.read_view.inode(self.start)?);
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let name = Name::new(part).ok().filter(Name::plain).ok_or(Error::Invalid)?;
            if !inode.is_directory() {
                return Err(Error::NotDirectory.into());
            }
            self.who().may(&inode, SEARCH)?;
            ino = self.read_view.lookup(ino, &name)?.ok_or(Error::NotFound)?.ino;
            inode = self.read_view.inode(ino)?;
        }
        Ok((ino, inode))
    }

    /// Unwraps a result: missing pages are noted for the fetch, and failures are left out of the
    /// reply.
    fn settle<T>(&mut self, found: Result<T, Stop>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(Stop::Missing(more)) => {
                self.lack(more);
                None
            }
            Err(Stop::Failed(_) | Stop::Trimming(_) | Stop::Appending(_)) => None,
        }
    }

    fn lack(&mut self, more: Missing) {
        let (missing, count) = &mut self.missing;
        *missing = Some(match missing.take() {
            Some(missing) => missing.merge(more),
            None => more,
        });
        *count += 1;
    }

    /// Returns whether enough pages are missing to fetch them first.
    fn lacks_enough(&self) -> bool {
        self.missing.1 >= MISSING_MAX
    }

    /// Lists a directory and those beneath it, as many as fit.
    fn list(
        &mut self,
        ino: u64,
        dir: &Inode,
        path: &[u8],
        depth: usize,
        listings: &mut Vec<Listing>,
    ) -> ControlFlow<()> {
        if self.left < list::OVERHEAD || self.done >= LISTED || self.lacks_enough() {
            return Break(());
        }
        if !dir.is_directory() || self.who().may(dir, READ).is_err() {
            return Continue(());
        }
        let (entries, end) = list::scan(&self.read_view, ino, 0, self.left - list::OVERHEAD);
        match end {
            End::All => {}
            End::Full => return Break(()),
            End::Damaged => return Continue(()),
            End::Missing(missing) => {
                self.lack(missing);
                return Continue(());
            }
        }
        let bytes = list::OVERHEAD + bytes(&entries);
        self.left = self.left.saturating_sub(bytes);
        self.done += bytes + LISTING;
        self.touched.extend(self.planner.note_access(self.view, ino, dir));
        let below = entries.iter().filter(|entry| entry.kind == Kind::Directory);
        let below: Vec<(u64, Name)> = below.map(|it| (it.inode, it.name.clone())).collect();
        listings.push(Listing { path: path.to_vec(), entries });
        if depth == 0 || self.who().may(dir, SEARCH).is_err() {
            return Continue(());
        }
        for (ino, name) in below {
            let found = self.read_view.inode(ino);
            if let Some(dir) = self.settle(found) {
                let name = name.as_bytes();
                let path = if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') };
                self.list(ino, &dir, &path, depth - 1, listings)?;
            }
        }
        Continue(())
    }

    /// Reads a file, if it fits.
    fn read(
        &mut self,
        ino: u64,
        file: &Inode,
        path: &[u8],
        contents: &mut Vec<Content>,
    ) -> ControlFlow<()> {
        if file.kind != Kind::File || self.who().may(file, READ).is_err() {
            return Continue(());
        }
        let Some(left) = self.left.checked_sub(file.size as usize) else { return Break(()) };
        if self.lacks_enough() {
            return Break(());
        }
        self.left = left;
        let bounds = Bounds { offset: 0, count: file.size as usize, headroom: 0 };
        let data = data::copied(&self.read_view, ino, bounds);
        if let Some(data) = self.settle(data) {
            let stat = self.read_view.stat(ino, file);
            contents.push(Content { path: path.to_vec(), stat, data });
            self.touched.extend(self.planner.note_access(self.view, ino, file));
        }
        Continue(())
    }

    /// Returns the reply, unless pages must be fetched first.
    fn end(self, reply: Reply) -> Planned {
        match self.missing.0 {
            Some(missing) => Err(missing.into()),
            None => Ok(Plan::Answer(Answer::Reply(reply), self.touched)),
        }
    }
}

/// Returns the size of entries as protocols count, bytes.
fn bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.name.as_bytes().len() + list::OVERHEAD).sum()
}
