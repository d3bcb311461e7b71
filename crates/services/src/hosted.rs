//! A replica in a server: the replica's state machine with its journal, its links to peers, and its
//! files.

#[cfg(test)]
mod tests;

use crate::account::Account;
use crate::events::Events;
use crate::joining::Joining;
use crate::journal::{self, Journal, StoredReplica};
use crate::limits::Limits;
use crate::op_session::{self, OpRequest, OpSession};
use crate::opened::{Ending, Job, Opened};
use crate::peer::{self, Peer};
use crate::peer_link::PeerLink;
use crate::peer_message::PeerMessage;
use crate::proof::{CHALLENGE, Introduction};
use crate::settings::Settings;
use crate::unauthenticated::Unauthenticated;
use crate::{Data, Operator, Value};
use base::op::{Address, Done, File, OpId};
use base::{Access, Automaton, Caller, Error, Instant, Name, Time};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use replica::data::once::{self, Call};
use replica::data::{DataType as _, Once, kind};
use replica::service::{
    self, Config, Membership, Record, Refusal, Replica, ReplicaId, Ticket, Vector, Writing,
};
use replica::work::Meter;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;
use store::Store;
use tree::remote::{self, Remote};
use tree::{Ask, Id, Input, NodeId, Output, Reply, Request, RequestId};

/// Directory of the services in the tree of every server.
pub const PLACE: &str = "services";

/// Name of a replica that lacks operations of its own, in messages to the operator.
pub const OLDER_COPY: &str = "an older copy";

/// File for messages of other replicas.
const PEER: &str = "peer";

/// First operation number of peer links; each link has [`OF_PEER`] numbers.
const PEERS: u64 = 1 << 40;
const OF_PEER: u32 = 8;

/// Delay for batching gossip.
const GOSSIP: Duration = Duration::from_millis(5);

/// Read size for a join snapshot, in bytes.
const FETCH: u32 = 64 << 10;

/// Maximum queued messages to the operator.
const NEWS_MAX: usize = 16;

/// Failure message of a replica whose volume is full.
pub(crate) const FULL: &str = "the volume of this replica is full: end its server, make the \
                               volume larger with 'upcall replica grow FILE --size SIZE', and \
                               start it again";

/// Parameters of a replica from its server.
#[derive(Debug)]
pub struct Options {
    /// Wall-clock time at which the monotonic clock was zero.
    pub wall: Time,
    /// Date of the files.
    pub date: Time,
    /// Owner of the files.
    pub owner: u32,
    /// Unpredictable seed of challenges.
    pub seed: [u8; 32],
    /// Addresses of the other members.
    pub addresses: BTreeMap<ReplicaId, Vec<Address>>,
    /// Work per turn, and memory for clients.
    pub limits: Limits,
}

