//! The thread of the replicas of services: a node without connections, with the volumes of its
//! replicas and the links to their peers. It starts before the namespace is assembled, whose paths
//! may lead to replicas, and ends last of all, when home has closed them.

use crate::clock::wall_at_zero;
use crate::replica::kept::Opened;
use node::{Config, Kept, Node};
use reactor::{Form, Mailbox, World};
use services::Limits;
use std::process;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Settings.
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) settings: reactor::Config,
    pub(crate) config: Config,
    /// The replicas, with the numbers of their trees.
    pub(crate) replicas: Vec<(u16, Opened)>,
}

/// The running thread.
pub(crate) struct Hosting {
    mailbox: Mailbox,
    thread: JoinHandle<Result<(), String>>,
}

impl Hosting {
    /// Starts it beside home's world, which accepts messages to it from now on.
    pub(crate) fn start(plan: Plan, home: &mut World) -> Result<Hosting, String> {
        let ((informed, reports), (sender, mailboxes)) = (channel(), channel());
        let run = move || host(plan, informed, &mailboxes);
        let thread = thread::Builder::new().name("replicas".to_string()).spawn(run);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        let Ok(mailbox) = reports.recv() else {
            let result = thread.join().map_err(|_| "a thread panicked".to_string())?;
            return Err(result.err().unwrap_or_else(|| "a thread did not start".to_string()));
        };
        let _ = sender.send(vec![home.mailbox()]);
        home.set_mailboxes(vec![home.mailbox(), mailbox.clone()]);
        Ok(Hosting { mailbox, thread })
    }

    /// Returns its mailbox.
    pub(crate) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<(), String> {
        self.thread.join().map_err(|_| "a thread panicked".to_string())?
    }
}

/// Aborts the process if its thread panics: others would wait for its replies forever.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            process::exit(101);
        }
    }
}

fn host(
    plan: Plan,
    informed: Sender<Mailbox>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) -> Result<(), String> {
    let Plan { form, settings, config, replicas } = plan;
    let mut world = World::new(form, &settings)
        .map_err(|error| format!("cannot start the thread of replicas: {error}"))?;
    // Timestamps of files are equal in both nodes, whose clocks are independent.
    let (wall, date) = (wall_at_zero(&world), config.wall);
    let limits = Limits::shared_by(replicas.len());
    let adopt =
        |(tree, opened): (u16, Opened)| Ok((tree, opened.adopt(&mut world, (wall, date), limits)?));
    let replicas = replicas.into_iter().map(adopt).collect::<Result<Vec<_>, String>>()?;
    // A failed send means that the receiver has ended.
    let _ = informed.send(world.mailbox());
    drop(informed);
    let Ok(home) = mailboxes.recv() else { return Ok(()) };
    world.set_mailboxes(home);
    let _fuse = AbortOnPanic;
    let mut node = Node::replicas(config, replicas);
    // Its messages are home's, and clients' I/O is recorded there.
    node::run(&mut node, &mut world, &mut (), &mut |_| Kept::Ended);
    Ok(())
}
