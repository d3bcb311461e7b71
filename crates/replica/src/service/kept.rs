//! Journal contents of a replica: a snapshot, and the records after it.

use super::{Entry, Label, Membership, MembershipState, ReplicaId, SANE_MAX, Vector};
use crate::data::DataType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Journal record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<O> {
    /// Operations done, in this order.
    pub entries: Vec<Arc<Entry<O>>>,
    /// Membership state from then on, if changed.
    pub member_state: Option<MembershipState>,
}

impl<O> Default for Record<O> {
    fn default() -> Record<O> {
        Record { entries: Vec::new(), member_state: None }
    }
}

impl<O> Record<O> {
    /// Reports whether the record is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.member_state.is_none()
    }
}

/// State of a replica when its journal was last rewritten, from which it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "D::State: Serialize, D::Operator: Serialize",
    deserialize = "D::State: Deserialize<'de>, D::Operator: Deserialize<'de>"
))]
pub struct Snapshot<D: DataType> {
    /// State up to the commit point.
    pub state: D::State,
    /// Label of the last operation in the state.
    pub commit_point: Option<Label>,
    /// Operations in the state and done everywhere.
    pub base: Vector,
    /// Operations done here and not in `base`.
    pub rest: Vec<Arc<Entry<D::Operator>>>,
    /// Membership state.
    pub member_state: MembershipState,
}

impl<D: DataType> Snapshot<D> {
    /// Reports whether a replica can start from it: all origins count, numbers are consecutive, and
    /// labels are unique.
    pub fn is_sound(&self) -> bool {
        let origins: BTreeSet<ReplicaId> = self.member_state.membership.origins().collect();
        let counts = |id| origins.contains(&id);
        let (mut has, mut last) = (self.base.clone(), None);
        let fits = |entry: &Arc<Entry<D::Operator>>| {
            let Label { counter, origin } = entry.label;
            let is_next = has.get(origin).checked_add(1) == Some(entry.number);
            let is_later = last.replace(entry.label) < Some(entry.label);
            has.raise(origin, entry.number);
            let after = entry.after.iter().all(|(_, number)| number < SANE_MAX);
            let possible = after && !entry.waits_for_itself() && counter < SANE_MAX;
            counts(origin) && is_next && is_later && possible
        };
        let base = |(id, number)| counts(id) && number < SANE_MAX;
        self.member_state.membership.is_sound()
            && self.commit_point.is_none_or(|label| label.counter < SANE_MAX)
            && self.base.iter().all(base)
            && self.rest.iter().all(fits)
    }

    /// Creates an empty snapshot for a current or future member of this membership.
    pub fn empty(data: &D, membership: Membership) -> Snapshot<D> {
        let (state, base) = (data.initial(), Vector::new());
        let member_state = MembershipState { membership: Arc::new(membership), change: None };
        Snapshot { state, commit_point: None, base, rest: Vec::new(), member_state }
    }
}
