//! Consistency of all records of a volume: a pass over everything, in the order of tables.
//!
//! The store checks pages and checksums; this pass checks the records: that every name refers to an
//! inode, every file has the recorded number of names, directories form a tree, and the counters
//! are right. It repairs nothing. Findings are reported by path, and so can be those of others
//! ([`Verifier::path_of`]). It takes memory for each inode and one of its names.

use super::names::{ALIKE_MAX, first_cookie};
use super::record::{
    ATTRS, Attr, COUNTERS_KEY, Counters, DATA, ENTRIES, Entry, FreeReason, Holder, INODES, Inode,
    ORPHANS, Orphan, QUOTAS, Quota, ROOT, SETTINGS, SETTINGS_KEY, Settings, of_key, of_pair,
};
use super::usage::{Quotas, Usage};
use base::Kind;
use std::collections::BTreeMap;
use std::fmt;
use store::Table;
use store::check::{Content, Watcher};

/// Maximum number of findings reported; the rest is only counted.
pub const FINDINGS_MAX: usize = 1000;

/// Maximum number of names in a reported path.
const DEPTH_MAX: usize = 1000;

/// Tables to visit, in this order. For [`CONTENTS`], extents are visited instead of records.
pub const RECORDS: [Table; 6] = [SETTINGS, INODES, ENTRIES, ATTRS, ORPHANS, QUOTAS];

/// The table of files' contents: raw objects by inode.
pub const CONTENTS: Table = DATA;

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file; its inode number if it has no path.
    pub path: String,
    /// Description.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// An inode with the data found about it.
#[derive(Debug)]
struct Seen {
    kind: Kind,
    trimming: bool,
    links: u32,
    parent: u64,
    uid: u32,
    project: u64,
    size: u64,
    /// Numbers in its record.
    recorded: Numbers,
    /// Numbers found.
    has: Numbers,
    names: u64,
    directories: u64,
    orphan: Option<Orphan>,
    /// End of its last block of contents, bytes.
    end: u64,
    /// First name found: directory and bytes.
    name: Option<(u64, Box<[u8]>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    entries: u64,
    attrs: u64,
    blocks: u64,
}

/// The pass over all records.
#[derive(Debug)]
pub struct Verifier {
    /// Size of a block, bytes.
    block: u64,
    settings: Option<Settings>,
    counters: Option<Counters>,
    inodes: BTreeMap<u64, Seen>,
    quotas: Quotas,
    findings: Vec<(u64, String)>,
    /// Number of findings beyond [`FINDINGS_MAX`].
    unreported: u64,
    /// Names with the same possible cookies as the last one: directory, first cookie, and the
    /// names.
    alike: (u64, u64, Vec<Box<[u8]>>),
}

impl Verifier {
    /// Returns a verifier of a volume with blocks of this size, bytes.
    pub fn new(block: usize) -> Verifier {
        Verifier {
            block: block as u64,
            settings: None,
            counters: None,
            inodes: BTreeMap::new(),
            quotas: Quotas::new(),
            findings: Vec::new(),
            unreported: 0,
            alike: (0, 0, Vec::new()),
        }
    }

    /// Visits a record. All of [`RECORDS`] in order, each in the order of its keys.
    pub fn record(&mut self, table: Table, key: &[u8], value: &[u8]) {
        match table {
            SETTINGS => self.setting(key, value),
            INODES => self.inode(key, value),
            ENTRIES => self.entry(key, value),
            ATTRS => self.attr(key, value),
            ORPHANS => self.orphan(key, value),
            QUOTAS => self.quota(key, value),
            Table(other) => self.find(0, format!("there is a table {other}")),
        }
    }

    /// Visits blocks of a file's contents, from this byte on. Contents stored in a page are one
    /// block.
    pub fn data(&mut self, object: u64, offset: u64, blocks: u64) {
        let end = offset.saturating_add(blocks.saturating_mul(self.block));
        match self.inodes.get_mut(&object) {
            Some(seen) => {
                seen.has.blocks = seen.has.blocks.saturating_add(blocks);
                seen.end = seen.end.max(end);
            }
            None => self.find(object, "contents without an inode".to_string()),
        }
    }

    /// Returns the path of the file that a record of one of the tables belongs to.
    pub fn path_of_key(&self, table: Table, key: &[u8]) -> Option<String> {
        let ino = key.first_chunk().map(|ino| u64::from_be_bytes(*ino))?;
        let about =
            table != SETTINGS && table != QUOTAS && (RECORDS.contains(&table) || table == CONTENTS);
        about.then(|| self.path_of(ino))
    }

