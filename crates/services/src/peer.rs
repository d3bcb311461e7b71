//! The way to another replica: a client of the 9P port of its server.
//!
//! It finds the file `peer` of the service, proves who it is ([`crate::door`]), and then writes
//! messages to it, everything that has gathered at once, one write at a time. When a write fails,
//! it opens the file again after a while; whatever was under way may be lost, which replicas expect
//! of their channels. One that is no member yet writes that it wants to be one, and reads what it
//! begins with; as long as that is nothing, it tries again. Connections are the business of the
//! remote tree, of which this is a user.
//!
#![doc = include_str!("peer/states.md")]

#[cfg(test)]
mod tests;

use crate::door::CHALLENGE;
use base::{Automaton, Error, Instant};
use std::time::Duration;
use tree::{NodeId, OpenId, Reply};

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How much is written at once, bytes.
pub(crate) const WRITE_MAX: usize = 512 << 10;

/// How much may wait to be written, bytes; what is said beyond that is lost, and said again.
pub(crate) const WAITING_MAX: usize = 8 << 20;

/// How long what a new member begins with can be, bytes.
const GIFT_MAX: usize = 16 << 30;

/// What can happen to it.
#[derive(Debug)]
pub(crate) enum Input {
    /// Say this, if that can be: a message with its length in front.
    Say(Vec<u8>),
    /// What was asked for last is answered.
    Answered(Result<Reply, Error>),
    /// This is the proof that was asked for.
    Proved(Vec<u8>),
    /// The other replica says what it cannot say, or this one ends.
    Leave,
    /// Time has passed.
    Tick,
}

/// What it asks for. At most one of the first five is under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Find the file.
    Find,
    /// Open it.
    Open(NodeId),
    /// Read from it.
    Read(OpenId),
    /// Write to it, there.
    Write(OpenId, u64, Vec<u8>),
    /// What proves who we are to whoever sent this.
    Prove(Vec<u8>),
    /// The file's name is not needed any more.
    Release(NodeId),
    /// Nor is the open file.
    Close(OpenId),
    /// What is said now arrives, as far as anybody knows.
    Connected,
    /// It does not any more.
    Disconnected,
    /// Read what a new member begins with, from there.
    Fetch(OpenId, u64),
    /// All of that.
    Gift(Vec<u8>),
    /// The other one says that we are no member any more.
    Removed,
    /// The other one does not take us in.
    Refused,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For the time of the next attempt.
    Down(Instant),
    /// For the file.
    Finding,
    /// For it to be opened.
    Opening(NodeId),
    /// For a challenge.
    Reading(OpenId),
    /// For the proof to be made.
    Proving(OpenId),
    /// For the proof to be believed.
    Introducing(OpenId),
    /// For something to say.
    Idle(OpenId),
    /// For what was said to be taken.
    Writing(OpenId),
    /// For the wish to be a member to be taken.
    Asking(OpenId),
    /// For more of what a new member begins with.
    Fetching(OpenId),
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Peer {
    state: State,
    pause: Duration,
    /// How much of the stream was written.
    offset: u64,
    /// What is to be said next.
    waiting: Vec<u8>,
    /// The wish to be a member, for who is none; it says nothing else.
    wish: Option<Vec<u8>>,
    /// What has come of what a new member begins with.
    gift: Vec<u8>,
}

impl Peer {
    /// One that tries at once: to tell what it is given, or else to become a member.
    pub(crate) fn new(wish: Option<Vec<u8>>) -> Peer {
        let (state, waiting, gift) = (State::Down(Instant(0)), Vec::new(), Vec::new());
        Peer { state, pause: PAUSE_MIN, offset: 0, waiting, wish, gift }
    }

