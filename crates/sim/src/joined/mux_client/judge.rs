//! Checking of replies, and their effects on the client's knowledge.
//!
//! Each reply is compared with the present joined tree and the troubles of the servers involved:
//! only results that these explain are accepted.

use super::MuxClient;
use super::lane::{HeldFid, OwnEntry, Request, State, Waiting};
use super::listing::{Listing, There};
use crate::client::Io;
use crate::disk::Disk;
use crate::joined::fault_log::{FaultLog, TIMEOUT, error_of};
use crate::joined::space::{At, Lookup};
use base::{Error, Instant, Name};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::ninep::{Qid, Rmessage, dirents};

/// Effect of a reply on the client's knowledge.
#[derive(Debug)]
pub(super) enum Effect {
    /// No change.
    Nothing,
    /// Unknown whether the request was performed.
    Lost,
    /// Unknown whether the request was performed, and its fids are undefined.
    Spoilt,
    /// The first fid is bound to this place.
    Bound(u32, Box<HeldFid>),
    /// The fid is open, and perhaps at another place.
    Opened(Option<At>, State),
    /// A new entry exists; the fid may be bound to it, and its name may lead elsewhere.
    Made(OwnEntry, Option<(Box<At>, bool)>),
    /// An entry of the lane's own is in another directory.
    Moved(u64),
    /// An entry of the lane's own was removed.
    Removed,
    /// The fid was released.
    Clunked,
}

/// Context of checking a reply.
pub(super) struct Case<'a> {
    pub(super) look: Lookup<'a>,
    pub(super) fault_log: &'a FaultLog,
    pub(super) waiting: &'a Waiting,
}

impl Case<'_> {
    fn disk(&self) -> &Disk {
        self.look.disk
    }

    /// Returns whether a lie may have affected it.
    fn is_deceived(&self) -> bool {
        self.was_deceived(self.waiting.since)
    }

    fn was_deceived(&self, since: Instant) -> bool {
        self.fault_log.was_deceived(&self.look.touched, since)
    }

    /// Returns whether a qid is that of the file at a place.
    fn is_at(&self, at: &At, qid: Qid) -> bool {
        self.look.space.number(&at.file) == qid.path
    }

    /// Returns the contents of a file; `None` if unknown.
    fn contents(&self, inode: u64) -> Option<Vec<u8>> {
        if self.fault_log.is_vague(inode) {
            return None;
        }
        let old = self.fault_log.old_contents(inode).map(<[u8]>::to_vec);
        old.or_else(|| {
            let data = &self.disk().inode(inode)?.data;
            Some(data.read(0, usize::try_from(data.len()).expect("it is small")))
        })
    }
}

impl MuxClient {
    /// Returns the simulated disk shared by all servers.
    pub(super) fn disk<'a>(&self, io: &'a Io<'_>) -> &'a Disk {
        io.disk().expect("directories are served")
    }

    /// Returns the place of a fid.
    pub(super) fn place(&self, lane: usize, fid: u32) -> At {
        match self.lanes[lane].fids.get(&fid) {
            Some(held) => held.at.clone(),
            None => self.setup.space.root(),
        }
    }

    /// Handles a reply.
    pub(super) fn answered(&mut self, io: &mut Io<'_>, lane: usize, reply: &Rmessage<'_>) {
        let waiting = self.lanes.get_mut(lane).and_then(|lane| lane.waiting.take());
        let waiting = waiting.expect("an unsolicited reply");
        assert!(!waiting.is_answered, "{:?} is answered twice", waiting.request);
        self.expect_in_time(io, lane, &waiting);
        let effect = {
            let fault_log = self.setup.fault_log.borrow();
            let away = fault_log.away(waiting.since);
            let look = Lookup::new(&self.setup.space, self.disk(io), &away);
            self.judge(lane, Case { look, fault_log: &fault_log, waiting: &waiting }, reply)
        };
        io.trace(format_args!("{lane} {effect:?}"));
        self.learn(io.now(), lane, &waiting.request, effect);
        io.judged();
        if waiting.flushed.is_some() {
            self.lanes[lane].waiting = Some(Waiting { is_answered: true, ..waiting });
        }
    }

