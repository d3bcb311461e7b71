//! The watch of a server's changes, and what they invalidate in the kernel.

use crate::answer::Answer;
use crate::attr::Attr;
use crate::changes::{Line, Lines, Mark, OTHER_TREES, Outdated, Report, Since, VALID, What};
use crate::errno;
use crate::link::{Connection, Failure, Fid, only};
use crate::linux::O_RDWR;
use crate::options::Watch;
use crate::session::Session;
use crate::{linux, lock};
use client::{Dialect, Interrupt};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::fuse::{self, Request};
use wire::ninep::{Data, Rmessage, Tmessage};

/// The file of watches, from the root of a server.
const FILE: [&[u8]; 2] = [b".upcall", b"watch"];

/// Line that asks for the changes of all files.
const ALL: &[u8] = b"*\n";

/// Size of a read, in bytes.
const READ: u32 = 64 << 10;

/// Mode and size of the file of watches, which no other file is likely to have.
const WATCH_MODE: (u32, u64) = (0o100_666, 0);

/// Interval of looking whether the server is silent.
const LOOK: Duration = Duration::from_secs(1);

impl Session {
    /// Watches the server's changes, on each of its connections, until the mount ends.
    pub(crate) fn follow_changes(&self) {
        let never = Interrupt::default();
        while let Ok(connection) = self.link.connection(&never) {
            let watched = self.watch_file(&connection, &never);
            let ended = watched.and_then(|fid| self.read_changes(&fid, &never));
            self.rely(false, false);
            if let Err(Failure::Lost(number)) = ended {
                self.link.lost(number);
            }
            // A server without that file may have it after it is restarted.
            if !self.link.wait_for_other(connection.number) {
                return;
            }
        }
    }

    /// Invalidates everything when the server has been silent, until the mount ends.
    #[allow(clippy::disallowed_methods, reason = "silence is a time")]
    pub(crate) fn expect_changes(&self) {
        while self.flights.pause(LOOK) {
            if self.changes.is_silent(Instant::now()) {
                self.rely(false, false);
            }
        }
    }

    fn rely(&self, complete: bool, names: bool) {
        if !complete || !self.changes.is_active() {
            // Also what came since the end of reports: changes before the new ones are unknown.
            self.prefetch.clear();
        }
        let is_lost = self.changes.rely(complete, names);
        if is_lost {
            self.outdated.push(Outdated::All);
        }
    }

    fn watch_file(&self, connection: &Arc<Connection>, never: &Interrupt) -> Result<Fid, Failure> {
        if connection.dialect != Dialect::Linux {
            return Err(Failure::Errno(errno::EOPNOTSUPP));
        }
        let names = FILE.map(<[u8]>::to_vec);
        let (fid, _) = connection.walk(never, connection.raw.root().0, &names)?;
        // It is written to: other servers may have a file of that name.
        let attr =
            connection.call(never, &linux::getattr_message(fid.number), linux::attributes)?;
        if (attr.shown.mode, attr.shown.size) != WATCH_MODE || attr.qid.path & OTHER_TREES == 0 {
            return Err(Failure::Errno(errno::EOPNOTSUPP));
        }
        let open = Tmessage::Lopen { fid: fid.number, flags: O_RDWR };
        connection.call(never, &open, only!(Rmessage::Lopen { .. } => ()))?;
        let write = Tmessage::Write { fid: fid.number, offset: 0, data: Data(ALL) };
        connection.call(never, &write, only!(Rmessage::Write { .. } => ()))?;
        Ok(fid)
    }

