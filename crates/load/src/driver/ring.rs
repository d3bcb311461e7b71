//! Files and block devices through io_uring.

use super::{Driver, Target, Waker};
use crate::{Io, Kind, Outcome};
use reactor::precise::{self, Finished, Lane};
use rustix::fd::{AsFd, BorrowedFd};
use std::fs::File;
use std::io;
use std::time::Duration;

/// Open files, in the order of a trace's devices.
#[derive(Debug)]
pub struct Opened {
    /// Files.
    pub files: Vec<File>,
    /// Name for people.
    pub name: String,
    /// Maximum I/O size, in bytes.
    pub io_max: usize,
    /// Number of I/Os in flight from which others are submitted by a kernel thread: the device's
    /// queue is full, and a direct submission would block. `None` if it never does.
    pub aside_from: Option<usize>,
}

impl Opened {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }
}

/// Open files with io_uring.
#[derive(Debug)]
pub struct Ring(pub Opened);

impl Target for Ring {
    fn driver(&self, _worker: usize, _workers: usize) -> io::Result<Box<dyn Driver>> {
        let waker = precise::Waker::new()?;
        let lane = Lane::new(&self.0.descriptors(), self.0.io_max, waker.clone())?;
        let files = self.0.files.len();
        let aside_from = self.0.aside_from.unwrap_or(usize::MAX);
        Ok(Box::new(RingDriver { lane, waker, files, aside_from, finished: Vec::new() }))
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }
}

struct RingDriver {
    lane: Lane,
    waker: precise::Waker,
    files: usize,
    aside_from: usize,
    finished: Vec<Finished>,
}

impl Driver for RingDriver {
    fn issue(&mut self, name: u64, io: &Io) {
        let file = io.file as usize % self.files;
        let aside = self.lane.in_flight() >= self.aside_from;
        match io.kind {
            Kind::Read => self.lane.read(name, file, io.offset, io.len, aside),
            Kind::Write | Kind::Create => self.lane.write(name, file, io.offset, io.len, aside),
            Kind::Sync => self.lane.sync(name, file),
            Kind::Trim | Kind::Remove => self.lane.trim(name, file, io.offset, io.len),
        }
    }

    fn room(&self) -> usize {
        super::TAKEN_MAX.saturating_sub(self.lane.in_flight())
    }

    fn flush(&mut self) {
        self.lane.flush();
    }

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        self.lane.take(&mut self.finished);
        ended.extend(self.finished.drain(..).map(|finished| (finished.name, outcome(&finished))));
    }

    fn any_work(&mut self) -> bool {
        self.lane.any_work()
    }

    fn wait(&mut self, timeout: Duration) {
        self.lane.wait(timeout);
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn waker(&self) -> Waker {
        Waker::Ring(self.waker.clone())
    }
}

fn outcome(finished: &Finished) -> Outcome {
    match finished.result {
        Ok(bytes) => Outcome::Done(bytes),
        Err(number) => Outcome::Failed(number),
    }
}
