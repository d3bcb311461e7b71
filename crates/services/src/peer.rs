//! Protocol of a link to another replica, as a client of its server's 9P port.
//!
//! The machine finds the file `peer` of the service, authenticates ([`crate::acceptor`]), and then
//! writes messages to it: everything queued at once, one write at a time. After a failed write it
//! reopens the file with a delay; messages in flight may be lost, as the replication algorithm
//! permits. A replica that is not a member yet writes a join request and reads its initial
//! snapshot, and retries until it gets one. The connection belongs to the remote tree below.
//!
//! *Heartbeats*: after [`HEARTBEAT`] without a write, it reads the verdict again, and the other
//! replica replies in its next turn. So a reply is always due, and a hanging process is detected by
//! its silence ([`crate::peer_link`]).
//!
#![doc = include_str!("peer/states.md")]

#[cfg(test)]
pub(crate) mod tests;

use crate::peer_message::Reader;
use crate::proof::{CHALLENGE, Introduction, ProofReplies, ProofReply, Seals, VERDICT};
use crate::seal::Seal;
use base::{Automaton, Error, Instant};
use std::time::Duration;
use tree::{NodeId, OpenId, Reply};

/// Initial delay after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Maximum delay after failures.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Delay between a reply of the other replica and the next heartbeat, if there is nothing to write.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(2);

/// Maximum bytes in a write.
pub(crate) const WRITE_MAX: usize = 512 << 10;

/// Maximum queued bytes; further messages are dropped, and retransmitted by the replica.
pub(crate) const WAITING_MAX: usize = 8 << 20;

/// Time for which a joining replica waits for one member before it asks others as well. (The wait
/// is not repeated with a hanging server: another attempt would hang, too. The remote tree reports
/// the end of the connection.)
const TIMEOUT: Duration = Duration::from_secs(10);

/// Input of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    /// Send this message, if connected.
    Send(Vec<u8>),
    /// Reply to the last request.
    Answered(Result<Reply, Error>),
    /// Introduction requested before.
    Introduce(Introduction),
    /// Disconnect: the peer sent an invalid message, or this replica stops.
    Leave,
    /// Timer.
    Tick,
}

/// Output of the machine. At most one of the first five is outstanding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Find the file.
    Find,
    /// Open the file.
    Open(NodeId),
    /// Read from the file at this offset.
    Read(OpenId, u64),
    /// Write to the file at this offset.
    Write(OpenId, u64, Vec<u8>),
    /// Create an introduction for this challenge.
    Introduce(Vec<u8>),
    /// Release the file's node.
    Release(NodeId),
    /// Close the file.
    Close(OpenId),
    /// Messages now arrive, as far as known.
    Connected,
    /// Messages no longer arrive.
    Disconnected,
    /// Answer to the join request.
    Answered(Vec<u8>),
    /// Answer too large for the available space, after this many bytes.
    TooLong(u64),
    /// The other replica reports that this one is no longer a member.
    Removed,
    /// The other end does not know the secret, or its messages are modified in transit.
    Stranger,
}

/// Connection state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the time of the next attempt.
    Down(Instant),
    /// Waiting for the file's node.
    Finding,
    /// Waiting for the open file.
    Opening(NodeId),
    /// Waiting for the challenge.
    Reading(OpenId),
    /// Waiting for the introduction.
    Proving(OpenId),
    /// Waiting for the write of the proof.
    Introducing(OpenId, ProofReplies),
    /// Waiting for the verdict.
    Meeting(OpenId, ProofReplies),
    /// Waiting for messages to send.
    Idle(OpenId),
    /// Waiting for a write of messages.
    Writing(OpenId),
    /// Waiting for the reply to a heartbeat.
    Checking(OpenId),
    /// Waiting for the write of the join request.
    Asking(OpenId),
    /// Waiting for more of the answer to the join request.
    Fetching(OpenId),
}

/// Join request; a joining replica sends nothing else.
#[derive(Debug)]
pub(crate) struct JoinRequest {
    /// Encoded peer message.
    pub(crate) peer_message: Vec<u8>,
    /// Maximum length of the answer that can be stored, in bytes.
    pub(crate) room: u64,
}

/// Link state machine.
#[derive(Debug)]
pub(crate) struct Peer {
    state: State,
    pause: Duration,
    /// Time from which the outstanding request counts as slow.
    timeout: Instant,
    /// Time of the next heartbeat, if nothing is written before.
    heartbeat: Instant,
    /// Bytes of the stream written.
    offset: u64,
    /// Queued messages, framed.
    waiting: Vec<u8>,
    /// Join request, unless the replica is a member.
    join_request: Option<JoinRequest>,
    /// Keys that authenticate messages, from the introduction on.
    seals: Option<Seals>,
    /// Verdict read on this open file. A file reopened by the remote tree on a new connection
    /// returns a challenge instead.
    verdict: Vec<u8>,
    /// Reader of the answer to the join request, and the bytes read.
    reader: Option<(Reader, u64)>,
}

