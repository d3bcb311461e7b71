//! Null target, which measures the generator itself.

use super::{Driver, Target, Waker};
use crate::{Io, Outcome};
use std::io;
use std::time::Duration;

/// Completes each I/O at submission.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Target for Null {
    fn driver(&self, _worker: usize, _workers: usize) -> io::Result<Box<dyn Driver>> {
        Ok(Box::<NullDriver>::default())
    }

    fn name(&self) -> String {
        "null".to_string()
    }
}

#[derive(Debug, Default)]
struct NullDriver {
    taken: Vec<(u64, Outcome)>,
}

impl Driver for NullDriver {
    fn issue(&mut self, name: u64, io: &Io) {
        self.taken.push((name, Outcome::Done(io.len)));
    }

    fn flush(&mut self) {}

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        ended.append(&mut self.taken);
    }

    fn any_work(&mut self) -> bool {
        !self.taken.is_empty()
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Waker {
        Waker::Thread(std::thread::current())
    }

    fn batch_max(&self) -> usize {
        64
    }
}
