//! Connections that are lost are made again, on a thread that may wait.

use super::Troubles;
use reactor::precise;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long after a server could not be reached it is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// Makes one connection, with its session.
pub(super) type Dial<S> = Box<dyn FnMut() -> io::Result<(OwnedFd, S)> + Send>;

/// What became of a connection that was asked for: it, or `None` if it has to be waited for.
pub(super) type Dialled<S> = (usize, Option<(OwnedFd, S)>);

/// Makes connections for one worker.
pub(super) struct Dialer<S> {
    asked: Sender<usize>,
    made: Receiver<Dialled<S>>,
}

impl<S: Send + 'static> Dialer<S> {
    /// Starts the thread; `waker` is woken with each piece of news.
    pub(super) fn start(
        mut dial: Dial<S>,
        waker: precise::Waker,
        troubles: Troubles,
    ) -> io::Result<Dialer<S>> {
        let (asked, wanted) = channel();
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
                let told = match made {
                    Some(made) => tell.send((places.remove(0), Some(made))),
                    None => places.iter().try_for_each(|place| tell.send((*place, None))),
                };
                if told.is_err() {
                    return;
                }
                waker.wake();
                if failed {
                    precise::sleep(AGAIN);
                }
            }
        };
        std::thread::Builder::new().name("load-dialer".to_string()).spawn(run)?;
        Ok(Dialer { asked, made })
    }

    /// Asks for a connection in place of one that is lost.
    pub(super) fn ask(&self, place: usize) {
        // The thread ends only with its dialer.
        let _ = self.asked.send(place);
    }

    /// What became of those that were asked for.
    pub(super) fn news(&self) -> Option<Dialled<S>> {
        self.made.try_recv().ok()
    }
}
