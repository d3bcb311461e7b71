//! The remote tree: what another 9P server serves, as a client of it.
//!
//! Requests become sequences of messages ([errands](errand)), on one connection that is made
//! again whenever it is lost ([link]); many are under way at once, each with a tag
//! ([calls]). A place is known by its path and by the server's number of it ([places]), so that
//! what was held on a connection that is lost can be found again on the next one ([seek]): it is
//! the same file, or stale. Each user has fids of their own, so the server's permissions hold.
//!
//! What changes something and was not answered before the connection was lost is answered
//! `Disconnected`, because nobody knows; everything else is asked again. Locks do not outlive
//! their connection.
//!
//! Nothing that the peer sends is believed before it is checked: a message that does not answer
//! what was asked ends the connection.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each part takes its share of requests and answers, of which there are dozens; any \
              other answer is wrong alike. Steps and states are named"
)]

mod calls;
mod conditional;
mod errand;
mod errands;
mod fids;
pub(crate) mod link;
mod linux;
mod list;
pub mod news;
mod open;
mod places;
mod plan9;
mod seek;
#[cfg(test)]
mod tests;
mod transfer;
mod transport;
mod walk;
mod words;
mod writes;

pub use link::Dialect;

use crate::entry_queue::{EntryQueue, Ticket};
use crate::request::{Ask, Id, Input, NodeId, Output, Reply, Request, RequestId};
use base::op::{Address, Done, OpId, Socket};
use base::{Automaton, Buf, Caller, Error, Instant, Kind, Stat};
use calls::{Calls, Owner};
use conditional::Waiting;
use errand::Step;
use errands::Errands;
use fids::Fids;
use link::Link;
use news::{News, Told};
use open::Open;
use places::{Places, ROOT};
use seek::{Seek, Target};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::ninep::NO_UID;

/// Most nodes, open files and errands together.
pub const HANDLES_MAX: usize = 1 << 20;
/// The number of every root, whatever its server says: nobody knows that before there is a
/// connection.
const ROOT_INODE: u64 = u64::MAX;
/// Most news that wait to be taken.
const NEWS_MAX: usize = 16;
/// How often a request is sent again on another connection.
const ATTEMPTS_MAX: u8 = 3;
/// How long messages stand in line while the server answers nothing at all. What it would take to
/// answer may be asked of itself, by way of us: then everybody would wait for ever.
const LINE_MAX: Duration = Duration::from_secs(10);
/// The smallest message size with which a walk of sixteen long names still fits.
const MSIZE_MIN: u32 = 4 + 4096 + wire::ninep::IO_HEADER_SIZE;

/// What can be chosen about a remote tree.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the files' device is called: a number that no other tree has.
    pub device: u64,
    /// Whether every change is refused here.
    pub read_only: bool,
    /// Whoever asks, the server hears this name and number.
    pub user: Option<(Vec<u8>, u32)>,
    /// The number by which the server hears of us ourselves; [`NO_UID`], the default: of nobody.
    /// Who runs the tree says it, because zero is a user who may do everything.
    pub server_uid: u32,
    /// Largest message, bytes; the server may want less.
    pub msize: u32,
    /// Most messages outstanding.
    pub calls_max: usize,
    /// Most nodes, open files and errands together, at most [`HANDLES_MAX`].
    pub handles_max: usize,
    /// How long after the connection was lost requests wait for the next one.
    pub patience: Duration,
    /// Makes the pauses between attempts differ from those of others.
    pub seed: u64,
    /// Its operations have three numbers from here on: another tree may use it as a part.
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
            patience: Duration::from_secs(5),
            seed: 0,
            first_op: 0,
        }
    }
}

/// How much of everything there is, for `/.upcall/`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// What the link is doing.
    pub link: &'static str,
    /// How often it has been up.
    pub connections: u64,
    /// Places that are known.
    pub nodes: usize,
    /// Open files.
    pub opens: usize,
    /// Numbers of fids in use.
    pub fids: usize,
    /// Messages outstanding, and messages that stand in line.
    pub calls: (usize, usize),
    /// Errands by what they wait for.
    pub errands: Vec<(&'static str, usize)>,
}

