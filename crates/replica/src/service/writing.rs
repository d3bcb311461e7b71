//! Incremental encoding of a snapshot, while the replica continues.

use super::{Amount, Label, MembershipState, Replica, ReplicaId, Vector};
use crate::binary;
use crate::data::{DataType, Pieces, Position};
use crate::work::{self, Meter};
use serde::Serialize;

/// Maximum operations encoded at a time.
const AT_ONCE: Amount = Amount { operations: 64, bytes: 64 << 10 };

/// Position of the encoder.
#[derive(Debug)]
enum Stage {
    State(Position),
    /// Operations after the state are written up to this vector.
    Rest(Vector),
    End,
}

/// Snapshot being encoded: the bytes that [`crate::binary::write()`] makes of a
/// [`super::Snapshot`]. The replica retains the operations not written yet until
/// [`Replica::end_writing`].
#[derive(Debug)]
pub struct Writing<D: DataType> {
    state: D::State,
    commit_point: Option<Label>,
    base: Vector,
    has: Vector,
    member_state: MembershipState,
    stage: Stage,
}

impl<D: DataType> Replica<D>
where
    D::State: Pieces,
    D::Operator: Serialize,
{
    /// Starts to encode [`Replica::snapshot`].
    pub fn begin_writing(&mut self) -> Writing<D> {
        let (has, member_state) =
            (self.origins.done().clone(), self.members.member_state().clone());
        self.writing_of(has, member_state)
    }

    /// Starts to encode [`Replica::join_snapshot`].
    pub fn begin_join_snapshot(&mut self, to: ReplicaId) -> Option<Writing<D>> {
        let (has, member_state) = self.join_snapshot_of(to)?;
        Some(self.writing_of(has, member_state))
    }

    fn writing_of(&mut self, has: Vector, member_state: MembershipState) -> Writing<D> {
        self.origins.pin();
        Writing {
            state: self.order.stable().clone(),
            commit_point: self.order.commit_point(),
            base: self.origins.forgotten(),
            has,
            member_state,
            stage: Stage::State(Position::Begin),
        }
    }

    /// Appends the next part, as far as the meter allows and until `out` has `most` bytes. Returns
    /// whether the snapshot is complete.
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
                    if place == Position::End {
                        let of = |(id, number): (ReplicaId, u64)| {
                            number.saturating_sub(writing.base.get(id))
                        };
                        let rest: u64 = writing.has.iter().map(of).sum();
                        out.extend(binary::write(&(writing.commit_point, &writing.base, rest)));
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
                        out.extend(binary::write(&writing.member_state));
                        return true;
                    }
                    Stage::Rest(upto)
                }
                Stage::End => return true,
            };
        }
        matches!(writing.stage, Stage::End)
    }

    /// Ends a complete or abandoned encoding.
    pub fn end_writing(&mut self, writing: Writing<D>) {
        drop(writing);
        self.origins.unpin();
    }
}
