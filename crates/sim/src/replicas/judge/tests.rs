//! The checks find planted errors.

use super::super::data::What;
use super::super::ledger::{Answer, Ledger, OpRequest};
use super::{SUMS_MAX, SumCheck, contents, expect_strict_looks, expect_sum, replay};
use base::Instant;
use replica::data::Kind;
use serde_json::{Value, json};

/// Returns a request at a time in seconds, with its final reply a second later.
fn answered(what: What, op: Value, asked_s: u64, value: Value) -> OpRequest {
    let second = |count: u64| Instant(count * 1_000_000_000);
    let answer = Answer { value, is_final: true, at: second(asked_s + 1), by: 0 };
    let (requested, answer) = (second(asked_s), Some(answer));
    OpRequest { what, op, strict: true, requested, times: (1, 0), answer }
}

/// Returns the ledger of a counter: three additions and, after the second one, a strict read with
/// this reply. The listener came after the first addition.
fn counter(read: i64) -> Ledger {
    let mut ledger = Ledger::new(Kind::Counter);
    let add = |number: i64| (What::Add(number), json!({"add": number}));
    let order = ledger.begin_order();
    let mut sum = 0;
    for (at, number) in [(0, 100), (10, 70), (30, 5)] {
        sum += number;
        let (what, op) = add(number);
        ledger.questions.push(answered(what, op.clone(), at, json!(sum)));
        if at > 0 {
            ledger.note_final(order, (1, at + 1), op, json!(sum));
        }
        if at == 10 {
            ledger.questions.push(answered(What::Look, json!("read"), 20, json!(read)));
            ledger.note_final(order, (2, 1), json!("read"), json!(sum));
        }
    }
    ledger
}

#[test]
fn the_strict_reads_of_a_counter_are_compared() {
    let ledger = counter(170);
    expect_strict_looks(&ledger);
    assert_eq!(replay::expect_sums(&ledger), 4);
}

/// The value is between the sums of all earlier and of all possible additions.
#[test]
#[should_panic(expected = "was answered 171, which was never the sum")]
fn a_wrong_strict_read_of_a_counter_is_found() {
    let mut ledger = counter(171);
    // Some addition that may be there.
    let mut unknown = answered(What::Add(50), json!({"add": 50}), 15, Value::Null);
    unknown.answer = None;
    ledger.questions.push(unknown);
    expect_strict_looks(&ledger);
    replay::expect_sums(&ledger);
}

#[test]
#[should_panic(expected = "became final with another sum than the order's")]
fn a_wrong_sum_of_a_listener_is_found() {
    let mut ledger = counter(170);
    ledger.note_final(0, (2, 2), json!("read"), json!(170));
    replay::expect_sums(&ledger);
}

/// An operation that is listed again, with its reply or without, is not applied again.
#[test]
fn repeated_operations_add_nothing() {
    let mut ledger = counter(170);
    ledger.note_final(0, (2, 2), json!({"add": 70}), json!({"repeated": true}));
    ledger.note_final(0, (2, 3), json!({"add": 70}), json!(170));
    ledger.note_final(0, (2, 4), json!("read"), json!(175));
    assert_eq!(replay::expect_sums(&ledger), 4);
}

/// The first addition was applied before the listener came, and is listed again; whether the third
/// one is applied is not known before there is a sum.
#[test]
fn retransmitted_operations_are_applied_once() {
    let mut ledger = counter(170);
    ledger.questions[0].times.0 = 2;
    ledger.note_final(0, (2, 2), json!({"add": 100}), json!(100));
    ledger.note_final(0, (2, 3), json!("read"), json!(175));
    assert_eq!(replay::expect_sums(&ledger), 4);
    ledger.questions[1].times.0 = 2;
    ledger.note_final(0, (2, 4), json!("read"), json!(175));
    assert_eq!(replay::expect_sums(&ledger), 3);
}

/// A sum of a retransmitted addition that is neither its first nor the order's.
#[test]
#[should_panic(expected = "was answered 171, which was never the sum")]
fn a_wrong_strict_read_after_a_retransmission_is_found() {
    let mut ledger = counter(171);
    ledger.questions[0].times.0 = 2;
    ledger.note_final(0, (2, 2), json!({"add": 100}), json!(100));
    replay::expect_sums(&ledger);
}

#[test]
fn a_sum_with_too_many_possibilities_is_reported() {
    let unknown = |number: i64| {
        let what = What::Add(1 << number);
        let mut op_request = answered(what, json!({"add": 1i64 << number}), 0, Value::Null);
        op_request.answer = None;
        op_request
    };
    let bits = i64::from(SUMS_MAX.ilog2());
    let questions: Vec<OpRequest> = (0..bits).map(unknown).collect();
    assert_eq!(expect_sum(&questions, 5), SumCheck::Exact);
    let questions: Vec<OpRequest> = (0..bits + 2).map(unknown).collect();
    assert_eq!(expect_sum(&questions, 5), SumCheck::Bounds);
}

/// Returns the ledger of a map: a listener received these operations with their replies.
fn map(events: &[(Value, Value)]) -> Ledger {
    let mut ledger = Ledger::new(Kind::Map);
    let order = ledger.begin_order();
    for (number, (op, reply)) in (1..).zip(events) {
        ledger.questions.push(answered(What::Look, op.clone(), number, reply.clone()));
        ledger.note_final(order, (1, number), op.clone(), reply.clone());
    }
    ledger
}

fn put(key: &str, value: &str) -> (Value, Value) {
    (json!({"put": [key, value]}), Value::Null)
}

fn race(value: &str, won: bool) -> (Value, Value) {
    let op = json!({"compare-and-put": {"key": "race", "expected": null, "new": value}});
    (op, json!(won))
}

fn list(entries: &[(&str, &str)]) -> (Value, Value) {
    (json!({"list": {}}), json!(entries))
}

#[test]
fn the_replies_of_a_map_are_compared_with_the_order() {
    let all = [("a", "2"), ("old", "x"), ("race", "r1")];
    let events = [
        put("a", "1"),
        race("r1", true),
        put("a", "2"),
        list(&all),
        race("r2", false),
        (json!("size"), json!(3)),
        list(&all),
    ];
    // The first list: two known keys; the lost race; the size; three keys.
    assert_eq!(contents::expect_contents(&map(&events)), 7);
}

#[test]
#[should_panic(expected = "became final with Some(\"1\") at a")]
fn a_list_with_an_overwritten_value_is_found() {
    contents::expect_contents(&map(&[put("a", "1"), put("a", "2"), list(&[("a", "1")])]));
}

#[test]
#[should_panic(expected = "became final with true, and the key was Present")]
fn a_second_winner_of_a_race_is_found() {
    contents::expect_contents(&map(&[race("r1", true), race("r2", true)]));
}

#[test]
#[should_panic(expected = "became final with another size")]
fn a_wrong_size_is_found() {
    let events = [list(&[("a", "1")]), put("b", "1"), (json!("size"), json!(1))];
    contents::expect_contents(&map(&events));
}

#[test]
fn a_change_that_was_sent_again_leaves_its_key_unknown() {
    let mut ledger = map(&[put("a", "1"), list(&[("a", "2")])]);
    ledger.questions[0].times = (2, 0);
    assert_eq!(contents::expect_contents(&ledger), 0);
}
