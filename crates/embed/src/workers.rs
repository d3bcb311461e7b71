//! Threads for disk operations, so that the service is not blocked by them.
#![allow(clippy::disallowed_methods, reason = "a driver has threads of its own")]

use crate::disk::FileDisk;
use crate::port::lock;
use crate::queue::Queue;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use store::Io;
use store::drive;

/// Number of concurrent operations.
const WORKERS: usize = 4;

/// Pending operations.
#[derive(Debug, Default)]
struct ToDo {
    operations: VecDeque<Io>,
    over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    to_do: Mutex<ToDo>,
    wake: Condvar,
}

/// The threads, which end on drop.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads that report completions to the queue.
    pub(crate) fn start(disk: &FileDisk, queue: &Arc<Queue>) -> io::Result<Workers> {
        let mut workers = Workers { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..WORKERS {
            let (disk, queue, shared) = (disk.clone(), queue.clone(), workers.shared.clone());
            let builder = thread::Builder::new().name("volume disk".to_string());
            workers.threads.push(builder.spawn(move || work(disk, &queue, &shared))?);
        }
        Ok(workers)
    }

    pub(crate) fn submit(&self, io: Io) {
        lock(&self.shared.to_do).operations.push_back(io);
        self.shared.wake.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.to_do).over = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

fn work(mut disk: FileDisk, queue: &Queue, shared: &Shared) {
    loop {
        let waiting = |to_do: &mut ToDo| to_do.operations.is_empty() && !to_do.over;
        let to_do = shared.wake.wait_while(lock(&shared.to_do), waiting);
        let Some(io) = to_do.unwrap_or_else(PoisonError::into_inner).operations.pop_front() else {
            return;
        };
        let (id, done) = drive::perform(&mut disk, &io);
        drop(io);
        queue.push_done(id, done);
    }
}
