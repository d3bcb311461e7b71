//! A snapshot that is written piece by piece, while the replica goes on.

use super::{Amount, Label, Replica, ReplicaId, Standing, Vector};
use crate::binary;
use crate::data::{DataType, Pieces, Place};
use crate::work::{self, Meter};
use serde::Serialize;

/// How many operations are written at once.
const AT_ONCE: Amount = Amount { operations: 64, bytes: 64 << 10 };

/// How far it is.
#[derive(Debug)]
enum Stage {
    State(Place),
    /// Parts behind the state are written up to this one.
    Rest(Vector),
    End,
}

/// A snapshot of one moment, as far as it is written: the bytes that [`crate::binary::write()`]
/// makes of a [`super::Snapshot`]. What is not written yet of the operations behind its state stays
/// at the replica until [`Replica::end_writing`].
#[derive(Debug)]
pub struct Writing<D: DataType> {
    state: D::State,
    frontier: Option<Label>,
    base: Vector,
    has: Vector,
    standing: Standing,
    stage: Stage,
}

impl<D: DataType> Replica<D>
where
    D::State: Pieces,
    D::Operator: Serialize,
{
    /// Begins to write what [`Replica::snapshot`] is.
    pub fn begin_writing(&mut self) -> Writing<D> {
        let (has, standing) = (self.origins.done().clone(), self.members.standing().clone());
        self.writing_of(has, standing)
    }

    /// Begins to write what [`Replica::gift`] is.
    pub fn begin_gift(&mut self, to: ReplicaId) -> Option<Writing<D>> {
        let (has, standing) = self.gift_of(to)?;
        Some(self.writing_of(has, standing))
    }

    fn writing_of(&mut self, has: Vector, standing: Standing) -> Writing<D> {
        self.origins.pin();
        Writing {
            state: self.order.stable().clone(),
            frontier: self.order.frontier(),
            base: self.origins.forgotten(),
            has,
            standing,
            stage: Stage::State(Place::Begin),
        }
    }

    /// Appends more of a snapshot, as far as the meter allows and until there are `most` bytes.
    /// Whether that was the end of it.
    pub fn write(
        &self,
        writing: &mut Writing<D>,
        most: usize,
        meter: &mut Meter,
        out: &mut Vec<u8>,
    ) -> bool {
        while out.len() < most && meter.has_left() {
            let stage = std::mem::replace(&mut writing.stage, Stage::End);
            writing.stage = match stage {
                Stage::State(place) => {
                    let place = writing.state.write_some(place, most, meter, out);
                    if place == Place::End {
                        let of = |(id, number): (ReplicaId, u64)| {
                            number.saturating_sub(writing.base.get(id))
                        };
                        let rest: u64 = writing.has.iter().map(of).sum();
                        out.extend(binary::write(&(writing.frontier, &writing.base, rest)));
                        Stage::Rest(writing.base.clone())
                    } else {
                        Stage::State(place)
                    }
                }
                Stage::Rest(mut upto) => {
                    let some = self.origins.between(&upto, &writing.has, AT_ONCE);
                    for entry in &some {
                        let bytes = binary::write(entry);
                        meter.spend(1 + work::of_bytes(bytes.len()));
                        out.extend(bytes);
                        let follows = upto.get(entry.label.origin) + 1;
                        assert_eq!(entry.number, follows, "numbers follow each other");
                        upto.raise(entry.label.origin, entry.number);
                    }
                    if some.is_empty() {
                        assert!(upto.covers(&writing.has), "all that was promised is written");
                        out.extend(binary::write(&writing.standing));
                        return true;
                    }
                    Stage::Rest(upto)
                }
                Stage::End => return true,
            };
        }
        matches!(writing.stage, Stage::End)
    }

    /// A snapshot is written, or not wanted any more.
    pub fn end_writing(&mut self, writing: Writing<D>) {
        drop(writing);
        self.origins.unpin();
    }
}
