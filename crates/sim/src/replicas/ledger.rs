//! Everything that was asked of a service, what was answered, and what it showed of itself.

use super::data::What;
use base::Instant;
use replica::data::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What became of an operation, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was answered.
    Done,
    /// Each time it was asked for, the answer was that it is not done.
    Undone,
    /// It was done, or not, or will be.
    Unknown,
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) is_final: bool,
    pub(super) at: Instant,
    /// The replica.
    pub(super) by: usize,
}

/// An operation that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) what: What,
    pub(super) op: Value,
    pub(super) strict: bool,
    /// When it was asked for first.
    pub(super) asked: Instant,
    /// How often it was asked for, and how often the answer was that it is not done.
    pub(super) times: (u32, u32),
    pub(super) answer: Option<Answer>,
}

impl Question {
    pub(super) fn fate(&self) -> Fate {
        match (&self.answer, self.times) {
            (Some(_), _) => Fate::Done,
            (None, (asked, undone)) if asked == undone => Fate::Undone,
            (None, _) => Fate::Unknown,
        }
    }
}

/// What the files of a replica say in the end.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) value: String,
    pub(super) stable: String,
    pub(super) status: Value,
}

/// An operation by its replica and its number there.
pub(super) type Place = (u64, u64);

/// The ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) kind: Kind,
    pub(super) questions: Vec<Question>,
    /// What became final, and its value.
    pub(super) finals: BTreeMap<Place, (Value, Value)>,
    /// In which order: one for each time that somebody listened to a replica.
    pub(super) orders: Vec<Vec<Place>>,
    /// How many clients have all their answers.
    pub(super) finished: usize,
    /// Whether all members stay from now on.
    pub(super) all_stay: bool,
    /// Since when all troubles are over for long: whatever is asked then is answered.
    pub(super) calm: Option<Instant>,
    /// Nobody asks anything more, and everything has had the time to arrive.
    pub(super) is_quiet: bool,
    /// By the number of the replica.
    pub(super) surveys: BTreeMap<usize, Survey>,
    /// Servers that have stood still, and until when.
    pub(super) still: BTreeMap<usize, Instant>,
    /// Replicas that have said that they are no members.
    pub(super) outside: BTreeSet<usize>,
    /// Replicas that others have begun to remove, and since when these may not have heard them.
    pub(super) removals: BTreeMap<usize, Instant>,
}

/// Time in which a replica tells others what it has answered.
const TOLD: Duration = Duration::from_secs(5);

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

    /// Somebody begins to listen to a replica; the number of what they hear.
    pub(super) fn begin_order(&mut self) -> usize {
        self.orders.push(Vec::new());
        self.orders.len() - 1
    }

    /// Whether a server has stood still since then.
    pub(super) fn stood_still(&self, number: usize, since: Instant) -> bool {
        self.still.get(&number).is_some_and(|until| *until >= since)
    }

    /// Those that the others have removed, as they say: what these have answered since others may
    /// not have heard them may be lost, but for what is strict.
    pub(super) fn excuse_removed(&mut self) -> BTreeSet<usize> {
        let is_removed = |survey: &Survey| {
            let failed = survey.status["failed"].as_str();
            failed.is_some_and(|failed| failed.starts_with("no member any more"))
        };
        let removed = self.surveys.iter().filter(|(_, survey)| is_removed(survey));
        let removed: BTreeSet<usize> = removed.map(|(number, _)| *number).collect();
        self.surveys.retain(|number, _| !removed.contains(number));
        for question in &mut self.questions {
            let may_be_lost = question.answer.as_ref().is_some_and(|answer| {
                let since = self.removals.get(&answer.by).filter(|_| removed.contains(&answer.by));
                since.is_some_and(|since| answer.at + TOLD >= *since)
            });
            if !question.strict && may_be_lost {
                (question.answer, question.times) = (None, (1, 0));
            }
        }
        removed
    }

    /// Notes that something has become final: it is what it was when anybody else heard of it.
    pub(super) fn note_final(&mut self, order: usize, place: Place, op: Value, value: Value) {
        let now = (op, value);
        let before = self.finals.entry(place).or_insert_with(|| now.clone());
        assert_eq!(*before, now, "{place:?} is final, and another thing elsewhere");
        self.orders[order].push(place);
    }
}
