//! Simulated clients: they send requests and check the replies.

pub mod editor;
pub mod http;
pub mod lister;
pub mod ninep;
pub mod quota;
pub mod script;
pub mod subtree;

use crate::disk::Disk;
use crate::world::Environment;
use base::op::Listener;
use base::rng::Rng;
use base::{Error, Instant};
use std::fmt;
use std::time::Duration;

/// A client. It panics on any violation.
pub trait Client: fmt::Debug {
    /// Handles a wake-up that it requested.
    fn wake(&mut self, io: &mut Io<'_>);
    /// Handles received bytes.
    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]);
    /// Handles the end of the connection; its requests may still be in flight.
    fn ended(&mut self, io: &mut Io<'_>);
    /// Handles the completion of all its requests after the end of the connection.
    fn closed(&mut self, io: &mut Io<'_>);
    /// Performs the final checks after the node has ended.
    fn finish(&mut self, io: &mut Io<'_>);
    /// Returns whether it has completed its work.
    fn is_done(&self) -> bool;
}

/// Takes the whole 9P messages off the input received so far.
pub(crate) fn whole_messages(input: &mut Vec<u8>, bytes: &[u8]) -> Vec<Vec<u8>> {
    input.extend_from_slice(bytes);
    let (mut messages, mut taken) = (Vec::new(), 0);
    while let Some(size) = wire::ninep::frame_size(&input[taken..]) {
        assert!(size >= 7, "an answer of {size} bytes");
        let Some(message) = input.get(taken..taken + size) else { break };
        messages.push(message.to_vec());
        taken += size;
    }
    input.drain(..taken);
    messages
}

/// Operations available to a client.
#[derive(Debug)]
pub struct Io<'a> {
    pub(crate) env: &'a mut Environment,
    pub(crate) index: usize,
}

impl Io<'_> {
    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.env.now()
    }

    /// Returns the random number generator.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.env.rng
    }

    /// Returns true with probability 1/n; false if `n` is zero.
    pub fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.env.rng.u32(..n) == 0
    }

    /// Returns the real contents of the simulated disk, for checks. `None` if a volume is served,
    /// whose contents are visible only through the server.
    pub fn disk(&self) -> Option<&Disk> {
        (!self.env.params.volume).then_some(&self.env.disk)
    }

    /// Connects; `ended` and `closed` follow if the connection is refused.
    pub fn connect(&mut self, listener: Listener) -> bool {
        self.env.connect(self.index, listener)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.env.client_sends(self.index, bytes);
    }

    /// Shuts down sending.
    pub fn finish(&mut self) {
        self.env.client_finishes(self.index);
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        self.env.client_resets(self.index);
    }

    /// Abandons the connection: it causes no further events, and the next connection can be made at
    /// once.
    pub fn abandon(&mut self) {
        self.env.client_abandons(self.index);
    }

    /// Requests a wake-up.
    pub fn wake_in(&mut self, span: Duration) {
        self.env.wake_in(self.index, span);
    }

    /// Counts a request whose reply was checked.
    pub fn judged(&mut self) {
        self.env.totals.requests += 1;
    }

    /// Returns whether an error (this one, if given) was injected since.
    pub fn was_injected(&self, since: Instant, error: Option<Error>) -> bool {
        self.env.was_injected(since, error)
    }

    /// Returns whether the server, or a fault, may end a connection at any time.
    pub fn may_be_cut(&self) -> bool {
        let faults = &self.env.params.faults;
        let is_faulty = faults.reset > 0 || faults.stall > 0;
        self.is_stopped() || is_faulty || self.env.params.may_cut()
    }

    /// Returns whether the node was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.env.is_stopped()
    }

    /// Adds a line to the trace.
    pub fn trace(&mut self, words: fmt::Arguments<'_>) {
        let (now, index) = (self.env.now().0, self.index);
        self.env.trace.line(format_args!("{now} client {index}: {words}"));
    }
}