/// Tree automaton of a replica.
#[derive(Debug)]
pub struct Hosted {
    pub(crate) index: u16,
    pub(crate) started: Time,
    pub(crate) date: Time,
    pub(crate) owner: u32,
    pub(crate) settings: Settings,
    pub(crate) data: Data,
    pub(crate) replica: Replica<Data>,
    pub(crate) journal: Journal,
    pub(crate) links: BTreeMap<ReplicaId, PeerLink>,
    pub(crate) opens: Slab<Opened>,
    pub(crate) limits: Limits,
    /// Bytes held by open files.
    pub(crate) account: Account,
    /// Pending reads: the open file, and the read's number there.
    pub(crate) reading: BTreeMap<RequestId, (usize, u64)>,
    /// Open files `peer` without authentication.
    pub(crate) unauthenticated: Unauthenticated,
    /// Authenticated files `peer`, one for each replica.
    pub(crate) acceptors: BTreeMap<ReplicaId, usize>,
    /// Files with a join snapshot in progress.
    pub(crate) join_snapshots: BTreeSet<usize>,
    /// Work of this turn, work of the last one, and below the kind of work that is first.
    pub(crate) meter: Meter,
    pub(crate) worked: u64,
    /// Work of all turns.
    pub(crate) worked_ever: u64,
    pub(crate) kind: u32,
    /// Queued texts by turn, and the turns of their requests.
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) showing: BTreeMap<RequestId, u64>,
    /// Files `peer` with queued peer messages, by turn.
    pub(crate) writers: BTreeMap<u64, usize>,
    /// Encoding of the snapshot that compacts the journal.
    pub(crate) writing: Option<Writing<Data>>,
    random: ChaCha20Rng,
    /// Open files by the tickets of their outstanding operations.
    pub(crate) tickets: BTreeMap<Ticket, usize>,
    /// Open files with processable lines, by turn.
    pub(crate) turns: BTreeMap<u64, usize>,
    pub(crate) next_turn: u64,
    /// Final operations, the number of their listeners, and the listeners with pending reads.
    pub(crate) events: Events,
    pub(crate) listeners: usize,
    pub(crate) listening: BTreeSet<usize>,
    next: u64,
    /// Operations done in this turn, and the replica's number for their record.
    unkept: (Record<Operator>, u64),
    news: VecDeque<String>,
    /// Time of the last turn.
    pub(crate) turned: Instant,
    /// Latest time at which two or more members were unresponsive, or this replica itself was
    /// suspended.
    pub(crate) alone_since: Instant,
    /// Members unresponsive for longer than the service permits.
    pub(crate) silent: BTreeSet<ReplicaId>,
    /// Progress of joining, if it is not a member.
    pub(crate) joining: Option<Joining>,
    /// Whether an operation became final in this turn while there are listeners.
    pub(crate) has_events: bool,
    /// First open file whose reads of events are completed next, while that is done.
    pub(crate) listener: Option<usize>,
    pub(crate) ending: Ending,
    closing: bool,
}

impl Hosted {
    /// Creates tree `index` of the node for the replica stored in `store`, whose blocks are in
    /// `file`.
    pub fn new(
        index: u16,
        file: File,
        store: Store,
        kept: StoredReplica,
        options: Options,
    ) -> Hosted {
        let journal = Journal::new(index, file, store, &kept);
        let StoredReplica { settings, snapshot, records, .. } = kept;
        let data = Once(settings.kind);
        let joins = settings.joins && snapshot.is_none();
        let first = match joins {
            true => Membership::default(),
            false => Membership::first(settings.members.clone()),
        };
        let snapshot = snapshot.unwrap_or_else(|| service::Snapshot::empty(&data, first));
        let replica = Replica::recover(data, settings.me, Hosted::config(), snapshot, records);
        let Options { wall, date, owner, seed, addresses, limits } = options;
        let mut hosted = Hosted {
            index,
            started: wall,
            date,
            owner,
            settings,
            data,
            replica,
            journal,
            links: BTreeMap::new(),
            opens: Slab::new(),
            limits,
            account: Account::default(),
            reading: BTreeMap::new(),
            unauthenticated: Unauthenticated::default(),
            acceptors: BTreeMap::new(),
            join_snapshots: BTreeSet::new(),
            meter: Meter::new(limits.work),
            worked: 0,
            worked_ever: 0,
            kind: 0,
            jobs: BTreeMap::new(),
            showing: BTreeMap::new(),
            writers: BTreeMap::new(),
            writing: None,
            random: ChaCha20Rng::from_seed(seed),
            tickets: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
            events: Events::default(),
            listeners: 0,
            listening: BTreeSet::new(),
            next: 1,
            unkept: (Record::default(), 0),
            news: VecDeque::new(),
            turned: Instant(0),
            alone_since: Instant(0),
            silent: BTreeSet::new(),
            joining: joins.then_some(Joining::Asks),
            has_events: false,
            listener: None,
            ending: Ending::No,
            closing: false,
        };
        addresses.into_iter().for_each(|(id, to)| hosted.add_link(id, to));
        hosted
    }

    pub(crate) fn config() -> Config {
        Config { gossip: GOSSIP, limits: service::Limits::default() }
    }

    /// Adds a link to another replica with these addresses.
    pub(crate) fn add_link(&mut self, id: ReplicaId, to: Vec<Address>) {
        let config = remote::Config {
            server_uid: self.owner,
            seed: self.random.next_u64(),
            first_op: usize::try_from(PEERS + (u64::from(id.0) << OF_PEER)).expect("64 bits"),
            ..remote::Config::default()
        };
        let remote = Remote::new(self.index, to.clone(), Vec::new(), config);
        let place = self.settings.members.get(&self.settings.me).cloned().unwrap_or_default();
        let join_request = self.joining.is_some().then(|| peer::JoinRequest {
            peer_message: PeerMessage::Join(place).bytes(),
            room: self.journal.free(),
        });
        let link = PeerLink::new(Peer::new(join_request), remote, to);
        self.links.insert(id, link);
    }

