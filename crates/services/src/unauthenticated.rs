//! Open files `peer` without authentication.
//!
//! Each is small, so many are permitted; beyond the limit, the user with most of them loses the
//! oldest. A replica needs a few round trips to authenticate, and keeps its file as long as fewer
//! than the limit are opened meanwhile.

use base::Caller;
use std::collections::BTreeMap;

/// Maximum number of them.
pub(crate) const UNPROVEN_MAX: usize = 16_384;

/// The opener: a user, or the server itself.
type PeerRole = Option<u32>;

/// Unauthenticated open files.
#[derive(Debug, Default)]
pub(crate) struct Unauthenticated {
    /// By user, oldest first.
    of: BTreeMap<PeerRole, BTreeMap<u64, usize>>,
    places: BTreeMap<usize, (PeerRole, u64)>,
    next: u64,
}

impl Unauthenticated {
    /// Adds one. Returns the one evicted for it, if there were too many.
    pub(crate) fn add(&mut self, caller: &Caller, open: usize) -> Option<usize> {
        let who = match caller {
            Caller::Server => None,
            Caller::User(user) => Some(user.uid),
        };
        self.next += 1;
        self.of.entry(who).or_default().insert(self.next, open);
        self.places.insert(open, (who, self.next));
        if self.places.len() <= UNPROVEN_MAX {
            return None;
        }
        let most = self.of.values().max_by_key(|opens| opens.len());
        let oldest = *most.expect("one was added").first_key_value().expect("it has most").1;
        self.remove(oldest);
        Some(oldest)
    }

    /// Removes one that was authenticated or closed.
    pub(crate) fn remove(&mut self, open: usize) {
        let Some((who, number)) = self.places.remove(&open) else { return };
        if let Some(opens) = self.of.get_mut(&who) {
            opens.remove(&number);
            if opens.is_empty() {
                self.of.remove(&who);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::User;

    /// A flood by one user does not affect another one.
    #[test]
    fn the_client_with_most_files_loses_its_oldest() {
        let caller = |uid| {
            let user = User { uid, gid: 0, groups: Vec::new(), commands: false };
            Caller::User(user.into())
        };
        let mut unauthenticated = Unauthenticated::default();
        assert_eq!(unauthenticated.add(&caller(1), 0), None);
        for open in 1..UNPROVEN_MAX {
            assert_eq!(unauthenticated.add(&caller(2), open), None);
        }
        assert_eq!(unauthenticated.add(&caller(2), UNPROVEN_MAX), Some(1));
        assert_eq!(unauthenticated.add(&caller(3), UNPROVEN_MAX + 1), Some(2));
        unauthenticated.remove(5);
        assert_eq!(unauthenticated.add(&caller(1), 5), None);
        (0..UNPROVEN_MAX + 2).for_each(|open| unauthenticated.remove(open));
        assert!(unauthenticated.is_empty());
    }
}
