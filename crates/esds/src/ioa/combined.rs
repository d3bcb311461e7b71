//! Composition by input/output combinations: all participants act in the same step.

use super::{IoAutomaton, Part, PartInput, PartOutput};

/// Source composition of the paper (001, 2.1): messages are received in the step that sends them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Combined<P> {
    parts: Vec<P>,
}

impl<P: Part> Combined<P> {
    /// Composes parts in their initial states; they are identified by index.
    pub fn new(parts: Vec<P>) -> Combined<P> {
        Combined { parts }
    }

    /// Returns the parts.
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
            PartOutput::Outside(answer) => Some((at, answer)),
            PartOutput::To(others, message) => {
                for to in others {
                    self.parts[to].input(PartInput::From(at, message.clone()));
                }
                None
            }
        }
    }

    fn input(&mut self, (at, request): Self::Input) {
        self.parts[at].input(PartInput::Outside(request));
    }
}

/// Returns the enabled actions of a task, with the tasks of all parts numbered consecutively.
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
