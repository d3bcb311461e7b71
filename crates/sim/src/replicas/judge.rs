//! Final checks of a run.

mod contents;
mod replay;
#[cfg(test)]
mod tests;

use super::data::{Fate, Shown, Slot, What};
use super::ledger::{Ledger, OpRef, OpRequest};
use replica::data::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of possible sums that are enumerated.
const SUMS_MAX: usize = 1 << 12;

/// Check of a counter's final value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumCheck {
    /// The value is the sum of all acknowledged additions and some of the unknown ones.
    Exact,
    /// There were too many unknown additions to enumerate; the value is between the bounds.
    Bounds,
}

/// Results of the checks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    /// How the sum of a counter was checked.
    pub(super) sum: Option<SumCheck>,
    /// Number of final replies that were compared with the replay of the operations before them.
    pub(super) replayed: usize,
}

/// Checks a completed run.
pub(super) fn judge(ledger: &Ledger, replicas: usize) -> Checked {
    let stable = expect_equal(ledger, replicas);
    let shown = Shown::of_file(ledger.kind, stable);
    let mut checked = Checked::default();
    match &shown {
        Shown::Sum(sum) => {
            checked.sum = Some(expect_sum(&ledger.questions, *sum));
            checked.replayed = replay::expect_sums(ledger);
        }
        Shown::Items(items) => expect_items(&ledger.questions, items),
        Shown::Entries(entries) => expect_entries(&ledger.questions, entries),
    }
    if !matches!(ledger.kind, Kind::Counter | Kind::Log | Kind::Text) {
        checked.replayed = contents::expect_contents(ledger);
    }
    expect_final(ledger, &shown);
    expect_strict_looks(ledger);
    let order = expect_one_order(ledger);
    let place = |op_request: &OpRequest| order.get(&key(op_request)?).copied();
    expect_after_strict(&ledger.questions, place);
    if let (Kind::Log | Kind::Text, Shown::Items(items)) = (ledger.kind, &shown) {
        let places: BTreeMap<&String, usize> = items.iter().zip(0..).collect();
        let place = |op_request: &OpRequest| match &op_request.what {
            What::Append(item) => places.get(item).copied(),
            _ => None,
        };
        expect_after_strict(&ledger.questions, place);
    }
    checked
}

/// Checks that all replicas have equal, final contents, and keep no state for clients.
fn expect_equal(ledger: &Ledger, replicas: usize) -> &str {
    assert_eq!(ledger.surveys.len(), replicas, "not all replicas were looked at");
    let first = &ledger.surveys.values().next().expect("a replica").stable;
    for (number, survey) in &ledger.surveys {
        assert_eq!(survey.stable, *first, "replica {number} is not equal to the first");
        assert_eq!(survey.value, *first, "replica {number} has what is not final");
        let status = &survey.status;
        assert_eq!(status["failed"], Value::Null, "replica {number} has failed");
        let kept = (&status["held"], &status["unfinal"]);
        assert_eq!(kept, (&json!(0), &json!(0)), "replica {number} keeps what is final");
        let members = status["members"].as_array().expect("there are members");
        let lacks = members.iter().any(|member| member["lacks"] != json!(0));
        assert!(!lacks, "replica {number} thinks that others lack something: {status}");
        let links = members.iter().filter_map(|member| member["link"].as_str());
        let are_well = links.clone().all(|link| matches!(link, "idle" | "writing"));
        assert!(are_well, "replica {number} does not reach all: {status}");
        assert_eq!(members.len(), replicas, "replica {number} does not know all: {status}");
        assert_eq!(status["settled"], json!(true), "replica {number} still changes: {status}");
    }
    first
}

/// Checks that the sum includes every acknowledged addition once, and some of the others: any
/// subset if there are few; otherwise within the bounds of none and all.
fn expect_sum(questions: &[OpRequest], sum: i64) -> SumCheck {
    let mut sums = Some(BTreeSet::from([0]));
    let (mut done, mut unknown) = (0, 0);
    for op_request in questions {
        let What::Add(number) = &op_request.what else { continue };
        match op_request.fate() {
            Fate::Done => done += number,
            Fate::Undone => {}
            Fate::Unknown => {
                unknown += number;
                sums = sums.take().filter(|sums| sums.len() <= SUMS_MAX).map(|mut sums| {
                    let more: Vec<i64> = sums.iter().map(|sum| sum + number).collect();
                    sums.extend(more);
                    sums
                });
            }
        }
    }
    let rest = sum - done;
    let check = if sums.is_some() { SumCheck::Exact } else { SumCheck::Bounds };
    let fits = (0..=unknown).contains(&rest) && sums.is_none_or(|sums| sums.contains(&rest));
    assert!(fits, "the sum is {sum}, {done} was answered, and {unknown} may be there");
    check
}

