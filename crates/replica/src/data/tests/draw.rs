//! Random operators and values.

use super::*;

/// Mostly one of a few words, so that operators collide; sometimes arbitrary bytes.
fn word(rng: &mut Rng) -> Bytes {
    match rng.u8(..8) {
        0 => (0..rng.usize(..4)).map(|_| rng.u8(..)).collect::<Vec<u8>>().into(),
        _ => [b'a' + rng.u8(..4)].into(),
    }
}

fn maybe(rng: &mut Rng) -> Option<Bytes> {
    rng.bool().then(|| word(rng))
}

pub(super) fn counter(rng: &mut Rng) -> counter::Operator {
    match rng.u8(..3) {
        0 => counter::Operator::Add(rng.i64(-9..9)),
        1 => counter::Operator::AddBlind(rng.i64(..)),
        _ => counter::Operator::Read,
    }
}

pub(super) fn text(rng: &mut Rng) -> text::Operator {
    match rng.u8(..2) {
        0 => text::Operator::Append(word(rng)),
        _ => text::Operator::Read,
    }
}

pub(super) fn register(rng: &mut Rng) -> register::Operator {
    match rng.u8(..4) {
        0 => register::Operator::Put(word(rng)),
        1 => register::Operator::Swap(word(rng)),
        2 => register::Operator::CompareAndPut { expected: maybe(rng), new: word(rng) },
        _ => register::Operator::Read,
    }
}

pub(super) fn map(rng: &mut Rng) -> map::Operator {
    match rng.u8(..7) {
        0 => map::Operator::Put(word(rng), word(rng)),
        1 => map::Operator::Remove(word(rng)),
        2 => map::Operator::Take(word(rng)),
        3 => {
            let (key, expected, new) = (word(rng), maybe(rng), word(rng));
            map::Operator::CompareAndPut { key, expected, new }
        }
        4 => map::Operator::Get(word(rng)),
        5 => map::Operator::List { after: maybe(rng), most: rng.u32(..3) },
        _ => map::Operator::Size,
    }
}

pub(super) fn set(rng: &mut Rng) -> set::Operator {
    match rng.u8(..6) {
        0 => set::Operator::Add(word(rng)),
        1 => set::Operator::Remove(word(rng)),
        2 => set::Operator::Insert(word(rng)),
        3 => set::Operator::Contains(word(rng)),
        4 => set::Operator::List { after: maybe(rng), most: rng.u32(..3) },
        _ => set::Operator::Size,
    }
}

pub(super) fn log(rng: &mut Rng) -> log::Operator {
    match rng.u8(..4) {
        0 => log::Operator::Append(word(rng)),
        1 => log::Operator::AppendBlind(word(rng)),
        2 => log::Operator::Read { from: rng.u64(..5), most: rng.u32(..3) },
        _ => log::Operator::Size,
    }
}

/// Random cell input, some of it malformed and some of it circular.
pub(super) fn input(rng: &mut Rng) -> String {
    const INPUTS: &[&str] = &[
        "",
        "7",
        "-1.5",
        "text",
        "'7",
        "TRUE",
        "=A1+1",
        "=B2*C3",
        "=SUM(A1:B2)",
        "=IF(A1>2, B1, \"no\")",
        "=IFERROR(C1, A2&B1)",
        "=1/A3",
        "=COUNTIF(A1:C3, \">1\")",
        "=VLOOKUP(7, A1:C3, 2, FALSE)",
        "=NOW()",
        "=((",
    ];
    (*rng.choice(INPUTS).expect("there are some")).to_owned()
}

fn cell(rng: &mut Rng) -> sheet::Cell {
    sheet::Cell::at(rng.u32(1..4), rng.u32(1..4)).expect("is in the sheet")
}

fn region(rng: &mut Rng) -> sheet::Region {
    sheet::Region::between(cell(rng), cell(rng))
}

pub(super) fn sheet(rng: &mut Rng) -> sheet::Operator {
    match rng.u8(..12) {
        0 => {
            let cells = (0..rng.usize(..3)).map(|_| (cell(rng), input(rng)));
            sheet::Operator::Load(cells.collect())
        }
        1 => sheet::Operator::Clear(region(rng)),
        2 => sheet::Operator::Get(cell(rng)),
        3 => sheet::Operator::Input(cell(rng)),
        4 => sheet::Operator::Range(region(rng)),
        5 => sheet::Operator::Inputs(region(rng)),
        6 => sheet::Operator::Used,
        7 => sheet::Operator::Size,
        _ => sheet::Operator::Set(cell(rng), input(rng)),
    }
}

fn scalar(rng: &mut Rng) -> sheet::Scalar {
    match rng.u8(..5) {
        0 => sheet::Scalar::Empty,
        1 => sheet::Scalar::Bool(rng.bool()),
        2 => sheet::Scalar::from(input(rng).as_str()),
        3 => sheet::Scalar::Error(sheet::Fault::Division),
        _ => sheet::Scalar::Number(number(rng)),
    }
}

fn number(rng: &mut Rng) -> sheet::Number {
    sheet::Number::new(f64::from_bits(rng.u64(..))).unwrap_or_default()
}

pub(super) fn operator(of: Kind, rng: &mut Rng) -> kind::Operator {
    match of {
        Kind::Counter => kind::Operator::Counter(counter(rng)),
        Kind::Text => kind::Operator::Text(text(rng)),
        Kind::Register => kind::Operator::Register(register(rng)),
        Kind::Map => kind::Operator::Map(map(rng)),
        Kind::Set => kind::Operator::Set(set(rng)),
        Kind::Log => kind::Operator::Log(log(rng)),
        Kind::Sheet => kind::Operator::Sheet(sheet(rng)),
    }
}

/// Returns the state after some random operators.
pub(super) fn state(of: Kind, rng: &mut Rng) -> kind::State {
    let mut state = of.initial();
    for _ in 0..rng.usize(..12) {
        of.apply(&mut state, &operator(of, rng));
    }
    state
}

pub(super) fn value(rng: &mut Rng) -> Value {
    let small = |rng: &mut Rng| rng.usize(..4);
    match rng.u8(..13) {
        0 => Value::Done,
        1 => Value::Integer((rng.u128(..) as i128) >> rng.u8(..128)),
        2 => Value::Integer((1 << 53) + i128::from(rng.i8(-2..3))),
        3 => Value::Bool(rng.bool()),
        4 => Value::Bytes(word(rng)),
        5 => Value::Nothing,
        6 => Value::List((0..small(rng)).map(|_| word(rng)).collect()),
        7 => Value::Entries((0..small(rng)).map(|_| (word(rng), word(rng))).collect()),
        8 => Value::Repeated,
        9 => Value::Number(number(rng)),
        10 => Value::Error(sheet::Fault::Missing),
        11 => {
            let row = |rng: &mut Rng| (0..rng.usize(..3)).map(|_| scalar(rng)).collect();
            Value::Rows((0..small(rng)).map(|_| row(rng)).collect())
        }
        _ => Value::Wrong(if rng.bool() { Wrong::TooLarge } else { Wrong::OtherType }),
    }
}
