use super::*;
use base::rng::Rng;

mod draw;
mod forms;
mod once;
mod sheets;

/// Checks the properties that a type declares, in random states and for random pairs of operators.
fn keeps_its_word<D: DataType>(data: D, draw: impl Fn(&mut Rng) -> D::Operator) {
    let (mut commuting, mut oblivious, mut free) = (0, 0, 0);
    for seed in 0..4000 {
        let mut rng = base::rng::seeded(seed);
        let mut state = data.initial();
        for _ in 0..rng.usize(..12) {
            data.apply(&mut state, &draw(&mut rng));
        }
        let (a, b) = (draw(&mut rng), draw(&mut rng));
        let (mut a_b, mut b_a) = (state.clone(), state.clone());
        let alone = data.apply(&mut a_b, &a);
        data.apply(&mut a_b, &b);
        data.apply(&mut b_a, &b);
        let behind = data.apply(&mut b_a, &a);
        if data.commute(&a, &b) {
            assert!(data.commute(&b, &a), "seed {seed}: {a:?} {b:?}");
            assert_eq!(a_b, b_a, "seed {seed}: {a:?} {b:?}");
            commuting += 1;
        }
        if data.oblivious(&a, &b) {
            assert_eq!(alone, behind, "seed {seed}: {a:?} {b:?}");
            oblivious += 1;
        }
        if data.is_read(&a) {
            let mut read = state.clone();
            data.apply(&mut read, &a);
            assert_eq!(read, state, "seed {seed}: {a:?}");
        }
        if data.is_free(&a) {
            assert!(data.oblivious(&a, &b), "seed {seed}: {a:?} {b:?}");
            assert_eq!(alone, data.apply(&mut data.initial(), &a), "seed {seed}: {a:?}");
            free += 1;
        }
    }
    assert!(commuting > 0 && oblivious > 0, "{commuting} {oblivious} {free}");
}

#[test]
fn a_counter_keeps_its_word() {
    keeps_its_word(Counter, draw::counter);
}

#[test]
fn a_text_keeps_its_word() {
    keeps_its_word(Text, draw::text);
}

#[test]
fn a_register_keeps_its_word() {
    keeps_its_word(Register, draw::register);
}

#[test]
fn a_map_keeps_its_word() {
    keeps_its_word(Map, draw::map);
}

#[test]
fn a_set_keeps_its_word() {
    keeps_its_word(Set, draw::set);
}

#[test]
fn a_log_keeps_its_word() {
    keeps_its_word(Log, draw::log);
}

#[test]
fn a_sheet_keeps_its_word() {
    keeps_its_word(Sheet, draw::sheet);
}

/// Includes operators of other types, which have no effect.
#[test]
fn a_type_chosen_at_run_time_keeps_its_word() {
    for kind in Kind::ALL {
        keeps_its_word(*kind, |rng| {
            let others = rng.choice(Kind::ALL).expect("there are some");
            draw::operator(if rng.u8(..8) == 0 { *others } else { *kind }, rng)
        });
    }
}

#[test]
fn an_operator_of_another_type_does_nothing() {
    let mut state = Kind::Counter.initial();
    let read = kind::Operator::Register(register::Operator::Read);
    assert_eq!(Kind::Counter.apply(&mut state, &read), Value::Wrong(Wrong::OtherType));
    assert_eq!(state, Kind::Counter.initial());
}

/// Applies several operators in sequence and returns their results.
fn answers<D: DataType>(data: D, operators: &[D::Operator]) -> Vec<D::Value> {
    let mut state = data.initial();
    operators.iter().map(|operator| data.apply(&mut state, operator)).collect()
}

