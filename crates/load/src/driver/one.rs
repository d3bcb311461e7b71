//! Targets with blocking calls: each worker has one I/O outstanding, as in the paper.

use super::{Driver, Waker};
use crate::{Io, Outcome};
use std::time::Duration;

/// Blocking execution of an I/O.
pub(crate) trait Perform {
    fn perform(&mut self, io: &Io) -> Outcome;
}

/// Driver that performs the I/O in [`Driver::flush`].
pub(crate) struct OneByOne<P> {
    performer: P,
    taken: Option<(u64, Io)>,
    ended: Option<(u64, Outcome)>,
}

impl<P: Perform> OneByOne<P> {
    pub(crate) fn new(performer: P) -> OneByOne<P> {
        OneByOne { performer, taken: None, ended: None }
    }
}

impl<P: Perform> Driver for OneByOne<P> {
    fn issue(&mut self, name: u64, io: &Io) {
        assert!(self.room() > 0, "an I/O for which there is no room");
        self.taken = Some((name, *io));
    }

    fn room(&self) -> usize {
        usize::from(self.taken.is_none() && self.ended.is_none())
    }

    fn flush(&mut self) {
        if let Some((name, io)) = self.taken.take() {
            self.ended = Some((name, self.performer.perform(&io)));
        }
    }

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        ended.extend(self.ended.take());
    }

    fn any_work(&mut self) -> bool {
        self.ended.is_some()
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn waker(&self) -> Waker {
        Waker::Thread(std::thread::current())
    }

    fn batch_max(&self) -> usize {
        1
    }
}
