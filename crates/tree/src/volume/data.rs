//! File contents: reads, writes, changes of the length.

use super::NodeRef;
use super::plan::{Answer, Commit, Effects, Placing, Plan, Planned, Planner, Progress};
use super::read_view::{ReadView, Stop};
use super::record::{DATA, FreeReason, Inode, SIZE_MAX, TARGET_MAX};
use super::write_set::{self, WriteSet};
use crate::request::{OpenId, Reply};
use base::{Buf, Error, Kind};
use store::{Block, Change, Extent, Layout, Piece, View};

/// Maximum size of a read that is copied into one buffer, bytes.
const COPY_MAX: usize = 16 << 10;

/// Maximum number of blocks freed in the transaction that makes them unused.
pub(super) const CUT_MAX: u64 = 256;

/// Maximum size of the records of a write in the journal besides the data, bytes.
const WRITE_OVERHEAD: usize = 1024;

/// A range of a file to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) offset: u64,
    pub(super) count: usize,
    pub(super) headroom: usize,
}

impl Planner<'_> {
    pub(super) fn read(&self, open: OpenId, offset: u64, count: u32, headroom: u32) -> Planned {
        let what = self.volume.open(open).what;
        let (view, ino) = match (what.node_ref, what.kind) {
            (NodeRef::Snapshots, _) | (_, Kind::Directory) => return Err(Error::IsDirectory.into()),
            (NodeRef::File(view, ino), _) => (view, ino),
        };
        let access = what.access;
        if !access.read && (access.write || access.append) {
            return Err(Error::Invalid.into());
        }
        let read_view = self.read_view(view)?;
        let inode = read_view.inode(ino)?;
        let offset = offset.min(inode.size);
        let count = (inode.size - offset).min(count.into()) as usize;
        let bounds = Bounds { offset, count, headroom: headroom as usize };
        let touched = match count {
            0 => Vec::new(),
            _some => self.note_access(view, ino, &inode),
        };
        let (reply, part) = (contents(&read_view, ino, bounds)?, offset..offset + count as u64);
        Ok(Plan::Answer(Answer::Read { reply, open, part, size: inode.size }, touched))
    }

    /// Returns the offset of the next byte outside of holes. Bytes kept in a page of the index are
    /// data.
    pub(super) fn next_data(&self, open: OpenId, from: u64) -> Planned {
        let what = self.volume.open(open).what;
        let (view, ino) = match (what.node_ref, what.kind) {
            (NodeRef::Snapshots, _) | (_, Kind::Directory) => return Err(Error::IsDirectory.into()),
            (NodeRef::File(view, ino), _) => (view, ino),
        };
        let read_view = self.read_view(view)?;
        let size = read_view.inode(ino)?.size;
        let at = match covered(&read_view, ino, from, from.saturating_add(1).min(size))? {
            0 => read_view.reader.reach(DATA, ino, from, 0)?,
            _some => Some(from),
        };
        super::plan::answer(Reply::DataAt(at.filter(|at| *at < size)))
    }

    pub(super) fn write(
        &self,
        open: OpenId,
        offset: u64,
        data: &Buf,
        progress: &Progress,
    ) -> Planned {
        let what = self.volume.open(open).what;
        let access = what.access;
        let ino = match what.node_ref {
            NodeRef::File(View::Present, ino) if access.write || access.append => ino,
            NodeRef::File(..) | NodeRef::Snapshots => return Err(Error::Invalid.into()),
        };
        if data.is_empty() {
            return super::plan::answer(Reply::Written(0));
        }
        let mut write_set = self.write_set()?;
        let inode = write_set.look(ino)?;
        let offset = if access.append { inode.size } else { offset };
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            return Err(Error::FileTooLarge.into());
        }
        if end > inode.size {
            self.expect_end_movable(ino)?;
        }
        if end > inode.size && inode.trimming {
            return Err(Stop::Trimming(ino));
        }
        let layout = self.volume.store.layout();
        let cuts = Cuts::of(layout, offset, data.len());
        let mut effects = Effects::default();
        match (cuts.middle(offset), progress) {
            (Some(middle), Progress::Placed(at, extents)) => {
                assert_eq!(*at, offset, "blocks are attached where their data belongs");
                let placed: usize = extents.iter().map(|extent| extent.sums.len()).sum();
                assert_eq!(placed * layout.block, cuts.tail - cuts.head, "all was placed");
                effects.attached = true;
                attach(&mut write_set, ino, middle, extents);
            }
            (Some(_), Progress::None | Progress::Made) => {
                if write_set.has_quotas() {
                    // Before the data goes to the disk.
                    self.grow(&mut write_set, ino, offset, data.len())?;
                }
                let blocks = data[cuts.head..cuts.tail].chunks(layout.block);
                let blocks = blocks.map(|chunk| Block::from_bytes(chunk, layout.block)).collect();
                let appends_to = access.append.then_some(ino);
                return Ok(Plan::Place(Placing { offset, appends_to }, blocks));
            }
            (None, _) => {}
        }
        let written = cuts.write(&mut write_set, ino, offset, data);
        self.grow(&mut write_set, ino, offset, written)?;
        let reply = Reply::Written(u32::try_from(written).expect("one message"));
        let (changes, answer) = (write_set.finish(), Answer::Reply(reply));
        Ok(Plan::Commit(Commit { changes, durable: access.sync, answer, effects }))
    }

    /// Updates the inode for a write of `count` bytes.
    fn grow(
        &self,
        write_set: &mut WriteSet<'_>,
        ino: u64,
        offset: u64,
        count: usize,
    ) -> Result<(), Stop> {
        assert!(count > 0, "a write of nothing changes nothing");
        let (block, end) = (write_set.read_view.block, offset + count as u64);
        let all = end.div_ceil(block) - offset / block;
        let there = covered(&write_set.read_view, ino, offset, end)?;
        write_set.take_blocks(ino, all.saturating_sub(there))?;
        let (who, now) = (self.who, write_set.now());
        let inode = write_set.inode(ino)?;
        inode.size = inode.size.max(end);
        inode.mode = who.mode_after_write(inode);
        inode.touch_contents(now);
        Ok(())
    }

    pub(super) fn sync(&self, open: OpenId) -> Planned {
        match self.volume.open(open).what.node_ref {
            NodeRef::File(View::Present, _) if !self.volume.read_only => Ok(Plan::Sync),
            NodeRef::File(..) | NodeRef::Snapshots => super::plan::answer(Reply::Done),
        }
    }

    /// Changes a file's length. If too much is cut off to be freed at once, the reaper frees it;
    /// until then the file cannot grow again, so old bytes never reappear.
    pub(super) fn resize(
        &self,
        write_set: &mut WriteSet<'_>,
        ino: u64,
        size: u64,
        effects: &mut Effects,
    ) -> Result<(), Stop> {
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge.into());
        }
        let inode = write_set.look(ino)?;
        if size != inode.size {
            self.expect_end_movable(ino)?;
        }
        if size > inode.size && inode.trimming {
            return Err(Stop::Trimming(ino));
        }
        if size < inode.size {
            shorten(write_set, ino, size, effects)?;
        }
        let (who, now) = (self.who, write_set.now());
        let inode = write_set.inode(ino)?;
        inode.size = size;
        inode.mode = who.mode_after_write(inode);
        inode.touch_contents(now);
        Ok(())
    }
}