    fn judge(&self, lane: usize, mut case: Case<'_>, reply: &Rmessage<'_>) -> Effect {
        let request = &case.waiting.request;
        self.touch(lane, &mut case.look, request);
        let at = self.place(lane, request.fids().0);
        let deceived = case.is_deceived();
        match (request, reply) {
            (Request::Clunk { .. }, Rmessage::Clunk {}) => Effect::Clunked,
            (_, Rmessage::Lerror { ecode }) => self.judge_error(lane, &mut case, error_of(*ecode)),
            (Request::Walk { newfid, names, .. }, Rmessage::Walk { qids }) => {
                // A fid inherits the doubt about the path of the fid it was walked from.
                let from = self.lanes[lane].fids.get(&request.fids().0);
                let doubted = from.is_some_and(|held| held.may_be_stale);
                self.judge_walk(&mut case, (at, doubted), *newfid, names, qids.as_slice())
            }
            (Request::Stat { .. }, Rmessage::Getattr { .. })
            | (Request::Read { .. }, Rmessage::Read { .. })
                if deceived =>
            {
                Effect::Nothing
            }
            (Request::Open { .. }, Rmessage::Lopen { .. })
            | (Request::List { .. }, Rmessage::Readdir { .. })
            | (Request::Create { .. }, Rmessage::Lcreate { .. })
            | (Request::MakeDir { .. }, Rmessage::Mkdir { .. })
            | (Request::Write { .. }, Rmessage::Write { .. })
            | (Request::Rename { .. }, Rmessage::Renameat {})
            | (Request::Unlink { .. }, Rmessage::Unlinkat {})
                if deceived =>
            {
                Effect::Spoilt
            }
            (Request::Stat { .. }, Rmessage::Getattr { qid, size, .. }) => {
                assert!(case.is_at(&at, *qid), "{qid:?} are attributes of {at:?}");
                let is_file = qid.kind == Qid::FILE;
                let length = case.contents(at.file.inode()).map(|data| data.len() as u64);
                assert!(!is_file || length.is_none_or(|it| it == *size), "{size} for {length:?}");
                Effect::Nothing
            }
            (Request::Open { write, .. }, Rmessage::Lopen { qid, .. }) => {
                judge_open(&mut case, &at, *qid, *write)
            }
            (Request::Read { offset, count, .. }, Rmessage::Read { data }) => {
                self.judge_read(lane, &case, (*offset, *count), data.0)
            }
            (Request::List { fid, .. }, Rmessage::Readdir { data }) => {
                let State::Directory(listing) = &self.lanes[lane].fids[fid].state else {
                    unreachable!("only open directories are listed")
                };
                judge_list(&mut case, &at, listing.clone(), data.0)
            }
            _ => self.judge_change(lane, case, &at, reply),
        }
    }

