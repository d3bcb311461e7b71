//! Fetches of pages and blocks needed by plans.

use super::{Job, Map, Missing, Output, Phase, Store, Want};
use crate::page;
use crate::sum::is_sum;
use crate::{Error, Failure, Io, Ticket};
use base::{Block, Instant};
use std::collections::BTreeMap;
use std::mem;

/// Maximum number of blocks of one read.
const READ_MAX: usize = 128;

/// Pending fetches.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    waiters: BTreeMap<Ticket, Waiter>,
    /// Blocks being read, with the tickets that wait for them.
    reading: Map<u64, Vec<Ticket>>,
    /// Tickets that wait for a checkpoint to make space, in order.
    pub(super) room: Vec<Ticket>,
    /// Blocks pinned in memory for tickets with consecutive fetches.
    pinned: BTreeMap<Ticket, Vec<u64>>,
    /// Tickets notified since the last input, which may fetch more.
    answered: Vec<Ticket>,
}

/// A pending fetch.
#[derive(Debug, Default)]
struct Waiter {
    left: usize,
    error: Option<Error>,
}

/// A read in flight.
#[derive(Debug)]
pub(super) struct Reading {
    at: u64,
    wants: Vec<Want>,
    /// Whether it is the second attempt.
    again: bool,
    /// Blocks reallocated meanwhile: their contents in this read are outdated.
    void: Vec<u64>,
}

impl Fetching {
    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }
}

/// Returns the block of a want.
fn block_of(want: &Want) -> Option<u64> {
    match want {
        Want::Page { ptr, .. } => ptr.frame().is_none().then_some(ptr.at),
        Want::Data { at, .. } => Some(*at),
        Want::Room => None,
    }
}

impl Store {
    /// Fetches what a plan needs; exactly one [`Output::Fetched`] follows. The blocks fetched for a
    /// ticket stay in memory until the first [`Store::done`] or [`Store::tick`] that finds it
    /// notified and without a further fetch: so a plan that needs many pages gets them all, and a
    /// caller that never ticks keeps them all.
    pub fn fetch(
        &mut self,
        _now: Instant,
        ticket: Ticket,
        missing: Missing,
        out: &mut Vec<Output>,
    ) {
        let waits = self.fetching.waiters.contains_key(&ticket);
        assert!(!waits, "a plan is made again when all is there");
        if let Phase::Over(error) = self.phase {
            return self.answer(ticket, Err(error), out);
        }
        let mut waiter = Waiter::default();
        if missing.0.contains(&Want::Room) {
            if let Some(error) = self.broken {
                return self.answer(ticket, Err(error), out);
            }
            waiter.left += 1;
            self.fetching.room.push(ticket);
        }
        let wanted = self.enlist(&missing, ticket, &mut waiter);
        if waiter.left == 0 {
            return self.answer(ticket, waiter.error.map_or(Ok(()), Err), out);
        }
        self.fetching.waiters.insert(ticket, waiter);
        self.read(wanted, out);
    }

    /// Reads ahead: like a fetch, but nobody waits.
    pub fn prefetch(&mut self, missing: Missing, out: &mut Vec<Output>) {
        let mut wanted = Vec::new();
        if matches!(self.phase, Phase::Over(_)) {
            return;
        }
        for want in missing.0 {
            let Some(at) = block_of(&want) else { continue };
            if !self.present.cache.has(at) && !self.fetching.reading.contains_key(&at) {
                self.fetching.reading.insert(at, Vec::new());
                wanted.push((at, want));
            }
        }
        self.read(wanted, out);
    }

