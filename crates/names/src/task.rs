//! Requests that take more than one request to a tree.

use crate::change::{Change, NamespaceChange, Step as ChangeStep, Top};
use crate::entry::{Entry, Step as EntryStep};
use crate::fetch::{Fetch, Released, Step as FetchStep};
use crate::flush::{Flush, Step as FlushStep};
use crate::list::{ENTRIES_MAX, Step as ListStep, Union};
use crate::table::{MountPoint, Position};
use crate::walk::{Step as WalkStep, Walk};
use crate::{NAMES, Names, OpenUnion, Output, Waiting};
use base::{Caller, Error, Name, TAG_SIZE};
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{Ask, Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};

/// A request in progress.
#[derive(Debug)]
pub(crate) enum Task {
    /// A walk.
    Walk(Box<Walk>),
    /// A request about entries of unions.
    Entry(Box<Entry>),
    /// The creation of a file in a directory reached through mount points.
    Create(Position),
    /// A fetch by path.
    Fetch(Box<Fetch>),
    /// The open of a union: for a client that knows the directory, or as the end of a fetch.
    Open(Box<Union>, Opening),
    /// A list of the open union in this slot.
    List(usize),
    /// A flush of an open union.
    Flush(Box<Flush>),
    /// The identity of a file of a mounted tree, which gets this tag.
    FileHandle([u8; TAG_SIZE]),
    /// A list of entries of a tree with their identities, which get this tag, or are left out.
    Handles(u16, Option<[u8; TAG_SIZE]>),
    /// A change of the namespace.
    Change(Box<Change>),
    /// A cancelled change: the node found by its last walk is to be released.
    GivenUp,
}

/// Purpose of the open of a union.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    Open,
    /// For a fetch, whose reply has this headroom, bytes.
    Fetch(u32),
}

impl Task {
    pub(crate) fn walk(caller: Caller, position: Position, names: Vec<Name>) -> Task {
        Task::Walk(Box::new(Walk::new(caller, position, names)))
    }

    pub(crate) fn entry(request: Request, subjects: Vec<(Position, Name)>) -> Task {
        Task::Entry(Box::new(Entry::new(request, subjects)))
    }

    pub(crate) fn fetch(
        caller: Caller,
        root: Position,
        path: Vec<Name>,
        read_max: u32,
        headroom: u32,
    ) -> Task {
        Task::Fetch(Box::new(Fetch::new(caller, root, path, read_max, headroom)))
    }

    pub(crate) fn open(caller: Caller, position: &Position) -> Task {
        let point = Arc::clone(position.union().expect("it is a union"));
        Task::Open(Box::new(Union::new(point, caller)), Opening::Open)
    }

    pub(crate) fn flush(caller: Caller, point: Arc<MountPoint>, data_only: bool) -> Task {
        Task::Flush(Box::new(Flush::new(point, caller, data_only)))
    }

    pub(crate) fn change(root: Position, top: Top, requested: NamespaceChange) -> Task {
        Task::Change(Box::new(Change::new(root, top, requested)))
    }

    pub(crate) fn check(&self) {
        if let Task::Walk(walk) = self {
            walk.check();
        }
    }

    /// Returns the names of the request and of its state for `/.upcall/`.
    pub(crate) fn name(&self) -> (&'static str, &'static str) {
        match self {
            Task::Walk(walk) => ("walk", walk.name()),
            Task::Entry(entry) => ("entry", entry.name()),
            Task::Create(_) => ("create", "asked"),
            Task::Fetch(fetch) => ("fetch", fetch.name()),
            Task::Open(union, _) => ("union", union.name()),
            Task::List(_) => ("union", "listing"),
            Task::Flush(flush) => ("flush", flush.name()),
            Task::FileHandle(_) => ("file handle", "asked"),
            Task::Handles(..) => ("file handles", "asked"),
            Task::Change(change) => ("change", change.name()),
            Task::GivenUp => ("change", "given up"),
        }
    }
}

