//! Queues of jobs that wait for a thread, one for each resource that they may block on.
//!
//! A file system whose server does not respond blocks every thread that accesses it. So each has a
//! *lane*: a queue with a few threads at most. Jobs on local file systems have no lane and have
//! reserved threads. A job on several file systems needs a slot in the lane of each; it waits in
//! one of them at a time.
//!
//! Each queue serves clients (connections, or groups of them) round robin: one with many jobs
//! delays the first one of another by one job. A job without a client is a party of its own.
//!
//! Of local jobs, long ones (listings) have a queue of their own and at most a quarter of the
//! threads, so that jobs of microseconds find a thread. Of those that have run for less than
//! [`TIMEOUT`] there are no more than half of the processors: they compute, and more of them would
//! take processors from the threads that answer clients. A job that takes longer waits for the disk
//! and no longer counts.

use crate::mounts::Table;
use base::Instant;
use base::op::{ClientKey, OpId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of lanes of one job: file systems mounted on one another along its path.
pub(crate) const LANES_MAX: usize = 8;

/// Running time after which a long job is assumed to wait mostly for the disk.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(20);

/// A resource outside of this machine's memory and disks that an operation may block on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// A mounted file system, by its device number.
    Device(u64),
    /// An unknown mount on the mount with this id, where the mount table shows none.
    Hidden(u64),
    /// The file system of an absolute path.
    Path(Arc<[u8]>),
    /// The name service that resolves host names.
    Hosts,
    /// The user database.
    Users,
    /// The storage of removed files, which is freed when they are closed.
    Freeing,
    /// A search of a served directory for files by their inode numbers; requests that arrived after
    /// this number of searches had begun.
    Searching(u64),
}

impl Lane {
    /// Describes the lane for people, as the subject of a sentence: mount point and type of a file
    /// system.
    pub(crate) fn describe(&self, table: &Table) -> String {
        match self {
            Lane::Device(device) => match table.by_device(*device) {
                Some(mount) => mount.to_string(),
                None => format!("an unmounted file system (device {device:#x})"),
            },
            Lane::Hidden(id) => format!("a hidden mount (on mount {id})"),
            Lane::Path(path) => String::from_utf8_lossy(path).into_owned(),
            Lane::Hosts => "the host name service".into(),
            Lane::Users => "the user database".into(),
            Lane::Freeing => "the storage of removed files".into(),
            Lane::Searching(_) => "the search of served directories".into(),
        }
    }
}

/// A job, as seen by the queues.
pub(crate) trait Queued {
    /// Returns the operation that it completes, for cancellation.
    fn id(&self) -> Option<OpId>;
    /// Returns its client, or [`ClientKey::NOBODY`].
    fn client(&self) -> ClientKey;
    /// Returns the lanes that it needs a slot in; none for local work.
    fn lanes(&self) -> &[Lane];
    /// Returns whether it occupies its thread for long if it is local.
    fn is_long(&self) -> bool;
}

/// Limits on running jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of local jobs.
    pub(crate) local: usize,
    /// Maximum number of long local jobs that compute.
    pub(crate) computing: usize,
    /// Maximum number of jobs of one lane, and of long local jobs.
    pub(crate) lane: usize,
    /// Maximum number of jobs of all lanes.
    pub(crate) lanes: usize,
}

impl Limits {
    /// Returns the limits of a pool with this number of threads for local jobs, on a machine with
    /// this number of processors: computing jobs on half of those, a quarter of the threads for
    /// each lane, and four times as many for all of them, in addition.
    pub(crate) fn new(threads: usize, processors: usize) -> Limits {
        let local = threads.max(1);
        let lane = (local / 4).max(1);
        Limits { local, computing: (processors / 2).clamp(1, lane), lane, lanes: local * 4 }
    }

    /// Returns the maximum number of threads of the pool.
    pub(crate) fn threads(&self) -> usize {
        self.local + self.lanes
    }
}

