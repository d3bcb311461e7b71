//! The oracle of quotas: decides whether a request may have been refused, or may have succeeded.
//!
//! Each request takes effect at one moment between its beginning and its reply. So at each moment
//! the usage is that of all requests with a reply before it, and of any of those in flight. A
//! refusal needs a moment of its request at which the largest such usage exceeds the smallest limit
//! with the request, a success one at which the smallest usage does not exceed the largest limit.
//!
//! Slack exists where the implementation documents it: the storage of a removed file that was still
//! open is freed some time later, an upload needs space for a file more until it is complete, and a
//! new quota holds once all files are counted.

use super::usage::{HOLDERS, Limits, Span, Usage, Usages};
use crate::client::Io;
use crate::client::quota::{DIRS, USERS};
use base::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// State of a request that changes usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the reply.
    Pending,
    /// Waiting for its client to find out whether it took effect.
    Lost,
    /// Waiting for the next audit: its storage is freed some time.
    Freeing,
    /// Waiting for the next audit: it failed, but what it had stored may still count.
    Failed,
    /// Took effect before this time.
    Done(Instant),
}

#[derive(Clone, Debug)]
struct Change {
    begin: Instant,
    state: State,
    usages: Usages,
    /// The upload whose success includes it.
    part_of: Option<Key>,
    /// Whether it stores something first, which counts even if it fails.
    is_upload: bool,
}

impl Change {
    /// Returns the usages that count one after the other: the file of an upload first, then its
    /// blocks, the last of them with all others.
    fn steps(&self) -> Vec<Usages> {
        if !self.is_upload {
            return vec![self.usages];
        }
        let (mut file, mut blocks) = (self.usages, self.usages);
        file.0.iter_mut().for_each(|usage| usage.blocks = 0);
        blocks.0.iter_mut().for_each(|usage| usage.inodes = 0);
        vec![file, blocks]
    }
}

/// A change of the limits of a quota.
#[derive(Clone, Copy, Debug)]
struct LimitChange {
    begin: Instant,
    /// Time from which the limits surely hold.
    end: Option<Instant>,
    limits: Limits,
}

/// Number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

/// Usage and limits of all quotas, shared by all clients.
#[derive(Debug)]
pub struct Ledger {
    /// Usage by requests that ended before all pending ones began.
    base: Usages,
    changes: BTreeMap<Key, Change>,
    limits: [Vec<LimitChange>; HOLDERS],
    next: u64,
    /// Whether no request may begin: an audit is due.
    paused: bool,
    /// Number of power failures that it knows.
    failures: u32,
    /// Number of entries and quotas, and of those not found again since the last power failure.
    items: (usize, usize),
    /// Times at which the power may have failed, for each item found.
    spans: Vec<Vec<Span>>,
    /// Time before whose beginning all is durable.
    durable: Instant,
    /// Number of clients, and of those that have completed their work.
    clients: (usize, usize),
    /// Clients to wake up when requests may begin, or all have ended.
    members: Vec<usize>,
}

/// Returns the usage by the directories themselves.
fn directories() -> Usages {
    let one = Usage { blocks: 0, inodes: 1 };
    assert_eq!(DIRS.len(), USERS.len(), "each user has one");
    Usages([one; HOLDERS])
}

impl Ledger {
    /// Returns the ledger for this number of clients with this number of entries in all.
    pub fn new(clients: usize, entries: usize) -> Ledger {
        let settled =
            LimitChange { begin: Instant(0), end: Some(Instant(0)), limits: Limits::NONE };
        Ledger {
            base: directories(),
            changes: BTreeMap::new(),
            limits: [(); HOLDERS].map(|()| vec![settled]),
            next: 0,
            paused: false,
            failures: 0,
            items: (entries + HOLDERS, 0),
            spans: Vec::new(),
            durable: Instant(0),
            clients: (clients, 0),
            members: Vec::new(),
        }
    }

