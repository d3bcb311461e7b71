//! A guest: a running program, as a coroutine.

use crate::budget::{Budget, Pace, Reason, Used};
use crate::calls;
use crate::engine::Program;
use crate::host::{Exit, Host, Start, Stop};
use crate::host_channel::{Given, Got, HostChannel, Stream, Times, Want};
use base::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tree::{Ask, NodeId, Reply};
use wasmtime::{Store, Trap, UpdateDeadline};

/// Prefix of the reason for guests whose input cannot be opened.
pub(crate) const NO_INPUT: &str = "its input cannot be read";

/// Maximum fuel of a slice, where fuel is metered and slices are limited by time: up to this amount
/// is missing in the report of a killed guest.
const FUEL_SLICE: u64 = 1_000_000;

/// Size of a page of WebAssembly memory, bytes.
const PAGE: u64 = 64 << 10;

/// Outcome of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Exit with this code.
    Exit(u32),
    /// Trap.
    Trap(String),
    /// Killed by the server.
    Killed(Reason),
    /// Failed before its first instruction, for this reason.
    Refused(String),
}

/// Reason why a guest is paused.
#[derive(Debug)]
pub enum Pause {
    /// End of the slice.
    Slice,
    /// Waiting for this event.
    Wants(Want),
    /// End of the guest.
    Ended(Ended),
}

/// A running program.
pub struct Guest {
    channel: HostChannel,
    budget: Budget,
    /// The coroutine; `None` after the end.
    run: Option<Pin<Box<dyn Future<Output = Ended> + Send>>>,
    /// Whether the guest waits for an event.
    waits: bool,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest(over: {}, waits: {})", self.is_over(), self.waits)
    }
}

impl Guest {
    /// Creates a guest that has not begun.
    pub fn new(program: &Program, start: &Start) -> Guest {
        let channel = HostChannel::default();
        let host = Host::new(start, channel.clone(), program.pace);
        let run = run(program.clone(), host, start.stdin.clone());
        let run = Some(Box::pin(run) as Pin<Box<_>>);
        Guest { channel, budget: start.budget, run, waits: false }
    }

    /// Runs until the end of the slice, the next wait, or the end of the guest.
    ///
    /// # Panics
    /// If it waits and receives nothing, receives something without waiting, or has ended.
    pub fn resume(&mut self, got: Option<Got>, times: Times) -> Pause {
        assert_eq!(got.is_some(), self.waits, "a waiting guest receives a result");
        self.waits = false;
        // Work on its behalf meanwhile may have exceeded the budget.
        if let Some(reason) = self.budget.exceeded(&self.used()) {
            if let Some(Got::File(Ok(reply))) = &got {
                self.disclaim(reply);
            }
            return Pause::Ended(self.kill(reason));
        }
        {
            let mut state = self.channel.state();
            state.times = times;
            state.used.slices += 1;
        }
        got.into_iter().for_each(|got| self.channel.give(got));
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
        match self.channel.take_want() {
            Some(want) => {
                self.waits = true;
                Pause::Wants(want)
            }
            None => Pause::Slice,
        }
    }

    /// Takes the prefetch request to send.
    pub fn take_foreseen(&self) -> Option<Ask> {
        self.channel.state().foreseen.take()
    }

    /// Delivers the reply to a prefetch; the bytes are charged whether they are used or not.
    pub fn arrive(&self, reply: Result<Reply, Error>) {
        let state = &mut *self.channel.state();
        state.used.read += match &reply {
            Ok(Reply::Contents(contents, _)) => {
                contents.iter().map(|it| it.data.len() as u64).sum::<u64>()
            }
            Ok(Reply::Data(data)) => data.len() as u64,
            Ok(Reply::Pieces(pieces)) => pieces.iter().map(|it| it.len() as u64).sum(),
            Ok(_) | Err(_) => 0,
        };
        state.arrived = Some(reply);
    }