/// The tree automaton.
#[derive(Debug)]
pub struct Remote {
    /// Set in the upper bits of every id, of nodes as of operations, so that they find this tree.
    index: u16,
    /// Where the server may be: tried in turn.
    to: Vec<Address>,
    /// How often it was tried.
    tries: usize,
    aname: Vec<u8>,
    config: Config,
    /// The time of the input that is being handled.
    now: Instant,
    link: Link,
    dialect: Dialect,
    /// As agreed.
    msize: u32,
    /// Counts connections; what is of another one means nothing to the server.
    epoch: u32,
    /// Whether the link is up or was, since that was last looked at.
    was_up: bool,
    /// Requests wait for a connection until then.
    patient_until: Option<Instant>,
    /// Since when messages stand in line and nothing was answered.
    stuck_since: Option<Instant>,
    /// The socket in use.
    socket: Option<Socket>,
    is_receiving: bool,
    is_sending: bool,
    /// What has come and is no whole message yet.
    input: Buf,
    outbox: Vec<Buf>,
    /// What is wrong with the connection, found out in the middle of something.
    blame: Option<&'static str>,
    calls: Calls,
    fids: Fids,
    places: Places,
    opens: Slab<Open>,
    errands: Errands,
    /// Changes of entries, where those that wait stand, and those that are over since.
    changes: EntryQueue<Waiting>,
    waiting: BTreeMap<RequestId, Ticket>,
    left: Vec<Ticket>,
    seeks: BTreeMap<Target, Seek>,
    connections: u64,
    told: Told,
    news: VecDeque<News>,
}

impl Remote {
    /// The tree that the server at one of `to` calls `aname`, as number `index` among the node's
    /// trees. It connects at the first [`Remote::tick`].
    ///
    /// # Panics
    /// If `to` is empty.
    pub fn new(index: u16, to: Vec<Address>, aname: Vec<u8>, config: Config) -> Remote {
        assert!(!to.is_empty(), "a server is somewhere");
        Remote {
            index,
            to,
            tries: 0,
            aname,
            now: Instant(0),
            link: Link::new(base::rng::seeded(config.seed)),
            dialect: Dialect::Linux,
            msize: MSIZE_MIN,
            epoch: 0,
            was_up: false,
            patient_until: None,
            stuck_since: None,
            socket: None,
            is_receiving: false,
            is_sending: false,
            input: Buf::default(),
            outbox: Vec::new(),
            blame: None,
            calls: Calls::new(config.calls_max),
            fids: Fids::default(),
            places: Places::new(),
            opens: Slab::new(),
            errands: Errands::default(),
            changes: EntryQueue::default(),
            waiting: BTreeMap::new(),
            left: Vec::new(),
            seeks: BTreeMap::new(),
            connections: 0,
            told: Told::default(),
            news: VecDeque::new(),
            config,
        }
    }

    /// The root; never released. Every walk that ends there gives this node.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// The attributes of the root, as far as they say which file it is: known before there is a
    /// connection, and the same after the next.
    pub fn root_stat(&self) -> Stat {
        let (kind, device, inode) = (Kind::Directory, self.config.device, ROOT_INODE);
        Stat { kind, mode: 0o755, links: 2, device, inode, ..Stat::default() }
    }

    /// Whatever number the server gives its root, here it has always the same.
    fn with_own_root(&self, mut reply: Reply) -> Reply {
        let root = self.places.qid(ROOT);
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

    /// How much of everything there is.
    pub fn counts(&self) -> Counts {
        let mut errands: Vec<(&'static str, usize)> = Vec::new();
        for (_, errand) in self.errands.iter() {
            let name = errand.step.name();
            match errands.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => errands.push((name, 1)),
            }
        }
        Counts {
            link: self.link.name(),
            connections: self.connections,
            nodes: self.places.len(),
            opens: self.opens.len(),
            fids: self.fids.used(),
            calls: self.calls.counts(),
            errands,
        }
    }

    /// The next thing that the operator may want to know.
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Does what is due: to be called at the end of every turn, and when [`Automaton::deadline`]
    /// has passed. What the turn gave to say leaves in one operation.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.begin(now);
        self.tell_link(link::Input::Tick, out);
        self.expire(out);
        self.settle(out);
        self.clear_line(out);
        self.send(out);
        self.say_news();
    }

