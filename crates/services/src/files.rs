//! The files of a replica.
//!
//! | file | |
//! |---|---|
//! | `ops` | write operations, read answers |
//! | `value` | value after all operations done here |
//! | `stable` | value after all final operations |
//! | `status`, `status.json` | progress of this replica and its peers |
//! | `events` | a line of JSON for each operation that becomes final after the open |
//! | `peer` | messages of the other replicas |

use crate::acceptor::Read;
use crate::account::Holder;
use crate::events;
use crate::hosted::Hosted;
use crate::op_session::{self, ANSWER_RESERVED, OpSession};
use crate::opened::{Ending, Job, Opened, PEER};
use crate::reads::Reads;
use crate::{Operator, Value};
use base::{Access, Buf, Error, Instant, Name, SAYING_DEVICES, Stat, Time};
use replica::service::{Entry as Operation, Input, ReplicaId, Ticket};
use std::time::Duration;
use tree::flat::{self, ROOT, part};
use tree::{Ask, NodeId, OpenId, Output, Reply, Request, RequestId};

/// Maximum open files.
pub const OPENS_MAX: usize = 1 << 18;

/// Listeners whose reads are completed in one turn.
pub(crate) const LISTENERS: usize = 256;

/// Open files reserved for `peer`.
const PEERS_KEPT: usize = 4096;

/// File numbers.
const OPS: usize = 1;
pub(crate) const VALUE: usize = 2;
pub(crate) const STABLE: usize = 3;
pub(crate) const STATUS: usize = 4;
pub(crate) const STATUS_JSON: usize = 5;
const EVENTS: usize = 7;
const FILES: [flat::File; 7] = [
    ("ops", OPS, 0o666),
    ("value", VALUE, 0o444),
    ("stable", STABLE, 0o444),
    ("status", STATUS, 0o444),
    ("status.json", STATUS_JSON, 0o444),
    ("peer", PEER, 0o666),
    ("events", EVENTS, 0o444),
];

/// Time limit for pending answers at shutdown. Answers that depend on other replicas fail after it.
const ENDING_TIME: Duration = Duration::from_secs(1);

impl Hosted {
    /// Returns the root directory.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Returns the root's attributes.
    pub fn root_stat(&self) -> Stat {
        self.stat(ROOT)
    }

    /// Number of open files.
    pub fn opens(&self) -> usize {
        self.opens.len()
    }

    /// Bytes held by open files and by retained events.
    pub fn held(&self) -> usize {
        self.account.sum() + self.events.bytes()
    }

    /// Upper bound of [`Hosted::held`] in bytes, except for replies of the current step.
    pub fn held_max(&self) -> usize {
        self.limits.held + events::KEPT_MAX
    }

    pub(crate) fn ask(
        &mut self,
        now: Instant,
        id: RequestId,
        request: Request,
        out: &mut Vec<Output>,
    ) {
        let Request { caller, ask } = request;
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
        let answer = match ask {
            Ask::Open { node, access } => match node.local() {
                PEER => self.open_acceptor(&caller),
                OPS | EVENTS | ROOT => self.open_file(now, id, (node.local(), access), out),
                _text if access.changes() => Err(Error::Denied),
                file => return self.queue_text(Job { id, file, first: None }),
            },
            Ask::Read { open, offset, count, headroom } => {
                let read = Read { offset, count, headroom };
                self.note_use(now, open.local());
                return self.read(id, open.local(), read, out);
            }
            Ask::Write { open, offset, data } => {
                self.note_use(now, open.local());
                return self.write(now, id, open.local(), (offset, &data), out);
            }
            Ask::Fetch { path, read_max, headroom, .. } => match self.find_text(&path) {
                Ok(Some(file)) => {
                    let first = Some((read_max, headroom));
                    return self.queue_text(Job { id, file, first });
                }
                Ok(None) => self
                    .open(Some(id.requester()), Opened::Directory)
                    .map(|open| Reply::Fetched(self.stat(ROOT), Buf::default(), Some(open))),
                Err(error) => Err(error),
            },
            // Truncation before a rewrite succeeds: the file has no contents to truncate.
            Ask::SetStat { node, set, .. } if node.local() == OPS && set.size.is_some() => {
                Ok(Reply::Done)
            }
            ask if ask.changes() => Err(Error::NotPermitted),
            ask => self.look_at(ask),
        };
        out.push(Output::Reply(id, answer));
    }

