//! A guest: a program that runs, as a coroutine.

use crate::budget::{Budget, Reason, Used};
use crate::door::{Door, Given, Got, Stream, Times, Want};
use crate::engine::{Pace, Program};
use crate::host::{Host, Stop};
use crate::wasi;
use base::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tree::{Ask, NodeId, Reply};
use wasmtime::{Store, Trap, UpdateDeadline};

/// How the end of a guest begins whose input cannot be opened.
pub(crate) const NO_INPUT: &str = "its input cannot be read";

/// Most fuel of a slice, where fuel is counted and slices are of time: about so much is not known
/// of a guest that is killed.
const FUEL_SLICE: u64 = 1_000_000;

/// Size of a page of memory, bytes.
const PAGE: u64 = 64 << 10;

/// How a program is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its arguments; the first is its name.
    pub args: Vec<Vec<u8>>,
    /// Its environment: `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The directory that it sees as `/`. The guest gives this reference back.
    pub root: NodeId,
    /// The file that is its input: a directory of which it gives nothing back, and the way from
    /// there. `None`: its input is fed to it.
    pub stdin: Option<(NodeId, Vec<u8>, bool)>,
    /// Whether it may change anything.
    pub writes: bool,
    /// Where its random numbers begin: what nobody can guess.
    pub seed: [u8; 32],
    /// What it may use.
    pub budget: Budget,
}

/// How a guest has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Exit(u32),
    /// By a mistake of its own.
    Trap(String),
    /// By us.
    Killed(Reason),
    /// Before its first instruction, for this cause.
    Refused(String),
}

/// Why a guest does not run on.
#[derive(Debug)]
pub enum Pause {
    /// Its slice is over.
    Slice,
    /// It waits for this.
    Wants(Want),
    /// It has ended.
    Ended(Ended),
}

/// What ends a guest from within a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    Own(u32),
    Ended(Reason),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Own(code) => write!(f, "exit code {code}"),
            Exit::Ended(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for Exit {}

/// A program that runs.
pub struct Guest {
    door: Door,
    budget: Budget,
    /// `None`: it has ended.
    run: Option<Pin<Box<dyn Future<Output = Ended> + Send>>>,
    /// It waits for something.
    waits: bool,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest(over: {}, waits: {})", self.is_over(), self.waits)
    }
}

impl Guest {
    /// A guest that has not begun.
    pub fn new(program: &Program, start: &Start) -> Guest {
        let door = Door::default();
        let host = Host::new(start, door.clone(), program.pace);
        let run = run(program.clone(), host, start.stdin.clone());
        let run = Some(Box::pin(run) as Pin<Box<_>>);
        Guest { door, budget: start.budget, run, waits: false }
    }

    /// Runs on until the slice is over, it wants something, or has ended.
    ///
    /// # Panics
    /// If it waits and gets nothing, gets something and does not wait, or has ended.
    pub fn resume(&mut self, got: Option<Got>, times: Times) -> Pause {
        assert_eq!(got.is_some(), self.waits, "who waits gets something");
        self.waits = false;
        // What was done for it meanwhile may have been too much.
        if let Some(reason) = self.budget.exceeded(&self.used()) {
            if let Some(Got::File(Ok(reply))) = &got {
                self.disclaim(reply);
            }
            return Pause::Ended(self.kill(reason));
        }
        {
            let mut state = self.door.state();
            state.times = times;
            state.used.slices += 1;
        }
        got.into_iter().for_each(|got| self.door.give(got));
        let run = self.run.as_mut().expect("it has not ended");
        match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => {
                self.run = None;
                return Pause::Ended(ended);
            }
            Poll::Pending => {}
        }
        if let Some(reason) = self.budget.exceeded(&self.used()) {
            return Pause::Ended(self.kill(reason));
        }
        match self.door.take_want() {
            Some(want) => {
                self.waits = true;
                Pause::Wants(want)
            }
            None => Pause::Slice,
        }
    }

    /// What it asks ahead.
    pub fn take_foreseen(&self) -> Option<Ask> {
        self.door.state().foreseen.take()
    }

    /// What it asked ahead has come; bytes are charged whether it takes them or not.
    pub fn arrive(&self, reply: Result<Reply, Error>) {
        let state = &mut *self.door.state();
        if let Ok(Reply::Contents(contents, _)) = &reply {
            state.used.read += contents.iter().map(|it| it.data.len() as u64).sum::<u64>();
        }
        state.arrived = Some(reply);
    }

    /// Ends it where it stands. What it waited for still comes, and is given to
    /// [`Guest::disclaim`].
    pub fn kill(&mut self, reason: Reason) -> Ended {
        self.run = None;
        Ended::Killed(reason)
    }

    /// What becomes of a pause when the slice before it was charged: nobody goes on whose budget
    /// that was too much for.
    pub(crate) fn settle(&mut self, pause: Pause) -> Pause {
        match (pause, self.budget.exceeded(&self.used())) {
            (Pause::Slice | Pause::Wants(_), Some(reason)) => Pause::Ended(self.kill(reason)),
            (pause, _) => pause,
        }
    }

    /// Ends it where it stands, without a word.
    pub fn stop(&mut self) {
        self.run = None;
    }

    /// It may say so much more, bytes, before it has to wait.
    pub fn allow(&self, bytes: usize) {
        self.door.state().room += bytes;
    }

    /// Takes this much of what it may say, if there is so much.
    pub fn spend(&self, bytes: usize) -> bool {
        let room = &mut self.door.state().room;
        let enough = *room >= bytes;
        *room -= if enough { bytes } else { 0 };
        enough
    }

    /// What it has said without having to wait.
    pub fn take_output(&self) -> Vec<(Stream, Vec<u8>)> {
        std::mem::take(&mut self.door.state().output)
    }

    /// The fuel it has used so far, where it runs by fuel.
    pub fn fuel(&self) -> u64 {
        self.door.state().used.fuel
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.run.is_none()
    }

    /// An answer has come for which it does not wait any more: what that hands out is given back.
    pub fn disclaim(&self, reply: &Reply) {
        self.door.state().given.extend(crate::wasi::handed_out(reply));
    }

    /// What it has given back since the last call.
    pub fn take_given(&self) -> Vec<Given> {
        std::mem::take(&mut self.door.state().given)
    }

    /// What it has used so far.
    pub fn used(&self) -> Used {
        self.door.state().used
    }

    /// Charges it with processor time, ns: its own, and that of others for it.
    pub fn charge(&self, own_ns: u64, served_ns: u64) {
        let used = &mut self.door.state().used;
        used.cpu_ns += own_ns;
        used.served_ns += served_ns;
    }
}

