//! The protocol of a link to another replica: a client of the 9P port of its server.
//!
//! It finds the file `peer` of the service, proves who it is ([`crate::door`]), and then writes
//! messages to it, everything that has gathered at once, one write at a time. When a write fails,
//! it opens the file again after a while; whatever was under way may be lost, which replicas expect
//! of their channels. One that is no member yet writes that it wants to be one, and reads what it
//! begins with; as long as that is nothing, it tries again. Connections are the business of the
//! remote tree, of which this is a user.
//!
//! *Heartbeats*: where nothing was written for [`HEARTBEAT`], it reads the verdict again, which the
//! other replica answers as soon as it has a turn. So a reply is due all the time, and a process
//! that hangs is known by its silence ([`crate::peer_link`]).
//!
#![doc = include_str!("peer/states.md")]

#[cfg(test)]
pub(crate) mod tests;

use crate::letter::Reader;
use crate::proof::{CHALLENGE, Introduction, Seals, VERDICT, Verdict, Verdicts};
use crate::seal::Seal;
use base::{Automaton, Error, Instant};
use std::time::Duration;
use tree::{NodeId, OpenId, Reply};

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pause between a reply of the other replica and the next heartbeat, if nothing is to be written.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(2);

/// How much is written at once, bytes.
pub(crate) const WRITE_MAX: usize = 512 << 10;

/// How much may wait to be written, bytes; what is said beyond that is lost, and said again.
pub(crate) const WAITING_MAX: usize = 8 << 20;

/// How long whoever waits for one answer, and would ask others as well, asks nobody else. (A server
/// that hangs is waited for: another attempt would hang behind this one. If its connection ends,
/// the remote tree says so.)
const PATIENCE: Duration = Duration::from_secs(10);

/// What can happen to it.
#[derive(Debug)]
pub(crate) enum Input {
    /// Say this, if that can be.
    Say(Vec<u8>),
    /// What was asked for last is answered.
    Answered(Result<Reply, Error>),
    /// This is the introduction that was asked for.
    Introduce(Introduction),
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
    /// Read from it, there.
    Read(OpenId, u64),
    /// Write to it, there.
    Write(OpenId, u64, Vec<u8>),
    /// Make what introduces us to whoever sent this.
    Introduce(Vec<u8>),
    /// The file's name is not needed any more.
    Release(NodeId),
    /// Nor is the open file.
    Close(OpenId),
    /// What is said now arrives, as far as anybody knows.
    Connected,
    /// It does not any more.
    Disconnected,
    /// Result of the request to become a member.
    Answered(Vec<u8>),
    /// An answer too large for the memory: so many bytes of it have come.
    TooLong(u64),
    /// The other one says that we are no member any more.
    Removed,
    /// The other one does not know the secret, or somebody changes what it sends.
    Stranger,
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
    /// For the proof to be taken.
    Introducing(OpenId, Verdicts),
    /// For what the other one says to that, and for its own proof.
    Meeting(OpenId, Verdicts),
    /// For something to say.
    Idle(OpenId),
    /// For what was said to be taken.
    Writing(OpenId),
    /// For the reply to a heartbeat.
    Checking(OpenId),
    /// For the wish to be a member to be taken.
    Asking(OpenId),
    /// For more of the answer to that.
    Fetching(OpenId),
}

/// What one says that wants to be a member; it says nothing else.
#[derive(Debug)]
pub(crate) struct Wish {
    /// Its bytes.
    pub(crate) letter: Vec<u8>,
    /// The longest answer that there is room for, bytes.
    pub(crate) room: u64,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Peer {
    state: State,
    pause: Duration,
    /// When what it waits for takes long.
    patience: Instant,
    /// Time of the next heartbeat, if nothing is to be written before.
    heartbeat: Instant,
    /// How much of the stream was written.
    offset: u64,
    /// What is to be said next.
    waiting: Vec<u8>,
    /// The wish to be a member, for who is none.
    wish: Option<Wish>,
    /// Keys that authenticate messages, from the proof on.
    seals: Option<Seals>,
    /// Verdict that was read on this open file: one that the remote tree has opened again, behind
    /// a new connection, shows a challenge instead.
    verdict: Vec<u8>,
    /// Reads the answer to the wish; how much of what is to be read was read.
    reader: Option<(Reader, u64)>,
}

impl Peer {
    /// One that tries at once: to tell what it is given, or else to become a member.
    pub(crate) fn new(wish: Option<Wish>) -> Peer {
        Peer {
            state: State::Down(Instant(0)),
            pause: PAUSE_MIN,
            patience: Instant(0),
            heartbeat: Instant(0),
            offset: 0,
            waiting: Vec::new(),
            wish,
            seals: None,
            verdict: Vec::new(),
            reader: None,
        }
    }

