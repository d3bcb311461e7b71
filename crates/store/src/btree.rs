//! The copy-on-write B+tree: pure functions of cached pages, and changes that cannot fail.
//!
//! A change makes every page on its path *dirty*: the page leaves its block and exists in the cache
//! only, and its parent's pointer names the frame. A checkpoint assigns new blocks to dirty pages.
//! So a page on the disk is never overwritten, and a page is copied only once between checkpoints.
//!
//! A full page first balances with a neighbour before it splits, so that pages are about four
//! fifths full after random insertions. Neighbours that are not cached are left alone: a change
//! never waits.

use crate::cache::{Cache, State};
use crate::page::{self, Ptr};
use base::Block;

pub(crate) mod extent;
pub(crate) mod look;
#[cfg(test)]
mod tests;

pub(crate) use look::{find, last_at_or_before, seek, way_to};

/// Blocks that are no longer part of the present tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) at: u64,
    pub(crate) count: u32,
    pub(crate) birth: u64,
}

/// The present tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Ptr,
    /// Blocks freed by changes.
    pub(crate) freed: Vec<Freed>,
    /// Keys that were removed: their pages may be too empty.
    taken: Vec<Vec<u8>>,
}

/// A page on the path to a leaf, with the index of the child on the path.
#[derive(Clone, Copy, Debug)]
struct Step {
    frame: u32,
    child: usize,
}

/// The path to a leaf; all of it is dirty.
#[derive(Debug, Default)]
struct Path {
    inner: Vec<Step>,
    leaf: u32,
}

/// Cells of pages to be laid out anew.
type Cells = Vec<Vec<u8>>;

impl Tree {
    /// Returns an empty tree.
    pub(crate) fn empty(cache: &mut Cache) -> Tree {
        let root = new_page(cache, 0);
        Tree::at(Ptr::dirty(root))
    }

    /// Returns the tree with this root.
    pub(crate) fn at(root: Ptr) -> Tree {
        Tree { root, freed: Vec::new(), taken: Vec::new() }
    }

    /// Sets the value of a key; returns the previous one if it was an extent.
    pub(crate) fn put(
        &mut self,
        cache: &mut Cache,
        key: &[u8],
        value: &[u8],
        extent: bool,
    ) -> Option<Vec<u8>> {
        let path = self.dirty_path(cache, key);
        let leaf = cache.change(path.leaf);
        let mut replaced = None;
        let index = match page::search(leaf, key) {
            Ok(index) => {
                let (old, was_extent) = page::value(leaf, index);
                replaced = was_extent.then(|| old.to_vec());
                if old.len() == value.len() && was_extent == extent {
                    page::value_mut(leaf, index).copy_from_slice(value);
                    return replaced;
                }
                page::remove(leaf, index);
                index
            }
            Err(index) => index,
        };
        if !page::insert_entry(leaf, index, (key, value, extent)) {
            self.overflow(cache, &path, index, page::leaf_cell(key, value, extent));
        }
        replaced
    }

    /// Removes a key; returns its value, and whether that is an extent. Its page stays, even empty,
    /// until [`Tree::tidy`]: further changes of the transaction must find the planned page.
    pub(crate) fn take(&mut self, cache: &mut Cache, key: &[u8]) -> Option<(Vec<u8>, bool)> {
        // An absent key makes nothing dirty.
        find(cache, self.root, key).ok()??;
        let path = self.dirty_path(cache, key);
        let leaf = cache.change(path.leaf);
        let index = page::search(leaf, key).ok()?;
        let (value, extent) = page::value(leaf, index);
        let value = value.to_vec();
        page::remove(leaf, index);
        if page::used(leaf) < page::capacity(leaf.len()) / 3 {
            self.taken.push(key.to_vec());
        }
        Some((value, extent))
    }

    /// Removes empty pages after a transaction, and merges pages with their neighbours where one
    /// suffices.
    pub(crate) fn tidy(&mut self, cache: &mut Cache) {
        for key in std::mem::take(&mut self.taken) {
            // An earlier merge may have led the path to a page that is not cached.
            if let Some(path) = self.known_path(cache, &key) {
                self.thin_out(cache, &path, path.inner.len());
            }
        }
    }

    /// Returns the path to a key, if all of it is dirty.
    fn known_path(&self, cache: &Cache, key: &[u8]) -> Option<Path> {
        let mut frame = self.root.frame()?;
        let mut inner = Vec::with_capacity(6);
        while page::level(cache.block(frame)) > 0 {
            let child = page::child_of(cache.block(frame), key);
            inner.push(Step { frame, child });
            frame = page::child(cache.block(frame), child).frame()?;
        }
        Some(Path { inner, leaf: frame })
    }

