//! The remote tree: files of another 9P server, accessed as its client.
//!
//! Requests become sequences of messages ([pending requests](pending)) on one connection, which is
//! re-established when it is lost ([link]); many messages are in flight at once, each with a tag
//! ([calls]). A remote inode is identified by its path and by its qid ([inodes]), so that nodes and
//! open files of a lost connection can be recovered on the next one ([recovery]): they lead to the
//! same file, or are stale. Each user has fids of their own, so the server's permissions apply.
//!
//! A change without a reply before the loss of the connection fails with `Disconnected`, because
//! its effect is unknown; all other requests are sent again. Locks do not outlive their connection.
//!
//! All messages of the peer are checked: one that is no reply to an outstanding message ends the
//! connection.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each part takes its share of requests and answers, of which there are dozens; any \
              other answer is wrong alike. Steps and states are named"
)]

mod calls;
mod conditional;
mod connection;
mod inodes;
pub(crate) mod link;
mod linux;
mod list;
mod message;
pub mod news;
mod open;
mod pending;
mod plan9;
mod progress;
mod recovery;
mod server;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod transfer;
mod transport;
mod walk;
mod words;
mod writes;

pub use session::Dialect;

use crate::locks::FileKey;
use crate::request::{Ask, Id, Input, NodeId, Output, Reply, Request, RequestId};
use base::op::{Address, Done, OpId};
use base::{Automaton, Caller, Error, Instant, Kind, Stat};
use calls::Calls;
use conditional::Changes;
use connection::Connection;
use inodes::{Inodes, ROOT};
use link::Link;
use message::{Owner, Target};
use news::{LinkState, Newsfeed};
use open::Open;
use recovery::Recovery;
use server::{Outage, Server};
use slab::Slab;
use std::collections::BTreeMap;
use std::time::Duration;
use step::Step;
use table::PendingTable;
use wire::ninep::NO_UID;

/// Maximum number of nodes, open files and pending requests together.
pub const HANDLES_MAX: usize = 1 << 20;
/// Inode number of every root, whatever its server reports, so that it is known before the first
/// connection.
const ROOT_INODE: u64 = u64::MAX;
/// Maximum number of attempts of a request, on different connections.
const ATTEMPTS_MAX: u8 = 3;
/// Maximum number of requests that one turn resumes, or gives up, because of the connection.
const REQUESTS_MAX: usize = 256;
/// Smallest message size that fits a walk of sixteen long names, bytes.
const MSIZE_MIN: u32 = 4 + 4096 + wire::ninep::IO_HEADER_SIZE;

/// Configuration of a remote tree.
#[derive(Clone, Debug)]
pub struct Config {
    /// Device number of the files, different from that of every other tree.
    pub device: u64,
    /// Whether every change is refused here.
    pub read_only: bool,
    /// User name and number sent to the server for all callers, if set.
    pub user: Option<(Vec<u8>, u32)>,
    /// User number sent to the server for this server itself; [`NO_UID`], the default, for none. It
    /// is configured explicitly, because zero is a user with all rights.
    pub server_uid: u32,
    /// Maximum size of a message, bytes; the server may propose less.
    pub msize: u32,
    /// Maximum number of outstanding messages.
    pub calls_max: usize,
    /// Maximum number of nodes, open files and pending requests together, at most [`HANDLES_MAX`].
    pub handles_max: usize,
    /// Time that requests wait for a new connection after a loss.
    pub timeout: Duration,
    /// Seed of the pauses between attempts, so that they differ from those of others.
    pub seed: u64,
    /// First of the three operation numbers of this tree: another tree may use it as a part.
    pub first_op: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            device: 0,
            read_only: false,
            user: None,
            server_uid: NO_UID,
            msize: 1 << 20,
            calls_max: 256,
            handles_max: HANDLES_MAX,
            timeout: Duration::from_secs(5),
            seed: 0,
            first_op: 0,
        }
    }
}

