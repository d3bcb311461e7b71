//! Format of a page of a tree.
//!
//! ```text
//! 0       1        2       4      6         8       16
//! | level | prefix | count | heap | garbage | birth | slot 0 | slot 1 ...  free ...  cells |
//! ```
//!
//! A slot is the offset of a cell (2) and the *head* of its key (4); slots are in the order of
//! keys. All keys of a page have (at least) their first `prefix` bytes in common, and the head is
//! the next four, as a number: so a search reads heads, which are contiguous, and one or two keys,
//! which are not. Cells fill the page from its end. A leaf's cell is
//! `key length (2), value length (2, upper bit: an extent), key, value`; an inner page's is
//! `key length (2), pointer (24), key`, and the key of its first cell is empty: child *i* has the
//! keys from key *i* on. Numbers are little-endian.
//!
//! A page is used only after its checksum was right and [`is_sound`] held, so that no bytes from a
//! disk can make these functions panic.

use crate::little_endian::{u32_at, u64_at};
use std::cmp::Ordering;

/// Size of the page header, bytes.
const HEADER: usize = 16;
/// Size of a slot, bytes.
pub(crate) const SLOT: usize = 6;
/// Maximum length of the prefix skipped by heads, bytes.
const PREFIX_MAX: usize = 255;
/// Size of a pointer to a page, bytes.
pub(crate) const PTR: usize = 24;
/// Bit of a value's length that marks an extent.
const EXTENT: u16 = 1 << 15;
/// Maximum level; a tree of that depth does not fit any disk.
pub(crate) const LEVEL_MAX: u8 = 24;

/// Pointer to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ptr {
    /// Block number; with [`Ptr::DIRTY`], frame number in the cache.
    pub(crate) at: u64,
    /// Epoch of its write.
    pub(crate) birth: u64,
    /// Checksum of the page.
    pub(crate) sum: u64,
}

impl Ptr {
    /// Bit that marks a changed page, which exists in the cache only.
    const DIRTY: u64 = 1 << 63;

    /// Returns a pointer to a changed page in the cache.
    pub(crate) fn dirty(frame: u32) -> Ptr {
        Ptr { at: Ptr::DIRTY | u64::from(frame), birth: 0, sum: 0 }
    }

    /// Returns the frame, if the page is changed.
    #[inline]
    pub(crate) fn frame(self) -> Option<u32> {
        (self.at & Ptr::DIRTY != 0).then_some(self.at as u32)
    }