/// The queues.
#[derive(Debug)]
pub(crate) struct Lanes<J> {
    limits: Limits,
    /// Local jobs that take microseconds.
    short: Queue<J>,
    long: Queue<J>,
    /// Start of each running long job.
    long_since: BTreeMap<u64, Instant>,
    lanes: BTreeMap<Lane, Queue<J>>,
    /// Running jobs of lanes.
    running: BTreeMap<u64, Running>,
    /// Lane served last.
    last: Option<Lane>,
    /// Queue, party and number of each cancellable job.
    waiting: BTreeMap<OpId, (WaitQueue, Party, u64)>,
    /// Whether the local job started last was a long one.
    long_was_last: bool,
    next: u64,
}

/// Queue of a waiting job.
#[derive(Clone, Debug)]
enum WaitQueue {
    Short,
    Long,
    Lane(Lane),
}

/// Party of the round robin: a client, or a single job of [`ClientKey::NOBODY`] by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Client(ClientKey),
    Job(u64),
}

impl Party {
    fn of(number: u64, client: ClientKey) -> Party {
        if client == ClientKey::NOBODY { Party::Job(number) } else { Party::Client(client) }
    }
}

/// Waiting jobs, served round robin by party. Nothing is remembered of a party without jobs.
#[derive(Debug)]
struct Queue<J> {
    /// Jobs by party and number.
    waiting: BTreeMap<(Party, u64), J>,
    /// Parties with jobs in the order of their turns, and the position of each.
    round: BTreeMap<u64, Party>,
    places: BTreeMap<Party, u64>,
    next_place: u64,
    running: usize,
}

impl<J: Queued> Queue<J> {
    fn new() -> Queue<J> {
        let (round, places) = (BTreeMap::new(), BTreeMap::new());
        Queue { waiting: BTreeMap::new(), round, places, next_place: 0, running: 0 }
    }

    /// Adds a job behind those of its client.
    fn push(&mut self, number: u64, job: J) -> Party {
        let party = Party::of(number, job.client());
        let before = self.waiting.insert((party, number), job);
        assert!(before.is_none(), "numbers are given once");
        if !self.places.contains_key(&party) {
            self.join_round(party);
        }
        party
    }

    /// Adds a party behind all others.
    fn join_round(&mut self, party: Party) {
        self.round.insert(self.next_place, party);
        self.places.insert(party, self.next_place);
        self.next_place += 1;
    }

    fn first_of(&self, party: Party) -> Option<u64> {
        let all = self.waiting.range((party, 0)..=(party, u64::MAX));
        all.map(|((_, number), _)| *number).next()
    }

    /// Removes the first job of the party whose turn it is.
    fn pop(&mut self) -> Option<J> {
        let (place, party) = self.round.pop_first()?;
        let known = self.places.remove(&party);
        assert_eq!(known, Some(place), "a party has one place");
        let number = self.first_of(party).expect("a queued party has a job");
        let job = self.waiting.remove(&(party, number)).expect("it is there");
        if self.first_of(party).is_some() {
            self.join_round(party);
        }
        Some(job)
    }

    /// Removes a job.
    fn remove(&mut self, party: Party, number: u64) -> Option<J> {
        let job = self.waiting.remove(&(party, number))?;
        if self.first_of(party).is_none() {
            let place = self.places.remove(&party).expect("a party with a job is queued");
            self.round.remove(&place);
        }
        Some(job)
    }

    /// Removes all jobs.
    fn drain(&mut self) -> impl Iterator<Item = J> + use<J> {
        self.round.clear();
        self.places.clear();
        std::mem::take(&mut self.waiting).into_values()
    }

    /// Returns the number of jobs that can start if `limit` jobs may run at once.
    fn ready(&self, limit: usize) -> usize {
        self.waiting.len().min(limit.saturating_sub(self.running))
    }

