//! The buffer manager: the blocks of the volume that are in memory, pages and data alike.
//!
//! A frame holds one block. Clean frames stand in two queues after S3-FIFO (Yang et al., SOSP '23):
//! newcomers wait in a short one, and only those looked at meanwhile pass to the long one, so that
//! a scan of everything pushes out nothing that is in use. Changed frames are in no queue: they
//! stay until a checkpoint has written them. Pinned frames stay as long as somebody waits for
//! more.

use crate::page::Ptr;
use base::Block;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// A table whose order depends on nothing but its history.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// How far a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Holds nothing.
    Free,
    /// The same as on the disk.
    Clean,
    /// A changed page, nowhere yet but here.
    DirtyPage,
    /// Changed data; its block is chosen, and is written at the next checkpoint.
    DirtyData,
    /// On its way to the disk: must not be read from there.
    Writing,
}

/// A block in memory.
#[derive(Debug)]
struct Frame {
    block: Block,
    /// Which block of the volume; of changed pages none.
    at: u64,
    state: State,
    /// It is a page; else data. A pointer of the other kind is wrong, and finds nothing here.
    page: bool,
    /// Looked at since it last was at the end of its queue, counted up to three.
    touched: Cell<u8>,
    pins: u32,
    /// Told apart from earlier users of the frame, by entries of the queues.
    stamp: u32,
}

/// All frames.
#[derive(Debug)]
pub(crate) struct Cache {
    frames: Vec<Frame>,
    free: Vec<u32>,
    by_block: Map<u64, u32>,
    /// Newcomers, and those that were looked at again: frame and stamp.
    small: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    /// Who was pushed out of the short queue lately; back again, they pass to the long one.
    ghosts: VecDeque<u64>,
    ghost_set: HashSet<u64, FixedState>,
    capacity: usize,
    dirty_pages: usize,
    dirty_data: usize,
    writing: usize,
    block: usize,
}

impl Cache {
    /// Room for `capacity` blocks of `block` bytes, more if they are changed or pinned.
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

    /// Size of a block, bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.block
    }

    /// Frames that hold something.
    pub(crate) fn len(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changed pages, which have no block yet.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// Frames that cannot be given up because the disk does not have them yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.dirty_pages + self.dirty_data + self.writing
    }

    /// Frames changed since the last checkpoint began.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty_pages + self.dirty_data
    }

    /// The contents of the page that a pointer leads to, if they are here.
    #[inline]
    pub(crate) fn page(&self, ptr: Ptr) -> Option<&[u8]> {
        self.page_block(ptr).map(|block| &**block)
    }

    /// The same, to be shared.
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

    /// The contents of a block of data, if they are here.
    pub(crate) fn data(&self, at: u64) -> Option<&Block> {
        let frame = &self.frames[*self.by_block.get(&at)? as usize];
        touch(frame);
        (!frame.page).then_some(&frame.block)
    }

    /// Which frame holds the page at a block.
    #[inline]
    pub(crate) fn page_at(&self, at: u64) -> Option<u32> {
        self.frame_of(at).filter(|index| self.frames[*index as usize].page)
    }

    /// Which frame holds a block.
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

    /// The contents of a changed frame, to be changed again.
    #[inline]
    pub(crate) fn change(&mut self, frame: u32) -> &mut [u8] {
        let frame = &mut self.frames[frame as usize];
        assert!(matches!(frame.state, State::DirtyPage | State::DirtyData));
        frame.block.bytes_mut()
    }

    /// Takes in what was read, or is on the disk otherwise.
    pub(crate) fn add_clean(&mut self, at: u64, block: Block, page: bool) -> u32 {
        if let Some(frame) = self.frame_of(at) {
            return frame;
        }
        let frame = self.add(at, block, State::Clean, page);
        self.by_block.insert(at, frame);
        self.enqueue(frame);
        frame
    }

    /// A new page that is nowhere yet.
    pub(crate) fn add_page(&mut self, block: Block) -> u32 {
        self.dirty_pages += 1;
        self.add(0, block, State::DirtyPage, true)
    }

    /// Changed data whose block has been chosen.
    pub(crate) fn add_data(&mut self, at: u64, block: Block) {
        assert_ne!(at, 0, "block zero has a superblock");
        self.forget(at);
        self.dirty_data += 1;
        let frame = self.add(at, block, State::DirtyData, false);
        self.by_block.insert(at, frame);
    }

    /// The page at a clean frame is going to be changed: it leaves its block. A page that is on
    /// its way to the disk leaves its contents there.
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

    /// A changed page is given up.
    pub(crate) fn drop_page(&mut self, frame: u32) {
        assert_eq!(self.state(frame), State::DirtyPage);
        self.dirty_pages -= 1;
        self.release(frame);
    }

    /// A changed page gets its block and is on its way there.
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

    /// All changed data, now on its way to the disk, in the order of blocks.
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

    /// The blocks from `at` on are on the disk.
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

    /// The block is free, or is going to hold something else.
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

    /// The frame may be given up again. It may have been given up already, if its block was freed.
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

    /// Puts a clean frame into the queue where it belongs.
    fn enqueue(&mut self, index: u32) {
        let frame = &self.frames[index as usize];
        assert_eq!(frame.state, State::Clean, "what the disk lacks is in no queue");
        let entry = (index, frame.stamp);
        if self.ghost_set.remove(&frame.at) || frame.touched.get() > 0 {
            self.main.push_back(entry);
        } else {
            self.small.push_back(entry);
        }
        // What was changed since it was queued leaves its old entry behind.
        if self.small.len() + self.main.len() > 2 * self.frames.len() + 64 {
            let frames = &self.frames;
            let current = |entry: &(u32, u32)| frames[entry.0 as usize].stamp == entry.1;
            self.small.retain(current);
            self.main.retain(current);
        }
    }

    /// Gives up clean frames until there is room, as far as that is possible. Never between a plan
    /// and its application.
    pub(crate) fn evict(&mut self) {
        let mut patience = self.small.len() + 4 * self.main.len();
        while self.len() > self.capacity && patience > 0 {
            patience -= 1;
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

    /// Asserts what always holds.
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
