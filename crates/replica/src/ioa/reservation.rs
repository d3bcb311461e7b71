//! Reservations: two or more processes agree to perform one action together, and nobody waits for
//! somebody who waits.
//!
//! Who begins a combination asks its participants one after the other, in ascending order, for
//! their reservation. Whoever is busy refuses, and then all is given back, and the asker rests for
//! a random time that doubles from refusal to refusal. Reservations are never waited for, so there
//! is no circle of those who wait; rests differ, so those who refuse each other do not do it for
//! ever.
//!
//! What the paper (001, 3.3.5, figure 3.2) lacks is here: a reservation is given back if the action
//! is not enabled any more when it is granted, or when a participant is lost; the doubling begins
//! anew after each success, and has an end; and there may be several participants.
//!
#![doc = include_str!("reservation/states.md")]

use base::{Automaton, Instant};
use std::mem;

#[cfg(test)]
mod tests;

/// A rest is at most this often doubled.
pub const DOUBLINGS_MAX: u8 = 6;

/// What can happen to a process' reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This process wants to perform an action with these others, ascending. Only if it
    /// [may ask](Reservation::may_ask).
    Want(Vec<usize>),
    /// It has rested. Only while it [rests](Reservation::is_resting).
    Rested,
    /// This process gave us its reservation.
    Granted(usize),
    /// This process did not.
    Refused(usize),
    /// The action is performed here, and the participants were told. Only after [`Output::Hold`].
    Performed,
    /// The action is not enabled any more. Only after [`Output::Hold`].
    Withdrawn,
    /// This participant has performed its part.
    Done(usize),
    /// This process asks for our reservation.
    Asked(usize),
    /// Who has our reservation performs its action, and so did we.
    Joined(usize),
    /// Who has our reservation gives it back.
    Released(usize),
    /// This process has stopped; nothing more comes from it.
    Lost(usize),
}

/// What they can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask this process for its reservation.
    Ask(usize),
    /// All reservations are held: perform the action, if it is still enabled.
    Hold,
    /// Give this process its reservation back.
    Release(usize),
    /// Rest for a random time, of which the mean was doubled so often; [`Input::Rested`] follows.
    Rest(u8),
    /// Tell this process that it has our reservation.
    Grant(usize),
    /// Tell this process that it has not.
    Refuse(usize),
    /// Tell this process that we have performed our part.
    Finish(usize),
}

/// What a process is reserved for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Nothing: it waits for whoever asks first, itself or others.
    Free,
    /// Nothing, and it must not ask before it has rested.
    Resting,
    /// It waits for an answer of `others[granted]`; those before have given their reservation.
    Negotiating { others: Vec<usize>, granted: usize },
    /// It waits for the answer of `asked`, only to give everything back.
    Retreating { asked: usize, held: Vec<usize> },
    /// It has all reservations, and waits for its own action to be performed or withdrawn.
    Holding { others: Vec<usize> },
    /// Its action is performed; it waits for these to say that they have done their part.
    Engaged { missing: Vec<usize> },
    /// It waits for this process to begin its action, or to give the reservation back.
    Reserved { by: usize },
}

/// The reservation status of one process (paper 001, figure 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    state: State,
    /// How often it was refused since it last was not.
    refusals: u8,
}

impl Reservation {
    /// A process that is free.
    pub fn new() -> Reservation {
        Reservation { state: State::Free, refusals: 0 }
    }

    /// Whether [`Input::Want`] may come.
    pub fn may_ask(&self) -> bool {
        self.state == State::Free
    }

    /// Whether the process may perform regular actions: not between its part of a combination and
    /// those of the others, else the combination would not be atomic.
    pub fn may_act(&self) -> bool {
        !matches!(self.state, State::Engaged { .. })
    }

    /// Those with whom an action may be performed now.
    pub fn held(&self) -> Option<&[usize]> {
        match &self.state {
            State::Holding { others } => Some(others),
            State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Retreating { .. }
            | State::Engaged { .. }
            | State::Reserved { .. } => None,
        }
    }

    /// Whose this process is.
    pub fn reserved_by(&self) -> Option<usize> {
        match self.state {
            State::Reserved { by } => Some(by),
            State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Retreating { .. }
            | State::Holding { .. }
            | State::Engaged { .. } => None,
        }
    }