/// Statistics for `/.upcall/`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// State of the link.
    pub link: &'static str,
    /// Number of connections established so far.
    pub connections: u64,
    /// Remote inodes known.
    pub nodes: usize,
    /// Open files.
    pub opens: usize,
    /// Fids in use.
    pub fids: usize,
    /// Messages outstanding, and messages queued.
    pub calls: (usize, usize),
    /// Pending requests by step.
    pub pending: Vec<(&'static str, usize)>,
}

/// The remote tree.
#[derive(Debug)]
pub struct Remote {
    /// Tree number in the upper bits of all ids, of nodes as of operations, for routing to this
    /// tree.
    index: u16,
    config: Config,
    /// Time of the current input.
    now: Instant,
    server: Server,
    outage: Outage,
    link: Link,
    connection: Connection,
    calls: Calls,
    inodes: Inodes,
    opens: Slab<Open>,
    pending: PendingTable,
    changes: Changes,
    recoveries: BTreeMap<Target, Recovery>,
    news: Newsfeed,
}

impl Remote {
    /// Returns a tree, with tree number `index`, of the files that the server at one of `to`
    /// exports as `aname`. It connects at the first [`Remote::tick`].
    ///
    /// # Panics
    /// If `to` is empty.
    pub fn new(index: u16, to: Vec<Address>, aname: Vec<u8>, config: Config) -> Remote {
        Remote {
            index,
            now: Instant(0),
            server: Server::new(to, aname),
            outage: Outage::new(config.timeout),
            link: Link::new(base::rng::seeded(config.seed)),
            connection: Connection::default(),
            calls: Calls::new(config.calls_max),
            inodes: Inodes::new(),
            opens: Slab::new(),
            pending: PendingTable::default(),
            changes: Changes::default(),
            recoveries: BTreeMap::new(),
            news: Newsfeed::default(),
            config,
        }
    }

    /// Returns the root, which is never released. Every walk that ends there returns this node.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Returns the root's identifying attributes: known before the first connection, and the same
    /// on every connection.
    pub fn root_stat(&self) -> Stat {
        let (kind, device, inode) = (Kind::Directory, self.config.device, ROOT_INODE);
        Stat { kind, mode: 0o755, links: 2, device, inode, ..Stat::default() }
    }

    /// Replaces the server's inode number of the root by [`ROOT_INODE`].
    fn with_own_root(&self, mut reply: Reply) -> Reply {
        let root = self.inodes.qid(ROOT);
        let own = |stat: &mut Stat| {
            if stat.inode == root.path && stat.kind == Kind::Directory {
                stat.inode = ROOT_INODE;
            }
        };
        match &mut reply {
            Reply::Walked(stats, _) => stats.iter_mut().for_each(own),
            Reply::Stat(stat)
            | Reply::Opened(_, stat)
            | Reply::Created(_, _, stat)
            | Reply::Fetched(stat, ..) => own(stat),
            Reply::Unexpected(present) => present.iter_mut().for_each(own),
            Reply::Done
            | Reply::FileHandle(_)
            | Reply::Data(_)
            | Reply::Pieces(_)
            | Reply::DataAt(_)
            | Reply::Written(_)
            | Reply::Entries(_)
            | Reply::Listings(..)
            | Reply::Contents(..)
            | Reply::Bytes(_)
            | Reply::StatFs(_)
            | Reply::Locked
            | Reply::Blocked
            | Reply::Conflict(_)
            | Reply::User(_) => {}
        }
        reply
    }

    /// Returns the identity of the file of a node or an open file.
    pub fn key(&self, id: Id) -> FileKey {
        let inode = match id {
            Id::Node(node) => node.local(),
            Id::Open(open) => self.opens[open.local()].inode,
        };
        let is_root = inode == inodes::ROOT;
        let number = if is_root { ROOT_INODE } else { self.inodes.qid(inode).path };
        (self.config.device, number)
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        let mut pending: Vec<(&'static str, usize)> = Vec::new();
        for (_, slot) in self.pending.iter() {
            let name = slot.step.name();
            match pending.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => pending.push((name, 1)),
            }
        }
        Counts {
            link: self.link.name(),
            connections: self.server.connections,
            nodes: self.inodes.len(),
            opens: self.opens.len(),
            fids: self.calls.session().fids(),
            calls: self.calls.counts(),
            pending,
        }
    }

