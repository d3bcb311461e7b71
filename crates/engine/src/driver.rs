//! Volumes for straight-line code: every operation on the disk is performed at once.
//!
//! A [`Driver`] owns an engine and its disk, and completes each request before it returns. It
//! neither waits nor reads a clock itself: every request includes the time.

use crate::{Engine, Failure, Output, Reply, Request};
use base::Instant;
use std::collections::VecDeque;
use store::drive::{Disk, perform};
use store::{Config, Error, Io, Ticket};

#[cfg(test)]
mod tests;

/// An engine with its disk.
#[derive(Debug)]
pub struct Driver<D> {
    engine: Engine,
    disk: D,
    outputs: Vec<Output>,
    to_do: VecDeque<Io>,
    next: u64,
}

impl<D: Disk> Driver<D> {
    /// Opens the volume on a disk.
    ///
    /// # Errors
    /// As [`store::Store::open`], or the error of recovery.
    pub fn open(mut disk: D, config: Config, now: Instant) -> Result<Driver<D>, Error> {
        let head = disk.head().map_err(|_| Error::NotAVolume)?;
        let mut outputs = Vec::new();
        let engine = Engine::open(&head, config, now, &mut outputs)?;
        let mut driver = Driver { engine, disk, outputs, to_do: VecDeque::new(), next: 0 };
        loop {
            for output in std::mem::take(&mut driver.outputs) {
                match output {
                    Output::Io(io) => driver.to_do.push_back(io),
                    Output::Opened(result) => return result.map(|()| driver),
                    Output::Reply(ticket, _) => unreachable!("{ticket:?} was not asked for"),
                }
            }
            let opened = driver.step(now);
            assert!(opened || !driver.outputs.is_empty(), "recovery comes to its end");
        }
    }

    /// Performs a request and all work due, and returns the reply.
    ///
    /// # Errors
    /// As the request's. `WouldDeadlock` if it has to wait for a lock: there is no one else to
    /// release it.
    pub fn ask(&mut self, now: Instant, request: Request) -> Result<Reply, Failure> {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.engine.request(now, ticket, request, &mut self.outputs);
        let mut answer = self.run_for(now, Some(ticket));
        if answer.is_none() {
            self.engine.refuse_waiting(now, &mut self.outputs);
            answer = self.run_for(now, Some(ticket));
        }
        answer.expect("a request that waits for nothing has a reply")
    }

    /// Performs work due, until nothing is left to do at this time.
    pub fn run(&mut self, now: Instant) {
        self.run_for(now, None);
    }

    fn run_for(&mut self, now: Instant, ticket: Option<Ticket>) -> Option<Result<Reply, Failure>> {
        let mut answer = None;
        loop {
            self.engine.tick(now, &mut self.outputs);
            loop {
                for output in self.outputs.drain(..) {
                    match output {
                        Output::Io(io) => self.to_do.push_back(io),
                        Output::Reply(of, result) if Some(of) == ticket => answer = Some(result),
                        // The request was refused long ago.
                        Output::Reply(..) => {}
                        Output::Opened(_) => unreachable!("it was open"),
                    }
                }
                if !self.step(now) {
                    break;
                }
            }
            if self.engine.deadline().is_none_or(|deadline| deadline > now) {
                return answer;
            }
        }
    }

    /// Performs one operation; returns whether there was one.
    fn step(&mut self, now: Instant) -> bool {
        let Some(io) = self.to_do.pop_front() else { return false };
        let (id, done) = perform(&mut self.disk, &io);
        drop(io);
        self.engine.done(now, id, done, &mut self.outputs);
        true
    }

    /// Returns the engine.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the disk in its present state; the volume is not closed.
    pub fn into_disk(self) -> D {
        self.disk
    }
}