/// Checks items of a log or a set: acknowledged ones are there once, or were removed.
fn expect_items(questions: &[OpRequest], items: &[String]) {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    items.iter().for_each(|item| *counts.entry(item).or_default() += 1);
    let mut removed: BTreeMap<&String, Fate> = BTreeMap::new();
    for op_request in questions {
        if let What::Remove(item) = &op_request.what {
            removed.insert(item, op_request.fate());
        }
    }
    let mut raced = BTreeMap::new();
    for op_request in questions {
        let (item, gone) = match &op_request.what {
            What::Append(item) | What::Insert(item) => (item, removed.get(item)),
            What::Race(member, _) => {
                let fate = raced.entry(member).or_insert(Fate::Undone);
                if *fate != Fate::Done && op_request.fate() != Fate::Undone {
                    *fate = op_request.fate();
                }
                continue;
            }
            _ => continue,
        };
        expect_count(item, op_request.fate(), gone, counts.remove(item).unwrap_or(0));
    }
    for (member, fate) in raced {
        expect_count(member, fate, None, counts.remove(member).unwrap_or(0));
    }
    assert!(counts.is_empty(), "nobody has asked for {counts:?}");
}

fn expect_count(item: &str, fate: Fate, gone: Option<&Fate>, count: usize) {
    let fits = match (fate, gone) {
        (Fate::Done, None | Some(Fate::Undone)) => count == 1,
        (Fate::Undone, _) | (Fate::Done, Some(Fate::Done)) => count == 0,
        (Fate::Unknown, _) | (Fate::Done, Some(Fate::Unknown)) => count <= 1,
    };
    assert!(fits, "{item} is there {count} times: it is {fate:?}, and taken out: {gone:?}");
}

/// Checks that keys have the last values put.
fn expect_entries(questions: &[OpRequest], entries: &[(String, String)]) {
    let mut rest: BTreeMap<&String, &String> = entries.iter().map(|(key, it)| (key, it)).collect();
    let mut slots: BTreeMap<&String, Slot> = BTreeMap::new();
    let mut races: BTreeMap<&String, Vec<&OpRequest>> = BTreeMap::new();
    for op_request in questions {
        match &op_request.what {
            What::Put(key, value) => slots.entry(key).or_default().learn(value, op_request.fate()),
            What::Race(key, _) => races.entry(key).or_default().push(op_request),
            _ => {}
        }
    }
    for (key, slot) in slots {
        let value = rest.remove(key);
        assert!(slot.allows(value), "{key} has {value:?}, and not {slot:?}");
    }
    for (key, questions) in races {
        let there = rest.remove(key);
        let possible = questions.iter().filter(|op_request| op_request.fate() != Fate::Undone);
        let mut values = possible.filter_map(|op_request| match &op_request.what {
            What::Race(_, value) => Some(value),
            _ => None,
        });
        let some_done = questions.iter().any(|op_request| op_request.fate() == Fate::Done);
        let fits = there.map_or(!some_done, |there| values.any(|value| value == there));
        assert!(fits, "{key} has {there:?}, which nobody has put there");
    }
    assert!(rest.is_empty(), "nobody has asked for {rest:?}");
}

/// Checks that replies marked as final are those of the resulting order.
fn expect_final(ledger: &Ledger, shown: &Shown) {
    let finals = finals(ledger);
    let mut firsts = BTreeSet::new();
    for op_request in &ledger.questions {
        let Some(answer) = op_request.answer.as_ref().filter(|answer| answer.is_final) else {
            continue;
        };
        let value = &answer.value;
        if value.get("repeated").is_some() {
            continue;
        }
        match (&op_request.what, shown) {
            (What::Append(item), Shown::Items(items)) if value.is_u64() => {
                let place = items.iter().position(|other| other == item);
                assert_eq!(value.as_u64(), place.map(|place| place as u64), "where {item} is");
            }
            (What::Race(key, new), Shown::Entries(entries)) => {
                let won = entries.iter().any(|(other, value)| other == key && value == new);
                assert_eq!(*value, json!(won), "whether {new} was the first at {key}");
            }
            (What::Race(member, _), _) if *value == json!(true) => {
                assert!(firsts.insert(member), "two were the first to put {member} in");
            }
            (What::Look, Shown::Items(items)) if matches!(ledger.kind, Kind::Log | Kind::Text) => {
                let seen = Shown::of_answer(ledger.kind, value);
                let Shown::Items(seen) = seen else { unreachable!("a log shows items") };
                assert!(items.starts_with(&seen), "a strict answer shows another order: {seen:?}");
            }
            _ => {}
        }
        if let Some(final_value) = key(op_request).and_then(|key| finals.get(&key)) {
            assert_eq!(*final_value, value, "what {} answers for ever", op_request.op);
        }
    }
}