    fn open_file(
        &mut self,
        now: Instant,
        id: RequestId,
        (file, access): (usize, Access),
        out: &mut Vec<Output>,
    ) -> Result<Reply, Error> {
        let holder = Some(id.requester());
        match file {
            ROOT if access.changes() => Err(Error::IsDirectory),
            ROOT => self.opened(holder, Opened::Directory, ROOT),
            EVENTS if access.changes() => Err(Error::Denied),
            EVENTS => {
                let listener = self.events.listener();
                let events = Opened::Events(listener, Reads::default());
                let opened = self.opened(holder, events, EVENTS)?;
                self.listeners += 1;
                self.step_replica(now, Input::Watch(true), out);
                Ok(opened)
            }
            _ops => {
                let op_session = Box::new(OpSession::new(self.settings.id, self.known()));
                self.opened(holder, Opened::Ops(op_session, Reads::default()), OPS)
            }
        }
    }

    fn read(&mut self, id: RequestId, open: usize, read: Read, out: &mut Vec<Output>) {
        let Read { offset, count, headroom } = read;
        let answer = match &mut self.opens[open] {
            Opened::Text(text) => Ok(Reply::Data(part(text, offset, count, headroom))),
            Opened::PeerAcceptor(_) => return self.read_acceptor(id, open, read, out),
            Opened::Ops(_, reads) | Opened::Events(_, reads) => {
                let number = reads.add(id, count, headroom);
                self.reading.insert(id, (open, number));
                if let Opened::Events(..) = &self.opens[open] {
                    self.listening.insert(open);
                }
                return self.answer_reads(open, out);
            }
            Opened::Directory => Err(Error::IsDirectory),
            Opened::Dropped => Err(Error::NoMemory),
        };
        out.push(Output::Reply(id, answer));
    }

    fn write(
        &mut self,
        now: Instant,
        id: RequestId,
        open: usize,
        (offset, data): (u64, &[u8]),
        out: &mut Vec<Output>,
    ) {
        let written = Reply::Written(u32::try_from(data.len()).expect("one message"));
        if let Opened::PeerAcceptor(_) = &self.opens[open] {
            return self.write_acceptor(id, open, (offset, data), out);
        }
        let has_room = self.make_room(now, open, data.len(), out);
        let result = match &mut self.opens[open] {
            Opened::Ops(op_session, _) if has_room => op_session.write(data).map(|()| written),
            Opened::Ops(..) | Opened::Dropped => Err(Error::NoMemory),
            Opened::Directory | Opened::Text(_) | Opened::Events(..) | Opened::PeerAcceptor(_) => {
                Err(Error::Denied)
            }
        };
        self.count(open);
        self.take_turn(open);
        out.push(Output::Reply(id, result));
    }

    fn open(&mut self, holder: Holder, opened: Opened) -> Result<OpenId, Error> {
        let most =
            if let Opened::PeerAcceptor(_) = opened { OPENS_MAX } else { OPENS_MAX - PEERS_KEPT };
        if self.opens.len() >= most {
            return Err(Error::TooManyOpen);
        }
        let open = self.opens.insert(opened);
        self.account.begin(open, holder);
        self.count(open);
        Ok(OpenId::new(self.index, open))
    }

    pub(crate) fn opened(
        &mut self,
        holder: Holder,
        opened: Opened,
        file: usize,
    ) -> Result<Reply, Error> {
        Ok(Reply::Opened(self.open(holder, opened)?, self.stat(file)))
    }

    /// Opens a text, which is a consistent snapshot.
    pub(crate) fn open_text(
        &mut self,
        now: Instant,
        id: RequestId,
        text: Vec<u8>,
        out: &mut Vec<Output>,
    ) -> Result<OpenId, Error> {
        let open = self.open(Some(id.requester()), Opened::Text(Vec::new()))?;
        if !self.make_room(now, open.local(), text.len(), out) {
            self.account.end(open.local());
            self.opens.remove(open.local());
            return Err(Error::NoMemory);
        }
        self.opens[open.local()] = Opened::Text(text);
        self.count(open.local());
        Ok(open)
    }

