//! Lookups in a tree, as far as its pages are cached.

use crate::cache::Cache;
use crate::missing::{Missing, Want};
use crate::page::{self, Ptr};
use base::Block;
use std::ops::{ControlFlow, Range};

/// Position of an entry: the page and the cell in it.
pub(crate) type CellRef<'a> = (&'a [u8], usize);

/// Returns a page, if it is cached.
#[inline]
fn get(cache: &Cache, ptr: Ptr, level: Option<u8>) -> Result<&[u8], Want> {
    cache.page(ptr).ok_or(Want::Page { ptr, level })
}

/// Returns the entry with exactly this key.
#[inline]
pub(crate) fn find<'a>(
    cache: &'a Cache,
    root: Ptr,
    key: &[u8],
) -> Result<Option<CellRef<'a>>, Want> {
    let mut page = get(cache, root, None)?;
    loop {
        let level = page::level(page);
        if level == 0 {
            return Ok(page::find(page, key).map(|index| (page, index)));
        }
        page = get(cache, page::child(page, page::child_of(page, key)), Some(level - 1))?;
    }
}

/// The path to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPath<'a> {
    /// Number of pages on it that would have to be copied.
    pub(crate) clean: u64,
    /// Number of pages on it.
    pub(crate) levels: u64,
    /// Range of the leaf's keys: from this one on, and before that one.
    from: &'a [u8],
    to: Option<&'a [u8]>,
}

impl LeafPath<'_> {
    /// Returns whether this is the path to the key, too.
    pub(crate) fn leads_to(&self, key: &[u8]) -> bool {
        self.from <= key && self.to.is_none_or(|to| key < to)
    }
}

/// Returns the path to a key, if all of it is cached.
pub(crate) fn way_to<'a>(cache: &'a Cache, root: Ptr, key: &[u8]) -> Result<LeafPath<'a>, Want> {
    let mut path = LeafPath { clean: 0, levels: 0, from: b"", to: None };
    let (mut ptr, mut level) = (root, None);
    loop {
        let page = get(cache, ptr, level)?;
        path.clean += u64::from(ptr.frame().is_none());
        path.levels += 1;
        let Some(below) = page::level(page).checked_sub(1) else { return Ok(path) };
        let child = page::child_of(page, key);
        if child > 0 {
            path.from = page::key(page, child);
        }
        if child + 1 < page::count(page) {
            path.to = Some(page::key(page, child + 1));
        }
        ptr = page::child(page, child);
        level = Some(below);
    }
}

/// Returns the first entry with this key or a greater one.
pub(crate) fn seek<'a>(
    cache: &'a Cache,
    root: Ptr,
    key: &[u8],
) -> Result<Option<CellRef<'a>>, Missing> {
    let mut found = None;
    let bounds = Bounds { from: key, to: None, reverse: false, ahead: 0 };
    leaves(cache, root, &bounds, &mut |leaf, cells| {
        found = (!cells.is_empty()).then_some((&**leaf, cells.start));
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// The leaves to visit, and their order.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'k> {
    /// First key.
    pub from: &'k [u8],
    /// End of the range, exclusive; `None`: to the end.
    pub to: Option<&'k [u8]>,
    /// Whether to start at the end.
    pub reverse: bool,
    /// Number of leaves behind a missing one that are fetched together with it.
    pub ahead: usize,
}

/// Visitor of leaves, with the range of cells within the bounds.
pub type Visit<'v, 'a> =
    &'v mut dyn FnMut(&'a Block, Range<usize>) -> Result<ControlFlow<()>, Missing>;

/// Visits the leaves that can have keys within bounds, until it breaks. Needs no others.
pub(crate) fn leaves<'a>(
    cache: &'a Cache,
    root: Ptr,
    bounds: &Bounds<'_>,
    visit: Visit<'_, 'a>,
) -> Result<(), Missing> {
    if bounds.to.is_some_and(|to| to <= bounds.from) {
        return Ok(());
    }
    let root = cache.page_block(root).ok_or(Want::Page { ptr: root, level: None })?;
    leaves_below(cache, root, (Some(bounds.from), bounds.to), bounds, visit).map(|_| ())
}

