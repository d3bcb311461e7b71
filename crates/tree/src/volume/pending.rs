//! A pending request, planned repeatedly until no pages are missing, then committed.
//!
#![doc = include_str!("states.md")]

use super::permission::Credentials;
use super::plan::{Answer, Commit, Effects, Placing, Plan, Planner, Progress};
use super::read_view::Stop;
use super::{NodeRef, Volume};
use super::{counting, reaper};
use crate::request::{Ask, Id, Output, Reply, Request, RequestId};
use base::op::{Op, PathDone, PathOp, Who};
use base::{Caller, Error, Instant};
use store::{Change, Durability, Extent, Missing, Refusal, Ticket, View};

/// Maximum number of plans of a request. Missing pages are fetched after each, so more plans
/// mean that the cache is too small for the request.
const PLANS_MAX: u32 = 10_000;

/// Ticket of commits without a waiting request. Tickets of pending requests are their slots.
pub(super) const LOOSE: Ticket = Ticket(1 << 62);
/// Ticket of the reaper.
pub(super) const REAPER: Ticket = Ticket(1 << 62 | 1);
/// Ticket of closing the store.
pub(super) const CLOSE: Ticket = Ticket(1 << 62 | 2);
/// Ticket of growing the store.
pub(super) const GROW: Ticket = Ticket(1 << 62 | 3);
/// Ticket of the counting machine.
pub(super) const COUNTING: Ticket = Ticket(1 << 62 | 4);

/// A pending request.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: RequestId,
    pub(super) caller: Caller,
    pub(super) ask: Ask,
    pub(super) awaits: Awaits,
    pub(super) progress: Progress,
    /// Whether it was cancelled.
    pub(super) cancelled: bool,
    /// Number of plans so far.
    pub(super) plans: u32,
}

/// Awaited event of a pending request. After all but `Durable` and `User` it is planned (again).
#[derive(Debug)]
pub(super) enum Awaits {
    /// Its first plan, after the store is open.
    Plan,
    /// Blocks, or space.
    Blocks,
    /// The write of its data to the disk.
    Placement(Placing),
    /// The end of an append to this inode, with its number in the queue.
    Append(u64, u64),
    /// The removal of this inode's old contents.
    Trim(u64),
    /// The durability of all changes so far, before this reply, whose node or open file is handed
    /// out already.
    Durable(Reply),
    /// The creation of the snapshot.
    Snapshot,
    /// The lookup of a user on the host.
    User,
}

impl Awaits {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Awaits::Plan => "plan",
            Awaits::Blocks => "blocks",
            Awaits::Placement(_) => "place",
            Awaits::Append(..) => "append",
            Awaits::Trim(_) => "trim",
            Awaits::Durable(_) => "durable",
            Awaits::Snapshot => "snapshot",
            Awaits::User => "user",
        }
    }
}

impl Pending {
    pub(super) fn new(request: RequestId, Request { caller, ask }: Request) -> Pending {
        let (awaits, progress) = (Awaits::Plan, Progress::None);
        Pending { request, caller, ask, awaits, progress, cancelled: false, plans: 0 }
    }

    /// Returns the nodes and open files needed until its end.
    pub(super) fn pins(&self) -> impl Iterator<Item = Id> + use<> {
        self.ask.ids().into_iter().flatten()
    }
}

impl Volume {
    /// Plans a pending request (again), and executes the plan.
    pub(super) fn go(&mut self, now: Instant, slot: usize, out: &mut Vec<Output>) {
        self.learn(now);
        let pending = &self.pending[slot];
        assert!(pending.plans <= PLANS_MAX, "a request is not planned for ever");
        let (who, date) = (Credentials(&pending.caller), self.date(now));
        let planner = Planner { volume: self, slot, who, now: date };
        match planner.plan(&pending.ask, &pending.progress) {
            Ok(Plan::Answer(answer, touched)) => {
                self.note(now, &touched);
                self.answer(slot, answer, out);
            }
            Ok(Plan::Commit(commit)) => self.commit(now, slot, commit, out),
            Ok(Plan::Place(placing, blocks)) => {
                if let Some(ino) = placing.appends_to {
                    self.appends.hold(ino, slot);
                }
                match self.store.place(now, ticket(slot), blocks, &mut self.inbox) {
                    Ok(()) => self.pending[slot].awaits = Awaits::Placement(placing),
                    Err(refusal) => self.refused(now, slot, refusal, out),
                }
            }
            Ok(Plan::Sync) => {
                self.pending[slot].awaits = Awaits::Durable(Reply::Done);
                self.store.sync(now, ticket(slot), &mut self.inbox);
            }
            Ok(Plan::Snapshot(name)) => {
                self.pending[slot].awaits = Awaits::Snapshot;
                self.store.snapshot(now, ticket(slot), name.as_bytes(), date, &mut self.inbox);
            }
            Ok(Plan::DropSnapshot(name)) => {
                self.pending[slot].awaits = Awaits::Durable(Reply::Done);
                self.store.drop_snapshot(now, ticket(slot), name.as_bytes(), &mut self.inbox);
            }
            Err(Stop::Missing(missing)) => self.fetch(now, slot, missing, out),
            Err(Stop::Trimming(ino)) => {
                self.pending[slot].awaits = Awaits::Trim(ino);
                self.trimming.insert((ino, slot));
                self.notify_reaper(now, reaper::Input::Urgent(ino), out);
            }
            Err(Stop::Appending(ino)) => {
                let number = self.appends.wait(ino, slot);
                self.pending[slot].awaits = Awaits::Append(ino, number);
            }
            Err(Stop::Failed(error)) => self.finish(slot, Err(error), out),
        }
    }