    #[cfg(test)]
    fn check(&self) {
        let parties: BTreeSet<Party> = self.waiting.keys().map(|(party, _)| *party).collect();
        assert!(self.places.keys().eq(&parties), "a party with a job is queued");
        let round: BTreeMap<Party, u64> = self.round.iter().map(|(at, of)| (*of, *at)).collect();
        assert_eq!(self.places, round, "a party has one place");
    }
}

#[derive(Debug)]
struct Running {
    lanes: Vec<Lane>,
    since: Instant,
}

/// A running job, to report its end.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// A short local job.
    Short,
    /// A long local job, by its number.
    Long(u64),
    /// A job of lanes, by its number.
    Lanes(u64),
}

/// A lane whose jobs do not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hung {
    /// The lane.
    pub(crate) lane: Lane,
    /// Start of the oldest of its jobs.
    pub(crate) since: Instant,
    /// Number of running jobs.
    pub(crate) running: usize,
    /// Number of jobs waiting for a thread.
    pub(crate) waiting: usize,
}

impl<J: Queued> Lanes<J> {
    /// Returns empty queues.
    pub(crate) fn new(limits: Limits) -> Lanes<J> {
        Lanes {
            limits,
            short: Queue::new(),
            long: Queue::new(),
            long_since: BTreeMap::new(),
            lanes: BTreeMap::new(),
            running: BTreeMap::new(),
            last: None,
            waiting: BTreeMap::new(),
            long_was_last: false,
            next: 0,
        }
    }

    /// Returns the number of waiting jobs.
    pub(crate) fn len(&self) -> usize {
        self.queues().map(|queue| queue.waiting.len()).sum()
    }

    fn queues(&self) -> impl Iterator<Item = &Queue<J>> {
        [&self.short, &self.long].into_iter().chain(self.lanes.values())
    }

    /// Returns the number of jobs that can start if there are threads.
    pub(crate) fn ready(&self, now: Instant) -> usize {
        let long = self.long.waiting.len().min(self.long_places(now));
        let local = self.short.waiting.len() + long;
        let local = local.min(self.limits.local - self.local_running());
        if self.lanes.is_empty() {
            return local;
        }
        let lanes: usize = self.lanes.values().map(|queue| queue.ready(self.limits.lane)).sum();
        local + lanes.min(self.limits.lanes - self.running.len())
    }

    fn local_running(&self) -> usize {
        self.short.running + self.long.running
    }

    /// Returns the number of long jobs that may start.
    fn long_places(&self, now: Instant) -> usize {
        let computes = |since: &&Instant| now.since(**since) < TIMEOUT;
        let computing = self.long_since.values().filter(computes).count();
        let places = self.limits.computing.saturating_sub(computing);
        places.min(self.limits.lane - self.long.running)
    }

    /// Returns whether long jobs wait: one may become startable although no job ends.
    pub(crate) fn any_long_waits(&self) -> bool {
        !self.long.waiting.is_empty()
    }

    /// Adds a job.
    pub(crate) fn push(&mut self, job: J) {
        let full = job.lanes().iter().find(|lane| !self.has_place(lane));
        let place = match full.or(job.lanes().first()) {
            Some(lane) => WaitQueue::Lane(lane.clone()),
            None if job.is_long() => WaitQueue::Long,
            None => WaitQueue::Short,
        };
        self.queue(place, job);
    }

    fn has_place(&self, lane: &Lane) -> bool {
        self.lanes.get(lane).is_none_or(|queue| queue.running < self.limits.lane)
    }

    fn queue(&mut self, place: WaitQueue, job: J) {
        let number = self.next;
        self.next += 1;
        let queue = match &place {
            WaitQueue::Short => &mut self.short,
            WaitQueue::Long => &mut self.long,
            WaitQueue::Lane(lane) => self.lane(lane.clone()),
        };
        let id = job.id();
        let party = queue.push(number, job);
        if let Some(id) = id {
            let before = self.waiting.insert(id, (place, party, number));
            assert!(before.is_none(), "an operation waits once");
        }
    }

