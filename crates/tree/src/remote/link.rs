//! The link: connects, negotiates a dialect, attaches, and reconnects after a loss.
//!
//! It retries for ever, with pauses from 50 ms that double up to 5 s and vary a little, so that the
//! clients of a restarted server do not all reconnect at once. An abandoned connection is shut down
//! first, and its socket closed when no operation is in flight on it.
//!
#![doc = include_str!("link/states.md")]

#[cfg(test)]
mod tests;

use base::op::Socket;
use base::rng::Rng;
use base::{Automaton, Error, Instant};
use session::Dialect;
use std::time::Duration;

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Timeout of connect, version and attach, each.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the version message on a server that has never replied: some do not reply to an
/// unknown version at all (go9p). It is shorter than the time that clients wait for a missing
/// server.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);

/// An input of the link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    /// Time has passed.
    Tick,
    /// Result of a connect.
    Connected(Result<Socket, Error>),
    /// The server has accepted this dialect.
    Agreed(Dialect),
    /// The server does not know the offered version.
    Unknown,
    /// The server has replied to the version message with an error.
    Refused,
    /// The server has accepted the attach, or refused it for one user.
    Attached,
    /// The connection is unusable, for this reason.
    Broken(&'static str),
    /// No operation is in flight on the socket.
    Idle,
    /// Shut the link down.
    Close,
}

/// An output of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Connect.
    Connect,
    /// Cancel the connect, which completes nevertheless.
    Cancel,
    /// Use this socket, and offer this dialect on it.
    Offer(Socket, Dialect),
    /// Attach.
    Attach(Dialect),
    /// Requests can be sent.
    Up,
    /// Outstanding messages will have no reply, for this reason.
    Lost(&'static str),
    /// Shut the connection down.
    Hangup(Socket),
    /// Close the socket.
    Release(Socket),
}

/// State of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waiting for the time of the next attempt.
    Down { until: Instant },
    /// Waiting for the connect.
    Connecting { until: Instant },
    /// Waiting for the end of a connect that timed out.
    Abandoning,
    /// Waiting for the reply to the version message.
    Version { socket: Socket, until: Instant, offered: Dialect },
    /// Waiting for the reply to the attach.
    Attaching { socket: Socket, until: Instant },
    /// Waiting for the loss of the connection.
    Up { socket: Socket },
    /// Shut down; waiting for the operations in flight on the socket.
    Parting { socket: Socket, until: Instant },
    /// Closing; waiting for the end of a connect.
    Ending,
    /// Closing and shut down; waiting for the operations in flight on the socket.
    Leaving { socket: Socket },
    /// Ended.
    Over,
}

/// Number of failures after which another server may have replaced the former one.
const STRANGER: u32 = 3;

/// The link of a remote tree.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: State,
    rng: Rng,
    /// Number of failures since the link was last up.
    failures: u32,
    /// Dialect to offer next.
    offer: Dialect,
    /// Whether a dialect was ever agreed on: otherwise the server may not know the offered version.
    met: bool,
    /// Number of connections left on which a server that accepts 9P2000 is offered 9P2000.L too,
    /// which it accepted before.
    better_offers: u8,
}

/// Number of connections on which a server may ignore the offer of a dialect that it accepted
/// before.
const BETTER_OFFERS: u8 = 2;