    /// Adds a client to wake up.
    pub(super) fn join(&mut self, member: usize) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// Wakes all clients.
    pub(super) fn wake_all(&self, io: &mut Io<'_>) {
        for member in &self.members {
            let pause = Duration::from_nanos(io.rng().u64(..200_000));
            io.env.wake_in(*member, pause);
        }
    }

    /// Returns whether requests may begin.
    pub(super) fn is_open(&self) -> bool {
        !self.paused && self.items.1 == 0
    }

    /// Pauses: no request begins until [`Ledger::resume`].
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Ends the pause.
    pub(super) fn resume(&mut self, io: &mut Io<'_>) {
        self.paused = false;
        self.wake_all(io);
    }

    /// Returns whether no request is in flight, and the outcomes of all are known.
    pub(super) fn is_quiet(&self) -> bool {
        let waits = |change: &Change| matches!(change.state, State::Pending | State::Lost);
        self.items.1 == 0 && !self.changes.values().any(waits)
    }

    /// Returns whether storage of removed files may still count.
    pub(super) fn is_freeing(&self) -> bool {
        let counts = |change: &Change| matches!(change.state, State::Freeing | State::Failed);
        self.changes.values().any(counts)
    }

    /// Returns the usage when no request is in flight, with all storage freed.
    pub(super) fn usage(&self) -> Usages {
        let mut sum = self.base;
        let counted = self.changes.values().filter(|change| change.state != State::Failed);
        counted.for_each(|change| sum.add(&change.usages, 1));
        sum
    }

    /// Records that all storage of removed files is freed.
    pub(super) fn freed(&mut self, now: Instant) {
        self.changes.retain(|_, change| change.state != State::Failed);
        for change in self.changes.values_mut() {
            if change.state == State::Freeing {
                change.state = State::Done(now);
            }
        }
        self.settle();
    }

    /// Records that a client has completed its work.
    pub(super) fn complete(&mut self, io: &mut Io<'_>) {
        self.clients.1 += 1;
        self.wake_all(io);
    }

    /// Returns whether all clients have completed their work.
    pub(super) fn is_complete(&self) -> bool {
        self.clients.0 == self.clients.1
    }

    /// Records the beginning of a request.
    pub(super) fn begin(&mut self, now: Instant, usages: Usages) -> Key {
        assert!(self.is_open(), "a request begins while none may");
        self.next += 1;
        let key = Key(self.next);
        let (state, part_of, is_upload) = (State::Pending, None, false);
        self.changes.insert(key, Change { begin: now, state, usages, part_of, is_upload });
        key
    }

    /// Records the beginning of an upload: the new file counts before it replaces the old one.
    pub(super) fn begin_upload(&mut self, now: Instant, new: Usages, old: Usages) -> Key {
        let key = self.begin(now, new);
        self.changes.get_mut(&key).expect("it has begun").is_upload = true;
        let part = self.begin(now, old);
        self.changes.get_mut(&part).expect("it has begun").part_of = Some(key);
        key
    }

    /// Sets the state of a request with its parts.
    fn set(&mut self, key: Key, state: State) {
        for (known, change) in &mut self.changes {
            if *known == key || change.part_of == Some(key) {
                change.state = state;
            }
        }
    }

    /// Removes a request that failed, except for what it may have stored.
    fn fail(&mut self, key: Key) {
        self.changes.retain(|known, change| {
            let is_it = *known == key || change.part_of == Some(key);
            if is_it && change.is_upload {
                change.state = State::Failed;
            }
            !is_it || change.is_upload
        });
    }

