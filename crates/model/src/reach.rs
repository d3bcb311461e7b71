//! Progress checks: from every reachable state, a good state remains reachable.
//!
//! If this holds, a composition whose random choices are fair reaches a good state eventually:
//! there is neither a deadlock before it nor a livelock.

use crate::State;
use esds::ioa::{IoAutomaton, all_enabled};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<C> {
    /// A good state is reachable from all of this many states.
    Always(usize),
    /// No good state is reachable from this state.
    Stuck(Box<C>),
    /// There are more states than permitted.
    TooMany,
}

/// Searches all states, at most `states_max`, for one from which no state that satisfies `good` is
/// reachable.
pub fn reach<C>(initial: &C, good: impl Fn(&C) -> bool, states_max: usize) -> Found<C>
where
    C: IoAutomaton + State,
{
    let Some(graph) = Graph::explore(initial, states_max) else { return Found::TooMany };
    let mut reaches: Vec<bool> = graph.states.iter().map(&good).collect();
    let mut open: Vec<usize> = (0..reaches.len()).filter(|at| reaches[*at]).collect();
    while let Some(at) = open.pop() {
        for before in &graph.before[at] {
            if !std::mem::replace(&mut reaches[*before], true) {
                open.push(*before);
            }
        }
    }
    match reaches.iter().position(|reaches| !reaches) {
        Some(stuck) => Found::Stuck(Box::new(graph.states[stuck].clone())),
        None => Found::Always(graph.states.len()),
    }
}

struct Graph<C> {
    states: Vec<C>,
    /// Predecessors of each state.
    before: Vec<Vec<usize>>,
    /// Indices by hash; several in case of collisions.
    by_hash: BTreeMap<u64, Vec<usize>>,
}

impl<C: IoAutomaton + State> Graph<C> {
    fn explore(initial: &C, states_max: usize) -> Option<Graph<C>> {
        let mut graph = Graph { states: Vec::new(), before: Vec::new(), by_hash: BTreeMap::new() };
        graph.index(initial.clone());
        let mut at = 0;
        while at < graph.states.len() {
            for action in all_enabled(&graph.states[at]) {
                let mut next = graph.states[at].clone();
                next.transition(action);
                let to = graph.index(next);
                graph.before[to].push(at);
            }
            if graph.states.len() > states_max {
                return None;
            }
            at += 1;
        }
        Some(graph)
    }

    /// Returns the index of a state, and adds it if it is new.
    fn index(&mut self, state: C) -> usize {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let equal = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(at) = equal.iter().find(|at| self.states[**at] == state) {
            return *at;
        }
        let at = self.states.len();
        equal.push(at);
        self.states.push(state);
        self.before.push(Vec::new());
        at
    }
}
