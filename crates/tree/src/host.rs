//! The host tree: an existing directory, served as is.
//!
//! A node is a handle (`O_PATH`) held by the reactor, so it outlives its name, and nothing outside
//! of the root is reachable: names are resolved beneath a handle, one at a time, without following
//! links. Each request becomes one operation of the reactor, a pending request ([`pending`]); the
//! tree itself only counts the users of each handle, because a client may close a file while reads
//! of it are in flight.
//!
//! Permissions are the kernel's: every operation carries the identity of its caller.
//!
#![doc = include_str!("host/states.md")]

mod pending;
mod plan;
#[cfg(test)]
mod tests;

use crate::entry_queue::{EntryQueue, Ticket};
use crate::locks::{FileKey, Table};
use crate::request::{Ask, Id, Input, NodeId, OpenId, Output, Reply, Request, RequestId};
use base::op::{ClientKey, Done, File, Op, OpId};
use base::{Automaton, Error, Instant, Name, Stat};
use pending::Pending;
use plan::Plan;
use slab::Slab;
use std::collections::BTreeMap;

/// Maximum number of nodes and open files together; the process's limit on open files is usually
/// lower.
pub const HANDLES_MAX: usize = 1 << 20;

/// A handle with its use count.
#[derive(Clone, Debug)]
struct Handle {
    file: File,
    /// References handed out and pending requests. Never zero while it is in a table.
    users: u32,
    /// Closed by its client, but needed by pending requests. (Open files only.)
    closed: bool,
    key: FileKey,
    /// The client that it was made for.
    client: ClientKey,
}

/// The host tree.
#[derive(Debug)]
pub struct Host {
    /// Tree number in the upper bits of all ids, of nodes as of operations, for routing to this
    /// tree.
    index: u16,
    read_only: bool,
    /// Maximum number of nodes and open files together.
    handles_max: usize,
    nodes: Slab<Handle>,
    opens: Slab<Handle>,
    pending: Slab<Pending>,
    /// Slots of the pending requests.
    slots: BTreeMap<RequestId, usize>,
    /// Queues of changes of entries: a conditional change takes two steps on the host.
    changes: EntryQueue<Waiting>,
    /// Tickets of the queued requests.
    waiting: BTreeMap<RequestId, Ticket>,
    locks: Table<OpenId, RequestId>,
    root_stat: Stat,
    /// The client of the present request.
    client: ClientKey,
}

/// A change queued behind another one of the same entry.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
    pins: [Option<Id>; 2],
    client: ClientKey,
}

/// Statistics for `/.upcall/`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Nodes held by clients.
    pub nodes: usize,
    /// Open files.
    pub opens: usize,
    /// Ranges locked, and requests waiting for a lock.
    pub locks: (usize, usize),
    /// Pending requests by awaited completion.
    pub pending: Vec<(&'static str, usize)>,
}

impl Host {
    /// Returns the tree below `root`, a handle of the reactor's, with tree number `index`.
    pub fn new(index: u16, root: File, stat: &Stat, read_only: bool) -> Host {
        let mut nodes = Slab::new();
        let key = (stat.device, stat.inode);
        let client = ClientKey::NOBODY;
        nodes.insert(Handle { file: root, users: 1, closed: false, key, client });
        let (opens, pending) = (Slab::new(), Slab::new());
        let (locks, handles_max) = (Table::default(), HANDLES_MAX);
        let (slots, changes, waiting) = (BTreeMap::new(), EntryQueue::default(), BTreeMap::new());
        Host {
            index,
            read_only,
            handles_max,
            nodes,
            opens,
            pending,
            slots,
            changes,
            waiting,
            locks,
            root_stat: stat.clone(),
            client,
        }
    }

    /// Sets the maximum number of nodes and open files, at most [`HANDLES_MAX`]. Handles beyond it
    /// stay open.
    pub fn set_handles_max(&mut self, most: usize) {
        self.handles_max = most.min(HANDLES_MAX);
    }

    /// Sets the client that the next request, its locks and handles are accounted to.
    pub fn set_client(&mut self, client: ClientKey) {
        self.client = client;
    }

    /// Returns the root, which is never released. Every walk that ends there returns this node.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, 0)
    }

    /// Returns the attributes that the root had at the start.
    pub fn root_stat(&self) -> Stat {
        self.root_stat.clone()
    }

    /// Returns the reactor's handle of the root.
    pub fn root_file(&self) -> File {
        self.nodes[0].file
    }

    /// Returns the number of nodes and open files; each is a file descriptor of the process.
    pub fn handles(&self) -> usize {
        self.nodes.len() - 1 + self.opens.len()
    }

    /// Returns the identity of the file of a node or an open file.
    pub fn key(&self, id: Id) -> FileKey {
        self.handle(id).key
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        let mut pending: Vec<(&'static str, usize)> = Vec::new();
        for (_, it) in &self.pending {
            let name = it.awaits.name();
            match pending.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => pending.push((name, 1)),
            }
        }
        if self.changes.waiting() > 0 {
            pending.push(("turn", self.changes.waiting()));
        }
        let (nodes, opens) = (self.nodes.len() - 1, self.opens.len());
        Counts { nodes, opens, locks: self.locks.counts(), pending }
    }
}

