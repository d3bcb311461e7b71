//! Reservations: two or more processes agree to perform one action together, without deadlock.
//!
//! The initiator of a combination requests the reservations of its participants one after the
//! other, in ascending order. A busy process refuses; the initiator then releases everything and
//! backs off (*rests*) for a random time with a mean that doubles from refusal to refusal. No
//! process waits for a reservation to become free, so there is no circular wait; and random rests
//! differ, so that processes do not refuse each other forever.
//!
//! Corrections to the paper (001, 3.3.5, figure 3.2): a reservation is released if the action is no
//! longer enabled when it is granted, or when a participant is lost; the doubling restarts after
//! each success, and is bounded; and there may be several participants, which act again only when
//! all have performed their part. Otherwise one of them could reveal an action that another has yet
//! to perform.
//!
//! Processes that stop: [`Input::Lost`] follows everything that the lost process sent, and precedes
//! its messages after the restart. An action interrupted by a stop may be performed by only some of
//! its participants; a composition of such processes must tolerate that.
//!
#![doc = include_str!("reservation/states.md")]

use base::{Automaton, Instant};
use std::mem;

#[cfg(test)]
mod tests;

/// Maximum doublings of a rest.
pub const DOUBLINGS_MAX: u8 = 6;

/// Event at a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The process wants to perform an action with these others, ascending. Only if it
    /// [may ask](Reservation::may_ask).
    Want(Vec<usize>),
    /// The rest has ended. Only while it [rests](Reservation::is_resting).
    Rested,
    /// This process granted its reservation to us.
    Granted(usize),
    /// This process refused.
    Refused(usize),
    /// The action is performed here, and sent to the participants. Only after [`Output::Hold`].
    Performed,
    /// The action is no longer enabled. Only after [`Output::Hold`].
    Withdrawn,
    /// This participant has performed its part.
    Done(usize),
    /// This process requests our reservation.
    Requested(usize),
    /// The holder of our reservation performed its action, and we performed our part.
    Joined {
        /// Holder of our reservation.
        by: usize,
        /// Whether there are no other participants.
        alone: bool,
    },
    /// All participants have performed their parts.
    Over(usize),
    /// The holder of our reservation releases it.
    Released(usize),
    /// This process has stopped, and sends nothing more.
    Lost(usize),
}

/// Effect requested by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Request the reservation of this process.
    Ask(usize),
    /// All reservations are held: perform the action, if it is still enabled.
    Hold,
    /// Release the reservation of this process.
    Release(usize),
    /// Rest for a random time with a mean doubled this many times; [`Input::Rested`] follows.
    Rest(u8),
    /// Grant our reservation to this process.
    Grant(usize),
    /// Refuse our reservation to this process.
    Refuse(usize),
    /// Report to this process that our part is performed.
    Finish(usize),
    /// Report to this process that all parts are performed.
    Dismiss(usize),
}

/// Reservation state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Waiting for the first request, its own or another's.
    Free,
    /// Waiting for the end of its rest; it may still grant its reservation.
    Resting,
    /// Waiting for the reply of `others[granted]`; those before have granted.
    Negotiating { others: Vec<usize>, granted: usize },
    /// Waiting for the reply of `asked`, after which everything is released.
    Retreating { requested: usize, held: Vec<usize> },
    /// Holding all reservations, and waiting for its own action to be performed or withdrawn.
    Holding { others: Vec<usize> },
    /// Waiting for the `missing` participants to perform their parts of its action; afterwards it
    /// notifies `dismiss`.
    Engaged { dismiss: Vec<usize>, missing: Vec<usize> },
    /// Waiting for the other participants of this process's action; its own part is performed.
    Joined { by: usize },
    /// Waiting for this process to perform its action, or to release the reservation.
    Reserved { by: usize },
}

/// Reservation status of one process (paper 001, figure 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    state: State,
    /// Refusals since the last success, at most [`DOUBLINGS_MAX`].
    refusals: u8,
}

impl Reservation {
    /// Creates a free process.
    pub fn new() -> Reservation {
        Reservation { state: State::Free, refusals: 0 }
    }

    /// Reports whether [`Input::Want`] is permitted.
    pub fn may_ask(&self) -> bool {
        self.state == State::Free
    }