    /// Returns the path of a file.
    pub fn path_of(&self, ino: u64) -> String {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != ROOT && names.len() < DEPTH_MAX {
            match self.inodes.get(&at).and_then(|seen| seen.name.as_ref()) {
                Some((dir, name)) => {
                    names.push(String::from_utf8_lossy(name));
                    at = *dir;
                }
                None if names.is_empty() => return format!("inode {ino}"),
                None => {
                    names.push(format!("inode {at}").into());
                    break;
                }
            }
        }
        names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
            + if names.is_empty() { "/" } else { "" }
    }

    /// Returns the findings, after everything was visited.
    pub fn finish(&mut self) -> Vec<Finding> {
        if self.settings.is_none() {
            self.find(0, "no settings of a version that is known".to_string());
        }
        self.judge_counters();
        self.judge_quotas();
        let all: Vec<u64> = self.inodes.keys().copied().collect();
        for ino in all {
            for what in self.judge(ino) {
                self.find(ino, what);
            }
        }
        self.judge_circles();
        let findings = std::mem::take(&mut self.findings).into_iter();
        let tell = |(ino, what): (u64, String)| {
            let path = if ino == 0 { "volume".to_string() } else { self.path_of(ino) };
            Finding { path, what }
        };
        let mut reported: Vec<Finding> = findings.map(tell).collect();
        if self.unreported > 0 {
            let what = format!("{} more findings", self.unreported);
            reported.push(Finding { path: "volume".to_string(), what });
        }
        reported
    }

    fn find(&mut self, ino: u64, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push((ino, what));
        } else {
            self.unreported += 1;
        }
    }

    fn setting(&mut self, key: &[u8], value: &[u8]) {
        if key == SETTINGS_KEY {
            self.settings = Settings::decode(value);
        } else if key == COUNTERS_KEY {
            self.counters = Counters::decode(value);
        } else {
            self.find(0, "a setting that is not known".to_string());
        }
    }

    fn inode(&mut self, key: &[u8], value: &[u8]) {
        let Some(ino) = of_key(key) else {
            return self.find(0, "an inode with an invalid key".to_string());
        };
        let Some(inode) = Inode::decode(value) else {
            return self.find(ino, "its record makes no sense".to_string());
        };
        let recorded =
            Numbers { entries: inode.entries, attrs: inode.attrs.into(), blocks: inode.blocks };
        let seen = Seen {
            kind: inode.kind,
            trimming: inode.trimming,
            links: inode.links,
            parent: inode.parent,
            uid: inode.uid,
            project: inode.project,
            size: inode.size,
            recorded,
            has: Numbers::default(),
            names: 0,
            directories: 0,
            orphan: None,
            end: 0,
            name: None,
        };
        self.inodes.insert(ino, seen);
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) {
        let Some((dir, cookie)) = of_pair(key) else {
            return self.find(0, "an entry with an invalid key".to_string());
        };
        match self.inodes.get_mut(&dir) {
            Some(seen) => seen.has.entries += 1,
            None => self.find(dir, "entries without a directory".to_string()),
        }
        let Some(Entry { ino, kind, name }) = Entry::decode(value) else {
            return self.find(dir, format!("the entry at {cookie:#x} makes no sense"));
        };
        self.stands_right(dir, cookie, name.as_bytes());
        let Some(seen) = self.inodes.get_mut(&ino) else {
            return self.find(dir, format!("{name} leads to inode {ino}, which is not there"));
        };
        seen.names += 1;
        seen.name.get_or_insert_with(|| (dir, name.as_bytes().into()));
        if seen.kind != kind {
            let what = format!("kind {kind:?} in its entry, {:?} in its inode", seen.kind);
            self.find(ino, what);
        }
        let seen = self.inodes.get_mut(&ino).filter(|seen| seen.kind == Kind::Directory);
        if let Some(parent) = seen.map(|seen| seen.parent) {
            if let Some(above) = self.inodes.get_mut(&dir) {
                above.directories += 1;
            }
            if parent != dir {
                self.find(ino, format!("is in inode {dir}, but its inode names {parent}"));
            }
        }
    }

    /// Checks that a name has one of its possible cookies, and is unique.
    fn stands_right(&mut self, under: u64, cookie: u64, name: &[u8]) {
        let Some(settings) = self.settings else { return };
        let first = first_cookie(settings.seed, name);
        let text = String::from_utf8_lossy(name);
        if !(first..first + ALIKE_MAX).contains(&cookie) {
            self.find(under, format!("{text} does not belong at {cookie:#x}"));
        }
        if (self.alike.0, self.alike.1) != (under, first) {
            self.alike = (under, first, Vec::new());
        }
        if self.alike.2.iter().any(|known| **known == *name) {
            self.find(under, format!("{text} is there twice"));
        }
        self.alike.2.push(name.into());
    }