    /// Messages that have stood in line for long while nothing was answered are given up.
    fn clear_line(&mut self, out: &mut Vec<Output>) {
        let (_, waiting) = self.calls.counts();
        if waiting == 0 {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert(self.now);
        if self.now < since + LINE_MAX {
            return;
        }
        self.stuck_since = Some(self.now);
        for _ in 0..waiting {
            match self.calls.give_up_first() {
                Some(Owner::Errand(errand, part)) => {
                    self.answered(errand, part, Err(Error::Busy), out);
                }
                Some(Owner::Seek(target)) => self.sought(target, Err(Error::Busy), out),
                Some(Owner::Clunk(fid)) => unreachable!("clunk {fid} stays in line"),
                None => break,
            }
            self.settle(out);
        }
    }

    /// Hangs up, for the end of the node; [`Remote::is_closed`] tells when that is done.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.begin(now);
        self.tell_link(link::Input::Close, out);
        self.patient_until = Some(now);
        self.expire(out);
        self.settle(out);
    }

    /// Whether nothing is under way any more, and nothing will be.
    pub fn is_closed(&self) -> bool {
        self.link.is_over()
    }

    fn begin(&mut self, now: Instant) {
        self.now = now;
        // At the start the server is as good as lost just now.
        if self.patient_until.is_none() {
            self.patient_until = Some(now + self.config.patience);
        }
    }

    /// This is so from now on.
    fn tell_news(&mut self, news: News) {
        let ends = matches!(self.link.state(), link::State::Leaving { .. } | link::State::Over);
        if !ends {
            self.told.note(news);
            self.say_news();
        }
    }

    fn say_news(&mut self) {
        let Some(news) = self.told.next(self.now) else { return };
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// Whether there is a connection that requests can use.
    pub fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// What the server is called where its news are told.
    pub fn name(&self) -> String {
        let (to, aname) = (&self.to[0], String::from_utf8_lossy(&self.aname));
        format!("{to} {aname}").trim_end().to_string()
    }

    fn is_linux(&self) -> bool {
        self.dialect == Dialect::Linux
    }

    /// The number by which the server hears of a caller.
    fn user_of(&self, caller: &Caller) -> u32 {
        match (&self.config.user, caller) {
            (Some((_, uid)), _) => *uid,
            (None, Caller::Server) => self.config.server_uid,
            (None, Caller::User(user)) => user.uid,
        }
    }

    /// The name by which the server hears of them.
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
            Input::Release(node) => self.unpin_place(node.local()),
            Input::Close(open) | Input::Abandon(open) => self.unpin_open(open.local()),
            Input::Done(op, done) => self.done(op, done, out),
            Input::Rendered(ticket, _) | Input::Commanded(ticket, _) => {
                unreachable!("{ticket}: no file here is rendered")
            }
        }
        self.settle(out);
    }

    fn deadline(&self) -> Option<Instant> {
        let queued = self.patient_until.filter(|_| self.errands.is_any_queued());
        let waiting = queued.into_iter().chain(self.errands.paused_until());
        let unsent = (!self.outbox.is_empty() && !self.is_sending).then_some(self.now);
        let stuck = self.stuck_since.map(|since| since + LINE_MAX);
        let news = self.told.deadline().filter(|_| !self.link.is_over());
        self.link.deadline().into_iter().chain(waiting).chain(unsent).chain(stuck).chain(news).min()
    }

    fn check(&self) {
        assert!(self.errands.len() + self.opens.len() + self.places.len() <= 2 * HANDLES_MAX + 64);
        self.link.check();
        self.calls.check();
        self.places.check();
        self.errands.check();
        self.changes.check();
        assert!(self.left.is_empty() && self.changes.waiting() == self.waiting.len());
        assert!(self.blame.is_none() && self.news.len() <= NEWS_MAX);
        for (_, errand) in self.errands.iter() {
            let is_idle = matches!(
                errand.step,
                Step::Queued | Step::Seeking(_) | Step::Paused(_) | Step::Behind
            );
            assert_eq!(is_idle, errand.outstanding == 0, "{:?}", errand.step);
            assert!(self.link.is_up() || matches!(errand.step, Step::Queued));
        }
        for (_, open) in &self.opens {
            assert!(open.users > 0 && self.places.users(open.place) > 0);
        }
        self.check_connection();
        self.check_seeks();
    }
}

