//! A connection: a session, and the bytes between it and its client.
//!
//! Output of the session gathers while a send is in flight, so a slow client causes larger sends,
//! not more. At most one receive and one send are in flight; the socket is closed when both have
//! completed and the session is over.
//!
#![doc = include_str!("connection/states.md")]

use crate::admission::Debt;
use crate::stages::Stage;
use base::op::{ClientKey, Op, OpId, Peer, Socket, UNSENT_MAX};
use base::{Automaton, Buf, Caller, Error, Instant};
use front::nfs::{CallKey, Claim};
use front::{Account, CallId, Input as SessionInput, Output as SessionOutput};
use front::{Room, Session, webdav};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tree::{NodeId, OpenId, Reply, Request};

#[cfg(test)]
mod tests;

/// Maximum number of buffers in one send, as many as the kernel takes at once. None is added to
/// [`UNSENT_MAX`] bytes, so that the progress of a slow client is visible.
const SEND_MAX: usize = 1024;

/// Timeout of the first bytes from a client.
pub const SILENCE_TIME: Duration = Duration::from_secs(75);

/// Timeout of a send without progress.
pub const STALL_TIME: Duration = Duration::from_secs(300);

/// Inputs of a connection.
#[derive(Debug)]
pub enum Input {
    /// The connection was accepted.
    Begin,
    /// Completion of a receive.
    Received(Result<Buf, Error>),
    /// Completion of a send.
    Sent(Result<(), Error>),
    /// Reply of the namespace to a call.
    Answered(CallId, Result<Reply, Error>),
    /// Result of the claim of an NFS call.
    Claimed(CallId, Claim),
    /// Reply of the locks of WebDAV.
    Locks(webdav::Reply),
    /// A deadline has passed, or the limits have changed.
    Tick,
    /// Shutdown of the server.
    Drain,
    /// Abort, at the end of the grace period or to make room for others.
    Abort,
}

/// Outputs of a connection.
#[derive(Debug)]
pub enum Output {
    /// Operation of the reactor.
    Do(Op),
    /// Request to the namespace.
    Ask(CallId, Request),
    /// Cancellation of a request.
    Cancel(CallId),
    /// Release of a node.
    Release(NodeId),
    /// Close of an open file.
    Close(OpenId),
    /// Close of an open file whose use is incomplete.
    Abandon(OpenId),
    /// Duration of a stage of a request.
    Staged(Stage, Duration),
    /// Type of the reply to a 9P message.
    Replied(u8),
    /// End of an NFS call: its procedure, and whether it was successful.
    Called(&'static str, bool),
    /// Claim of an NFS call that changes something.
    Claim(CallId, CallKey),
    /// End of a claimed call, with its reply.
    Settle(CallKey, Option<Vec<u8>>),
    /// Request of a user to the locks of WebDAV.
    Locks(Caller, webdav::Request),
    /// End of an HTTP request.
    Account(Account),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for bytes in either direction.
    Talking,
    /// Waiting for the last bytes to be sent; the session has hung up.
    Parting,
    /// Waiting for outstanding operations; the socket is dead.
    Ending,
}

/// Size and start of the send in flight, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    No,
    Yes { bytes: usize, since: Instant },
}

/// Shutdown of the sending direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    No,
    /// Requested, after everything is sent.
    Wanted,
    Done,
}

/// Client that a connection is accounted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Network address; for IPv6, the 64-bit network, which may belong to a single host.
    Network(IpAddr),
    /// This host, through loopback.
    Loopback,
    /// An address that is not IP.
    Unknown,
    /// A user of this host, through a Unix socket.
    User(u32),
}

impl Origin {
    pub(crate) fn of(peer: &Peer) -> Origin {
        if let Peer::Local(user) = peer {
            return Origin::User(user.uid);
        }
        match address_of(peer) {
            Some(it) if it.is_loopback() => Origin::Loopback,
            Some(IpAddr::V6(it)) => {
                let network = u128::from(it) & !u128::from(u64::MAX);
                Origin::Network(IpAddr::V6(network.into()))
            }
            Some(it) => Origin::Network(it),
            None => Origin::Unknown,
        }
    }
}

