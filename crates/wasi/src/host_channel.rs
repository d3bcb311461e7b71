//! Channel between a guest and its driver: requests of the guest, and their results.

use crate::budget::Used;
use base::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tree::{Ask, NodeId, OpenId, Reply};

/// An output stream of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Event that a guest waits for.
#[derive(Debug)]
pub enum Want {
    /// The reply to a file request.
    File(Ask),
    /// Input, at most this number of bytes.
    Input(u32),
    /// Room for this output.
    Output(Stream, Vec<u8>),
    /// The end of a delay, ns; zero yields.
    Sleep(u64),
    /// The reply to the prefetch request.
    Prefetch,
}

/// Result of a wait.
#[derive(Debug)]
pub enum Got {
    /// The reply.
    File(Result<Reply, Error>),
    /// Some input; empty at the end of the stream.
    Input(Vec<u8>),
    /// The event has happened.
    Done,
}

/// Resource that a guest releases without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A reference to a node.
    Node(NodeId),
    /// An open file.
    Open(OpenId),
}

/// Clocks as visible to a guest, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time since 1970.
    pub wall: u64,
    /// Monotonic time, from an arbitrary origin.
    pub monotonic: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    want: Option<Want>,
    got: Option<Got>,
    /// Prefetch request to send, and prefetch reply to process.
    pub(crate) foreseen: Option<Ask>,
    pub(crate) arrived: Option<Result<Reply, Error>>,
    /// Whether the guest has waited in its present call.
    pub(crate) has_waited: bool,
    pub(crate) given: Vec<Given>,
    /// Output that may be written without waiting, bytes; and output written that way.
    pub(crate) room: usize,
    pub(crate) output: Vec<(Stream, Vec<u8>)>,
    pub(crate) used: Used,
    pub(crate) times: Times,
}

/// One side of the channel; only one side uses it at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostChannel(Arc<Mutex<State>>);

impl HostChannel {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an event.
    pub(crate) fn want(&self, want: Want) -> Waiting<'_> {
        Waiting { channel: self, want: Some(want) }
    }

    /// Takes the event that the guest has begun to wait for.
    pub(crate) fn take_want(&self) -> Option<Want> {
        self.state().want.take()
    }

    pub(crate) fn give(&self, got: Got) {
        self.state().got = Some(got);
    }
}

/// A pending wait of the guest.
pub(crate) struct Waiting<'a> {
    channel: &'a HostChannel,
    want: Option<Want>,
}

impl Future for Waiting<'_> {
    type Output = Got;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Got> {
        let want = self.want.take();
        let mut state = self.channel.state();
        if want.is_some() {
            (state.want, state.got, state.has_waited) = (want, None, true);
        }
        state.got.take().map_or(Poll::Pending, Poll::Ready)
    }
}