    /// Returns the next event for the operator.
    pub fn next_link_state(&mut self) -> Option<LinkState> {
        self.news.next()
    }

    /// Performs due work: call it at the end of every turn, and when [`Automaton::deadline`] has
    /// passed. All output of the turn is sent in one operation.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.begin(now);
        self.notify_link(link::Input::Tick, out);
        self.expire(out);
        if self.link.is_up() {
            self.resume_queued(out);
        }
        self.settle(out);
        self.give_up_stuck(out);
        self.send(out);
        self.news.report(self.now);
    }

    /// Fails messages that are queued while the server does not reply.
    fn give_up_stuck(&mut self, out: &mut Vec<Output>) {
        for _ in 0..REQUESTS_MAX {
            match self.calls.give_up(self.now) {
                Some(Owner::Pending(slot, part)) => {
                    self.answered(slot, part, Err(Error::Busy), out);
                }
                Some(Owner::Recovery(target)) => self.recovered(target, Err(Error::Busy), out),
                None => return,
            }
            self.settle(out);
        }
    }

    /// Closes the connection at the end of the node; [`Remote::is_closed`] returns whether this is
    /// done.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.begin(now);
        self.notify_link(link::Input::Close, out);
        self.outage.expire(now);
        self.expire(out);
        self.settle(out);
    }

    /// Returns whether no operation is outstanding, and none will be started.
    pub fn is_closed(&self) -> bool {
        self.link.is_over()
    }

    fn begin(&mut self, now: Instant) {
        self.now = now;
        self.outage.begin(now);
    }

    /// Records a new state of the server for the operator.
    fn notify_link_state(&mut self, news: LinkState) {
        let ends = matches!(self.link.state(), link::State::Leaving { .. } | link::State::Over);
        if !ends {
            self.news.note(news);
            self.news.report(self.now);
        }
    }

    /// Returns whether there is a connection for requests.
    pub fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Returns the name of the server in events.
    pub fn name(&self) -> String {
        self.server.name()
    }

    /// Returns the dialect of the connection.
    fn dialect(&self) -> Dialect {
        self.calls.session().dialect()
    }

    /// Returns the user number sent to the server for a caller.
    fn user_of(&self, caller: &Caller) -> u32 {
        match (&self.config.user, caller) {
            (Some((_, uid)), _) => *uid,
            (None, Caller::Server) => self.config.server_uid,
            (None, Caller::User(user)) => user.uid,
        }
    }

    /// Returns the user name sent to the server for a user number.
    fn user_name(&self, user: u32) -> Vec<u8> {
        match &self.config.user {
            Some((name, _)) => name.clone(),
            None if user == NO_UID => b"none".to_vec(),
            None => user.to_string().into_bytes(),
        }
    }
}

impl Automaton for Remote {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        self.begin(now);
        match input {
            Input::Ask(id, request) => self.ask(id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            Input::Release(node) => self.unpin_inode(node.local()),
            Input::Close(open) | Input::Abandon(open) => self.unpin_open(open.local()),
            Input::Done(op, done) => self.done(op, done, out),
            Input::Rendered(ticket, _)
            | Input::Commanded(ticket, _)
            | Input::Answered(ticket, _) => {
                unreachable!("{ticket}: no file here is rendered")
            }
        }
        self.settle(out);
    }

    fn deadline(&self) -> Option<Instant> {
        let until = if self.link.is_up() { Some(self.now) } else { self.outage.until() };
        let queued = until.filter(|_| self.pending.is_any_queued());
        let waiting = queued.into_iter().chain(self.pending.paused_until());
        let unsent = (self.calls.has_unsent() && !self.connection.is_sending()).then_some(self.now);
        let stuck = self.calls.deadline();
        let news = self.news.deadline().filter(|_| !self.link.is_over());
        self.link.deadline().into_iter().chain(waiting).chain(unsent).chain(stuck).chain(news).min()
    }