    fn attr(&mut self, key: &[u8], value: &[u8]) {
        let Some((ino, cookie)) = of_pair(key) else {
            return self.find(0, "an attribute with an invalid key".to_string());
        };
        match self.inodes.get_mut(&ino) {
            Some(seen) => seen.has.attrs += 1,
            None => self.find(ino, "attributes without an inode".to_string()),
        }
        match Attr::decode(value) {
            Some(attr) => self.stands_right(ino, cookie, attr.name),
            None => self.find(ino, format!("the attribute at {cookie:#x} makes no sense")),
        }
    }

    fn orphan(&mut self, key: &[u8], value: &[u8]) {
        match (of_key(key), Orphan::decode(value)) {
            (Some(ino), Some(orphan)) => match self.inodes.get_mut(&ino) {
                Some(seen) => seen.orphan = Some(orphan),
                None => self.find(ino, "waits to be freed, and is not there".to_string()),
            },
            (ino, _) => self.find(ino.unwrap_or(0), "waits to be freed senselessly".to_string()),
        }
    }

    fn quota(&mut self, key: &[u8], value: &[u8]) {
        match (Holder::of_key(key), Quota::decode(value)) {
            (Some(holder), Some(quota)) if quota.fits(holder) => {
                self.quotas.insert(holder, quota);
            }
            _ => self.find(0, "a quota that makes no sense".to_string()),
        }
    }

    /// Compares the usage of quotas with the inodes.
    fn judge_quotas(&mut self) {
        let mut used: BTreeMap<Holder, Usage> = BTreeMap::new();
        for (ino, seen) in &self.inodes {
            for holder in [Holder::User(seen.uid), Holder::Project(seen.project)] {
                let is_counted = self.quotas.get(&holder).is_some_and(|quota| match holder {
                    Holder::User(_) => *ino < quota.counted,
                    Holder::Project(_) => true,
                });
                if is_counted {
                    let usage = used.entry(holder).or_default();
                    usage.blocks = usage.blocks.saturating_add(seen.recorded.blocks);
                    usage.inodes += 1;
                }
            }
        }
        for (ino, what) in self.miscounted() {
            self.find(ino, what.to_string());
        }
        let is_kept = self.settings.is_none_or(|settings| settings.quotas);
        if !self.quotas.is_empty() && !is_kept {
            self.find(0, "quotas, although its settings have none".to_string());
        }
        let next = self.counters.map_or(0, |counters| counters.next);
        for (holder, quota) in std::mem::take(&mut self.quotas) {
            let (of, ino) = match holder {
                Holder::User(uid) => (format!("the quota of user {uid}"), 0),
                Holder::Project(_) => ("its quota".to_string(), quota.directory),
            };
            let has = used.get(&holder).copied().unwrap_or_default();
            let recorded = Usage { blocks: quota.blocks, inodes: quota.inodes };
            if has != recorded {
                let (Usage { blocks, inodes }, recorded) =
                    (has, (recorded.blocks, recorded.inodes));
                let text = format!(
                    "{of} counts {} blocks and {} inodes, found {blocks} and {inodes}",
                    recorded.0, recorded.1
                );
                self.find(ino, text);
            }
            let Holder::Project(project) = holder else { continue };
            let directory = self.inodes.get(&ino);
            let own = directory.is_some_and(|seen| {
                seen.kind == Kind::Directory && seen.links > 0 && seen.project == project
            });
            if !own {
                self.find(ino, "has a quota, and is no directory of its project".to_string());
            }
            if project >= next {
                self.find(ino, format!("the next inode is {next}, its project is {project}"));
            }
        }
    }

    /// Returns inodes that count for another quota than their directory: those that do not count
    /// although all files were counted, and directories that count for another one.
    fn miscounted(&self) -> Vec<(u64, &'static str)> {
        let quota = |seen: &Seen| self.quotas.get(&Holder::Project(seen.project));
        let judge = |(ino, seen): (&u64, &Seen)| {
            let above = self.inodes.get(&seen.name.as_ref()?.0)?;
            match (quota(above), quota(seen)) {
                // A file may have been counted under another name for a quota removed since.
                (Some(above), None)
                    if above.is_counted()
                        && (seen.kind == Kind::Directory || seen.project == 0) =>
                {
                    Some((*ino, "does not count for the quota of its directory"))
                }
                (_, Some(own))
                    if seen.kind == Kind::Directory
                        && own.directory != *ino
                        && seen.project != above.project =>
                {
                    Some((*ino, "counts for the quota of another directory"))
                }
                _ => None,
            }
        };
        self.inodes.iter().filter_map(judge).collect()
    }

