//! Clients of a server that is about to be killed, and the expected files afterwards.
//!
//! Each client has a directory of its own and does one thing at a time: creates, changes, renames
//! and removes files, over 9P followed by a flush, and over HTTP with `PUT`. Each step is a
//! function of the client's number and of its earlier steps, so the number of acknowledged steps
//! determines the expected files: exactly their result, or that including the one step in flight.

use super::raw::Raw;
use anyhow::{Context, Result, ensure};
use rig::files::Files;
use std::collections::BTreeMap;
use std::path::Path;

/// Files of one client.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// Number of files from which a client begins to remove some.
const FILES_MAX: usize = 24;

/// One step of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Creates a file and flushes it.
    Create { name: String, bytes: Vec<u8> },
    /// Changes a part of a file and flushes it.
    Write { name: String, offset: usize, bytes: Vec<u8> },
    /// Renames a file and flushes the directory.
    Rename { from: String, to: String },
    /// Removes a file and flushes the directory.
    Remove { name: String },
    /// Creates or replaces a file over HTTP.
    Put { name: String, bytes: Vec<u8> },
}

/// State of one client.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) client: u32,
    /// Its files.
    pub(crate) files: Contents,
    /// Number of acknowledged steps.
    pub(crate) deeds: u64,
}

impl Story {
    /// Returns a client without steps.
    pub(crate) fn new(client: u32) -> Story {
        Story { client, files: Contents::new(), deeds: 0 }
    }

    /// Returns the name of its directory.
    pub(crate) fn dir(&self) -> String {
        format!("client-{}", self.client)
    }

    /// Returns its next step.
    pub(crate) fn next(&self) -> Action {
        let mut random = Random(u64::from(self.client) << 40 | self.deeds);
        let name = format!("file-{}", self.deeds);
        let bytes = |random: &mut Random| {
            let length = match random.below(8) {
                0 => random.below(10),
                1 => random.below(300_000),
                _ => random.below(20_000),
            };
            random.bytes(length)
        };
        let some = random.below(self.files.len().max(1));
        let Some((old, contents)) = self.files.iter().nth(some) else {
            return Action::Create { name, bytes: bytes(&mut random) };
        };
        let old = old.clone();
        match random.below(10) {
            _ if self.files.len() > FILES_MAX => Action::Remove { name: old },
            0..3 => Action::Create { name, bytes: bytes(&mut random) },
            3..5 => {
                let offset = random.below(contents.len() + 1);
                let length = 1 + random.below(9000);
                Action::Write { name: old, offset, bytes: random.bytes(length) }
            }
            5 => Action::Rename { from: old, to: name },
            6 => Action::Remove { name: old },
            7 | 8 => Action::Put { name: old, bytes: bytes(&mut random) },
            _ => Action::Put { name, bytes: bytes(&mut random) },
        }
    }

    /// Records an acknowledged step.
    pub(crate) fn happened(&mut self, action: &Action) {
        apply(&mut self.files, action);
        self.deeds += 1;
    }

    /// Checks whether these files are possible: all acknowledged steps, and the next one not at all
    /// or completely; a file in creation may be incomplete.
    pub(crate) fn agrees(&self, seen: &Contents) -> Result<()> {
        if *seen == self.files {
            return Ok(());
        }
        let action = self.next();
        let mut after = self.files.clone();
        apply(&mut after, &action);
        if *seen == after {
            return Ok(());
        }
        if let Action::Create { name, bytes } = &action {
            let beginning = seen.get(name).is_some_and(|seen| bytes.starts_with(seen));
            let mut rest = seen.clone();
            rest.remove(name);
            if beginning && rest == self.files {
                return Ok(());
            }
        }
        let why = difference(&self.files, seen);
        Err(why.context(format!(
            "{} after {} deeds, next {}",
            self.dir(),
            self.deeds,
            action.text()
        )))
    }

    /// Performs steps over both front ends until one fails, and reports each acknowledged one.
    /// Returns the failure, unless it is the end of the server.
    pub(crate) fn go_on(
        &mut self,
        (ninep, http): (u16, u16),
        mut acknowledged: impl FnMut(&Story) -> Result<bool>,
    ) -> Result<()> {
        let mut files = Files::at(ninep)?;
        files.make_dir(&self.dir())?;
        loop {
            let action = self.next();
            self.perform(&action, &mut files, http)?;
            self.happened(&action);
            if !acknowledged(self)? {
                return Ok(());
            }
        }
    }

