//! What is replicated, as the contents of a file.

use replica::data::kind::State;
use serde::Serialize;

/// How much is shown, bytes; who wants more asks for it by operations.
const SHOWN_MAX: usize = 16 << 20;

/// A state: a number, a text or a value as it is; of what has many parts a line of JSON for each.
pub(crate) fn show(state: &State) -> Vec<u8> {
    match state {
        State::Counter(sum) => format!("{sum}\n").into_bytes(),
        State::Text(text) => line(text.whole().to_vec()),
        State::Register(None) => Vec::new(),
        State::Register(Some(value)) => line(value.to_vec()),
        State::Map(map) => lines(map.iter()),
        State::Set(set) => lines(set.iter()),
        State::Log(log) => lines(log.iter()),
    }
}

/// Ends with a new line, if it is not empty.
fn line(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    bytes
}

/// As many whole lines as are shown.
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