    /// Reads changes, until there are none any more.
    #[allow(clippy::disallowed_methods, reason = "the time of the last report")]
    fn read_changes(&self, fid: &Fid, never: &Interrupt) -> Result<Infallible, Failure> {
        let connection = &fid.connection;
        let count = READ.min(connection.io_max());
        let mut lines = Lines::default();
        // As announced last: silence may have ended meanwhile.
        let mut covered = (false, false);
        loop {
            let message = Tmessage::Read { fid: fid.number, offset: 0, count };
            let reply = connection.request(never, &message, None)?;
            let data = reply.data(count).map_err(|error| connection.failure(&error))?;
            if data.is_empty() {
                return Err(Failure::Errno(errno::EIO));
            }
            self.changes.hear(Instant::now());
            for line in lines.add(data).ok_or(Failure::Errno(errno::EPROTO))? {
                match Line::decode(&line).ok_or(Failure::Errno(errno::EPROTO))? {
                    Line::Begin { complete, unions, names } => {
                        let always = self.settings.watch == Watch::Always && !unions;
                        covered = (complete || always, names);
                    }
                    Line::Report(report) => {
                        self.prefetch.changed(&report);
                        self.changes.add(report.clone());
                        self.outdated.push(Outdated::Report(report));
                    }
                    Line::Lost => {
                        self.prefetch.clear();
                        self.changes.lose();
                        self.outdated.push(Outdated::All);
                    }
                    Line::Beat => {}
                }
            }
            self.rely(covered.0, covered.1);
        }
    }

    /// Performs invalidations, until the mount ends.
    pub(crate) fn invalidate_on(&self) {
        while let Some(outdated) = self.outdated.next() {
            match outdated {
                Outdated::Report(report) => self.apply(&report),
                Outdated::Node(node) => self.invalidate(node, true),
                Outdated::Entry(dir, name) => self.invalidate_entry(dir, &name),
                Outdated::Names => self.expire_all(),
                Outdated::All => self.invalidate_all(),
            }
        }
    }

    /// Invalidates what a change has made outdated.
    fn apply(&self, report: &Report) {
        if report.file & OTHER_TREES != 0 {
            // Nothing of it is cached for long, and a request for it may hang.
            return;
        }
        let (node, places) = {
            let nodes = lock(&self.nodes);
            let Some(node) = nodes.of_file(report.file) else { return };
            let places = match (report.what, &report.name) {
                (What::Entry, Some(name)) => vec![(node, name.clone())],
                (What::Entry, None) => nodes.children(node),
                (What::Moved, _) => nodes.place(node).into_iter().collect(),
                (What::Contents | What::Attributes, _) => Vec::new(),
            };
            (node, places)
        };
        let absent = match (report.what, &report.name) {
            (What::Entry, None) => self.absent.of(node),
            (What::Entry | What::Moved | What::Contents | What::Attributes, _) => Vec::new(),
        };
        self.invalidate(node, matches!(report.what, What::Contents | What::Entry));
        let absent = absent.into_iter().map(|name| (node, name));
        for (dir, name) in places.into_iter().chain(absent) {
            // The number of its links may be another one now.
            let child = lock(&self.nodes).child(dir, &name);
            child.into_iter().for_each(|child| self.invalidate(child, false));
            self.invalidate_entry(dir, &name);
        }
    }

    /// Expires all attributes, and names unless that would drop them with what is mounted beneath.
    fn expire_all(&self) {
        let (nodes, places) = lock(&self.nodes).all(|_| true);
        nodes.into_iter().for_each(|node| self.invalidate(node, false));
        if self.expires_names.load(Ordering::SeqCst) {
            places.into_iter().for_each(|(dir, name)| self.invalidate_entry(dir, &name));
        }
    }

    /// Invalidates everything that the kernel may have cached.
    fn invalidate_all(&self) {
        let (nodes, places) = lock(&self.nodes).all(|file| file & OTHER_TREES == 0);
        nodes.into_iter().for_each(|node| self.invalidate(node, true));
        for (dir, name) in places.into_iter().chain(self.absent.take()) {
            self.invalidate_entry(dir, &name);
        }
    }

    fn invalidate_entry(&self, dir: u64, name: &[u8]) {
        self.absent.remove(dir, name);
        // An error means that the kernel does not know it.
        let _ = rustix::io::write(&self.device, &fuse::expire_entry(dir, name));
    }

    /// Returns whether changes of a file are reported.
    pub(crate) fn is_watched(&self, file: u64) -> bool {
        self.changes.is_active() && file & OTHER_TREES == 0
    }