async fn run(program: Program, mut host: Host, stdin: Option<(NodeId, Vec<u8>, bool)>) -> Ended {
    if let Some((base, path, straight)) = stdin
        && let Err(stop) = wasi::open_input(&mut host, base, &path, straight).await
    {
        return match stop {
            Stop::Errno(errno) => Ended::Trap(format!("{NO_INPUT}: {}", errno.plain())),
            Stop::Ended(reason) => Ended::Killed(reason),
        };
    }
    let store = Store::new(program.instance.module().engine(), host);
    match perform(&program, &mut Counted(store)).await {
        Ok(()) => Ended::Exit(0),
        Err(error) => how(&error),
    }
}

/// A store that writes down how much fuel was used when it goes, however it does.
struct Counted(Store<Host>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Ok(left) = self.0.get_fuel() {
            let host = self.0.data();
            host.door.state().used.fuel = host.budget.fuel - left;
        }
    }
}

async fn perform(program: &Program, Counted(store): &mut Counted) -> wasmtime::Result<()> {
    store.limiter(|host| host);
    let fuel = store.data().budget.fuel;
    match program.pace {
        Pace::Ticks => by_ticks(store),
        Pace::Metered => {
            by_ticks(store);
            store.set_fuel(fuel)?;
            store.fuel_async_yield_interval(Some(FUEL_SLICE))?;
        }
        Pace::Fuel(slice) => {
            store.set_fuel(fuel)?;
            store.fuel_async_yield_interval(Some(slice))?;
        }
    }
    if !fits(program, &store.data().budget) {
        return Err(Exit::Ended(Reason::Memory).into());
    }
    let instance = program.instance.instantiate_async(&mut *store).await?;
    store.data_mut().memory = instance.get_memory(&mut *store, "memory");
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    start.call_async(&mut *store, ()).await
}

/// Ends slices by time.
fn by_ticks(store: &mut Store<Host>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
}

/// Whether what a program begins with is within its budget.
fn fits(program: &Program, budget: &Budget) -> bool {
    let needs = program.instance.module().resources_required();
    let memory = needs.max_initial_memory_size.unwrap_or(0).saturating_mul(PAGE);
    memory <= budget.memory && needs.max_initial_table_size.unwrap_or(0) <= budget.table
}

/// How it ended, from what the engine says.
fn how(error: &wasmtime::Error) -> Ended {
    match (error.downcast_ref::<Exit>(), error.downcast_ref::<Trap>()) {
        (Some(Exit::Own(code)), _) => Ended::Exit(*code),
        (Some(Exit::Ended(reason)), _) => Ended::Killed(*reason),
        (None, Some(Trap::OutOfFuel)) => Ended::Killed(Reason::Fuel),
        (None, Some(trap)) => Ended::Trap(trap.to_string()),
        (None, None) => Ended::Trap(format!("{error:#}")),
    }
}
