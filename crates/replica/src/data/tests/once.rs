//! Retried operations execute once.

use super::*;
use crate::data::once::{ANSWERS_MAX, Call, IDLE_MAX_MS, SESSIONS_MAX, SessionId, WINDOW};
use crate::service::{Config, Input, Limits, Output, Replica, ReplicaId, Ticket, Vector};
use base::{Automaton, Instant};
use std::num::NonZeroU64;
use std::time::Duration;

type Operator<O> = crate::data::once::Operator<O>;
type Counting = crate::data::once::State<i128>;

fn call(session: u128, number: u64) -> Option<Call> {
    let number = NonZeroU64::new(number).expect("counted from 1 on");
    Some(Call { session: SessionId(session), number })
}

/// Few sessions and numbers, so that they collide; numbers on both sides of the window.
pub(super) fn draw<O>(rng: &mut Rng, operator: O) -> Operator<O> {
    let number = rng.u64(1..4) + if rng.bool() { 0 } else { WINDOW - 1 };
    let once = if rng.u8(..4) == 0 { None } else { call(rng.u128(..3), number) };
    let stamp = rng.u64(..4) * IDLE_MAX_MS / 2;
    Operator { stamp, once, forgets: rng.u8(..8) == 0, operator }
}

#[test]
fn a_repeated_operation_returns_its_first_value() {
    keeps_its_word(Once(Counter), |rng| {
        let operator = draw::counter(rng);
        draw(rng, operator)
    });
    keeps_its_word(Once(Map), |rng| {
        let operator = draw::map(rng);
        draw(rng, operator)
    });
    for kind in Kind::ALL {
        keeps_its_word(Once(*kind), |rng| {
            let operator = draw::operator(*kind, rng);
            draw(rng, operator)
        });
    }
}

fn add(session: u128, number: u64, n: i64) -> Operator<counter::Operator> {
    let operator = counter::Operator::Add(n);
    Operator { stamp: 0, once: call(session, number), forgets: false, operator }
}

#[test]
fn a_repetition_answers_what_the_first_one_answered() {
    let read = Operator { operator: counter::Operator::Read, ..add(1, 1, 0) };
    let blind = Operator { operator: counter::Operator::AddBlind(100), ..add(1, 3, 0) };
    let operators =
        [add(1, 2, 5), add(2, 1, 7), add(1, 1, 1), add(1, 2, 5), read, blind.clone(), blind];
    let text = answers(Once(Counter), &operators);
    let integers = [5, 12, 13, 5, 13].map(Value::Integer);
    assert_eq!(text, [&integers[..], &[Value::Done, Value::Done]].concat());
    let sum = answers(Once(Counter), &[&operators[..], &[add(3, 1, 0)]].concat());
    assert_eq!(sum.last(), Some(&Value::Integer(113)));
}

#[test]
fn operations_behind_the_window_count_as_executed() {
    let last = WINDOW + 1;
    let text = answers(Once(Counter), &[add(1, 1, 1), add(1, last, 1), add(1, 1, 1), add(1, 2, 1)]);
    assert_eq!(text[2..], [Value::Repeated, Value::Integer(3)]);
}

/// Results are retained within the size limit, those of the latest numbers first.
#[test]
fn long_answers_are_not_kept() {
    let swap = |number, length| {
        let operator = register::Operator::Swap(vec![b'x'; length].into());
        Operator { stamp: 0, once: call(1, number), forgets: false, operator }
    };
    let half = ANSWERS_MAX * 2 / 3;
    let text = answers(
        Once(Register),
        &[
            swap(1, half),
            swap(2, half),
            swap(2, half),
            swap(3, ANSWERS_MAX),
            swap(2, half),
            swap(3, ANSWERS_MAX),
            swap(4, 0),
            swap(4, 0),
        ],
    );
    let answer = |length| Value::Bytes(vec![b'x'; length].into());
    assert_eq!(text[1..3], [answer(half), answer(half)]);
    // The result of number 3 left no room for that of number 2; that of number 4 is too large.
    assert_eq!(text[3..6], [answer(half), Value::Repeated, answer(half)]);
    assert_eq!(text[6..], [answer(ANSWERS_MAX), Value::Repeated]);
}

fn apply_all(
    state: &mut Counting,
    operators: impl IntoIterator<Item = Operator<counter::Operator>>,
) {
    operators.into_iter().for_each(|operator| drop(Once(Counter).apply(state, &operator)));
}

/// The table is bounded by count and by age, and the cost per operation is constant.
#[test]
fn sessions_are_forgotten_when_there_are_too_many_or_they_are_old() {
    let data = Once(Counter);
    let mut state = data.initial();
    let ask = |state: &Counting, stamp, session| {
        data.operator(state, stamp, call(session, 1), counter::Operator::Add(1))
    };
    for session in 0..2 * SESSIONS_MAX as u64 {
        let operator = ask(&state, session, session.into());
        data.apply(&mut state, &operator);
        assert!(state.sessions() <= SESSIONS_MAX);
    }
    assert!(state.sessions() > SESSIONS_MAX / 2);
    let (first, last) = (ask(&state, 0, 0), ask(&state, 0, 2 * SESSIONS_MAX as u128 - 1));
    assert!(!first.forgets && !last.forgets);
    let sum = 2 * SESSIONS_MAX as i128;
    assert_eq!(data.apply(&mut state.clone(), &last), Value::Integer(sum));
    assert_eq!(data.apply(&mut state.clone(), &first), Value::Integer(sum + 1));
    let late = ask(&state, 2 * IDLE_MAX_MS, 7);
    assert!(late.forgets);
    data.apply(&mut state, &late);
    assert_eq!(state.sessions(), 1);
}