#[test]
fn each_type_by_example() {
    use Value::{Bool, Done, Entries, Integer, List, Nothing};
    let [a, b, x] = ["a", "b", "x"].map(Bytes::from);
    let most = [counter::Operator::Add(i64::MAX), counter::Operator::Add(i64::MAX)];
    assert_eq!(answers(Counter, &most)[1], Integer(2 * i128::from(i64::MAX)));
    let texts = [text::Operator::Append(a.clone()), text::Operator::Append(b.clone())];
    assert_eq!(answers(Text, &texts), [Value::Bytes(a.clone()), Value::Bytes("ab".into())]);
    let registers = [
        register::Operator::Read,
        register::Operator::CompareAndPut { expected: None, new: a.clone() },
        register::Operator::CompareAndPut { expected: None, new: b.clone() },
        register::Operator::Swap(b.clone()),
    ];
    let expected = [Nothing, Bool(true), Bool(false), Value::Bytes(a.clone())];
    assert_eq!(answers(Register, &registers), expected);
    let maps = [
        map::Operator::Put(b.clone(), x.clone()),
        map::Operator::Put(a.clone(), x.clone()),
        map::Operator::List { after: None, most: u32::MAX },
        map::Operator::List { after: Some(a.clone()), most: 9 },
        map::Operator::Take(a.clone()),
        map::Operator::Get(a.clone()),
        map::Operator::Size,
    ];
    let both = vec![(a.clone(), x.clone()), (b.clone(), x.clone())];
    let behind = vec![(b.clone(), x.clone())];
    let taken = Value::Bytes(x.clone());
    let expected = [Done, Done, Entries(both), Entries(behind), taken, Nothing, Integer(1)];
    assert_eq!(answers(Map, &maps), expected);
    let sets = [
        set::Operator::Insert(a.clone()),
        set::Operator::Insert(a.clone()),
        set::Operator::Contains(b.clone()),
        set::Operator::List { after: None, most: 9 },
    ];
    let expected = [Bool(true), Bool(false), Bool(false), List(vec![a.clone()])];
    assert_eq!(answers(Set, &sets), expected);
    let logs = [
        log::Operator::Append(a.clone()),
        log::Operator::Append(b.clone()),
        log::Operator::Read { from: 1, most: u32::MAX },
        log::Operator::Read { from: u64::MAX, most: 1 },
    ];
    let expected = [Integer(0), Integer(1), List(vec![b]), List(vec![])];
    assert_eq!(answers(Log, &logs), expected);
}

/// A full text rejects further appends and stays unchanged.
#[test]
fn a_text_has_an_end() {
    let half: Bytes = vec![b'x'; text::TEXT_MAX / 2 + 1].into();
    let (mut state, append) = (Text.initial(), text::Operator::Append(half.clone()));
    assert_eq!(Text.apply(&mut state, &append), Value::Bytes(half.clone()));
    assert_eq!(Text.apply(&mut state, &append), Value::Wrong(Wrong::TooLarge));
    assert_eq!(Text.apply(&mut state, &text::Operator::Read), Value::Bytes(half));
}

/// A clone of a large state costs no more than one of a small state: the data are shared.
#[test]
fn copies_share() {
    let mut state = Map.initial();
    for n in 0..10_000_u32 {
        let key: Bytes = n.to_be_bytes().into();
        Map.apply(&mut state, &map::Operator::Put(key.clone(), key));
    }
    let mut copy = state.clone();
    Map.apply(&mut copy, &map::Operator::Remove(0_u32.to_be_bytes().into()));
    assert_eq!((state.size(), copy.size()), (10_000, 9_999));
}

/// Whatever the requested count: a result barely exceeds the documented size and is never empty.
#[test]
fn answers_are_bounded_in_bytes() {
    let large: Bytes = vec![b'x'; ANSWER_MAX / 4].into();
    let mut log = Log.initial();
    let mut map = Map.initial();
    for n in 0..9_u8 {
        Log.apply(&mut log, &log::Operator::AppendBlind(large.clone()));
        Map.apply(&mut map, &map::Operator::Put([n].into(), large.clone()));
    }
    let Value::List(records) = Log.apply(&mut log, &log::Operator::Read { from: 0, most: 99 })
    else {
        panic!("records are a list");
    };
    let Value::Entries(entries) =
        Map.apply(&mut map, &map::Operator::List { after: None, most: 99 })
    else {
        panic!("keys and values are entries");
    };
    // The keys take a byte each.
    assert_eq!((records.len(), entries.len()), (4, 3));
    let whole: Bytes = vec![b'x'; 2 * ANSWER_MAX].into();
    Log.apply(&mut log, &log::Operator::Append(whole.clone()));
    let last = Log.apply(&mut log, &log::Operator::Read { from: 9, most: 99 });
    assert_eq!(last, Value::List(vec![whole]));
}