/// Returns the network address of a peer, if it has one.
pub(crate) fn address_of(peer: &Peer) -> Option<IpAddr> {
    let Peer::Network(address) = peer else { return None };
    address.parse().ok().map(|address: SocketAddr| address.ip().to_canonical())
}

/// The connection automaton.
#[derive(Debug)]
pub struct Connection {
    state: State,
    finish: Finish,
    id: OpId,
    socket: Socket,
    peer: Peer,
    origin: Origin,
    client: ClientKey,
    session: Session,
    receiving: bool,
    sending: Sending,
    /// Output of the session that is not yet being sent. Bounded: the session stops at its limits.
    unsent: Vec<Buf>,
    /// Deadline of the first bytes from the client, until they arrive.
    silent_until: Option<Instant>,
    debt: Debt,
    /// Time of the last received bytes; time of the request of each call.
    received: Instant,
    requested: Vec<Instant>,
    from_session: Vec<SessionOutput>,
    /// Time of the node's next look at this connection.
    pub(crate) alarm: Option<Instant>,
    /// Whether it is on the node's list for the end of the turn.
    pub(crate) is_marked: bool,
}

impl Connection {
    /// Creates an accepted connection, whose operations have the id `id`.
    pub(crate) fn new(id: OpId, socket: Socket, peer: Peer, session: Session) -> Connection {
        let origin = Origin::of(&peer);
        Connection {
            state: State::Talking,
            finish: Finish::No,
            id,
            socket,
            peer,
            origin,
            client: origin.key(),
            session,
            receiving: false,
            sending: Sending::No,
            unsent: Vec::new(),
            silent_until: None,
            debt: Debt::default(),
            received: Instant(0),
            requested: Vec::new(),
            from_session: Vec::new(),
            alarm: None,
            is_marked: false,
        }
    }

    /// Returns the socket.
    pub fn socket(&self) -> Socket {
        self.socket
    }

    /// Returns the client as identified by the kernel.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the number of bytes being sent.
    pub(crate) fn sending(&self) -> usize {
        match self.sending {
            Sending::Yes { bytes, .. } => bytes,
            Sending::No => 0,
        }
    }

    /// Returns the number of bytes held.
    pub fn bytes(&self) -> usize {
        self.session.bytes()
    }

    /// Returns the number of nodes and open files held for the client.
    pub fn handles(&self) -> usize {
        self.session.handles()
    }

    /// Records that bytes have arrived, which are delivered in the connection's next turn.
    pub(crate) fn arrive(&mut self, now: Instant, bytes: usize) {
        if bytes > 0 {
            self.received = now;
            self.debt.pay(bytes);
        }
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        self.session.set_room(room);
    }