    /// Records the success of a request. `frees_later`: it has removed a file that is open.
    ///
    /// # Panics
    /// If a quota must have refused it.
    pub(super) fn succeed(&mut self, io: &mut Io<'_>, key: Key, frees_later: bool) {
        let now = io.now();
        let fits = |usage: Usage, more: Usage, limits: &Limits| !limits.are_exceeded(usage, more);
        let lowest = |at, holder| self.usage_at(at, holder, key, |more| more.min(0));
        let change = &self.changes[&key];
        let possible = change.steps().iter().all(|step| {
            self.moments(change.begin, now).any(|at| {
                (0..HOLDERS).all(|holder| {
                    let (usage, more) = (lowest(at, holder), step.0[holder]);
                    self.limits_at(at, holder).any(|limits| fits(usage, more, limits))
                })
            })
        });
        assert!(possible, "a quota is exceeded by {change:?}: {}", self.explain(change, now));
        self.set(key, if frees_later { State::Freeing } else { State::Done(now) });
        self.over(io);
    }

    /// Records the refusal of a request.
    ///
    /// # Panics
    /// If no quota may have refused it.
    pub(super) fn refuse(&mut self, io: &mut Io<'_>, key: Key) {
        let now = io.now();
        let highest = |at, holder| self.usage_at(at, holder, key, |more| more.max(0));
        let change = &self.changes[&key];
        let possible = self.moments(change.begin, now).any(|at| {
            (0..HOLDERS).any(|holder| {
                let usage = highest(at, holder);
                let more = change.usages.0[holder];
                self.limits_at(at, holder).any(|limits| limits.are_exceeded(usage, more))
            })
        });
        assert!(possible, "no quota can be exceeded by {change:?}: {}", self.explain(change, now));
        io.env.totals.refusals += 1;
        self.fail(key);
        self.over(io);
    }

    /// Records that the connection of a request ended before its reply.
    pub(super) fn lose(&mut self, key: Key) {
        self.set(key, State::Lost);
    }

    /// Records whether a lost request took effect; its connection ended at `closed`.
    pub(super) fn resolve(
        &mut self,
        io: &mut Io<'_>,
        key: Key,
        effect: Option<Instant>,
        frees_later: bool,
    ) {
        match effect {
            Some(_) if frees_later => self.set(key, State::Freeing),
            Some(closed) => self.set(key, State::Done(closed)),
            None => self.fail(key),
        }
        self.over(io);
    }

    /// Records that everything with a reply before `begun` is durable.
    pub(super) fn synced(&mut self, begun: Instant) {
        self.durable = self.durable.max(begun);
    }

    /// Returns the time before which replies are those of durable requests.
    pub(super) fn durable(&self) -> u64 {
        self.durable.0
    }

    fn over(&mut self, io: &mut Io<'_>) {
        self.settle();
        if self.paused && self.is_quiet() {
            self.wake_all(io);
        }
    }

    /// Adds up changes that ended before all pending ones began.
    fn settle(&mut self) {
        let is_pending = |change: &&Change| change.state == State::Pending;
        let first = self.changes.values().filter(is_pending).map(|change| change.begin).min();
        let first = first.unwrap_or(Instant(u64::MAX));
        let base = &mut self.base;
        self.changes.retain(|_, change| {
            let is_old = matches!(change.state, State::Done(end) if end < first);
            base.add(&change.usages, i64::from(is_old));
            !is_old
        });
        for limits in &mut self.limits {
            let is_old = |change: &LimitChange| change.end.is_some_and(|end| end < first);
            let last = limits.iter().rposition(is_old);
            limits.drain(..last.unwrap_or(0));
        }
    }

    /// Returns all moments in a range at which anything changes.
    fn moments(&self, begin: Instant, end: Instant) -> impl Iterator<Item = Instant> {
        let of_changes = self.changes.values().flat_map(|change| match change.state {
            State::Done(end) => [change.begin, end],
            State::Pending | State::Lost | State::Freeing | State::Failed => [change.begin; 2],
        });
        let limits = self.limits.iter().flatten();
        let of_limits = limits.flat_map(move |change| [change.begin, change.end.unwrap_or(begin)]);
        let all = of_changes.chain(of_limits).chain([begin, end]);
        all.filter(move |at| (begin..=end).contains(at))
    }

