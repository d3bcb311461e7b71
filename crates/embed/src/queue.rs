//! Input queue of a service: requests of all clients, and completions of the disk.

use crate::Error;
use crate::port::{Port, lock};
use engine::Request;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use store::{IoDone, IoId, Ticket};

/// Maximum number of queued requests; beyond it clients block.
pub(crate) const QUEUE_MAX: usize = 1024;

/// A request, and the port for its completion.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) request: Request,
    pub(crate) ticket: Ticket,
    /// `None` if no completion is wanted.
    pub(crate) port: Option<Arc<Port>>,
}

/// Contents of the queue.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) done: Vec<(IoId, IoDone)>,
    ended: bool,
    /// Whether the service is asleep.
    asleep: bool,
}

impl Arrived {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.done.is_empty()
    }
}

/// The queue of one service.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    arrived: Mutex<Arrived>,
    wake: Condvar,
    room: Condvar,
}

impl Queue {
    /// Adds a request, sleeping while the queue is full.
    pub(crate) fn push(&self, message: Message) -> Result<(), Error> {
        let mut arrived = lock(&self.arrived);
        while arrived.messages.len() >= QUEUE_MAX && !arrived.ended {
            arrived = self.room.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
        if arrived.ended {
            return Err(Error::Closed);
        }
        assert!(arrived.messages.len() < QUEUE_MAX, "a sender without room sleeps");
        arrived.messages.push_back(message);
        if arrived.asleep {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Adds the completion of a disk operation.
    pub(crate) fn push_done(&self, id: IoId, done: IoDone) {
        let mut arrived = lock(&self.arrived);
        arrived.done.push((id, done));
        if arrived.asleep {
            self.wake.notify_one();
        }
    }

    /// Takes the whole contents, sleeping at most this long until there are any.
    pub(crate) fn take(&self, most: Option<Duration>) -> Arrived {
        let mut arrived = lock(&self.arrived);
        if arrived.is_empty() && most != Some(Duration::ZERO) {
            arrived.asleep = true;
            arrived = match most {
                Some(most) => {
                    let woken = self.wake.wait_timeout_while(arrived, most, |a| a.is_empty());
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.wake.wait_while(arrived, |arrived| arrived.is_empty());
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
            arrived.asleep = false;
        }
        if arrived.messages.len() >= QUEUE_MAX {
            self.room.notify_all();
        }
        let ended = arrived.ended;
        mem::replace(&mut *arrived, Arrived { ended, ..Arrived::default() })
    }

    /// Returns whether the queue is not empty.
    pub(crate) fn has_arrived(&self) -> bool {
        !lock(&self.arrived).is_empty()
    }

    /// Closes the queue and returns the remaining contents.
    pub(crate) fn end(&self) -> Arrived {
        let mut arrived = lock(&self.arrived);
        arrived.ended = true;
        self.room.notify_all();
        mem::replace(&mut *arrived, Arrived { ended: true, ..Arrived::default() })
    }
}