    /// Whether it rests.
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
                release(&others[..granted], out);
                self.rest(out)
            }
            (State::Retreating { asked, mut held }, Input::Granted(_)) => {
                held.push(asked);
                release(&held, out);
                self.rest(out)
            }
            (State::Retreating { held, .. }, Input::Refused(_)) => {
                release(&held, out);
                self.rest(out)
            }
            (State::Holding { others }, Input::Performed) => {
                self.refusals = 0;
                State::Engaged { missing: others }
            }
            (State::Holding { others }, Input::Withdrawn) => {
                release(&others, out);
                State::Free
            }
            (State::Engaged { missing }, Input::Done(by)) => without(missing, by),
            (State::Free | State::Resting, Input::Asked(by)) => {
                out.push(Output::Grant(by));
                State::Reserved { by }
            }
            (
                state @ (State::Negotiating { .. }
                | State::Retreating { .. }
                | State::Holding { .. }
                | State::Engaged { .. }
                | State::Reserved { .. }),
                Input::Asked(by),
            ) => {
                out.push(Output::Refuse(by));
                state
            }
            (State::Reserved { by }, Input::Joined(_)) => {
                out.push(Output::Finish(by));
                State::Free
            }
            (State::Reserved { .. }, Input::Released(_)) => State::Free,
            (state, Input::Lost(other)) => self.lose(state, other, out),
            // Each answer comes once, to a process that waits for it; what must be allowed is asked
            // for before.
            (
                state,
                input @ (Input::Want(_)
                | Input::Rested
                | Input::Granted(_)
                | Input::Refused(_)
                | Input::Performed
                | Input::Withdrawn
                | Input::Done(_)
                | Input::Joined(_)
                | Input::Released(_)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn check(&self) {
        match &self.state {
            State::Free | State::Resting | State::Retreating { .. } | State::Reserved { .. } => {}
            State::Negotiating { others, granted } => assert!(*granted < others.len()),
            State::Holding { others: several } | State::Engaged { missing: several } => {
                assert!(several.is_sorted() && !several.is_empty());
            }
        }
    }
}

impl Reservation {
    fn rest(&mut self, out: &mut Vec<Output>) -> State {
        out.push(Output::Rest(self.refusals));
        self.refusals = (self.refusals + 1).min(DOUBLINGS_MAX);
        State::Resting
    }

    /// Somebody is gone: whatever was agreed with it is void.
    fn lose(&mut self, state: State, other: usize, out: &mut Vec<Output>) -> State {
        match state {
            State::Reserved { by } if by == other => State::Free,
            State::Negotiating { others, granted } if others[granted] == other => {
                release(&others[..granted], out);
                self.rest(out)
            }
            State::Negotiating { mut others, granted } if others[..granted].contains(&other) => {
                let asked = others[granted];
                others.truncate(granted);
                State::Retreating { asked, held: except(others, other) }
            }
            State::Retreating { asked, held } if asked == other => {
                release(&held, out);
                self.rest(out)
            }
            State::Retreating { asked, held } => {
                State::Retreating { asked, held: except(held, other) }
            }
            State::Holding { others } if others.contains(&other) => {
                release(&except(others, other), out);
                self.rest(out)
            }
            State::Engaged { missing } => without(missing, other),
            state @ (State::Free
            | State::Resting
            | State::Negotiating { .. }
            | State::Holding { .. }
            | State::Reserved { .. }) => state,
        }
    }
}

/// `granted` of them have given their reservation; asks the next, or has them all.
fn ask_next(others: Vec<usize>, granted: usize, out: &mut Vec<Output>) -> State {
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

fn without(missing: Vec<usize>, by: usize) -> State {
    let missing = except(missing, by);
    if missing.is_empty() { State::Free } else { State::Engaged { missing } }
}

fn except(mut several: Vec<usize>, one: usize) -> Vec<usize> {
    several.retain(|other| *other != one);
    several
}

fn release(others: &[usize], out: &mut Vec<Output>) {
    out.extend(others.iter().map(|other| Output::Release(*other)));
}