impl Link {
    /// Returns a link that connects at the first tick.
    pub(super) fn new(rng: Rng) -> Link {
        let state = State::Down { until: Instant(0) };
        Link { state, rng, failures: 0, offer: Dialect::Linux, met: false, better_offers: 0 }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Returns whether messages of the server are processed: none are on an abandoned connection.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Version { .. } | State::Attaching { .. } | State::Up { .. })
    }

    /// Returns the socket, which an abandoned connection has until it is released.
    pub(super) fn socket(&self) -> Option<Socket> {
        match self.state {
            State::Version { socket, .. }
            | State::Attaching { socket, .. }
            | State::Up { socket }
            | State::Parting { socket, .. }
            | State::Leaving { socket } => Some(socket),
            State::Down { .. }
            | State::Connecting { .. }
            | State::Abandoning
            | State::Ending
            | State::Over => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Returns the state's name.
    pub(super) fn name(&self) -> &'static str {
        match self.state {
            State::Down { .. } => "down",
            State::Connecting { .. } => "connecting",
            State::Abandoning => "abandoning",
            State::Version { .. } => "version",
            State::Attaching { .. } => "attaching",
            State::Up { .. } => "up",
            State::Parting { .. } => "parting",
            State::Ending => "ending",
            State::Leaving { .. } => "leaving",
            State::Over => "over",
        }
    }

    /// Returns the time of the next attempt.
    fn next_attempt(&mut self, now: Instant) -> Instant {
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let nanos = u64::try_from(pause.as_nanos()).expect("a few seconds");
        now + Duration::from_nanos(self.rng.u64(nanos / 2..=nanos))
    }

    fn down(&mut self, now: Instant) -> State {
        assert!(!matches!(self.state, State::Up { .. }), "a connection is parted with first");
        State::Down { until: self.next_attempt(now) }
    }

    fn part(
        &mut self,
        now: Instant,
        socket: Socket,
        why: &'static str,
        out: &mut Vec<Output>,
    ) -> State {
        out.extend([Output::Lost(why), Output::Hangup(socket)]);
        State::Parting { socket, until: self.next_attempt(now) }
    }

    /// Shuts the link down.
    fn close(state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Down { .. } | State::Over => State::Over,
            State::Connecting { .. } => {
                out.push(Output::Cancel);
                State::Ending
            }
            State::Abandoning | State::Ending => State::Ending,
            State::Version { socket, .. }
            | State::Attaching { socket, .. }
            | State::Up { socket } => {
                out.extend([Output::Lost("the server ends"), Output::Hangup(socket)]);
                State::Leaving { socket }
            }
            State::Parting { socket, .. } | State::Leaving { socket } => State::Leaving { socket },
        }
    }

    /// Handles an error reply: the offered dialect is not offered again.
    fn refused(
        &mut self,
        now: Instant,
        socket: Socket,
        offered: Dialect,
        out: &mut Vec<Output>,
    ) -> State {
        self.offer = other(offered);
        self.part(now, socket, "the server refused the dialect", out)
    }

    /// Handles a timeout: a server that never agreed may not know the offered version, and nor may
    /// one that has replaced another after several failures.
    fn unanswered(&mut self, now: Instant, socket: Socket, out: &mut Vec<Output>) -> State {
        let is_stranger = !self.met || self.failures >= STRANGER;
        if let (State::Version { offered, .. }, true) = (self.state, is_stranger) {
            self.offer = other(offered);
        }
        self.part(now, socket, "the server does not answer", out)
    }

    /// Handles an accepted version: attaches, or offers 9P2000.L to a server that accepted it
    /// before, and was offered 9P2000 only because of timeouts.
    fn agreed(
        &mut self,
        now: Instant,
        (socket, offered): (Socket, Dialect),
        dialect: Dialect,
        out: &mut Vec<Output>,
    ) -> State {
        self.met = true;
        if (offered, dialect) == (Dialect::Plan9, Dialect::Plan9) && self.better_offers > 0 {
            self.better_offers -= 1;
            out.push(Output::Offer(socket, Dialect::Linux));
            return State::Version { socket, until: now + TIMEOUT, offered: Dialect::Linux };
        }
        match (offered, dialect) {
            (_, Dialect::Linux) => self.better_offers = BETTER_OFFERS,
            (Dialect::Linux, Dialect::Plan9) => self.better_offers = 0,
            (Dialect::Plan9, Dialect::Plan9) => {}
        }
        out.push(Output::Attach(dialect));
        State::Attaching { socket, until: now + TIMEOUT }
    }

    /// Handles expired timeouts.
    fn tick(&mut self, now: Instant, state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Down { until } if now >= until => {
                out.push(Output::Connect);
                State::Connecting { until: now + TIMEOUT }
            }
            State::Connecting { until } if now >= until => {
                out.push(Output::Cancel);
                State::Abandoning
            }
            State::Version { socket, until, .. } | State::Attaching { socket, until }
                if now >= until =>
            {
                self.unanswered(now, socket, out)
            }
            state @ (State::Down { .. }
            | State::Connecting { .. }
            | State::Abandoning
            | State::Version { .. }
            | State::Attaching { .. }
            | State::Up { .. }
            | State::Parting { .. }
            | State::Ending
            | State::Leaving { .. }
            | State::Over) => state,
        }
    }

    fn timeout(&self) -> Duration {
        if self.met { TIMEOUT } else { FIRST_TIMEOUT }
    }
}

