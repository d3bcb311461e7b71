//! The link: connects, agrees on a dialect, attaches, and begins anew when it is lost.
//!
//! It tries for ever, with pauses from 50 ms that double up to 5 s and vary a little, so that many
//! clients of a server that was away do not all come back at once. A connection that is given up
//! is hung up first, and its socket given back when nothing is under way on it any more.
//!
#![doc = include_str!("link/states.md")]

#[cfg(test)]
mod tests;

use base::op::Socket;
use base::rng::Rng;
use base::{Automaton, Error, Instant};
use std::time::Duration;

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long connecting, agreeing and attaching may take, each.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server that was never heard may take to agree: some say nothing at all to an offer
/// that they do not know (go9p). It is less than clients wait for a server that is away.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// How the two sides speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 9P2000.L.
    Linux,
    /// 9P2000.
    Plan9,
}

/// What can happen to the link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    /// Time passed.
    Tick,
    /// Connecting ended.
    Connected(Result<Socket, Error>),
    /// The server speaks this dialect.
    Agreed(Dialect),
    /// The server does not know what was offered.
    Unknown,
    /// The server did not answer the offer but with an error.
    Refused,
    /// The server has let us in, or said why one user is not.
    Attached,
    /// The connection cannot be used any more.
    Broken(&'static str),
    /// Nothing is under way on the socket any more.
    Idle,
    /// It is not needed any more.
    Close,
}

/// What the link asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Connect.
    Connect,
    /// Stop connecting; it ends all the same.
    Cancel,
    /// Use this socket, and offer this dialect on it.
    Offer(Socket, Dialect),
    /// Attach.
    Attach(Dialect),
    /// Requests can be sent.
    Up,
    /// What was sent will not be answered.
    Lost(&'static str),
    /// End the connection.
    Hangup(Socket),
    /// Give the socket back.
    Release(Socket),
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for the time of the next attempt.
    Down { until: Instant },
    /// Waits for a connection.
    Connecting { until: Instant },
    /// Waits for the end of a connect that took too long.
    Abandoning,
    /// Waits for the server to agree on a dialect.
    Version { socket: Socket, until: Instant, offered: Dialect },
    /// Waits to be let in.
    Attaching { socket: Socket, until: Instant },
    /// Waits for the connection to break.
    Up { socket: Socket },
    /// Has hung up, and waits for what is under way on the socket.
    Parting { socket: Socket, until: Instant },
    /// Closing, and waits for the end of a connect.
    Ending,
    /// Closing, has hung up, and waits for what is under way on the socket.
    Leaving { socket: Socket },
    /// Waits for nothing any more.
    Over,
}

/// Failures after which a server may be another one than it was.
const STRANGER: u32 = 3;

/// The machine.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: State,
    rng: Rng,
    /// Failures since it was last up.
    failures: u32,
    /// What to offer next.
    offer: Dialect,
    /// Whether it ever agreed on a dialect: only who never did may not know what was offered.
    met: bool,
    /// Connections on which a server that agrees to 9P2000 is offered 9P2000.L too: it has agreed
    /// to that before.
    better_offers: u8,
}

/// Connections on which a server may leave the offer of what it knew before unanswered.
const BETTER_OFFERS: u8 = 2;

impl Link {
    /// A link that connects at the first opportunity.
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

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The state in one word.
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

    /// The time of the next attempt.
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

    /// It is not needed any more.
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

    /// An error for an answer: what was offered is not offered again.
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

    /// No answer: an offer may not have been known, by one that was never met or, after several
    /// failures, by one that has taken the place of another.
    fn unanswered(&mut self, now: Instant, socket: Socket, out: &mut Vec<Output>) -> State {
        let is_stranger = !self.met || self.failures >= STRANGER;
        if let (State::Version { offered, .. }, true) = (self.state, is_stranger) {
            self.offer = other(offered);
        }
        self.part(now, socket, "the server does not answer", out)
    }

    /// An answer: attaches, or offers 9P2000.L to a server that has known it, and that 9P2000 was
    /// offered to because it did not answer for a while.
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
            return State::Version { socket, until: now + PATIENCE, offered: Dialect::Linux };
        }
        match (offered, dialect) {
            (_, Dialect::Linux) => self.better_offers = BETTER_OFFERS,
            (Dialect::Linux, Dialect::Plan9) => self.better_offers = 0,
            (Dialect::Plan9, Dialect::Plan9) => {}
        }
        out.push(Output::Attach(dialect));
        State::Attaching { socket, until: now + PATIENCE }
    }

    /// Does what it is time for.
    fn tick(&mut self, now: Instant, state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Down { until } if now >= until => {
                out.push(Output::Connect);
                State::Connecting { until: now + PATIENCE }
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

    fn patience(&self) -> Duration {
        if self.met { PATIENCE } else { FIRST_PATIENCE }
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
                State::Version { socket, until: now + self.patience(), offered }
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
            // One more thing is wrong with a connection that is given up.
            (state, Input::Broken(_) | Input::Idle) => state,
            // One connect at a time; and only who waits for a server's first words hears them.
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
        assert!(!self.is_up() || (self.met && self.failures == 0), "who is up has met: {self:?}");
        let offers = matches!(self.state, State::Version { .. });
        assert!(offers || !matches!(self.state, State::Attaching { .. }) || self.met, "{self:?}");
    }
}
