//! Installed ("standing") storelets, which are run by name.
//!
//! Administrators install storelets in a [session](install). The [registry] of installed
//! storelets has each change made durable by the state store, on a thread that may block
//! ([`ToStateStore`]), before it acknowledges it. Recent runs are recorded in a [run
//! history](history). Storelets can also run on a [schedule](run_schedule), or for new files of a
//! [watched](watch) directory.

pub(crate) mod entry;
pub(crate) mod history;
pub(crate) mod install;
pub(crate) mod listing;
pub(crate) mod registry;
pub(crate) mod registry_change;
pub(crate) mod run_schedule;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

use crate::run_spec::Label;
use std::collections::BTreeSet;
use wasi::Hash;

/// Key of an item in the state store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An entry of the registry.
    Name(Label),
    /// The bytes of a module.
    Module(Hash),
    /// The run history of a storelet.
    RunHistory(Label),
    /// Files that the watch of a storelet has processed.
    Files(Label),
}

/// Replacement of an item in the state store; without contents, its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The item.
    pub key: Key,
    /// New contents; `None` deletes the item.
    pub bytes: Option<Vec<u8>>,
}

/// Request to the state store: make changes durable, in this order. Exactly one [`Kept`] with the
/// ticket follows.
#[derive(Debug)]
pub struct ToStateStore {
    /// Ticket, returned with the result.
    pub ticket: u64,
    /// The changes. Each is atomic, also in a crash, and is durable only after those before it.
    pub changes: Vec<Change>,
}

/// Result of a request to the state store.
#[derive(Debug)]
pub struct Kept {
    /// Ticket of the request.
    pub ticket: u64,
    /// Whether all changes are durable; else the reason.
    pub result: Result<(), String>,
}

/// Contents of the state store at the start of the server.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    /// Registry entries by name, as stored.
    pub names: Vec<(Label, Vec<u8>)>,
    /// Run histories by name, as stored.
    pub books: Vec<(Label, Vec<u8>)>,
    /// Processed files of watches by name, as stored.
    pub files: Vec<(Label, Vec<u8>)>,
    /// Modules present.
    pub modules: BTreeSet<Hash>,
    /// Reason why nothing can be stored, if so.
    pub closed: Option<String>,
}

impl Stock {
    /// Adds a stored item; the contents of modules are not needed.
    pub fn take(&mut self, key: Key, bytes: Vec<u8>) {
        match key {
            Key::Name(label) => self.names.push((label, bytes)),
            Key::RunHistory(label) => self.books.push((label, bytes)),
            Key::Files(label) => self.files.push((label, bytes)),
            Key::Module(hash) => drop(self.modules.insert(hash)),
        }
    }
}
