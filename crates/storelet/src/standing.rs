//! Standing storelets: installed under a name, and run by that name.
//!
//! Whoever may command the server says at a [desk] what is to be installed. The [shelf] knows all
//! that is installed, and has it kept by somebody who may wait for a disk ([`ToKeeper`]) before it
//! says so. What came of the last runs stands in a [book]. What runs although nobody asks
//! is a [duty], or [watches](watch) a directory.

pub(crate) mod book;
pub(crate) mod deed;
pub(crate) mod desk;
pub(crate) mod duty;
pub(crate) mod entry;
pub(crate) mod listing;
pub(crate) mod shelf;
#[cfg(test)]
mod tests;
pub(crate) mod watch;

use crate::compile::Hash;
use crate::order::Label;
use std::collections::BTreeSet;

/// What is kept, each under a name of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// What is installed under a name.
    Name(Label),
    /// A module.
    Module(Hash),
    /// What came of its last runs.
    Book(Label),
    /// For which files of its directory it has run.
    Files(Label),
}

/// Something that is to be kept from now on, in the place of what was there; nothing: not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub key: Key,
    /// Its contents.
    pub bytes: Option<Vec<u8>>,
}

/// What whoever keeps is asked: to make changes durable, in this order. Exactly one [`Kept`] with
/// the ticket follows.
#[derive(Debug)]
pub struct ToKeeper {
    /// Comes back with the result.
    pub ticket: u64,
    /// Each is there or not, never half, whatever happens; if one is, those before it are.
    pub changes: Vec<Change>,
}

/// What came of it.
#[derive(Debug)]
pub struct Kept {
    /// Whose.
    pub ticket: u64,
    /// Whether all is durable; else why not.
    pub result: Result<(), String>,
}

/// What was kept when the server began.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    /// What is installed, and what came of the last runs: by name, as it was kept.
    pub names: Vec<(Label, Vec<u8>)>,
    /// The same.
    pub books: Vec<(Label, Vec<u8>)>,
    /// For which files of their directories they have run.
    pub files: Vec<(Label, Vec<u8>)>,
    /// The modules.
    pub modules: BTreeSet<Hash>,
    /// Why nothing can be kept, if that is so.
    pub closed: Option<String>,
}

impl Stock {
    /// Takes something that was kept; of a module its name is enough.
    pub fn take(&mut self, key: Key, bytes: Vec<u8>) {
        match key {
            Key::Name(label) => self.names.push((label, bytes)),
            Key::Book(label) => self.books.push((label, bytes)),
            Key::Files(label) => self.files.push((label, bytes)),
            Key::Module(hash) => drop(self.modules.insert(hash)),
        }
    }
}