/// The parts of a write: `[..head]` and `[tail..]` go into the journal, the blocks between them
/// directly to their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cuts {
    head: usize,
    tail: usize,
    /// End of the write: data that does not fit a transaction is left to the next write.
    end: usize,
}

impl Cuts {
    fn of(layout: &Layout, offset: u64, count: usize) -> Cuts {
        let block = layout.block as u64;
        let head = (offset.next_multiple_of(block) - offset) as usize;
        let middle = count.saturating_sub(head) / layout.block * layout.block;
        if middle >= layout.direct_min() {
            return Cuts { head, tail: head + middle, end: count };
        }
        let most = (layout.transaction_max() / 2).saturating_sub(WRITE_OVERHEAD).max(layout.block);
        let end = count.min(most);
        assert!(end > 0, "something is written");
        Cuts { head: end, tail: end, end }
    }

    /// Returns the offset of the middle part in the file, if there is one.
    fn middle(self, offset: u64) -> Option<u64> {
        (self.head < self.tail).then_some(offset + self.head as u64)
    }

    /// Writes head and tail; returns the number of bytes written in all.
    fn write(self, write_set: &mut WriteSet<'_>, object: u64, offset: u64, data: &[u8]) -> usize {
        for range in [0..self.head, self.tail..self.end] {
            if !range.is_empty() {
                let (offset, data) = (offset + range.start as u64, data[range].to_vec());
                write_set.push(Change::Write { table: DATA, object, offset, data });
            }
        }
        self.end
    }
}

