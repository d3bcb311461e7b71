//! The compiler: a thread that compiles modules of clients into programs.
//!
//! A module passes five stages, and the first with a result ends the search: the memory of loaded
//! programs, the cache on disk, the check in advance (`wasi::module`), and then children of
//! this very binary, at most two at once, each a process with hard limits of its own (`inside`),
//! whose output is loaded, authenticated and kept.
//!
//! It communicates by envelopes, as nodes of the process do: [`ToCompiler`] to its mailbox,
//! [`storelet::compile::Compiled`] to that of the node with the namespace. As it may block on a
//! disk, it also stores installed storelets ([`state_store`]).

mod cache;
mod check;
mod child;
mod compile_queue;
mod filter;
mod inside;
mod programs;
pub(crate) mod state_store;

pub(crate) use check::{CompileModule, run};

use base::Reactor as _;
use base::op::{Done, Envelope, Op};
use cache::Cache;
use child::ChildCommand;
use compile_queue::CompileQueue;
use node::HOME;
use reactor::{Form, Mailbox, World};
use state_store::StateStore;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use storelet::Crossing;
use storelet::compile::ToCompiler;
use storelet::standing::ToStateStore;
use wasi::Engines;

/// Niceness of the thread: validating modules of megabytes, and writing installed storelets, must
/// not delay the file service.
const NICENESS: i32 = 10;

/// Polling interval of a compiling child.
const LOOK: Duration = Duration::from_millis(2);

/// The running thread.
pub(crate) struct Compiler {
    mailbox: Mailbox,
    mailboxes: Sender<Vec<Mailbox>>,
    thread: JoinHandle<()>,
}

impl Compiler {
    /// Starts it, with an optional cache directory of compiled modules. It begins to work once it
    /// knows the mailboxes.
    pub(crate) fn start(engines: Arc<Engines>, cache: Option<PathBuf>) -> Result<Compiler, String> {
        Compiler::with(Compiler::compile_queue(engines, cache)?)
    }

    /// Like `start`, with a state store for installed storelets.
    pub(crate) fn start_with(
        engines: Arc<Engines>,
        cache: Option<PathBuf>,
        state_store: &mut Option<StateStore>,
    ) -> Result<Compiler, String> {
        let mut compile_queue = Compiler::compile_queue(engines, cache)?;
        compile_queue.set_state_store(state_store.take());
        Compiler::with(compile_queue)
    }

    fn compile_queue(
        engines: Arc<Engines>,
        cache: Option<PathBuf>,
    ) -> Result<CompileQueue, String> {
        let cache = cache.map(|dir| Cache::open(&dir)).transpose()?;
        Ok(CompileQueue::new(engines, cache, ChildCommand::own()))
    }

    fn with(compile_queue: CompileQueue) -> Result<Compiler, String> {
        let (informed, reports) = channel();
        let (sender, mailboxes) = channel();
        let run = move || one(compile_queue, informed, &mailboxes);
        let thread = std::thread::Builder::new().name("compiler".to_string());
        let thread = thread.spawn(run).map_err(|error| format!("no thread: {error}"))?;
        let mailbox = reports.recv().map_err(|_| "the compiler did not start".to_string())??;
        Ok(Compiler { mailbox, mailboxes: sender, thread })
    }

    /// Returns the mailbox of its requests.
    pub(crate) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Passes it the mailboxes of all nodes, after which it begins.
    pub(crate) fn set_mailboxes(&self, mailboxes: Vec<Mailbox>) {
        // If it has ended, joining it returns the reason.
        let _ = self.mailboxes.send(mailboxes);
    }

    /// Waits for its end, which [`ToCompiler::End`] causes.
    pub(crate) fn join(self) -> Result<(), String> {
        let Compiler { mailboxes, thread, .. } = self;
        // Ends one that never began.
        drop(mailboxes);
        thread.join().map_err(|_| "the compiler panicked".to_string())
    }
}

/// Runs the thread.
fn one(
    mut compile_queue: CompileQueue,
    informed: Sender<Result<Mailbox, String>>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) {
    let settings =
        reactor::Config { threads_max: 1, spin: Duration::ZERO, ..reactor::Config::default() };
    let made = World::new(Form::Threads, &settings);
    let backed = reactor::stand_back(NICENESS);
    let mut world = match backed.and(made) {
        Ok(world) => world,
        Err(error) => {
            let _ = informed.send(Err(format!("cannot start the compiler: {error}")));
            return;
        }
    };
    // A failed send means that the receiver has ended.
    let _ = informed.send(Ok(world.mailbox()));
    drop(informed);
    let Ok(all) = mailboxes.recv() else { return };
    world.set_mailboxes(all);
    let (mut events, mut to_keep) = (Vec::new(), Vec::new());
    while compile_queue.is_open() {
        let deadline = compile_queue.is_busy().then(|| world.now() + LOOK);
        world.wait(deadline, &mut events);
        for event in events.drain(..) {
            let Done::Envelope(Envelope(envelope)) = event.done else { continue };
            match envelope
                .downcast::<ToCompiler>()
                .map_err(|other| other.downcast::<ToStateStore>())
            {
                Ok(message) => compile_queue.take(world.now(), *message),
                Err(Ok(requested)) => to_keep.push(requested),
                Err(Err(_)) => {}
            }
        }
        compile_queue.look(world.now());
        for compiled in compile_queue.take_done() {
            world.submit(Op::Post { to: HOME, envelope: Crossing::Compiled(compiled).envelope() });
        }
        // Completed programs are delivered before disk writes.
        to_keep.drain(..).for_each(|requested| compile_queue.keep(*requested));
        for kept in compile_queue.take_kept() {
            world.submit(Op::Post { to: HOME, envelope: Crossing::Kept(kept).envelope() });
        }
    }
}
