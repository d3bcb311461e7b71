//! The history of commands that built the namespace, for replay.
//!
//! A line is kept as long as something that it mounted is there; and, because lines are executed in
//! sequence, as long as the path of a kept line leads through something that it mounted, or a kept
//! line was unmounted by it. So `mount /a X`, `bind /a/sub /b`, `mount /a Y` are all kept: without
//! the first one, the second would bind something else.

use crate::key::Key;
use crate::script::path_text;
use crate::{NamespaceChange, Order, Source};
use base::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of lines kept.
const LINES_MAX: usize = 65_536;

/// Number of a line, in order of execution.
pub(crate) type Number = u64;

/// Command of a line.
#[derive(Debug)]
enum Command {
    Join {
        mount: bool,
        what: Arc<str>,
        order: Order,
        create: bool,
        /// Whether it hides the directory's own contents.
        alone: bool,
    },
    Part {
        what: Option<Arc<str>>,
    },
}

/// A command.
#[derive(Debug)]
struct Line {
    command: Command,
    at: Vec<Name>,
    /// Key of the mount point.
    key: Key,
    /// Joins that its paths lead through.
    needs: Vec<Number>,
    /// The line that unmounted or replaced it.
    gone: Option<Number>,
}

/// All lines.
#[derive(Debug)]
pub(crate) struct History {
    lines: BTreeMap<Number, Line>,
    last: Number,
    /// Number of lines at which unneeded ones are removed.
    tidy_at: usize,
}

impl Default for History {
    fn default() -> History {
        History { lines: BTreeMap::new(), last: 0, tidy_at: 64 }
    }
}

impl History {
    /// Returns whether one more line can be kept; `live` are the joins still mounted.
    pub(crate) fn has_room(&mut self, live: impl Iterator<Item = Number>) -> bool {
        if self.lines.len() >= self.tidy_at {
            let needed = self.needed(live);
            self.lines.retain(|number, _| needed.contains(number));
            self.tidy_at = (2 * self.lines.len() + 64).min(LINES_MAX);
        }
        self.lines.len() < LINES_MAX
    }

    /// Records a change of a mount point, which keeps its own contents or is `alone`; its paths led
    /// through these joins.
    pub(crate) fn record(
        &mut self,
        requested: &NamespaceChange,
        key: Key,
        alone: bool,
        needs: Vec<Number>,
    ) -> Number {
        let (at, command) = match requested {
            NamespaceChange::Join { at, what, order, create, source_text } => {
                let mount = matches!(what, Source::Tree(..));
                let (what, order, create) = (Arc::clone(source_text), *order, *create);
                (at, Command::Join { mount, what, order, create, alone })
            }
            NamespaceChange::Part { at, source_text } => {
                (at, Command::Part { what: source_text.clone() })
            }
        };
        self.last += 1;
        self.lines.insert(self.last, Line { command, at: at.clone(), key, needs, gone: None });
        self.last
    }

    /// Records that a line has unmounted these joins.
    pub(crate) fn take_away(&mut self, joins: impl Iterator<Item = Number>, by: Number) {
        for join in joins {
            self.lines.get_mut(&join).expect("present entries stay").gone = Some(by);
        }
    }

    /// Returns the lines that build the namespace, in the order of execution.
    pub(crate) fn text(&self, live: impl Iterator<Item = Number>) -> Vec<String> {
        let needed = self.needed(live);
        // Number of joins at each mount point after the lines so far, and the number that each line
        // removes there.
        let mut there: BTreeMap<Key, usize> = BTreeMap::new();
        let mut taken: BTreeMap<Number, usize> = BTreeMap::new();
        for by in needed.iter().filter_map(|number| self.lines[number].gone) {
            *taken.entry(by).or_default() += 1;
        }
        let mut text = Vec::new();
        for number in &needed {
            let line = &self.lines[number];
            let here = there.entry(line.key).or_default();
            *here -= taken.get(number).unwrap_or(&0);
            text.push(line.text(*here == 0));
            *here += usize::from(matches!(line.command, Command::Join { .. }));
        }
        text
    }

    /// Returns these lines and all that they depend on.
    fn needed(&self, live: impl Iterator<Item = Number>) -> BTreeSet<Number> {
        let (mut todo, mut needed): (Vec<Number>, _) = (live.collect(), BTreeSet::new());
        while let Some(number) = todo.pop() {
            if needed.insert(number) {
                let line = &self.lines[&number];
                todo.extend(line.needs.iter().copied().chain(line.gone));
            }
        }
        needed
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn check(&self, live: impl Iterator<Item = Number>) {
        for number in live {
            assert!(self.lines[&number].gone.is_none(), "{number} is there");
        }
    }
}

impl Line {
    /// Returns the command as text; `first`: no earlier line has mounted anything there.
    fn text(&self, first: bool) -> String {
        let at = path_text(&self.at);
        match &self.command {
            Command::Join { mount, what, order, create, alone } => {
                let order = match order {
                    Order::Before if !(first && *alone) => "b",
                    Order::After if !(first && *alone) => "a",
                    Order::Before | Order::After | Order::Replace => "",
                };
                let flags = match (order, create) {
                    ("", false) => String::new(),
                    (order, create) => format!("-{order}{} ", if *create { "c" } else { "" }),
                };
                match mount {
                    true => format!("mount {flags}{at} {what}"),
                    false => format!("bind {flags}{what} {at}"),
                }
            }
            Command::Part { what: None } => format!("unmount {at}"),
            Command::Part { what: Some(what) } => format!("unmount {what} {at}"),
        }
    }
}