    /// Makes closed links to members anew, once nothing is outstanding on them. A replica that
    /// joins while another one is removed is a member of the epoch after the next: its link may
    /// have been closed with the next one.
    fn renew_links(&mut self) {
        if self.joining.is_some() || self.closing {
            return;
        }
        let members = &self.replica.membership().members;
        let is_due = |id: &ReplicaId, link: &PeerLink| {
            link.is_closed && link.remote.is_closed() && members.contains_key(id)
        };
        let due = self.links.iter().filter(|(id, link)| is_due(id, link));
        let due: Vec<_> = due.map(|(id, link)| (*id, link.to.clone())).collect();
        for (id, to) in due {
            self.add_link(id, to);
        }
    }

    /// Returns the links on which an attempt may start, with its time. A joining replica tries one
    /// member at a time, and the next one when an answer takes too long.
    fn attempts(&self) -> impl Iterator<Item = (ReplicaId, Instant)> {
        let busy = self.links.values().filter_map(|link| link.peer.busy_until()).max();
        let busy = busy.filter(|_| self.joining.is_some());
        // Nor does it try any if it could not store the join snapshot.
        let keeps = match self.joining {
            Some(Joining::Keeps(_)) => true,
            Some(Joining::Asks) => self.journal.failed().is_some(),
            None => false,
        };
        let open = self.links.iter().filter(|(_, link)| !link.is_closed);
        let all = open.filter_map(|(id, link)| Some((*id, link.peer.deadline()?)));
        let all = all.map(move |(id, at)| (id, busy.map_or(at, |busy| busy.max(at))));
        all.filter(move |_| !keeps && !self.closing)
    }

    /// Work of all completed turns, in units.
    pub fn worked_ever(&self) -> u64 {
        self.worked_ever
    }

    /// Takes the next message to the operator.
    pub fn next_report(&mut self) -> Option<String> {
        self.news.pop_front()
    }

    pub(crate) fn notify_news(&mut self, text: String) {
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(text);
    }

    /// Performs due work. Must be called at the end of every turn, and after
    /// [`Automaton::deadline`].
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.note_silence(now, out);
        self.renew_links();
        self.work(now, out);
        let due = self.attempts().filter(|(_, at)| *at <= now).map(|(id, _)| id);
        let most = if self.joining.is_some() { 1 } else { usize::MAX };
        for id in due.take(most).collect::<Vec<_>>() {
            self.step_peer(now, id, peer::Input::Tick, out);
        }
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            self.with_remote(now, id, Remote::tick, out);
        }
        self.keep(now, out);
        self.answer_listeners(out);
        self.end_waits(now, out);
        self.end_turn();
    }

    /// Writes the operations of this turn to the journal.
    fn keep(&mut self, now: Instant, out: &mut Vec<Output>) {
        let (record, number) = mem::take(&mut self.unkept);
        if !record.is_empty() {
            self.journal.append(number, &record);
        }
        let may = !self.closing && self.joining.is_none() && self.writing.is_none();
        let kept = self.replica.kept();
        if may && self.journal.wants_snapshot(kept) {
            self.journal.begin_snapshot(self.journal.expected(), kept);
            self.writing = Some(self.replica.begin_writing());
        }
        let mut outputs = Vec::new();
        self.journal.tick(now, &mut outputs);
        self.received_journal(now, outputs, out);
    }

    /// Makes everything durable before the node ends.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        if mem::replace(&mut self.closing, true) {
            return;
        }
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            self.step_peer(now, id, peer::Input::Leave, out);
            self.with_remote(now, id, Remote::close, out);
        }
        self.keep(now, out);
        let mut outputs = Vec::new();
        self.journal.close(now, &mut outputs);
        self.received_journal(now, outputs, out);
    }

    /// Reports whether the shutdown is complete.
    pub fn is_closed(&self) -> bool {
        self.journal.is_closed() && self.links.values().all(|link| link.remote.is_closed())
    }
}

