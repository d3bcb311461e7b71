//! What there is to compile, in which order, for whom.
//!
//! Compilations are queued fairly by client, the short ones first (virtual finish times; Demers,
//! Keshav and Shenker, 1989). Each client has an account of the compiler's time: when all that was
//! compiled for it would be done if it had the compiler for itself. A module would be done when its
//! client's account says, but not before it came, plus its own cost; the one that would be done
//! first is next. Real time moves on beneath the accounts, so one that is large is passed by those
//! that come in time, and not for ever.
//!
//! The cost of a module is estimated from its size, which does not tell all: a module of 25 KB can
//! take half a minute. The time that its child takes beyond the estimate is charged as it runs, so
//! it counts against all that its client has waiting. And there are two lanes, with a child each.
//! Every module begins in the quick one; one that takes longer than [`Recipe::quick_max`] goes on
//! in the slow lane, or, if that is taken and others wait, is ended and waits for it; so does one
//! that keeps others waiting for [`PATIENCE`], because the machine is busy otherwise. So a module
//! waits for no slow one but if it is slow itself.

use super::cache::Cache;
use super::child::{Child, Recipe};
use super::keeper::Keeper;
use super::programs::Programs;
use base::{Buf, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use storelet::Account;
use storelet::compile::{Code, Compiled, Fresh, Hash, Module, Refused, ToCompiler};
use storelet::module::{SENT_MAX, prepare};
use storelet::standing::{Kept, ToKeeper};
use storelet::{Artifact, Engines};

/// Most modules that wait, and of one user.
const JOBS_MAX: usize = 1024;
const JOBS_OF_USER: usize = JOBS_MAX / 4 * 3;

/// Most of one client: an eighth of the places that its user has left, but always one, and never
/// more than this.
const JOBS_OF_CLIENT: usize = 8;

/// Most bytes of modules that wait; of one client, if there are several.
const BYTES_MAX: usize = 128 << 20;
const BYTES_OF_CLIENT: usize = BYTES_MAX / 4;

/// About how long it takes to compile a byte, ns.
const BYTE_NS: u64 = 2_000;

/// How many modules are remembered that could not be compiled.
const REFUSED_MAX: usize = 256;

/// How long one may stay in the quick lane while others wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lanes.
const QUICK: usize = 0;
const SLOW: usize = 1;
const LANES: [usize; 2] = [QUICK, SLOW];

/// A module that is to be compiled.
struct Job {
    name: (Hash, Code),
    prepared: Vec<u8>,
    /// The account of the first that asked for it.
    account: Account,
    /// Time of the first request for it.
    since: Instant,
    /// Estimated processor time: what an attempt has taken if there was one.
    cost: Duration,
    /// Processor time of the attempt under way that its client has been charged.
    charged: Duration,
    /// It has taken longer than modules may in the quick lane.
    is_slow: bool,
    /// Processor time of attempts that were ended.
    lost: Duration,
    /// Who waits for it: at least one.
    tickets: Vec<u64>,
}

/// What is under way, and what is there already.
pub(super) struct Workshop {
    engines: Arc<Engines>,
    cache: Option<Cache>,
    keeper: Option<Keeper>,
    recipe: Recipe,
    programs: Programs,
    waiting: Vec<Job>,
    /// Modules being compiled, in the quick lane and in the slow one.
    lanes: [Option<(Job, Child)>; 2],
    /// Time at which the compilations of a client would be done, if that is not over.
    accounts: BTreeMap<Account, Instant>,
    /// What need not be tried again.
    refused: VecDeque<((Hash, Code), Refused)>,
    done: Vec<Compiled>,
    kept: Vec<Kept>,
    open: bool,
}

impl Workshop {
    /// One with nothing to do.
    pub(super) fn new(engines: Arc<Engines>, cache: Option<Cache>, recipe: Recipe) -> Workshop {
        Workshop {
            engines,
            cache,
            keeper: None,
            recipe,
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

    /// Lets somebody keep what is installed.
    pub(super) fn set_keeper(&mut self, keeper: Option<Keeper>) {
        self.keeper = keeper;
    }

    /// Whether it has not been told to end.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether a child runs, which has to be looked after.
    pub(super) fn is_busy(&self) -> bool {
        self.lanes.iter().any(Option::is_some)
    }

    /// What has come of what was asked since the last call.
    pub(super) fn take_done(&mut self) -> Vec<Compiled> {
        std::mem::take(&mut self.done)
    }

    /// What was kept since the last call, or not.
    pub(super) fn take_kept(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.kept)
    }

    /// Keeps something.
    pub(super) fn keep(&mut self, asked: ToKeeper) {
        let ticket = asked.ticket;
        let kept = self.keeper.as_mut().map(|keeper| keeper.keep(asked));
        let nowhere = || Kept { ticket, result: Err("this server keeps nothing".to_string()) };
        self.kept.push(kept.unwrap_or_else(nowhere));
    }

    /// Takes what it is asked; what is there already is given at once.
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

    /// Finds a module, or sees to it that it is compiled: then there is nothing to say yet.
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
        let kept = || self.keeper.as_ref().and_then(|keeper| keeper.module(hash));
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

    /// All that is under way or waits.
    fn jobs(&mut self) -> impl Iterator<Item = &mut Job> {
        let running = self.lanes.iter_mut().flatten().map(|(job, _)| job);
        running.chain(&mut self.waiting)
    }

    /// Whether one more module of so many bytes may wait. No client, and no user, has all places.
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

    /// Time at which a waiting module would be done if its client had the compiler for itself.
    fn finish(&self, job: &Job) -> Instant {
        let account = self.accounts.get(&job.account);
        account.map_or(job.since, |account| job.since.max(*account)) + job.cost
    }

    /// Charges clients for the time that their modules have taken by now in a lane.
    fn charge(&mut self, now: Instant, lane: usize) {
        let Some((job, child)) = &mut self.lanes[lane] else { return };
        let beyond = child.spent().saturating_sub(job.charged);
        job.charged += beyond;
        let account = self.accounts.entry(job.account).or_insert(now);
        *account = (*account).max(now) + beyond;
    }

    /// A program that is in memory or on disk.
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

    /// Takes somebody off the list. What nobody waits for is not compiled, or not any more.
    fn cancel(&mut self, ticket: u64) {
        let Some(job) = self.jobs().find(|job| job.tickets.contains(&ticket)) else {
            // It was answered meanwhile.
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

    /// Looks after the children, and begins with the next module where there is none.
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

    /// Takes a module out of the quick lane that has been there for too long.
    fn clear_quick(&mut self, now: Instant) {
        let most = self.recipe.quick_max;
        let others = self.waiting.iter().any(|job| !job.is_slow);
        let free = self.lanes[SLOW].is_none();
        let late = |(_, child): &mut (Job, Child)| {
            (child.spent() > most && (free || others)) || (others && child.age(now) > PATIENCE)
        };
        let Some((mut job, child)) = self.lanes[QUICK].take_if(late) else { return };
        job.is_slow = true;
        if free {
            self.lanes[SLOW] = Some((job, child));
            return;
        }
        let spent = child.spent();
        // Which ends it.
        drop(child);
        job.lost += spent;
        job.cost = job.cost.max(spent);
        job.charged = Duration::ZERO;
        self.waiting.push(job);
    }

    /// The module that would be done first of those that wait for a lane; of several the oldest.
    /// Its client is charged for the estimate.
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
        Child::start(&self.recipe, &self.engines, job.name, &job.prepared, now)
    }

    /// Makes a program of what a child has compiled, and keeps both.
    fn load(&mut self, code: Code, artifact: Artifact) -> Result<storelet::Program, Refused> {
        let program = self.engines.of(code).load(&artifact);
        let program = program.map_err(|error| Refused::Failed(format!("{error:#}")))?;
        self.programs.add((artifact.name(), code), program.clone());
        if let Some(cache) = &self.cache {
            cache.keep(artifact);
        }
        Ok(program)
    }

    /// Tells all that wait. The first of them pays.
    fn deliver(&mut self, job: &Job, result: Result<storelet::Program, Refused>, cpu: Duration) {
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

/// A module in one piece.
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
