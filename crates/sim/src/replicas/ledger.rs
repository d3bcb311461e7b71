//! Record of all operations on a service, their replies, and its visible state.

use super::data::{Fate, What};
use base::Instant;
use replica::data::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) is_final: bool,
    pub(super) at: Instant,
    /// The replica.
    pub(super) by: usize,
}

/// A requested operation.
#[derive(Clone, Debug)]
pub(super) struct OpRequest {
    pub(super) what: What,
    pub(super) op: Value,
    pub(super) strict: bool,
    /// Time of the first request.
    pub(super) requested: Instant,
    /// Number of requests, and of replies that it was not done.
    pub(super) times: (u32, u32),
    pub(super) answer: Option<Answer>,
}

impl OpRequest {
    pub(super) fn fate(&self) -> Fate {
        match (&self.answer, self.times) {
            (Some(_), _) => Fate::Done,
            (None, (requested, undone)) if requested == undone => Fate::Undone,
            (None, _) => Fate::Unknown,
        }
    }
}

/// Final contents of a replica's files.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) value: String,
    pub(super) stable: String,
    pub(super) status: Value,
}

/// An operation, by its replica and its number there.
pub(super) type OpRef = (u64, u64);

/// The ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) kind: Kind,
    pub(super) questions: Vec<OpRequest>,
    /// Final operations and their values.
    pub(super) finals: BTreeMap<OpRef, (Value, Value)>,
    /// Their order: one for each time that a client listened to a replica.
    pub(super) orders: Vec<Vec<OpRef>>,
    /// Number of clients with all replies.
    pub(super) finished: usize,
    /// Whether the membership is constant from now on.
    pub(super) all_stay: bool,
    /// Time since which all troubles are over: every later operation gets a reply.
    pub(super) calm: Option<Instant>,
    /// Whether there are no further operations, and everything has arrived.
    pub(super) is_quiet: bool,
    /// Surveys by the number of the replica.
    pub(super) surveys: BTreeMap<usize, Survey>,
    /// Servers that were frozen, and the end of the freeze.
    pub(super) still: BTreeMap<usize, Instant>,
    /// Replicas that reported that they are not members.
    pub(super) outside: BTreeSet<usize>,
    /// Replicas that others have begun to remove, and the time since which they may not have been
    /// heard.
    pub(super) removals: BTreeMap<usize, Instant>,
}

/// Time in which a replica propagates acknowledged operations to the others.
const REPORTED: Duration = Duration::from_secs(5);

impl Ledger {
    pub(super) fn new(kind: Kind) -> Ledger {
        Ledger {
            kind,
            questions: Vec::new(),
            finals: BTreeMap::new(),
            orders: Vec::new(),
            finished: 0,
            all_stay: false,
            calm: None,
            is_quiet: false,
            surveys: BTreeMap::new(),
            still: BTreeMap::new(),
            outside: BTreeSet::new(),
            removals: BTreeMap::new(),
        }
    }

    /// Begins a new order of a listener; returns its number.
    pub(super) fn begin_order(&mut self) -> usize {
        self.orders.push(Vec::new());
        self.orders.len() - 1
    }

    /// Returns whether a server was frozen since then.
    pub(super) fn stood_still(&self, number: usize, since: Instant) -> bool {
        self.still.get(&number).is_some_and(|until| *until >= since)
    }

    /// Returns the replicas that the others have removed: operations that these acknowledged since
    /// others may not have heard them may be lost, except strict ones.
    pub(super) fn excuse_removed(&mut self) -> BTreeSet<usize> {
        let is_removed = |survey: &Survey| {
            let failed = survey.status["failed"].as_str();
            failed.is_some_and(|failed| failed.starts_with("no member any more"))
        };
        let removed = self.surveys.iter().filter(|(_, survey)| is_removed(survey));
        let removed: BTreeSet<usize> = removed.map(|(number, _)| *number).collect();
        self.surveys.retain(|number, _| !removed.contains(number));
        for op_request in &mut self.questions {
            let may_be_lost = op_request.answer.as_ref().is_some_and(|answer| {
                let since = self.removals.get(&answer.by).filter(|_| removed.contains(&answer.by));
                since.is_some_and(|since| answer.at + REPORTED >= *since)
            });
            if !op_request.strict && may_be_lost {
                (op_request.answer, op_request.times) = (None, (1, 0));
            }
        }
        removed
    }

    /// Records a final operation: it is equal for all listeners.
    pub(super) fn note_final(&mut self, order: usize, place: OpRef, op: Value, value: Value) {
        let now = (op, value);
        let before = self.finals.entry(place).or_insert_with(|| now.clone());
        assert_eq!(*before, now, "{place:?} is final, and another thing elsewhere");
        self.orders[order].push(place);
    }
}