impl Automaton for Hosted {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(now, id, request, out),
            Input::Cancel(id) => self.cancel(id, out),
            // Nodes are plain numbers, so there is nothing to release.
            Input::Release(_) => {}
            Input::Close(open) | Input::Abandon(open) => self.take_back(now, open, out),
            Input::Done(op, done) => self.done(now, op, done, out),
            Input::Rendered(..) | Input::Commanded(..) | Input::Answered(..) => {
                unreachable!("nothing is rendered here")
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.has_work() || self.has_listeners_due() {
            return Some(Instant(0));
        }
        let peers = self.attempts().map(|(_, at)| at);
        let remotes = self.links.values().filter_map(|link| link.remote.deadline());
        let ending = match self.ending {
            Ending::Until(at) => Some(at),
            Ending::No | Ending::Now => None,
        };
        let own = [self.replica.deadline(), self.journal.deadline(), ending, self.awake_deadline()];
        peers.chain(remotes).chain(own.into_iter().flatten()).min()
    }

    fn check(&self) {
        self.replica.check();
        self.journal.check();
        self.links.values().for_each(|link| link.peer.check());
        assert!(self.unkept.0.is_empty(), "kept at the end of each turn");
        let held = self.opens.iter().map(|(_, opened)| opened.held());
        assert_eq!(self.account.sum(), held.sum::<usize>());
        let listens = |opened: &Opened| matches!(opened, Opened::Events(..));
        let listeners = self.opens.iter().filter(|(_, opened)| listens(opened));
        assert_eq!(self.listeners, listeners.count());
        assert_eq!(self.jobs.len(), self.showing.len());
        let opens = &self.opens;
        let writes =
            |open: &usize| matches!(&opens[*open], Opened::PeerAcceptor(it) if it.is_writing());
        assert!(self.writers.values().all(writes), "a waiting entry is wanted");
        self.check_work();
        self.links.values().for_each(|link| link.remote.check());
        for (open, opened) in self.opens.iter() {
            if let Opened::Ops(op_session, _) = opened {
                op_session.check();
                let waits = |turn| self.turns.get(&turn) == Some(&open);
                assert!(op_session.turn.is_none_or(waits), "a session with a turn is scheduled");
            }
        }
        let has_acceptor =
            |open: &usize| matches!(self.opens.get(*open), Some(Opened::PeerAcceptor(_)));
        assert!(self.acceptors.values().all(has_acceptor), "another replica has an acceptor");
        let receives = |open: &usize| matches!(self.opens.get(*open), Some(Opened::Events(..)));
        assert!(self.listening.iter().all(receives), "listeners have the file of events open");
        assert!(self.news.len() <= NEWS_MAX, "few news wait");
        assert!(self.tickets.keys().all(|ticket| ticket.0 < self.next), "tickets are counted");
        assert!(self.turns.keys().all(|turn| *turn <= self.next_turn), "turns are counted");
    }
}