    /// Reports whether regular actions are permitted. They are not between the process's part of a
    /// combination and the parts of the others: the combination would not be atomic.
    pub fn may_act(&self) -> bool {
        !matches!(self.state, State::Engaged { .. } | State::Joined { .. })
    }

    /// Returns the processes with which an action may be performed now.
    pub fn held(&self) -> Option<&[usize]> {
        match &self.state {
            State::Holding { others } => Some(others),
            State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Retreating { .. }
            | State::Engaged { .. }
            | State::Joined { .. }
            | State::Reserved { .. } => None,
        }
    }

    /// Returns the processes whose reservations are held.
    pub fn granted(&self) -> &[usize] {
        match &self.state {
            State::Negotiating { others, granted } => &others[..*granted],
            State::Retreating { held, .. } => held,
            State::Holding { others } => others,
            State::Free
            | State::Resting
            | State::Engaged { .. }
            | State::Joined { .. }
            | State::Reserved { .. } => &[],
        }
    }

    /// Returns the holder of this process's reservation.
    pub fn reserved_by(&self) -> Option<usize> {
        match self.state {
            State::Reserved { by } => Some(by),
            State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Retreating { .. }
            | State::Holding { .. }
            | State::Joined { .. }
            | State::Engaged { .. } => None,
        }
    }

    /// Reports whether the process rests.
    pub fn is_resting(&self) -> bool {
        self.state == State::Resting
    }
}

impl Default for Reservation {
    fn default() -> Reservation {
        Reservation::new()
    }
}

