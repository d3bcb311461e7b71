//! Replicated states as file contents.

use replica::data::kind::State;
use replica::data::sheet::{self, CELLS_MAX, Cell, Operator, Region};
use replica::data::{DataType as _, Sheet, Value};
use replica::work::Meter;
use serde::Serialize;

/// Maximum length of the contents in bytes; larger states are read by operations.
const SHOWN_MAX: usize = 16 << 20;

/// Formats a state: a number, a text or a value as it is, a sheet as CSV, and others as one line of
/// JSON for each element.
pub(crate) fn show(state: &State, meter: &mut Meter) -> Vec<u8> {
    match state {
        State::Counter(sum) => format!("{sum}\n").into_bytes(),
        State::Text(text) => line(text.whole().to_vec()),
        State::Register(None) => Vec::new(),
        State::Register(Some(value)) => line(value.to_vec()),
        State::Map(map) => lines(map.iter()),
        State::Set(set) => lines(set.iter()),
        State::Log(log) => lines(log.iter()),
        State::Sheet(sheet) => cells(sheet, meter),
    }
}

/// Formats the displayed values of a sheet as CSV: as many leading rows as one result has.
fn cells(state: &sheet::State, meter: &mut Meter) -> Vec<u8> {
    let Some(used) = state.used() else { return Vec::new() };
    let (first, columns) = (used.first(), used.columns());
    let most = u32::try_from(CELLS_MAX).unwrap_or(u32::MAX) / columns;
    let rows = used.rows().min(most.max(1));
    let last = Cell::at(first.row() + rows - 1, first.column() + columns - 1);
    let region = Region::between(first, last.expect("it is within what is used"));
    let shown = Sheet.apply_metered(&mut state.clone(), &Operator::Range(region), meter);
    // Rows too wide for one result must be read in parts by operations.
    let Value::Rows(rows) = shown else { return Vec::new() };
    sheet::csv_bytes(&rows)
}

/// Terminates nonempty bytes with a newline.
fn line(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    bytes
}

/// Formats as many elements as fit, one a line.
fn lines<T: Serialize>(parts: impl Iterator<Item = T>) -> Vec<u8> {
    let mut shown = Vec::new();
    for part in parts {
        let before = shown.len();
        serde_json::to_writer(&mut shown, &part).expect("bytes are JSON");
        shown.push(b'\n');
        if shown.len() > SHOWN_MAX {
            shown.truncate(before);
            break;
        }
    }
    shown
}
