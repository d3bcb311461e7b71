//! Progress of pending requests: from the link over their fids to the replies to their messages.
//!
//! `walk`, `transfer`, `list` and one file for each dialect handle the replies.

use super::message::{Message, Owner, Party, Target};
use super::pending::changes;
use super::recovery::Waiter;
use super::step::{Next, Outcome, OwnStep, Step};
use super::{ATTEMPTS_MAX, REQUESTS_MAX, Remote};
use crate::request::{Ask, Id, NodeId, OpenId, Output, Reply, RequestId};
use base::op::Detail;
use base::{Error, Kind};
use session::Dialect;
use std::mem;
use wire::ninep::Rmessage;

impl Remote {
    /// Continues a pending request without outstanding messages as far as possible.
    pub(super) fn advance(&mut self, slot: usize, out: &mut Vec<Output>) {
        if let Some(next) = self.next(slot, out) {
            self.proceed(slot, next, out);
        }
    }

    /// Returns the next action of a pending request; `None` if it waits.
    fn next(&mut self, slot: usize, out: &mut Vec<Output>) -> Option<Outcome> {
        if !self.link.is_up() {
            self.pending.wait(slot, Step::Queued);
            return None;
        }
        match self.missing(slot) {
            Ok(Some(target)) => {
                self.pending.wait(slot, Step::Recovering(target));
                self.recovery(target, Waiter::Pending(slot), out);
                None
            }
            Ok(None) => Some(self.start(slot)),
            Err(error) => Some(Err(error)),
        }
    }

    pub(super) fn is_recovering(&self, slot: usize, target: Target) -> bool {
        let step = self.pending.get(slot).map(|slot| &slot.step);
        matches!(step, Some(Step::Recovering(recovered)) if *recovered == target)
    }

    /// Returns the first needed fid that is not bound on this connection.
    fn missing(&mut self, slot: usize) -> Result<Option<Target>, Error> {
        let it = &self.pending[slot];
        let fid_of = |inode| Target::BoundFid(inode, it.user);
        let mut needs: Vec<Target> = match (&it.cursor, &it.ask) {
            (Some(cursor), _) => vec![fid_of(cursor.at)],
            (None, Ask::Walk { from, .. }) => vec![fid_of(from.local())],
            (None, ask) => ask
                .ids()
                .into_iter()
                .flatten()
                .map(|id| match id {
                    Id::Node(node) => fid_of(node.local()),
                    Id::Open(open) => Target::Open(open.local()),
                })
                .collect(),
        };
        match &it.ask {
            Ask::List { open, .. } if self.opens[open.local()].kind != Kind::Directory => {
                return Err(Error::NotDirectory);
            }
            Ask::RenameNode { node, to: None, .. } => {
                needs.push(fid_of(self.inodes.parent(node.local())));
            }
            Ask::List { open, detail: Detail::Stat | Detail::Handle, .. } => {
                needs.push(fid_of(self.opens[open.local()].inode));
            }
            _ => {}
        }
        for need in needs {
            let is_there = match need {
                Target::BoundFid(inode, user) if matches!(it.ask, Ask::Stat { .. }) => {
                    self.inodes.use_fid(inode, user).is_some()
                        || self.created_open(inode, user).is_some()
                }
                Target::BoundFid(inode, user) => self.inodes.use_fid(inode, user).is_some(),
                Target::Open(open) if self.opens[open].stale => return Err(Error::Stale),
                Target::Open(open) => self.opens[open].epoch == self.inodes.epoch(),
            };
            if !is_there {
                return Ok(Some(need));
            }
        }
        Ok(None)
    }

    /// Handles a failed recovery of a fid; a list continues without attributes.
    pub(super) fn not_found(&mut self, slot: usize, error: Error, out: &mut Vec<Output>) {
        match &mut self.pending[slot].ask {
            Ask::List { detail, .. } if detail.has_stat() && error == Error::Stale => {
                *detail = Detail::Name;
                self.advance(slot, out);
            }
            _ => self.end(slot, Err(error), out),
        }
    }

    /// Returns the fid of an inode, which [`Remote::missing`] has found to be bound.
    pub(super) fn fid_of(&self, node: NodeId, user: u32) -> Result<u32, Error> {
        self.inodes.fid_of(node.local(), user).ok_or(Error::Stale)
    }

