//! Round trips of the encodings, and robustness against malformed input.

use super::*;
use crate::binary;
use crate::service::{Change, Entry, Epoch, Label, Membership, Message, ReplicaId};
use expect_test::{Expect, expect};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// Checks that both encodings round-trip.
fn returns<T: Serialize + DeserializeOwned + PartialEq + Debug>(it: &T) {
    let bytes = binary::write(it);
    assert_eq!(binary::size(it), bytes.len());
    assert_eq!(binary::read::<T>(&bytes).as_ref(), Ok(it), "{bytes:?}");
    let json = serde_json::to_string(it).expect("has a form");
    assert_eq!(&serde_json::from_str::<T>(&json).expect(&json), it, "{json}");
}

fn message(of: Kind, rng: &mut Rng) -> Message<kind::Operator> {
    let vector = |rng: &mut Rng| {
        let parts = (0..rng.u16(..3)).map(|origin| (ReplicaId(origin), rng.u64(..9)));
        parts.collect()
    };
    let entry = |rng: &mut Rng| {
        let label = Label { counter: rng.u64(..), origin: ReplicaId(rng.u16(..)) };
        let (number, after, strict) = (rng.u64(..), vector(rng), rng.bool());
        Arc::new(Entry { number, label, after, strict, operator: draw::operator(of, rng) })
    };
    let entries = (0..rng.usize(..4)).map(|_| entry(rng)).collect();
    let epoch = |rng: &mut Rng| Epoch { number: rng.u64(..), by: rng.u128(..) };
    let id = |rng: &mut Rng| ReplicaId(rng.u16(..));
    let change = |rng: &mut Rng| {
        let members = [(id(rng), "192.0.2.1:5640".to_string())].into();
        Arc::new(Change { from: epoch(rng), members, lost: [id(rng)].into(), forced: rng.bool() })
    };
    let membership = |rng: &mut Rng| {
        let (epoch, members) = (epoch(rng), [(id(rng), String::new())].into());
        let retired = [(id(rng), rng.u64(..))].into();
        Arc::new(Membership { epoch, members, came: [id(rng)].into(), retired })
    };
    Message {
        entries,
        has: vector(rng),
        asks: rng.bool(),
        epoch: epoch(rng),
        change: rng.bool().then(|| change(rng)),
        reached: rng.bool().then(|| membership(rng)),
    }
}

#[test]
fn written_values_round_trip() {
    for seed in 0..2000 {
        let mut rng = base::rng::seeded(seed);
        let rng = &mut rng;
        for kind in Kind::ALL {
            let operator = draw::operator(*kind, rng);
            returns(&operator);
            match kind.read_json(operator.to_json().as_bytes()) {
                // Some formulas are malformed.
                Err(kind::Refused::Unsound(_)) => {}
                read => assert_eq!(read, Ok(operator.clone())),
            }
            assert_eq!(kind.read_binary(&binary::write(&operator)), Ok(operator));
            returns(&draw::state(*kind, rng));
            returns(&message(*kind, rng));
        }
        let value = draw::value(rng);
        if value != Value::Entries(Vec::new()) {
            returns(&value);
        }
    }
}

/// Replaces, inserts and removes a few bytes.
fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            // The largest integers: as lengths, they request huge allocations.
            2 => drop(bytes.splice(at..at, [0xff; 9])),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.u8(..)),
        }
    }
}

/// Checks that whatever can be decoded from corrupt bytes round-trips.
fn bears<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let read = binary::read::<T>(bytes);
    read.iter().for_each(returns);
    let json = serde_json::from_slice::<T>(bytes);
    let json = json.ok().map(|it| serde_json::to_string(&it).expect("has a form"));
    read.is_ok() || json.is_some()
}