    /// Returns whether changes of a node's file are reported.
    pub(crate) fn is_node_watched(&self, node: u64) -> bool {
        let file = lock(&self.nodes).file(node);
        file.is_some_and(|file| self.is_watched(file))
    }

    /// Returns the time for which attributes are cached. A change of the number of links is
    /// reported for one of the names only.
    pub(crate) fn attributes_valid(&self, attr: &Attr) -> Duration {
        let is_linked = attr.shown.nlink > 1 && !attr.is_dir();
        if is_linked { self.settings.attr_timeout } else { self.name_valid(attr) }
    }

    /// Returns the time for which a file's name is cached.
    pub(crate) fn name_valid(&self, attr: &Attr) -> Duration {
        if self.is_watched(attr.qid.path) { VALID } else { self.settings.attr_timeout }
    }

    /// Lets the kernel cache that a name does not exist. Returns for how long.
    pub(crate) fn absent_valid(&self, dir: u64, name: &[u8]) -> Duration {
        if !self.changes.has_names() || !self.is_node_watched(dir) {
            return Duration::ZERO;
        }
        if let Some((dir, name)) = self.absent.add(dir, name) {
            self.outdated.push(Outdated::Entry(dir, name));
        }
        VALID
    }

    /// After a change whose outcome is not known to the kernel: invalidates what it may have
    /// changed, because the server does not report changes of this connection.
    pub(crate) fn doubt(&self, node: u64, request: &Request<'_>) {
        if !self.changes.is_active() {
            return;
        }
        for (dir, name) in entries_of(node, request) {
            self.outdated.push(Outdated::Node(dir));
            self.outdated.push(Outdated::Entry(dir, name.to_vec()));
        }
        if let Request::SetAttr(_) = request {
            self.outdated.push(Outdated::Node(node));
        }
    }

    /// Expires names that are known by another one since: their reports would not find them.
    pub(crate) fn expire_displaced(&self) {
        let displaced = lock(&self.nodes).take_displaced();
        if self.changes.is_active() {
            displaced.into_iter().for_each(|(dir, name)| {
                self.outdated.push(Outdated::Entry(dir, name));
            });
        }
    }

    /// After a reply: invalidates again what reports since the start of its request say about its
    /// files, those of the request's `node` and the nodes that it gave.
    pub(crate) fn catch_up(&self, mark: Mark, node: u64, answer: &Answer) {
        if self.changes.mark() == mark {
            return;
        }
        let all = || std::iter::once(node).chain(answer.entered.iter().copied());
        let nodes = lock(&self.nodes);
        let files: BTreeSet<u64> = all().filter_map(|node| nodes.file(node)).collect();
        match self.changes.since(mark, |file| files.contains(&file)) {
            Since::These(reports) => {
                reports.into_iter().for_each(|it| self.outdated.push(Outdated::Report(it)));
            }
            Since::Unknown => {
                for node in all() {
                    self.outdated.push(Outdated::Node(node));
                    let place = nodes.place(node);
                    place.into_iter().for_each(|(dir, name)| {
                        self.outdated.push(Outdated::Entry(dir, name));
                    });
                }
                if let Some(name) = &answer.absent {
                    self.outdated.push(Outdated::Entry(node, name.clone()));
                }
            }
        }
    }
}

/// Returns the entries that a request may create, rename, replace or remove.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others change no entry")]
pub(crate) fn entries_of<'a>(node: u64, request: &Request<'a>) -> Vec<(u64, &'a [u8])> {
    match request {
        Request::Symlink { name, .. }
        | Request::MkNod { name, .. }
        | Request::MkDir { name, .. }
        | Request::Unlink { name }
        | Request::RmDir { name }
        | Request::Link { name, .. }
        | Request::Create { name, .. } => vec![(node, *name)],
        Request::Rename { name, to_dir, to_name, .. } => vec![(node, *name), (*to_dir, *to_name)],
        _other => Vec::new(),
    }
}
