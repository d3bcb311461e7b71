use super::*;
use crate::counted::Workload;
use crate::spec::{Data, Kind, Speed};
use esds::ioa::ReservedMessage;
use esds::{Descriptor, Id, Label, Message, News};
use replica::binary;
use replica::data::{Counter, Text, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

const KINDS: [Kind; 4] = [Kind::Optimised, Kind::Plain, Kind::Simple, Kind::Service];

/// Sixty operations, submitted as fast as possible, for maximum disorder.
fn spec(kind: Kind, replicas: usize, strict: u64) -> Spec {
    Spec {
        kind,
        data: Data::Add,
        replicas,
        operations: 60,
        rate: 1e6,
        strict,
        gossip: true,
        eager: false,
        speed: Speed::default(),
        processors: replicas,
        gather: 100,
        delay: 0.0,
        seed: 7,
    }
}

fn outcomes(specs: &[Spec]) -> Vec<Outcome> {
    run_at_once(specs).into_iter().map(|outcome| outcome.expect("it ends")).collect()
}

#[test]
fn whatever_the_composition_all_is_answered_and_replicas_end_equal() {
    for replicas in 1..=3 {
        let specs = KINDS.map(|kind| spec(kind, replicas, 30));
        for (kind, outcome) in KINDS.iter().zip(outcomes(&specs)) {
            assert_eq!(outcome.answered, 60, "{kind:?}");
            assert_eq!(outcome.equal, Some(true), "{kind:?}");
            assert_eq!(outcome.inconsistent_strict, Some(0), "{kind:?}");
            assert!(outcome.client_strict.is_some() && outcome.client_other.is_some());
        }
    }
}

#[test]
fn an_eager_replica_says_the_same() {
    let eager = Spec { eager: true, ..spec(Kind::Optimised, 3, 50) };
    let outcome = outcomes(&[eager]).remove(0);
    assert_eq!((outcome.answered, outcome.equal), (60, Some(true)));
    assert_eq!(outcome.inconsistent_strict, Some(0));
}

#[test]
fn nothing_is_inconsistent_if_all_is_strict_or_blind_or_there_is_one_replica() {
    let strict = KINDS.map(|kind| spec(kind, 3, 100));
    let blind = KINDS.map(|kind| Spec { data: Data::Blind, ..spec(kind, 3, 0) });
    let alone = KINDS.map(|kind| Spec { data: Data::Append, ..spec(kind, 1, 0) });
    for outcome in outcomes(&[strict, blind, alone].concat()) {
        assert_eq!(outcome.inconsistent, Some(0));
        assert_eq!(outcome.answered, 60);
    }
}

#[test]
fn an_isolated_replica_still_answers() {
    let silent = Spec { gossip: false, ..spec(Kind::Optimised, 3, 0) };
    let outcome = outcomes(&[silent]).remove(0);
    assert_eq!((outcome.answered, outcome.inconsistent, outcome.equal), (60, None, None));
    assert!(outcome.messages.to_bits() == 2.0_f64.to_bits());
}

/// Sleeps may be longer than requested, never shorter.
#[test]
fn a_slow_processor_needs_the_stated_time() {
    let speed = Speed { request: 1000, ..Speed::default() };
    let slow = |replicas, processors| Spec {
        gossip: false,
        speed,
        processors,
        ..spec(Kind::Optimised, replicas, 0)
    };
    let [alone, shared, own] = [slow(1, 1), slow(2, 1), slow(2, 2)];
    let totals: Vec<f64> = outcomes(&[alone, shared, own]).iter().map(|o| o.total).collect();
    assert!(totals[0] >= 60.0 && totals[1] >= 60.0 && totals[2] >= 30.0, "{totals:?}");
}

#[test]
fn a_response_takes_longer_for_the_front_end_than_for_the_replica() {
    let outcome = outcomes(&[spec(Kind::Optimised, 2, 0)]).remove(0);
    assert!(outcome.replica <= outcome.front_end && outcome.front_end <= outcome.client);
}

#[test]
fn a_run_is_read_as_it_is_written() {
    let line = r#"{"kind": "service", "data": "blind", "replicas": 2, "operations": 3, "rate": 1.5,
        "strict": 50, "gossip": true, "eager": false, "processors": 2, "delay": 0.5, "seed": 9,
        "gather": 0,
        "speed": {"message": 1, "gossip": 2, "news": 3, "request": 4, "apply": 5, "switch": 6}}"#;
    let spec: Spec = serde_json::from_str(line).expect("it is a run");
    assert_eq!((spec.kind, spec.data, spec.speed.switch), (Kind::Service, Data::Blind, 6));
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(output: &T) {
    assert_eq!(binary::read::<T>(&binary::write(output)).as_ref(), Ok(output));
}

#[test]
fn sent_messages_are_received() {
    for operator in [Data::Add, Data::Blind].map(|data| Counter::operator(data, 41)) {
        assert_eq!(Counter::number(&operator), 41);
        comes_back(&operator);
    }
    let operator = Text::operator(Data::Append, 41);
    assert_eq!(Text::number(&operator), 41);
    let prev = [Id(1), Id(2)].into();
    let descriptor = Arc::new(Descriptor { id: Id(3), sender: 4, prev, strict: true, operator });
    let label = Some(Label { counter: 5, replica: 6 });
    let news = News { descriptor: descriptor.clone(), label, stable: true };
    comes_back(&Message::<_, Value>::Request(descriptor));
    let message = Message::<_, Value>::Gossip(vec![news]);
    comes_back(&message);
    comes_back(&ReservedMessage::Join { message, alone: true });
    let value = Value::Bytes(b"text".as_slice().into());
    for value in [value, Value::Integer(-7), Value::Done] {
        comes_back(&Message::<replica::data::text::Operator, _>::Response(Id(8), value));
    }
    let exchanges: [ReservedMessage<u8>; 6] = [
        ReservedMessage::Ask,
        ReservedMessage::Grant,
        ReservedMessage::Refuse,
        ReservedMessage::Release,
        ReservedMessage::Done,
        ReservedMessage::Over,
    ];
    exchanges.iter().for_each(comes_back);
}
