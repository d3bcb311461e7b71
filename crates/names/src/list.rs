//! An open union directory: its members' entries, one member after the other.
//!
//! A name in several members is listed once, from the first, as a walk finds it there. A member's
//! cookies may use all 64 bits, so the mux stores them and returns numbers of its own; a reader may
//! continue at any entry it has received.
//!
#![doc = include_str!("list/states.md")]

use crate::table::MountPoint;
use base::op::{Detail, Entry};
use base::{Access, Caller, Error, Stat};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};

#[cfg(test)]
mod tests;

/// Maximum number of entries remembered for all readers of unions together.
pub(crate) const ENTRIES_MAX: usize = 1 << 22;

/// Progress of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No list in progress.
    Idle,
    /// About to open this member; a list continues behind this cookie of the member.
    Next(usize, u64),
    /// Waiting for the open of this member.
    Opening(usize, u64),
    /// About to list this member from this cookie on.
    Ready(usize, u64),
    /// Waiting for entries of this member.
    Listing(usize),
}

/// An open union directory.
#[derive(Debug)]
pub(crate) struct Union {
    point: Arc<MountPoint>,
    caller: Caller,
    state: State,
    /// The open member.
    open: Option<(usize, OpenId)>,
    /// Whether a list of the open member failed: the next one opens it again.
    failed: bool,
    /// End of the entry with each number (counted from one): its member and its cookie there.
    places: Vec<(usize, u64)>,
    /// Hashes of names seen, with the first member that has each.
    names: BTreeMap<u128, usize>,
    /// Limit of the current list, bytes.
    bytes_max: u32,
    detail: Detail,
    /// Whether the client has closed it.
    pub(crate) closed: bool,
}

/// Next action of a list.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send a request to a tree, after closing the open member if it is another one.
    Ask(NodeId, Ask),
    /// End with this reply.
    End(Result<Reply, Error>),
}