    /// Returns whether the client keeps memory that others wait for.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        // The send of a single larger message completes when most of it has been received.
        let undelivered = match self.sending {
            Sending::No => 0,
            Sending::Yes { bytes, .. } => bytes.saturating_sub(UNSENT_MAX),
        };
        self.state != State::Ending && self.debt.is_overdue(now, undelivered)
    }

    /// Returns whether the session has requests for its next turn.
    pub(crate) fn has_requests_left(&self) -> bool {
        self.session.deadline() == Some(Instant(0))
    }

    /// Returns the time of the last activity, if closing the connection loses nothing for the
    /// client. What it sends after its last response is no activity.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        if self.state == State::Talking && self.finish == Finish::Done {
            return Some(Instant(0));
        }
        (self.is_quiet() && self.session.is_idle()).then_some(self.received)
    }

    /// Returns the time of the last activity, if the client has no file open and nothing is in
    /// progress.
    pub(crate) fn resting_since(&self) -> Option<Instant> {
        (self.is_quiet() && self.session.is_resting()).then_some(self.received)
    }

    /// Returns the time of the last activity, if nothing is in progress for the client.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        (self.is_quiet() && !self.session.has_begun()).then_some(self.received)
    }

    /// Returns the time of the last activity, if the client owes the rest of a request, and is owed
    /// nothing.
    pub(crate) fn owing_since(&self) -> Option<Instant> {
        let owes = self.receiving && self.session.owes_bytes();
        (self.is_quiet() && owes).then_some(self.received)
    }

    fn is_quiet(&self) -> bool {
        self.state == State::Talking && self.sending == Sending::No && self.unsent.is_empty()
    }

    /// Returns the client that it is accounted to.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the key of that client.
    pub(crate) fn client(&self) -> ClientKey {
        self.client
    }

    /// Returns whether it has ended and is releasing its resources.
    pub(crate) fn is_ending(&self) -> bool {
        self.state == State::Ending
    }

    /// Returns whether the socket can be closed and the connection dropped.
    pub fn is_over(&self) -> bool {
        let quiet = !self.receiving && self.sending == Sending::No;
        self.state == State::Ending && quiet && self.session.is_over()
    }

    /// Submits operations at the end of a turn; returns whether memory is lacking for more
    /// requests.
    pub fn leave(&mut self, now: Instant, room: Room, ops: &mut Vec<Op>) -> bool {
        let all_sent = self.unsent.is_empty() && self.sending == Sending::No;
        if self.state == State::Talking && self.finish == Finish::Wanted && all_sent {
            ops.push(Op::Finish { socket: self.socket });
            self.finish = Finish::Done;
        }
        if self.state == State::Parting && all_sent {
            ops.push(Op::Hangup { socket: self.socket });
            self.state = State::Ending;
        }
        if self.state != State::Ending && self.sending == Sending::No && !self.unsent.is_empty() {
            let mut total = 0;
            let fits = |buf: &&Buf| {
                let fits = total < UNSENT_MAX;
                total += buf.len();
                fits
            };
            let count = self.unsent.iter().take(SEND_MAX).take_while(fits).count();
            let data: Vec<Buf> = self.unsent.drain(..count).collect();
            let bytes = data.iter().map(|buf| buf.len()).sum();
            assert!(bytes > 0, "a send sends something");
            self.sending = Sending::Yes { bytes, since: now };
            ops.push(Op::Send { id: self.id, socket: self.socket, data });
        }
        let wants = self.state == State::Talking && !self.receiving && self.session.is_hungry();
        let hungry = self.bytes() == 0 || room.lets_grow(self.bytes());
        if wants && hungry {
            self.receiving = true;
            let into = self.session.receive_into();
            ops.push(Op::Receive { id: self.id, socket: self.socket, into });
        }
        let owes = self.receiving && self.session.owes_bytes();
        self.debt.set(now, owes || self.sending != Sending::No);
        self.state == State::Talking && (wants && !hungry || self.session.lacks_room())
    }

    fn pass(&mut self, now: Instant, input: SessionInput, out: &mut Vec<Output>) {
        let mut from_session = mem::take(&mut self.from_session);
        self.session.step(now, input, &mut from_session);
        for output in from_session.drain(..) {
            match output {
                SessionOutput::Ask(call, request) => {
                    self.note_asked(now, call, out);
                    out.push(Output::Ask(call, request));
                }
                SessionOutput::Cancel(call) => out.push(Output::Cancel(call)),
                SessionOutput::Release(node) => out.push(Output::Release(node)),
                SessionOutput::Close(open) => out.push(Output::Close(open)),
                SessionOutput::Abandon(open) => out.push(Output::Abandon(open)),
                SessionOutput::Send(_) if self.state == State::Ending => {}
                SessionOutput::Send(buf) => self.unsent.push(buf),
                SessionOutput::Replied(kind) => out.push(Output::Replied(kind)),
                SessionOutput::Called(name, is_done) => out.push(Output::Called(name, is_done)),
                SessionOutput::Claim(call, key) => out.push(Output::Claim(call, key)),
                SessionOutput::Settle(key, reply) => out.push(Output::Settle(key, reply)),
                SessionOutput::Locks(caller, request) => out.push(Output::Locks(caller, request)),
                SessionOutput::Account(account) => out.push(Output::Account(account)),
                SessionOutput::Finish => self.finish = Finish::Wanted,
                SessionOutput::Hangup(_) if self.state == State::Ending => {}
                SessionOutput::Hangup(_) => self.state = State::Parting,
            }
        }
        self.from_session = from_session;
    }

    fn note_asked(&mut self, now: Instant, call: CallId, out: &mut Vec<Output>) {
        let index = call.0 as usize;
        if self.requested.len() <= index {
            self.requested.resize(index + 1, now);
        }
        self.requested[index] = now;
        out.push(Output::Staged(Stage::Made, now.since(self.received)));
    }

    /// Handles the loss of the client: nothing more can be sent.
    fn lose(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.state = State::Ending;
        self.unsent.clear();
        out.push(Output::Do(Op::Hangup { socket: self.socket }));
        self.pass(now, SessionInput::Lost, out);
    }

    fn sent(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Sending::Yes { bytes, since } = self.sending else {
            unreachable!("nothing was being sent");
        };
        self.sending = Sending::No;
        self.debt.pay(bytes);
        out.push(Output::Staged(Stage::Sent, now.since(since)));
        self.pass(now, SessionInput::Sent(bytes), out);
    }
}