/// Checks that a strict read includes every operation with an earlier strict reply, and none
/// requested after it. What is final is also compared with a replay, if the data is no log or text
/// ([`replay`], [`contents`]).
fn expect_strict_looks(ledger: &Ledger) {
    let strict = |op_request: &OpRequest| {
        let answer = op_request.answer.as_ref().filter(|_| op_request.strict)?;
        answer.value.get("repeated").is_none().then_some(answer.at)
    };
    for look in ledger.questions.iter().filter(|it| it.what == What::Look) {
        let Some(at) = strict(look) else { continue };
        let answer = look.answer.as_ref().expect("a strict answer is one");
        let questions = || ledger.questions.iter();
        let before = || questions().filter(|it| strict(it).is_some_and(|at| at < look.requested));
        let possible = || questions().filter(|it| it.requested <= at && it.fate() != Fate::Undone);
        match Shown::of_answer(ledger.kind, &answer.value) {
            Shown::Sum(sum) => {
                let number = |op_request: &OpRequest| match op_request.what {
                    What::Add(number) => number,
                    _ => 0,
                };
                let (least, most) = (before().map(number).sum(), possible().map(number).sum());
                assert!((least..=most).contains(&sum), "{sum} is not from {least} to {most}");
            }
            Shown::Items(items) => {
                let items: BTreeSet<&String> = items.iter().collect();
                let item = |op_request: &OpRequest| match &op_request.what {
                    What::Append(item) | What::Insert(item) | What::Race(item, _) => {
                        Some(item.clone())
                    }
                    _ => None,
                };
                let gone = |item: &String| {
                    possible().any(|it| matches!(&it.what, What::Remove(other) if other == item))
                };
                let requested: BTreeSet<String> = possible().filter_map(item).collect();
                let missing = before().filter_map(item).find(|it| !items.contains(it) && !gone(it));
                assert_eq!(missing, None, "a strict answer lacks what a strict answer was for");
                let early = items.into_iter().find(|item| !requested.contains(*item));
                assert_eq!(early, None, "a strict answer has what nobody had asked for");
            }
            Shown::Entries(entries) => {
                let keys: BTreeSet<&String> = entries.iter().map(|(key, _)| key).collect();
                let entry = |op_request: &OpRequest| match &op_request.what {
                    What::Put(key, value) | What::Race(key, value) => {
                        Some((key.clone(), value.clone()))
                    }
                    _ => None,
                };
                let requested: BTreeSet<(String, String)> = possible().filter_map(entry).collect();
                let missing = before().filter_map(entry).find(|(key, _)| !keys.contains(key));
                assert_eq!(missing, None, "a strict answer lacks a key that was put there");
                let early = entries.iter().find(|entry| !requested.contains(*entry));
                assert_eq!(early, None, "a strict answer has what nobody had asked for");
            }
        }
    }
}

/// Returns the key of an operation that is unique.
fn key(op_request: &OpRequest) -> Option<String> {
    let unique = match &op_request.what {
        What::Look | What::Size => false,
        What::Race(member, value) => member != value,
        What::Append(_) | What::Add(_) | What::Insert(_) | What::Remove(_) | What::Put(..) => true,
    };
    unique.then(|| op_request.op.to_string())
}

/// Returns the final values of operations, as received by the listeners.
fn finals(ledger: &Ledger) -> BTreeMap<String, &Value> {
    let all = ledger.finals.values();
    all.filter(|(_, value)| value.get("repeated").is_none())
        .map(|(op, value)| (op.to_string(), value))
        .collect()
}

/// Checks that all listeners received the same order; returns the place of each operation in it,
/// from the listener that received most.
fn expect_one_order(ledger: &Ledger) -> BTreeMap<String, usize> {
    let orders: Vec<BTreeMap<OpRef, usize>> =
        ledger.orders.iter().map(|order| order.iter().copied().zip(0..).collect()).collect();
    for (order, places) in ledger.orders.iter().zip(&orders) {
        assert_eq!(order.len(), places.len(), "something became final twice");
        for others in &orders {
            let common: Vec<usize> =
                order.iter().filter_map(|at| others.get(at).copied()).collect();
            assert!(common.is_sorted(), "two orders differ: {order:?} {others:?}");
        }
    }
    let longest = ledger.orders.iter().max_by_key(|order| order.len());
    let mut places = BTreeMap::new();
    for (place, at) in longest.into_iter().flatten().zip(0..) {
        places.entry(ledger.finals[place].0.to_string()).or_insert(at);
    }
    places
}

/// Checks that operations requested after a strict reply are ordered after it.
fn expect_after_strict(questions: &[OpRequest], place: impl Fn(&OpRequest) -> Option<usize>) {
    let placed = || questions.iter().filter_map(|it| Some((it, place(it)?)));
    for (strict, first) in placed().filter(|(it, _)| it.strict) {
        let Some(answer) = &strict.answer else { continue };
        for (later, second) in placed().filter(|(later, _)| later.requested > answer.at) {
            let fits = first < second;
            assert!(
                fits,
                "{} was asked after {} was answered, and is before it",
                later.op, strict.op
            );
        }
    }
}
