//! The other nodes of the process: threads with connections of their own, which send what is asked
//! of them to the node that has the name space.

use node::{Config, Export, HOME, Kept, Node, Port};
use reactor::{Form, Mailbox, World};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What every front is made with.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) settings: reactor::Config,
    pub(crate) config: Config,
    pub(crate) export: Export,
}

/// The threads, running.
pub(crate) struct Fronts {
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Fronts {
    /// Starts `count` fronts beside a world that listens at these ports.
    pub(crate) fn start(plan: &Plan, count: usize, world: &mut World) -> Result<Fronts, String> {
        let (told, tells) = channel();
        let (mut threads, mut senders) = (Vec::new(), Vec::new());
        for number in HOME + 1..=count {
            let (sender, mailboxes) = channel();
            let sockets = shared(plan, world)?;
            let (plan, told) = (plan.clone(), told.clone());
            let run = move || one(number, plan, sockets, told, &mailboxes);
            let thread = std::thread::Builder::new().name(format!("front-{number}"));
            let thread = thread.spawn(run).map_err(|error| format!("no thread: {error}"))?;
            threads.push(thread);
            senders.push(sender);
        }
        drop(told);
        let mut mailboxes = BTreeMap::from([(HOME, world.mailbox())]);
        mailboxes.extend(tells);
        if mailboxes.len() <= count {
            // Those that wait for the others' hear that there are none.
            drop(senders);
            return Err(Fronts { threads }.failure());
        }
        let all: Vec<Mailbox> = mailboxes.into_values().collect();
        world.set_mailboxes(all.clone());
        for sender in senders {
            // A front that has ended meanwhile says why when it is joined.
            let _ = sender.send(all.clone());
        }
        Ok(Fronts { threads })
    }

    /// Waits for all of them to end.
    pub(crate) fn join(self) -> Result<(), String> {
        for thread in self.threads {
            thread.join().map_err(|_| "a front panicked".to_string())??;
        }
        Ok(())
    }

    fn failure(self) -> String {
        self.join().err().unwrap_or_else(|| "a front did not start".to_string())
    }
}

/// Copies of the listening sockets.
fn shared(plan: &Plan, world: &World) -> Result<Vec<OwnedFd>, String> {
    let ports = plan.config.ports.iter();
    let copies = ports.map(|port| world.share_listener(port.listener));
    copies.collect::<Result<_, _>>().map_err(|error| format!("cannot share a port: {error}"))
}

/// One front, from its beginning to its end.
fn one(
    number: usize,
    mut plan: Plan,
    sockets: Vec<OwnedFd>,
    told: Sender<(usize, Mailbox)>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) -> Result<(), String> {
    let refuse = |error: std::io::Error| format!("cannot start front {number}: {error}");
    let mut world = World::new(plan.form, &plan.settings).map_err(refuse)?;
    for (port, socket) in plan.config.ports.iter_mut().zip(sockets) {
        let listener = world.adopt_listener(socket).map_err(refuse)?;
        *port = Port { listener, ..port.clone() };
    }
    // Who does not listen any more has ended.
    let _ = told.send((number, world.mailbox()));
    drop(told);
    let Ok(all) = mailboxes.recv() else { return Ok(()) };
    world.set_mailboxes(all);
    let mut node = Node::front(number, plan.config, plan.export);
    // A front has no servers to tell of, and what its clients ask is recorded at home.
    node::run(&mut node, &mut world, &mut |_| {}, &mut |_| Kept::Ended);
    Ok(())
}