    fn judge_change(
        &self,
        lane: usize,
        mut case: Case<'_>,
        at: &At,
        reply: &Rmessage<'_>,
    ) -> Effect {
        let disk = case.look.disk;
        match (&case.waiting.request, reply) {
            (Request::Create { name, .. }, Rmessage::Lcreate { qid, .. }) => {
                let (own, made) = judge_made(&mut case, at, name, *qid);
                let found = case.look.step(at, name);
                let elsewhere = made.file.depth() > 0 && !found.contains(&Ok(made.clone()));
                Effect::Made(own, Some((Box::new(made), elsewhere)))
            }
            (Request::MakeDir { name, .. }, Rmessage::Mkdir { qid }) => {
                let (own, _) = judge_made(&mut case, at, name, *qid);
                Effect::Made(OwnEntry { is_directory: true, ..own }, None)
            }
            (Request::Write { offset, data, .. }, Rmessage::Write { count }) => {
                assert_eq!(*count as usize, data.len(), "not everything was written");
                let node = disk.inode(at.file.inode()).expect("it is open");
                assert!(node.data.read(*offset, data.len()) == *data, "it was not written");
                Effect::Nothing
            }
            (Request::Rename { name, to, new, .. }, Rmessage::Renameat {}) => {
                let own = self.lanes[lane].own[name];
                let to = self.place(lane, *to);
                let dirs = self.setup.space.dirs(&to);
                let dest =
                    dirs.iter().find(|dir| disk.lookup(**dir, new.as_bytes()) == Some(own.inode));
                let dest = *dest.unwrap_or_else(|| panic!("{name} is not moved to {new}"));
                assert_eq!(disk.lookup(own.dir, name.as_bytes()), None, "{name} is still there");
                let expected = &case.waiting.expected;
                let right = expected.contains(&Ok(dest)) || case.look.is_doubtful();
                assert!(right, "moved to {dest} and not {expected:?}");
                Effect::Moved(dest)
            }
            (Request::Unlink { name, .. }, Rmessage::Unlinkat {}) => {
                let own = self.lanes[lane].own[name];
                assert_eq!(disk.lookup(own.dir, name.as_bytes()), None, "{name} is still there");
                Effect::Removed
            }
            (request, reply) => panic!("{reply:?} answers {request:?}"),
        }
    }

    /// Checks that an error has a cause.
    fn judge_error(&self, lane: usize, case: &mut Case<'_>, error: Error) -> Effect {
        let Waiting { request, since, expected, .. } = case.waiting;
        let at = self.place(lane, request.fids().0);
        let refused = match request {
            Request::Walk { names, .. } => {
                let first = names.first().map(|name| case.look.step(&at, name));
                first.into_iter().flatten().any(|found| found.is_err_and(|it| it == error))
            }
            Request::Create { .. } | Request::MakeDir { .. } => {
                case.look.takers(&at).is_err_and(|refused| refused == error)
            }
            Request::Rename { .. } => expected.contains(&Err(error)),
            _ => false,
        };
        if refused {
            return Effect::Nothing;
        }
        let doubtful = case.look.is_doubtful();
        let elsewhere = matches!(request, Request::Rename { .. }) && error == Error::CrossDevice;
        let troubled = doubtful && (error == Error::Disconnected || elsewhere);
        let stale = error == Error::Stale && self.may_be_stale(lane, case);
        let touched = &case.look.touched;
        assert!(
            troubled || stale || case.is_deceived(),
            "{error:?} without a reason for {request:?} since {since:?} at {at:?}, {touched:?}"
        );
        if error == Error::Stale { Effect::Spoilt } else { Effect::Lost }
    }

    fn may_be_stale(&self, lane: usize, case: &Case<'_>) -> bool {
        let (one, other) = case.waiting.request.fids();
        let fids = [Some(one), other].into_iter().flatten();
        let mut held = fids.filter_map(|fid| self.lanes[lane].fids.get(&fid));
        held.any(|held| {
            let replaced = case.fault_log.old_contents(held.at.file.inode()).is_some();
            let away = case.fault_log.away(held.since);
            // Behind the network another member of a union may have been taken.
            let again = held.at.file.depth() > 0 && !case.look.touched.is_disjoint(&away);
            held.may_be_stale || replaced || again || case.was_deceived(held.since)
        })
    }

