//! Composition by channels: messages between parts are delivered after a delay.

use super::combined::enabled_of;
use super::{IoAutomaton, Part, PartInput, PartOutput};
use std::collections::VecDeque;

/// Faults permitted to a channel. By default every message arrives once, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Discipline {
    /// Messages may overtake older ones.
    pub reorders: bool,
    /// Messages may be lost.
    pub loses: bool,
    /// A message may be duplicated while it is the only one in the channel.
    pub duplicates: bool,
}

/// Transition of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Move<A> {
    /// A part performs an action of its own.
    Local(usize, A),
    /// Message delivery.
    Deliver {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Position in the channel; 0 is the oldest.
        index: usize,
    },
    /// Message delivery that leaves a copy in the channel.
    Duplicate {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// Message loss.
    Lose {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
}

/// Parts with a channel between each ordered pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channelled<P: Part> {
    parts: Vec<P>,
    /// Messages in flight, by sender, then by receiver.
    channels: Vec<VecDeque<P::Message>>,
    discipline: Discipline,
}

impl<P: Part> Channelled<P> {
    /// Composes parts in their initial states; they are identified by index.
    pub fn new(parts: Vec<P>, discipline: Discipline) -> Channelled<P> {
        assert!(!parts.is_empty(), "a composition has parts");
        let channels = (0..parts.len() * parts.len()).map(|_| VecDeque::new()).collect();
        Channelled { parts, channels, discipline }
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[P] {
        &self.parts
    }

    /// Returns the messages in flight on one channel, oldest first.
    pub fn channel(&self, from: usize, to: usize) -> &VecDeque<P::Message> {
        &self.channels[from * self.parts.len() + to]
    }

    /// Returns all messages in flight.
    pub fn on_their_way(&self) -> impl Iterator<Item = &P::Message> {
        self.channels.iter().flatten()
    }

    /// Returns the greatest number of messages in flight on one channel.
    pub fn longest(&self) -> usize {
        self.channels.iter().map(VecDeque::len).max().unwrap_or(0)
    }

    fn channel_mut(&mut self, from: usize, to: usize) -> &mut VecDeque<P::Message> {
        &mut self.channels[from * self.parts.len() + to]
    }

    /// Stops a part and restarts it as `part`. Messages in flight from it and to it are lost.
    pub fn replace(&mut self, at: usize, part: P) {
        assert!(at < self.parts.len(), "a part is replaced that is there");
        self.parts[at] = part;
        for other in (0..self.parts.len()).filter(|other| *other != at) {
            self.channel_mut(at, other).clear();
            self.channel_mut(other, at).clear();
            self.parts[other].input(PartInput::Lost(at));
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
        assert!(from < self.parts.len(), "unknown sender");
        self.parts[to].input(PartInput::From(from, message));
    }
}

impl<P: Part> IoAutomaton for Channelled<P> {
    type Input = (usize, P::Request);
    type Action = Move<P::Action>;
    type Output = (usize, P::Answer);

    /// Tasks of all parts, then one for each channel.
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
                PartOutput::Outside(answer) => return Some((at, answer)),
                PartOutput::To(others, message) => {
                    for to in others {
                        assert!(to != at, "no part notifies itself");
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
        self.parts[at].input(PartInput::Outside(request));
    }
}
