//! Operations of each type of data, a session's knowledge of it, and its permitted results.

use base::rng::Rng;
use replica::data::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Outcome of an operation, as known to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was acknowledged.
    Done,
    /// Every reply was "not done".
    Undone,
    /// Unknown: done, not done, or still pending.
    Unknown,
}

/// Number of keys of a map that belong to one client.
const KEYS: u32 = 8;
/// Number of keys and members contended by several clients.
const RACES: u32 = 6;
/// Key of a register.
pub(super) const REGISTER: &str = "register";
/// Maximum magnitude of added numbers: large, so that no two sums are equal by chance.
const ADDED_MAX: i64 = 1 << 40;

/// Effect of an operation, as far as the checks follow it. Items and values are unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Appends an item to a log.
    Append(String),
    /// Adds to a counter.
    Add(i64),
    /// Puts an item into a set.
    Insert(String),
    /// Removes one inserted by its own session.
    Remove(String),
    /// Sets a key of its own.
    Put(String, String),
    /// Sets a contended key if it is unset; of a set, adds a member.
    Race(String, String),
    /// Reads everything.
    Look,
    /// Reads the size.
    Size,
}

impl What {
    /// Returns whether it changes nothing.
    pub(super) fn looks(&self) -> bool {
        matches!(self, What::Look | What::Size)
    }
}

/// Contents of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Sum(i64),
    Items(Vec<String>),
    Entries(Vec<(String, String)>),
}

impl Shown {
    /// Parses the reply of an operation that reads everything.
    pub(super) fn of_answer(kind: Kind, value: &Value) -> Shown {
        let value = value.clone();
        match kind {
            Kind::Counter => Shown::Sum(value.as_i64().expect("a sum")),
            Kind::Map => Shown::Entries(serde_json::from_value(value).expect("keys and values")),
            Kind::Text => Shown::Items(items_of(value.as_str().expect("a text"))),
            Kind::Register => {
                let there = value.as_str().map(|value| (REGISTER.to_string(), value.to_string()));
                Shown::Entries(there.into_iter().collect())
            }
            Kind::Sheet => {
                let rows = value["rows"].as_array().expect("rows").iter();
                let cells = rows.flat_map(|row| row.as_array().expect("cells"));
                Shown::Entries(cells.filter_map(Value::as_str).map(entry_of).collect())
            }
            Kind::Log | Kind::Set => Shown::Items(serde_json::from_value(value).expect("items")),
        }
    }

    /// Parses the contents of a file.
    pub(super) fn of_file(kind: Kind, text: &str) -> Shown {
        let lines = || text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let value = match kind {
            Kind::Counter => serde_json::from_str(text).expect("a number"),
            Kind::Text => json!(text.trim_end()),
            Kind::Register if text.is_empty() => Value::Null,
            Kind::Register => json!(text.trim_end()),
            Kind::Sheet => {
                let cells = text.split([',', '\r', '\n']).filter(|cell| !cell.is_empty());
                json!({"rows": [cells.collect::<Vec<_>>()]})
            }
            Kind::Log | Kind::Set | Kind::Map => Value::Array(lines().collect()),
        };
        Shown::of_answer(kind, &value)
    }
}

/// Splits a text into its items: each ends with a full stop.
fn items_of(text: &str) -> Vec<String> {
    text.split_inclusive('.').map(str::to_string).collect()
}

/// Returns a cell and its value, which has the cell's name as a prefix.
fn entry_of(value: &str) -> (String, String) {
    let (cell, _) = value.split_once(':').expect("it begins with the name of its cell");
    (cell.to_string(), value.to_string())
}

/// A session's knowledge of a key of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    last: Option<String>,
    /// Values that may be present, now or later.
    open: BTreeSet<String>,
    /// Values before the last one.
    past: BTreeSet<String>,
}

impl Slot {
    pub(super) fn learn(&mut self, value: &str, fate: Fate) {
        match fate {
            Fate::Done => self.past.extend(self.last.replace(value.to_string())),
            Fate::Undone => {}
            Fate::Unknown => {
                self.open.insert(value.to_string());
            }
        }
    }

    /// Resets the knowledge for a new session: any earlier value may be lost, be present, or be
    /// ordered after values of the new session.
    fn forget(&mut self) {
        self.open.append(&mut self.past);
        self.open.extend(self.last.take());
    }

    pub(super) fn allows(&self, value: Option<&String>) -> bool {
        value == self.last.as_ref() || value.is_some_and(|value| self.open.contains(value))
    }
}

/// Everything that a session has seen; its later reads must include it.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Items present.
    items: BTreeSet<String>,
    /// Items removed.
    gone: BTreeSet<String>,
    /// Its keys.
    slots: BTreeMap<String, Slot>,
    /// Sum of its additions.
    added: i64,
    /// Lower bound of a counter.
    least: i64,
}

impl Memory {
    /// Resets the knowledge for a new session; its keys may have any value put before.
    pub(super) fn forget(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        slots.values_mut().for_each(Slot::forget);
        *self = Memory { slots, ..Memory::default() };
    }