fn other(offered: Dialect) -> Dialect {
    match offered {
        Dialect::Linux => Dialect::Plan9,
        Dialect::Plan9 => Dialect::Linux,
    }
}

impl Automaton for Link {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.state = match (self.state, input) {
            (state, Input::Tick) => self.tick(now, state, out),
            (State::Connecting { .. }, Input::Connected(Ok(socket))) => {
                let offered = self.offer;
                out.push(Output::Offer(socket, offered));
                State::Version { socket, until: now + self.timeout(), offered }
            }
            (State::Connecting { .. }, Input::Connected(Err(_))) => self.down(now),
            (State::Abandoning, Input::Connected(connected)) => {
                out.extend(connected.ok().map(Output::Release));
                self.down(now)
            }
            (State::Version { socket, offered, .. }, Input::Agreed(dialect)) => {
                self.agreed(now, (socket, offered), dialect, out)
            }
            (State::Version { socket, offered: Dialect::Linux, until }, Input::Unknown) => {
                self.better_offers = 0;
                out.push(Output::Offer(socket, Dialect::Plan9));
                State::Version { socket, until, offered: Dialect::Plan9 }
            }
            (State::Version { socket, offered, .. }, Input::Unknown | Input::Refused) => {
                self.refused(now, socket, offered, out)
            }
            (State::Attaching { socket, .. }, Input::Attached) => {
                self.failures = 0;
                out.push(Output::Up);
                State::Up { socket }
            }
            (State::Up { socket }, Input::Broken(why)) => {
                if self.better_offers > 0 {
                    self.offer = Dialect::Linux;
                }
                self.part(now, socket, why, out)
            }
            (
                State::Version { socket, .. } | State::Attaching { socket, .. },
                Input::Broken(why),
            ) => self.part(now, socket, why, out),
            (State::Parting { socket, until }, Input::Idle) => {
                out.push(Output::Release(socket));
                State::Down { until }
            }
            (state, Input::Close) => Link::close(state, out),
            (State::Ending, Input::Connected(connected)) => {
                out.extend(connected.ok().map(Output::Release));
                State::Over
            }
            (State::Leaving { socket }, Input::Idle) => {
                out.push(Output::Release(socket));
                State::Over
            }
            // One more failure of an abandoned connection.
            (state, Input::Broken(_) | Input::Idle) => state,
            // There is one connect at a time, and version replies are valid in `Version` only.
            (
                state,
                input @ (Input::Connected(_)
                | Input::Agreed(_)
                | Input::Unknown
                | Input::Refused
                | Input::Attached),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down { until }
            | State::Connecting { until }
            | State::Version { until, .. }
            | State::Attaching { until, .. } => Some(until),
            State::Abandoning
            | State::Up { .. }
            | State::Parting { .. }
            | State::Ending
            | State::Leaving { .. }
            | State::Over => None,
        }
    }

    fn check(&self) {
        assert!(
            !self.is_up() || (self.met && self.failures == 0),
            "a connected link has negotiated: {self:?}"
        );
        let offers = matches!(self.state, State::Version { .. });
        assert!(offers || !matches!(self.state, State::Attaching { .. }) || self.met, "{self:?}");
    }
}