impl Names {
    /// Passes a reply to a task and sends its next request; `None` at its start.
    pub(crate) fn go_on(
        &mut self,
        id: RequestId,
        task: Task,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        match task {
            Task::Walk(walk) => self.walk(id, walk, reply, out),
            Task::Entry(entry) => self.entry(id, entry, reply, out),
            Task::Create(position) => {
                let reply = reply.expect("it was requested");
                let reply = reply.map(|reply| self.made(reply, &position, None));
                out.push(Output::Reply(id, reply));
            }
            Task::Fetch(fetch) => self.fetch(id, fetch, reply, out),
            Task::Open(union, opening) => self.open(id, union, opening, reply, out),
            Task::List(slot) => self.listed(id, slot, reply, out),
            Task::Flush(flush) => self.flush(id, flush, reply, out),
            Task::FileHandle(tag) => {
                let reply = reply.expect("it was requested").map(|reply| match reply {
                    Reply::FileHandle(handle) => Reply::FileHandle(handle.with_tag(tag)),
                    other => unreachable!("{other:?} is no file handle"),
                });
                out.push(Output::Reply(id, reply));
            }
            Task::Handles(tree, tag) => {
                let reply = reply.expect("it was requested");
                let reply = reply.map(|reply| self.tag_entries(tree, tag, reply));
                out.push(Output::Reply(id, reply));
            }
            Task::Change(change) => self.change(id, change, reply, out),
            Task::GivenUp => {
                if let Some(Ok(Reply::Walked(_, node))) = reply {
                    self.give_back(node.into_iter().collect(), out);
                }
            }
        }
    }

    fn walk(
        &mut self,
        id: RequestId,
        mut walk: Box<Walk>,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let mut gone = Vec::new();
        if let Some(reply) = reply {
            walk.arrive(reply, self.map(), &mut gone);
        }
        self.give_back(gone, out);
        match walk.next(self.map()) {
            WalkStep::Ask(..) if self.cancelled.contains(&id) => {
                self.give_back(walk.abandon(), out);
                out.push(Output::Reply(id, Err(Error::Cancelled)));
            }
            WalkStep::Ask(from, names) => {
                let caller = walk.caller.clone();
                self.tasks.insert(id, Task::Walk(walk));
                self.send_request(from.tree(), id, caller, Ask::Walk { from, names }, out);
            }
            WalkStep::End(Ok((stats, position))) => {
                let node = position.map(|position| self.known_as(position));
                out.push(Output::Reply(id, Ok(Reply::Walked(stats, node))));
            }
            WalkStep::End(Err(error)) => out.push(Output::Reply(id, Err(error))),
        }
    }

    fn entry(
        &mut self,
        id: RequestId,
        mut entry: Box<Entry>,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let mut gone = Vec::new();
        let answer = reply.and_then(|reply| entry.arrive(reply, &self.table, &mut gone));
        let step = match answer {
            Some(reply) => {
                let (position, member) = (entry.position().clone(), entry.member());
                EntryStep::End(self.made(reply, &position, member))
            }
            None => entry.next(),
        };
        self.give_back(gone, out);
        let goes_on = !self.cancelled.contains(&id);
        let caller = entry.request.caller.clone();
        let answer = match step {
            EntryStep::Look(from, name) if goes_on => {
                self.tasks.insert(id, Task::Entry(entry));
                let ask = Ask::Walk { from, names: vec![name] };
                return self.send_request(from.tree(), id, caller, ask, out);
            }
            EntryStep::Ask(dirs) if goes_on => {
                let mut ask = entry.request.ask.clone();
                ask.set_dirs(&dirs);
                let [one, two] = ask.ids().map(|one| one.map(tree::Id::tree));
                if two.is_none() || one == two {
                    self.tasks.insert(id, Task::Entry(entry));
                    return self.send_request(dirs[0].tree(), id, caller, ask, out);
                }
                Err(Error::CrossDevice)
            }
            EntryStep::Look(..) | EntryStep::Ask(_) => Err(Error::Cancelled),
            EntryStep::Fail(error) => Err(error),
            EntryStep::End(reply) => Ok(reply),
        };
        self.let_go_of(&entry.nodes, out);
        out.push(Output::Reply(id, answer));
    }

    /// Converts a reply for the client: a new file has the mount stack of its directory, in a union
    /// through the member in which it was created.
    fn made(&mut self, reply: Reply, dir: &Position, member: Option<usize>) -> Reply {
        match reply {
            Reply::Created(node, open, stat) => {
                let stack = match member {
                    Some(member) => dir.stack.by_member(member),
                    None => dir.stack.clone(),
                };
                let position = Position { node, stack, at_point: false };
                Reply::Created(self.known_as(position), open, stat)
            }
            other => other,
        }
    }