/// Replica.
impl Hosted {
    /// Processes a line of an operation session.
    pub(crate) fn request(
        &mut self,
        now: Instant,
        open: usize,
        line: &[u8],
        out: &mut Vec<Output>,
    ) {
        let Opened::Ops(op_session, _) = &mut self.opens[open] else { return };
        if op_session.remember(line) {
            return;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let op_request = op_session.op_request(self.data.0, line);
        let op_request =
            op_request.map_err(|rejection| (rejection.reason, op_session.explain(rejection)));
        op_session.ask(ticket);
        if self.replica.is_outside() {
            // The known members may be out of date, and with them the valid tokens.
            let (why, reason, _) = op_session::explain(Refusal::Outside, &BTreeMap::new());
            self.complain_to(now, (open, ticket), (&why, reason, &[]), out);
            return;
        }
        match (op_request, self.journal.failed()) {
            (Err((reason, (text, topic))), _) => {
                let is_sent = self.complain_to(now, (open, ticket), (&text, reason, &[]), out);
                if let Some(topic) = topic.filter(|_| is_sent) {
                    self.with_session(open, |op_session| op_session.explained(topic));
                }
            }
            (Ok(_), Some(error)) => {
                let why = format!("not done: this replica cannot keep it, {error}; see its server");
                self.complain_to(now, (open, ticket), (&why, "unwritten", &[]), out);
            }
            (Ok(OpRequest { operator, once, strict, after, timeout }), None) => {
                if let Some(why) = once.and_then(|call| self.is_stale(call, &operator)) {
                    let why = (&why[..], "stale", &[][..]);
                    self.complain_to(now, (open, ticket), why, out);
                    return;
                }
                let operator = self.operator(now, once, operator);
                if self.journal.is_full() && (strict || !self.data.is_read(&operator)) {
                    let why = (&format!("not done: {FULL}")[..], "no-room", &[][..]);
                    self.complain_to(now, (open, ticket), why, out);
                    return;
                }
                self.tickets.insert(ticket, open);
                let until = now + timeout;
                let input = service::Input::Request { ticket, after, strict, operator, until };
                self.step_replica(now, input, out);
            }
        }
    }

    /// Returns the reason why an operation of a session can never be done: its number is outside
    /// the remembered window, because one with a much greater number is final.
    fn is_stale(&self, call: Call, operator: &kind::Operator) -> Option<String> {
        let last = self.replica.stable().last_of(call.session)?;
        let is_behind = last.get().saturating_sub(call.number.get()) >= once::WINDOW;
        (is_behind && !self.data.0.is_read(operator)).then(|| {
            format!(
                "not done: number {} is far behind {last}, which this session has come to: it was \
                 done long ago, or is passed over; numbers are counted one by one",
                call.number
            )
        })
    }

    /// Wraps a client's operator. The stable state often suffices to decide that no session is due
    /// for eviction; only otherwise is the current state used, which requires the application of
    /// all operations.
    fn operator(&mut self, now: Instant, once: Option<Call>, operator: kind::Operator) -> Operator {
        let (stamp, unfinal) = (self.stamp(now), self.replica.suffix().len());
        let state = match self.replica.stable().has_room(unfinal, stamp) {
            true => self.replica.stable(),
            // Without the current state, an eviction is not decided.
            false if self.replica.is_applied() => self.replica.current(),
            false => self.replica.stable(),
        };
        self.data.operator(state, stamp, once, operator)
    }

    /// Calls `act` on an operation session, if the file still is one, and updates its accounting.
    pub(crate) fn with_session(&mut self, open: usize, act: impl FnOnce(&mut OpSession)) {
        if let Some(Opened::Ops(op_session, _)) = self.opens.get_mut(open) {
            act(op_session);
            self.count(open);
        }
    }

    /// Sends an answer to a session, if there is room for it.
    fn answer_to(
        &mut self,
        now: Instant,
        (open, ticket): (usize, Ticket),
        (value, is_final): (&Value, bool),
        token: &Vector,
        out: &mut Vec<Output>,
    ) {
        let Some(Opened::Ops(op_session, _)) = self.opens.get(open) else { return };
        let line = op_session.line(value, is_final, token);
        let has_room = self.make_room(now, open, line.len() + 1, out);
        self.with_session(open, |op_session| match has_room {
            true => op_session.answer(ticket, line, token),
            false => op_session.answer_none(ticket),
        });
        self.answer_reads(open, out);
    }

    /// Wall-clock time, in ms.
    fn stamp(&self, now: Instant) -> u64 {
        let nanos = self.started.as_nanos().saturating_add(now.0.cast_signed());
        u64::try_from(nanos / 1_000_000).unwrap_or(0)
    }

    pub(crate) fn step_replica(
        &mut self,
        now: Instant,
        input: service::Input<Operator>,
        out: &mut Vec<Output>,
    ) {
        let mut outputs = Vec::new();
        self.replica.set_allowance(self.meter.left());
        self.replica.step(now, input, &mut outputs);
        self.meter.spend(self.replica.spent());
        for output in outputs {
            self.received_replica(now, output, out);
        }
    }

    fn received_replica(
        &mut self,
        now: Instant,
        output: service::Output<Operator, Value>,
        out: &mut Vec<Output>,
    ) {
        match output {
            service::Output::Answer { ticket, value, is_final, token } => {
                let Some(open) = self.tickets.remove(&ticket) else { return };
                self.answer_to(now, (open, ticket), (&value, is_final), &token, out);
            }
            service::Output::Refuse(ticket, refusal) => {
                let Some(open) = self.tickets.remove(&ticket) else { return };
                let is_lost = matches!(refusal, Refusal::Lost(_));
                let members = &self.replica.membership().members;
                let (text, reason, ids) = op_session::explain(refusal, members);
                if is_lost {
                    self.with_session(open, OpSession::forget);
                }
                self.complain_to(now, (open, ticket), (&text, reason, &ids), out);
                self.answer_reads(open, out);
            }
            service::Output::Final(entry, value) => self.notify_final(&entry, &value),
            service::Output::Send(to, message) => {
                let peer_message = PeerMessage::Gossip(message).bytes();
                self.step_peer(now, to, peer::Input::Send(peer_message), out);
            }
            service::Output::Vote(to, vote) => {
                let peer_message = PeerMessage::Silent(vote).bytes();
                self.step_peer(now, to, peer::Input::Send(peer_message), out);
            }
            service::Output::Removes(id) => self.notify_removal(id),
            service::Output::Distrust(peer) => self.distrust(now, peer, out),
            service::Output::Outdated(peer) => self.notify_news(format!(
                "{}: replica {} has operations of this replica that it does not have itself: its \
                 file is {OLDER_COPY}; nothing is done here any more",
                self.settings.service, peer.0
            )),
            service::Output::Persist(number, record) => {
                self.unkept.0.entries.extend(record.entries);
                if record.member_state.is_some() {
                    self.unkept.0.member_state = record.member_state;
                }
                self.unkept.1 = number;
            }
            service::Output::Members(membership) => self.follow(now, &membership, out),
        }
    }

    /// Returns unpredictable random bytes.
    pub(crate) fn random(&mut self) -> [u8; CHALLENGE] {
        let mut random = [0; CHALLENGE];
        self.random.fill_bytes(&mut random);
        random
    }
}

/// Journal and links to peers.
impl Hosted {
    fn done(&mut self, now: Instant, op: OpId, done: Done, out: &mut Vec<Output>) {
        let local = NodeId(op.0).local() as u64;
        if local < PEERS {
            let mut outputs = Vec::new();
            self.journal.done(now, local, done, &mut outputs);
            return self.received_journal(now, outputs, out);
        }
        let id = ReplicaId(((local - PEERS) >> OF_PEER) as u16);
        self.step_remote(now, id, Input::Done(op, done), out);
    }

