//! What is asked ahead for a guest: one request at a time, for which it does not wait.
//!
#![doc = include_str!("ahead/states.md")]

use crate::contents::{Batch, Contents};
use crate::door::State as Door;
use crate::listings::{Listings, Seen};
use base::{Automaton, Error, Instant};
use std::mem;
use tree::{Ask, NodeId, Reply};

#[cfg(test)]
mod tests;

/// What can happen to it.
#[derive(Debug)]
pub(crate) enum Input {
    /// The guest will need the answer to this.
    Foreseen(Ask),
    /// It is its turn to ask.
    Admitted,
    /// The answer.
    Answered(Result<Reply, Error>),
    /// The guest has ended.
    Leave,
}

/// What it can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// Ask the name space; [`Input::Answered`] follows.
    Ask(Ask),
    /// The answer is not wanted any more; it comes all the same.
    Cancel,
    /// Give the guest this answer.
    Arrived(Result<Reply, Error>),
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is asked.
    #[default]
    Free,
    /// For its turn to ask.
    Queued(Box<Ask>),
    /// For the answer.
    Asking,
    /// For an answer that nobody wants any more.
    Leaving,
}

/// The request that is asked ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    state: State,
}

impl Ahead {
    /// What waits for its turn.
    pub(crate) fn queued(&self) -> Option<&Ask> {
        match &self.state {
            State::Queued(ask) => Some(ask),
            State::Free | State::Asking | State::Leaving => None,
        }
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }
}

impl Automaton for Ahead {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::take(&mut self.state);
        self.state = match (state, input) {
            (State::Free, Input::Foreseen(ask)) => State::Queued(Box::new(ask)),
            (State::Queued(ask), Input::Admitted) => {
                out.push(Output::Ask(*ask));
                State::Asking
            }
            (State::Asking, Input::Answered(reply)) => {
                out.push(Output::Arrived(reply));
                State::Free
            }
            (State::Asking, Input::Leave) => {
                out.push(Output::Cancel);
                State::Leaving
            }
            (State::Leaving, Input::Answered(_))
            | (State::Free | State::Queued(_), Input::Leave) => State::Free,
            (State::Leaving, Input::Leave) => State::Leaving,
            // A guest asks ahead for one thing at a time.
            (state, input @ (Input::Foreseen(_) | Input::Admitted | Input::Answered(_))) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// What a guest's host has asked for ahead.
#[derive(Debug)]
enum Coming {
    Listings(Seen),
    Contents(Vec<Vec<u8>>, Seen),
}

/// What a guest's host has seen ahead, and what is coming.
#[derive(Debug, Default)]
pub(crate) struct Foresight {
    /// Directories that were listed.
    pub(crate) listings: Listings,
    /// Files that were read.
    pub(crate) contents: Contents,
    coming: Option<Coming>,
}

impl Foresight {
    /// Takes up what has come.
    pub(crate) fn absorb(&mut self, door: &mut Door) {
        let Some(reply) = door.arrived.take() else { return };
        match (self.coming.take(), reply) {
            (Some(Coming::Listings(seen)), Ok(Reply::Listings(listings, _))) => {
                self.listings.add(listings, seen);
            }
            (Some(Coming::Contents(asked, seen)), Ok(Reply::Contents(contents, _))) => {
                self.contents.add(asked, contents, seen);
            }
            (Some(Coming::Listings(_)), reply) => {
                self.listings.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (Some(Coming::Contents(..)), reply) => {
                self.contents.unsupported |= matches!(reply, Err(Error::Unsupported));
            }
            (None, reply) => unreachable!("nobody asked for {reply:?}"),
        }
    }

    /// Whether this file is among those that are coming.
    pub(crate) fn is_file_coming(&self, path: &[u8]) -> bool {
        match &self.coming {
            Some(Coming::Contents(asked, _)) => asked.iter().any(|other| other == path),
            Some(Coming::Listings(_)) | None => false,
        }
    }

    /// Whether listings are coming.
    pub(crate) fn are_listings_coming(&self) -> bool {
        matches!(self.coming, Some(Coming::Listings(_)))
    }

    /// The guest lists directories: what to ask for meanwhile.
    pub(crate) fn see_directories(&mut self, root: NodeId, now: Seen) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        let (paths, bytes_max) = self.listings.foreseen(now)?;
        self.coming = Some(Coming::Listings(now));
        Some(Ask::ListAll { from: root, paths, bytes_max })
    }

    /// The guest opens a file: what to ask for meanwhile.
    /// It may read so many bytes more.
    pub(crate) fn see_files(
        &mut self,
        path: &[u8],
        root: NodeId,
        now: Seen,
        left: u64,
    ) -> Option<Ask> {
        if self.coming.is_some() {
            return None;
        }
        let batch = self.contents.foreseen(path, &mut self.listings)?;
        let Batch { paths, size_max, bytes_max } = batch;
        // What nobody has asked for must not be what ends a guest.
        let bytes_max = u32::try_from(left / 2).unwrap_or(u32::MAX).min(bytes_max);
        self.coming = Some(Coming::Contents(paths.clone(), now));
        Some(Ask::ReadAll { from: root, paths, size_max, bytes_max })
    }
}