    /// Commits changes whose loss does not matter.
    fn note(&mut self, now: Instant, touched: &[Change]) {
        if !touched.is_empty() {
            let soon = Durability::Soon;
            let _may_be_lost = self.store.commit(now, LOOSE, touched, soon, &mut self.inbox);
        }
    }

    pub(super) fn commit(
        &mut self,
        now: Instant,
        slot: usize,
        commit: Commit,
        out: &mut Vec<Output>,
    ) {
        let Commit { changes, durable, answer, effects } = commit;
        let durable = durable || self.write_through && !changes.is_empty();
        let durability = if durable { Durability::Durable } else { Durability::Soon };
        if changes.is_empty() && durable {
            // Changes that the reply is based on may not be durable yet.
            self.store.sync(now, ticket(slot), &mut self.inbox);
        } else if !changes.is_empty() {
            let ticket = ticket(slot);
            if let Err(refusal) = self.commit_changes(now, ticket, &changes, durability) {
                return self.refused(now, slot, refusal, out);
            }
        }
        if effects.attached {
            self.pending[slot].progress = Progress::None;
        }
        self.take_effect(now, effects, out);
        let reply = self.hand_out(slot, answer);
        match durable {
            true => self.pending[slot].awaits = Awaits::Durable(reply),
            false => self.finish(slot, Ok(reply), out),
        }
    }

    fn refused(&mut self, now: Instant, slot: usize, refusal: Refusal, out: &mut Vec<Output>) {
        match refusal {
            Refusal::Missing(missing) => self.fetch(now, slot, missing, out),
            Refusal::Failed(error) => {
                let error = translate(error, Some(&self.pending[slot].ask));
                self.finish(slot, Err(error), out);
            }
        }
    }

    fn fetch(&mut self, now: Instant, slot: usize, missing: Missing, out: &mut Vec<Output>) {
        let pending = &mut self.pending[slot];
        pending.plans += 1;
        if pending.plans > PLANS_MAX {
            return self.finish(slot, Err(Error::NoMemory), out);
        }
        pending.awaits = Awaits::Blocks;
        self.store.fetch(now, ticket(slot), missing, &mut self.inbox);
    }

    /// Applies the effects of a transaction to nodes and open files.
    fn take_effect(&mut self, now: Instant, effects: Effects, out: &mut Vec<Output>) {
        let Effects { gone, moved, orphans, named, trimming, uncounted, attached: _ } = effects;
        if let Some((holder, directory)) = uncounted {
            self.notify_counting(now, counting::Input::Due(holder, directory));
        }
        if let Some((ino, place)) = gone {
            self.move_places(ino, &place, None);
        }
        if let Some((ino, from, to)) = moved {
            self.move_places(ino, &from, Some(&to));
        }
        if let Some((ino, place)) = named {
            self.orphans.remove(&ino);
            self.set_place(ino, &place);
        }
        if let Some(ino) = orphans {
            self.orphans.insert(ino);
            if !self.is_held(ino) {
                self.notify_reaper(now, reaper::Input::Due(ino), out);
            }
        }
        if let Some(ino) = trimming {
            self.notify_reaper(now, reaper::Input::Due(ino), out);
        }
    }

    fn answer(&mut self, slot: usize, answer: Answer, out: &mut Vec<Output>) {
        let reply = self.hand_out(slot, answer);
        self.finish(slot, Ok(reply), out);
    }