impl Peer {
    /// Creates a link that connects immediately: for messages, or to send the join request.
    pub(crate) fn new(join_request: Option<JoinRequest>) -> Peer {
        Peer {
            state: State::Down(Instant(0)),
            pause: PAUSE_MIN,
            timeout: Instant(0),
            heartbeat: Instant(0),
            offset: 0,
            waiting: Vec::new(),
            join_request,
            seals: None,
            verdict: Vec::new(),
            reader: None,
        }
    }

    /// Reports whether it waits for the next attempt.
    fn is_down(&self) -> bool {
        matches!(self.state, State::Down(_))
    }

    /// Returns the name of the state.
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

    /// Returns the time until which a caller should wait for the request in progress, if any.
    pub(crate) fn busy_until(&self) -> Option<Instant> {
        (!self.is_down()).then_some(self.timeout)
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Idle(_) | State::Writing(_) | State::Checking(_))
    }

    /// Queues a message; without a connection or space it is dropped.
    fn gather(&mut self, message: &[u8]) {
        let is_up = self.is_up();
        let fits = self.waiting.len() + Seal::framed(message) <= WAITING_MAX;
        if let Some(seals) = self.seals.as_mut().filter(|_| fits && is_up) {
            self.waiting.extend(seals.ours.frame(message));
        }
    }

    /// Writes queued messages.
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

    /// Releases everything, and schedules the next attempt.
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

    /// Processes the verdict on our proof.
    fn meet(
        &mut self,
        now: Instant,
        open: OpenId,
        verdict: Option<ProofReply>,
        out: &mut Vec<Output>,
    ) -> State {
        match (verdict, &self.join_request) {
            (Some(ProofReply::Welcome), Some(join_request)) => {
                let seals = self.seals.as_mut().expect("it has introduced itself");
                out.push(Output::Write(open, 0, seals.ours.frame(&join_request.peer_message)));
                self.reader = Some((Reader::new(seals.theirs.clone()), 0));
                State::Asking(open)
            }
            (Some(ProofReply::Welcome), None) => {
                self.offset = 0;
                out.push(Output::Connected);
                State::Idle(open)
            }
            (Some(ProofReply::Farewell), _) => self.give_up(now, Output::Removed, out),
            (None, _) => self.give_up(now, Output::Stranger, out),
        }
    }

    /// Processes a part of the answer to the join request.
    fn take(&mut self, now: Instant, open: OpenId, part: &[u8], out: &mut Vec<Output>) -> State {
        let Some((reader, read)) = &mut self.reader else { return self.fail(now, out) };
        *read += part.len() as u64;
        let (next, length) = (VERDICT as u64 + *read, reader.length() as u64 + part.len() as u64);
        let room = self.join_request.as_ref().map_or(0, |join_request| join_request.room);
        match reader.take(part) {
            Ok(Some(answer)) => self.give_up(now, Output::Answered(answer), out),
            Err(_) => self.give_up(now, Output::Stranger, out),
            Ok(None) if length > room => self.give_up(now, Output::TooLong(length), out),
            // No answer yet, or a premature end.
            Ok(None) if part.is_empty() => self.fail(now, out),
            Ok(None) => {
                out.push(Output::Read(open, next));
                State::Fetching(open)
            }
        }
    }

    /// Emits an output, and schedules the next attempt after the maximum delay.
    fn give_up(&mut self, now: Instant, shows: Output, out: &mut Vec<Output>) -> State {
        self.pause = PAUSE_MAX;
        out.push(shows);
        self.fail(now, out)
    }

    /// Processes a reply, and sends the next request.
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
            (State::Meeting(open, verdicts), Ok(Reply::Data(data))) => {
                self.verdict = data.to_vec();
                self.meet(now, open, verdicts.judge(&data), out)
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
            (State::Checking(open), Ok(Reply::Data(data))) if *data == self.verdict[..] => {
                self.write(open, out)
            }
            // A reply that arrives after a disconnect.
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
        (self.timeout, self.heartbeat) = (now + TIMEOUT, now + HEARTBEAT);
    }
}

impl Automaton for Peer {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match (self.state, input) {
            (_, Input::Answered(reply)) => self.answered(now, reply, out),
            (State::Idle(open), Input::Send(message)) => {
                self.gather(&message);
                self.state = self.write(open, out);
            }
            (_, Input::Send(message)) => self.gather(&message),
            (State::Proving(open), Input::Introduce(introduction)) => {
                let Introduction { proof, verdicts, seals } = introduction;
                self.seals = Some(seals);
                out.push(Output::Write(open, 0, proof));
                self.state = State::Introducing(open, verdicts);
            }
            (State::Down(until), Input::Tick) if until <= now => {
                out.push(Output::Find);
                (self.state, self.timeout) = (State::Finding, now + TIMEOUT);
            }
            (State::Idle(open), Input::Tick) if self.heartbeat <= now => {
                out.push(Output::Read(open, 0));
                self.state = State::Checking(open);
            }
            (_, Input::Leave) => {
                self.pause = PAUSE_MAX;
                self.state = self.fail(now, out);
            }
            // Late or early inputs.
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