    /// Returns the open file of a file's creation, if it is this user's and bound on this
    /// connection.
    fn created_open(&self, inode: usize, user: u32) -> Option<usize> {
        let is_bound = |open: usize| self.opens[open].epoch == self.inodes.epoch();
        let created = self.inodes.created(inode);
        created.filter(|(creator, open)| *creator == user && is_bound(*open)).map(|(_, open)| open)
    }

    /// Returns the fid of a stat: that of the node, or the open one of the creation of the file,
    /// which needs no walk and is pinned until the request ends.
    pub(super) fn stat_fid(&mut self, slot: usize, node: NodeId) -> Result<u32, Error> {
        let user = self.pending[slot].user;
        if let Ok(fid) = self.fid_of(node, user) {
            return Ok(fid);
        }
        let open = self.created_open(node.local(), user).ok_or(Error::Stale)?;
        let id = Id::Open(OpenId::new(self.index, open));
        let pins = &mut self.pending[slot].pins;
        if !pins.contains(&Some(id)) {
            let free = pins.iter_mut().find(|pin| pin.is_none());
            *free.expect("a stat names one node") = Some(id);
            self.pin(id);
        }
        Ok(self.opens[open].fid)
    }

    /// Returns the fid of an open file.
    pub(super) fn open_fid(&self, open: OpenId) -> u32 {
        self.opens[open.local()].fid
    }

    /// Returns a new fid owned by the pending request.
    pub(super) fn new_fid(&mut self, slot: usize) -> u32 {
        let fid = self.calls.new_fid();
        let known = self.pending[slot].fids.iter().any(|(known, _)| *known == fid);
        assert!(!known, "a number in use is not taken again");
        self.pending[slot].fids.push((fid, false));
        fid
    }

    /// Numbers the changes of a request to files and directories, to be covered by their fsyncs.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others change no contents")]
    fn note_changes(&mut self, slot: usize) {
        let it = &self.pending[slot];
        // Those of contents and size are what an fdatasync covers.
        let is_data = match &it.ask {
            Ask::Write { .. } | Ask::Open { .. } => true,
            Ask::SetStat { set, .. } => set.size.is_some(),
            _other => false,
        };
        let client = it.request.requester();
        let inodes = self.changed_inodes(&it.ask);
        let begin = |inode: usize| {
            self.inodes.pin(inode);
            (inode, self.inodes.writes(inode).begin(client, !is_data))
        };
        let changing = inodes.into_iter().map(begin).collect();
        let before = mem::replace(&mut self.pending[slot].changing, changing);
        self.end_changes(before);
    }

    fn end_changes(&mut self, changing: Vec<(usize, u64)>) {
        for (inode, number) in changing {
            self.inodes.writes(inode).end(number);
            self.unpin_inode(inode);
        }
    }

    /// Returns the inodes of files and directories that a request changes.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most requests change an entry only")]
    fn changed_inodes(&self, ask: &Ask) -> Vec<usize> {
        if !ask.changes() {
            return Vec::new();
        }
        let dirs = ask.entries().into_iter().flatten().map(|(dir, _)| dir.local());
        let other = match ask {
            Ask::Write { open, .. } => Some(self.opens[open.local()].inode),
            Ask::SetStat { node, .. }
            | Ask::SetAttr { node, .. }
            | Ask::RemoveAttr { node, .. } => Some(node.local()),
            Ask::Open { node, access } if access.truncate => Some(node.local()),
            Ask::RenameNode { node, .. } | Ask::RemoveNode { node } => {
                Some(self.inodes.parent(node.local()))
            }
            _ => None,
        };
        dirs.chain(other).collect()
    }

    fn start(&mut self, slot: usize) -> Outcome {
        self.note_changes(slot);
        let checked = self.pending[slot].checked;
        match &mut self.pending[slot].ask {
            Ask::Replace { dir, name, .. } if !checked => {
                let (dir, name) = (*dir, name.clone());
                self.look_for(slot, dir, &name, Step::Present)
            }
            Ask::Walk { .. } | Ask::Fetch { .. } => self.walk_on(slot),
            Ask::Read { .. } | Ask::Write { .. } => self.start_transfer(slot),
            Ask::List { .. } => self.start_list(slot),
            _other => {
                let ask = self.acting(slot);
                match self.dialect() {
                    Dialect::Linux => self.start_linux(slot, &ask),
                    Dialect::Plan9 => self.start_plan9(slot, &ask),
                }
            }
        }
    }

