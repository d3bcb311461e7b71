//! Incremental reading of a directory.

use crate::joined::fault_log::FaultLog;
use crate::joined::space::Entries;
use base::{Instant, Name};
use std::collections::BTreeSet;
use wire::ninep::Dirent;

/// The present entries.
pub(super) struct There {
    /// Each name with the numbers of the first member that has it.
    pub(super) first: Entries,
    /// Each name with the numbers of all members that are the same directory.
    pub(super) all: Entries,
}

/// The entries at its beginning, and those listed so far.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) since: Instant,
    /// Offset of the next read.
    pub(super) offset: u64,
    there: Entries,
    seen: BTreeSet<Name>,
    /// Whether a server with some of the entries was in trouble meanwhile.
    pub(super) is_doubtful: bool,
    pub(super) is_over: bool,
}

impl Listing {
    /// Returns a listing at its beginning.
    pub(super) fn new(since: Instant, there: Entries) -> Listing {
        let (seen, is_doubtful, is_over) = (BTreeSet::new(), false, false);
        Listing { since, offset: 0, there, seen, is_doubtful, is_over }
    }

    /// Adds listed entries; `there` are the present ones.
    ///
    /// # Panics
    /// If one is listed twice, does not exist, or is missing in the end.
    pub(super) fn take(&mut self, entries: &[Dirent<'_>], there: &There, fault_log: &FaultLog) {
        for (qid, cookie, _, name) in entries {
            self.offset = *cookie;
            let name = Name::new(name).expect("names are names");
            let replaced = fault_log.was_replaced(&name, self.since);
            let new = self.seen.insert(name.clone());
            // After a reconnect, directories of 9P2000 are read again from the start.
            let excused = replaced || self.is_doubtful;
            assert!(new || excused, "{name} is listed twice");
            let is_vague = fault_log.is_name_vague(&name, self.since);
            let there = if is_vague { &there.all } else { &there.first };
            let (then, now) = (self.there.get(&name), there.get(&name));
            let known = then.is_some() || now.is_some() || is_vague;
            assert!(known, "{name} is listed, but is not there");
            let mut numbers = then.into_iter().chain(now).flatten().peekable();
            let right = numbers.peek().is_none() || numbers.any(|number| *number == qid.path);
            assert!(right || replaced, "{name} is listed as {qid:?}, and not {then:?} or {now:?}");
        }
        if entries.is_empty() {
            self.is_over = true;
            self.expect_complete(&there.first, fault_log);
        }
    }

    fn expect_complete(&self, there: &Entries, fault_log: &FaultLog) {
        let missing = self.there.keys().find(|name| {
            let stays = there.contains_key(name) && !fault_log.is_name_vague(name, self.since);
            stays && !self.seen.contains(*name)
        });
        assert!(
            missing.is_none() || self.is_doubtful,
            "{missing:?} was there all the time and is not listed"
        );
    }
}