    /// Changes one checksum of the extent at a key.
    pub(crate) fn set_sum(&mut self, cache: &mut Cache, key: &[u8], index: usize, sum: u64) {
        let path = self.dirty_path(cache, key);
        let leaf = cache.change(path.leaf);
        let cell = page::search(leaf, key).expect("the extent is there");
        extent::set_sum(page::value_mut(leaf, cell), index, sum);
    }

    /// Makes every page on the path to a key dirty. They are all cached, according to the plan.
    fn dirty_path(&mut self, cache: &mut Cache, key: &[u8]) -> Path {
        let mut frame = self.dirty_root(cache);
        let mut inner = Vec::with_capacity(6);
        loop {
            let bytes = cache.block(frame);
            if page::level(bytes) == 0 {
                return Path { inner, leaf: frame };
            }
            let child = page::child_of(bytes, key);
            let next = self.dirty_child(cache, frame, child).expect("the path was planned");
            inner.push(Step { frame, child });
            frame = next;
        }
    }

    fn dirty_root(&mut self, cache: &mut Cache) -> u32 {
        if let Some(frame) = self.root.frame() {
            return frame;
        }
        let frame = cache.page_at(self.root.at).expect("the root was planned");
        self.freed.push(Freed { at: self.root.at, count: 1, birth: self.root.birth });
        let frame = cache.make_dirty(frame);
        self.root = Ptr::dirty(frame);
        assert_eq!(cache.state(frame), State::DirtyPage, "a changed page has left its block");
        frame
    }

    /// Makes one child dirty, if it is cached.
    fn dirty_child(&mut self, cache: &mut Cache, parent: u32, child: usize) -> Option<u32> {
        let ptr = page::child(cache.block(parent), child);
        if let Some(frame) = ptr.frame() {
            return Some(frame);
        }
        let frame = cache.page_at(ptr.at)?;
        self.freed.push(Freed { at: ptr.at, count: 1, birth: ptr.birth });
        let frame = cache.make_dirty(frame);
        page::set_child(cache.change(parent), child, Ptr::dirty(frame));
        assert_eq!(cache.state(frame), State::DirtyPage, "a changed page has left its block");
        Some(frame)
    }

    /// Inserts a cell that does not fit into the leaf of a path.
    fn overflow(&mut self, cache: &mut Cache, path: &Path, index: usize, cell: Vec<u8>) {
        let leaf = cache.block(path.leaf);
        if index > 0 && index == page::count(leaf) {
            return self.append(cache, path, &cell);
        }
        let mut cells = cells_of(leaf);
        cells.insert(index, cell);
        self.spread(cache, path, path.inner.len(), cells);
    }

    /// Starts a new page with a cell behind the leaf of a path: ascending keys leave full pages
    /// behind.
    fn append(&mut self, cache: &mut Cache, path: &Path, cell: &[u8]) {
        let leaf = cache.block(path.leaf);
        let separator = separator(page::key(leaf, page::count(leaf) - 1), key_of(cell, 0));
        let frame = new_page(cache, 0);
        assert!(page::insert(cache.change(frame), 0, cell), "a page takes any cell");
        let new = page::inner_cell(&separator, Ptr::dirty(frame));
        let Some(up) = path.inner.len().checked_sub(1) else {
            let old = page::inner_cell(b"", Ptr::dirty(path.leaf));
            return self.raise_root(cache, 0, vec![old, new]);
        };
        let Step { frame: parent, child } = path.inner[up];
        if !page::insert(cache.change(parent), child + 1, &new) {
            let mut cells = cells_of(cache.block(parent));
            cells.insert(child + 1, new);
            self.spread(cache, path, up, cells);
        }
    }

    /// Lays out the cells of the page at `depth` anew: together with those of a cached neighbour,
    /// if there is one, on as few pages as leave some room.
    fn spread(&mut self, cache: &mut Cache, path: &Path, depth: usize, mut cells: Cells) {
        assert!(!cells.is_empty(), "an empty page is given up, not laid out");
        let capacity = page::capacity(cache.block_size());
        let mut first = depth.checked_sub(1).map_or(0, |up| path.inner[up].child);
        let mut group = 1;
        if let Some((neighbour, left)) = self.neighbour(cache, path, depth) {
            let mut more = cells_of(cache.block(neighbour));
            let parent = cache.block(path.inner[depth - 1].frame);
            if left {
                self.unhide_first(cache.block(neighbour), parent, first, &mut cells);
                more.append(&mut cells);
                cells = more;
                first -= 1;
            } else {
                self.unhide_first(cache.block(neighbour), parent, first + 1, &mut more);
                cells.append(&mut more);
            }
            group = 2;
        }
        let total = size(&cells);
        let pages = total.div_ceil(capacity * 15 / 16).clamp(1, group + 1);
        let parts = divide(cells, pages, capacity);
        self.lay_out(cache, path, depth, (first, group), parts);
    }