    /// Returns the text file at this path, or `None` for the directory.
    fn find_text(&self, path: &[Name]) -> Result<Option<usize>, Error> {
        match path {
            [] => Ok(None),
            [name] => match find(name)? {
                OPS | PEER | EVENTS => Err(Error::Unsupported),
                file => Ok(Some(file)),
            },
            [..] => Err(Error::NotFound),
        }
    }

    /// Updates the accounted bytes of an open file.
    pub(crate) fn count(&mut self, open: usize) {
        match self.opens.get(open) {
            Some(opened) => self.account.set(open, opened.held()),
            None => self.account.end(open),
        }
    }

    /// Rejects a request of a session, with an explanation, a code and the replicas at fault.
    /// Returns whether the reply contains the explanation: false if there was no room.
    pub(crate) fn complain_to(
        &mut self,
        now: Instant,
        (open, ticket): (usize, Ticket),
        (why, reason, ids): (&str, &'static str, &[ReplicaId]),
        out: &mut Vec<Output>,
    ) -> bool {
        let line = op_session::complaint(why, reason, ids);
        let is_reserved = line.len() < ANSWER_RESERVED;
        let has_room = is_reserved || self.make_room(now, open, line.len() + 1, out);
        self.with_session(open, |op_session| {
            op_session.complain(ticket, Some(line).filter(|_| has_room))
        });
        has_room
    }

    /// Makes room for `more` bytes in a file, by evicting files of clients that hold more than its
    /// client would, and of its client those larger than the file would become, largest first.
    /// Returns whether there is room.
    pub(crate) fn make_room(
        &mut self,
        now: Instant,
        open: usize,
        more: usize,
        out: &mut Vec<Output>,
    ) -> bool {
        let (holder, bytes) = self.account.of(open);
        let own = self.account.of_client(holder) + more;
        while self.account.sum() + more > self.limits.held {
            let Some((held, client)) = self.account.greediest() else { return false };
            let (size, largest) = self.account.largest_of(client).expect("it holds something");
            let may_go = match Some(client) == holder {
                true => largest != open && size > bytes + more,
                false => held > own,
            };
            if !may_go {
                return false;
            }
            self.give_up(now, largest, out);
        }
        true
    }

    /// Evicts the contents of an open file; its pending requests fail.
    pub(crate) fn give_up(&mut self, now: Instant, open: usize, out: &mut Vec<Output>) {
        let opened = std::mem::replace(&mut self.opens[open], Opened::Dropped);
        self.end(now, open, opened, Error::NoMemory, out);
        self.count(open);
    }

    /// Completes reads of an open file with available data, or with the end of the file if no more
    /// can follow.
    pub(crate) fn answer_reads(&mut self, open: usize, out: &mut Vec<Output>) {
        let end = |ends: bool| ends.then(Vec::new);
        let (no_answers, no_events) = (self.ending == Ending::Now, self.ending != Ending::No);
        let answered = match self.opens.get_mut(open) {
            Some(Opened::Ops(op_session, reads)) => {
                reads.answer(|count| op_session.read(count).or_else(|| end(no_answers)), out)
            }
            Some(Opened::Events(listener, reads)) => {
                let events = &self.events;
                let read = |count| events.read(listener, count).or_else(|| end(no_events));
                let answered = reads.answer(read, out);
                if reads.is_empty() {
                    self.listening.remove(&open);
                }
                answered
            }
            Some(
                Opened::Directory | Opened::Text(_) | Opened::PeerAcceptor(_) | Opened::Dropped,
            )
            | None => return,
        };
        for id in answered {
            self.reading.remove(&id);
        }
        self.count(open);
        self.take_turn(open);
    }

    /// Starts the shutdown: pending reads for events end now, and those for answers after a short
    /// time.
    pub fn drain(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.ending = Ending::Until(now + ENDING_TIME);
        self.answer_all(out);
    }

    /// Ends the wait for answers when its time limit has passed.
    pub(crate) fn end_waits(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Ending::Until(at) = self.ending
            && at <= now
        {
            self.ending = Ending::Now;
            self.answer_all(out);
        }
    }

    fn answer_all(&mut self, out: &mut Vec<Output>) {
        let opens: Vec<usize> = self.opens.iter().map(|(open, _)| open).collect();
        opens.into_iter().for_each(|open| self.answer_reads(open, out));
    }

    /// Records a final operation for the listeners.
    pub(crate) fn notify_final(&mut self, entry: &Operation<Operator>, value: &Value) {
        if self.listeners > 0 {
            self.events.add(entry, value);
            self.has_events = true;
        }
    }

    /// Completes pending reads of some listeners with new events, the others in later turns.
    pub(crate) fn answer_listeners(&mut self, out: &mut Vec<Output>) {
        if self.listener.is_none() && std::mem::take(&mut self.has_events) {
            self.listener = Some(0);
        }
        let Some(first) = self.listener else { return };
        let due: Vec<usize> = self.listening.range(first..).take(LISTENERS).copied().collect();
        self.listener = due.last().filter(|_| due.len() == LISTENERS).map(|last| last + 1);
        due.into_iter().for_each(|open| self.answer_reads(open, out));
    }

    /// Returns whether listeners have events to be sent in the next turn.
    pub(crate) fn has_listeners_due(&self) -> bool {
        self.listener.is_some() || self.has_events
    }

    /// Cancels a request. Only reads, texts and queued writes of peers can be pending; the latter
    /// still complete.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.drop_text(id) {
            return out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
        let Some((open, number)) = self.reading.remove(&id) else { return };
        match &mut self.opens[open] {
            Opened::Ops(_, reads) | Opened::Events(_, reads) => {
                reads.cancel(number, out);
                if reads.is_empty() {
                    self.listening.remove(&open);
                }
            }
            Opened::PeerAcceptor(acceptor) => acceptor.cancel_read(id, out),
            Opened::Directory | Opened::Text(_) | Opened::Dropped => {}
        }
    }

