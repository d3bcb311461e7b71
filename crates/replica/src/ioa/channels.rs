//! Composition by channels: what one part says to another is on its way for a while.

use super::combined::enabled_of;
use super::{Heard, IoAutomaton, Part, Said};
use std::collections::VecDeque;

/// What a channel may do to what is on its way. The best: everything arrives once, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Discipline {
    /// Another than the oldest message may arrive next.
    pub reorders: bool,
    /// A message may never arrive.
    pub loses: bool,
    /// A message may arrive again, as long as there is only one on its way.
    pub duplicates: bool,
}

/// A transition of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Move<A> {
    /// A part performs an action of its own.
    Local(usize, A),
    /// A message arrives.
    Deliver {
        /// Who said it.
        from: usize,
        /// Who hears it.
        to: usize,
        /// Its place in the channel; 0 is the oldest.
        index: usize,
    },
    /// A message arrives, and will again.
    Duplicate {
        /// Who said it.
        from: usize,
        /// Who hears it.
        to: usize,
    },
    /// A message is lost.
    Lose {
        /// Who said it.
        from: usize,
        /// Who does not hear it.
        to: usize,
    },
}

/// Parts with a channel from each to each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channelled<P: Part> {
    parts: Vec<P>,
    /// By sender, then by receiver.
    channels: Vec<VecDeque<P::Message>>,
    discipline: Discipline,
}

impl<P: Part> Channelled<P> {
    /// Parts in their initial states; their indices are their names.
    pub fn new(parts: Vec<P>, discipline: Discipline) -> Channelled<P> {
        assert!(!parts.is_empty(), "a composition has parts");
        let channels = (0..parts.len() * parts.len()).map(|_| VecDeque::new()).collect();
        Channelled { parts, channels, discipline }
    }

    /// The parts, to look at.
    pub fn parts(&self) -> &[P] {
        &self.parts
    }

    /// What is on its way, oldest first.
    pub fn channel(&self, from: usize, to: usize) -> &VecDeque<P::Message> {
        &self.channels[from * self.parts.len() + to]
    }

    /// Everything that is on its way.
    pub fn on_their_way(&self) -> impl Iterator<Item = &P::Message> {
        self.channels.iter().flatten()
    }

    /// The most messages that are on their way in one channel.
    pub fn longest(&self) -> usize {
        self.channels.iter().map(VecDeque::len).max().unwrap_or(0)
    }

    fn channel_mut(&mut self, from: usize, to: usize) -> &mut VecDeque<P::Message> {
        &mut self.channels[from * self.parts.len() + to]
    }

    /// A part stops and begins anew as `part`. What it said and what was said to it is lost.
    pub fn replace(&mut self, at: usize, part: P) {
        assert!(at < self.parts.len(), "a part is replaced that is there");
        self.parts[at] = part;
        for other in (0..self.parts.len()).filter(|other| *other != at) {
            self.channel_mut(at, other).clear();
            self.channel_mut(other, at).clear();
            self.parts[other].input(Heard::Lost(at));
        }
    }

    fn enabled_of_channel(&self, index: usize, moves: &mut Vec<Move<P::Action>>) {
        let (from, to) = (index / self.parts.len(), index % self.parts.len());
        let waiting = self.channels[index].len();
        let deliverable = if self.discipline.reorders { waiting } else { waiting.min(1) };
        moves.extend((0..deliverable).map(|index| Move::Deliver { from, to, index }));
        if self.discipline.duplicates && waiting == 1 {
            moves.push(Move::Duplicate { from, to });
        }
        if self.discipline.loses && waiting > 0 {
            moves.push(Move::Lose { from, to });
        }
    }

    fn deliver(&mut self, from: usize, to: usize, message: P::Message) {
        assert!(from < self.parts.len(), "a part has said it");
        self.parts[to].input(Heard::From(from, message));
    }
}

impl<P: Part> IoAutomaton for Channelled<P> {
    type Input = (usize, P::Request);
    type Action = Move<P::Action>;
    type Output = (usize, P::Answer);

    /// Those of all parts, then one for each channel.
    fn tasks(&self) -> usize {
        self.parts.iter().map(IoAutomaton::tasks).sum::<usize>() + self.channels.len()
    }

    fn enabled(&self, task: usize, moves: &mut Vec<Self::Action>) {
        let local = self.tasks() - self.channels.len();
        if task < local {
            enabled_of(&self.parts, task, |at, action| moves.push(Move::Local(at, action)));
        } else {
            self.enabled_of_channel(task - local, moves);
        }
    }

    fn transition(&mut self, action: Self::Action) -> Option<Self::Output> {
        match action {
            Move::Local(at, action) => match self.parts[at].transition(action)? {
                Said::Outside(answer) => return Some((at, answer)),
                Said::To(others, message) => {
                    for to in others {
                        assert!(to != at, "no part is told by itself");
                        self.channel_mut(at, to).push_back(message.clone());
                    }
                }
            },
            Move::Deliver { from, to, index } => {
                let message = self.channel_mut(from, to).remove(index).expect("it was enabled");
                self.deliver(from, to, message);
            }
            Move::Duplicate { from, to } => {
                let message = self.channel(from, to)[0].clone();
                self.deliver(from, to, message);
            }
            Move::Lose { from, to } => {
                let lost = self.channel_mut(from, to).pop_front();
                assert!(lost.is_some(), "it was enabled");
            }
        }
        None
    }

    fn input(&mut self, (at, request): Self::Input) {
        self.parts[at].input(Heard::Outside(request));
    }
}
