//! What there is to compile, in which order, for whom.

use super::cache::Cache;
use super::child::{Child, Recipe};
use super::keeper::Keeper;
use super::programs::Programs;
use base::{Buf, Instant};
use std::collections::VecDeque;
use std::sync::Arc;
use storelet::compile::{Code, Compiled, Fresh, Hash, Module, Refused, ToCompiler};
use storelet::module::{SENT_MAX, prepare};
use storelet::standing::{Kept, ToKeeper};
use storelet::{Artifact, Engines};

/// Most modules that wait, and of one user; and most bytes of all together.
const JOBS_MAX: usize = 64;
const JOBS_OF_ONE: usize = 16;
const BYTES_MAX: usize = 128 << 20;

/// How many modules are remembered that could not be compiled.
const REFUSED_MAX: usize = 256;

/// A module that is to be compiled.
struct Job {
    name: (Hash, Code),
    prepared: Vec<u8>,
    /// Who asked for it first.
    user: u32,
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
    waiting: VecDeque<Job>,
    running: Option<(Job, Child)>,
    /// Whose module was compiled last.
    last: u32,
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
            waiting: VecDeque::new(),
            running: None,
            last: 0,
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
        self.running.is_some()
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
    pub(super) fn take(&mut self, message: ToCompiler) {
        match message {
            ToCompiler::Compile { ticket, module, code, user } => {
                match self.ask((ticket, user), module, code) {
                    Ok(None) => {}
                    Ok(Some(fresh)) => self.answer(ticket, Ok(fresh)),
                    Err(refused) => self.answer(ticket, Err(refused)),
                }
            }
            ToCompiler::Cancel(ticket) => self.cancel(ticket),
            ToCompiler::End => {
                self.open = false;
                let running = self.running.take().map(|(job, _killed)| job);
                let jobs: Vec<Job> = running.into_iter().chain(self.waiting.drain(..)).collect();
                for ticket in jobs.into_iter().flat_map(|job| job.tickets) {
                    self.answer(ticket, Err(Refused::Cancelled));
                }
            }
        }
    }

    /// Finds a module, or sees to it that it is compiled: then there is nothing to say yet.
    fn ask(
        &mut self,
        (ticket, user): (u64, u32),
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
        let running = self.running.iter_mut().map(|(job, _)| job);
        if let Some(job) = running.chain(&mut self.waiting).find(|job| job.name == name) {
            job.tickets.push(ticket);
            return Ok(None);
        }
        let kept = || self.keeper.as_ref().and_then(|keeper| keeper.module(hash));
        let prepared = prepare(&sent.or_else(kept).ok_or(Refused::Unknown)?)?;
        let bytes: usize = self.waiting.iter().map(|job| job.prepared.len()).sum();
        let own = self.waiting.iter().filter(|job| job.user == user).count();
        let many = self.waiting.len() == JOBS_MAX || own == JOBS_OF_ONE;
        if many || bytes + prepared.len() > BYTES_MAX {
            let why = "too many modules wait to be compiled: try again in a minute";
            return Err(Refused::Failed(why.to_string()));
        }
        self.waiting.push_back(Job { name, prepared, user, tickets: vec![ticket] });
        Ok(None)
    }

    /// A program that is in memory or on disk.
    fn find(&mut self, (hash, code): (Hash, Code)) -> Option<Fresh> {
        let program = self.programs.find((hash, code)).or_else(|| {
            let engine = self.engines.of(code);
            let artifact = self.cache.as_ref()?.find(hash, engine.compatibility())?;
            let program = engine.load(&artifact).ok()?;
            self.programs.keep((hash, code), program.clone(), artifact.code_len());
            Some(program)
        });
        Some(Fresh { hash, code, program: program?, was_there: true, cpu_ns: 0 })
    }

    /// Takes somebody off the list. What nobody waits for is not compiled, or not any more.
    fn cancel(&mut self, ticket: u64) {
        let running = self.running.iter_mut().map(|(job, _)| job);
        let Some(job) = running.chain(&mut self.waiting).find(|job| job.tickets.contains(&ticket))
        else {
            // It was answered meanwhile.
            return;
        };
        job.tickets.retain(|other| *other != ticket);
        self.waiting.retain(|job| !job.tickets.is_empty());
        // Dropping a child kills it.
        self.running.take_if(|(job, _)| job.tickets.is_empty());
        self.answer(ticket, Err(Refused::Cancelled));
    }

    /// Looks after the child, and begins with the next module if there is none.
    pub(super) fn look(&mut self, now: Instant) {
        let over = self.running.as_mut().and_then(|(_, child)| child.look(now));
        if let Some(finished) = over
            && let Some((job, _)) = self.running.take()
        {
            let result = finished.result.and_then(|artifact| self.load(job.name.1, artifact));
            self.deliver(&job, result, finished.cpu_ns);
        }
        while self.running.is_none()
            && let Some(job) = self.next()
        {
            match self.start(&job, now) {
                Ok(child) => self.running = Some((job, child)),
                Err(why) => self.deliver(&job, Err(Refused::Failed(why)), 0),
            }
        }
    }

    /// The oldest module of the user whose turn it is: they come round by their numbers.
    fn next(&mut self) -> Option<Job> {
        let turn = |(at, job): &(usize, &Job)| (job.user <= self.last, job.user, *at);
        let (at, _) = self.waiting.iter().enumerate().min_by_key(turn)?;
        let job = self.waiting.remove(at)?;
        self.last = job.user;
        Some(job)
    }

    fn start(&self, job: &Job, now: Instant) -> Result<Child, String> {
        let (hash, code) = job.name;
        let made = (hash, code, self.engines.of(code).compatibility());
        Child::start(&self.recipe, made, &job.prepared, now)
    }

    /// Makes a program of what a child has compiled, and keeps both.
    fn load(&mut self, code: Code, artifact: Artifact) -> Result<storelet::Program, Refused> {
        let program = self.engines.of(code).load(&artifact);
        let program = program.map_err(|error| Refused::Failed(format!("{error:#}")))?;
        self.programs.keep((artifact.name(), code), program.clone(), artifact.code_len());
        if let Some(cache) = &self.cache {
            cache.keep(artifact);
        }
        Ok(program)
    }

    /// Tells all that wait. The first of them pays.
    fn deliver(&mut self, job: &Job, result: Result<storelet::Program, Refused>, cpu_ns: u64) {
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
