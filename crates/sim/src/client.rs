//! Simulated clients: they make requests and judge the answers.

pub mod editor;
pub mod http;
pub mod lister;
pub mod ninep;
pub mod script;

use crate::disk::Disk;
use crate::world::Scene;
use base::op::Listener;
use base::rng::Rng;
use base::{Error, Instant};
use std::fmt;
use std::time::Duration;

/// A client. Whatever it finds wrong, it panics with.
pub trait Client: fmt::Debug {
    /// It wanted to be woken.
    fn wake(&mut self, io: &mut Io<'_>);
    /// Bytes came.
    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]);
    /// The connection has ended; what it did may still be under way.
    fn ended(&mut self, io: &mut Io<'_>);
    /// Nothing of it is under way any more.
    fn closed(&mut self, io: &mut Io<'_>);
    /// The node has ended: a last look.
    fn finish(&mut self, io: &mut Io<'_>);
    /// Whether it has done what it wanted.
    fn is_done(&self) -> bool;
}

/// Takes the whole 9P messages off what has come so far and comes now.
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

/// What a client can do.
#[derive(Debug)]
pub struct Io<'a> {
    pub(crate) scene: &'a mut Scene,
    pub(crate) index: usize,
}

impl Io<'_> {
    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.scene.now()
    }

    /// The source of choices.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.scene.rng
    }

    /// One of so many.
    pub fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.scene.rng.u32(..n) == 0
    }

    /// The real contents of the simulated disk, for judges.
    /// `None`: a volume is served, and what is in it shows only in what the server says.
    pub fn disk(&self) -> Option<&Disk> {
        (!self.scene.params.volume).then_some(&self.scene.disk)
    }

    /// Connects; `ended` and `closed` follow if the client is turned away.
    pub fn connect(&mut self, listener: Listener) -> bool {
        self.scene.connect(self.index, listener)
    }

    /// Sends.
    pub fn send(&mut self, bytes: &[u8]) {
        self.scene.client_sends(self.index, bytes);
    }

    /// Sends no more.
    pub fn finish(&mut self) {
        self.scene.client_finishes(self.index);
    }

    /// Breaks the connection.
    pub fn reset(&mut self) {
        self.scene.client_resets(self.index);
    }

    /// Gives the connection up: nothing more is told of it, and the next can be made at once.
    pub fn abandon(&mut self) {
        self.scene.client_abandons(self.index);
    }

    /// Asks to be woken.
    pub fn wake_in(&mut self, span: Duration) {
        self.scene.wake_in(self.index, span);
    }

    /// Counts a request that was answered and judged.
    pub fn judged(&mut self) {
        self.scene.totals.requests += 1;
    }

    /// Whether an error (this one) was injected since.
    pub fn was_injected(&self, since: Instant, error: Option<Error>) -> bool {
        self.scene.was_injected(since, error)
    }

    /// Whether the node was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.scene.is_stopped()
    }

    /// Adds a line to the trace.
    pub fn trace(&mut self, words: fmt::Arguments<'_>) {
        let (now, index) = (self.scene.now().0, self.index);
        self.scene.trace.line(format_args!("{now} client {index}: {words}"));
    }
}