    /// Handles the reply to one of a pending request's messages.
    pub(super) fn answered(
        &mut self,
        slot: usize,
        part: u32,
        answer: Result<&Rmessage<'_>, Error>,
        out: &mut Vec<Output>,
    ) {
        let it = &mut self.pending[slot];
        assert!(it.outstanding > 0, "an answer is to something that was sent");
        it.outstanding -= 1;
        match it.removing.take() {
            // The server may not know the message, and the fid is still bound.
            Some(fid) if answer.is_err_and(|error| error == Error::Unsupported) => self.clunk(fid),
            Some(fid) => self.calls.free_fid(fid),
            None => {}
        }
        let next = match self.pending.wait(slot, OwnStep::Last.into()) {
            Step::Walk(names) => self.walk_answered(slot, names, answer),
            Step::Link => self.link_answered(slot, answer),
            Step::Look => self.look_answered(slot, answer),
            Step::Present(fid) => self.present_answered(slot, fid, answer),
            Step::Compare => self.compare_answered(slot, answer),
            Step::Reading(gather) => self.read_answered(slot, gather, part, answer),
            Step::Writing(parts) => self.write_answered(slot, parts, part, answer),
            Step::Syncing(covered) => self.synced(slot, covered, answer),
            Step::Entries(round) => self.entries_answered(slot, round, answer),
            Step::Stats(stats) => self.stats_answered(slot, stats, part, answer),
            Step::Opening(fid) => self.opened(slot, fid, answer),
            Step::Regard(fid, iounit) => self.regarded(slot, fid, iounit, answer),
            Step::Own(step) => {
                let ask = self.acting(slot);
                match self.dialect() {
                    Dialect::Linux => self.resume_linux(slot, &ask, step, answer),
                    Dialect::Plan9 => self.resume_plan9(slot, &ask, step, answer),
                }
            }
            step @ (Step::Queued | Step::Recovering(_) | Step::Paused(_) | Step::Behind) => {
                unreachable!("{step:?} has no message outstanding")
            }
        };
        self.proceed(slot, next, out);
    }

    /// Ends the connection after a reply that matches no outstanding message.
    pub(super) fn wrong(&mut self) -> Outcome {
        self.connection.blame("an unsolicited reply");
        Err(Error::Io)
    }

    /// Handles the end of a flushed message without a reply.
    pub(super) fn never(&mut self, slot: usize, out: &mut Vec<Output>) {
        let it = &mut self.pending[slot];
        assert!(it.outstanding > 0, "a flush is of something that was sent");
        it.outstanding -= 1;
        if it.outstanding == 0 {
            self.end(slot, Err(Error::Cancelled), out);
        }
    }

    /// Performs the next action of a pending request. Clients control the number of immediate
    /// continuations, so this is a loop and not a recursion.
    fn proceed(&mut self, slot: usize, mut next: Outcome, out: &mut Vec<Output>) {
        while let (Ok(Next::Again), false) = (&next, self.pending[slot].cancelled) {
            match self.next(slot, out) {
                Some(wanted) => next = wanted,
                None => return,
            }
        }
        let it = &self.pending[slot];
        let wants_more = !matches!(next, Ok(Next::Reply(_)) | Err(_));
        if it.cancelled && wants_more {
            if it.outstanding == 0 {
                self.end(slot, Err(Error::Cancelled), out);
            } else if let Ok(Next::More(step, _) | Next::Send(step, _)) = next {
                self.pending.wait(slot, step);
            }
            return;
        }
        match next {
            Ok(Next::Send(step, messages)) => {
                self.pending.wait(slot, step);
                self.send_all(slot, (0..).zip(messages).collect());
            }
            Ok(Next::More(step, messages)) => {
                self.pending.wait(slot, step);
                self.send_all(slot, messages);
            }
            Ok(Next::Again) => unreachable!("it went on, or was cancelled"),
            Ok(Next::Pause(until)) => {
                self.pending.wait(slot, Step::Paused(until));
            }
            Ok(Next::Behind) => {
                self.pending.wait(slot, Step::Behind);
            }
            Ok(Next::Reply(Reply::Created(node, open, stat))) => {
                let user = it.user;
                self.end(slot, Ok(Reply::Created(node, open, stat)), out);
                // Before another client can remove its name.
                self.recovery(Target::BoundFid(node.local(), user), Waiter::Nobody, out);
            }
            Ok(Next::Reply(reply)) => self.end(slot, Ok(reply), out),
            Err(error) => self.end(slot, Err(error), out),
        }
    }