/// Visits the leaves below a page. A bound is `None` if the whole page is within it.
fn leaves_below<'a>(
    cache: &'a Cache,
    page: &'a Block,
    (from, to): (Option<&[u8]>, Option<&[u8]>),
    bounds: &Bounds<'_>,
    visit: Visit<'_, 'a>,
) -> Result<ControlFlow<()>, Missing> {
    let at_or_after = |key| page::search(page, key).unwrap_or_else(|index| index);
    let end = to.map_or(page::count(page), at_or_after);
    if page::level(page) == 0 {
        return visit(page, from.map_or(0, at_or_after)..end);
    }
    let first = from.map_or(0, |from| page::child_of(page, from));
    for step in first..end {
        let index = if bounds.reverse { end - 1 - (step - first) } else { step };
        let Some(child) = cache.page_block(page::child(page, index)) else {
            let more = if page::level(page) == 1 { bounds.ahead } else { 0 };
            let last = if bounds.reverse { first } else { end - 1 };
            return Err(children(cache, page, (index, last), more));
        };
        let within = (from.filter(|_| index == first), to.filter(|_| index + 1 == end));
        if leaves_below(cache, child, within, bounds, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns a child that is not cached, with the uncached ones among those behind it.
fn children(cache: &Cache, page: &[u8], (index, last): (usize, usize), more: usize) -> Missing {
    let level = page::level(page).checked_sub(1);
    let range = if last < index {
        last.max(index.saturating_sub(more))..=index
    } else {
        index..=last.min(index + more)
    };
    let wanted = range.map(|index| page::child(page, index));
    let wanted = wanted.filter(|ptr| cache.page(*ptr).is_none());
    Missing(wanted.map(|ptr| Want::Page { ptr, level }).collect())
}

/// Visits the entries with keys from `from` on and before `to`, in order. Needs no page that cannot
/// have such keys.
pub(crate) fn scan_range<'a>(
    cache: &'a Cache,
    root: Ptr,
    (from, to): (&[u8], &[u8]),
    visit: &mut dyn FnMut(&'a [u8], usize),
) -> Result<(), Want> {
    range_below(cache, get(cache, root, None)?, (from, to), visit)
}

fn range_below<'a>(
    cache: &'a Cache,
    page: &'a [u8],
    (from, to): (&[u8], &[u8]),
    visit: &mut dyn FnMut(&'a [u8], usize),
) -> Result<(), Want> {
    if page::level(page) == 0 {
        let first = page::search(page, from).unwrap_or_else(|index| index);
        let within = (first..page::count(page)).take_while(|index| page::key(page, *index) < to);
        within.for_each(|index| visit(page, index));
        return Ok(());
    }
    let below = Some(page::level(page) - 1);
    let first = page::child_of(page, from);
    for index in first..page::count(page) {
        if index > first && page::key(page, index) >= to {
            return Ok(());
        }
        let child = get(cache, page::child(page, index), below)?;
        range_below(cache, child, (from, to), visit)?;
    }
    Ok(())
}

/// Returns the last entry with this key or a lesser one.
pub(crate) fn last_at_or_before<'a>(
    cache: &'a Cache,
    root: Ptr,
    key: &[u8],
) -> Result<Option<CellRef<'a>>, Want> {
    last_below(cache, get(cache, root, None)?, key)
}

fn last_below<'a>(
    cache: &'a Cache,
    page: &'a [u8],
    key: &[u8],
) -> Result<Option<CellRef<'a>>, Want> {
    if page::level(page) == 0 {
        let last = page::search(page, key).map_or_else(|next| next.checked_sub(1), Some);
        return Ok(last.map(|index| (page, index)));
    }
    let below = Some(page::level(page) - 1);
    for index in (0..=page::child_of(page, key)).rev() {
        let child = get(cache, page::child(page, index), below)?;
        if let Some(found) = last_below(cache, child, key)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