    fn judge_walk(
        &self,
        case: &mut Case<'_>,
        (from, may_be_stale): (At, bool),
        newfid: u32,
        names: &[Name],
        qids: &[Qid],
    ) -> Effect {
        assert!(qids.len() <= names.len(), "{} names for {}", qids.len(), names.len());
        let since = case.waiting.since;
        let replaced = names.iter().any(|name| case.fault_log.was_replaced(name, since));
        let excused = case.is_deceived() || replaced;
        let held = |at, is_spoilt| {
            let state = State::Closed;
            Effect::Bound(newfid, Box::new(HeldFid { at, since, state, may_be_stale, is_spoilt }))
        };
        if excused {
            let whole = qids.len() == names.len();
            return if whole { held(from, true) } else { Effect::Nothing };
        }
        let mut places = vec![(from.clone(), false)];
        for (index, (name, qid)) in names.iter().zip(qids).enumerate() {
            let last = index + 1 == names.len();
            let next = steps(&mut case.look, &places, name, last);
            let there = next.iter().filter(|(at, _)| case.is_at(at, *qid));
            let there: Vec<(At, bool)> = there.cloned().collect();
            assert!(
                !there.is_empty(),
                "{qid:?} is not {name}, the {index}th of {names:?} from {from:?}, which is {next:?}"
            );
            places = there;
        }
        if let Some(name) = names.get(qids.len()) {
            expect_no_way(&case.look, &places, name);
            return Effect::Nothing;
        }
        held(places.swap_remove(0).0, false)
    }

    fn judge_read(
        &self,
        lane: usize,
        case: &Case<'_>,
        (offset, count): (u64, u32),
        data: &[u8],
    ) -> Effect {
        let fid = case.waiting.request.fids().0;
        let held = &self.lanes[lane].fids[&fid];
        let State::File { offset: before, writes } = held.state else {
            unreachable!("only open files are read")
        };
        if let Some(whole) = case.contents(held.at.file.inode()) {
            let start = usize::try_from(offset).expect("files are small").min(whole.len());
            let end = whole.len().min(start + count as usize);
            assert_eq!(data.len(), end - start, "bytes of {count} at {offset} of {}", whole.len());
            assert!(data == &whole[start..end], "wrong bytes at {offset} of {:?}", held.at);
        }
        // Any offset beyond the end reads nothing.
        let length = (data.len() as u64).max(1);
        let offset = if offset == before { offset + length } else { before };
        Effect::Opened(None, State::File { offset, writes })
    }

    /// Records all servers that a request may involve.
    fn touch(&self, lane: usize, look: &mut Lookup<'_>, request: &Request) {
        let at = self.place(lane, request.fids().0);
        match request {
            Request::Clunk { .. } => {}
            Request::Walk { names, .. } => {
                if names.is_empty() {
                    look.touch_file(&at);
                }
                let mut places = vec![(at, false)];
                for (index, name) in names.iter().enumerate() {
                    places = steps(look, &places, name, index + 1 == names.len());
                }
            }
            Request::Stat { .. } | Request::Read { .. } | Request::Write { .. } => {
                look.touch_file(&at);
            }
            Request::Open { .. } => {
                look.touch_file(&at);
                look.arrivals(at);
            }
            Request::Rename { to, .. } => {
                look.touch_all(&at);
                look.touch_all(&self.place(lane, *to));
            }
            Request::List { .. }
            | Request::Create { .. }
            | Request::MakeDir { .. }
            | Request::Unlink { .. } => look.touch_all(&at),
        }
    }