    fn send_all(&mut self, slot: usize, messages: Vec<(u32, Message)>) {
        assert!(!self.pending[slot].cancelled, "nothing is begun for who is gone");
        for (part, message) in messages {
            let it = &mut self.pending[slot];
            let truncates = matches!(&it.ask, Ask::Open { access, .. } if access.truncate);
            it.changed |= changes(message.code()) || truncates;
            it.outstanding += 1;
            let party = Party::Requester(it.request.requester());
            self.calls.begin(party, Owner::Pending(slot, part), message);
        }
    }

    /// Replies, and releases everything that the pending request holds.
    pub(super) fn end(&mut self, slot: usize, result: Result<Reply, Error>, out: &mut Vec<Output>) {
        let mut it = self.pending.remove(slot);
        self.inodes.done(it.user);
        // A flushed message that would have freed the fid may not have been processed.
        it.removing.into_iter().for_each(|fid| self.clunk(fid));
        for (fid, bound) in &it.fids {
            if *bound {
                self.clunk(*fid);
            } else {
                self.calls.free_fid(*fid);
            }
        }
        if let Some(cursor) = &it.cursor {
            self.unpin_inode(cursor.at);
        }
        if matches!(result, Err(Error::Exists)) {
            // No request is refused so after it has changed something.
            for (inode, number) in &it.changing {
                self.inodes.writes(*inode).refuse(*number);
            }
        }
        self.end_changes(mem::take(&mut it.changing));
        it.pins().for_each(|pin| self.unpin(pin));
        self.changes.leave(it.ticket);
        let result = result.map(|reply| self.with_own_root(reply));
        out.push(Output::Reply(it.request, result));
    }

    pub(super) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.cancel_waiting(id, out) {
            return;
        }
        let Some(slot) = self.pending.of(id) else { return };
        if !self.pending[slot].cancelled {
            self.pending[slot].cancelled = true;
            let unsent = self.calls.flush(slot);
            let it = &mut self.pending[slot];
            assert!(unsent <= it.outstanding, "queued requests have no reply yet");
            it.outstanding -= unsent;
        }
        if self.pending[slot].outstanding == 0 {
            self.end(slot, Err(Error::Cancelled), out);
        }
    }

    /// Continues some of the requests that wait for the link; [`Remote::tick`] does so until none
    /// is left.
    pub(super) fn resume_queued(&mut self, out: &mut Vec<Output>) {
        for slot in self.pending.queued(REQUESTS_MAX) {
            if self.pending.get(slot).is_some_and(|it| matches!(it.step, Step::Queued)) {
                self.advance(slot, out);
            }
        }
    }

    /// Handles the loss of the connection: requests that may have changed something fail, the
    /// others wait for the next connection.
    pub(super) fn requeue(&mut self, out: &mut Vec<Output>) {
        for slot in self.pending.numbers() {
            self.pending.wait(slot, Step::Queued);
            let it = &mut self.pending[slot];
            it.fids.clear();
            (it.removing, it.second, it.checked) = (None, false, false);
            it.attempts += u8::from(it.outstanding > 0);
            it.outstanding = 0;
            let cursor = it.cursor.take();
            let over = match it {
                it if it.cancelled => Some(Error::Cancelled),
                it if it.changed || it.attempts >= ATTEMPTS_MAX => Some(Error::Disconnected),
                _ => None,
            };
            if let Some(cursor) = cursor {
                self.unpin_inode(cursor.at);
            }
            if let Some(error) = over {
                self.end(slot, Err(error), out);
            }
        }
    }

    /// Handles expired timeouts and pauses.
    pub(super) fn expire(&mut self, out: &mut Vec<Output>) {
        if self.unreachable() {
            for slot in self.pending.queued(REQUESTS_MAX) {
                self.end(slot, Err(Error::Disconnected), out);
            }
        }
        while let Some(slot) = self.pending.wake(self.now) {
            self.advance(slot, out);
        }
    }
}