    fn check(&self) {
        assert!(self.pending.len() + self.opens.len() + self.inodes.len() <= 2 * HANDLES_MAX + 64);
        self.link.check();
        self.calls.check();
        self.inodes.check();
        self.pending.check();
        self.changes.check();
        for (_, slot) in self.pending.iter() {
            let is_idle = matches!(
                slot.step,
                Step::Queued | Step::Recovering(_) | Step::Paused(_) | Step::Behind
            );
            assert_eq!(is_idle, slot.outstanding == 0, "{:?}", slot.step);
            assert!(self.link.is_up() || matches!(slot.step, Step::Queued));
        }
        for (_, open) in &self.opens {
            assert!(open.users > 0 && self.inodes.users(open.inode) > 0);
        }
        self.check_connection();
        self.check_recoveries();
    }
}

impl Remote {
    /// Asserts that the state of the connection agrees with the link.
    fn check_connection(&self) {
        let used = self.link.socket().is_some();
        self.connection.check(used);
        assert!(used || !self.calls.has_unsent(), "nobody is there to be told");
        let (_, waiting) = self.calls.counts();
        assert!(self.link.is_up() || waiting == 0 || used, "a queued request has a server");
        for (_, slot) in self.pending.iter() {
            if let Step::Recovering(target) = slot.step {
                assert!(self.recoveries.contains_key(&target), "it is being recovered");
            }
        }
    }

    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let busy = self.pending.len() + self.changes.len();
        let held = self.inodes.len() + self.opens.len() + busy;
        let refused = if self.config.read_only && request.ask.changes() {
            Some(Error::ReadOnly)
        } else if request.ask.hands_out() && held >= self.config.handles_max {
            Some(Error::TooManyOpen)
        } else if self.unreachable() {
            Some(Error::Disconnected)
        } else {
            pending::refused(&request.ask)
        };
        if let Some(error) = refused {
            return out.push(Output::Reply(id, Err(error)));
        }
        if let Ask::Walk { from, names } = &request.ask
            && names.is_empty()
        {
            self.inodes.pin(from.local());
            return out.push(Output::Reply(id, Ok(Reply::Walked(Vec::new(), Some(*from)))));
        }
        self.begin_or_wait(id, request, out);
    }

    /// Returns whether there is no connection, and requests no longer wait for one.
    fn unreachable(&self) -> bool {
        !self.link.is_up() && self.outage.is_expired(self.now)
    }

    fn pin(&mut self, id: Id) {
        match id {
            Id::Node(node) => self.inodes.pin(node.local()),
            Id::Open(open) => self.opens[open.local()].users += 1,
        }
    }

    fn unpin(&mut self, id: Id) {
        match id {
            Id::Node(node) => self.unpin_inode(node.local()),
            Id::Open(open) => self.unpin_open(open.local()),
        }
    }

    /// Clunks a fid without a waiting request.
    fn clunk(&mut self, fid: u32) {
        self.calls.clunk(fid);
    }

    fn done(&mut self, op: OpId, done: Done, out: &mut Vec<Output>) {
        match done {
            Done::Connected(connected) => {
                // All its addresses were tried.
                if connected.is_err() && self.server.is_exhausted() {
                    self.notify_link_state(LinkState::Down("connection refused"));
                }
                self.notify_link(link::Input::Connected(connected), out);
            }
            Done::Received(received) => self.received(received, out),
            Done::Sent(sent) => self.sent(sent, out),
            // The reactor completes every operation with its own variant.
            other @ (Done::Accepted(_)
            | Done::Read(_)
            | Done::Written(_)
            | Done::Blocks(_)
            | Done::Stored(_)
            | Done::Synced(_)
            | Done::Path(_)
            | Done::Envelope(_)
            | Done::Closing { .. }
            | Done::Stop
            | Done::Unresponsive(_)) => unreachable!("{other:?} for {op:?} of a remote tree"),
        }
    }
}
