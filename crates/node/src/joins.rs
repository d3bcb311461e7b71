//! Trees that are added by changes of the namespace, and removed when no longer used.

use super::changes;
use super::message::Message;
use super::mounted_tree::{self, Tree};
use super::route::OPENING;
use super::{Node, Phase, SERVICE, Served};
use base::op::{ClientKey, NOBODY, Op, OpId};
use base::{Caller, Error, Instant};
use std::mem;
use tree::volume::Volume;
use tree::{Input as TreeInput, Refusal, RequestId};

/// Returns the id of a change of the namespace, which is that of no connection's request.
fn change(number: u32) -> RequestId {
    RequestId(1 << 63 | u64::from(number))
}

/// Returns the id of the operation that opens a source.
fn opening(number: u32) -> OpId {
    OpId(u64::from(OPENING) << 48 | u64::from(number))
}

/// Returns the refusal of a growth, with a suggestion.
fn not_grown(volume: &Volume, failure: store::Error) -> Refusal {
    let (layout, name) = (volume.store().layout(), volume.name());
    let bytes = |blocks: u64| blocks * layout.block as u64;
    let (error, why) = match failure {
        store::Error::TooLarge => (
            Error::FileTooLarge,
            format!(
                "it has {} bytes and can have at most {}; choose a size that is larger by more \
                 than its larger space map takes",
                bytes(layout.blocks),
                bytes(layout.grown_max())
            ),
        ),
        store::Error::TooShort => (Error::Invalid, failure.to_string()),
        store::Error::ReadOnly => (Error::ReadOnly, failure.to_string()),
        store::Error::NoSpace | store::Error::DiskFull => (Error::NoSpace, failure.to_string()),
        store::Error::Damaged
        | store::Error::DiskFailed
        | store::Error::NotFound
        | store::Error::Exists
        | store::Error::WouldDeadlock
        | store::Error::NotAVolume => (Error::Io, failure.to_string()),
    };
    Refusal { error, why: format!("cannot grow volume:{name}: {why}") }
}

impl Node {
    /// Advances changes of the namespace as far as possible without waiting.
    pub(crate) fn change(&mut self, now: Instant, ops: &mut Vec<Op>) {
        loop {
            if let Some(tree) = self.changes.recovering()
                && let Some(result) = self.trees[tree].recovered()
            {
                let root = |()| (self.trees[tree].root(), self.trees[tree].root_stat());
                let input = changes::Input::Recovered(result.map(root));
                self.step_changes(now, input, ops);
                self.route(now, ops);
            }
            if let Some(result) = self.take_grown() {
                self.step_changes(now, changes::Input::Grown(result), ops);
                self.route(now, ops);
            }
            let mut out = Vec::new();
            self.changes.begin(now, &mut out);
            if out.is_empty() {
                break;
            }
            self.deliver_changes(now, out, ops);
            self.route(now, ops);
        }
        if self.phase == Phase::Joining && self.changes.is_empty() {
            self.phase = Phase::Running;
        }
    }

    pub(crate) fn step_changes(&mut self, now: Instant, input: changes::Input, ops: &mut Vec<Op>) {
        let mut out = Vec::new();
        self.changes.step(now, input, &mut out);
        self.deliver_changes(now, out, ops);
    }

    fn deliver_changes(&mut self, now: Instant, out: Vec<changes::Output>, ops: &mut Vec<Op>) {
        use changes::Output;
        for output in out {
            let message = match output {
                Output::Open(number, op) => {
                    ops.push(Op::Path {
                        id: opening(number),
                        caller: Caller::Server,
                        requester: NOBODY,
                        within: None,
                        op,
                    });
                    continue;
                }
                Output::CancelOpen(number) => {
                    ops.push(Op::Cancel { id: opening(number) });
                    continue;
                }
                Output::Plant(served) => {
                    let planted = self.plant(now, served, ops);
                    self.step_changes(now, changes::Input::Planted(planted), ops);
                    continue;
                }
                Output::Make(number, requested) => {
                    Message::Names(names::Input::Change(change(number), requested))
                }
                Output::CancelMake(number) => Message::Names(names::Input::Cancel(change(number))),
                Output::Grow(file, bytes) => {
                    self.grow(now, &file, bytes, ops);
                    continue;
                }
                Output::Leave(tree) => {
                    self.trees.leave(tree);
                    continue;
                }
                Output::Close(file) => {
                    ops.push(Op::CloseFile { file, client: ClientKey::NOBODY });
                    continue;
                }
                Output::Commanded(ticket, result) => {
                    self.traffic.command(result.is_ok());
                    Message::Tree(SERVICE, TreeInput::Commanded(ticket, result))
                }
            };
            self.messages.push_back(message);
        }
    }