impl Automaton for Connection {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin => {
                self.silent_until = Some(now + SILENCE_TIME);
                self.received = now;
            }
            Input::Received(result) => {
                assert!(self.receiving, "a receive ends once");
                self.receiving = false;
                self.silent_until = None;
                match (self.state, result) {
                    (State::Talking, Ok(bytes)) if !bytes.is_empty() => {
                        self.pass(now, SessionInput::Received(bytes), out);
                    }
                    (State::Talking, Ok(_end)) => self.pass(now, SessionInput::Ended, out),
                    (State::Talking | State::Parting, Err(_)) => self.lose(now, out),
                    (State::Parting | State::Ending, Ok(_)) | (State::Ending, Err(_)) => {}
                }
            }
            Input::Sent(Ok(())) => self.sent(now, out),
            Input::Sent(Err(_)) => {
                self.sent(now, out);
                if self.state != State::Ending {
                    self.lose(now, out);
                }
            }
            Input::Answered(call, reply) => {
                let requested = self.requested.get(call.0 as usize).copied().unwrap_or(now);
                out.push(Output::Staged(Stage::Answered, now.since(requested)));
                self.pass(now, SessionInput::Answered(call, reply), out);
            }
            Input::Claimed(call, claim) => {
                self.pass(now, SessionInput::Claimed(call, claim), out);
            }
            Input::Locks(reply) => self.pass(now, SessionInput::Locks(reply), out),
            Input::Tick if self.silent_until.is_some_and(|until| until <= now) => {
                self.silent_until = None;
                self.lose(now, out);
            }
            Input::Tick => match self.sending {
                Sending::Yes { since, .. } if since + STALL_TIME <= now => self.lose(now, out),
                Sending::No | Sending::Yes { .. } => self.pass(now, SessionInput::Tick, out),
            },
            Input::Drain => self.pass(now, SessionInput::Drain, out),
            Input::Abort if self.state == State::Ending => {}
            Input::Abort => self.lose(now, out),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let stall = match self.sending {
            Sending::Yes { since, .. } if self.state != State::Ending => Some(since + STALL_TIME),
            Sending::Yes { .. } | Sending::No => None,
        };
        let silent = self.silent_until.filter(|_| self.state != State::Ending);
        self.session.deadline().into_iter().chain(stall).chain(silent).min()
    }

    fn check(&self) {
        if self.state == State::Ending {
            assert!(self.unsent.is_empty());
        }
        self.session.check();
        assert!(self.from_session.is_empty(), "all output of the session was handled");
        let gathered: usize = self.unsent.iter().map(|buf| buf.len()).sum();
        let sending = match self.sending {
            Sending::Yes { bytes, .. } => bytes,
            Sending::No => 0,
        };
        let session_bytes = self.session.unsent();
        assert!(gathered + sending <= session_bytes, "bytes sent are output of the session");
        let is_lost = self.state == State::Ending;
        assert!(is_lost || gathered + sending == session_bytes, "output is sent");
    }
}