    fn perform(&self, action: &Action, files: &mut Files, http: u16) -> Result<()> {
        let dir = self.dir();
        match action {
            Action::Create { name, bytes } => files.create(&format!("{dir}/{name}"), bytes),
            Action::Write { name, offset, bytes } => {
                files.write(&format!("{dir}/{name}"), *offset as u64, bytes)
            }
            Action::Rename { from, to } => files.rename(&dir, from, to),
            Action::Remove { name } => files.remove(&dir, name),
            Action::Put { name, bytes } => {
                let mut raw = Raw::connect(http)?;
                let head = format!(
                    "PUT /{dir}/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                     Content-Length: {}\r\n\r\n",
                    bytes.len()
                );
                raw.send(&[head.as_bytes(), bytes].concat())?;
                let answer = raw.answer(false)?;
                ensure!([200, 201, 204].contains(&answer.status), "PUT: {}", answer.status);
                Ok(())
            }
        }
    }
}

impl Action {
    fn text(&self) -> String {
        match self {
            Action::Create { name, bytes } => format!("create {name} of {} bytes", bytes.len()),
            Action::Write { name, offset, bytes } => {
                format!("write {} bytes to {name} at {offset}", bytes.len())
            }
            Action::Rename { from, to } => format!("rename {from} to {to}"),
            Action::Remove { name } => format!("remove {name}"),
            Action::Put { name, bytes } => format!("put {name} of {} bytes", bytes.len()),
        }
    }
}

fn apply(files: &mut Contents, action: &Action) {
    match action {
        Action::Create { name, bytes } | Action::Put { name, bytes } => {
            files.insert(name.clone(), bytes.clone());
        }
        Action::Write { name, offset, bytes } => {
            let old = files.get_mut(name).expect("it is one of these");
            let end = old.len().max(offset + bytes.len());
            old.resize(end, 0);
            old[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Action::Rename { from, to } => {
            let bytes = files.remove(from).expect("it is one of these");
            files.insert(to.clone(), bytes);
        }
        Action::Remove { name } => {
            files.remove(name);
        }
    }
}

/// Describes the first difference.
fn difference(expected: &Contents, seen: &Contents) -> anyhow::Error {
    for (name, bytes) in expected {
        match seen.get(name) {
            None => return anyhow::anyhow!("{name} is missing"),
            Some(other) if other != bytes => {
                let at = bytes.iter().zip(other).take_while(|(one, two)| one == two).count();
                let lengths = format!("{} bytes, expected {}", other.len(), bytes.len());
                return anyhow::anyhow!("{name} has {lengths}, and differs at {at}");
            }
            Some(_) => {}
        }
    }
    let more: Vec<_> = seen.keys().filter(|name| !expected.contains_key(*name)).collect();
    anyhow::anyhow!("there are {more:?} too many")
}

/// Prefix of the temporary file of a `PUT`. A killed server leaves it behind; it does not count as
/// a file.
const UNFINISHED: &str = ".upcall-put-";

/// Reads a client's directory on the host; empty if it does not exist.
pub(crate) fn seen_in(dir: &Path) -> Result<Contents> {
    let mut contents = Contents::new();
    if !dir.exists() {
        return Ok(contents);
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(UNFINISHED) {
            contents.insert(name, std::fs::read(entry.path())?);
        }
    }
    Ok(contents)
}

/// Reads a client's directory from a server.
pub(crate) fn seen_by(files: &mut Files, dir: &str) -> Result<Contents> {
    if !files.names("")?.iter().any(|name| name == dir) {
        return Ok(Contents::new());
    }
    let names = files.names(dir)?.into_iter().filter(|name| !name.starts_with(UNFINISHED));
    let read = names.map(|name| {
        let bytes = files.read(&format!("{dir}/{name}"))?.context("a listed file is not there")?;
        Ok((name, bytes))
    });
    read.collect()
}

/// SplitMix64 (Steele et al., 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.word() % end as u64).expect("it is below a usize")
    }

    /// Returns this number of bytes.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.word().to_le_bytes());
        words.take(length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_changes_are_required_and_the_next_is_optional() {
        let mut story = Story::new(3);
        for _ in 0..200 {
            let before = story.clone();
            let action = story.next();
            story.happened(&action);
            assert!(before.agrees(&before.files).is_ok());
            assert!(before.agrees(&story.files).is_ok(), "{action:?}");
            let mut further = story.clone();
            further.happened(&story.next());
            if before.files != story.files && before.files != further.files {
                assert!(story.agrees(&before.files).is_err(), "{action:?} is lost");
            }
        }
    }
}
