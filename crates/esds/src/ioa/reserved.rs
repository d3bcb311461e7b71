//! Input/output combinations by messages: the target program of the paper (001, 3.3.4).
//!
//! A part performs a joint action only while it holds the reservations of all participants. An
//! action enabled at the request may be disabled when the reservations are granted, so the action
//! is chosen anew then; if there is none, the reservations are released.

use super::reservation::{Input, Output, Reservation};
use super::{IoAutomaton, Part, PartInput, PartOutput};
use base::{Automaton, Instant};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Message between reserved parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReservedMessage<M> {
    /// Requests the receiver's reservation.
    Ask,
    /// Grants the sender's reservation.
    Grant,
    /// Refuses the sender's reservation.
    Refuse,
    /// Releases the receiver's reservation.
    Release,
    /// The sender has performed its part of an action; the receiver performs its own.
    Join {
        /// Input of the receiver's part.
        message: M,
        /// Whether there are no other participants.
        alone: bool,
    },
    /// The sender has performed its part, too.
    Done,
    /// All participants have performed their parts.
    Over,
}

/// Transition of a reserved part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReservedAction<A> {
    /// Sends a queued message.
    Send,
    /// Ends its rest.
    Rest,
    /// Requests the reservations of these others.
    Want(Vec<usize>),
    /// Releases reservations that it cannot use.
    Withdraw,
    /// Performs an action with the processes whose reservations it holds.
    Perform(A),
    /// Performs an action without other participants.
    Regular(A),
}

/// Number of tasks beside those of the part: [`ReservedAction::Send`], [`ReservedAction::Rest`],
/// [`ReservedAction::Withdraw`].
const TASKS: usize = 3;

/// Part with negotiated combinations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reserved<P: Part> {
    part: P,
    status: Reservation,
    to_say: VecDeque<(usize, ReservedMessage<P::Message>)>,
    /// External requests received during a combination; they are delivered after it.
    deferred: VecDeque<P::Request>,
    /// Doublings of the mean of the current rest.
    doublings: u8,
    /// Whether held reservations are never released without use, as in the paper.
    keeps: bool,
}

impl<P: Part> Reserved<P> {
    /// Wraps a part in its initial state.
    pub fn new(part: P) -> Reserved<P> {
        let (status, to_say, deferred) = (Reservation::new(), VecDeque::new(), VecDeque::new());
        Reserved { part, status, to_say, deferred, doublings: 0, keeps: false }
    }

    /// Wraps a part as printed in the paper (001, 3.3.5), without release: for checkers, which must
    /// find the error.
    pub fn as_printed(part: P) -> Reserved<P> {
        Reserved { keeps: true, ..Reserved::new(part) }
    }

    /// Returns the part.
    pub fn part(&self) -> &P {
        &self.part
    }

    /// Returns its reservation status.
    pub fn status(&self) -> &Reservation {
        &self.status
    }

    /// Returns the doublings of the mean of its rest, if it rests. A driver in real time draws the
    /// duration, and delays [`ReservedAction::Rest`] by it. A part that grants a reservation
    /// meanwhile no longer rests, because another process makes progress.
    pub fn rest(&self) -> Option<u8> {
        self.status.is_resting().then_some(self.doublings)
    }

    fn advance(&mut self, input: Input) {
        let mut out = Vec::new();
        self.status.step(Instant(0), input, &mut out);
        self.status.check();
        for output in out {
            match output {
                Output::Ask(to) => self.to_say.push_back((to, ReservedMessage::Ask)),
                Output::Release(to) => self.to_say.push_back((to, ReservedMessage::Release)),
                Output::Grant(to) => self.to_say.push_back((to, ReservedMessage::Grant)),
                Output::Refuse(to) => self.to_say.push_back((to, ReservedMessage::Refuse)),
                Output::Finish(to) => self.to_say.push_back((to, ReservedMessage::Done)),
                Output::Dismiss(to) => self.to_say.push_back((to, ReservedMessage::Over)),
                Output::Rest(doublings) => self.doublings = doublings,
                // Held reservations are visible in the status.
                Output::Hold => {}
            }
        }
        while self.status.may_act()
            && let Some(request) = self.deferred.pop_front()
        {
            self.part.input(PartInput::Outside(request));
        }
        assert!(
            self.deferred.is_empty() || !self.status.may_act(),
            "an active part receives from all"
        );
    }

    /// Returns the enabled actions of one of the part's tasks.
    fn of_part(&self, task: usize) -> Vec<P::Action> {
        let mut actions = Vec::new();
        self.part.enabled(task, &mut actions);
        actions
    }

