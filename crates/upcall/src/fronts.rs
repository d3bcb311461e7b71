//! Other nodes of the process: fronts, threads with connections of their own, and workers, threads
//! that run storelets. Both send their requests for files to the node with the namespace.

use crate::hosting::AbortOnPanic;
use crate::log::ToLog;
use crate::ticker::Beat;
use node::{Config, Export, HOME, Kept, Node, Port};
use reactor::{Form, Mailbox, World};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Parameters common to all of them.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) settings: reactor::Config,
    pub(crate) config: Config,
    pub(crate) export: Export,
    /// Number of the first of them.
    pub(crate) first: usize,
    /// Number of fronts, followed by the workers.
    pub(crate) fronts: usize,
    pub(crate) workers: usize,
    /// Notifies the ticker of each slice of a storelet, if there are workers.
    pub(crate) beat: Option<Beat>,
}

impl Plan {
    /// Returns the numbers of all of them.
    pub(crate) fn numbers(&self) -> RangeInclusive<usize> {
        self.first..=self.first + self.fronts + self.workers - 1
    }
}

/// The running threads.
pub(crate) struct Fronts {
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Fronts {
    /// Starts them beside a world that listens at these ports. The mailboxes of `hosts` are
    /// numbered between home and the first of them, those of `others` after the last.
    pub(crate) fn start(
        plan: &Plan,
        world: &mut World,
        (hosts, others): (Vec<Mailbox>, Vec<Mailbox>),
    ) -> Result<(Fronts, Vec<Mailbox>), String> {
        let (informed, reports) = channel();
        let (mut threads, mut senders) = (Vec::new(), Vec::new());
        let before = [world.mailbox()].into_iter().chain(hosts);
        let mut mailboxes: BTreeMap<usize, Mailbox> = (HOME..plan.first).zip(before).collect();
        for number in plan.numbers() {
            let (sender, mailboxes) = channel();
            let (plan, informed) = (plan.clone(), informed.clone());
            let thread = if number < plan.first + plan.fronts {
                let sockets = shared(&plan, world)?;
                let run = move || front(number, plan, sockets, informed, &mailboxes);
                thread::Builder::new().name(format!("front-{number}")).spawn(run)
            } else {
                let run = move || worker(number, plan, informed, &mailboxes);
                thread::Builder::new().name(format!("worker-{number}")).spawn(run)
            };
            let thread = thread.map_err(|error| format!("no thread: {error}"))?;
            threads.push(thread);
            senders.push(sender);
        }
        drop(informed);
        mailboxes.extend(reports);
        if mailboxes.len() <= *plan.numbers().end() {
            // Threads that wait for the others' mailboxes learn that there are none.
            drop(senders);
            return Err(Fronts { threads }.failure());
        }
        let all: Vec<Mailbox> = mailboxes.into_values().chain(others).collect();
        world.set_mailboxes(all.clone());
        for sender in senders {
            // A front that has ended meanwhile returns the reason when it is joined.
            let _ = sender.send(all.clone());
        }
        Ok((Fronts { threads }, all))
    }

    /// Waits for all of them to end.
    pub(crate) fn join(self) -> Result<(), String> {
        for thread in self.threads {
            thread.join().map_err(|_| "a thread panicked".to_string())??;
        }
        Ok(())
    }

    fn failure(self) -> String {
        self.join().err().unwrap_or_else(|| "a thread did not start".to_string())
    }
}

/// Duplicates the listening sockets.
fn shared(plan: &Plan, world: &World) -> Result<Vec<OwnedFd>, String> {
    let ports = plan.config.ports.iter();
    let copies = ports.map(|port| world.share_listener(port.listener));
    copies.collect::<Result<_, _>>().map_err(|error| format!("cannot share a port: {error}"))
}

/// Runs one front.
fn front(
    number: usize,
    mut plan: Plan,
    sockets: Vec<OwnedFd>,
    informed: Sender<(usize, Mailbox)>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) -> Result<(), String> {
    let refuse = |error: std::io::Error| format!("cannot start front {number}: {error}");
    let mut world = World::new(plan.form, &plan.settings).map_err(refuse)?;
    for (port, socket) in plan.config.ports.iter_mut().zip(sockets) {
        let listener = world.adopt_listener(socket).map_err(refuse)?;
        *port = Port { listener, ..port.clone() };
    }
    // A failed send means that the receiver has ended.
    let _ = informed.send((number, world.mailbox()));
    drop(informed);
    let Ok(all) = mailboxes.recv() else { return Ok(()) };
    world.set_mailboxes(all);
    let _fuse = AbortOnPanic;
    let mut node = Node::front(number, plan.config, plan.export);
    let _ = reactor::take_short_slices();
    // Its clients' file I/O is recorded at home.
    node::run(&mut node, &mut world, &mut ToLog, &mut |_| Kept::Ended);
    Ok(())
}

/// Niceness of workers: all other threads take precedence.
const NICEST: i32 = 19;

/// Runs one worker.
fn worker(
    number: usize,
    plan: Plan,
    informed: Sender<(usize, Mailbox)>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) -> Result<(), String> {
    let refuse = |error: std::io::Error| format!("cannot start worker {number}: {error}");
    let mut world = World::new(plan.form, &plan.settings).map_err(refuse)?;
    reactor::stand_back(NICEST).map_err(refuse)?;
    let _ = informed.send((number, world.mailbox()));
    drop(informed);
    let Ok(all) = mailboxes.recv() else { return Ok(()) };
    world.set_mailboxes(all);
    let _fuse = AbortOnPanic;
    let mut node = Node::worker(number, plan.config, plan.export);
    let beat = plan.beat.expect("where there are workers somebody ticks");
    node::work(&mut node, &mut world, &mut || beat.beat());
    Ok(())
}
