//! What was said to make the name space what it is, so that it can be said again.
//!
//! A line that was said is kept as long as something that it put somewhere is there; and, because
//! lines are carried out one after the other, as long as a line that is kept came through what it
//! put somewhere, or was taken away by it. So `mount /a X`, `bind /a/sub /b`, `mount /a Y` are all
//! kept: without the first one, the second would bind something else.

use crate::script::path_text;
use crate::table::Key;
use crate::{Order, Source, Wish};
use base::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most lines that are kept.
const LINES_MAX: usize = 65_536;

/// The number of a line: later ones have larger ones.
pub(crate) type Number = u64;

/// What a line does.
#[derive(Debug)]
enum Words {
    Join {
        mount: bool,
        what: Arc<str>,
        order: Order,
        create: bool,
        /// What is there itself is not seen after it.
        alone: bool,
    },
    Part {
        what: Option<Arc<str>>,
    },
}

/// A line.
#[derive(Debug)]
struct Line {
    words: Words,
    at: Vec<Name>,
    /// The point there.
    key: Key,
    /// Joins that its paths led through.
    needs: Vec<Number>,
    /// What took away what it put there.
    gone: Option<Number>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Said {
    lines: BTreeMap<Number, Line>,
    last: Number,
    /// With so many it is looked for those that are not needed any more.
    tidy_at: usize,
}

impl Default for Said {
    fn default() -> Said {
        Said { lines: BTreeMap::new(), last: 0, tidy_at: 64 }
    }
}

impl Said {
    /// Whether one more can be kept; `live` are the joins that put something where it is.
    pub(crate) fn has_room(&mut self, live: impl Iterator<Item = Number>) -> bool {
        if self.lines.len() >= self.tidy_at {
            let needed = self.needed(live);
            self.lines.retain(|number, _| needed.contains(number));
            self.tidy_at = (2 * self.lines.len() + 64).min(LINES_MAX);
        }
        self.lines.len() < LINES_MAX
    }

    /// A wish came true at a point, which has members of its own beneath or is `alone`; its paths
    /// led through what these joins had put there.
    pub(crate) fn say(&mut self, wish: &Wish, key: Key, alone: bool, needs: Vec<Number>) -> Number {
        let (at, words) = match wish {
            Wish::Join { at, what, order, create, said } => {
                let mount = matches!(what, Source::Tree(..));
                let (what, order, create) = (Arc::clone(said), *order, *create);
                (at, Words::Join { mount, what, order, create, alone })
            }
            Wish::Part { at, said } => (at, Words::Part { what: said.clone() }),
        };
        self.last += 1;
        self.lines.insert(self.last, Line { words, at: at.clone(), key, needs, gone: None });
        self.last
    }

    /// A line took away what others had put there.
    pub(crate) fn take_away(&mut self, joins: impl Iterator<Item = Number>, by: Number) {
        for join in joins {
            self.lines.get_mut(&join).expect("what is there is kept").gone = Some(by);
        }
    }

    /// The lines that make the name space, in the order in which they have to be said.
    pub(crate) fn text(&self, live: impl Iterator<Item = Number>) -> Vec<String> {
        let needed = self.needed(live);
        // How many joins stand at each point after the lines so far, and how many each line takes
        // away there.
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
            *here += usize::from(matches!(line.words, Words::Join { .. }));
        }
        text
    }

    /// What is kept for the sake of these.
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
    /// In words; `first`: nothing was put there by the lines before it.
    fn text(&self, first: bool) -> String {
        let at = path_text(&self.at);
        match &self.words {
            Words::Join { mount, what, order, create, alone } => {
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
            Words::Part { what: None } => format!("unmount {at}"),
            Words::Part { what: Some(what) } => format!("unmount {what} {at}"),
        }
    }
}