    /// Adds a waiter for uncached blocks; returns those that are not being read yet.
    fn enlist(
        &mut self,
        missing: &Missing,
        ticket: Ticket,
        waiter: &mut Waiter,
    ) -> Vec<(u64, Want)> {
        let mut wanted = Vec::new();
        for want in &missing.0 {
            let Some(at) = block_of(want) else { continue };
            if self.present.cache.has(at) {
                // Data in place of a page, or a page in place of data.
                let page = matches!(want, Want::Page { .. });
                let other = page != self.present.cache.page_at(at).is_some();
                waiter.error = waiter.error.or(other.then_some(Error::Damaged));
                continue;
            }
            match self.fetching.reading.get_mut(&at) {
                Some(tickets) if tickets.contains(&ticket) => {}
                Some(tickets) => {
                    tickets.push(ticket);
                    waiter.left += 1;
                }
                None => {
                    self.fetching.reading.insert(at, vec![ticket]);
                    waiter.left += 1;
                    wanted.push((at, *want));
                }
            }
        }
        wanted
    }

    /// Reads blocks, adjacent ones together.
    fn read(&mut self, mut wanted: Vec<(u64, Want)>, out: &mut Vec<Output>) {
        wanted.sort_unstable_by_key(|(at, _)| *at);
        let mut start = 0;
        while start < wanted.len() {
            let at = wanted[start].0;
            let run = wanted[start..].iter().zip(at..).take(READ_MAX);
            let run = run.take_while(|((found, _), expected)| found == expected).count();
            let wants = wanted[start..start + run].iter().map(|(_, want)| *want).collect();
            self.read_run(Reading { at, wants, again: false, void: Vec::new() }, out);
            start += run;
        }
    }

    fn read_run(&mut self, reading: Reading, out: &mut Vec<Output>) {
        assert!(!reading.wants.is_empty(), "a read is for something");
        let (at, count) = (reading.at, reading.wants.len() as u32);
        if at + u64::from(count) > self.present.layout.blocks {
            // A pointer out of the volume: only a damaged page has one.
            for at in at..at + u64::from(count) {
                self.finish(at, Err(Error::Damaged), out);
            }
            return;
        }
        self.submit(Job::Fetch(reading), |id| Io::Read { id, at, count }, out);
    }

    /// Handles the completion of a read. Wrong blocks are read once more, each by itself.
    pub(super) fn fetched(
        &mut self,
        now: Instant,
        reading: Reading,
        blocks: Option<Vec<Block>>,
        out: &mut Vec<Output>,
    ) {
        let whole = blocks.as_ref().is_none_or(|blocks| blocks.len() == reading.wants.len());
        assert!(whole, "a read that succeeds gives every block");
        let mut blocks = blocks.into_iter().flatten();
        for (at, want) in (reading.at..).zip(reading.wants) {
            let block = blocks.next();
            if reading.void.contains(&at) {
                continue;
            }
            let failed = if block.is_some() { Error::Damaged } else { Error::DiskFailed };
            match block.filter(|block| is_right(block, &want)) {
                Some(block) => {
                    self.present.cache.add_clean(at, block, matches!(want, Want::Page { .. }));
                    self.finish(at, Ok(()), out);
                }
                None if reading.again => {
                    if failed == Error::Damaged {
                        self.failures.report(Failure::Damaged { block: at });
                    }
                    self.finish(at, Err(failed), out);
                }
                None => self.read_again(at, want, out),
            }
        }
        self.present.cache.evict();
        self.run_own(now, out);
    }

    fn read_again(&mut self, at: u64, want: Want, out: &mut Vec<Output>) {
        self.read_run(Reading { at, wants: vec![want], again: true, void: Vec::new() }, out);
    }

    /// Completes the fetch of a block, or fails it.
    fn finish(&mut self, at: u64, result: Result<(), Error>, out: &mut Vec<Output>) {
        for ticket in self.fetching.reading.remove(&at).unwrap_or_default() {
            if let Some(frame) = self.present.cache.frame_of(at) {
                self.present.cache.pin(frame);
                self.fetching.pinned.entry(ticket).or_default().push(at);
            }
            self.advance(ticket, result, out);
        }
    }

