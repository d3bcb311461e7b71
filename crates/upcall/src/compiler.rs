//! The compiler: a thread that makes programs of modules that clients send.
//!
//! A module goes through five hands, and the first that has an answer gives it: the memory of
//! loaded programs, the cache on disk, the looking at it before (`storelet::module`), and then
//! children of this very binary, at most two at once, each a process with hard limits of its own
//! (`inside`), whose output is loaded, authenticated and kept.
//!
//! It is asked and answers as nodes of the process do, by parcels: [`ToCompiler`] into its mailbox,
//! [`storelet::compile::Compiled`] into that of the node that has the name space. As it may wait
//! for a disk, it also keeps what is installed ([`keeper`]).

mod cache;
mod check;
mod child;
mod filter;
mod inside;
pub(crate) mod keeper;
mod programs;
mod workshop;

pub(crate) use check::{CompileModule, run};

use base::Reactor as _;
use base::op::{Done, Op, Parcel};
use cache::Cache;
use child::Recipe;
use keeper::Keeper;
use node::HOME;
use reactor::{Form, Mailbox, World};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use storelet::compile::ToCompiler;
use storelet::standing::ToKeeper;
use storelet::{Crossing, Engines};
use workshop::Workshop;

/// Niceness of the thread: validating modules of megabytes, and writing what is installed, must not
/// delay the file service.
const NICENESS: i32 = 10;

/// How often a child that compiles is looked after.
const LOOK: Duration = Duration::from_millis(2);

/// The thread, running.
pub(crate) struct Compiler {
    mailbox: Mailbox,
    mailboxes: Sender<Vec<Mailbox>>,
    thread: JoinHandle<()>,
}

impl Compiler {
    /// Starts it, with a directory to keep what was compiled, if there is one. It takes up work
    /// once it knows the mailboxes.
    pub(crate) fn start(engines: Arc<Engines>, cache: Option<PathBuf>) -> Result<Compiler, String> {
        Compiler::with(Compiler::workshop(engines, cache)?)
    }

    /// The same, with somebody who keeps what is installed.
    pub(crate) fn start_with(
        engines: Arc<Engines>,
        cache: Option<PathBuf>,
        keeper: &mut Option<Keeper>,
    ) -> Result<Compiler, String> {
        let mut workshop = Compiler::workshop(engines, cache)?;
        workshop.set_keeper(keeper.take());
        Compiler::with(workshop)
    }

    fn workshop(engines: Arc<Engines>, cache: Option<PathBuf>) -> Result<Workshop, String> {
        let cache = cache.map(|dir| Cache::open(&dir)).transpose()?;
        Ok(Workshop::new(engines, cache, Recipe::own()))
    }

    fn with(workshop: Workshop) -> Result<Compiler, String> {
        let (told, tells) = channel();
        let (sender, mailboxes) = channel();
        let run = move || one(workshop, told, &mailboxes);
        let thread = std::thread::Builder::new().name("compiler".to_string());
        let thread = thread.spawn(run).map_err(|error| format!("no thread: {error}"))?;
        let mailbox = tells.recv().map_err(|_| "the compiler did not start".to_string())??;
        Ok(Compiler { mailbox, mailboxes: sender, thread })
    }

    /// Where it takes what it is asked.
    pub(crate) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Tells it where each node takes what is left for it; it begins.
    pub(crate) fn set_mailboxes(&self, mailboxes: Vec<Mailbox>) {
        // If it has ended, whoever joins it hears why.
        let _ = self.mailboxes.send(mailboxes);
    }

    /// Waits for its end, which [`ToCompiler::End`] brings about.
    pub(crate) fn join(self) -> Result<(), String> {
        let Compiler { mailboxes, thread, .. } = self;
        // One that never began hears that it will not.
        drop(mailboxes);
        thread.join().map_err(|_| "the compiler panicked".to_string())
    }
}

/// The thread, from its beginning to its end.
fn one(
    mut workshop: Workshop,
    told: Sender<Result<Mailbox, String>>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) {
    let settings =
        reactor::Config { threads_max: 1, spin: Duration::ZERO, ..reactor::Config::default() };
    let made = World::new(Form::Threads, &settings);
    let backed = reactor::stand_back(NICENESS);
    let mut world = match backed.and(made) {
        Ok(world) => world,
        Err(error) => {
            let _ = told.send(Err(format!("cannot start the compiler: {error}")));
            return;
        }
    };
    // Who does not listen any more has ended.
    let _ = told.send(Ok(world.mailbox()));
    drop(told);
    let Ok(all) = mailboxes.recv() else { return };
    world.set_mailboxes(all);
    let (mut events, mut to_keep) = (Vec::new(), Vec::new());
    while workshop.is_open() {
        let deadline = workshop.is_busy().then(|| world.now() + LOOK);
        world.wait(deadline, &mut events);
        for event in events.drain(..) {
            let Done::Parcel(Parcel(parcel)) = event.done else { continue };
            match parcel.downcast::<ToCompiler>().map_err(|other| other.downcast::<ToKeeper>()) {
                Ok(message) => workshop.take(world.now(), *message),
                Err(Ok(asked)) => to_keep.push(asked),
                Err(Err(_)) => {}
            }
        }
        workshop.look(world.now());
        for compiled in workshop.take_done() {
            world.submit(Op::Post { to: HOME, parcel: Crossing::Compiled(compiled).parcel() });
        }
        // Who waits for a program does not wait for disks.
        to_keep.drain(..).for_each(|asked| workshop.keep(*asked));
        for kept in workshop.take_kept() {
            world.submit(Op::Post { to: HOME, parcel: Crossing::Kept(kept).parcel() });
        }
    }
}