/// States that differ only in retained results are equal, also after a round trip.
#[test]
fn states_return() {
    let [mut one, mut other] = [(); 2].map(|()| Once(Counter).initial());
    apply_all(&mut one, [add(1, 1, 5), add(2, 1, 7)]);
    apply_all(&mut other, [add(2, 1, 7), add(1, 1, 5)]);
    assert_eq!(one, other);
    let again = |state: &mut Counting| Once(Counter).apply(state, &add(1, 1, 5));
    assert_eq!((again(&mut one), again(&mut other)), (Value::Integer(5), Value::Integer(12)));
    let bytes = crate::binary::write(&one);
    let mut read: Counting = crate::binary::read(&bytes).expect("was written");
    assert_eq!((&read, again(&mut read.clone())), (&one, Value::Integer(5)));
    let mut forget = add(3, 1, 1);
    (forget.stamp, forget.forgets) = (2 * IDLE_MAX_MS, true);
    apply_all(&mut read, [forget]);
    assert_eq!(read.sessions(), 1);
    let json = serde_json::to_string(&add(0xab, 1, 5)).expect("has a form");
    let text = r#"{"stamp":0,"once":{"session":"000000000000000000000000000000ab","number":1},"#;
    assert_eq!(json, format!(r#"{text}"forgets":false,"operator":{{"add":5}}}}"#));
    assert_eq!(serde_json::from_str(&json).ok(), Some(add(0xab, 1, 5)));
    for name in ["", "+1", "x", "000000000000000000000000000000000"] {
        assert!(name.parse::<SessionId>().is_err(), "{name:?}");
    }
}

type Twin = Replica<Once<Counter>>;
type Outputs = Vec<Output<Operator<counter::Operator>, Value>>;

/// Two replicas with instantaneous journals and lossless links. Answers are collected with the
/// replica, the ticket, the value, and whether it is final.
struct Pair {
    replicas: [Twin; 2],
    answers: Vec<(u16, u64, Value, bool)>,
}

impl Pair {
    fn new() -> Pair {
        let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
        let ids = [ReplicaId(0), ReplicaId(1)];
        let replicas = ids.map(|id| Replica::new(Once(Counter), id, &ids, config));
        Pair { replicas, answers: Vec::new() }
    }

    fn step(&mut self, at: u16, input: Input<Operator<counter::Operator>>) {
        let mut out: Outputs = Vec::new();
        self.replicas[usize::from(at)].step(Instant(0), input, &mut out);
        for output in out {
            match output {
                Output::Persist(record, _) => self.step(at, Input::Persisted(record)),
                Output::Send(to, message) => {
                    self.step(to.0, Input::Received(ReplicaId(at), message))
                }
                Output::Answer { ticket, value, is_final, .. } => {
                    self.answers.push((at, ticket.0, value, is_final));
                }
                Output::Refuse(..)
                | Output::Distrust(_)
                | Output::Outdated(_)
                | Output::Vote(..)
                | Output::Removes(_)
                | Output::Members(_)
                | Output::Final(..) => panic!("{output:?}"),
            }
        }
    }

    fn ask(&mut self, at: u16, ticket: u64, strict: bool, operator: Operator<counter::Operator>) {
        let (ticket, until) = (Ticket(ticket), Instant(0) + Duration::from_secs(1));
        let after = Vector::new();
        self.step(at, Input::Request { ticket, after, strict, operator, until });
    }
}

/// A client gives up on a replica that has executed its operation, and retries at the other one.
/// The retry is *before* the original in the eventual order: it is the one that executes, and both
/// get the same result.
#[test]
fn a_retry_at_another_place_of_the_order() {
    let mut pair = Pair::new();
    // Two operations of another session give the original a late label.
    pair.ask(0, 1, false, add(7, 1, 100));
    pair.ask(0, 2, false, add(7, 2, 100));
    pair.ask(0, 3, true, add(1, 1, 5));
    pair.ask(1, 4, true, add(1, 1, 5));
    // Neither has received the other's operations.
    assert_eq!(*pair.replicas[0].current().inner(), 205);
    assert_eq!(*pair.replicas[1].current().inner(), 5);
    pair.step(0, Input::Connected(ReplicaId(1)));
    pair.step(1, Input::Connected(ReplicaId(0)));
    for at in [0, 1, 0, 1] {
        pair.step(at, Input::Tick);
    }
    let finals = pair.answers.iter().filter(|(.., is_final)| *is_final);
    let mut finals: Vec<_> = finals.map(|(at, ticket, value, _)| (*at, *ticket, value)).collect();
    finals.sort_by_key(|(_, ticket, _)| *ticket);
    // After the retry (its label is 1, of replica 1) and the first operation of the other session.
    let five = Value::Integer(105);
    assert_eq!(finals, [(0, 3, &five), (1, 4, &five)]);
    for replica in &mut pair.replicas {
        assert_eq!(*replica.stable().inner(), 205);
        assert_eq!(*replica.current().inner(), 205);
    }
}