    /// Checks that no request hangs, and that requests without a server in trouble are prompt.
    pub(super) fn expect_in_time(&self, io: &Io<'_>, lane: usize, waiting: &Waiting) {
        let (now, since) = (io.now(), waiting.since);
        let waited = now.since(since);
        let prompt = self.setup.params.prompt();
        if waited < prompt {
            return;
        }
        let fault_log = self.setup.fault_log.borrow();
        let away = fault_log.away(since);
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &away);
        self.touch(lane, &mut look, &waiting.request);
        let depth = 1 + self.depth(io, lane, &waiting.request);
        let most = if look.is_doubtful() { prompt + TIMEOUT } else { prompt } * depth;
        let from =
            if look.is_doubtful() { fault_log.due_from(&look.touched, since, now) } else { since };
        let waited: Duration = now.since(from);
        assert!(
            waited < most,
            "{:?} waits for {waited:?} since {since:?}, for {:?} of whom {away:?} were away",
            waiting.request,
            look.touched
        );
    }

    /// Returns the maximum number of nested networks of a request.
    fn depth(&self, io: &Io<'_>, lane: usize, request: &Request) -> u32 {
        let mut at = self.place(lane, request.fids().0);
        let mut depth = at.file.depth();
        if let Request::Walk { names, .. } = request {
            for name in names {
                let nobody = BTreeSet::new();
                let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
                let Ok(next) = look.step(&at, name).swap_remove(0) else { break };
                depth = depth.max(next.file.depth());
                at = next;
            }
        }
        depth
    }

    /// Begins to read a directory from its start.
    pub(super) fn begin_list(&mut self, io: &Io<'_>, lane: usize, fid: u32) {
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
        let there = look.entries(&self.place(lane, fid));
        let held = self.lanes[lane].held(fid).expect("it is open");
        held.state = State::Directory(Listing::new(io.now(), there));
    }

    /// Returns the possible results of a rename while no server is in trouble; empty for other
    /// requests.
    pub(super) fn expected(
        &self,
        io: &Io<'_>,
        lane: usize,
        request: &Request,
    ) -> Vec<Result<u64, Error>> {
        let Request::Rename { from, name, to, .. } = request else { return Vec::new() };
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
        look.rename(&self.place(lane, *from), name, &self.place(lane, *to))
    }
}

/// Effects of replies.
impl MuxClient {
    fn learn(&mut self, now: Instant, lane: usize, request: &Request, effect: Effect) {
        let fid = request.fids().0;
        for name in request.changed() {
            self.setup.fault_log.borrow_mut().change_name(name, Some(now));
        }
        match effect {
            Effect::Nothing => {}
            Effect::Lost => self.lose(lane, request),
            Effect::Spoilt => {
                self.lose(lane, request);
                self.spoil(lane, request);
            }
            Effect::Bound(newfid, held) => {
                self.lanes[lane].fids.insert(newfid, *held);
            }
            Effect::Opened(at, state) => {
                let held = self.lanes[lane].held(fid).expect("it is in a request");
                held.state = state;
                held.at = at.unwrap_or_else(|| held.at.clone());
            }
            Effect::Made(own, at) => {
                let name = request.changed()[0].clone();
                self.lanes[lane].own.insert(name, own);
                if let Some((at, elsewhere)) = at {
                    let held = self.lanes[lane].held(fid).expect("it is in a request");
                    (held.at, held.since, held.may_be_stale) = (*at, now, elsewhere);
                    held.state = State::File { offset: 0, writes: true };
                }
            }
            Effect::Moved(dir) => {
                let [name, new] = request.changed()[..] else { unreachable!("a rename has two") };
                let own = self.lanes[lane].own.remove(name).expect("it was there");
                self.lanes[lane].own.insert(new.clone(), OwnEntry { dir, ..own });
                self.lanes[lane].doubt(own.inode);
            }
            Effect::Removed => {
                let name = request.changed()[0];
                let own = self.lanes[lane].own.remove(name).expect("it was there");
                self.lanes[lane].spoil_all(own.inode);
            }
            Effect::Clunked => {
                self.lanes[lane].fids.remove(&fid);
            }
        }
    }

    fn spoil(&mut self, lane: usize, request: &Request) {
        let (one, other) = request.fids();
        for fid in [Some(one), other].into_iter().flatten() {
            if let Some(held) = self.lanes[lane].held(fid) {
                held.is_spoilt = true;
                if let Request::Open { .. } | Request::Create { .. } = request {
                    held.state = State::Closed;
                }
            }
        }
    }

    /// Records that it is unknown whether a request was performed.
    pub(super) fn lose(&mut self, lane: usize, request: &Request) {
        for name in request.changed() {
            self.setup.fault_log.borrow_mut().change_name(name, None);
            if let Some(own) = self.lanes[lane].own.remove(name) {
                self.lanes[lane].doubt(own.inode);
            }
        }
        match request {
            Request::Write { fid, .. } => {
                let inode = self.place(lane, *fid).file.inode();
                self.setup.fault_log.borrow_mut().blur(inode);
            }
            Request::Clunk { fid } => {
                self.lanes[lane].fids.remove(fid);
            }
            _ => {}
        }
    }
}