    pub(crate) fn take_back(&mut self, now: Instant, open: OpenId, out: &mut Vec<Output>) {
        let opened = self.opens.remove(open.local());
        self.end(now, open.local(), opened, Error::Cancelled, out);
        self.count(open.local());
    }

    /// Ends the state of an open file before its number is reused.
    fn end(
        &mut self,
        now: Instant,
        open: usize,
        opened: Opened,
        why: Error,
        out: &mut Vec<Output>,
    ) {
        let ended = match opened {
            Opened::Ops(op_session, mut reads) => {
                op_session.turn.map(|turn| self.turns.remove(&turn));
                let requested: Vec<Ticket> = op_session.open().collect();
                for ticket in requested {
                    // Later refusals have no recipient.
                    if self.tickets.remove(&ticket).is_some() {
                        self.step_replica(now, Input::Forget(ticket), out);
                    }
                }
                reads.end(why, out)
            }
            Opened::Events(_, mut reads) => {
                self.listeners -= 1;
                self.listening.remove(&open);
                if self.listeners == 0 {
                    self.events.clear();
                    self.step_replica(now, Input::Watch(false), out);
                }
                reads.end(why, out)
            }
            Opened::PeerAcceptor(acceptor) => self.end_acceptor(open, *acceptor, why, out),
            Opened::Text(_) | Opened::Directory | Opened::Dropped => Vec::new(),
        };
        for id in ended {
            self.reading.remove(&id);
        }
    }

    fn look_at(&self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike in all flat trees")]
        match ask {
            Ask::Walk { from, names } => flat::walk(from, &names, find, |file| self.stat(file)),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::List { open, cookie, detail, .. } => match &self.opens[open.local()] {
                Opened::Directory => {
                    Ok(flat::list(&FILES, cookie, detail.has_stat(), &self.alike()))
                }
                Opened::Text(_)
                | Opened::Ops(..)
                | Opened::PeerAcceptor(_)
                | Opened::Events(..)
                | Opened::Dropped => Err(Error::NotDirectory),
            },
            other => flat::answer(&other),
        }
    }

    fn alike(&self) -> flat::Alike {
        alike(self.index, self.owner, self.date)
    }

    pub(crate) fn stat(&self, file: usize) -> Stat {
        flat::stat(&FILES, file, &self.alike())
    }
}

/// Returns the root of the tree with this number, and its attributes.
pub fn root(index: u16, owner: u32, date: Time) -> (NodeId, Stat) {
    let alike = alike(index, owner, date);
    (NodeId::new(index, ROOT), flat::stat(&FILES, ROOT, &alike))
}

fn alike(index: u16, uid: u32, date: Time) -> flat::Alike {
    flat::Alike { device: SAYING_DEVICES | u64::from(index), uid, date }
}

fn find(name: &Name) -> Result<usize, Error> {
    flat::find(&FILES, name)
}