    /// Returns the reply, and registers the node and open file that it hands out.
    fn hand_out(&mut self, slot: usize, answer: Answer) -> Reply {
        match answer {
            Answer::Reply(reply) => reply,
            Answer::Walked(stats, node_ref, place) => {
                Reply::Walked(stats, Some(self.arrive(slot, node_ref, place)))
            }
            Answer::Opened(opening, stat) => Reply::Opened(self.add_open(opening), stat),
            Answer::Created(opening, place, stat) => {
                let open = self.add_open(opening);
                Reply::Created(self.add_node(opening.node_ref, place), open, stat)
            }
            Answer::Fetched(stat, data, opening) => {
                Reply::Fetched(stat, data, opening.map(|opening| self.add_open(opening)))
            }
            Answer::Read { reply, open, part, size } => {
                self.read_ahead(open, part, size);
                reply
            }
        }
    }

    /// Releases the node and open file of a reply that is not sent.
    fn take_back(&mut self, reply: &Reply, out: &mut Vec<Output>) {
        let (node, open) = reply.handed_out();
        if let Some(open) = open {
            self.close_file(open, out);
        }
        if let Some(node) = node {
            self.unpin(Id::Node(node));
        }
    }

    /// Ends a pending request with its one reply.
    pub(super) fn finish(
        &mut self,
        slot: usize,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        self.forget_placed(slot);
        self.release_end(slot);
        let pending = self.pending.remove(slot);
        let known = self.slots.remove(&pending.request);
        assert_eq!(known, Some(slot), "a request is answered once");
        out.push(Output::Reply(pending.request, reply));
        pending.pins().for_each(|pin| self.unpin(pin));
    }

    /// Releases the end of the file held by a pending append.
    fn release_end(&mut self, slot: usize) {
        if let Some(ino) = self.appended(slot) {
            self.appends.release(ino, slot);
        }
    }

    /// Returns the file of a pending write.
    pub(super) fn appended(&self, slot: usize) -> Option<u64> {
        let Ask::Write { open, .. } = self.pending[slot].ask else { return None };
        match self.open(open).what.node_ref {
            NodeRef::File(View::Present, ino) => Some(ino),
            NodeRef::File(View::Snapshot(_), _) | NodeRef::Snapshots => None,
        }
    }

    /// Continues requests whose append has ended.
    pub(super) fn resume_waiting(&mut self, now: Instant, out: &mut Vec<Output>) {
        // A continued request may hold the end of a file itself, and fail at once.
        while let Some(ino) = self.appends.pop_released() {
            while let Some(slot) = self.appends.pop(ino) {
                let awaits = &self.pending[slot].awaits;
                assert!(
                    matches!(awaits, Awaits::Append(of, _) if *of == ino),
                    "resumed, in {awaits:?}"
                );
                self.go(now, slot, out);
            }
        }
    }

    /// Frees blocks placed for a pending request and no longer needed.
    fn forget_placed(&mut self, slot: usize) {
        let progress = &mut self.pending[slot].progress;
        match std::mem::replace(progress, Progress::None) {
            Progress::Placed(_, extents) => self.store.abandon(extents),
            kept @ (Progress::None | Progress::Made) => *progress = kept,
        }
    }

    /// Handles the end of a fetch.
    pub(super) fn fetched(
        &mut self,
        now: Instant,
        slot: usize,
        result: Result<(), store::Error>,
        out: &mut Vec<Output>,
    ) {
        let pending = &self.pending[slot];
        assert!(matches!(pending.awaits, Awaits::Blocks), "fetched, in {:?}", pending.awaits);
        match result {
            _ if pending.cancelled => self.finish(slot, Err(Error::Cancelled), out),
            Ok(()) => self.go(now, slot, out),
            Err(error) => {
                let error = translate(error, Some(&pending.ask));
                self.finish(slot, Err(error), out);
            }
        }
    }

    /// Handles the durability of a commit.
    pub(super) fn committed(
        &mut self,
        now: Instant,
        slot: usize,
        result: Result<(), store::Error>,
        out: &mut Vec<Output>,
    ) {
        let pending = &mut self.pending[slot];
        let awaited = std::mem::replace(&mut pending.awaits, Awaits::Plan);
        if let Err(error) = result {
            let error = translate(error, Some(&pending.ask));
            if let Awaits::Durable(reply) = awaited {
                self.take_back(&reply, out);
            }
            return self.finish(slot, Err(error), out);
        }
        match awaited {
            Awaits::Durable(reply) => self.finish(slot, Ok(reply), out),
            Awaits::Snapshot => {
                pending.progress = Progress::Made;
                self.go(now, slot, out);
            }
            awaits @ (Awaits::Plan
            | Awaits::Blocks
            | Awaits::Placement(_)
            | Awaits::Append(..)
            | Awaits::Trim(_)
            | Awaits::User) => unreachable!("committed, in {awaits:?}"),
        }
    }

