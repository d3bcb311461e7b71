//! One process in the world: a node and its resources.

use crate::world::{Host as Number, World, brought, name_op, own_op};
use base::op::{Event, File, Listener, Op};
use base::{Automaton, Instant, Reactor};
use node::{Kept, Node};
use std::collections::BTreeSet;

/// The process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) number: Number,
    pub(crate) listeners: Vec<Listener>,
    /// Its open files and handles.
    pub(crate) files: BTreeSet<File>,
    events: Vec<Event>,
    is_new: bool,
}

impl Host {
    /// Returns a process before its first turn.
    pub(crate) fn new(node: Node, number: u16, listeners: Vec<Listener>) -> Host {
        let (files, events) = (BTreeSet::new(), Vec::new());
        Host { node, number: Number(number), listeners, files, events, is_new: true }
    }

    /// Queues an event for it.
    pub(crate) fn take(&mut self, event: Event) {
        self.files.extend(brought(&event.done));
        let id = if event.id == base::op::OpId::UNREQUESTED { event.id } else { own_op(event.id) };
        self.events.push(Event { id, ..event });
    }

    /// Returns events queued and not delivered.
    pub(crate) fn unreported(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Returns whether it has work.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let due = self.node.deadline().is_some_and(|at| at <= now);
        !self.node.is_over() && (self.is_new || due || !self.events.is_empty())
    }

    /// Returns the time of its next turn without further events.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.node.is_over() { None } else { self.node.deadline() }
    }

    /// Returns the time of its next turn, if it cannot run before `until`.
    pub(crate) fn deadline_after(&self, until: Instant) -> Option<Instant> {
        let waits = !self.node.is_over() && (self.is_new || !self.events.is_empty());
        let at = if waits { Some(until) } else { self.deadline() };
        at.map(|at| at.max(until))
    }

    /// Performs one turn; `change` sees each submitted operation, and may replace or drop it.
    pub(crate) fn turn(
        &mut self,
        world: &mut World,
        change: &mut dyn FnMut(&mut World, Op) -> Option<Op>,
    ) {
        self.is_new = false;
        let mut ops = Vec::new();
        self.node.turn(world.now(), &node::ticking(world.now()), &mut self.events, &mut ops);
        self.node.end_turn(world.now());
        self.node.hand_out(&mut |_| Kept::Taken);
        self.node.check();
        for op in ops {
            let Some(op) = change(world, op) else { continue };
            if let Op::CloseFile { file, .. } = &op {
                self.files.remove(file);
            }
            world.submit(self.named(op));
        }
    }

    /// Returns an operation with its id in the world.
    fn named(&self, mut op: Op) -> Op {
        match &mut op {
            Op::Accept { id, .. }
            | Op::Connect { id, .. }
            | Op::Receive { id, .. }
            | Op::Send { id, .. }
            | Op::Read { id, .. }
            | Op::Write { id, .. }
            | Op::Sync { id, .. }
            | Op::ReadBlocks { id, .. }
            | Op::WriteBlocks { id, .. }
            | Op::Path { id, .. }
            | Op::Cancel { id } => *id = name_op(self.number, *id),
            Op::CloseListener { .. }
            | Op::Post { .. }
            | Op::Finish { .. }
            | Op::Hangup { .. }
            | Op::CloseSocket { .. }
            | Op::CloseFile { .. } => {}
        }
        op
    }
}
