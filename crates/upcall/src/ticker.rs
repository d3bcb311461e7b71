//! Preemption of storelets: a thread that ticks while any of them runs.
#![allow(clippy::disallowed_methods, reason = "slices are of real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;
use wasi::Engines;

/// Half of the maximum slice: a slice that begins just after a tick lasts two.
const TICK: Duration = Duration::from_micros(500);

/// Number of idle ticks after which it sleeps until the next slice.
const VAIN_MAX: u32 = 100;

#[derive(Debug, Default)]
struct State {
    /// Slices begun since the last tick.
    beats: AtomicU32,
    asleep: AtomicBool,
    over: AtomicBool,
}

/// The running thread.
pub(crate) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

/// Notifies the ticker of the beginning of a slice.
#[derive(Clone)]
pub(crate) struct Beat {
    state: Arc<State>,
    thread: Thread,
}

impl Beat {
    /// Records the beginning of a slice.
    pub(crate) fn beat(&self) {
        self.state.beats.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl Ticker {
    pub(crate) fn start(engines: Arc<Engines>) -> Result<Ticker, String> {
        let state = Arc::new(State::default());
        let its = Arc::clone(&state);
        let thread = thread::Builder::new().name("ticker".to_string());
        let thread = thread.spawn(move || its.tick(&engines));
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        Ok(Ticker { state, thread: Some(thread) })
    }

    pub(crate) fn beat(&self) -> Beat {
        let thread = self.thread.as_ref().expect("it is running").thread().clone();
        Beat { state: Arc::clone(&self.state), thread }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

impl State {
    fn tick(&self, engines: &Engines) {
        let mut vain = 0;
        while !self.over.load(Ordering::SeqCst) {
            thread::sleep(TICK);
            engines.tick();
            vain = if self.beats.swap(0, Ordering::SeqCst) > 0 { 0 } else { vain + 1 };
            if vain > VAIN_MAX {
                self.rest();
            }
        }
    }

    /// Sleeps until a slice begins.
    fn rest(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        while self.asleep.load(Ordering::SeqCst)
            && self.beats.load(Ordering::SeqCst) == 0
            && !self.over.load(Ordering::SeqCst)
        {
            thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}