    fn judge_counters(&mut self) {
        let Some(counters) = self.counters else {
            return self.find(0, "no counters".to_string());
        };
        let inodes = self.inodes.len() as u64;
        if counters.inodes != inodes {
            self.find(0, format!("{inodes} inodes, but its record counts {}", counters.inodes));
        }
        let blocks =
            self.inodes.values().map(|seen| seen.recorded.blocks).fold(0, u64::saturating_add);
        if counters.blocks != blocks {
            self.find(
                0,
                format!("{blocks} blocks of contents, but its record counts {}", counters.blocks),
            );
        }
        let last = self.inodes.last_key_value().map_or(0, |(ino, _)| *ino);
        if counters.next <= last {
            self.find(0, format!("the next inode is {}, but there is {last}", counters.next));
        }
        if self.inodes.get(&ROOT).is_none_or(|root| root.kind != Kind::Directory) {
            self.find(ROOT, "the root directory is missing".to_string());
        }
    }

    /// Returns the inconsistencies of one inode.
    fn judge(&self, ino: u64) -> Vec<String> {
        let seen = &self.inodes[&ino];
        let mut wrong = Vec::new();
        let mut compare = |what: &str, has: u64, recorded: u64| {
            if has != recorded {
                wrong.push(format!("{has} {what}, but its record counts {recorded}"));
            }
        };
        compare("entries", seen.has.entries, seen.recorded.entries);
        compare("attributes", seen.has.attrs, seen.recorded.attrs);
        compare("blocks", seen.has.blocks, seen.recorded.blocks);
        if seen.kind == Kind::Directory {
            let gone = seen.links == 0;
            let links = if gone { 0 } else { 2 + seen.directories };
            compare("links", links, seen.links.into());
            let names = u64::from(!gone && ino != ROOT);
            if seen.names != names {
                wrong.push(format!("a directory with {} names", seen.names));
            }
        } else {
            compare("names", seen.names, seen.links.into());
        }
        let why = seen.orphan.map(|orphan| orphan.why);
        match (seen.links, seen.trimming, why) {
            (0, _, Some(FreeReason::Nameless)) | (1.., true, Some(FreeReason::Trimming)) => {}
            (1.., false, None) => {}
            (0, _, _) => wrong.push("has no name, and does not wait to be freed".to_string()),
            (1.., true, _) => wrong
                .push("has contents beyond its end that are not marked for removal".to_string()),
            (1.., false, Some(_)) => wrong.push("waits to be freed without a reason".to_string()),
        }
        let end = seen.orphan.map_or(seen.size, |orphan| orphan.end.max(seen.size));
        if seen.end > end.saturating_add(self.block - 1) / self.block * self.block {
            wrong.push(format!("contents up to byte {}, its size is {}", seen.end, seen.size));
        }
        wrong
    }

    /// Finds directories that are not connected to the root.
    fn judge_circles(&mut self) {
        let mut good: BTreeMap<u64, bool> = BTreeMap::from([(ROOT, true)]);
        let directories = self.inodes.iter().filter(|(_, seen)| seen.kind == Kind::Directory);
        let directories: Vec<u64> = directories.map(|(ino, _)| *ino).collect();
        for ino in directories {
            let (mut path, mut at) = (Vec::new(), ino);
            while !good.contains_key(&at) {
                // Uncertain while it is on the path.
                good.insert(at, false);
                path.push(at);
                at = match self.inodes.get(&at) {
                    // Removed directories that are still held rightly lead nowhere.
                    Some(seen) if seen.links == 0 => ROOT,
                    Some(seen) => seen.parent,
                    None => break,
                };
            }
            let reaches = good.get(&at).copied().unwrap_or(false);
            if reaches {
                good.extend(path.into_iter().map(|ino| (ino, true)));
            } else {
                self.find(ino, "cannot be reached from the root".to_string());
            }
        }
    }
}

/// Follows the store's own check: one pass over the disk for both.
impl Watcher for Verifier {
    fn entry(&mut self, table: Table, key: &[u8], value: Content<'_>) {
        match (table, value) {
            (CONTENTS, value) => {
                let Some((object, block)) = of_pair(key) else {
                    return self.find(0, "contents with an invalid key".to_string());
                };
                let blocks = match value {
                    Content::Blocks(blocks) | Content::Damaged(blocks) => blocks,
                    Content::Bytes(_) => 1,
                };
                self.data(object, block.saturating_mul(self.block), blocks);
            }
            (_, Content::Bytes(bytes)) => self.record(table, key, bytes),
            // Unreadable contents are invalid.
            (_, Content::Blocks(_) | Content::Damaged(_)) => self.record(table, key, &[]),
        }
    }

    fn wants(&self, table: Table) -> bool {
        RECORDS.contains(&table)
    }

    fn progress(&mut self, _done: u64, _all: u64) {}
}

#[cfg(test)]
mod tests;