impl Union {
    /// Returns the union of a point's members, about to open the first that can be opened.
    pub(crate) fn new(point: Arc<MountPoint>, caller: Caller) -> Union {
        Union {
            point,
            caller,
            state: State::Next(0, 0),
            open: None,
            failed: false,
            places: Vec::new(),
            names: BTreeMap::new(),
            bytes_max: 0,
            detail: Detail::Name,
            closed: false,
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    pub(crate) fn point(&self) -> Arc<MountPoint> {
        Arc::clone(&self.point)
    }

    /// Returns the number of remembered entries.
    pub(crate) fn entries(&self) -> usize {
        self.places.len()
    }

    /// Aborts a list.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Idle;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Returns the member's open file, to be closed.
    pub(crate) fn take_open(&mut self) -> Option<OpenId> {
        self.open.take().map(|(_, open)| open)
    }

    /// Starts a list behind an entry.
    ///
    /// # Errors
    /// `Invalid` for a cookie that was never returned.
    pub(crate) fn list(&mut self, cookie: u64, bytes: u32, detail: Detail) -> Result<(), Error> {
        assert!(self.is_idle(), "lists of one directory go one after the other");
        let (member, cookie) = match cookie {
            0 => (0, 0),
            seen => {
                let index = usize::try_from(seen - 1).map_err(|_| Error::Invalid)?;
                *self.places.get(index).ok_or(Error::Invalid)?
            }
        };
        if member == 0 && cookie == 0 {
            self.places.clear();
            self.names.clear();
        }
        // Members' identities lack the tags of their trees: clients look these names up.
        (self.bytes_max, self.detail) = (bytes, detail.min(Detail::Stat));
        let there = !self.failed && self.open.is_some_and(|(open, _)| open == member);
        self.state = if there { State::Ready(member, cookie) } else { State::Next(member, cookie) };
        Ok(())
    }

    /// Returns the next action. Another open member must be closed before.
    pub(crate) fn next(&mut self) -> Step {
        let (state, step) = match self.state {
            State::Next(member, cookie) => match self.point.members.get(member) {
                Some(next) => {
                    let access = Access { read: true, ..Access::default() };
                    let node = next.root.node;
                    let ask = Ask::Open { node, access };
                    (State::Opening(member, cookie), Step::Ask(node, ask))
                }
                None => (State::Idle, Step::End(Ok(Reply::Entries(Vec::new())))),
            },
            State::Ready(member, cookie) => {
                let (_, open) = self.open.expect("it was opened");
                let (bytes_max, detail) = (self.bytes_max, self.detail);
                let ask = Ask::List { open, cookie, bytes_max, detail };
                (State::Listing(member), Step::Ask(self.point.members[member].root.node, ask))
            }
            State::Idle | State::Opening(..) | State::Listing(_) => {
                unreachable!("{:?}: nothing is to be requested", self.state)
            }
        };
        self.state = state;
        step
    }

    /// Handles the reply to an open. Returns the stat of the opened member, an error if none can be
    /// opened, or `None` if the next one is to be tried.
    pub(crate) fn opened(&mut self, reply: Result<Reply, Error>) -> Option<Result<Stat, Error>> {
        let State::Opening(member, _) = self.state else {
            unreachable!("no member is being opened");
        };
        let (state, end) = match reply {
            Ok(Reply::Opened(open, stat)) => {
                self.open = Some((member, open));
                (State::Idle, Some(Ok(stat)))
            }
            Ok(other) => unreachable!("{other:?} opens nothing"),
            Err(_) if member + 1 < self.point.members.len() => (State::Next(member + 1, 0), None),
            Err(error) => (State::Idle, Some(Err(error))),
        };
        self.state = state;
        end
    }

    /// Handles a reply during a list; returns the reply to the list at its end.
    pub(crate) fn arrive(&mut self, reply: Result<Reply, Error>) -> Option<Result<Reply, Error>> {
        let (state, end) = match (self.state.clone(), reply) {
            (State::Opening(member, cookie), Ok(Reply::Opened(open, _))) => {
                (self.open, self.failed) = (Some((member, open)), false);
                (State::Ready(member, cookie), None)
            }
            (State::Listing(member), Ok(Reply::Entries(entries))) => {
                let last = entries.last().map(|entry| entry.cookie);
                let fresh = self.fresh(member, entries);
                match (last, fresh) {
                    (None, _) => (State::Next(member + 1, 0), None),
                    (Some(_), Err(error)) => (State::Idle, Some(Err(error))),
                    // All of them were in earlier members.
                    (Some(last), Ok(fresh)) if fresh.is_empty() => {
                        (State::Ready(member, last), None)
                    }
                    (Some(_), Ok(fresh)) => (State::Idle, Some(Ok(Reply::Entries(fresh)))),
                }
            }
            // An unavailable member does not hide the others; but a list that breaks off is
            // incomplete, so it fails.
            (State::Opening(member, 0), Err(_)) => (State::Next(member + 1, 0), None),
            (State::Opening(..), Err(error)) => (State::Idle, Some(Err(error))),
            (State::Listing(_), Err(error)) => {
                self.failed = true;
                (State::Idle, Some(Err(error)))
            }
            (state, reply) => unreachable!("{state:?}: {reply:?} was not asked for"),
        };
        self.state = state;
        end
    }

    /// Returns the entries whose names are in no earlier member, with numbers as their cookies.
    fn fresh(&mut self, member: usize, entries: Vec<Entry>) -> Result<Vec<Entry>, Error> {
        let mut fresh = Vec::with_capacity(entries.len());
        for entry in entries {
            if !self.is_first(member, entry.name.as_bytes()) {
                continue;
            }
            if self.places.len() >= ENTRIES_MAX {
                return Err(Error::NoMemory);
            }
            self.places.push((member, entry.cookie));
            let device = entry.device.or(Some(self.point.members[member].stat.device));
            let (cookie, handle) = (self.places.len() as u64, None);
            fresh.push(Entry { cookie, device, handle, ..entry });
        }
        Ok(fresh)
    }

    fn is_first(&mut self, member: usize, name: &[u8]) -> bool {
        match self.names.entry(hash(name)) {
            btree_map::Entry::Vacant(entry) => {
                entry.insert(member);
                true
            }
            btree_map::Entry::Occupied(entry) => *entry.get() >= member,
        }
    }

    /// Returns the state's name for `/.upcall/`.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Next(..) => "next",
            State::Opening(..) => "opening",
            State::Ready(..) => "ready",
            State::Listing(_) => "listing",
        }
    }
}

/// Returns the first 128 bits of the name's SHA-256: clients choose names, and collisions, which
/// would hide files, are infeasible to find.
fn hash(name: &[u8]) -> u128 {
    let digest = Sha256::digest(name);
    u128::from_le_bytes(digest[..16].try_into().expect("a digest has 32 bytes"))
}