    fn lane(&mut self, lane: Lane) -> &mut Queue<J> {
        self.lanes.entry(lane).or_insert_with(Queue::new)
    }

    /// Takes the next job for a thread: local ones first, which have reserved threads; then the
    /// lanes in turn.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<(J, Ticket)> {
        if let Some(begun) = self.begin_local(now) {
            return Some(begun);
        }
        while self.running.len() < self.limits.lanes {
            let lane = self.next_lane()?;
            self.last = Some(lane.clone());
            let job = self.lane(lane).pop().expect("chosen for its jobs");
            self.forget(&job);
            let full = job.lanes().iter().find(|lane| !self.has_place(lane)).cloned();
            if let Some(lane) = full {
                self.queue(WaitQueue::Lane(lane), job);
                continue;
            }
            let number = self.next;
            self.next += 1;
            let lanes: BTreeSet<Lane> = job.lanes().iter().cloned().collect();
            assert!(!lanes.is_empty(), "local jobs are in no lane");
            lanes.iter().for_each(|lane| self.lane(lane.clone()).running += 1);
            let lanes = lanes.into_iter().collect();
            self.running.insert(number, Running { lanes, since: now });
            return Some((job, Ticket::Lanes(number)));
        }
        None
    }

    /// Takes the next local job within the limits.
    pub(crate) fn begin_local(&mut self, now: Instant) -> Option<(J, Ticket)> {
        if self.local_running() == self.limits.local {
            return None;
        }
        let may_be_long = self.long_places(now) > 0;
        let any_short = !self.short.waiting.is_empty();
        let any_long = may_be_long && !self.long.waiting.is_empty();
        let (queue, ticket) = match (any_short, any_long) {
            (false, false) => return None,
            // Alternating, if both wait.
            (_, true) if !any_short || !self.long_was_last => {
                self.next += 1;
                (&mut self.long, Ticket::Long(self.next - 1))
            }
            _ => (&mut self.short, Ticket::Short),
        };
        self.long_was_last = matches!(ticket, Ticket::Long(_));
        let job = queue.pop().expect("it has a first job");
        queue.running += 1;
        if let Ticket::Long(number) = ticket {
            self.long_since.insert(number, now);
        }
        self.forget(&job);
        Some((job, ticket))
    }

    /// Returns whether all running jobs may block.
    pub(crate) fn only_lanes_run(&self) -> bool {
        self.local_running() == 0
    }

    fn forget(&mut self, job: &J) {
        if let Some(id) = job.id() {
            let known = self.waiting.remove(&id);
            assert!(known.is_some(), "a pending operation is found by its id");
        }
    }

    /// Returns the next lane in turn with a waiting job and a free slot.
    fn next_lane(&self) -> Option<Lane> {
        let can = |queue: &Queue<J>| !queue.waiting.is_empty() && queue.running < self.limits.lane;
        let behind = |lane: &&Lane| self.last.as_ref().is_none_or(|last| *lane > last);
        let all = || self.lanes.iter().filter(|(_, queue)| can(queue)).map(|(lane, _)| lane);
        all().find(behind).or_else(|| all().next()).cloned()
    }

    /// Records the end of a job.
    pub(crate) fn end(&mut self, ticket: &Ticket) {
        let number = match ticket {
            Ticket::Short => {
                assert!(self.short.running > 0, "a job ends once");
                self.short.running -= 1;
                return;
            }
            Ticket::Long(number) => {
                let begun = self.long_since.remove(number);
                assert!(begun.is_some() && self.long.running > 0, "a job ends once");
                self.long.running -= 1;
                return;
            }
            Ticket::Lanes(number) => number,
        };
        let ended = self.running.remove(number).expect("a job ends once");
        for lane in ended.lanes {
            let queue = self.lane(lane.clone());
            assert!(queue.running > 0, "a job ends once in each of its lanes");
            queue.running -= 1;
            if queue.running == 0 && queue.waiting.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Removes a waiting job.
    pub(crate) fn remove(&mut self, id: OpId) -> Option<J> {
        let (place, party, number) = self.waiting.remove(&id)?;
        let lane = match place {
            WaitQueue::Short => return self.short.remove(party, number),
            WaitQueue::Long => return self.long.remove(party, number),
            WaitQueue::Lane(lane) => lane,
        };
        let queue = self.lane(lane.clone());
        let job = queue.remove(party, number);
        assert!(job.is_some(), "a job is where its place says");
        if queue.running == 0 && queue.waiting.is_empty() {
            self.lanes.remove(&lane);
        }
        job
    }

    /// Removes all waiting jobs.
    pub(crate) fn drain(&mut self) -> Vec<J> {
        self.waiting.clear();
        let local = [&mut self.short, &mut self.long];
        let queues = local.into_iter().chain(self.lanes.values_mut());
        queues.flat_map(Queue::drain).collect()
    }

    /// Asserts that queues, running jobs, and the index of waiting jobs agree.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut running: BTreeMap<&Lane, usize> = BTreeMap::new();
        for lane in self.running.values().flat_map(|running| &running.lanes) {
            *running.entry(lane).or_default() += 1;
        }
        for (lane, queue) in &self.lanes {
            let count = running.remove(lane).unwrap_or(0);
            assert_eq!(queue.running, count, "running jobs of a lane are counted");
            assert!(queue.running > 0 || !queue.waiting.is_empty(), "a lane has a use");
            assert!(queue.running <= self.limits.lane, "no more of a lane run than may");
        }
        assert!(running.is_empty(), "a running job has a known lane");
        assert!(self.running.len() <= self.limits.lanes, "no more run than may");
        assert!(self.local_running() <= self.limits.local, "no more local jobs run than may");
        assert!(self.long.running <= self.limits.lane, "no more long jobs run than may");
        assert_eq!(self.long.running, self.long_since.len(), "each long job has begun");
        for (id, (place, party, number)) in &self.waiting {
            let queue = match place {
                WaitQueue::Short => &self.short,
                WaitQueue::Long => &self.long,
                WaitQueue::Lane(lane) => &self.lanes[lane],
            };
            let job = queue.waiting.get(&(*party, *number));
            assert_eq!(job.and_then(Queued::id), Some(*id), "a job is where its place says");
        }
        self.queues().for_each(Queue::check);
        let named = self.queues().flat_map(|queue| queue.waiting.values());
        let named = named.filter(|job| job.id().is_some()).count();
        assert_eq!(self.waiting.len(), named, "a pending operation is found");
    }

    /// Returns the start of the oldest running job of a lane.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        // Numbers increase with time.
        self.running.first_key_value().map(|(_, running)| running.since)
    }

    /// Returns the lanes with a job that has run for at least `limit`.
    pub(crate) fn hung(&self, now: Instant, limit: Duration) -> Vec<Hung> {
        let mut hung: BTreeMap<&Lane, Instant> = BTreeMap::new();
        for running in self.running.values().take_while(|r| now.since(r.since) >= limit) {
            // Storage may take long to free, and a large directory to search, which is no fault.
            let is_slow = |lane: &&Lane| matches!(lane, Lane::Freeing | Lane::Searching(_));
            for lane in running.lanes.iter().filter(|lane| !is_slow(lane)) {
                hung.entry(lane).or_insert(running.since);
            }
        }
        let describe = |(lane, since): (&Lane, Instant)| {
            let queue = &self.lanes[lane];
            let (running, waiting) = (queue.running, queue.waiting.len());
            Hung { lane: lane.clone(), since, running, waiting }
        };
        hung.into_iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests;