    fn received_journal(
        &mut self,
        now: Instant,
        outputs: Vec<journal::Output>,
        out: &mut Vec<Output>,
    ) {
        for output in outputs {
            match output {
                journal::Output::Do(op) => out.push(Output::Do(op)),
                journal::Output::Persisted(_) if self.joining.is_some() => {
                    if let Some(Joining::Keeps(join_snapshot)) = self.joining.take() {
                        self.begin(now, *join_snapshot, out);
                    }
                }
                journal::Output::Persisted(number) => {
                    self.step_replica(now, service::Input::Persisted(number), out);
                }
                journal::Output::Failed(error) => {
                    let name = &self.settings.service;
                    self.notify_news(format!(
                        "{name}: nothing more can be kept, {error}: operations are refused; see \
                         to its volume, then start again"
                    ));
                }
                journal::Output::Full => {
                    let name = &self.settings.service;
                    self.notify_news(format!("{name}: {FULL}"));
                }
            }
        }
    }

    pub(crate) fn step_peer(
        &mut self,
        now: Instant,
        id: ReplicaId,
        input: peer::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut requested = Vec::new();
        link.peer.step(now, input, &mut requested);
        for output in requested {
            self.perform(now, id, output, out);
        }
    }

    fn perform(
        &mut self,
        now: Instant,
        id: ReplicaId,
        requested: peer::Output,
        out: &mut Vec<Output>,
    ) {
        let link = self.links.get_mut(&id).expect("it is stepped");
        let ask = match requested {
            peer::Output::Find => {
                let names = [PLACE, self.settings.service.as_str(), PEER];
                let name = |name: &str| Name::new(name.as_bytes()).expect("a checked name");
                let from = link.remote.root();
                Ask::Walk { from, names: names.into_iter().map(name).collect() }
            }
            peer::Output::Open(node) => {
                Ask::Open { node, access: Access { read: true, write: true, ..Access::default() } }
            }
            peer::Output::Read(open, offset) => {
                Ask::Read { open, offset, count: FETCH, headroom: 0 }
            }
            peer::Output::Write(open, offset, data) => {
                Ask::Write { open, offset, data: data.into() }
            }
            peer::Output::Introduce(challenge) => {
                let random = self.random();
                let introduction = Introduction::new(&self.settings, id, &challenge, random);
                return self.step_peer(now, id, peer::Input::Introduce(introduction), out);
            }
            peer::Output::Release(node) => {
                return self.step_remote(now, id, Input::Release(node), out);
            }
            peer::Output::Close(open) => return self.step_remote(now, id, Input::Close(open), out),
            peer::Output::Answered(answer) => return self.receive_answer(now, id, &answer, out),
            peer::Output::TooLong(length) => {
                let least = length.div_ceil(1 << 20);
                let why = format!(
                    "the state of the other replicas takes more than {least} MiB, which does not \
                     fit; enlarge this file with 'upcall replica grow FILE --size SIZE'"
                );
                return self.complain(id, why);
            }
            peer::Output::Stranger => {
                return self.complain(
                    id,
                    format!(
                        "the peer at the address of replica {} failed authentication: it does not \
                         have the service's key, has another version, or its messages are altered",
                        id.0
                    ),
                );
            }
            peer::Output::Removed => {
                self.complain(id, self.farewell(id));
                return self.step_replica(now, service::Input::Removed(id), out);
            }
            peer::Output::Connected => {
                link.complaint = None;
                return self.step_replica(now, service::Input::Connected(id), out);
            }
            peer::Output::Disconnected => {
                return self.step_replica(now, service::Input::Disconnected(id), out);
            }
        };
        link.request += 1;
        let request = Request { caller: Caller::Server, ask };
        let input = Input::Ask(RequestId(link.request), request);
        self.step_remote(now, id, input, out);
    }

