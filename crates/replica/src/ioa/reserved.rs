//! Input/output combinations made of messages: the target program of the paper (001, 3.3.4).
//!
//! A part performs an action together with others only when it holds the reservations of all. What
//! was enabled when it asked need not be any more when it is granted, so the action is chosen anew
//! then, and if there is none the reservations go back.

use super::reservation::{Input, Output, Reservation};
use super::{Heard, IoAutomaton, Part, Said};
use base::{Automaton, Instant};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What reserved parts say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Talk<M> {
    /// "I want to perform an action with you."
    Ask,
    /// "You have my reservation."
    Grant,
    /// "You do not get it."
    Refuse,
    /// "I do not need it."
    Release,
    /// "I have performed my part; this is yours."
    Join {
        /// What it is.
        message: M,
        /// Whether nobody else takes part.
        alone: bool,
    },
    /// "I have performed my part, too."
    Done,
    /// "So have all others."
    Over,
}

/// A transition of a reserved part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deed<A> {
    /// Something that is to be said is said.
    Say,
    /// It has rested.
    Rest,
    /// It asks for the reservations of these others.
    Want(Vec<usize>),
    /// It gives back what it has no use for.
    Withdraw,
    /// It performs an action with those whose reservations it has.
    Perform(A),
    /// It performs an action that concerns nobody else.
    Regular(A),
}

/// The tasks that are not the part's own: [`Deed::Say`], [`Deed::Rest`], [`Deed::Withdraw`].
const TASKS: usize = 3;

/// A part whose combinations are negotiated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reserved<P: Part> {
    part: P,
    status: Reservation,
    to_say: VecDeque<(usize, Talk<P::Message>)>,
    /// What was said from outside while a combination is under way: it comes behind that.
    deferred: VecDeque<P::Request>,
    /// How often the mean of the present rest is doubled.
    doublings: u8,
    /// As the paper has it: what is held is kept until there is use for it, for ever if there is
    /// not.
    keeps: bool,
}

impl<P: Part> Reserved<P> {
    /// A part in its initial state.
    pub fn new(part: P) -> Reserved<P> {
        let (status, to_say, deferred) = (Reservation::new(), VecDeque::new(), VecDeque::new());
        Reserved { part, status, to_say, deferred, doublings: 0, keeps: false }
    }

    /// The same by the letter of the paper (001, 3.3.5), without release: for checkers, which must
    /// find what is wrong with it.
    pub fn as_printed(part: P) -> Reserved<P> {
        Reserved { keeps: true, ..Reserved::new(part) }
    }

    /// The part, to look at.
    pub fn part(&self) -> &P {
        &self.part
    }

    /// Its reservations, to look at.
    pub fn status(&self) -> &Reservation {
        &self.status
    }

    /// How often the mean of its rest is doubled, if it rests: whoever runs it in time draws how
    /// long, and holds [`Deed::Rest`] back so long. Who grants a reservation meanwhile rests no
    /// more: somebody got ahead.
    pub fn rest(&self) -> Option<u8> {
        self.status.is_resting().then_some(self.doublings)
    }

    fn advance(&mut self, input: Input) {
        let mut out = Vec::new();
        self.status.step(Instant(0), input, &mut out);
        self.status.check();
        for output in out {
            match output {
                Output::Ask(to) => self.to_say.push_back((to, Talk::Ask)),
                Output::Release(to) => self.to_say.push_back((to, Talk::Release)),
                Output::Grant(to) => self.to_say.push_back((to, Talk::Grant)),
                Output::Refuse(to) => self.to_say.push_back((to, Talk::Refuse)),
                Output::Finish(to) => self.to_say.push_back((to, Talk::Done)),
                Output::Dismiss(to) => self.to_say.push_back((to, Talk::Over)),
                Output::Rest(doublings) => self.doublings = doublings,
                // What is held is seen in the status.
                Output::Hold => {}
            }
        }
        while self.status.may_act()
            && let Some(request) = self.deferred.pop_front()
        {
            self.part.input(Heard::Outside(request));
        }
        assert!(self.deferred.is_empty() || !self.status.may_act(), "who may act hears everybody");
    }

    /// The enabled actions of the part, of one of its tasks.
    fn of_part(&self, task: usize) -> Vec<P::Action> {
        let mut actions = Vec::new();
        self.part.enabled(task, &mut actions);
        actions
    }