/// Returns the places of a name from given places; the flag distinguishes a walk that has entered
/// the member from one still before the mount point, which it enters only at its end.
fn steps(look: &mut Lookup<'_>, places: &[(At, bool)], name: &Name, last: bool) -> Vec<(At, bool)> {
    let mut next: Vec<(At, bool)> = Vec::new();
    for (at, there) in places {
        let stays = *there && at.is_point() && name.as_bytes() == b".";
        let found = if stays { vec![Ok(at.clone())] } else { look.step(at, name) };
        for found in found.into_iter().flatten() {
            let is_there = match name.as_bytes() {
                b".." => true,
                b"." => *there || !at.is_point(),
                _ => !found.is_point(),
            };
            let again = found.file.depth() > 0;
            let arrivals =
                if last && !is_there || again { look.arrivals(found.clone()) } else { Vec::new() };
            let passing = (!last || is_there || again).then_some(found);
            for at in passing.into_iter().chain(arrivals) {
                if !next.contains(&(at.clone(), is_there)) {
                    next.push((at, is_there));
                }
            }
        }
    }
    next
}

/// Checks that a walk may have stopped before a name: it does not exist, or a server was
/// unavailable.
fn expect_no_way(look: &Lookup<'_>, places: &[(At, bool)], name: &Name) {
    let mut next = Lookup::new(look.space, look.disk, look.away);
    let fails = |(at, _): &(At, bool)| next.step(at, name).iter().any(Result::is_err);
    let fails = places.iter().any(fails);
    steps(&mut next, places, name, true);
    assert!(fails || next.is_doubtful(), "the walk stops before {name} in {places:?}");
}

fn judge_open(case: &mut Case<'_>, at: &At, qid: Qid, write: bool) -> Effect {
    let places: Vec<At> = [at.clone()].into_iter().chain(case.look.arrivals(at.clone())).collect();
    let right = places.iter().any(|at| case.is_at(at, qid));
    assert!(right, "{qid:?} was opened, and not {at:?}");
    let state = match qid.kind {
        Qid::DIR => State::Directory(Listing::new(case.waiting.since, Default::default())),
        _ => State::File { offset: 0, writes: write },
    };
    Effect::Opened(None, state)
}

fn judge_list(case: &mut Case<'_>, at: &At, mut listing: Listing, data: &[u8]) -> Effect {
    if case.was_deceived(listing.since) {
        return Effect::Spoilt;
    }
    let entries = dirents(data).expect("entries can be understood");
    let away = case.fault_log.away(listing.since);
    let mut look = Lookup::new(case.look.space, case.look.disk, &away);
    let there = There { first: look.entries(at), all: look.entries_of_all(at) };
    listing.is_doubtful |= !case.look.touched.is_disjoint(&away);
    listing.take(&entries, &there, case.fault_log);
    Effect::Opened(None, State::Directory(listing))
}

/// Checks that a new entry is in the first directory that takes it, and in no other.
fn judge_made(case: &mut Case<'_>, at: &At, name: &Name, qid: Qid) -> (OwnEntry, At) {
    let takers = case.look.takers(at).expect("nothing new is taken here");
    let disk = case.look.disk;
    let inode_in = |dir: &At| disk.lookup(dir.file.inode(), name.as_bytes());
    let dir = &takers[0];
    let inode = inode_in(dir).unwrap_or_else(|| panic!("{name} was not made in {dir:?}"));
    let elsewhere = takers.iter().find(|other| inode_in(other).is_some_and(|it| it != inode));
    assert!(elsewhere.is_none(), "{name} was made in {elsewhere:?} as well");
    let made = dir.child(inode);
    assert!(case.is_at(&made, qid), "{qid:?} is not {name} in {dir:?}");
    (OwnEntry { dir: dir.file.inode(), inode, is_directory: false }, made)
}
