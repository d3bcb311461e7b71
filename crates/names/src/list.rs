//! An open union directory: its members' entries, one member after the other.
//!
//! A name that several members have is listed once, from the first, as a walk finds it there. The
//! cookies of the members are kept and replaced by numbers of our own, because a member's may use
//! all 64 bits; so a reader may go back to any entry it has seen.
//!
#![doc = include_str!("list/states.md")]

use crate::table::Point;
use base::op::Entry;
use base::{Access, Caller, Error, Stat};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};

#[cfg(test)]
mod tests;

/// Most entries that are remembered for all readers of unions together.
pub(crate) const ENTRIES_MAX: usize = 1 << 22;

/// What it is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Idle,
    /// About to open this member; a list goes on behind this cookie of its own.
    Next(usize, u64),
    /// Waiting for this member to be opened.
    Opening(usize, u64),
    /// About to list this member from this cookie on.
    Ready(usize, u64),
    /// Waiting for entries of this member.
    Listing(usize),
}

/// The open directory.
#[derive(Debug)]
pub(crate) struct Union {
    point: Arc<Point>,
    caller: Caller,
    state: State,
    /// The member that is open.
    open: Option<(usize, OpenId)>,
    /// Where the entry with each number (counted from one) ends: its member and its cookie there.
    places: Vec<(usize, u64)>,
    /// Names seen, as hashes, and the first member that has each.
    names: BTreeMap<u128, usize>,
    /// What the list under way asks for.
    bytes_max: u32,
    with_stat: bool,
    /// Nobody wants it any more.
    pub(crate) closed: bool,
}

/// What it wants next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Ask a tree, and close this first.
    Ask(NodeId, Ask),
    /// Nothing: this answers the list.
    End(Result<Reply, Error>),
}

impl Union {
    /// The members of a point; the first that can be opened is.
    pub(crate) fn new(point: Arc<Point>, caller: Caller) -> Union {
        Union {
            point,
            caller,
            state: State::Next(0, 0),
            open: None,
            places: Vec::new(),
            names: BTreeMap::new(),
            bytes_max: 0,
            with_stat: false,
            closed: false,
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    pub(crate) fn point(&self) -> Arc<Point> {
        Arc::clone(&self.point)
    }

    /// How many entries are remembered.
    pub(crate) fn entries(&self) -> usize {
        self.places.len()
    }

    /// Stops in the middle of a list.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Idle;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// The member's open file, to be closed.
    pub(crate) fn take_open(&mut self) -> Option<OpenId> {
        self.open.take().map(|(_, open)| open)
    }

    /// Begins to list behind an entry.
    ///
    /// # Errors
    /// `Invalid` for a cookie that was never given out.
    pub(crate) fn list(&mut self, cookie: u64, bytes: u32, with_stat: bool) -> Result<(), Error> {
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
        (self.bytes_max, self.with_stat) = (bytes, with_stat);
        let there = self.open.is_some_and(|(open, _)| open == member);
        self.state = if there { State::Ready(member, cookie) } else { State::Next(member, cookie) };
        Ok(())
    }

    /// What to ask for next. A member that is open and not the one is to be closed before.
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
                let (bytes_max, with_stat) = (self.bytes_max, self.with_stat);
                let ask = Ask::List { open, cookie, bytes_max, with_stat };
                (State::Listing(member), Step::Ask(self.point.members[member].root.node, ask))
            }
            State::Idle | State::Opening(..) | State::Listing(_) => {
                unreachable!("{:?}: nothing is to be asked for", self.state)
            }
        };
        self.state = state;
        step
    }

    /// Takes the first answer: whether the directory can be opened.
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

    /// Takes an answer to a list; the whole answer, if that is it.
    pub(crate) fn arrive(&mut self, reply: Result<Reply, Error>) -> Option<Result<Reply, Error>> {
        let (state, end) = match (self.state.clone(), reply) {
            (State::Opening(member, cookie), Ok(Reply::Opened(open, _))) => {
                self.open = Some((member, open));
                (State::Ready(member, cookie), None)
            }
            (State::Listing(member), Ok(Reply::Entries(entries))) => {
                let last = entries.last().map(|entry| entry.cookie);
                let fresh = self.fresh(member, entries);
                match (last, fresh) {
                    (None, _) => (State::Next(member + 1, 0), None),
                    (Some(_), Err(error)) => (State::Idle, Some(Err(error))),
                    // All of them were in members before.
                    (Some(last), Ok(fresh)) if fresh.is_empty() => {
                        (State::Ready(member, last), None)
                    }
                    (Some(_), Ok(fresh)) => (State::Idle, Some(Ok(Reply::Entries(fresh)))),
                }
            }
            // A member that is not there does not hide the others; but a list that breaks off is
            // not a whole one.
            (State::Opening(member, _), Err(_)) => (State::Next(member + 1, 0), None),
            (State::Listing(_), Err(error)) => (State::Idle, Some(Err(error))),
            (state, reply) => unreachable!("{state:?}: {reply:?} was not asked for"),
        };
        self.state = state;
        end
    }

    /// Those entries that no member before has, with numbers for their cookies.
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
            fresh.push(Entry { cookie: self.places.len() as u64, device, ..entry });
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

    /// One word for `/.upcall/`.
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

/// The first 128 bits of the name's SHA-256: clients choose names, and nobody finds two names that
/// hide each other.
fn hash(name: &[u8]) -> u128 {
    let digest = Sha256::digest(name);
    u128::from_le_bytes(digest[..16].try_into().expect("a digest has 32 bytes"))
}