    /// Kills the guest at its present point. The reply to its outstanding request is passed to
    /// [`Guest::disclaim`] when it arrives.
    pub fn kill(&mut self, reason: Reason) -> Ended {
        self.run = None;
        Ended::Killed(reason)
    }

    /// Replaces a pause by the end of the guest if the slice charged before exceeded the budget.
    pub fn settle(&mut self, pause: Pause) -> Pause {
        match (pause, self.budget.exceeded(&self.used())) {
            (Pause::Slice | Pause::Wants(_), Some(reason)) => Pause::Ended(self.kill(reason)),
            (pause, _) => pause,
        }
    }

    /// Ends the guest at its present point, without a reason.
    pub fn stop(&mut self) {
        self.run = None;
    }

    /// Grants room for this many more bytes of output.
    pub fn allow(&self, bytes: usize) {
        self.channel.state().room += bytes;
    }

    /// Takes this amount of room for output, if available.
    pub fn spend(&self, bytes: usize) -> bool {
        let room = &mut self.channel.state().room;
        let enough = *room >= bytes;
        *room -= if enough { bytes } else { 0 };
        enough
    }

    /// Takes the output written without waiting.
    pub fn take_output(&self) -> Vec<(Stream, Vec<u8>)> {
        std::mem::take(&mut self.channel.state().output)
    }

    /// Returns the fuel used so far, where fuel is metered.
    pub fn fuel(&self) -> u64 {
        self.channel.state().used.fuel
    }

    /// Returns whether the guest has ended.
    pub fn is_over(&self) -> bool {
        self.run.is_none()
    }

    /// Discards a late reply: the resources it contains are released.
    pub fn disclaim(&self, reply: &Reply) {
        self.channel.state().given.extend(crate::calls::handed_out(reply));
    }

    /// Takes the resources released since the last call.
    pub fn take_given(&self) -> Vec<Given> {
        std::mem::take(&mut self.channel.state().given)
    }

    /// Returns the usage so far.
    pub fn used(&self) -> Used {
        self.channel.state().used
    }

    /// Charges processor time, ns: the guest's own, and that of others on its behalf.
    pub fn charge(&self, own_ns: u64, served_ns: u64) {
        let used = &mut self.channel.state().used;
        used.cpu_ns += own_ns;
        used.served_ns += served_ns;
    }
}

async fn run(program: Program, mut host: Host, stdin: Option<(NodeId, Vec<u8>, bool)>) -> Ended {
    if let Some((base, path, straight)) = stdin
        && let Err(stop) = calls::open_input(&mut host, base, &path, straight).await
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

/// A store that records the fuel used when it is dropped, for whatever reason.
struct Counted(Store<Host>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Ok(left) = self.0.get_fuel() {
            let host = self.0.data();
            host.channel.state().used.fuel = host.budget.fuel - left;
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

/// Configures slices limited by time.
fn by_ticks(store: &mut Store<Host>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
}

/// Returns whether the initial memory and tables of a program are within its budget.
fn fits(program: &Program, budget: &Budget) -> bool {
    let needs = program.instance.module().resources_required();
    let memory = needs.max_initial_memory_size.unwrap_or(0).saturating_mul(PAGE);
    memory <= budget.memory && needs.max_initial_table_size.unwrap_or(0) <= budget.table
}

/// Converts an error of the engine to the outcome of the guest.
fn how(error: &wasmtime::Error) -> Ended {
    match (error.downcast_ref::<Exit>(), error.downcast_ref::<Trap>()) {
        (Some(Exit::Own(code)), _) => Ended::Exit(*code),
        (Some(Exit::Ended(reason)), _) => Ended::Killed(*reason),
        (None, Some(Trap::OutOfFuel)) => Ended::Killed(Reason::Fuel),
        (None, Some(trap)) => Ended::Trap(trap.to_string()),
        (None, None) => Ended::Trap(format!("{error:#}")),
    }
}
