//! Queue of compilations, and their scheduling.
//!
//! Compilations are queued fairly by client, the short ones first (virtual finish times; Demers,
//! Keshav and Shenker, 1989). Each client has an account of the compiler's time: the time when all
//! its compilations would be done if it had the compiler for itself. A module's finish time is that
//! of its client's account, but not before its arrival, plus its own cost; the earliest finish time
//! is next. Real time advances relative to the accounts, so modules of a large account are passed
//! by those that arrive in time, but not forever.
//!
//! The cost of a module is estimated from its size, which is imprecise: a module of 25 KB can take
//! half a minute. The time of a child beyond the estimate is charged as it runs, so it counts
//! against all waiting modules of its client. There are two lanes, with a child each. Every module
//! begins in the quick one; one that takes longer than [`ChildCommand::quick_max`] moves to the
//! slow lane, or, if that is occupied and others wait, is killed and waits for it; so does one that
//! blocks others for [`TIMEOUT`], because the machine is busy otherwise. So a module waits for
//! slow ones only if it is slow itself.

use super::cache::Cache;
use super::child::{Child, ChildCommand};
use super::programs::Programs;
use super::state_store::StateStore;
use base::{Buf, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use storelet::Account;
use storelet::compile::{Compiled, Fresh, Module, ToCompiler};
use storelet::standing::{Kept, ToStateStore};
use wasi::module::{SENT_MAX, prepare};
use wasi::{Artifact, Code, Engines, Hash, Refused};

/// Maximum number of waiting modules, and of one user's.
const JOBS_MAX: usize = 1024;
const JOBS_OF_USER: usize = JOBS_MAX / 4 * 3;

/// Maximum number of one client's: an eighth of the rest of its user's limit, but at least one, and
/// never more than this.
const JOBS_OF_CLIENT: usize = 8;

/// Maximum bytes of waiting modules; and of one client's, if there are several clients.
const BYTES_MAX: usize = 128 << 20;
const BYTES_OF_CLIENT: usize = BYTES_MAX / 4;

/// Approximate time to compile a byte, ns.
const BYTE_NS: u64 = 2_000;

/// Number of rejected modules that are remembered.
const REFUSED_MAX: usize = 256;

/// Maximum time in the quick lane while others wait for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The lanes.
const QUICK: usize = 0;
const SLOW: usize = 1;
const LANES: [usize; 2] = [QUICK, SLOW];

/// A module to compile.
struct Job {
    name: (Hash, Code),
    prepared: Vec<u8>,
    /// Account of the first client that requested it.
    account: Account,
    /// Time of the first request.
    since: Instant,
    /// Estimated CPU time: that of the previous attempt if there was one.
    cost: Duration,
    /// CPU time of the present attempt already charged to its client.
    charged: Duration,
    /// Whether it has exceeded the limit of the quick lane.
    is_slow: bool,
    /// CPU time of killed attempts.
    lost: Duration,
    /// Tickets of the requests that wait for it: at least one.
    tickets: Vec<u64>,
}

/// Waiting and running compilations, and caches of their results.
pub(super) struct CompileQueue {
    engines: Arc<Engines>,
    cache: Option<Cache>,
    state_store: Option<StateStore>,
    child_command: ChildCommand,
    programs: Programs,
    waiting: Vec<Job>,
    /// Modules being compiled, in the quick lane and in the slow one.
    lanes: [Option<(Job, Child)>; 2],
    /// Finish times of the clients' accounts that are not in the past.
    accounts: BTreeMap<Account, Instant>,
    /// Rejections, which are not retried.
    refused: VecDeque<((Hash, Code), Refused)>,
    done: Vec<Compiled>,
    kept: Vec<Kept>,
    open: bool,
}

impl CompileQueue {
    /// Returns an empty queue.
    pub(super) fn new(
        engines: Arc<Engines>,
        cache: Option<Cache>,
        child_command: ChildCommand,
    ) -> CompileQueue {
        CompileQueue {
            engines,
            cache,
            state_store: None,
            child_command,
            programs: Programs::default(),
            waiting: Vec::new(),
            lanes: [None, None],
            accounts: BTreeMap::new(),
            refused: VecDeque::new(),
            done: Vec::new(),
            kept: Vec::new(),
            open: true,
        }
    }

    /// Sets the state store of installed storelets.
    pub(super) fn set_state_store(&mut self, state_store: Option<StateStore>) {
        self.state_store = state_store;
    }

    /// Returns whether it has not been asked to end.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether a child runs, which has to be polled.
    pub(super) fn is_busy(&self) -> bool {
        self.lanes.iter().any(Option::is_some)
    }

    /// Returns the compilations completed since the last call.
    pub(super) fn take_done(&mut self) -> Vec<Compiled> {
        std::mem::take(&mut self.done)
    }

    /// Returns the results of writes to the state store since the last call.
    pub(super) fn take_kept(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.kept)
    }

    /// Writes to the state store.
    pub(super) fn keep(&mut self, requested: ToStateStore) {
        let ticket = requested.ticket;
        let kept = self.state_store.as_mut().map(|state_store| state_store.keep(requested));
        let nowhere = || Kept { ticket, result: Err("this server keeps nothing".to_string()) };
        self.kept.push(kept.unwrap_or_else(nowhere));
    }

    /// Handles a message; available results are returned at once.
    pub(super) fn take(&mut self, now: Instant, message: ToCompiler) {
        match message {
            ToCompiler::Compile { ticket, module, code, account } => {
                match self.ask(now, (ticket, account), module, code) {
                    Ok(None) => {}
                    Ok(Some(fresh)) => self.answer(ticket, Ok(fresh)),
                    Err(refused) => self.answer(ticket, Err(refused)),
                }
            }
            ToCompiler::Cancel(ticket) => self.cancel(ticket),
            ToCompiler::End => {
                self.open = false;
                let running = self.lanes.iter_mut().filter_map(Option::take);
                let jobs: Vec<Job> = running.map(|(job, _killed)| job).collect();
                let jobs = jobs.into_iter().chain(std::mem::take(&mut self.waiting));
                for ticket in jobs.flat_map(|job| job.tickets) {
                    self.answer(ticket, Err(Refused::Cancelled));
                }
            }
        }
    }

    /// Looks up a module, or queues its compilation: then there is no result yet.
    fn ask(
        &mut self,
        now: Instant,
        (ticket, account): (u64, Account),
        module: Module,
        code: Code,
    ) -> Result<Option<Fresh>, Refused> {
        let (hash, sent) = match module {
            Module::Known(hash) => (hash, None),
            Module::Sent(pieces) => {
                let wasm = whole(&pieces)?;
                (Hash::of(&wasm), Some(wasm))
            }
        };
        if let Some(fresh) = self.find((hash, code)) {
            return Ok(Some(fresh));
        }
        let name = (hash, code);
        if let Some((_, refused)) = self.refused.iter().find(|(other, _)| *other == name) {
            return Err(refused.clone());
        }
        if let Some(job) = self.jobs().find(|job| job.name == name) {
            job.tickets.push(ticket);
            return Ok(None);
        }
        let kept = || self.state_store.as_ref().and_then(|state_store| state_store.module(hash));
        let prepared = prepare(&sent.or_else(kept).ok_or(Refused::Unknown)?)?;
        if !self.has_room(account, prepared.len()) {
            let why = "too many modules wait to be compiled: try again in a minute";
            return Err(Refused::Failed(why.to_string()));
        }
        let cost = Duration::from_nanos(prepared.len() as u64 * BYTE_NS);
        let (charged, lost, tickets) = (Duration::ZERO, Duration::ZERO, vec![ticket]);
        let (since, is_slow) = (now, false);
        let job = Job { name, prepared, account, since, cost, charged, is_slow, lost, tickets };
        self.waiting.push(job);
        Ok(None)
    }

    /// Returns all running and waiting jobs.
    fn jobs(&mut self) -> impl Iterator<Item = &mut Job> {
        let running = self.lanes.iter_mut().flatten().map(|(job, _)| job);
        running.chain(&mut self.waiting)
    }

    /// Returns whether one more module of this many bytes may wait. No client, and no user, can
    /// take all places.
    fn has_room(&self, account: Account, len: usize) -> bool {
        let bytes = |jobs: &[&Job]| jobs.iter().map(|job| job.prepared.len()).sum::<usize>();
        let all: Vec<&Job> = self.waiting.iter().collect();
        let user: Vec<&Job> =
            all.iter().copied().filter(|job| job.account.user == account.user).collect();
        let client: Vec<&Job> = user.iter().copied().filter(|job| job.account == account).collect();
        let share = (JOBS_OF_USER.saturating_sub(user.len()) / 8).clamp(1, JOBS_OF_CLIENT);
        all.len() < JOBS_MAX
            && user.len() < JOBS_OF_USER
            && client.len() < share
            && bytes(&all) + len <= BYTES_MAX
            && (user.is_empty() || bytes(&user) + len <= BYTES_MAX / 4 * 3)
            && (client.is_empty() || bytes(&client) + len <= BYTES_OF_CLIENT)
    }

    /// Returns the virtual finish time of a waiting module.
    fn finish(&self, job: &Job) -> Instant {
        let account = self.accounts.get(&job.account);
        account.map_or(job.since, |account| job.since.max(*account)) + job.cost
    }

    /// Charges clients for the time used so far by a module in a lane.
    fn charge(&mut self, now: Instant, lane: usize) {
        let Some((job, child)) = &mut self.lanes[lane] else { return };
        let beyond = child.spent().saturating_sub(job.charged);
        job.charged += beyond;
        let account = self.accounts.entry(job.account).or_insert(now);
        *account = (*account).max(now) + beyond;
    }

    /// Returns a program from memory or disk.
    fn find(&mut self, (hash, code): (Hash, Code)) -> Option<Fresh> {
        let program = self.programs.find((hash, code)).or_else(|| {
            let engine = self.engines.of(code);
            let artifact = self.cache.as_ref()?.find(hash, engine.compatibility())?;
            let program = engine.load(&artifact).ok()?;
            self.programs.add((hash, code), program.clone());
            Some(program)
        });
        Some(Fresh { hash, code, program: program?, was_there: true, cpu_ns: 0 })
    }

    /// Cancels a ticket. A job without tickets is dropped, even while running.
    fn cancel(&mut self, ticket: u64) {
        let Some(job) = self.jobs().find(|job| job.tickets.contains(&ticket)) else {
            // Its reply was sent meanwhile.
            return;
        };
        job.tickets.retain(|other| *other != ticket);
        self.waiting.retain(|job| !job.tickets.is_empty());
        // Dropping a child kills it. Its client is charged for it in each call of `look`.
        for lane in &mut self.lanes {
            lane.take_if(|(job, _)| job.tickets.is_empty());
        }
        self.answer(ticket, Err(Refused::Cancelled));
    }

    /// Polls the children, and starts the next module in each free lane.
    pub(super) fn look(&mut self, now: Instant) {
        self.accounts.retain(|_, account| *account > now);
        for lane in LANES {
            self.charge(now, lane);
            let over = self.lanes[lane].as_mut().and_then(|(_, child)| child.look(now));
            if let Some(finished) = over
                && let Some((job, _)) = self.lanes[lane].take()
            {
                let result = finished.result.and_then(|artifact| self.load(job.name.1, artifact));
                self.deliver(&job, result, job.lost + Duration::from_nanos(finished.cpu_ns));
            }
        }
        self.clear_quick(now);
        for lane in LANES {
            while self.lanes[lane].is_none()
                && let Some(job) = self.next(lane)
            {
                match self.start(&job, now) {
                    Ok(child) => self.lanes[lane] = Some((job, child)),
                    Err(why) => self.deliver(&job, Err(Refused::Failed(why)), job.lost),
                }
            }
        }
    }

    /// Removes a module from the quick lane that has exceeded its limits there.
    fn clear_quick(&mut self, now: Instant) {
        let most = self.child_command.quick_max;
        let others = self.waiting.iter().any(|job| !job.is_slow);
        let free = self.lanes[SLOW].is_none();
        let late = |(_, child): &mut (Job, Child)| {
            (child.spent() > most && (free || others)) || (others && child.age(now) > TIMEOUT)
        };
        let Some((mut job, child)) = self.lanes[QUICK].take_if(late) else { return };
        job.is_slow = true;
        if free {
            self.lanes[SLOW] = Some((job, child));
            return;
        }
        let spent = child.spent();
        // This kills it.
        drop(child);
        job.lost += spent;
        job.cost = job.cost.max(spent);
        job.charged = Duration::ZERO;
        self.waiting.push(job);
    }

    /// Takes the module with the earliest finish time of those waiting for a lane; of several the
    /// oldest. Its client is charged for the estimate.
    fn next(&mut self, lane: usize) -> Option<Job> {
        let waits = self.waiting.iter().enumerate();
        let waits = waits.filter(|(_, job)| job.is_slow == (lane == SLOW));
        let (at, _) = waits.min_by_key(|(_, job)| self.finish(job))?;
        let mut job = self.waiting.remove(at);
        let (account, finish) = (job.account, self.finish(&job));
        self.accounts.insert(account, finish);
        job.charged = job.cost;
        Some(job)
    }

    fn start(&self, job: &Job, now: Instant) -> Result<Child, String> {
        Child::start(&self.child_command, &self.engines, job.name, &job.prepared, now)
    }

    /// Loads a child's artifact as a program, and caches both.
    fn load(&mut self, code: Code, artifact: Artifact) -> Result<wasi::Program, Refused> {
        let program = self.engines.of(code).load(&artifact);
        let program = program.map_err(|error| Refused::Failed(format!("{error:#}")))?;
        self.programs.add((artifact.name(), code), program.clone());
        if let Some(cache) = &self.cache {
            cache.keep(artifact);
        }
        Ok(program)
    }

    /// Sends the result to all tickets. The first of them is charged.
    fn deliver(&mut self, job: &Job, result: Result<wasi::Program, Refused>, cpu: Duration) {
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        if let Err(
            refused @ (Refused::Malformed(_) | Refused::TooLarge(_) | Refused::TooExpensive(_)),
        ) = &result
        {
            self.refused.truncate(REFUSED_MAX - 1);
            self.refused.push_front((job.name, refused.clone()));
        }
        for (at, ticket) in job.tickets.iter().enumerate() {
            let cpu_ns = if at == 0 { cpu_ns } else { 0 };
            let (hash, code) = job.name;
            let fresh = |program| Fresh { hash, code, program, was_there: at > 0, cpu_ns };
            self.answer(*ticket, result.clone().map(fresh));
        }
    }

    fn answer(&mut self, ticket: u64, result: Result<Fresh, Refused>) {
        self.done.push(Compiled { ticket, result });
    }
}

/// Returns a module in one piece.
fn whole(pieces: &[Buf]) -> Result<Vec<u8>, Refused> {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if len > SENT_MAX {
        return Err(Refused::TooLarge(format!("{len} bytes, at most {SENT_MAX}: strip it")));
    }
    let mut wasm = Vec::with_capacity(len);
    pieces.iter().for_each(|piece| wasm.extend_from_slice(piece));
    Ok(wasm)
}

#[cfg(test)]
mod tests;
