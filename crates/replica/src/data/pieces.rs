//! Incremental encoding of a state: the bytes of [`crate::binary::write()`], produced in pieces.
//!
//! The state is a snapshot, and a [`Position`] is where the encoder is in it. Other work runs
//! between two pieces, and the replica continues.

use super::kind::State as AnyState;
use super::once::{self, SessionId};
use super::sheet::Cell;
use super::{Bytes, Kind};
use crate::binary;
use crate::work::{self, Meter};
use serde::Serialize;
use std::ops::Bound;

/// Position of the encoder in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the first byte.
    Begin,
    /// Before this element.
    Index(usize),
    /// After this key.
    Key(Bytes),
    /// After this cell.
    Cell(Cell),
    /// After the data, before the sessions.
    Sessions,
    /// After this session.
    Session(SessionId),
    /// After the last byte.
    End,
}

/// State with an incremental binary encoding.
pub trait Pieces {
    /// Appends the next pieces, as far as the meter allows and until `out` has `most` bytes.
    /// Returns the new position.
    fn write_some(
        &self,
        place: Position,
        most: usize,
        meter: &mut Meter,
        out: &mut Vec<u8>,
    ) -> Position;
}

/// Appends elements. Returns the mark of the last one written if some are left.
fn elements<M, T: Serialize>(
    all: impl Iterator<Item = (M, T)>,
    most: usize,
    meter: &mut Meter,
    out: &mut Vec<u8>,
) -> Option<M> {
    let mut all = all.peekable();
    while let Some((mark, element)) = all.next() {
        let bytes = binary::write(&element);
        meter.spend(1 + work::of_bytes(bytes.len()));
        out.extend_from_slice(&bytes);
        if all.peek().is_some() && (out.len() >= most || !meter.has_left()) {
            return Some(mark);
        }
    }
    None
}

fn append(value: &impl Serialize, meter: &mut Meter, out: &mut Vec<u8>) {
    let bytes = binary::write(value);
    meter.spend(1 + work::of_bytes(bytes.len()));
    out.extend_from_slice(&bytes);
}

impl Pieces for AnyState {
    fn write_some(
        &self,
        place: Position,
        most: usize,
        meter: &mut Meter,
        out: &mut Vec<u8>,
    ) -> Position {
        let length = match self {
            AnyState::Counter(_) | AnyState::Register(_) => {
                append(self, meter, out);
                return Position::End;
            }
            AnyState::Text(text) => text.pieces().len(),
            AnyState::Map(map) => map.size(),
            AnyState::Set(set) => set.size(),
            AnyState::Log(log) => log.len(),
            AnyState::Sheet(sheet) => sheet.size(),
        };
        if place == Position::Begin {
            // Variant number and element count.
            append(&(self.kind() as u32, length), meter, out);
        }
        if let Position::Index(index) = &place {
            assert!(*index <= length, "a state that is written stays as it was");
        }
        let (index, from) = match &place {
            Position::Index(index) => (*index, Bound::Unbounded),
            Position::Key(key) => (0, Bound::Excluded(key)),
            Position::Begin
            | Position::Cell(_)
            | Position::Sessions
            | Position::Session(_)
            | Position::End => (0, Bound::Unbounded),
        };
        let range = (from, Bound::Unbounded);
        let last = match self {
            AnyState::Counter(_) | AnyState::Register(_) => None,
            AnyState::Text(text) => {
                let pieces =
                    (index..length).filter_map(|at| Some((at + 1, text.pieces().get(at)?)));
                elements(pieces, most, meter, out).map(Position::Index)
            }
            AnyState::Log(log) => {
                let records = (index..length).filter_map(|at| Some((at + 1, log.get(at)?)));
                elements(records, most, meter, out).map(Position::Index)
            }
            AnyState::Map(map) => {
                let entries = map.range::<Bytes, _>(range).map(|entry| (entry.0, entry));
                elements(entries, most, meter, out).map(|key| Position::Key(key.clone()))
            }
            AnyState::Set(set) => {
                let members = set.range::<Bytes, _>(range).map(|member| (member, member));
                elements(members, most, meter, out).map(|key| Position::Key(key.clone()))
            }
            AnyState::Sheet(sheet) => {
                let behind = if let Position::Cell(cell) = &place { Some(*cell) } else { None };
                let typed = sheet.typed(behind).map(|entry| (entry.0, entry));
                elements(typed, most, meter, out).map(Position::Cell)
            }
        };
        last.unwrap_or(Position::End)
    }
}

impl AnyState {
    /// Returns the state's type.
    fn kind(&self) -> Kind {
        match self {
            AnyState::Counter(_) => Kind::Counter,
            AnyState::Text(_) => Kind::Text,
            AnyState::Register(_) => Kind::Register,
            AnyState::Map(_) => Kind::Map,
            AnyState::Set(_) => Kind::Set,
            AnyState::Log(_) => Kind::Log,
            AnyState::Sheet(_) => Kind::Sheet,
        }
    }
}

impl<S: Pieces> Pieces for once::State<S> {
    fn write_some(
        &self,
        place: Position,
        most: usize,
        meter: &mut Meter,
        out: &mut Vec<u8>,
    ) -> Position {
        let behind = match place {
            Position::Sessions => {
                append(&self.sessions(), meter, out);
                None
            }
            Position::Session(id) => Some(id),
            inner @ (Position::Begin
            | Position::Index(_)
            | Position::Key(_)
            | Position::Cell(_)) => {
                let next = self.inner().write_some(inner, most, meter, out);
                return if next == Position::End { Position::Sessions } else { next };
            }
            Position::End => return Position::End,
        };
        let last = elements(self.sessions_behind(behind), most, meter, out);
        last.map_or(Position::End, Position::Session)
    }
}