    fn fetch(
        &mut self,
        id: RequestId,
        mut fetch: Box<Fetch>,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let mut gone = Released::default();
        let step = match reply {
            Some(reply) => fetch.arrive(reply, self.map(), &mut gone),
            None => fetch.begin(self.map(), &mut gone),
        };
        match step {
            FetchStep::Ask(..) | FetchStep::OpenUnion(_) if self.cancelled.contains(&id) => {
                fetch.abandon(&mut gone);
                out.push(Output::Reply(id, Err(Error::Cancelled)));
            }
            FetchStep::Ask(tree, ask) => {
                let caller = fetch.caller.clone();
                self.tasks.insert(id, Task::Fetch(fetch));
                self.send_request(tree, id, caller, ask, out);
            }
            FetchStep::OpenUnion(position) => {
                let point = Arc::clone(position.union().expect("it is a union"));
                let union = Box::new(Union::new(point, fetch.caller.clone()));
                let opening = Opening::Fetch(fetch.headroom());
                self.go_on(id, Task::Open(union, opening), None, out);
            }
            FetchStep::End(reply) => out.push(Output::Reply(id, reply)),
        }
        self.give_back(gone.nodes, out);
        if let Some(open) = gone.open {
            out.push(Output::Tell(open.tree(), TreeInput::Close(open)));
        }
    }

    fn open(
        &mut self,
        id: RequestId,
        mut union: Box<Union>,
        opening: Opening,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        match reply.and_then(|reply| union.opened(reply)) {
            Some(Ok(stat)) => {
                let opened = OpenUnion { union: *union, waiting: BTreeMap::new() };
                let open = OpenId::new(NAMES, self.unions.insert(opened));
                let reply = match opening {
                    Opening::Open => Reply::Opened(open, stat),
                    Opening::Fetch(headroom) => {
                        let data = base::Buf::with_room(headroom as usize, 0);
                        Reply::Fetched(stat, data, Some(open))
                    }
                };
                out.push(Output::Reply(id, Ok(reply)));
            }
            Some(Err(error)) => out.push(Output::Reply(id, Err(error))),
            None if self.cancelled.contains(&id) => {
                out.push(Output::Reply(id, Err(Error::Cancelled)));
            }
            None => {
                let ListStep::Ask(node, ask) = union.next() else {
                    unreachable!("a member is to be opened");
                };
                let caller = union.caller();
                self.tasks.insert(id, Task::Open(union, opening));
                self.send_request(node.tree(), id, caller, ask, out);
            }
        }
    }

    fn flush(
        &mut self,
        id: RequestId,
        mut flush: Box<Flush>,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let is_cancelled = self.cancelled.contains(&id);
        let flushed = reply.and_then(|reply| flush.arrive(reply));
        let gone = flushed.or_else(|| flush.take_open().filter(|_| is_cancelled));
        out.extend(gone.map(|open| Output::Tell(open.tree(), TreeInput::Close(open))));
        let answer = match is_cancelled {
            true => Err(Error::Cancelled),
            false => match flush.next() {
                FlushStep::Ask(node, ask) => {
                    let caller = flush.caller.clone();
                    self.tasks.insert(id, Task::Flush(flush));
                    return self.send_request(node.tree(), id, caller, ask, out);
                }
                FlushStep::End(answer) => answer.map(|()| Reply::Done),
            },
        };
        drop(flush);
        out.push(Output::Reply(id, answer));
        self.sweep(out);
    }

    /// Starts a list of an open union, or queues it.
    pub(crate) fn list(&mut self, open: OpenId, waiting: Waiting, out: &mut Vec<Output>) {
        let slot = open.local();
        let number = self.arrivals;
        self.arrivals += 1;
        let before = self.queued.insert(waiting.id, (slot, number));
        assert!(before.is_none(), "a request waits once");
        let OpenUnion { union, waiting: queue } = &mut self.unions[slot];
        queue.insert(number, waiting);
        if union.is_idle() {
            self.next_list(slot, out);
        }
    }