    /// Handles the end of a placement of data.
    pub(super) fn placed(
        &mut self,
        now: Instant,
        slot: usize,
        result: Result<Vec<Extent>, store::Error>,
        out: &mut Vec<Output>,
    ) {
        let pending = &mut self.pending[slot];
        match (result, &pending.awaits) {
            (Ok(extents), Awaits::Placement(placing)) => {
                pending.progress = Progress::Placed(placing.offset, extents);
                match pending.cancelled {
                    true => self.finish(slot, Err(Error::Cancelled), out),
                    false => self.go(now, slot, out),
                }
            }
            (Ok(_), awaits) => unreachable!("placed, in {awaits:?}"),
            (Err(error), _) => {
                let error = translate(error, Some(&pending.ask));
                self.finish(slot, Err(error), out);
            }
        }
    }

    /// Continues requests that wait for the removal of an inode's old contents.
    pub(super) fn trimmed(
        &mut self,
        now: Instant,
        ino: u64,
        result: Result<(), Error>,
        out: &mut Vec<Output>,
    ) {
        let waiting = self.trimming.range((ino, 0)..=(ino, usize::MAX));
        for key @ (_, slot) in waiting.copied().collect::<Vec<_>>() {
            self.trimming.remove(&key);
            let awaits = &self.pending[slot].awaits;
            assert!(matches!(awaits, Awaits::Trim(of) if *of == ino), "trimmed, in {awaits:?}");
            match result {
                Ok(()) => self.go(now, slot, out),
                Err(error) => self.finish(slot, Err(error), out),
            }
        }
    }

    /// Starts the lookup of a user on the host.
    pub(super) fn identify(&mut self, slot: usize, who: Who, out: &mut Vec<Output>) {
        assert!(matches!(self.pending[slot].awaits, Awaits::Plan), "a request begins once");
        self.pending[slot].awaits = Awaits::User;
        let pending = &self.pending[slot];
        let (caller, requester) = (pending.caller.clone(), pending.request.requester());
        let (id, op) = (self.user_op(slot), PathOp::Identify { who });
        out.push(Output::Do(Op::Path { id, caller, requester, within: None, op }));
    }

    /// Handles the result of the lookup of a user.
    pub(super) fn identified(
        &mut self,
        slot: usize,
        result: Result<PathDone, Error>,
        out: &mut Vec<Output>,
    ) {
        assert!(
            matches!(self.pending[slot].awaits, Awaits::User),
            "the host was asked about a user"
        );
        let reply = match result {
            Ok(PathDone::User(user)) => Ok(Reply::User(user)),
            Ok(other) => unreachable!("{other:?} is no user"),
            Err(error) => Err(error),
        };
        self.finish(slot, reply, out);
    }

    pub(super) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.locks.cancel(id) {
            return out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
        let Some(&slot) = self.slots.get(&id) else { return };
        self.pending[slot].cancelled = true;
        match self.pending[slot].awaits {
            // There is no completion for this one.
            Awaits::Trim(ino) => {
                let waited = self.trimming.remove(&(ino, slot));
                assert!(waited, "a request that waits for a trim is indexed");
                self.finish(slot, Err(Error::Cancelled), out);
            }
            Awaits::Append(ino, number) => {
                self.appends.leave(ino, number);
                self.finish(slot, Err(Error::Cancelled), out);
            }
            Awaits::User => out.push(Output::Do(Op::Cancel { id: self.user_op(slot) })),
            // A completion follows soon.
            Awaits::Plan
            | Awaits::Blocks
            | Awaits::Placement(_)
            | Awaits::Durable(_)
            | Awaits::Snapshot => {}
        }
    }
}

fn ticket(slot: usize) -> Ticket {
    Ticket(slot as u64)
}

/// Translates an error of the store; `ask` is the request, if there is one.
pub(super) fn translate(error: store::Error, ask: Option<&Ask>) -> Error {
    match error {
        store::Error::NoSpace | store::Error::DiskFull => Error::NoSpace,
        store::Error::TooLarge if matches!(ask, Some(Ask::MakeDir { .. })) => Error::NameTooLong,
        store::Error::TooLarge if matches!(ask, Some(Ask::SetAttr { .. })) => {
            Error::AttributeTooLarge
        }
        store::Error::TooLarge => Error::FileTooLarge,
        store::Error::Damaged | store::Error::DiskFailed | store::Error::NotAVolume => Error::Io,
        store::Error::TooShort => Error::Invalid,
        store::Error::ReadOnly => Error::ReadOnly,
        store::Error::NotFound => Error::NotFound,
        store::Error::Exists => Error::Exists,
        store::Error::WouldDeadlock => Error::WouldDeadlock,
    }
}