impl Automaton for Host {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            Input::Release(node) => self.unpin(Id::Node(node), out),
            Input::Close(open) | Input::Abandon(open) => self.close(open, out),
            Input::Done(op, done) => self.done(op, done, out),
            Input::Rendered(ticket, _)
            | Input::Commanded(ticket, _)
            | Input::Answered(ticket, _) => {
                unreachable!("{ticket}: no file here is rendered")
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.locks.is_due().then_some(Instant(0))
    }

    fn check(&self) {
        assert!(self.nodes.len() + self.opens.len() <= HANDLES_MAX + 1);
        assert!(self.nodes[0].users > 0, "the root is never released");
        for (_, handle) in self.nodes.iter().chain(&self.opens) {
            assert!(handle.users > 0, "a handle without users is closed at once");
        }
        self.locks.check();
        self.changes.check();
        assert_eq!(self.changes.waiting(), self.waiting.len());
        assert_eq!(self.slots.len(), self.pending.len(), "every request has one slot");
        for (slot, pending) in &self.pending {
            assert_eq!(self.slots.get(&pending.request), Some(&slot));
            pending.pins().for_each(|pin| assert!(self.handle(pin).users > 0));
        }
        let waiting = self.changes.iter().flat_map(|waiting| waiting.pins);
        let pending = self.pending.iter().flat_map(|(_, pending)| pending.pins);
        let pins: Vec<Id> = waiting.chain(pending).flatten().collect();
        for (slot, handle) in &self.opens {
            let id = Id::Open(OpenId::new(self.index, slot));
            let held = pins.iter().filter(|pin| **pin == id).count();
            let client = usize::from(!handle.closed);
            assert_eq!(handle.users as usize, held + client, "each use is somebody's");
        }
    }
}

