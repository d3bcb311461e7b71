//! The thread that has the replicas of services: a node without connections, with the volumes of
//! its replicas and the links to others of them. It is there before the name space is put together,
//! whose paths may lead to replicas, and ends when home has closed them, last of all.

use crate::replica::kept::Opened;
use crate::serve::wall_at_zero;
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
    /// Each with the number of its tree.
    pub(crate) replicas: Vec<(u16, Opened)>,
}

/// The thread, running.
pub(crate) struct Hosting {
    mailbox: Mailbox,
    thread: JoinHandle<Result<(), String>>,
}

impl Hosting {
    /// Starts it beside home's world, which takes letters to it from now on.
    pub(crate) fn start(plan: Plan, home: &mut World) -> Result<Hosting, String> {
        let ((told, tells), (sender, mailboxes)) = (channel(), channel());
        let run = move || host(plan, told, &mailboxes);
        let thread = thread::Builder::new().name("replicas".to_string()).spawn(run);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        let Ok(mailbox) = tells.recv() else {
            let result = thread.join().map_err(|_| "a thread panicked".to_string())?;
            return Err(result.err().unwrap_or_else(|| "a thread did not start".to_string()));
        };
        let _ = sender.send(vec![home.mailbox()]);
        home.set_mailboxes(vec![home.mailbox(), mailbox.clone()]);
        Ok(Hosting { mailbox, thread })
    }

    /// Mailbox for letters to it.
    pub(crate) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<(), String> {
        self.thread.join().map_err(|_| "a thread panicked".to_string())?
    }
}

/// Ends the process if its thread panics: others would wait for its answers for ever.
pub(crate) struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        if thread::panicking() {
            process::exit(101);
        }
    }
}

fn host(
    plan: Plan,
    told: Sender<Mailbox>,
    mailboxes: &Receiver<Vec<Mailbox>>,
) -> Result<(), String> {
    let Plan { form, settings, config, replicas } = plan;
    let mut world = World::new(form, &settings)
        .map_err(|error| format!("cannot start the thread of replicas: {error}"))?;
    // Files of one date look alike in both nodes; clocks are each node's own.
    let (wall, date) = (wall_at_zero(&world), config.wall);
    let limits = Limits::shared_by(replicas.len());
    let adopt =
        |(tree, opened): (u16, Opened)| Ok((tree, opened.adopt(&mut world, (wall, date), limits)?));
    let replicas = replicas.into_iter().map(adopt).collect::<Result<Vec<_>, String>>()?;
    // Who does not listen any more has ended.
    let _ = told.send(world.mailbox());
    drop(told);
    let Ok(home) = mailboxes.recv() else { return Ok(()) };
    world.set_mailboxes(home);
    let _fuse = Fuse;
    let mut node = Node::replicas(config, replicas);
    // Its news are home's, and what clients ask is recorded there.
    node::run(&mut node, &mut world, &mut (), &mut |_| Kept::Ended);
    Ok(())
}
