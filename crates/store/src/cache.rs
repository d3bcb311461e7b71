//! The buffer manager: cached blocks of the volume, pages and data alike.
//!
//! A frame holds one block. Clean frames are in two queues after S3-FIFO (Yang et al., SOSP '23):
//! newcomers wait in a short one, and only those accessed meanwhile pass to the long one, so that a
//! scan of everything evicts nothing in use. Changed frames are in no queue: they stay until a
//! checkpoint has written them. Pinned frames stay as long as a fetch of further blocks is pending.

use crate::page::Ptr;
use base::Block;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// A hash table whose iteration order depends on its history only.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// State of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Empty.
    Free,
    /// Equal to the block on the disk.
    Clean,
    /// A changed page, which exists in the cache only.
    DirtyPage,
    /// Changed data; its block is allocated, and is written at the next checkpoint.
    DirtyData,
    /// Being written: must not be read from the disk.
    Writing,
}

/// A cached block.
#[derive(Debug)]
struct Frame {
    block: Block,
    /// Its block number; none for changed pages.
    at: u64,
    state: State,
    /// Whether it is a page, or else data. A pointer of the other kind is wrong, and finds nothing
    /// here.
    page: bool,
    /// Number of accesses since it was last at the end of its queue, at most three.
    touched: Cell<u8>,
    pins: u32,
    /// Number that distinguishes it from earlier users of the frame, in entries of the queues.
    stamp: u32,
}

/// The cache: all frames.
#[derive(Debug)]
pub(crate) struct Cache {
    frames: Vec<Frame>,
    free: Vec<u32>,
    by_block: Map<u64, u32>,
    /// Newcomers, and those accessed again: frame and stamp.
    small: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    /// Blocks recently evicted from the short queue; when they return, they pass to the long one.
    ghosts: VecDeque<u64>,
    ghost_set: HashSet<u64, FixedState>,
    capacity: usize,
    dirty_pages: usize,
    dirty_data: usize,
    writing: usize,
    block: usize,
}

impl Cache {
    /// Returns a cache for `capacity` blocks of `block` bytes, more if they are changed or pinned.
    pub(crate) fn new(capacity: usize, block: usize) -> Cache {
        assert!(block.is_power_of_two(), "blocks have a size that disks know");
        Cache {
            frames: Vec::new(),
            free: Vec::new(),
            by_block: Map::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_set: HashSet::default(),
            capacity,
            dirty_pages: 0,
            dirty_data: 0,
            writing: 0,
            block,
        }
    }