    /// Whether it waits for the time of its next attempt.
    fn is_down(&self) -> bool {
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
            State::Introducing(..) => "introducing",
            State::Meeting(..) => "meeting",
            State::Idle(_) => "idle",
            State::Writing(_) => "writing",
            State::Checking(_) => "checking",
            State::Asking(_) => "asking",
            State::Fetching(_) => "fetching",
        }
    }

    /// Until when it is worth while to wait for what it does, if it does something.
    pub(crate) fn busy_until(&self) -> Option<Instant> {
        (!self.is_down()).then_some(self.patience)
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Idle(_) | State::Writing(_) | State::Checking(_))
    }

    /// Keeps a message until it can be written; one that does not fit is lost.
    fn gather(&mut self, message: &[u8]) {
        let is_up = self.is_up();
        let fits = self.waiting.len() + Seal::framed(message) <= WAITING_MAX;
        if let Some(seals) = self.seals.as_mut().filter(|_| fits && is_up) {
            self.waiting.extend(seals.ours.frame(message));
        }
    }

    /// Writes what has gathered.
    fn write(&mut self, open: OpenId, out: &mut Vec<Output>) -> State {
        if self.waiting.is_empty() {
            return State::Idle(open);
        }
        let rest = self.waiting.split_off(self.waiting.len().min(WRITE_MAX));
        let data = std::mem::replace(&mut self.waiting, rest);
        assert!((1..=WRITE_MAX).contains(&data.len()), "{} bytes at once", data.len());
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
            | State::Introducing(open, _)
            | State::Meeting(open, _)
            | State::Asking(open)
            | State::Fetching(open) => out.push(Output::Close(open)),
            State::Idle(open) | State::Writing(open) | State::Checking(open) => {
                out.extend([Output::Disconnected, Output::Close(open)]);
            }
        }
        (self.waiting, self.seals, self.reader) = (Vec::new(), None, None);
        let until = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        State::Down(until)
    }

    /// What comes of what the other one says to our proof.
    fn meet(
        &mut self,
        now: Instant,
        open: OpenId,
        verdict: Option<Verdict>,
        out: &mut Vec<Output>,
    ) -> State {
        match (verdict, &self.wish) {
            (Some(Verdict::Welcome), Some(wish)) => {
                let seals = self.seals.as_mut().expect("it has introduced itself");
                out.push(Output::Write(open, 0, seals.ours.frame(&wish.letter)));
                self.reader = Some((Reader::new(seals.theirs.clone()), 0));
                State::Asking(open)
            }
            (Some(Verdict::Welcome), None) => {
                self.offset = 0;
                out.push(Output::Connected);
                State::Idle(open)
            }
            (Some(Verdict::Farewell), _) => self.give_up(now, Output::Removed, out),
            (None, _) => self.give_up(now, Output::Stranger, out),
        }
    }

    /// Takes a part of the answer to our wish.
    fn take(&mut self, now: Instant, open: OpenId, part: &[u8], out: &mut Vec<Output>) -> State {
        let Some((reader, read)) = &mut self.reader else { return self.fail(now, out) };
        *read += part.len() as u64;
        let (next, length) = (VERDICT as u64 + *read, reader.length() as u64 + part.len() as u64);
        let room = self.wish.as_ref().map_or(0, |wish| wish.room);
        match reader.take(part) {
            Ok(Some(answer)) => self.give_up(now, Output::Answered(answer), out),
            Err(_) => self.give_up(now, Output::Stranger, out),
            Ok(None) if length > room => self.give_up(now, Output::TooLong(length), out),
            // Nothing is known yet, or no more comes.
            Ok(None) if part.is_empty() => self.fail(now, out),
            Ok(None) => {
                out.push(Output::Read(open, next));
                State::Fetching(open)
            }
        }
    }

    /// Says something, and tries again in a good while.
    fn give_up(&mut self, now: Instant, says: Output, out: &mut Vec<Output>) -> State {
        self.pause = PAUSE_MAX;
        out.push(says);
        self.fail(now, out)
    }

    /// From one answer to the next question.
    fn answered(&mut self, now: Instant, reply: Result<Reply, Error>, out: &mut Vec<Output>) {
        self.state = match (self.state, reply) {
            (State::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                out.push(Output::Open(node));
                State::Opening(node)
            }
            (State::Opening(node), Ok(Reply::Opened(open, _))) => {
                out.extend([Output::Release(node), Output::Read(open, 0)]);
                State::Reading(open)
            }
            (State::Reading(open), Ok(Reply::Data(challenge))) if challenge.len() == CHALLENGE => {
                out.push(Output::Introduce(challenge.to_vec()));
                State::Proving(open)
            }
            (State::Introducing(open, verdicts), Ok(Reply::Written(_))) => {
                out.push(Output::Read(open, 0));
                State::Meeting(open, verdicts)
            }
            (State::Meeting(open, verdicts), Ok(Reply::Data(said))) => {
                self.verdict = said.to_vec();
                self.meet(now, open, verdicts.judge(&said), out)
            }
            (State::Asking(open), Ok(Reply::Written(_))) => {
                out.push(Output::Read(open, VERDICT as u64));
                State::Fetching(open)
            }
            (State::Fetching(open), Ok(Reply::Data(part))) => self.take(now, open, &part, out),
            (State::Writing(open), Ok(Reply::Written(_))) => {
                self.pause = PAUSE_MIN;
                self.write(open, out)
            }
            (State::Checking(open), Ok(Reply::Data(said))) if *said == self.verdict[..] => {
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
            (
                State::Finding
                | State::Opening(_)
                | State::Reading(_)
                | State::Proving(_)
                | State::Introducing(..)
                | State::Meeting(..)
                | State::Idle(_)
                | State::Writing(_)
                | State::Checking(_)
                | State::Asking(_)
                | State::Fetching(_),
                Ok(_) | Err(_),
            ) => self.fail(now, out),
        };
        (self.patience, self.heartbeat) = (now + PATIENCE, now + HEARTBEAT);
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
            (State::Proving(open), Input::Introduce(introduction)) => {
                let Introduction { proof, verdicts, seals } = introduction;
                self.seals = Some(seals);
                out.push(Output::Write(open, 0, proof));
                self.state = State::Introducing(open, verdicts);
            }
            (State::Down(until), Input::Tick) if until <= now => {
                out.push(Output::Find);
                (self.state, self.patience) = (State::Finding, now + PATIENCE);
            }
            (State::Idle(open), Input::Tick) if self.heartbeat <= now => {
                out.push(Output::Read(open, 0));
                self.state = State::Checking(open);
            }
            (_, Input::Leave) => {
                self.pause = PAUSE_MAX;
                self.state = self.fail(now, out);
            }
            // Too late, or too early.
            (_, Input::Introduce(_) | Input::Tick) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down(until) => Some(until),
            State::Idle(_) => Some(self.heartbeat),
            State::Finding
            | State::Opening(_)
            | State::Reading(_)
            | State::Proving(_)
            | State::Introducing(..)
            | State::Meeting(..)
            | State::Writing(_)
            | State::Checking(_)
            | State::Asking(_)
            | State::Fetching(_) => None,
        }
    }

    fn check(&self) {
        assert!(self.is_up() || self.waiting.is_empty());
        assert!(self.waiting.len() <= WAITING_MAX);
        assert!((PAUSE_MIN..=PAUSE_MAX).contains(&self.pause), "{:?}", self.pause);
        let has_keys = self.seals.is_some() || self.reader.is_some();
        assert!(!self.is_down() || !has_keys, "keys are of one attempt");
    }
}