    /// Grows the volume in a file to `bytes`.
    fn grow(&mut self, now: Instant, file: &str, bytes: u64, ops: &mut Vec<Op>) {
        let names = |tree: &u16| self.trees[*tree].volume().map(Volume::name);
        let numbers = self.trees.numbers();
        let Some(tree) = numbers.iter().copied().find(|tree| names(tree) == Some(file)) else {
            let known: Vec<&str> = numbers.iter().filter_map(names).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            let why = format!("volume:{file}: no such volume is served; served are: {known}");
            let refusal = Refusal { error: Error::NotFound, why };
            return self.step_changes(now, changes::Input::Grown(Err(refusal)), ops);
        };
        assert!(self.growing.is_none(), "one change after the other");
        self.growing = Some(tree);
        let mut out = mem::take(&mut self.scratch.trees);
        self.trees[tree].growing().grow(now, bytes, &mut out);
        self.trees.set_alarm(tree);
        self.deliver_trees(now, tree, &mut out, ops);
        self.scratch.trees = out;
    }

    /// Takes the result of the growth in progress, if it has ended.
    fn take_grown(&mut self) -> Option<Result<(), Refusal>> {
        let tree = self.growing?;
        let volume = self.trees[tree].growing();
        let result = volume.take_grown()?;
        self.growing = None;
        Some(result.map_err(|failure| not_grown(volume, failure)))
    }

    fn plant(&mut self, now: Instant, served: Served, ops: &mut Vec<Op>) -> Option<u16> {
        let mut out = Vec::new();
        let make = |number| mounted_tree::create(number, served, &self.config, now, &mut out);
        let tree = self.trees.plant(make)?;
        if self.config.service {
            let hidden = self.trees[tree].hidden_snapshots();
            hidden.into_iter().for_each(|mount| self.names.hide(mount));
        }
        self.deliver_trees(now, tree, &mut out, ops);
        Some(tree)
    }

    pub(crate) fn close_trees(
        &mut self,
        now: Instant,
        ops: &mut Vec<Op>,
        which: &dyn Fn(&dyn Tree) -> bool,
    ) {
        for tree in self.trees.numbers() {
            if which(&self.trees[tree]) {
                self.close_tree(now, tree, ops);
            }
        }
    }

    /// Notifies trees of the shutdown.
    pub(crate) fn drain_trees(&mut self, now: Instant, ops: &mut Vec<Op>) {
        for tree in self.trees.numbers() {
            self.drain_tree(now, tree, ops);
        }
    }

    /// Notifies a tree of the shutdown.
    pub(crate) fn drain_tree(&mut self, now: Instant, tree: u16, ops: &mut Vec<Op>) {
        let mut out = mem::take(&mut self.scratch.trees);
        self.trees[tree].drain(now, &mut out);
        self.trees.set_alarm(tree);
        self.deliver_trees(now, tree, &mut out, ops);
        self.scratch.trees = out;
    }

    /// Closes a tree.
    pub(crate) fn close_tree(&mut self, now: Instant, tree: u16, ops: &mut Vec<Op>) {
        if self.trees[tree].is_closed() || !self.trees.begin_to_close(tree) {
            return;
        }
        let mut out = mem::take(&mut self.scratch.trees);
        self.trees[tree].close(now, &mut out);
        self.trees.set_alarm(tree);
        self.deliver_trees(now, tree, &mut out, ops);
        self.scratch.trees = out;
    }

    /// Closes an unmounted tree as soon as it is idle, and removes it when it is closed.
    pub(crate) fn see_off(&mut self, now: Instant, tree: u16, ops: &mut Vec<Op>) {
        if !self.trees[tree].is_idle() {
            return;
        }
        self.close_tree(now, tree, ops);
        if self.trees[tree].is_closed() {
            ops.extend(
                self.trees[tree]
                    .file()
                    .map(|file| Op::CloseFile { file, client: ClientKey::NOBODY }),
            );
            self.names.unhide(tree);
            self.trees.remove(tree);
        }
    }
}
