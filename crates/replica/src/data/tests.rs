use super::*;
use base::rng::Rng;

fn word(rng: &mut Rng) -> Bytes {
    [b'a' + rng.u8(..4)].into()
}

fn maybe(rng: &mut Rng) -> Option<Bytes> {
    rng.bool().then(|| word(rng))
}

/// What a type says of itself must be so, in random states, for random pairs of operators.
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
        if data.is_free(&a) {
            assert!(data.oblivious(&a, &b), "seed {seed}: {a:?} {b:?}");
            free += 1;
        }
    }
    assert!(commuting > 0 && oblivious > 0, "{commuting} {oblivious} {free}");
}

#[test]
fn a_counter_keeps_its_word() {
    keeps_its_word(Counter, |rng| match rng.u8(..3) {
        0 => counter::Operator::Add(rng.i64(-9..9)),
        1 => counter::Operator::AddBlind(rng.i64(..)),
        _ => counter::Operator::Read,
    });
}

#[test]
fn a_text_keeps_its_word() {
    keeps_its_word(Text, |rng| match rng.u8(..2) {
        0 => text::Operator::Append(word(rng)),
        _ => text::Operator::Read,
    });
}

#[test]
fn a_register_keeps_its_word() {
    keeps_its_word(Register, |rng| match rng.u8(..4) {
        0 => register::Operator::Put(word(rng)),
        1 => register::Operator::Swap(word(rng)),
        2 => register::Operator::CompareAndPut { expected: maybe(rng), new: word(rng) },
        _ => register::Operator::Read,
    });
}

#[test]
fn a_map_keeps_its_word() {
    keeps_its_word(Map, |rng| match rng.u8(..7) {
        0 => map::Operator::Put(word(rng), word(rng)),
        1 => map::Operator::Remove(word(rng)),
        2 => map::Operator::Take(word(rng)),
        3 => {
            let (key, expected, new) = (word(rng), maybe(rng), word(rng));
            map::Operator::CompareAndPut { key, expected, new }
        }
        4 => map::Operator::Get(word(rng)),
        5 => map::Operator::List(maybe(rng), rng.usize(..3)),
        _ => map::Operator::Size,
    });
}

#[test]
fn a_set_keeps_its_word() {
    keeps_its_word(Set, |rng| match rng.u8(..6) {
        0 => set::Operator::Add(word(rng)),
        1 => set::Operator::Remove(word(rng)),
        2 => set::Operator::Insert(word(rng)),
        3 => set::Operator::Contains(word(rng)),
        4 => set::Operator::List(maybe(rng), rng.usize(..3)),
        _ => set::Operator::Size,
    });
}

#[test]
fn a_log_keeps_its_word() {
    keeps_its_word(Log, |rng| match rng.u8(..4) {
        0 => log::Operator::Append(word(rng)),
        1 => log::Operator::AppendBlind(word(rng)),
        2 => log::Operator::Read(rng.u64(..5), rng.usize(..3)),
        _ => log::Operator::Size,
    });
}

/// What a type answers to several operators, one after the other.
fn answers<D: DataType>(data: D, operators: &[D::Operator]) -> Vec<D::Value> {
    let mut state = data.initial();
    operators.iter().map(|operator| data.apply(&mut state, operator)).collect()
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

#[test]
fn each_type_by_example() {
    use Value::{Bool, Done, Entries, Integer, List, Nothing};
    let [a, b, x] = ["a", "b", "x"].map(bytes);
    let most = [counter::Operator::Add(i64::MAX), counter::Operator::Add(i64::MAX)];
    assert_eq!(answers(Counter, &most)[1], Integer(2 * i128::from(i64::MAX)));
    let texts = [text::Operator::Append(a.clone()), text::Operator::Append(b.clone())];
    assert_eq!(answers(Text, &texts), [Value::Bytes(a.clone()), Value::Bytes(bytes("ab"))]);
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
        map::Operator::List(None, usize::MAX),
        map::Operator::List(Some(a.clone()), 9),
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
        set::Operator::List(None, 9),
    ];
    let expected = [Bool(true), Bool(false), Bool(false), List(vec![a.clone()])];
    assert_eq!(answers(Set, &sets), expected);
    let logs = [
        log::Operator::Append(a.clone()),
        log::Operator::Append(b.clone()),
        log::Operator::Read(1, usize::MAX),
        log::Operator::Read(u64::MAX, 1),
    ];
    let expected = [Integer(0), Integer(1), List(vec![b]), List(vec![])];
    assert_eq!(answers(Log, &logs), expected);
}

/// Whatever is asked of a text that is full is refused, and changes nothing.
#[test]
fn a_text_has_an_end() {
    let half: Bytes = vec![b'x'; text::TEXT_MAX / 2 + 1].into();
    let (mut state, append) = (Text.initial(), text::Operator::Append(half.clone()));
    assert_eq!(Text.apply(&mut state, &append), Value::Bytes(half.clone()));
    assert_eq!(Text.apply(&mut state, &append), Value::Wrong(Wrong::TooLarge));
    assert_eq!(Text.apply(&mut state, &text::Operator::Read), Value::Bytes(half));
}

/// A copy of a large state costs no more than one of a small state: it is shared.
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