    /// Starts the first queued list that can be started.
    fn next_list(&mut self, slot: usize, out: &mut Vec<Output>) {
        while let Some((_, next)) = self.unions[slot].waiting.pop_first() {
            let known = self.queued.remove(&next.id);
            assert!(known.is_some(), "a waiting task is found by its request");
            let begun = match self.entries {
                entries if entries >= ENTRIES_MAX => Err(Error::NoMemory),
                _room => self.begin_list(slot, next),
            };
            match begun {
                Ok(()) => return self.list_on(next.id, slot, out),
                Err(error) => out.push(Output::Reply(next.id, Err(error))),
            }
        }
        if self.unions[slot].union.closed {
            self.forget_union(slot, out);
        }
    }

    fn begin_list(&mut self, slot: usize, next: Waiting) -> Result<(), Error> {
        let union = &mut self.unions[slot].union;
        let before = union.entries();
        let begun = union.list(next.cookie, next.bytes_max, next.detail);
        assert!(union.entries() <= before, "a list begins with no more than was remembered");
        self.entries -= before - union.entries();
        begun
    }

    fn listed(
        &mut self,
        id: RequestId,
        slot: usize,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let union = &mut self.unions[slot].union;
        let before = union.entries();
        let answer = union.arrive(reply.expect("it was requested"));
        assert!(before <= union.entries(), "an answer brings entries");
        self.entries += union.entries() - before;
        match answer {
            Some(answer) => self.end_list(id, slot, answer, out),
            None if self.cancelled.contains(&id) => {
                union.abandon();
                self.end_list(id, slot, Err(Error::Cancelled), out);
            }
            None => self.list_on(id, slot, out),
        }
    }

    fn list_on(&mut self, id: RequestId, slot: usize, out: &mut Vec<Output>) {
        let union = &mut self.unions[slot].union;
        match union.next() {
            ListStep::Ask(node, ask) => {
                if let Ask::Open { .. } = ask
                    && let Some(open) = union.take_open()
                {
                    out.push(Output::Tell(open.tree(), TreeInput::Close(open)));
                }
                let caller = union.caller();
                self.tasks.insert(id, Task::List(slot));
                self.send_request(node.tree(), id, caller, ask, out);
            }
            ListStep::End(answer) => self.end_list(id, slot, answer, out),
        }
    }

    /// Replies to a list and starts the next queued one.
    fn end_list(
        &mut self,
        id: RequestId,
        slot: usize,
        answer: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        out.push(Output::Reply(id, answer));
        self.next_list(slot, out);
    }

    pub(crate) fn close(&mut self, open: OpenId, out: &mut Vec<Output>) {
        if open.tree() != NAMES {
            return out.push(Output::Tell(open.tree(), TreeInput::Close(open)));
        }
        let union = &mut self.unions[open.local()].union;
        union.closed = true;
        if union.is_idle() {
            self.forget_union(open.local(), out);
        }
    }

    fn forget_union(&mut self, slot: usize, out: &mut Vec<Output>) {
        let mut gone = self.unions.remove(slot);
        self.entries -= gone.union.entries();
        if let Some(open) = gone.union.take_open() {
            out.push(Output::Tell(open.tree(), TreeInput::Close(open)));
        }
        drop(gone);
        self.sweep(out);
    }

    fn change(
        &mut self,
        id: RequestId,
        mut change: Box<Change>,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let mut gone = Vec::new();
        if let Some(reply) = reply {
            change.arrive(reply, self.map(), &mut gone);
        }
        match change.next(&mut self.table, &self.hidden, &mut gone) {
            ChangeStep::Ask(from, names) => {
                self.tasks.insert(id, Task::Change(change));
                self.send_request(from.tree(), id, Caller::Server, Ask::Walk { from, names }, out);
            }
            ChangeStep::End(end) => {
                drop(change);
                out.push(Output::Changed(id, end));
                self.sweep(out);
            }
        }
        self.give_back(gone, out);
    }

    /// Ends a change that waits for a tree, whose reply may take any time.
    pub(crate) fn give_up(&mut self, id: RequestId, change: Change, out: &mut Vec<Output>) {
        let mut gone = Vec::new();
        change.abandon(&mut gone);
        self.tasks.insert(id, Task::GivenUp);
        out.push(Output::Changed(id, Err(Error::Cancelled)));
        self.sweep(out);
        self.give_back(gone, out);
    }

    fn give_back(&mut self, gone: Vec<NodeId>, out: &mut Vec<Output>) {
        out.extend(
            gone.into_iter().map(|node| Output::Tell(node.tree(), TreeInput::Release(node))),
        );
    }
}
