//! Reconnection of lost connections, on a thread that may block.

use super::Troubles;
use reactor::precise;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Delay before another attempt to reach a server.
const AGAIN: Duration = Duration::from_millis(100);

/// Establishes one connection with its session.
pub(super) type Dial<S> = Box<dyn FnMut() -> io::Result<(OwnedFd, S)> + Send>;

/// Result for a requested connection: the connection, or `None` while attempts fail.
pub(super) type Dialled<S> = (usize, Option<(OwnedFd, S)>);

/// Reconnects for one worker.
pub(super) struct Dialer<S> {
    requested: Sender<usize>,
    made: Receiver<Dialled<S>>,
}

impl<S: Send + 'static> Dialer<S> {
    /// Starts the thread; each result wakes `waker`.
    pub(super) fn start(
        mut dial: Dial<S>,
        waker: precise::Waker,
        troubles: Troubles,
    ) -> io::Result<Dialer<S>> {
        let (requested, wanted) = channel();
        let (tell, made) = channel();
        let run = move || {
            // The worker that started it spins on its own processor.
            let _ = precise::unpin();
            let mut places = Vec::new();
            loop {
                if places.is_empty() {
                    let Ok(place) = wanted.recv() else { return };
                    places.push(place);
                }
                places.extend(wanted.try_iter());
                let made = dial().map_err(|error| troubles.note(error.to_string())).ok();
                let failed = made.is_none();
                let reported = match made {
                    Some(made) => tell.send((places.remove(0), Some(made))),
                    None => places.iter().try_for_each(|place| tell.send((*place, None))),
                };
                if reported.is_err() {
                    return;
                }
                waker.wake();
                if failed {
                    precise::sleep(AGAIN);
                }
            }
        };
        std::thread::Builder::new().name("load-dialer".to_string()).spawn(run)?;
        Ok(Dialer { requested, made })
    }

    /// Requests the replacement of a lost connection.
    pub(super) fn ask(&self, place: usize) {
        // The thread ends only with its dialer.
        let _ = self.requested.send(place);
    }

    /// Returns the next result, if there is one.
    pub(super) fn news(&self) -> Option<Dialled<S>> {
        self.made.try_recv().ok()
    }
}
