//! Composition by input/output combinations: who takes part does so in the same step.

use super::{Heard, IoAutomaton, Part, Said};

/// The source composition of the paper (001, 2.1): what one part says, others hear at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Combined<P> {
    parts: Vec<P>,
}

impl<P: Part> Combined<P> {
    /// Parts in their initial states; their indices are their names.
    pub fn new(parts: Vec<P>) -> Combined<P> {
        Combined { parts }
    }

    /// The parts, to look at.
    pub fn parts(&self) -> &[P] {
        &self.parts
    }
}

impl<P: Part> IoAutomaton for Combined<P> {
    type Input = (usize, P::Request);
    type Action = (usize, P::Action);
    type Output = (usize, P::Answer);

    fn tasks(&self) -> usize {
        self.parts.iter().map(IoAutomaton::tasks).sum()
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Self::Action>) {
        enabled_of(&self.parts, task, |at, action| actions.push((at, action)));
    }

    fn transition(&mut self, (at, action): Self::Action) -> Option<Self::Output> {
        match self.parts[at].transition(action)? {
            Said::Outside(answer) => Some((at, answer)),
            Said::To(others, message) => {
                for to in others {
                    self.parts[to].input(Heard::From(at, message.clone()));
                }
                None
            }
        }
    }

    fn input(&mut self, (at, request): Self::Input) {
        self.parts[at].input(Heard::Outside(request));
    }
}

/// The enabled actions of a task, if the tasks of all parts are counted one part after the other.
pub(super) fn enabled_of<P: Part>(
    parts: &[P],
    mut task: usize,
    mut tell: impl FnMut(usize, P::Action),
) {
    for (at, part) in parts.iter().enumerate() {
        if task < part.tasks() {
            let mut actions = Vec::new();
            part.enabled(task, &mut actions);
            actions.into_iter().for_each(|action| tell(at, action));
            return;
        }
        task -= part.tasks();
    }
    unreachable!("there are {task} tasks less");
}
