//! The trees of a node, by number, with their alarms.

use super::mounted_tree::Tree;
use base::op::ClientKey;
use base::{Automaton, Instant};
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::ops::{Index, IndexMut};
use tree::host::Host;
use tree::{Input as TreeInput, Output as TreeOutput};

/// Maximum number of trees. Numbers of removed trees are reused only after all others, so that a
/// client's stale reference to one is not soon taken for another's.
const NUMBERS: usize = 60_000;

/// The trees.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// Trees by number; `None`: removed.
    slots: Vec<Option<Slot>>,
    /// Numbers of removed trees, the oldest first.
    free: VecDeque<u16>,
    /// Trees that may have work at the end of the turn.
    busy: BTreeSet<u16>,
    /// Alarms of trees.
    alarms: BTreeSet<(Instant, u16)>,
    /// Number of host trees, whose nodes are files of the process; number of these files in use,
    /// and their limit.
    hosts: usize,
    held: usize,
    files: usize,
    /// Trees that are no longer mounted.
    leaving: BTreeSet<u16>,
    /// Trees that are closing.
    closing: BTreeSet<u16>,
}

/// A tree with its alarm.
#[derive(Debug)]
struct Slot {
    mounted: Box<dyn Tree>,
    alarm: Option<Instant>,
}

impl Trees {
    /// Adds a tree, created by `make` for its number; returns the number, or `None` if all are
    /// used.
    pub(crate) fn plant(&mut self, make: impl FnOnce(u16) -> Box<dyn Tree>) -> Option<u16> {
        let number = match u16::try_from(self.slots.len()) {
            Ok(next) if self.slots.len() < NUMBERS => {
                self.slots.push(None);
                next
            }
            Ok(_) | Err(_) => self.free.pop_front()?,
        };
        let mounted = make(number);
        if mounted.is_host() {
            self.hosts += 1;
            self.held += mounted.handles();
        }
        self.slots[usize::from(number)] = Some(Slot { mounted, alarm: None });
        self.busy.insert(number);
        Some(number)
    }

    /// Adds a tree under this number, which must be unused.
    pub(crate) fn plant_as(&mut self, number: u16, mounted: Box<dyn Tree>) {
        let least = usize::from(number) + 1;
        if self.slots.len() < least {
            self.slots.resize_with(least, || None);
        }
        assert!(self.slots[usize::from(number)].is_none(), "tree {number} is there");
        self.slots[usize::from(number)] = Some(Slot { mounted, alarm: None });
        self.busy.insert(number);
    }

    /// Returns whether there is a tree with this number.
    pub(crate) fn contains(&self, number: u16) -> bool {
        self.slots.get(usize::from(number)).is_some_and(Option::is_some)
    }