    /// Restores the key of an inner page's first cell, which is empty there, from the parent.
    fn unhide_first(&self, page: &[u8], parent: &[u8], child: usize, cells: &mut Cells) {
        if page::level(page) > 0 {
            cells[0] = page::rekeyed(&cells[0], page::key(parent, child));
        }
    }

    /// Returns a cached neighbour of the page at `depth`, made dirty, and whether it is the left
    /// one.
    fn neighbour(&mut self, cache: &mut Cache, path: &Path, depth: usize) -> Option<(u32, bool)> {
        let up = path.inner[depth.checked_sub(1)?];
        let count = page::count(cache.block(up.frame));
        let used = |cache: &Cache, child: usize| {
            let ptr = page::child(cache.block(up.frame), child);
            cache.page(ptr).map(page::used)
        };
        let left = up.child.checked_sub(1).and_then(|child| used(cache, child));
        let right = if up.child + 1 < count { used(cache, up.child + 1) } else { None };
        let is_left = match (left, right) {
            (None, None) => return None,
            (Some(left), Some(right)) => left <= right,
            (left, _) => left.is_some(),
        };
        let child = if is_left { up.child - 1 } else { up.child + 1 };
        self.dirty_child(cache, up.frame, child).map(|frame| (frame, is_left))
    }

    /// Fills pages with the parts, in place of the `old.1` children from `old.0` on; at depth zero,
    /// of the root.
    fn lay_out(
        &mut self,
        cache: &mut Cache,
        path: &Path,
        depth: usize,
        old: (usize, usize),
        parts: Vec<Cells>,
    ) {
        assert!(!parts.is_empty(), "cells are laid out on at least one page");
        let (first, group) = old;
        let level = page::level(cache.block(frame_at(path, depth)));
        let mut frames: Vec<u32> = match depth.checked_sub(1) {
            None => vec![frame_at(path, 0)],
            Some(up) => {
                let parent = cache.block(path.inner[up].frame);
                let child = |index| page::child(parent, index).frame().expect("made dirty");
                (first..first + group).map(child).collect()
            }
        };
        while frames.len() < parts.len() {
            frames.push(new_page(cache, level));
        }
        let mut cells = Vec::with_capacity(parts.len());
        let mut before: Option<Vec<u8>> = None;
        for (frame, mut part) in frames.iter().zip(parts) {
            let separator = separate(level, before.as_deref(), &mut part);
            before = part.last().map(|cell| key_of(cell, level).to_vec());
            fill(cache.change(*frame), level, &part);
            cells.push(page::inner_cell(&separator, Ptr::dirty(*frame)));
        }
        for frame in frames.drain(cells.len()..) {
            cache.drop_page(frame);
        }
        match depth.checked_sub(1) {
            None => self.raise_root(cache, level, cells),
            Some(up) => self.replace(cache, path, up, old, cells),
        }
    }

    /// Puts `cells` in place of children of the page at depth `up`.
    fn replace(
        &mut self,
        cache: &mut Cache,
        path: &Path,
        up: usize,
        (first, group): (usize, usize),
        mut cells: Cells,
    ) {
        let parent = cache.change(path.inner[up].frame);
        assert!(first + group <= page::count(parent), "the children replaced are there");
        let kept = page::key(parent, first).to_vec();
        cells[0] = page::rekeyed(&cells[0], &kept);
        let mut all = cells_of(parent);
        all.splice(first..first + group, cells);
        if size(&all) <= page::capacity(parent.len()) {
            let level = page::level(parent);
            fill(parent, level, &all);
            self.thin_out(cache, path, up);
        } else {
            self.spread(cache, path, up, all);
        }
    }

    /// Adds a new root above the pages that the root was split into.
    fn raise_root(&mut self, cache: &mut Cache, level: u8, mut cells: Cells) {
        if cells.len() > 1 {
            let root = new_page(cache, level + 1);
            cells[0] = page::rekeyed(&cells[0], b"");
            fill(cache.change(root), level + 1, &cells);
            self.root = Ptr::dirty(root);
        }
    }