impl Remote {
    /// Asserts that what is known of the connection agrees with the link.
    fn check_connection(&self) {
        self.fids.check();
        let used = !matches!(
            self.link.state(),
            link::State::Down { .. }
                | link::State::Connecting { .. }
                | link::State::Abandoning
                | link::State::Ending
                | link::State::Over
        );
        assert_eq!(self.socket.is_some(), used, "a connection has a socket");
        assert!(used || !self.is_receiving && !self.is_sending, "who has left hears nothing");
        assert!(used || self.outbox.is_empty(), "nobody is there to be told");
        assert!(self.msize >= MSIZE_MIN, "no less is agreed");
        let (_, waiting) = self.calls.counts();
        assert!(self.link.is_up() || waiting == 0 || used, "who stands in line has a server");
        for (_, errand) in self.errands.iter() {
            if let Step::Seeking(target) = errand.step {
                assert!(self.seeks.contains_key(&target), "somebody seeks it");
            }
        }
    }

    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let busy = self.errands.len() + self.waiting.len();
        let held = self.places.len() + self.opens.len() + busy;
        let refused = if self.config.read_only && request.ask.changes() {
            Some(Error::ReadOnly)
        } else if request.ask.hands_out() && held >= self.config.handles_max {
            Some(Error::TooManyOpen)
        } else if self.unreachable() {
            Some(Error::Disconnected)
        } else {
            errand::refused(&request.ask)
        };
        if let Some(error) = refused {
            return out.push(Output::Reply(id, Err(error)));
        }
        if let Ask::Walk { from, names } = &request.ask
            && names.is_empty()
        {
            self.places.pin(from.local());
            return out.push(Output::Reply(id, Ok(Reply::Walked(Vec::new(), Some(*from)))));
        }
        self.begin_or_wait(id, request, out);
    }

    /// Whether there is no connection, and none is waited for any more.
    fn unreachable(&self) -> bool {
        !self.link.is_up() && self.patient_until.is_none_or(|until| self.now >= until)
    }

    fn pin(&mut self, id: Id) {
        match id {
            Id::Node(node) => self.places.pin(node.local()),
            Id::Open(open) => self.opens[open.local()].users += 1,
        }
    }

    fn unpin(&mut self, id: Id) {
        match id {
            Id::Node(node) => self.unpin_place(node.local()),
            Id::Open(open) => self.unpin_open(open.local()),
        }
    }

    /// Gives a fid back, which nobody waits for.
    fn clunk(&mut self, fid: u32) {
        let message = calls::Message::new(&wire::ninep::Tmessage::Clunk { fid });
        self.calls.begin(calls::Owner::Clunk(fid), message, &mut self.outbox);
    }

    fn done(&mut self, op: OpId, done: Done, out: &mut Vec<Output>) {
        match done {
            Done::Connected(connected) => {
                // All its addresses were tried.
                if connected.is_err() && self.tries.is_multiple_of(self.to.len()) {
                    self.tell_news(News::Down("nobody answers there"));
                }
                self.tell_link(link::Input::Connected(connected), out);
            }
            Done::Received(received) => self.received(received, out),
            Done::Sent(sent) => self.sent(sent, out),
            // The reactor completes every operation with its own shape.
            other @ (Done::Accepted(_)
            | Done::Read(_)
            | Done::Written(_)
            | Done::Blocks(_)
            | Done::Stored(_)
            | Done::Synced(_)
            | Done::Path(_)
            | Done::Parcel(_)
            | Done::Stop
            | Done::Unresponsive(_)) => unreachable!("{other:?} for {op:?} of a remote tree"),
        }
    }
}