    pub(crate) fn encode(self) -> [u8; PTR] {
        let mut bytes = [0; PTR];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.birth.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Ptr {
        Ptr { at: u64_at(bytes, 0), birth: u64_at(bytes, 8), sum: u64_at(bytes, 16) }
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn set_u16(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).expect("pages are small");
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Initialises an empty page.
pub(crate) fn clear(page: &mut [u8], level: u8) {
    page.fill(0);
    page[0] = level;
    page[1] = PREFIX_MAX as u8;
    set_u16(page, 4, page.len());
}

/// Returns the length of the common prefix of all keys that heads skip, bytes.
#[inline]
fn prefix(page: &[u8]) -> usize {
    usize::from(page[1])
}

/// Sets the common prefix of the keys to be inserted. The page must be empty.
pub(crate) fn set_prefix(page: &mut [u8], first: &[u8], last: &[u8]) {
    assert!(count(page) == 0);
    page[1] = common(first, last).min(PREFIX_MAX) as u8;
}

fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Returns the head of a key: the bytes behind the prefix, as a number in the order of keys.
#[inline]
fn head_of(key: &[u8], prefix: usize) -> u32 {
    match key.get(prefix..prefix + 4) {
        Some(bytes) => u32::from_be_bytes(bytes.try_into().expect("four bytes")),
        None => {
            let mut head = [0; 4];
            let rest = key.get(prefix..).unwrap_or_default();
            head[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(head)
        }
    }
}

#[inline]
fn head(page: &[u8], index: usize) -> u32 {
    u32_at(page, HEADER + SLOT * index + 2)
}

fn set_head(page: &mut [u8], index: usize) {
    let head = head_of(key(page, index), prefix(page));
    let at = HEADER + SLOT * index + 2;
    page[at..at + 4].copy_from_slice(&head.to_le_bytes());
}

/// Returns the first cell with a key for comparisons: an inner page's first key is empty.
#[inline]
fn first(page: &[u8]) -> usize {
    usize::from(page[0] > 0)
}

#[inline]
pub(crate) fn level(page: &[u8]) -> u8 {
    page[0]
}

/// Returns the number of cells.
#[inline]
pub fn count(page: &[u8]) -> usize {
    u16_at(page, 2)
}

/// Returns the epoch of the page's write.
pub(crate) fn birth(page: &[u8]) -> u64 {
    u64_at(page, 8)
}

pub(crate) fn set_birth(page: &mut [u8], epoch: u64) {
    page[8..16].copy_from_slice(&epoch.to_le_bytes());
}

fn heap(page: &[u8]) -> usize {
    u16_at(page, 4)
}

fn garbage(page: &[u8]) -> usize {
    u16_at(page, 6)
}

#[inline]
fn offset(page: &[u8], index: usize) -> usize {
    u16_at(page, HEADER + SLOT * index)
}

/// Returns the key of a cell.
#[inline]
pub fn key(page: &[u8], index: usize) -> &[u8] {
    let at = offset(page, index);
    let length = u16_at(page, at);
    let start = at + if page[0] == 0 { 4 } else { 2 + PTR };
    &page[start..start + length]
}

/// Returns the value of a leaf's cell, and whether it is an extent.
#[inline]
pub(crate) fn value(page: &[u8], index: usize) -> (&[u8], bool) {
    let at = offset(page, index);
    let (keys, word) = (u16_at(page, at), u16_at(page, at + 2));
    let (length, extent) = (word & usize::from(!EXTENT), word & usize::from(EXTENT) != 0);
    (&page[at + 4 + keys..at + 4 + keys + length], extent)
}

/// Returns the key and the value of a leaf's cell, and whether that is an extent.
#[inline]
pub fn entry(page: &[u8], index: usize) -> (&[u8], &[u8], bool) {
    let at = offset(page, index);
    let (keys, word) = (u16_at(page, at), u16_at(page, at + 2));
    let (length, extent) = (word & usize::from(!EXTENT), word & usize::from(EXTENT) != 0);
    let (key, value) = page[at + 4..at + 4 + keys + length].split_at(keys);
    (key, value, extent)
}

/// Returns a value for modification in place.
pub(crate) fn value_mut(page: &mut [u8], index: usize) -> &mut [u8] {
    let at = offset(page, index);
    let (keys, length) = (u16_at(page, at), u16_at(page, at + 2) & usize::from(!EXTENT));
    &mut page[at + 4 + keys..at + 4 + keys + length]
}

/// Returns the child pointer of an inner page.
#[inline]
pub(crate) fn child(page: &[u8], index: usize) -> Ptr {
    let at = offset(page, index) + 2;
    Ptr::decode(&page[at..at + PTR])
}

pub(crate) fn set_child(page: &mut [u8], index: usize, ptr: Ptr) {
    assert!(page[0] > 0, "a leaf has no children");
    let at = offset(page, index) + 2;
    page[at..at + PTR].copy_from_slice(&ptr.encode());
}

/// Returns the bytes of a whole cell.
pub(crate) fn cell(page: &[u8], index: usize) -> &[u8] {
    let at = offset(page, index);
    &page[at..at + cell_len(page, at)]
}

fn cell_len(page: &[u8], at: usize) -> usize {
    let keys = u16_at(page, at);
    match page[0] {
        0 => 4 + keys + (u16_at(page, at + 2) & usize::from(!EXTENT)),
        _inner => 2 + PTR + keys,
    }
}

/// Returns the range of cells with the same head as a key.
#[inline]
fn same_head(page: &[u8], wanted: &[u8]) -> (usize, usize) {
    let wanted = head_of(wanted, prefix(page));
    let (mut low, mut high) = (first(page), count(page));
    while low < high {
        let middle = (low + high) / 2;
        if head(page, middle) < wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let count = count(page);
    while high < count && head(page, high) == wanted {
        high += 1;
    }
    (low, high)
}

/// Returns the cell with exactly this key.
#[inline]
pub(crate) fn find(page: &[u8], wanted: &[u8]) -> Option<usize> {
    let (low, high) = same_head(page, wanted);
    // A key with another prefix may get here, but is not in the page.
    (low..high).find(|index| key(page, *index) == wanted)
}

/// Returns the position of a key, or where to insert it. In an inner page it is never before the
/// first.
#[inline]
pub fn search(page: &[u8], wanted: &[u8]) -> Result<usize, usize> {
    let (start, end) = (first(page), count(page));
    if start >= end {
        return Err(start.min(end));
    }
    let prefix = prefix(page);
    let known = key(page, end - 1);
    let known = &known[..prefix.min(known.len())];
    match wanted[..wanted.len().min(prefix)].cmp(known) {
        Ordering::Less => return Err(start),
        Ordering::Greater => return Err(end),
        Ordering::Equal => {}
    }
    let (mut low, mut high) = same_head(page, wanted);
    while low < high {
        let middle = (low + high) / 2;
        match key(page, middle).cmp(wanted) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Ok(middle),
        }
    }
    Err(low)
}

/// Returns the child of an inner page for a key.
#[inline]
pub(crate) fn child_of(page: &[u8], wanted: &[u8]) -> usize {
    match search(page, wanted) {
        Ok(index) => index,
        Err(index) => index.saturating_sub(1),
    }
}

/// Encodes a cell of a leaf.
pub(crate) fn leaf_cell(key: &[u8], value: &[u8], extent: bool) -> Vec<u8> {
    assert!(value.len() < usize::from(EXTENT), "the bit for extents is free");
    let mut cell = Vec::with_capacity(4 + key.len() + value.len());
    let word = value.len() | if extent { usize::from(EXTENT) } else { 0 };
    cell.extend(u16::try_from(key.len()).expect("keys are short").to_le_bytes());
    cell.extend(u16::try_from(word).expect("values in pages are short").to_le_bytes());
    cell.extend(key);
    cell.extend(value);
    cell
}

/// Encodes a cell of an inner page.
pub(crate) fn inner_cell(key: &[u8], ptr: Ptr) -> Vec<u8> {
    let mut cell = Vec::with_capacity(2 + PTR + key.len());
    cell.extend(u16::try_from(key.len()).expect("keys are short").to_le_bytes());
    cell.extend(ptr.encode());
    cell.extend(key);
    cell
}

/// Returns an inner page's cell with another key.
pub(crate) fn rekeyed(cell: &[u8], key: &[u8]) -> Vec<u8> {
    inner_cell(key, Ptr::decode(&cell[2..2 + PTR]))
}

/// Returns the space left for cells and their slots, bytes.
pub(crate) fn room(page: &[u8]) -> usize {
    heap(page) - HEADER - SLOT * count(page) + garbage(page)
}

/// Returns the space used by cells and slots, bytes.
pub(crate) fn used(page: &[u8]) -> usize {
    page.len() - HEADER - room(page)
}

/// Returns the space for cells and slots in an empty page, bytes.
pub(crate) fn capacity(block: usize) -> usize {
    block - HEADER
}

/// Inserts a cell; returns `false` if it does not fit.
pub(crate) fn insert(page: &mut [u8], index: usize, cell: &[u8]) -> bool {
    insert_with(page, index, cell.len(), |place| place.copy_from_slice(cell))
}

/// Inserts an entry into a leaf: its key, its value, and whether that is an extent.
pub(crate) fn insert_entry(
    page: &mut [u8],
    index: usize,
    (key, value, extent): (&[u8], &[u8], bool),
) -> bool {
    assert!(value.len() < usize::from(EXTENT), "the bit for extents is free");
    insert_with(page, index, 4 + key.len() + value.len(), |place| {
        set_u16(place, 0, key.len());
        set_u16(place, 2, value.len() | if extent { usize::from(EXTENT) } else { 0 });
        let (for_key, for_value) = place[4..].split_at_mut(key.len());
        for_key.copy_from_slice(key);
        for_value.copy_from_slice(value);
    })
}

fn insert_with(
    page: &mut [u8],
    index: usize,
    length: usize,
    write: impl FnOnce(&mut [u8]),
) -> bool {
    if room(page) < length + SLOT {
        return false;
    }
    let slots = count(page);
    assert!(index <= slots, "cells have no gaps between them");
    if heap(page) - HEADER - SLOT * slots < length + SLOT {
        compact(page);
    }
    let at = heap(page) - length;
    assert!(at >= HEADER + SLOT * (slots + 1), "cells and slots do not meet");
    write(&mut page[at..at + length]);
    set_u16(page, 4, at);
    let (from, to) = (HEADER + SLOT * index, HEADER + SLOT * slots);
    page.copy_within(from..to, from + SLOT);
    set_u16(page, from, at);
    set_u16(page, 2, slots + 1);
    shorten_prefix(page, index);
    set_head(page, index);
    true
}

/// Shortens the prefix for a new key, which may have less in common with the others.
fn shorten_prefix(page: &mut [u8], index: usize) {
    let (start, last) = (first(page), count(page) - 1);
    if index < start {
        return;
    }
    let other = if index == last { last.max(start + 1) - 1 } else { last };
    let same = common(key(page, index), key(page, other));
    if same < prefix(page) {
        page[1] = same as u8;
        (start..=last).for_each(|index| set_head(page, index));
    }
}

/// Removes a cell.
pub(crate) fn remove(page: &mut [u8], index: usize) {
    assert!(index < count(page), "the cell is there");
    let at = offset(page, index);
    let length = cell_len(page, at);
    if at == heap(page) {
        set_u16(page, 4, at + length);
    } else {
        let dead = garbage(page) + length;
        set_u16(page, 6, dead);
    }
    let slots = count(page);
    let from = HEADER + SLOT * index;
    page.copy_within(from + SLOT..HEADER + SLOT * slots, from);
    set_u16(page, 2, slots - 1);
    if slots == 1 {
        set_u16(page, 4, page.len());
        set_u16(page, 6, 0);
        page[1] = PREFIX_MAX as u8;
    }
}

/// Compacts the cells, so that all free space is contiguous.
fn compact(page: &mut [u8]) {
    let old = page.to_vec();
    let mut at = page.len();
    for index in 0..count(&old) {
        let cell = cell(&old, index);
        at -= cell.len();
        page[at..at + cell.len()].copy_from_slice(cell);
        set_u16(page, HEADER + SLOT * index, at);
    }
    assert!(at >= HEADER + SLOT * count(&old), "cells fit when they are moved together");
    set_u16(page, 4, at);
    set_u16(page, 6, 0);
}

/// Returns whether these bytes are a page that the functions above can handle.
pub(crate) fn is_sound(page: &[u8]) -> bool {
    let (slots, heap) = (count(page), heap(page));
    let front = HEADER + SLOT * slots;
    if level(page) > LEVEL_MAX || heap > page.len() || front > heap {
        return false;
    }
    let head = if level(page) == 0 { 4 } else { 2 + PTR };
    let mut total = 0;
    for index in 0..slots {
        let at = offset(page, index);
        if at < heap || at + head > page.len() || at + cell_len(page, at) > page.len() {
            return false;
        }
        total += cell_len(page, at);
    }
    let ordered = (1..slots).all(|index| key(page, index - 1) < key(page, index));
    let hidden = level(page) == 0 || (slots > 0 && key(page, 0).is_empty());
    let sound = |index| level(page) > 0 || extent_is_sound(page, index);
    let whole = total + garbage(page) == page.len() - heap;
    ordered && hidden && whole && (0..slots).all(sound) && heads_are_sound(page)
}

/// Returns whether these bytes are a sound page whose pointers are to pages on the disk, and not to
/// frames.
pub(crate) fn is_sound_on_disk(page: &[u8]) -> bool {
    let within = |index| (1..1 << 48).contains(&child(page, index).at);
    is_sound(page) && (level(page) == 0 || (0..count(page)).all(within))
}

/// Returns whether the heads are those of the keys, and the keys have the prefix in common.
fn heads_are_sound(page: &[u8]) -> bool {
    let (start, end, prefix) = (first(page), count(page), prefix(page));
    let Some(last) = end.checked_sub(1) else { return true };
    (start..end).all(|index| {
        let same = common(key(page, index), key(page, last)) >= prefix;
        (same || start + 1 >= end) && head(page, index) == head_of(key(page, index), prefix)
    })
}

fn extent_is_sound(page: &[u8], index: usize) -> bool {
    let (value, extent) = value(page, index);
    !extent || crate::btree::extent::is_sound(value, page.len())
}

#[cfg(test)]
mod tests;