    fn step_remote(&mut self, now: Instant, id: ReplicaId, input: Input, out: &mut Vec<Output>) {
        let step =
            |remote: &mut Remote, now, outputs: &mut Vec<Output>| remote.step(now, input, outputs);
        self.with_remote(now, id, step, out);
    }

    /// Calls `act` on the remote tree of a peer, and processes its outputs.
    pub(crate) fn with_remote(
        &mut self,
        now: Instant,
        id: ReplicaId,
        act: impl FnOnce(&mut Remote, Instant, &mut Vec<Output>),
        out: &mut Vec<Output>,
    ) {
        let mut outputs = Vec::new();
        let link = self.links.get_mut(&id).expect("a link that was made");
        act(&mut link.remote, now, &mut outputs);
        self.received_remote(now, id, outputs, out);
    }

    fn received_remote(
        &mut self,
        now: Instant,
        id: ReplicaId,
        outputs: Vec<Output>,
        out: &mut Vec<Output>,
    ) {
        for output in outputs {
            match output {
                Output::Do(op) => out.push(Output::Do(op)),
                Output::Reply(request, reply) => {
                    if request.0 == self.links[&id].request {
                        let is_answer = reply.is_ok();
                        self.step_peer(now, id, peer::Input::Answered(reply), out);
                        self.note_reply(now, id, is_answer);
                    } else if let Some(held) = held(reply) {
                        let input = match held {
                            Id::Node(node) => Input::Release(node),
                            Id::Open(open) => Input::Close(open),
                        };
                        self.step_remote(now, id, input, out);
                    }
                }
                other @ (Output::Render(..)
                | Output::Command { .. }
                | Output::CancelCommand(_)
                | Output::AsClient(_)) => unreachable!("{other:?} of a remote tree"),
            }
        }
    }
}

/// Returns the resource in a late reply, which must be released.
fn held(reply: Result<Reply, Error>) -> Option<Id> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else hands out what a peer asks")]
    match reply {
        Ok(Reply::Walked(_, Some(node))) => Some(Id::Node(node)),
        Ok(Reply::Opened(open, _)) => Some(Id::Open(open)),
        _other => None,
    }
}
