//! What happened to whom: what those who judge are told by those who make trouble.

use base::{Error, Instant, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long after its end a trouble may still show: connections are made again with pauses of at
/// most five seconds, and what was agreed on late is given up after ten.
const GRACE: Duration = Duration::from_secs(25);
/// How long something may be on its way from a server to a visitor.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// How long a request that touches a server may take after that was last in trouble, for each
/// member of a union that is asked: requests wait for a server for five seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(45);

/// What is known of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server {
    /// In some trouble now.
    pub(super) troubled: bool,
    /// In a trouble in which nothing says that it is: requests wait for its end.
    pub(super) silent: bool,
    /// When the last trouble began or ended.
    changed: Option<Instant>,
    /// It says what is not true now and then. What follows from that lasts as long as connections.
    lying: bool,
    /// When it last did.
    lied: Option<Instant>,
}

/// A file that was put in the place of another while its server was down.
#[derive(Clone, Debug)]
struct Replaced {
    name: Name,
    at: Instant,
    /// What the old one contained.
    data: Vec<u8>,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Chart {
    pub(super) servers: Vec<Server>,
    /// Start of the calm: no further trouble comes, and the last one is over for long.
    pub(super) calm_since: Option<Instant>,
    /// Lanes that have asked all they wanted, and how many there are.
    pub(super) idle: (usize, usize),
    /// The mux serves.
    pub(super) is_open: bool,
    replaced: BTreeMap<u64, Replaced>,
    /// When a name that is nobody else's was last changed; in the end nothing is in doubt.
    names: BTreeMap<Name, Instant>,
    /// Files of which nobody knows what was written to them.
    vague: BTreeSet<u64>,
}

impl Chart {
    /// Nothing has happened to so many servers.
    pub(super) fn new(servers: usize) -> Chart {
        Chart { servers: vec![Server::default(); servers], ..Chart::default() }
    }

    /// Something happens to a server, or ends.
    pub(super) fn note(&mut self, now: Instant, server: usize, troubled: bool, silent: bool) {
        let known = &mut self.servers[server];
        (known.troubled, known.silent, known.changed) = (troubled, silent, Some(now));
    }

    /// A server lies now and then from now on, or does not any more.
    pub(super) fn note_lying(&mut self, now: Instant, server: usize, lying: bool) {
        let known = &mut self.servers[server];
        (known.lying, known.lied) = (lying, Some(now));
    }

    /// Servers that may not have answered at some time since.
    pub(super) fn away(&self, since: Instant) -> BTreeSet<usize> {
        let away = |server: &Server| {
            server.troubled || server.changed.is_some_and(|at| at + GRACE >= since)
        };
        let servers = self.servers.iter().enumerate();
        servers.filter(|(_, server)| away(server)).map(|(index, _)| index).collect()
    }

    /// Whether one of these servers may have lied since.
    pub(super) fn was_deceived(&self, touched: &BTreeSet<usize>, since: Instant) -> bool {
        let lied = |server: &Server| {
            server.lying || server.lied.is_some_and(|at| at + ON_THE_WAY >= since)
        };
        touched.iter().any(|server| lied(&self.servers[*server]))
    }

    /// From when on an answer that these servers have to do with is due.
    pub(super) fn due_from(
        &self,
        touched: &BTreeSet<usize>,
        since: Instant,
        now: Instant,
    ) -> Instant {
        let from = |server: &usize| match self.servers[*server] {
            Server { silent: true, .. } => now,
            Server { changed, .. } => changed.unwrap_or(since),
        };
        touched.iter().map(from).fold(since, Instant::max)
    }

    /// A file is replaced by another of the same name.
    pub(super) fn replace(&mut self, now: Instant, inode: u64, name: Name, data: Vec<u8>) {
        self.replaced.insert(inode, Replaced { name, at: now, data });
    }

    /// What a file contained that is not there any more.
    pub(super) fn old_contents(&self, inode: u64) -> Option<&[u8]> {
        self.replaced.get(&inode).map(|replaced| &*replaced.data)
    }

    /// Whether a file of this name was replaced since.
    pub(super) fn was_replaced(&self, name: &Name, since: Instant) -> bool {
        self.replaced.values().any(|replaced| replaced.name == *name && replaced.at >= since)
    }

    /// A name is changed now, or nobody knows when (`None`).
    pub(super) fn change_name(&mut self, name: &Name, at: Option<Instant>) {
        self.names.insert(name.clone(), at.unwrap_or(Instant(u64::MAX)));
    }

    /// Whether a name may have been there or not since.
    pub(super) fn is_name_vague(&self, name: &Name, since: Instant) -> bool {
        let was_calm = self.calm_since.is_some_and(|calm| since >= calm);
        !was_calm && self.names.get(name).is_some_and(|at| *at >= since)
    }

    /// Nobody knows what was written to a file.
    pub(super) fn blur(&mut self, inode: u64) {
        self.vague.insert(inode);
    }

    /// Whether what a file contains is not known.
    pub(super) fn is_vague(&self, inode: u64) -> bool {
        self.calm_since.is_none() && self.vague.contains(&inode)
    }
}

/// The error that has this number.
pub(super) fn error_of(number: u32) -> Error {
    match number {
        1 => Error::NotPermitted,
        2 => Error::NotFound,
        18 => Error::CrossDevice,
        20 => Error::NotDirectory,
        40 => Error::Loop,
        112 => Error::Disconnected,
        116 => Error::Stale,
        5 => Error::Io,
        22 => Error::Invalid,
        _ => Error::Io,
    }
}