    /// Returns all trees.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Tree> {
        self.slots.iter().flatten().map(|slot| &*slot.mounted)
    }

    /// Returns all trees of a kind.
    pub(crate) fn of_kind<T: Tree>(&self) -> impl Iterator<Item = &T> {
        self.iter().filter_map(<dyn Tree>::downcast_ref)
    }

    /// Returns the numbers of all trees.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.is_some())
            .map(|(number, _)| number)
            .collect()
    }

    /// Removes an idle tree.
    pub(crate) fn remove(&mut self, number: u16) {
        let slot = self.slots[usize::from(number)].take().expect("a tree ends once");
        if let Some(at) = slot.alarm {
            self.alarms.remove(&(at, number));
        }
        self.busy.remove(&number);
        if slot.mounted.is_host() {
            assert!(self.hosts > 0, "directories of the host are counted");
            assert!(!self.free.contains(&number), "a number is free once");
            self.hosts -= 1;
            self.held -= slot.mounted.handles();
        }
        self.leaving.remove(&number);
        self.closing.remove(&number);
        self.free.push_back(number);
    }

    /// Marks a tree as unmounted: it is closed when it is idle.
    pub(crate) fn leave(&mut self, number: u16) {
        self.leaving.insert(number);
        self.busy.insert(number);
    }

    /// Returns whether a tree is no longer mounted.
    pub(crate) fn is_leaving(&self, number: u16) -> bool {
        self.leaving.contains(&number)
    }

    /// Returns whether a tree is closing.
    pub(crate) fn is_closing(&self, number: u16) -> bool {
        self.closing.contains(&number)
    }

    /// Marks a tree as closing; returns `false` if it was already.
    pub(crate) fn begin_to_close(&mut self, number: u16) -> bool {
        self.closing.insert(number)
    }

    /// Marks a tree as having work at the end of the turn.
    pub(crate) fn mark(&mut self, number: u16) {
        self.busy.insert(number);
    }

    /// Takes a tree that may have work.
    pub(crate) fn pop_busy(&mut self) -> Option<u16> {
        self.busy.pop_first()
    }

    /// Returns the time of the next alarm.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Marks the trees whose alarms are due.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, number));
            self.slot(number).alarm = None;
            self.busy.insert(number);
        }
    }

    /// Sets the alarm of a tree to its deadline.
    pub(crate) fn set_alarm(&mut self, number: u16) {
        let slot = self.slot(number);
        let wanted = slot.mounted.deadline();
        let old = mem::replace(&mut slot.alarm, wanted);
        if old != wanted {
            old.map(|old| self.alarms.remove(&(old, number)));
            self.alarms.extend(wanted.map(|at| (at, number)));
        }
    }

    /// Sets the number of files that host trees share: each may use what the others leave.
    pub(crate) fn share_files(&mut self, files: usize) {
        self.files = files;
    }

    /// Steps a tree. A request is accounted to `client`.
    pub(crate) fn step(
        &mut self,
        number: u16,
        now: Instant,
        client: ClientKey,
        input: TreeInput,
        out: &mut Vec<TreeOutput>,
    ) {
        let spare = self.files.saturating_sub(self.held);
        let mounted = &mut self.slot(number).mounted;
        mounted.set_client(client);
        if let Some(host) = mounted.downcast_mut::<Host>() {
            let before = host.handles();
            host.set_handles_max(before + spare);
            host.step(now, input, out);
            let after = host.handles();
            assert!(before <= self.held, "the entries of each are counted");
            self.held = self.held - before + after;
        } else {
            mounted.step(now, input, out);
        }
        self.mark(number);
    }

    /// Returns the maximum number of nodes and open files, given the number of files of the
    /// process.
    pub(crate) fn handles_max(&self, files: usize) -> usize {
        let own = |mounted: &dyn Tree| mounted.own_handles_max();
        let hosts = if self.hosts == 0 { 0 } else { files };
        self.iter().filter_map(own).sum::<usize>().saturating_add(hosts)
    }

    /// Returns the same for the tree with the lowest limit.
    pub(crate) fn least_handles_max(&self, files: usize) -> usize {
        let of = |mounted: &dyn Tree| mounted.own_handles_max().unwrap_or(files);
        self.iter().filter(|mounted| mounted.has_files()).map(of).min().unwrap_or(files)
    }

    pub(crate) fn check(&self) {
        let hosts = || self.iter().filter(|mounted| mounted.is_host());
        let held: usize = hosts().map(Tree::handles).sum();
        assert_eq!((self.hosts, self.held), (hosts().count(), held));
        for (number, slot) in (0_u16..).zip(&self.slots) {
            let alarm = slot.as_ref().and_then(|slot| slot.alarm);
            let alarms = self.alarms.iter().filter(|(_, of)| *of == number);
            assert!(alarms.map(|(at, _)| *at).eq(alarm), "a tree is looked at when it wants to be");
        }
        let known = |number: &u16| self.contains(*number);
        assert!(
            self.busy.iter().all(known) && self.leaving.iter().all(known),
            "trees that are there"
        );
        assert!(self.closing.iter().all(known), "only who is there is closed");
        assert!(!self.free.iter().any(known), "a number is of one tree");
        let free: BTreeSet<&u16> = self.free.iter().collect();
        assert_eq!(free.len(), self.free.len(), "a number is free once");
    }

    fn slot(&mut self, number: u16) -> &mut Slot {
        self.slots[usize::from(number)].as_mut().expect("a tree that is there")
    }
}

impl Index<u16> for Trees {
    type Output = dyn Tree;

    fn index(&self, number: u16) -> &dyn Tree {
        let slot = self.slots[usize::from(number)].as_ref();
        &*slot.expect("a tree that is there").mounted
    }
}

impl IndexMut<u16> for Trees {
    fn index_mut(&mut self, number: u16) -> &mut dyn Tree {
        &mut *self.slot(number).mounted
    }
}