/// Attaches placed blocks to a file.
fn attach(write_set: &mut WriteSet<'_>, object: u64, mut offset: u64, extents: &[Extent]) {
    assert!(offset.is_multiple_of(write_set.read_view.block), "whole blocks are attached");
    let block = write_set.read_view.block;
    for extent in extents {
        write_set.push(Change::Attach { table: DATA, object, offset, extent: extent.clone() });
        offset += extent.sums.len() as u64 * block;
    }
}

fn shorten(
    write_set: &mut WriteSet<'_>,
    ino: u64,
    size: u64,
    effects: &mut Effects,
) -> Result<(), Stop> {
    let (inode, block) = (write_set.look(ino)?, write_set.read_view.block);
    assert!(size < inode.size, "the file gets shorter");
    let few = inode.blocks <= CUT_MAX || (inode.size - size) / block <= CUT_MAX;
    if inode.trimming || !few {
        // An unlinked file has an orphan record already, and is freed as a whole later.
        if inode.links > 0 {
            write_set.orphan(ino, FreeReason::Trimming)?;
        }
        write_set.inode(ino)?.trimming = true;
        effects.trimming = Some(ino);
        return Ok(());
    }
    let freed = match size {
        0 => inode.blocks,
        _some => covered(&write_set.read_view, ino, size.next_multiple_of(block), inode.size)?,
    };
    write_set.push(Change::Cut { table: DATA, object: ino, from: size, to: u64::MAX });
    write_set.give_blocks(ino, freed)
}

/// Returns the number of blocks counted in a range of a file's contents. A beginning that the store
/// keeps in a page counts as one.
pub(super) fn covered(read_view: &ReadView<'_>, ino: u64, from: u64, to: u64) -> Result<u64, Stop> {
    let blocks = read_view.reader.allocated(DATA, ino, from, to)?;
    if from >= read_view.block || read_view.reader.allocated(DATA, ino, 0, read_view.block)? > 0 {
        return Ok(blocks);
    }
    let beginning = read_view.reader.read(DATA, ino, 0, 1)?;
    let inline = beginning.iter().any(|piece| matches!(piece, Piece::Inline(_)));
    Ok(blocks + u64::from(inline))
}

/// Returns the target of a symbolic link.
pub(super) fn target(read_view: &ReadView<'_>, ino: u64, inode: &Inode) -> Result<Vec<u8>, Stop> {
    if !write_set::has_contents(inode) {
        return Ok(inode.target.clone());
    }
    let count = usize::try_from(inode.size).map_err(|_| Error::Io)?.min(TARGET_MAX);
    Ok(copied(read_view, ino, Bounds { offset: 0, count, headroom: 0 })?.to_vec())
}

/// Returns a part of a file, copied behind headroom.
pub(super) fn copied(read_view: &ReadView<'_>, ino: u64, bounds: Bounds) -> Result<Buf, Stop> {
    let Bounds { offset, count, headroom } = bounds;
    let pieces = read_view.reader.read(DATA, ino, offset, count)?;
    let mut buf = Buf::with_room(headroom, count);
    for piece in &pieces {
        match piece {
            Piece::Data(block, range) => buf.extend(&block[range.clone()]),
            Piece::Inline(bytes) => buf.extend(bytes),
            Piece::Hole(count) => buf.grow((*count).min(buf.tailroom())),
        }
    }
    Ok(buf)
}

/// Returns a part of a file: a small one copied, a larger one as shared blocks of the cache.
fn contents(read_view: &ReadView<'_>, ino: u64, bounds: Bounds) -> Result<Reply, Stop> {
    if bounds.count <= COPY_MAX {
        return copied(read_view, ino, bounds).map(Reply::Data);
    }
    let pieces = read_view.reader.read(DATA, ino, bounds.offset, bounds.count)?;
    let zeros = Block::zeroed(read_view.block as usize);
    let mut bufs = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Data(block, range) => bufs.push(Buf::shared(block, range)),
            Piece::Inline(bytes) => bufs.push(Buf::from(bytes)),
            Piece::Hole(count) => {
                for at in (0..count).step_by(zeros.len()) {
                    let part = 0..zeros.len().min(count - at);
                    bufs.push(Buf::shared(zeros.clone(), part));
                }
            }
        }
    }
    Ok(Reply::Pieces(bufs))
}
