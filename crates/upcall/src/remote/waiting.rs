//! Messages about states of a storelet before it runs, if they last long.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time after which a state is shown.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Prints states that last long to standard error, from a thread of its own: the command itself
/// waits for the server.
#[derive(Debug)]
pub(super) struct Waiting {
    is_shown: bool,
    states: Option<Sender<&'static str>>,
}

impl Waiting {
    /// Returns an instance without a state. If programs read standard error nothing is shown.
    pub(super) fn new(is_shown: bool) -> Waiting {
        Waiting { is_shown, states: None }
    }

    /// Records the beginning of a state.
    pub(super) fn enter(&mut self, state: &[u8]) {
        let Some(text) = message_for(state).filter(|_| self.is_shown) else {
            // It runs: the thread ends.
            self.states = None;
            return;
        };
        if self.states.is_none() {
            let (sender, states) = channel();
            let watch = move || {
                let mut next = states.recv();
                while let Ok(text) = next {
                    next = match states.recv_timeout(TIMEOUT) {
                        Ok(other) => Ok(other),
                        Err(RecvTimeoutError::Disconnected) => return,
                        Err(RecvTimeoutError::Timeout) => {
                            // The reader may be gone.
                            let _ = writeln!(std::io::stderr(), "upcall: {text}");
                            states.recv()
                        }
                    };
                }
            };
            // Without a thread nothing is shown, but the program runs.
            let started = std::thread::Builder::new().name("waiting".to_string()).spawn(watch);
            self.states = started.is_ok().then_some(sender);
        }
        if let Some(states) = &self.states {
            // The thread ends only after this end of the channel.
            let _ = states.send(text);
        }
    }
}

/// Returns the message for a state before the first instruction.
fn message_for(state: &[u8]) -> Option<&'static str> {
    match state {
        b"compiling" => Some(
            "the server compiles the program, which takes seconds for a large one; only its first \
             run waits for that",
        ),
        b"waiting for memory" => {
            Some("the program waits for memory that other programs of the server have")
        }
        _ => None,
    }
}