impl Automaton for Reservation {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        assert!(self.expects(&input), "{input:?} comes from somebody else: {self:?}");
        let state = mem::replace(&mut self.state, State::Free);
        self.state = match (state, input) {
            (State::Free, Input::Want(others)) => {
                out.push(Output::Ask(others[0]));
                State::Negotiating { others, granted: 0 }
            }
            (State::Resting, Input::Rested) => State::Free,
            (State::Negotiating { others, granted }, Input::Granted(_)) => {
                ask_next(others, granted + 1, out)
            }
            (State::Negotiating { others, granted }, Input::Refused(_)) => {
                self.retreat(&others[..granted], out)
            }
            (State::Retreating { requested, mut held }, Input::Granted(_)) => {
                held.push(requested);
                self.retreat(&held, out)
            }
            (State::Retreating { held, .. }, Input::Refused(_)) => self.retreat(&held, out),
            (State::Holding { others }, Input::Performed) => {
                self.refusals = 0;
                let dismiss = if others.len() > 1 { others.clone() } else { Vec::new() };
                State::Engaged { dismiss, missing: others }
            }
            (State::Holding { others }, Input::Withdrawn) => {
                release(&others, out);
                State::Free
            }
            (State::Engaged { dismiss, missing }, Input::Done(by)) => {
                done(dismiss, except(missing, by), out)
            }
            (State::Free | State::Resting, Input::Requested(by)) => {
                out.push(Output::Grant(by));
                State::Reserved { by }
            }
            // All other states are reserved, or wait for another process.
            (state, Input::Requested(by)) => {
                out.push(Output::Refuse(by));
                state
            }
            (State::Reserved { by }, Input::Joined { alone, .. }) => {
                out.push(Output::Finish(by));
                if alone { State::Free } else { State::Joined { by } }
            }
            (State::Joined { .. }, Input::Over(_))
            | (State::Reserved { .. }, Input::Released(_)) => State::Free,
            (state, Input::Lost(other)) => self.lose(state, other, out),
            // Each reply comes once, to a process that waits for it; permissions are checked by the
            // caller.
            (
                state,
                input @ (Input::Want(_)
                | Input::Rested
                | Input::Granted(_)
                | Input::Refused(_)
                | Input::Performed
                | Input::Withdrawn
                | Input::Done(_)
                | Input::Joined { .. }
                | Input::Over(_)
                | Input::Released(_)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn check(&self) {
        let several = |others: &[usize]| others.is_sorted() && !others.is_empty();
        match &self.state {
            State::Free | State::Resting | State::Reserved { .. } | State::Joined { .. } => {}
            State::Negotiating { others, granted } => {
                assert!(several(others) && *granted < others.len());
            }
            State::Retreating { requested, held } => {
                assert!(held.is_sorted() && !held.contains(requested));
            }
            State::Holding { others } => assert!(several(others)),
            State::Engaged { dismiss, missing } => {
                assert!(several(missing) && dismiss.is_sorted());
            }
        }
    }
}

impl Reservation {
    /// Reports whether an input comes from the expected process.
    fn expects(&self, input: &Input) -> bool {
        match (&self.state, input) {
            (State::Negotiating { others, granted }, Input::Granted(by) | Input::Refused(by)) => {
                others[*granted] == *by
            }
            (State::Retreating { requested, .. }, Input::Granted(by) | Input::Refused(by)) => {
                requested == by
            }
            (State::Engaged { missing, .. }, Input::Done(by)) => missing.contains(by),
            (State::Reserved { by: owner }, Input::Joined { by, .. } | Input::Released(by))
            | (State::Joined { by: owner }, Input::Over(by)) => owner == by,
            // The transition decides whether they are permitted at all.
            (_, Input::Granted(_) | Input::Refused(_) | Input::Done(_) | Input::Released(_))
            | (_, Input::Joined { .. } | Input::Over(_) | Input::Want(_) | Input::Rested)
            | (_, Input::Performed | Input::Withdrawn | Input::Requested(_) | Input::Lost(_)) => {
                true
            }
        }
    }

    /// Releases the held reservations, and rests.
    fn retreat(&mut self, held: &[usize], out: &mut Vec<Output>) -> State {
        assert!(self.refusals <= DOUBLINGS_MAX, "a rest is doubled so often at most");
        release(held, out);
        out.push(Output::Rest(self.refusals));
        self.refusals = (self.refusals + 1).min(DOUBLINGS_MAX);
        State::Resting
    }

    /// Voids all agreements with a lost process.
    fn lose(&mut self, state: State, other: usize, out: &mut Vec<Output>) -> State {
        match state {
            State::Reserved { by } | State::Joined { by } if by == other => State::Free,
            State::Negotiating { others, granted } if others[granted] == other => {
                self.retreat(&others[..granted], out)
            }
            State::Negotiating { mut others, granted } if others[..granted].contains(&other) => {
                let requested = others[granted];
                others.truncate(granted);
                State::Retreating { requested, held: except(others, other) }
            }
            State::Retreating { requested, held } if requested == other => self.retreat(&held, out),
            State::Retreating { requested, held } => {
                State::Retreating { requested, held: except(held, other) }
            }
            State::Holding { others } if others.contains(&other) => {
                self.retreat(&except(others, other), out)
            }
            State::Engaged { dismiss, missing } => {
                done(except(dismiss, other), except(missing, other), out)
            }
            state @ (State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Holding { .. }
            | State::Joined { .. }
            | State::Reserved { .. }) => state,
        }
    }
}

/// Records `granted` reservations; requests the next, or holds them all.
fn ask_next(others: Vec<usize>, granted: usize, out: &mut Vec<Output>) -> State {
    assert!(granted <= others.len(), "each gives its reservation once");
    match others.get(granted) {
        Some(next) => {
            out.push(Output::Ask(*next));
            State::Negotiating { others, granted }
        }
        None => {
            out.push(Output::Hold);
            State::Holding { others }
        }
    }
}

/// Waits for the missing participants; if there are none, notifies all in `dismiss`.
fn done(dismiss: Vec<usize>, missing: Vec<usize>, out: &mut Vec<Output>) -> State {
    assert!(
        missing.iter().all(|one| dismiss.is_empty() || dismiss.contains(one)),
        "all are notified"
    );
    if !missing.is_empty() {
        return State::Engaged { dismiss, missing };
    }
    out.extend(dismiss.iter().map(|other| Output::Dismiss(*other)));
    State::Free
}

fn except(mut several: Vec<usize>, one: usize) -> Vec<usize> {
    several.retain(|other| *other != one);
    several
}

fn release(others: &[usize], out: &mut Vec<Output>) {
    out.extend(others.iter().map(|other| Output::Release(*other)));
}