    /// Whether the part has an enabled action with these participants.
    fn has_use_for(&self, held: &[usize]) -> bool {
        let mut tasks = 0..self.part.tasks();
        tasks.any(|task| {
            self.of_part(task).iter().any(|action| self.part.participants(action) == held)
        })
    }

    fn enabled_of_part(&self, task: usize, deeds: &mut Vec<Deed<P::Action>>) {
        for action in self.of_part(task) {
            let others = self.part.participants(&action);
            if others.is_empty() {
                if self.status.may_act() {
                    deeds.push(Deed::Regular(action));
                }
            } else if self.status.may_ask() {
                deeds.push(Deed::Want(others));
            } else if self.status.held() == Some(&others[..]) && self.to_say.is_empty() {
                deeds.push(Deed::Perform(action));
            }
        }
    }
}

impl<P: Part> IoAutomaton for Reserved<P> {
    type Input = Heard<Talk<P::Message>, P::Request>;
    type Action = Deed<P::Action>;
    type Output = Said<Talk<P::Message>, P::Answer>;

    fn tasks(&self) -> usize {
        TASKS + self.part.tasks()
    }

    fn enabled(&self, task: usize, deeds: &mut Vec<Self::Action>) {
        match task {
            0 => deeds.extend((!self.to_say.is_empty()).then_some(Deed::Say)),
            1 => deeds.extend(self.status.is_resting().then_some(Deed::Rest)),
            2 => {
                let useless = self.status.held().is_some_and(|held| !self.has_use_for(held));
                deeds.extend((useless && !self.keeps).then_some(Deed::Withdraw));
            }
            TASKS.. => self.enabled_of_part(task - TASKS, deeds),
        }
    }

    fn transition(&mut self, deed: Self::Action) -> Option<Self::Output> {
        match deed {
            Deed::Say => {
                let (to, talk) = self.to_say.pop_front().expect("it was enabled");
                return Some(Said::To(vec![to], talk));
            }
            Deed::Rest => self.advance(Input::Rested),
            Deed::Want(others) => self.advance(Input::Want(others)),
            Deed::Withdraw => self.advance(Input::Withdrawn),
            Deed::Perform(action) => {
                let held = self.status.held().unwrap_or_default().to_vec();
                let Some(Said::To(others, message)) = self.part.transition(action) else {
                    unreachable!("a combination says something to its participants")
                };
                assert!(others == held, "it has other participants than it said");
                self.advance(Input::Performed);
                let alone = others.len() == 1;
                return Some(Said::To(others, Talk::Join { message, alone }));
            }
            Deed::Regular(action) => match self.part.transition(action)? {
                Said::Outside(answer) => return Some(Said::Outside(answer)),
                Said::To(..) => unreachable!("a regular action says nothing to others"),
            },
        }
        None
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::Outside(request) if self.status.may_act() => {
                self.part.input(Heard::Outside(request));
            }
            Heard::Outside(request) => self.deferred.push_back(request),
            Heard::Lost(other) => {
                self.to_say.retain(|(to, _)| *to != other);
                self.part.input(Heard::Lost(other));
                self.advance(Input::Lost(other));
            }
            Heard::From(from, Talk::Ask) => self.advance(Input::Asked(from)),
            Heard::From(from, Talk::Grant) => self.advance(Input::Granted(from)),
            Heard::From(from, Talk::Refuse) => self.advance(Input::Refused(from)),
            Heard::From(from, Talk::Release) => self.advance(Input::Released(from)),
            Heard::From(from, Talk::Done) => self.advance(Input::Done(from)),
            Heard::From(by, Talk::Join { message, alone }) => {
                self.part.input(Heard::From(by, message));
                self.advance(Input::Joined { by, alone });
            }
            Heard::From(from, Talk::Over) => self.advance(Input::Over(from)),
        }
    }
}

impl<P: Part> Part for Reserved<P> {
    type Message = Talk<P::Message>;
    type Request = P::Request;
    type Answer = P::Answer;

    /// Nobody: what reserved parts say travels through channels.
    fn participants(&self, _deed: &Self::Action) -> Vec<usize> {
        Vec::new()
    }
}