    /// Reports whether the part has an enabled action with exactly these participants.
    fn has_use_for(&self, held: &[usize]) -> bool {
        let mut tasks = 0..self.part.tasks();
        tasks.any(|task| {
            self.of_part(task).iter().any(|action| self.part.participants(action) == held)
        })
    }

    fn enabled_of_part(&self, task: usize, deeds: &mut Vec<ReservedAction<P::Action>>) {
        for action in self.of_part(task) {
            let others = self.part.participants(&action);
            if others.is_empty() {
                if self.status.may_act() {
                    deeds.push(ReservedAction::Regular(action));
                }
            } else if self.status.may_ask() {
                deeds.push(ReservedAction::Want(others));
            } else if self.status.held() == Some(&others[..]) && self.to_say.is_empty() {
                deeds.push(ReservedAction::Perform(action));
            }
        }
    }
}

impl<P: Part> IoAutomaton for Reserved<P> {
    type Input = PartInput<ReservedMessage<P::Message>, P::Request>;
    type Action = ReservedAction<P::Action>;
    type Output = PartOutput<ReservedMessage<P::Message>, P::Answer>;

    fn tasks(&self) -> usize {
        TASKS + self.part.tasks()
    }

    fn enabled(&self, task: usize, deeds: &mut Vec<Self::Action>) {
        match task {
            0 => deeds.extend((!self.to_say.is_empty()).then_some(ReservedAction::Send)),
            1 => deeds.extend(self.status.is_resting().then_some(ReservedAction::Rest)),
            2 => {
                let useless = self.status.held().is_some_and(|held| !self.has_use_for(held));
                deeds.extend((useless && !self.keeps).then_some(ReservedAction::Withdraw));
            }
            TASKS.. => self.enabled_of_part(task - TASKS, deeds),
        }
    }

    fn transition(&mut self, work: Self::Action) -> Option<Self::Output> {
        match work {
            ReservedAction::Send => {
                let (to, exchange) = self.to_say.pop_front().expect("it was enabled");
                return Some(PartOutput::To(vec![to], exchange));
            }
            ReservedAction::Rest => self.advance(Input::Rested),
            ReservedAction::Want(others) => self.advance(Input::Want(others)),
            ReservedAction::Withdraw => self.advance(Input::Withdrawn),
            ReservedAction::Perform(action) => {
                let held = self.status.held().unwrap_or_default().to_vec();
                let Some(PartOutput::To(others, message)) = self.part.transition(action) else {
                    unreachable!("a combination says something to its participants")
                };
                assert!(others == held, "the participants differ from the announced ones");
                self.advance(Input::Performed);
                let alone = others.len() == 1;
                return Some(PartOutput::To(others, ReservedMessage::Join { message, alone }));
            }
            ReservedAction::Regular(action) => match self.part.transition(action)? {
                PartOutput::Outside(answer) => return Some(PartOutput::Outside(answer)),
                PartOutput::To(..) => unreachable!("a regular action says nothing to others"),
            },
        }
        None
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            PartInput::Outside(request) if self.status.may_act() => {
                self.part.input(PartInput::Outside(request));
            }
            PartInput::Outside(request) => self.deferred.push_back(request),
            PartInput::Lost(other) => {
                self.to_say.retain(|(to, _)| *to != other);
                self.part.input(PartInput::Lost(other));
                self.advance(Input::Lost(other));
            }
            PartInput::From(from, ReservedMessage::Ask) => self.advance(Input::Requested(from)),
            PartInput::From(from, ReservedMessage::Grant) => self.advance(Input::Granted(from)),
            PartInput::From(from, ReservedMessage::Refuse) => self.advance(Input::Refused(from)),
            PartInput::From(from, ReservedMessage::Release) => self.advance(Input::Released(from)),
            PartInput::From(from, ReservedMessage::Done) => self.advance(Input::Done(from)),
            PartInput::From(by, ReservedMessage::Join { message, alone }) => {
                self.part.input(PartInput::From(by, message));
                self.advance(Input::Joined { by, alone });
            }
            PartInput::From(from, ReservedMessage::Over) => self.advance(Input::Over(from)),
        }
    }
}

impl<P: Part> Part for Reserved<P> {
    type Message = ReservedMessage<P::Message>;
    type Request = P::Request;
    type Answer = P::Answer;

    /// Always empty: messages of reserved parts travel through channels.
    fn participants(&self, _deed: &Self::Action) -> Vec<usize> {
        Vec::new()
    }
}
