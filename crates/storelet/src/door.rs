//! The door between a guest and whoever drives it: what it wants, and what it gets.

use crate::budget::Used;
use base::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tree::{Ask, NodeId, OpenId, Reply};

/// A stream of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// What it says.
    Output,
    /// What it complains of.
    Error,
}

/// What a guest waits for.
#[derive(Debug)]
pub enum Want {
    /// The answer to a file request.
    File(Ask),
    /// At most so many bytes of its input.
    Input(u32),
    /// That this is taken.
    Output(Stream, Vec<u8>),
    /// That so much time passes, ns.
    Sleep(u64),
    /// What was asked ahead.
    Ahead,
}

/// What it gets.
#[derive(Debug)]
pub enum Got {
    /// The answer.
    File(Result<Reply, Error>),
    /// Some of its input; none: the end.
    Input(Vec<u8>),
    /// It is done.
    Done,
}

/// What it gives back, for which nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A reference to a node.
    Node(NodeId),
    /// An open file.
    Open(OpenId),
}

/// The time, as a guest may know it, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Since 1970.
    pub wall: u64,
    /// Since some time.
    pub monotonic: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    want: Option<Want>,
    got: Option<Got>,
    /// What it asks ahead, and what has come of that.
    pub(crate) foreseen: Option<Ask>,
    pub(crate) arrived: Option<Result<Reply, Error>>,
    /// It has waited in its present call.
    pub(crate) has_waited: bool,
    pub(crate) given: Vec<Given>,
    /// How much it may say without waiting, bytes; and what it has said so.
    pub(crate) room: usize,
    pub(crate) output: Vec<(Stream, Vec<u8>)>,
    pub(crate) used: Used,
    pub(crate) times: Times,
}

/// Both sides have one; only one of them is at it at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door(Arc<Mutex<State>>);

impl Door {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something.
    pub(crate) fn want(&self, want: Want) -> Waiting<'_> {
        Waiting { door: self, want: Some(want) }
    }

    /// What the guest waits for, if it began to.
    pub(crate) fn take_want(&self) -> Option<Want> {
        self.state().want.take()
    }

    pub(crate) fn give(&self, got: Got) {
        self.state().got = Some(got);
    }
}

/// A guest waits.
pub(crate) struct Waiting<'a> {
    door: &'a Door,
    want: Option<Want>,
}

impl Future for Waiting<'_> {
    type Output = Got;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Got> {
        let want = self.want.take();
        let mut state = self.door.state();
        if want.is_some() {
            (state.want, state.got, state.has_waited) = (want, None, true);
        }
        state.got.take().map_or(Poll::Pending, Poll::Ready)
    }
}