impl Host {
    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        if self.read_only && request.ask.changes() {
            return out.push(Output::Reply(id, Err(Error::ReadOnly)));
        }
        let busy = self.pending.len() + self.waiting.len();
        let held = self.nodes.len() + self.opens.len() + busy;
        if request.ask.hands_out() && held >= self.handles_max {
            return out.push(Output::Reply(id, Err(Error::TooManyOpen)));
        }
        match self.join(&request.ask) {
            Some((ticket, false)) => {
                let pins = request.ask.ids();
                pins.iter().flatten().for_each(|pin| self.handle_mut(*pin).users += 1);
                self.waiting.insert(id, ticket);
                let client = self.client;
                self.changes.wait(ticket, Waiting { id, request, pins, client });
            }
            Some((ticket, true)) => self.run(id, request, Some(ticket), out),
            None => self.run(id, request, None, out),
        }
    }

    /// Queues a request for the entries that it changes by name; returns its ticket and whether it
    /// may run.
    fn join(&mut self, ask: &Ask) -> Option<(Ticket, bool)> {
        let entries = ask.entries();
        entries.iter().flatten().next()?;
        let key = |(dir, name): (NodeId, &Name)| (self.handle(Id::Node(dir)).key, name.clone());
        let keys = entries.map(|entry| entry.map(key));
        Some(self.changes.join(keys))
    }

    /// Replies to a request, or starts its operation.
    fn run(
        &mut self,
        id: RequestId,
        request: Request,
        ticket: Option<Ticket>,
        out: &mut Vec<Output>,
    ) {
        let is_lock = matches!(request.ask, Ask::Lock { .. });
        let op = self.op_id(self.pending.vacant_key());
        match self.plan(id, request, op) {
            Plan::Answer(reply) => {
                out.push(Output::Reply(id, reply));
                self.leave(ticket, out);
            }
            Plan::Wait => {}
            Plan::Run { pins, awaits, op } => {
                pins.iter().flatten().for_each(|pin| self.handle_mut(*pin).users += 1);
                let client = self.client;
                self.begin(Pending { request: id, client, awaits, pins, ticket });
                out.push(Output::Do(op));
            }
        }
        if is_lock {
            self.grant(out);
        }
    }

    /// Registers a request whose operation is about to start.
    fn begin(&mut self, pending: Pending) {
        let id = pending.request;
        let slot = self.pending.insert(pending);
        let known = self.slots.insert(id, slot);
        assert!(known.is_none(), "{id:?} is in flight already");
    }

    /// Ends or drops a change and runs the next ones of its entries.
    fn leave(&mut self, ticket: Option<Ticket>, out: &mut Vec<Output>) {
        let mut free: Vec<Ticket> = ticket.into_iter().collect();
        while let Some(ticket) = free.pop() {
            for (next, Waiting { id, request, pins, client }) in self.changes.leave(ticket) {
                self.waiting.remove(&id);
                let op = self.op_id(self.pending.vacant_key());
                match self.plan(id, request, op) {
                    Plan::Answer(reply) => {
                        out.push(Output::Reply(id, reply));
                        free.push(next);
                        pins.into_iter().flatten().for_each(|pin| self.unpin(pin, out));
                    }
                    Plan::Wait => unreachable!("a change of an entry is no lock"),
                    Plan::Run { awaits, op, .. } => {
                        let ticket = Some(next);
                        self.begin(Pending { request: id, client, awaits, pins, ticket });
                        out.push(Output::Do(op));
                    }
                }
            }
        }
    }

    /// Grants released locks to waiting requests, before others can take them.
    fn grant(&mut self, out: &mut Vec<Output>) {
        let granted = self.locks.advance().into_iter();
        out.extend(granted.map(|id| Output::Reply(id, Ok(Reply::Locked))));
    }

    fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.locks.cancel(id) {
            return out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
        if let Some(ticket) = self.waiting.remove(&id) {
            let waiting = self.changes.take(ticket).expect("it waits");
            out.push(Output::Reply(id, Err(Error::Cancelled)));
            waiting.pins.into_iter().flatten().for_each(|pin| self.unpin(pin, out));
            return self.leave(Some(ticket), out);
        }
        if let Some(slot) = self.slots.get(&id) {
            out.push(Output::Do(Op::Cancel { id: self.op_id(*slot) }));
        }
    }

    fn close(&mut self, open: OpenId, out: &mut Vec<Output>) {
        let file = self.handle(Id::Open(open)).key;
        assert!(!self.handle(Id::Open(open)).closed, "a file is given back once");
        let dropped = self.locks.close(file, open).into_iter();
        out.extend(dropped.map(|id| Output::Reply(id, Err(Error::Cancelled))));
        self.handle_mut(Id::Open(open)).closed = true;
        self.unpin(Id::Open(open), out);
        self.grant(out);
    }

    /// Returns the request that an outstanding operation serves.
    pub fn request_of(&self, op: OpId) -> RequestId {
        self.pending[NodeId(op.0).local()].request
    }

    fn done(&mut self, op: OpId, done: Done, out: &mut Vec<Output>) {
        let pending = self.pending.remove(NodeId(op.0).local());
        let slot = self.slots.remove(&pending.request);
        assert_eq!(slot, Some(NodeId(op.0).local()), "a request is answered once");
        let reply = pending::finish(self, &pending, done, out);
        out.push(Output::Reply(pending.request, reply));
        pending.pins().for_each(|pin| self.unpin(pin, out));
        self.leave(pending.ticket, out);
    }

    /// Drops one use of a handle; closes the handle after the last.
    fn unpin(&mut self, id: Id, out: &mut Vec<Output>) {
        let handle = self.handle_mut(id);
        assert!(handle.users > 0, "a use is given back once");
        handle.users -= 1;
        if handle.users == 0 {
            let (file, client) = (handle.file, handle.client);
            out.push(Output::Do(Op::CloseFile { file, client }));
            match id {
                Id::Node(node) => self.nodes.remove(node.local()),
                Id::Open(open) => self.opens.remove(open.local()),
            };
        }
    }

    /// Grants released locks: call it at the end of every turn, and when [`Automaton::deadline`]
    /// has passed.
    pub fn tick(&mut self, out: &mut Vec<Output>) {
        self.grant(out);
    }

    fn handle(&self, id: Id) -> &Handle {
        match id {
            Id::Node(node) => &self.nodes[node.local()],
            Id::Open(open) => &self.opens[open.local()],
        }
    }

    fn handle_mut(&mut self, id: Id) -> &mut Handle {
        match id {
            Id::Node(node) => &mut self.nodes[node.local()],
            Id::Open(open) => &mut self.opens[open.local()],
        }
    }

    fn file(&self, node: NodeId) -> File {
        self.handle(Id::Node(node)).file
    }

    fn open_file(&self, open: OpenId) -> File {
        let handle = self.handle(Id::Open(open));
        assert!(!handle.closed, "a closed file is not used again");
        handle.file
    }

    fn op_id(&self, slot: usize) -> OpId {
        OpId(NodeId::new(self.index, slot).0)
    }

    /// Returns the node at the end of a walk; always the same one for the root.
    fn arrive(
        &mut self,
        client: ClientKey,
        file: File,
        stat: &Stat,
        out: &mut Vec<Output>,
    ) -> NodeId {
        if (stat.device, stat.inode) != self.nodes[0].key {
            return self.add_node(client, file, stat);
        }
        out.push(Output::Do(Op::CloseFile { file, client }));
        self.nodes[0].users += 1;
        self.root()
    }

    fn add_node(&mut self, client: ClientKey, file: File, stat: &Stat) -> NodeId {
        let handle = new_handle(client, file, stat);
        NodeId::new(self.index, self.nodes.insert(handle))
    }

    fn add_open(&mut self, client: ClientKey, file: File, stat: &Stat) -> OpenId {
        let handle = new_handle(client, file, stat);
        OpenId::new(self.index, self.opens.insert(handle))
    }
}

fn new_handle(client: ClientKey, file: File, stat: &Stat) -> Handle {
    let key = (stat.device, stat.inode);
    Handle { file, users: 1, closed: false, key, client }
}