    /// Records the outcome of a change.
    pub(super) fn learn(&mut self, what: &What, fate: Fate, value: &Value) {
        let done = fate == Fate::Done;
        match what {
            What::Append(item) | What::Insert(item) if done => {
                self.items.insert(item.clone());
            }
            What::Remove(item) if done => {
                self.gone.insert(item.clone());
            }
            What::Add(number) if done => {
                self.added += number;
                self.least = self.least.max(self.added).max(value.as_i64().unwrap_or(0));
            }
            What::Put(key, value) => {
                self.slots.entry(key.clone()).or_default().learn(value, fate);
            }
            _ => {}
        }
    }

    /// Checks the result of a read, and records it.
    pub(super) fn look(&mut self, kind: Kind, what: &What, value: &Value) {
        if *what == What::Size {
            let size = value.as_u64().expect("a size");
            assert!(
                size >= self.items.len() as u64,
                "{size}, of which {} are seen",
                self.items.len()
            );
            return;
        }
        match Shown::of_answer(kind, value) {
            Shown::Sum(sum) => {
                assert!(sum >= self.least, "a session was shown {}, and then {sum}", self.least);
                self.least = sum;
            }
            Shown::Items(items) => {
                let shown: BTreeSet<String> = items.iter().cloned().collect();
                assert_eq!(shown.len(), items.len(), "something is there twice: {items:?}");
                let missed: Vec<&String> = self.items.difference(&shown).collect();
                assert!(missed.is_empty(), "a session does not see what it has seen: {missed:?}");
                let back: Vec<&String> = self.gone.intersection(&shown).collect();
                assert!(back.is_empty(), "a session sees what it took away: {back:?}");
                // Members of a set are removed again by the sessions that inserted them.
                if matches!(kind, Kind::Log | Kind::Text) {
                    self.items = shown;
                }
            }
            Shown::Entries(entries) => {
                let entries: BTreeMap<String, String> = entries.into_iter().collect();
                for (key, slot) in &self.slots {
                    let there = entries.get(key);
                    assert!(slot.allows(there), "a session has put {slot:?} at {key}: {there:?}");
                }
            }
        }
    }
}

/// Draws a change, as number `number` of the client of this name; returns it and its encoding.
pub(super) fn draw_change(
    rng: &mut Rng,
    kind: Kind,
    (name, number): (&str, u32),
    padding: usize,
    memory: &mut Memory,
) -> (What, Value) {
    let item = format!("{name}-{number}.{}", "x".repeat(padding));
    let blind = rng.bool();
    let races = rng.u8(..4) == 0;
    let race = format!("race-{}", rng.u32(..RACES));
    match kind {
        Kind::Counter => {
            let added = rng.i64(1..=ADDED_MAX);
            let op = if blind { json!({"add-blind": added}) } else { json!({"add": added}) };
            (What::Add(added), op)
        }
        Kind::Map if races => {
            let op = json!({"compare-and-put": {"key": race, "expected": null, "new": item}});
            (What::Race(race, item), op)
        }
        Kind::Map => {
            let key = format!("{name}-key-{}", number % KEYS);
            (What::Put(key.clone(), item.clone()), json!({"put": [key, item]}))
        }
        Kind::Set if races => {
            let op = json!({"insert": race});
            (What::Race(race.clone(), race), op)
        }
        Kind::Set if rng.u8(..3) == 0 && !memory.items.is_empty() => {
            let nth = rng.usize(..memory.items.len());
            let gone = memory.items.iter().nth(nth).expect("it is one of them").clone();
            memory.items.remove(&gone);
            (What::Remove(gone.clone()), json!({"remove": gone}))
        }
        Kind::Set => {
            let op = if blind { json!({"add": item}) } else { json!({"insert": item}) };
            (What::Insert(item), op)
        }
        Kind::Text => (What::Append(item.clone()), json!({"append": item})),
        Kind::Register => {
            let op = json!({"compare-and-put": {"expected": null, "new": item}});
            (What::Race(REGISTER.to_string(), item), op)
        }
        Kind::Sheet => {
            // Each client has a row of its own.
            let column = char::from(b'A' + (number % KEYS) as u8);
            let row = name[1..].parse::<u32>().expect("the number of a client") + 1;
            let (cell, item) = (format!("{column}{row}"), format!("{column}{row}:{item}"));
            (What::Put(cell.clone(), item.clone()), json!({"set": [cell, item]}))
        }
        Kind::Log => {
            let op = if blind { json!({"append-blind": item}) } else { json!({"append": item}) };
            (What::Append(item), op)
        }
    }
}

/// Draws a read; `small` if a read of everything would be too large.
pub(super) fn draw_look(rng: &mut Rng, kind: Kind, small: bool) -> (What, Value) {
    match kind {
        Kind::Counter | Kind::Text | Kind::Register => (What::Look, json!("read")),
        _ if small || rng.u8(..4) == 0 => (What::Size, json!("size")),
        Kind::Log => (What::Look, json!({"read": {}})),
        Kind::Sheet => (What::Look, json!({"range": "A1:H9"})),
        Kind::Map | Kind::Set => (What::Look, json!({"list": {}})),
    }
}

/// Returns whether its reply is final at once.
pub(super) fn is_blind(op: &Value) -> bool {
    let blind = ["add-blind", "append-blind", "put", "remove", "set"];
    let name = op.as_object().and_then(|op| op.keys().next());
    let is_member = op.get("add").is_some_and(Value::is_string);
    is_member || name.is_some_and(|name| blind.contains(&name.as_str()))
}