#[test]
fn spoilt_bytes_harm_nobody() {
    let mut understood = 0;
    for seed in 0..4000 {
        let mut rng = base::rng::seeded(seed);
        let rng = &mut rng;
        let kind = *rng.choice(Kind::ALL).expect("there are some");
        let operator = draw::operator(kind, rng);
        let (state, value) = (draw::state(kind, rng), draw::value(rng));
        let message = message(kind, rng);
        let forms = [
            binary::write(&operator),
            operator.to_json().into_bytes(),
            binary::write(&state),
            serde_json::to_vec(&state).expect("has a form"),
            binary::write(&value),
            serde_json::to_vec(&value).expect("has a form"),
            binary::write(&message),
            serde_json::to_vec(&message).expect("has a form"),
            (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        ];
        for mut bytes in forms {
            spoil(rng, &mut bytes);
            let operators = [kind.read_binary(&bytes), kind.read_json(&bytes)];
            for read in operators {
                understood += u32::from(read.is_ok());
                read.iter().for_each(returns);
                // Whatever was decoded can be applied without a panic.
                let _ = read.map(|operator| kind.apply(&mut state.clone(), &operator));
            }
            understood += u32::from(bears::<kind::State>(&bytes));
            // Empty entries are read from JSON as an empty list.
            understood += u32::from(binary::read::<Value>(&bytes).is_ok());
            let _ = serde_json::from_slice::<Value>(&bytes);
            understood += u32::from(bears::<Message<kind::Operator>>(&bytes));
        }
    }
    assert!(understood > 1000, "{understood}");
}

/// Compares the parse of command lines and JSON by a type; of errors, the first line.
fn words(kind: Kind, reply: &[&str], expected: &Expect) {
    let mut lines = String::new();
    for line in reply {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let meant = if line.starts_with(['{', '"', '[']) {
            kind.read_json(line.as_bytes()).map(|operator| format!("{operator:?}"))
        } else {
            kind.read_words(&words).map(|operator| operator.to_json())
        };
        let meant = meant.unwrap_or_else(|refused| refused.to_string());
        let meant = meant.lines().next().expect("an error is reported");
        lines.push_str(&format!("{line}\n    {meant}\n"));
    }
    expected.assert_eq(&lines);
}

#[test]
fn command_lines_parse_to_operators() {
    let reply = ["add -5", "add-blind 7", "read", "add", "add five", "add 5 6", "subtract 1", ""];
    words(
        Kind::Counter,
        &reply,
        &expect![[r#"
        add -5
            {"add":-5}
        add-blind 7
            {"add-blind":7}
        read
            "read"
        add
            add NUMBER: too few words
        add five
            add NUMBER: "five" is not a number that can be here
        add 5 6
            add NUMBER: "6" is too much
        subtract 1
            unknown operation "subtract"

            an operation is missing
    "#]],
    );
}

#[test]
fn command_lines_of_other_types_are_refused() {
    let reply = ["put a b", "compare-and-put a b c", "put-new a c", "list", "list 7", "list 7 a"];
    words(
        Kind::Map,
        &reply,
        &expect![[r#"
        put a b
            {"put":["a","b"]}
        compare-and-put a b c
            {"compare-and-put":{"key":"a","expected":"b","new":"c"}}
        put-new a c
            {"compare-and-put":{"key":"a","expected":null,"new":"c"}}
        list
            {"list":{"after":null,"most":1000}}
        list 7
            {"list":{"after":null,"most":7}}
        list 7 a
            {"list":{"after":"a","most":7}}
    "#]],
    );
    words(
        Kind::Log,
        &["read", "read 7", "read 7 9", "read x"],
        &expect![[r#"
        read
            {"read":{"from":0,"most":1000}}
        read 7
            {"read":{"from":7,"most":1000}}
        read 7 9
            {"read":{"from":7,"most":9}}
        read x
            read [FROM [MOST]]: "x" is not a number that can be here
    "#]],
    );
    words(
        Kind::Set,
        &["contains a", "list 2 b"],
        &expect![[r#"
        contains a
            {"contains":"a"}
        list 2 b
            {"list":{"after":"b","most":2}}
    "#]],
    );
    words(
        Kind::Text,
        &["append it", "read"],
        &expect![[r#"
        append it
            {"append":"it"}
        read
            "read"
    "#]],
    );
    words(
        Kind::Register,
        &["swap a", "put-new a"],
        &expect![[r#"
        swap a
            {"swap":"a"}
        put-new a
            {"compare-and-put":{"expected":null,"new":"a"}}
    "#]],
    );
}

#[test]
fn errors_say_what_can_be_done() {
    let words = Kind::Counter.read_words(&["subtract".to_owned()]);
    let json = Kind::Counter.read_json(br#"{"subtract": 1}"#);
    let binary = Kind::Counter.read_binary(&[0, 9]);
    let reply = [words, json, binary].map(|read| read.expect_err("is none").to_string());
    expect![[r#"
        unknown operation "subtract"
        operations on a counter:
          add NUMBER        adds; returns the sum
          add-blind NUMBER  adds, and returns nothing: final at once
          read              returns the sum
        no operation in JSON: unknown variant `subtract`, expected one of `add`, `add-blind`, `read`
        operations on a counter:
          {"add": 5}        adds; returns the sum
          {"add-blind": 5}  adds, and returns nothing: final at once
          "read"            returns the sum
        invalid operation: Serde Deserialization Error"#]]
    .assert_eq(&reply.join("\n"));
}

#[test]
fn json_parses_to_operators() {
    let reply = [
        r#"{"put": ["k", {"base64": "/w=="}]}"#,
        r#"{"compare-and-put": {"key": "k", "new": "v"}}"#,
        r#"{"list": {}}"#,
        r#"{"list": {"after": "k", "most": 4294967296}}"#,
        r#"{"list": {"afterwards": "k"}}"#,
        r#"{"get": {"base64": "?"}}"#,
        r#""size""#,
    ];
    words(
        Kind::Map,
        &reply,
        &expect![[r#"
            {"put": ["k", {"base64": "/w=="}]}
                Map(Put("k", b"\xff"))
            {"compare-and-put": {"key": "k", "new": "v"}}
                Map(CompareAndPut { key: "k", expected: None, new: "v" })
            {"list": {}}
                Map(List { after: None, most: 1000 })
            {"list": {"after": "k", "most": 4294967296}}
                no operation in JSON: invalid value: integer `4294967296`, expected u32
            {"list": {"afterwards": "k"}}
                no operation in JSON: unknown field `afterwards`, expected `after` or `most`
            {"get": {"base64": "?"}}
                no operation in JSON: not base64: Invalid symbol 63, offset 0.
            "size"
                Map(Size)
        "#]],
    );
    let reply = [r#"{"add": 9223372036854775807}"#, r#"{"add": 9223372036854775808}"#];
    words(
        Kind::Counter,
        &reply,
        &expect![[r#"
            {"add": 9223372036854775807}
                Counter(Add(9223372036854775807))
            {"add": 9223372036854775808}
                no operation in JSON: invalid value: integer `9223372036854775808`, expected i64
        "#]],
    );
}

/// The examples in the documented tables are valid.
#[test]
fn each_example_is_one() {
    let docs = include_str!("../../../../../docs/replica.md");
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(*kind));
        for row in kind.rows() {
            let json = row.split('`').nth(3).expect("is the second column");
            assert!(kind.read_json(json.as_bytes()).is_ok(), "{json}");
            assert!(docs.lines().any(|line| line == row), "docs/replica.md lacks\n{row}");
        }
    }
}

#[test]
fn values_as_json() {
    let values = [
        Value::Done,
        Value::Integer(1 << 53),
        Value::Integer(-(1 << 53) - 1),
        Value::Integer(i128::MIN),
        Value::Bool(false),
        Value::Bytes("grün".into()),
        Value::Bytes([0xff, 0].into()),
        Value::Nothing,
        Value::List(vec!["a".into(), [0xff].into()]),
        Value::Entries(vec![("k".into(), "v".into())]),
        Value::Wrong(Wrong::TooLarge),
        Value::Repeated,
        Value::Number(sheet::Number::new(5.0).expect("is finite")),
        Value::Error(sheet::Fault::Division),
        Value::Rows(vec![vec![sheet::Scalar::Empty, sheet::Scalar::from("a")], vec![]]),
    ];
    let lines = values.map(|value| serde_json::to_string(&value).expect("has a form"));
    expect![[r##"
        {"done":true}
        9007199254740992
        {"integer":"-9007199254740993"}
        {"integer":"-170141183460469231731687303715884105728"}
        false
        "grün"
        {"base64":"/wA="}
        null
        ["a",{"base64":"/w=="}]
        [["k","v"]]
        {"wrong":"too large"}
        {"repeated":true}
        5.0
        {"error":"#DIV/0!"}
        {"rows":[[null,"a"],[]]}"##]]
    .assert_eq(&lines.join("\n"));
    for json in [r#"{"done": false}"#, r#"["a", ["k", "v"]]"#, "1e999"] {
        assert!(serde_json::from_str::<Value>(json).is_err(), "{json}");
    }
}

/// Operators above the size limit are rejected in every form.
#[test]
fn operators_are_bounded() {
    let fits = "x".repeat(kind::OPERATOR_MAX - 5);
    let append = |text: &str| kind::Operator::Text(text::Operator::Append(text.into()));
    let bytes = binary::write(&append(&fits));
    assert_eq!(bytes.len(), kind::OPERATOR_MAX);
    assert_eq!(Kind::Text.read_binary(&bytes), Ok(append(&fits)));
    let more = append(&(fits + "x"));
    assert_eq!(Kind::Text.read_binary(&binary::write(&more)), Err(kind::Refused::TooLarge));
    assert_eq!(Kind::Text.read_json(more.to_json().as_bytes()), Err(kind::Refused::TooLarge));
    assert_eq!(Kind::Text.admits(&more), Err(kind::Refused::TooLarge));
    let other = kind::Refused::OtherKind(Kind::Set, Kind::Text);
    assert_eq!(Kind::Set.admits(&more), Err(other.clone()));
    assert_eq!(Kind::Set.read_binary(&binary::write(&append("x"))), Err(other));
}
