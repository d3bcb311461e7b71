//! Fuzzers of operations on replicated data, and of formulas.

use super::streams;
use base::rng::Rng;
use replica::binary;
use replica::data::kind::{Operator, Refused, State};
use replica::data::sheet::function_names;
use replica::data::{DataType as _, Kind};
use replica::work::{Meter, PIECE_MAX};

/// Tests operators as words or JSON: they parse, survive a round trip, and stay within the cost
/// limit; states survive a round trip.
pub(super) fn operations(rng: &mut Rng) {
    let kind = *rng.choice(Kind::ALL).expect("there are kinds");
    let mut state = kind.initial();
    for _ in 0..rng.usize(1..12) {
        let (operator, is_spoilt) = match rng.bool() {
            true => spoken(rng, kind),
            false => json(rng, kind),
        };
        let operator = match operator {
            Ok(operator) => operator,
            Err(refused) => {
                assert!(is_spoilt, "{kind}: {refused}");
                assert!(!refused.to_string().is_empty());
                continue;
            }
        };
        perform(kind, &mut state, &operator);
    }
    same_again(&state);
}

/// Performs an operation, and checks its cost and encoding.
pub(super) fn perform(kind: Kind, state: &mut State, operator: &Operator) {
    assert_eq!(kind.read_json(operator.to_json().as_bytes()).as_ref(), Ok(operator));
    assert_eq!(kind.read_binary(&binary::write(operator)).as_ref(), Ok(operator));
    let before = kind.is_read(operator).then(|| state.clone());
    let mut unanswered = state.clone();
    let mut meter = Meter::unlimited();
    let value = kind.apply_metered(state, operator, &mut meter);
    assert!(meter.spent() <= PIECE_MAX, "{operator:?} is work of {} units", meter.spent());
    assert!(before.is_none_or(|before| before == *state), "{operator:?} only reads");
    kind.change(&mut unanswered, operator, &mut Meter::unlimited());
    assert_eq!(unanswered, *state, "{operator:?} does another thing when nobody wants its value");
    serde_json::to_string(&value).expect("values are JSON");
}

pub(super) fn same_again(state: &State) {
    let again: State = binary::read(&binary::write(state)).expect("it was written");
    assert_eq!(again, *state);
}

/// Returns an example operator from the help of its type: as words, or as JSON.
fn example(rng: &mut Rng, help: &str) -> String {
    let line = rng.choice(help.lines().collect::<Vec<_>>()).expect("each type has operators");
    let line = line.trim_start();
    line.split_once("  ").map_or(line, |(form, _)| form).trim_end().to_owned()
}

fn spoken(rng: &mut Rng, kind: Kind) -> (Result<Operator, Refused>, bool) {
    let form = example(rng, &kind.words());
    let mut words: Vec<String> = form.split(' ').map(str::to_owned).collect();
    for word in words.iter_mut().skip(1) {
        *word = match word.trim_matches(['[', ']', '.']) {
            "CELL" => cell(rng),
            "CELLS" => format!("{}:{}", cell(rng), cell(rng)),
            "INPUT" => input(rng),
            "NUMBER" => rng.i64(..).to_string(),
            "FROM" | "MOST" => streams::number(rng).to_string(),
            _ => text(rng),
        };
    }
    // An optional part may be incomplete, or the type may have a smaller limit: treated as spoilt.
    let is_spoilt = form.contains('[') || kind == Kind::Sheet || rng.u8(..4) == 0;
    if is_spoilt && rng.bool() {
        let mut bytes = words.join(" ").into_bytes();
        streams::spoil(rng, &mut bytes);
        words = String::from_utf8_lossy(&bytes).split(' ').map(str::to_owned).collect();
    }
    (kind.read_words(&words), is_spoilt)
}

fn json(rng: &mut Rng, kind: Kind) -> (Result<Operator, Refused>, bool) {
    let mut bytes = example(rng, &kind.json()).into_bytes();
    let is_spoilt = rng.bool();
    if is_spoilt {
        streams::spoil(rng, &mut bytes);
    }
    (kind.read_json(&bytes), is_spoilt)
}

fn text(rng: &mut Rng) -> String {
    let length = rng.usize(..40) * if rng.u8(..20) == 0 { 100 } else { 1 };
    (0..length)
        .map(|_| ['a', 'ä', '"', '\\', '\n', '\0', '9', '\u{10ffff}'][rng.usize(..8)])
        .collect()
}

/// Draws a cell, mostly near the first one.
fn cell(rng: &mut Rng) -> String {
    let columns = ["A", "B", "C", "$D", "Z", "AA", "XFD"];
    let column = columns[if rng.u8(..9) == 0 { rng.usize(..7) } else { rng.usize(..3) }];
    let row = if rng.u8(..12) == 0 { 1 << rng.u32(..21) } else { rng.u32(1..5) };
    format!("{column}{}{row}", if rng.u8(..9) == 0 { "$" } else { "" })
}

/// Draws an input of a cell.
fn input(rng: &mut Rng) -> String {
    match rng.u8(..6) {
        0 => rng.i64(..).to_string(),
        1 => text(rng),
        _ => format!("={}", formula(rng, 4)),
    }
}

/// Draws a formula of this depth.
fn formula(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 || rng.u8(..5) == 0 {
        let constants =
            ["1", "0", "-2.5", "1e308", "\"a\"", "\"\"", "TRUE", "#N/A", "9007199254740993"];
        return match rng.u8(..5) {
            0 => constants[rng.usize(..constants.len())].to_owned(),
            1 => format!("{}:{}", cell(rng), cell(rng)),
            _ => cell(rng),
        };
    }
    let mut part = || formula(rng, depth - 1);
    let (one, two) = (part(), part());
    match rng.u8(..10) {
        0 => format!("({one})"),
        1 => format!("-{one}"),
        2 => format!("{one}%"),
        3..=5 => {
            let signs = ["+", "-", "*", "/", "^", "&", "=", "<>", "<", ">="];
            format!("{one}{}{two}", signs[rng.usize(..signs.len())])
        }
        _ => {
            let names: Vec<_> = function_names().collect();
            let name = names[rng.usize(..names.len())];
            let count = rng.usize(..5);
            let more: Vec<_> = (0..count).map(|_| formula(rng, depth - 1)).collect();
            format!("{name}({})", more.join(","))
        }
    }
}

/// Tests formulas that refer to each other, some of them corrupted: none exceeds the cost limit,
/// and the value of a cell does not depend on the order of evaluation.
pub(super) fn formulas(rng: &mut Rng) {
    let kind = Kind::Sheet;
    let mut state = kind.initial();
    for _ in 0..rng.usize(1..10) {
        let mut typed = input(rng).into_bytes();
        if rng.u8(..3) == 0 {
            streams::spoil(rng, &mut typed);
        }
        let typed = String::from_utf8_lossy(&typed).into_owned();
        let words = ["set".to_owned(), cell(rng), typed];
        if let Ok(operator) = kind.read_words(&words) {
            perform(kind, &mut state, &operator);
        }
    }
    let again: State = binary::read(&binary::write(&state)).expect("it was written");
    let look = kind.read_words(&["range".to_owned(), "A1:E6".to_owned()]).expect("valid");
    let shown = |mut state: State| kind.apply(&mut state, &look);
    assert_eq!(shown(state), shown(again));
}
