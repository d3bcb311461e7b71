//! Replay of the final operations of a map, set, register or sheet, in the order that a listener
//! received.
//!
//! A listener receives every final operation from some moment on. Nothing is known of a key at that
//! moment; what follows from each operation is compared with the replies behind it. Operations that
//! may have been applied before that moment, as they were sent again, leave their key unknown.

use super::super::data::{REGISTER, Shown};
use super::super::ledger::Ledger;
use replica::data::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Knowledge of a key or member.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Absent,
    /// Present, with its value if that is known.
    Present(Option<String>),
}

/// Effect of an operation, as its JSON has it.
#[derive(Debug, PartialEq, Eq)]
enum Effect<'a> {
    /// Sets a key.
    Put(&'a str, &'a str),
    /// Sets a key that is unset, and returns whether it was.
    PutNew(&'a str, &'a str),
    Remove(&'a str),
    Size,
    List,
}

fn effect(op: &Value) -> Effect<'_> {
    if let Some(name) = op.as_str() {
        return match name {
            "size" => Effect::Size,
            "read" => Effect::List,
            other => panic!("the checks do not know the operation {other}"),
        };
    }
    let (name, of) = op.as_object().and_then(|op| op.iter().next()).expect("an operation");
    match name.as_str() {
        "put" | "set" => {
            Effect::Put(of[0].as_str().expect("a key"), of[1].as_str().expect("a value"))
        }
        "compare-and-put" => Effect::PutNew(
            of.get("key").and_then(Value::as_str).unwrap_or(REGISTER),
            of["new"].as_str().expect("a value"),
        ),
        "add" | "insert" | "remove" => {
            let member = of.as_str().expect("a member");
            match name.as_str() {
                "add" => Effect::Put(member, member),
                "insert" => Effect::PutNew(member, member),
                _remove => Effect::Remove(member),
            }
        }
        "list" | "range" => Effect::List,
        other => panic!("the checks do not know the operation {other}"),
    }
}

/// Contents, as far as they are known.
#[derive(Debug, Default)]
struct Contents {
    keys: BTreeMap<String, Known>,
    /// Whether all other keys are absent.
    is_complete: bool,
    /// Number of replies that were compared with something known.
    compared: usize,
}

impl Contents {
    fn known(&self, key: &str) -> Known {
        let other = if self.is_complete { Known::Absent } else { Known::Nothing };
        self.keys.get(key).cloned().unwrap_or(other)
    }

    /// Applies an operation and compares its reply.
    fn apply(&mut self, kind: Kind, op: &Value, reply: &Value) {
        match effect(op) {
            Effect::Put(key, value) => self.set(key, Known::Present(Some(value.to_owned()))),
            Effect::Remove(key) => self.set(key, Known::Absent),
            Effect::PutNew(key, value) => {
                let known = self.known(key);
                self.compared += usize::from(known != Known::Nothing);
                let is_new = *reply == Value::Bool(true);
                match (is_new, known) {
                    (true, Known::Nothing | Known::Absent) => {
                        self.set(key, Known::Present(Some(value.to_owned())));
                    }
                    (false, Known::Nothing) => self.set(key, Known::Present(None)),
                    (false, Known::Present(_)) => {}
                    (true, known @ Known::Present(_)) | (false, known @ Known::Absent) => {
                        panic!("{op} became final with {reply}, and the key was {known:?}")
                    }
                }
            }
            Effect::Size => self.compare_size(op, reply),
            Effect::List => self.compare_all(kind, op, reply),
        }
    }

    fn set(&mut self, key: &str, known: Known) {
        self.keys.insert(key.to_owned(), known);
    }

    fn compare_size(&mut self, op: &Value, reply: &Value) {
        let are_known = !self.keys.values().any(|known| *known == Known::Nothing);
        if !self.is_complete || !are_known {
            return;
        }
        let present = self.keys.values().filter(|known| matches!(known, Known::Present(_)));
        let size = present.count() as u64;
        assert_eq!(reply.as_u64(), Some(size), "{op} became final with another size");
        self.compared += 1;
    }

    /// Compares all that is known; everything is known then.
    fn compare_all(&mut self, kind: Kind, op: &Value, reply: &Value) {
        let entries = match Shown::of_answer(kind, reply) {
            Shown::Entries(entries) => entries,
            Shown::Items(items) => items.into_iter().map(|item| (item.clone(), item)).collect(),
            Shown::Sum(_) => unreachable!("a counter has no keys"),
        };
        let shown: BTreeMap<String, String> = entries.into_iter().collect();
        let keys: BTreeSet<String> = self.keys.keys().chain(shown.keys()).cloned().collect();
        for key in &keys {
            let there = shown.get(key);
            let fits = match self.known(key) {
                Known::Nothing => continue,
                Known::Absent => there.is_none(),
                Known::Present(None) => there.is_some(),
                Known::Present(Some(value)) => there == Some(&value),
            };
            self.compared += 1;
            assert!(fits, "{op} became final with {there:?} at {key}: {:?}", self.known(key));
        }
        self.keys = shown.into_iter().map(|(key, it)| (key, Known::Present(Some(it)))).collect();
        self.is_complete = true;
    }
}

/// Checks that the final replies are those of the order in the events of each listener; returns the
/// number of comparisons.
pub(super) fn expect_contents(ledger: &Ledger) -> usize {
    let sent_again = ledger.questions.iter().filter(|it| it.times.0 != 1 || it.answer.is_none());
    let sent_again: BTreeSet<String> = sent_again.map(|it| it.op.to_string()).collect();
    let mut compared = 0;
    for order in &ledger.orders {
        let (mut contents, mut applied) = (Contents::default(), BTreeSet::new());
        let events = order.iter().map(|place| &ledger.finals[place]);
        for (op, reply) in events.filter(|(_, reply)| reply.get("repeated").is_none()) {
            let text = op.to_string();
            match effect(op) {
                Effect::Size | Effect::List => contents.apply(ledger.kind, op, reply),
                Effect::Put(key, _) | Effect::PutNew(key, _) | Effect::Remove(key) => {
                    let may_repeat = sent_again.contains(&text);
                    // Contended operations of a set are equal, and each is applied.
                    let is_unique = !matches!(effect(op), Effect::PutNew(key, new) if key == new);
                    if is_unique && !applied.insert(text) {
                        continue;
                    }
                    match may_repeat {
                        true => contents.set(key, Known::Nothing),
                        false => contents.apply(ledger.kind, op, reply),
                    }
                }
            }
        }
        compared += contents.compared;
    }
    compared
}