    /// Whether it waits for the time of its next attempt.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state, State::Down(_))
    }

    /// The state in one word.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Down(_) => "down",
            State::Finding => "finding",
            State::Opening(_) => "opening",
            State::Reading(_) => "reading",
            State::Proving(_) => "proving",
            State::Introducing(_) => "introducing",
            State::Idle(_) => "idle",
            State::Writing(_) => "writing",
            State::Asking(_) => "asking",
            State::Fetching(_) => "fetching",
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Idle(_) | State::Writing(_))
    }

    /// Keeps a message until it can be written; one that does not fit is lost.
    fn gather(&mut self, message: &[u8]) {
        if self.is_up() && self.waiting.len() + message.len() <= WAITING_MAX {
            self.waiting.extend_from_slice(message);
        }
    }

    /// Writes what has gathered.
    fn write(&mut self, open: OpenId, out: &mut Vec<Output>) -> State {
        if self.waiting.is_empty() {
            return State::Idle(open);
        }
        let rest = self.waiting.split_off(self.waiting.len().min(WRITE_MAX));
        let data = std::mem::replace(&mut self.waiting, rest);
        let at = self.offset;
        self.offset += data.len() as u64;
        out.push(Output::Write(open, at, data));
        State::Writing(open)
    }

    /// Gives up what it has, and tries again later.
    fn fail(&mut self, now: Instant, out: &mut Vec<Output>) -> State {
        match self.state {
            State::Down(_) | State::Finding => {}
            State::Opening(node) => out.push(Output::Release(node)),
            State::Reading(open)
            | State::Proving(open)
            | State::Introducing(open)
            | State::Asking(open)
            | State::Fetching(open) => out.push(Output::Close(open)),
            State::Idle(open) | State::Writing(open) => {
                out.extend([Output::Disconnected, Output::Close(open)]);
            }
        }
        (self.waiting, self.gift) = (Vec::new(), Vec::new());
        let until = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        State::Down(until)
    }

    /// From one answer to the next question.
    fn answered(&mut self, now: Instant, reply: Result<Reply, Error>, out: &mut Vec<Output>) {
        self.state = match (self.state, reply) {
            (State::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                out.push(Output::Open(node));
                State::Opening(node)
            }
            (State::Opening(node), Ok(Reply::Opened(open, _))) => {
                out.extend([Output::Release(node), Output::Read(open)]);
                State::Reading(open)
            }
            (State::Reading(open), Ok(Reply::Data(challenge))) if challenge.len() == CHALLENGE => {
                out.push(Output::Prove(challenge.to_vec()));
                State::Proving(open)
            }
            (State::Introducing(open), Ok(Reply::Written(_))) => {
                self.offset = 0;
                match &self.wish {
                    Some(wish) => {
                        out.push(Output::Write(open, 0, wish.clone()));
                        State::Asking(open)
                    }
                    None => {
                        out.push(Output::Connected);
                        State::Idle(open)
                    }
                }
            }
            (State::Introducing(_), Err(Error::Stale)) => {
                self.pause = PAUSE_MAX;
                out.push(Output::Removed);
                self.fail(now, out)
            }
            (State::Asking(_), Err(Error::Denied)) => {
                self.pause = PAUSE_MAX;
                out.push(Output::Refused);
                self.fail(now, out)
            }
            (State::Asking(open), Ok(Reply::Written(_))) => {
                out.push(Output::Fetch(open, 0));
                State::Fetching(open)
            }
            (State::Fetching(open), Ok(Reply::Data(part)))
                if !part.is_empty() && self.gift.len() + part.len() <= GIFT_MAX =>
            {
                self.gift.extend_from_slice(&part);
                out.push(Output::Fetch(open, self.gift.len() as u64));
                State::Fetching(open)
            }
            (State::Fetching(_), Ok(Reply::Data(part)))
                if part.is_empty() && !self.gift.is_empty() =>
            {
                out.push(Output::Gift(std::mem::take(&mut self.gift)));
                self.fail(now, out)
            }
            (State::Writing(open), Ok(Reply::Written(_))) => {
                self.pause = PAUSE_MIN;
                self.write(open, out)
            }
            // It was given up while this was under way.
            (State::Down(until), reply) => {
                match reply {
                    Ok(Reply::Walked(_, Some(node))) => out.push(Output::Release(node)),
                    Ok(Reply::Opened(open, _)) => out.push(Output::Close(open)),
                    Ok(_) | Err(_) => {}
                }
                State::Down(until)
            }
            (_, Ok(_) | Err(_)) => self.fail(now, out),
        };
    }
}

impl Automaton for Peer {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match (self.state, input) {
            (_, Input::Answered(reply)) => self.answered(now, reply, out),
            (State::Idle(open), Input::Say(message)) => {
                self.gather(&message);
                self.state = self.write(open, out);
            }
            (_, Input::Say(message)) => self.gather(&message),
            (State::Proving(open), Input::Proved(proof)) => {
                out.push(Output::Write(open, 0, proof));
                self.state = State::Introducing(open);
            }
            (State::Down(until), Input::Tick) if until <= now => {
                out.push(Output::Find);
                self.state = State::Finding;
            }
            (_, Input::Leave) => {
                self.pause = PAUSE_MAX;
                self.state = self.fail(now, out);
            }
            // Too late, or too early.
            (_, Input::Proved(_) | Input::Tick) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down(until) => Some(until),
            State::Finding
            | State::Opening(_)
            | State::Reading(_)
            | State::Proving(_)
            | State::Introducing(_)
            | State::Idle(_)
            | State::Writing(_)
            | State::Asking(_)
            | State::Fetching(_) => None,
        }
    }

    fn check(&self) {
        assert!(self.is_up() || self.waiting.is_empty());
        assert!(self.waiting.len() <= WAITING_MAX);
    }
}
