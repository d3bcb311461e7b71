//! Append-only text: the string concatenation of the paper (001, 4.4).

use super::words::{Spoken, Word};
use super::{Bytes, DataType, Value, Wrong};
use crate::work::Meter;
use rpds::VectorSync;
use serde::{Deserialize, Serialize};

/// Maximum length of a text, in bytes.
pub const TEXT_MAX: usize = 1 << 20;

/// Append-only text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text;

/// Text as a sequence of pieces, so that clones are cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "VectorSync<Bytes>", into = "VectorSync<Bytes>")]
pub struct State {
    pieces: VectorSync<Bytes>,
    length: usize,
}

impl From<VectorSync<Bytes>> for State {
    fn from(pieces: VectorSync<Bytes>) -> State {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        State { pieces, length }
    }
}

impl From<State> for VectorSync<Bytes> {
    fn from(state: State) -> VectorSync<Bytes> {
        state.pieces
    }
}

impl State {
    /// Returns the whole text.
    pub fn whole(&self) -> Bytes {
        let mut whole = Vec::with_capacity(self.length);
        self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.into()
    }

    /// Returns the appended pieces, in order.
    pub(super) fn pieces(&self) -> &VectorSync<Bytes> {
        &self.pieces
    }

    fn append(&mut self, piece: &Bytes) -> Option<Wrong> {
        if self.length.saturating_add(piece.len()) > TEXT_MAX {
            return Some(Wrong::TooLarge);
        }
        if !piece.is_empty() {
            self.length += piece.len();
            self.pieces.push_back_mut(piece.clone());
        }
        None
    }
}

/// Operation on a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Appends; returns the whole text.
    Append(Bytes),
    /// Returns the whole text.
    Read,
}

impl DataType for Text {
    type State = State;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> State {
        State::default()
    }

    fn apply(&self, state: &mut State, operator: &Operator) -> Value {
        match operator {
            Operator::Append(piece) => match state.append(piece) {
                Some(wrong) => Value::Wrong(wrong),
                None => Value::Bytes(state.whole()),
            },
            Operator::Read => Value::Bytes(state.whole()),
        }
    }

    fn change(&self, state: &mut State, operator: &Operator, meter: &mut Meter) {
        meter.spend(1);
        if let Operator::Append(piece) = operator {
            state.append(piece);
        }
    }

    fn value_size(&self, value: &Value) -> usize {
        value.size()
    }

    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        matches!(a, Operator::Read) || matches!(b, Operator::Read)
    }

    fn oblivious(&self, _a: &Operator, b: &Operator) -> bool {
        matches!(b, Operator::Read)
    }

    fn is_read(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Read)
    }
}

impl Spoken for Text {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "append",
            arguments: "TEXT",
            json: r#"{"append": "text"}"#,
            help: "appends; returns the whole text",
            make: |words| words.bytes().map(Operator::Append),
        },
        Word {
            name: "read",
            arguments: "",
            json: r#""read""#,
            help: "returns the whole text",
            make: |_| Ok(Operator::Read),
        },
    ];
}