    /// Completes one of the blocks or conditions that a ticket waits for.
    pub(super) fn advance(
        &mut self,
        ticket: Ticket,
        result: Result<(), Error>,
        out: &mut Vec<Output>,
    ) {
        let waiter = self.fetching.waiters.get_mut(&ticket).expect("it waits");
        assert!(waiter.left > 0, "it waits for something");
        waiter.left -= 1;
        waiter.error = waiter.error.or(result.err());
        if waiter.left == 0 {
            let error = waiter.error;
            self.fetching.waiters.remove(&ticket);
            self.answer(ticket, error.map_or(Ok(()), Err), out);
        }
    }

    fn answer(&mut self, ticket: Ticket, result: Result<(), Error>, out: &mut Vec<Output>) {
        self.fetching.answered.push(ticket);
        if ticket.0 & super::OWN == 0 {
            out.push(Output::Fetched(ticket, result));
        } else {
            self.own_fetched(ticket, result);
        }
    }

    /// Marks reads of a reallocated block as outdated.
    pub(super) fn void(&mut self, at: u64, out: &mut Vec<Output>) {
        if !self.fetching.reading.contains_key(&at) {
            return;
        }
        for (_, job) in &mut self.jobs {
            if let Job::Fetch(reading) = job
                && (reading.at..reading.at + reading.wants.len() as u64).contains(&at)
            {
                reading.void.push(at);
            }
        }
        self.finish(at, Ok(()), out);
    }

    /// Unpins the blocks of tickets without a further fetch.
    pub(super) fn unpin(&mut self) {
        for ticket in mem::take(&mut self.fetching.answered) {
            if self.fetching.waiters.contains_key(&ticket) {
                continue;
            }
            for at in self.fetching.pinned.remove(&ticket).unwrap_or_default() {
                self.present.cache.unpin(at);
            }
        }
    }

    /// Asserts that waiters, their blocks, and reads in flight agree.
    pub(super) fn check_fetching(&self) {
        let Fetching { waiters, reading, room, pinned, answered } = &self.fetching;
        let mut left: BTreeMap<Ticket, usize> = BTreeMap::new();
        for ticket in reading.values().flatten().chain(room) {
            *left.entry(*ticket).or_default() += 1;
        }
        let waits = waiters.iter().map(|(ticket, waiter)| (*ticket, waiter.left));
        assert!(waits.eq(left), "a waiting fetch is listed at its blocks");
        let mut read = Vec::new();
        for (_, job) in &self.jobs {
            let Job::Fetch(fetch) = job else { continue };
            assert!(!fetch.again || fetch.wants.len() == 1, "a block is read again by itself");
            let blocks = fetch.at..fetch.at + fetch.wants.len() as u64;
            read.extend(blocks.filter(|at| !fetch.void.contains(at)));
        }
        assert_eq!(read.len(), reading.len(), "a block is read once at a time");
        assert!(read.iter().all(|at| reading.contains_key(at)), "a read is for something");
        for ticket in pinned.keys() {
            let known = waiters.contains_key(ticket) || answered.contains(ticket);
            assert!(known, "pages are kept for those who fetch");
        }
    }

    /// Notifies those that wait for space, which a checkpoint has made as far as possible.
    pub(super) fn give_room(&mut self, out: &mut Vec<Output>) {
        for ticket in mem::take(&mut self.fetching.room) {
            self.advance(ticket, Ok(()), out);
        }
    }

    /// Fails those that wait for space.
    pub(super) fn refuse_room(&mut self, out: &mut Vec<Output>) {
        for ticket in mem::take(&mut self.fetching.room) {
            self.advance(ticket, Err(self.failures.last()), out);
        }
    }
}

/// Returns whether a block is the wanted one.
fn is_right(block: &Block, want: &Want) -> bool {
    match want {
        Want::Page { ptr, level } => {
            is_sum(block, ptr.sum)
                && page::is_sound_on_disk(block)
                && page::birth(block) == ptr.birth
                && level.is_none_or(|level| page::level(block) == level)
        }
        Want::Data { sum, .. } => is_sum(block, *sum),
        Want::Room => false,
    }
}
