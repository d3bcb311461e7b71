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
//! anew after each success, and has an end; and there may be several participants, who act again
//! only when all have performed their part: else one of them could tell of an action that another
//! has yet to perform.
//!
//! Processes that stop: [`Input::Lost`] comes behind everything that the lost process said, and
//! ahead of what it says when it has begun anew. An action during which a process stops may be
//! performed by some of its participants only; whoever composes such processes must be able to bear
//! that.
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
    /// Who has our reservation performs its action, and so did we; `alone`: nobody else takes part.
    Joined {
        /// Who has our reservation.
        by: usize,
        /// Whether nobody else takes part.
        alone: bool,
    },
    /// All who took part have done theirs.
    Over(usize),
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
    /// Tell this process that all have performed theirs.
    Dismiss(usize),
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
    /// Its action is performed; it waits for those that are missing to do their part. Then it
    /// dismisses those who wait for that.
    Engaged { dismiss: Vec<usize>, missing: Vec<usize> },
    /// It has performed its part of this process' action, and waits for the others to do theirs.
    Joined { by: usize },
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
        !matches!(self.state, State::Engaged { .. } | State::Joined { .. })
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
            | State::Joined { .. }
            | State::Reserved { .. } => None,
        }
    }

    /// Those who have given their reservation, and have not got it back.
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

    /// Whose this process is.
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
            (State::Retreating { asked, mut held }, Input::Granted(_)) => {
                held.push(asked);
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
            (State::Free | State::Resting, Input::Asked(by)) => {
                out.push(Output::Grant(by));
                State::Reserved { by }
            }
            // Everybody else is somebody's, or waits for somebody.
            (state, Input::Asked(by)) => {
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
            State::Retreating { asked, held } => {
                assert!(held.is_sorted() && !held.contains(asked));
            }
            State::Holding { others } => assert!(several(others)),
            State::Engaged { dismiss, missing } => {
                assert!(several(missing) && dismiss.is_sorted());
            }
        }
    }
}

impl Reservation {
    /// Whether what somebody says is said by whom it is to be said.
    fn expects(&self, input: &Input) -> bool {
        match (&self.state, input) {
            (State::Negotiating { others, granted }, Input::Granted(by) | Input::Refused(by)) => {
                others[*granted] == *by
            }
            (State::Retreating { asked, .. }, Input::Granted(by) | Input::Refused(by)) => {
                asked == by
            }
            (State::Engaged { missing, .. }, Input::Done(by)) => missing.contains(by),
            (State::Reserved { by: owner }, Input::Joined { by, .. } | Input::Released(by))
            | (State::Joined { by: owner }, Input::Over(by)) => owner == by,
            // Whether they may come at all is for the transition to say.
            (_, Input::Granted(_) | Input::Refused(_) | Input::Done(_) | Input::Released(_))
            | (_, Input::Joined { .. } | Input::Over(_) | Input::Want(_) | Input::Rested)
            | (_, Input::Performed | Input::Withdrawn | Input::Asked(_) | Input::Lost(_)) => true,
        }
    }

    /// Gives back what is held, and rests.
    fn retreat(&mut self, held: &[usize], out: &mut Vec<Output>) -> State {
        assert!(self.refusals <= DOUBLINGS_MAX, "a rest is doubled so often at most");
        release(held, out);
        out.push(Output::Rest(self.refusals));
        self.refusals = (self.refusals + 1).min(DOUBLINGS_MAX);
        State::Resting
    }

    /// Somebody is gone: whatever was agreed with it is void.
    fn lose(&mut self, state: State, other: usize, out: &mut Vec<Output>) -> State {
        match state {
            State::Reserved { by } | State::Joined { by } if by == other => State::Free,
            State::Negotiating { others, granted } if others[granted] == other => {
                self.retreat(&others[..granted], out)
            }
            State::Negotiating { mut others, granted } if others[..granted].contains(&other) => {
                let asked = others[granted];
                others.truncate(granted);
                State::Retreating { asked, held: except(others, other) }
            }
            State::Retreating { asked, held } if asked == other => self.retreat(&held, out),
            State::Retreating { asked, held } => {
                State::Retreating { asked, held: except(held, other) }
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

/// `granted` of them have given their reservation; asks the next, or has them all.
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

/// These are still missing; if none is, all who wait are told.
fn done(dismiss: Vec<usize>, missing: Vec<usize>, out: &mut Vec<Output>) -> State {
    assert!(missing.iter().all(|one| dismiss.is_empty() || dismiss.contains(one)), "all are told");
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