    /// Returns the size of a block, bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.block
    }

    /// Returns the number of frames in use.
    pub(crate) fn len(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of changed pages, which have no block yet.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// Returns the number of frames that cannot be evicted because the disk does not have them yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.dirty_pages + self.dirty_data + self.writing
    }

    /// Returns the number of frames changed since the last checkpoint began.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty_pages + self.dirty_data
    }

    /// Returns the contents of a pointer's page, if it is cached.
    #[inline]
    pub(crate) fn page(&self, ptr: Ptr) -> Option<&[u8]> {
        self.page_block(ptr).map(|block| &**block)
    }

    /// Returns the shareable block of a pointer's page, if it is cached.
    #[inline]
    pub(crate) fn page_block(&self, ptr: Ptr) -> Option<&Block> {
        let index = match ptr.frame() {
            Some(frame) => frame,
            None => self.page_at(ptr.at)?,
        };
        let frame = &self.frames[index as usize];
        touch(frame);
        Some(&frame.block)
    }

    /// Returns the contents of a data block, if it is cached.
    pub(crate) fn data(&self, at: u64) -> Option<&Block> {
        let frame = &self.frames[*self.by_block.get(&at)? as usize];
        touch(frame);
        (!frame.page).then_some(&frame.block)
    }

    /// Returns the frame of the page at a block.
    #[inline]
    pub(crate) fn page_at(&self, at: u64) -> Option<u32> {
        self.frame_of(at).filter(|index| self.frames[*index as usize].page)
    }

    /// Returns the frame of a block.
    pub(crate) fn frame_of(&self, at: u64) -> Option<u32> {
        self.by_block.get(&at).copied()
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        self.by_block.contains_key(&at)
    }

    pub(crate) fn state(&self, frame: u32) -> State {
        self.frames[frame as usize].state
    }

    pub(crate) fn block(&self, frame: u32) -> &Block {
        &self.frames[frame as usize].block
    }

    /// Returns the contents of a changed frame for further changes.
    #[inline]
    pub(crate) fn change(&mut self, frame: u32) -> &mut [u8] {
        let frame = &mut self.frames[frame as usize];
        assert!(matches!(frame.state, State::DirtyPage | State::DirtyData));
        frame.block.bytes_mut()
    }

    /// Adds a block that is also on the disk.
    pub(crate) fn add_clean(&mut self, at: u64, block: Block, page: bool) -> u32 {
        if let Some(frame) = self.frame_of(at) {
            return frame;
        }
        let frame = self.add(at, block, State::Clean, page);
        self.by_block.insert(at, frame);
        self.enqueue(frame);
        frame
    }

    /// Adds a new page that is not on the disk.
    pub(crate) fn add_page(&mut self, block: Block) -> u32 {
        self.dirty_pages += 1;
        self.add(0, block, State::DirtyPage, true)
    }

    /// Adds changed data whose block is allocated.
    pub(crate) fn add_data(&mut self, at: u64, block: Block) {
        assert_ne!(at, 0, "block zero has a superblock");
        self.forget(at);
        self.dirty_data += 1;
        let frame = self.add(at, block, State::DirtyData, false);
        self.by_block.insert(at, frame);
    }

    /// Makes the page of a clean frame dirty: it leaves its block. A page that is being written
    /// leaves its contents to the write.
    pub(crate) fn make_dirty(&mut self, index: u32) -> u32 {
        let frame = &mut self.frames[index as usize];
        let at = frame.at;
        assert!(frame.page, "data is never changed into a page");
        match frame.state {
            State::DirtyPage => index,
            State::Clean => {
                frame.state = State::DirtyPage;
                frame.at = 0;
                frame.stamp += 1;
                let known = self.by_block.remove(&at);
                assert_eq!(known, Some(index), "a clean frame is found by its block");
                self.dirty_pages += 1;
                index
            }
            State::Writing => {
                let copy = frame.block.clone();
                self.add_page(copy)
            }
            State::Free | State::DirtyData => unreachable!("{:?} is no page", frame.state),
        }
    }

    /// Drops a changed page.
    pub(crate) fn drop_page(&mut self, frame: u32) {
        assert_eq!(self.state(frame), State::DirtyPage);
        self.dirty_pages -= 1;
        self.release(frame);
    }

    /// Assigns a block to a changed page and returns its contents for the write.
    pub(crate) fn start_page(&mut self, index: u32, at: u64) -> Block {
        assert_ne!(at, 0, "block zero has a superblock");
        self.forget(at);
        let frame = &mut self.frames[index as usize];
        assert_eq!(frame.state, State::DirtyPage);
        frame.state = State::Writing;
        frame.at = at;
        self.dirty_pages -= 1;
        self.writing += 1;
        self.by_block.insert(at, index);
        self.frames[index as usize].block.clone()
    }

    /// Marks all changed data as being written; returns it in the order of blocks.
    pub(crate) fn start_data(&mut self) -> Vec<(u64, Block)> {
        let mut found = Vec::with_capacity(self.dirty_data);
        for frame in self.frames.iter_mut().filter(|frame| frame.state == State::DirtyData) {
            frame.state = State::Writing;
            found.push((frame.at, frame.block.clone()));
        }
        assert_eq!(found.len(), self.dirty_data, "all changed data is on its way");
        self.writing += self.dirty_data;
        self.dirty_data = 0;
        found.sort_unstable_by_key(|(at, _)| *at);
        found
    }

    /// Marks the blocks from `at` on as written.
    pub(crate) fn written(&mut self, at: u64, count: usize) {
        for at in at..at + count as u64 {
            let Some(index) = self.frame_of(at) else { continue };
            let frame = &mut self.frames[index as usize];
            if frame.state == State::Writing {
                frame.state = State::Clean;
                self.writing -= 1;
                self.enqueue(index);
            }
        }
    }

    /// Drops a block that is freed, or gets other contents.
    pub(crate) fn forget(&mut self, at: u64) {
        let Some(index) = self.by_block.remove(&at) else { return };
        let state = self.frames[index as usize].state;
        assert_ne!(state, State::DirtyPage, "a changed page has no block");
        assert_eq!(self.frames[index as usize].at, at, "a block leads to the frame that has it");
        match self.frames[index as usize].state {
            State::DirtyData => self.dirty_data -= 1,
            State::Writing => self.writing -= 1,
            State::Clean | State::Free | State::DirtyPage => {}
        }
        self.release(index);
    }

    pub(crate) fn pin(&mut self, frame: u32) {
        self.frames[frame as usize].pins += 1;
    }

    /// Unpins a frame, which may have been dropped already, if its block was freed.
    pub(crate) fn unpin(&mut self, at: u64) {
        if let Some(frame) = self.frame_of(at) {
            let pins = &mut self.frames[frame as usize].pins;
            *pins = pins.saturating_sub(1);
        }
    }

    fn add(&mut self, at: u64, block: Block, state: State, page: bool) -> u32 {
        assert_eq!(block.len(), self.block, "a frame holds one whole block");
        if let Some(index) = self.free.pop() {
            let stamp = self.frames[index as usize].stamp;
            assert_eq!(self.frames[index as usize].state, State::Free, "a frame has one user");
            self.frames[index as usize] =
                Frame { block, at, state, page, touched: Cell::new(0), pins: 0, stamp };
            return index;
        }
        let (touched, pins, stamp) = (Cell::new(0), 0, 0);
        self.frames.push(Frame { block, at, state, page, touched, pins, stamp });
        u32::try_from(self.frames.len() - 1).expect("memory is smaller than that")
    }

    fn release(&mut self, index: u32) {
        let frame = &mut self.frames[index as usize];
        assert_ne!(frame.state, State::Free, "a frame is given up once");
        frame.state = State::Free;
        frame.stamp = frame.stamp.wrapping_add(1);
        frame.block = Block::zeroed(0);
        self.free.push(index);
    }

    /// Adds a clean frame to its queue.
    fn enqueue(&mut self, index: u32) {
        let frame = &self.frames[index as usize];
        assert_eq!(frame.state, State::Clean, "only clean frames are queued");
        let entry = (index, frame.stamp);
        if self.ghost_set.remove(&frame.at) || frame.touched.get() > 0 {
            self.main.push_back(entry);
        } else {
            self.small.push_back(entry);
        }
        // A frame changed since it was queued leaves its old entry behind.
        if self.small.len() + self.main.len() > 2 * self.frames.len() + 64 {
            let frames = &self.frames;
            let current = |entry: &(u32, u32)| frames[entry.0 as usize].stamp == entry.1;
            self.small.retain(current);
            self.main.retain(current);
        }
    }

    /// Evicts clean frames down to the capacity, as far as possible. Never called between a plan
    /// and its application.
    pub(crate) fn evict(&mut self) {
        let mut timeout = self.small.len() + 4 * self.main.len();
        while self.len() > self.capacity && timeout > 0 {
            timeout -= 1;
            let newcomers = self.small.len() * 10 >= self.capacity || self.main.is_empty();
            let queue = if newcomers { &mut self.small } else { &mut self.main };
            let Some((index, stamp)) = queue.pop_front() else { break };
            let frame = &self.frames[index as usize];
            if frame.stamp != stamp || frame.state != State::Clean {
                continue;
            }
            let touched = frame.touched.get();
            if frame.pins > 0 || touched > 0 {
                frame.touched.set(touched.saturating_sub(1));
                self.main.push_back((index, stamp));
            } else {
                self.push_out(index, newcomers);
            }
        }
    }

    fn push_out(&mut self, index: u32, newcomer: bool) {
        let at = self.frames[index as usize].at;
        let known = self.by_block.remove(&at);
        assert_eq!(known, Some(index), "a clean frame is found by its block");
        self.release(index);
        if newcomer && self.ghost_set.insert(at) {
            self.ghosts.push_back(at);
            if self.ghosts.len() > self.capacity {
                let oldest = self.ghosts.pop_front().expect("there are many");
                self.ghost_set.remove(&oldest);
            }
        }
    }

    /// Asserts all invariants.
    pub(crate) fn check(&self) {
        let counted = |state| self.frames.iter().filter(|frame| frame.state == state).count();
        assert_eq!(self.dirty_pages, counted(State::DirtyPage));
        assert_eq!(self.dirty_data, counted(State::DirtyData));
        assert_eq!(self.writing, counted(State::Writing));
        assert_eq!(self.by_block.len() + self.dirty_pages, self.len());
        for (at, index) in &self.by_block {
            assert_eq!(self.frames[*index as usize].at, *at);
            let state = self.frames[*index as usize].state;
            assert!(
                !matches!(state, State::Free | State::DirtyPage),
                "{at} is in a frame {state:?}"
            );
        }
        assert_eq!(self.free.len(), counted(State::Free), "free frames are listed once");
        assert!(self.free.iter().all(|index| self.state(*index) == State::Free));
        assert!(self.ghosts.len() <= self.capacity.max(1), "few are remembered");
        let ghosts: HashSet<_, FixedState> = self.ghosts.iter().collect();
        assert!(self.ghost_set.iter().all(|at| ghosts.contains(at)));
        let queued: HashSet<_, FixedState> = self.small.iter().chain(&self.main).collect();
        for (index, frame) in
            (0..).zip(&self.frames).filter(|(_, frame)| frame.state == State::Clean)
        {
            assert!(queued.contains(&(index, frame.stamp)), "a clean frame can be given up");
        }
    }
}

#[inline]
fn touch(frame: &Frame) {
    if frame.touched.get() < 3 {
        frame.touched.set(frame.touched.get() + 1);
    }
}