    /// Removes the page at `depth` if it is empty, or merges it with a neighbour if together they
    /// fill one page well.
    fn thin_out(&mut self, cache: &mut Cache, path: &Path, depth: usize) {
        let frame = frame_at(path, depth);
        let bytes = cache.block(frame);
        let (count, used) = (page::count(bytes), page::used(bytes));
        let capacity = page::capacity(bytes.len());
        let Some(up) = depth.checked_sub(1) else {
            return self.lower_root(cache);
        };
        if count == 0 {
            self.remove_child(cache, path, up);
        } else if used < capacity / 3
            && let Some((neighbour, _)) = self.neighbour(cache, path, depth)
            && used + page::used(cache.block(neighbour)) <= capacity * 7 / 8
        {
            let cells = cells_of(cache.block(frame));
            self.spread(cache, path, depth, cells);
        }
    }

    /// Removes the child on the path, which has become empty.
    fn remove_child(&mut self, cache: &mut Cache, path: &Path, up: usize) {
        let Step { frame, child } = path.inner[up];
        let parent = cache.change(frame);
        let gone = page::child(parent, child).frame().expect("it was changed");
        page::remove(parent, child);
        if child == 0 && page::count(parent) > 0 {
            let first = page::rekeyed(page::cell(parent, 0), b"");
            page::remove(parent, 0);
            assert!(page::insert(parent, 0, &first), "a shorter key fits");
        }
        assert_eq!(page::count(cache.block(gone)), 0, "only an empty page is given up");
        cache.drop_page(gone);
        self.thin_out(cache, path, up);
    }

    /// Removes a root with one child; turns one without children into an empty leaf.
    fn lower_root(&mut self, cache: &mut Cache) {
        while let Some(frame) = self.root.frame() {
            let bytes = cache.block(frame);
            match (page::level(bytes), page::count(bytes)) {
                (0, _) => return,
                (_, 0) => return page::clear(cache.change(frame), 0),
                (_, 1) => {
                    self.root = page::child(bytes, 0);
                    cache.drop_page(frame);
                }
                (_, _) => return,
            }
        }
    }
}

fn new_page(cache: &mut Cache, level: u8) -> u32 {
    let mut block = Block::zeroed(cache.block_size());
    page::clear(block.bytes_mut(), level);
    cache.add_page(block)
}

fn frame_at(path: &Path, depth: usize) -> u32 {
    path.inner.get(depth).map_or(path.leaf, |step| step.frame)
}

fn cells_of(page: &[u8]) -> Cells {
    (0..page::count(page)).map(|index| page::cell(page, index).to_vec()).collect()
}

fn fill(page: &mut [u8], level: u8, cells: &[Vec<u8>]) {
    page::clear(page, level);
    if let [first, .., last] = &cells[usize::from(level > 0).min(cells.len())..] {
        page::set_prefix(page, key_of(first, level), key_of(last, level));
    }
    for (index, cell) in cells.iter().enumerate() {
        assert!(page::insert(page, index, cell), "the cells were measured");
    }
}

/// Returns the size of cells with their slots, bytes.
fn size(cells: &[Vec<u8>]) -> usize {
    cells.iter().map(|cell| cell.len() + page::SLOT).sum()
}

/// Divides cells into about equally full pages.
fn divide(cells: Cells, pages: usize, capacity: usize) -> Vec<Cells> {
    let count = cells.len();
    let share = size(&cells).div_ceil(pages);
    let mut parts: Vec<Cells> = vec![Vec::new()];
    let mut filled = 0;
    for cell in cells {
        let bytes = cell.len() + page::SLOT;
        let over = filled + bytes / 2 > share && parts.len() < pages;
        if (over || filled + bytes > capacity) && filled > 0 {
            filled = 0;
            parts.push(Vec::new());
        }
        filled += bytes;
        parts.last_mut().expect("there is one").push(cell);
    }
    let laid: usize = parts.iter().map(Vec::len).sum();
    assert_eq!(laid, count, "every cell has a page");
    parts
}

fn key_of(cell: &[u8], level: u8) -> &[u8] {
    let length = usize::from(u16::from_le_bytes([cell[0], cell[1]]));
    let start = if level == 0 { 4 } else { 2 + page::PTR };
    &cell[start..start + length]
}

/// Returns the separator in the parent before a part: for leaves the shortest possible key; an
/// inner page's first key moves up. The first part keeps its own.
fn separate(level: u8, before: Option<&[u8]>, part: &mut Cells) -> Vec<u8> {
    let Some(before) = before else { return Vec::new() };
    assert!(!part.is_empty(), "every page gets cells");
    let first = key_of(&part[0], level).to_vec();
    if level > 0 {
        part[0] = page::rekeyed(&part[0], b"");
        return first;
    }
    separator(before, &first)
}

/// Returns the shortest key that separates two.
fn separator(before: &[u8], first: &[u8]) -> Vec<u8> {
    let same = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    first[..(same + 1).min(first.len())].to_vec()
}
