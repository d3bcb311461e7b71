//! Looking: what a tree says about keys, as far as its pages are cached.

use crate::cache::Cache;
use crate::page::{self, Ptr};
use crate::reader::Want;
use std::ops::ControlFlow;

/// Where an entry stands: the page and the cell in it.
pub(crate) type Place<'a> = (&'a [u8], usize);

/// How many leaves behind a missing one are asked for together with it.
const AHEAD: usize = 7;

/// A page, if it is cached.
#[inline]
fn get(cache: &Cache, ptr: Ptr, level: Option<u8>) -> Result<&[u8], Want> {
    cache.page(ptr).ok_or(Want::Page { ptr, level })
}

/// The entry with exactly this key.
#[inline]
pub(crate) fn find<'a>(cache: &'a Cache, root: Ptr, key: &[u8]) -> Result<Option<Place<'a>>, Want> {
    let mut page = get(cache, root, None)?;
    loop {
        let level = page::level(page);
        if level == 0 {
            return Ok(page::find(page, key).map(|index| (page, index)));
        }
        page = get(cache, page::child(page, page::child_of(page, key)), Some(level - 1))?;
    }
}

/// How many pages on the way to a key would have to be copied, if all are cached.
pub(crate) fn clean_pages(cache: &Cache, root: Ptr, key: &[u8]) -> Result<u64, Want> {
    let (mut ptr, mut level, mut clean) = (root, None, 0);
    loop {
        let page = get(cache, ptr, level)?;
        clean += u64::from(ptr.frame().is_none());
        let Some(below) = page::level(page).checked_sub(1) else { return Ok(clean) };
        ptr = page::child(page, page::child_of(page, key));
        level = Some(below);
    }
}

/// The first entry with this key or a greater one.
pub(crate) fn seek<'a>(cache: &'a Cache, root: Ptr, key: &[u8]) -> Result<Option<Place<'a>>, Want> {
    let mut found = None;
    scan(cache, root, key, &mut |page, index| {
        found = Some((page, index));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Visits the entries from a key on, in order, until told to stop.
pub(crate) fn scan<'a>(
    cache: &'a Cache,
    root: Ptr,
    from: &[u8],
    visit: &mut dyn FnMut(&'a [u8], usize) -> ControlFlow<()>,
) -> Result<(), Want> {
    let page = get(cache, root, None)?;
    scan_below(cache, page, from, visit).map(|_| ())
}

fn scan_below<'a>(
    cache: &'a Cache,
    page: &'a [u8],
    from: &[u8],
    visit: &mut dyn FnMut(&'a [u8], usize) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Want> {
    if page::level(page) == 0 {
        let first = page::search(page, from).unwrap_or_else(|index| index);
        for index in first..page::count(page) {
            if visit(page, index).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        return Ok(ControlFlow::Continue(()));
    }
    let below = Some(page::level(page) - 1);
    for index in page::child_of(page, from)..page::count(page) {
        let child = get(cache, page::child(page, index), below)?;
        if scan_below(cache, child, from, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
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

/// The last entry with this key or a lesser one.
pub(crate) fn last_at_or_before<'a>(
    cache: &'a Cache,
    root: Ptr,
    key: &[u8],
) -> Result<Option<Place<'a>>, Want> {
    last_below(cache, get(cache, root, None)?, key)
}

fn last_below<'a>(cache: &'a Cache, page: &'a [u8], key: &[u8]) -> Result<Option<Place<'a>>, Want> {
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

/// The leaves that a scan from a key on will need after the one that has the key, as far as they
/// are not cached.
pub(crate) fn leaves_ahead(cache: &Cache, root: Ptr, key: &[u8]) -> Vec<Want> {
    let mut page = cache.page(root);
    while let Some(inner) = page.filter(|page| page::level(page) > 0) {
        let child = page::child_of(inner, key);
        if page::level(inner) == 1 {
            let last = (child + AHEAD).min(page::count(inner) - 1);
            let ahead = (child + 1..=last).map(|index| page::child(inner, index));
            let missing = ahead.filter(|ptr| cache.page(*ptr).is_none());
            return missing.map(|ptr| Want::Page { ptr, level: Some(0) }).collect();
        }
        page = cache.page(page::child(inner, child));
    }
    Vec::new()
}