    /// Returns an extreme of a usage at a moment, without one request; `part` returns the
    /// contribution of one in flight.
    fn usage_at(&self, at: Instant, holder: usize, but: Key, part: impl Fn(i64) -> i64) -> Usage {
        let mut usage = self.base.0[holder];
        for (key, change) in &self.changes {
            let more = change.usages.0[holder];
            let (is_begun, is_over) = (
                change.begin <= at && *key != but && change.part_of != Some(but),
                matches!(change.state, State::Done(end) if end < at),
            );
            if is_over {
                usage.blocks += more.blocks;
                usage.inodes += more.inodes;
            } else if is_begun {
                usage.blocks += part(more.blocks);
                usage.inodes += part(more.inodes);
            }
        }
        usage
    }

    /// Returns the limits that a quota may have at a moment.
    fn limits_at(&self, at: Instant, holder: usize) -> impl Iterator<Item = &Limits> {
        let all = &self.limits[holder];
        let is_over = |change: &LimitChange| change.end.is_some_and(|end| end < at);
        let first = all.iter().rposition(is_over).unwrap_or(0);
        all[first..].iter().filter(move |change| change.begin <= at).map(|change| &change.limits)
    }

    fn explain(&self, change: &Change, now: Instant) -> String {
        let others = &self.changes;
        format!("until {now:?}, with {:?}, {:?} and {others:?}; {change:?}", self.base, self.limits)
    }
}

/// Limits.
impl Ledger {
    /// Records the beginning of a change of limits.
    pub(super) fn begin_limit(&mut self, now: Instant, holder: usize, limits: Limits) {
        self.limits[holder].push(LimitChange { begin: now, end: None, limits });
    }

    /// Records that the last limits hold from now on.
    pub(super) fn enforce(&mut self, now: Instant, holder: usize) {
        let last = self.limits[holder].last_mut().expect("there is always one");
        last.end.get_or_insert(now);
        self.settle();
    }

    /// Records that the last change had no effect.
    pub(super) fn undo_limit(&mut self, holder: usize) {
        self.limits[holder].pop();
    }
}

/// Recovery from power failures.
impl Ledger {
    /// Notes power failures that it does not know yet: all entries and limits must be found again.
    pub(super) fn note_failures(&mut self, io: &mut Io<'_>) {
        if self.failures == io.env.power_failures() {
            return;
        }
        self.failures = io.env.power_failures();
        self.changes.clear();
        self.base = directories();
        self.items.1 = self.items.0;
        (self.paused, self.spans) = (true, Vec::new());
        // Clients that are done find their entries once more.
        self.wake_all(io);
    }

    /// Records that an entry was found after a power failure; `spans` are the times at which the
    /// power may have failed.
    pub(super) fn found(&mut self, io: &mut Io<'_>, spans: Vec<Span>, usages: Option<Usages>) {
        usages.iter().for_each(|usages| self.base.add(usages, 1));
        self.spans.push(spans);
        self.items.1 -= 1;
        if self.items.1 == 0 {
            self.judge_failure();
            self.wake_all(io);
        }
    }

    /// Records the limits found after a power failure.
    pub(super) fn found_limits(&mut self, now: Instant, holder: usize, found: (Limits, bool)) {
        let none = LimitChange { begin: Instant(0), end: Some(Instant(0)), limits: Limits::NONE };
        let (limits, is_enforced) = found;
        let change = LimitChange { begin: now, end: is_enforced.then_some(now), limits };
        self.limits[holder] = vec![none, change];
    }

    /// Checks that one moment explains all that was found: requests before it are there, those
    /// after it are not.
    fn judge_failure(&mut self) {
        let durable = self.durable.0;
        let mut moments = self.spans.iter().flatten().map(|span| span.0.max(durable));
        let is_in = |at: u64, spans: &[Span]| spans.iter().any(|(a, b)| (*a..=*b).contains(&at));
        let explained = moments.any(|at| self.spans.iter().all(|spans| is_in(at, spans)));
        let spans = &self.spans;
        assert!(explained, "not a state since {durable} was kept at a power failure: {spans:?}");
    }
}
