//! Record of each server's troubles, written by the fault injector and read by the checks.

use base::{Error, Instant, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after the end of a trouble during which it may still show: reconnects back off up to five
/// seconds, and a slow handshake is abandoned after ten.
const GRACE: Duration = Duration::from_secs(25);
/// Maximum time in flight from a server to a client.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// Timeout of a request after the last trouble of a server it touches, for each member of a union:
/// requests wait for a server for five seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(45);

/// Known state of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server {
    /// Whether it is in trouble now.
    pub(super) troubled: bool,
    /// Whether the trouble is undetectable: requests wait for its end.
    pub(super) silent: bool,
    /// Time when the last trouble began or ended.
    changed: Option<Instant>,
    /// Whether it lies now and then. The effects last as long as connections.
    lying: bool,
    /// Time of its last change of lying.
    lied: Option<Instant>,
}

/// A file that was replaced while its server was down.
#[derive(Clone, Debug)]
struct Replaced {
    name: Name,
    at: Instant,
    /// Contents of the old file.
    data: Vec<u8>,
}

/// The record.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    pub(super) servers: Vec<Server>,
    /// Start of the calm: no further trouble comes, and the last one ended long ago.
    pub(super) calm_since: Option<Instant>,
    /// Lanes that have sent all their requests, and the number of lanes.
    pub(super) idle: (usize, usize),
    /// Whether the mux serves.
    pub(super) is_open: bool,
    replaced: BTreeMap<u64, Replaced>,
    /// Time of the last change of a name with a single owner; in the end nothing is in doubt.
    names: BTreeMap<Name, Instant>,
    /// Files with unknown contents after writes.
    vague: BTreeSet<u64>,
}

impl FaultLog {
    /// Returns the record of this many servers without trouble.
    pub(super) fn new(servers: usize) -> FaultLog {
        FaultLog { servers: vec![Server::default(); servers], ..FaultLog::default() }
    }

    /// Records the beginning or end of a trouble.
    pub(super) fn note(&mut self, now: Instant, server: usize, troubled: bool, silent: bool) {
        let known = &mut self.servers[server];
        (known.troubled, known.silent, known.changed) = (troubled, silent, Some(now));
    }

    /// Records that a server begins or stops to lie now and then.
    pub(super) fn note_lying(&mut self, now: Instant, server: usize, lying: bool) {
        let known = &mut self.servers[server];
        (known.lying, known.lied) = (lying, Some(now));
    }

    /// Returns the servers that may have been unavailable at some time since.
    pub(super) fn away(&self, since: Instant) -> BTreeSet<usize> {
        let away = |server: &Server| {
            server.troubled || server.changed.is_some_and(|at| at + GRACE >= since)
        };
        let servers = self.servers.iter().enumerate();
        servers.filter(|(_, server)| away(server)).map(|(index, _)| index).collect()
    }

    /// Returns whether one of these servers may have lied since.
    pub(super) fn was_deceived(&self, touched: &BTreeSet<usize>, since: Instant) -> bool {
        let lied = |server: &Server| {
            server.lying || server.lied.is_some_and(|at| at + ON_THE_WAY >= since)
        };
        touched.iter().any(|server| lied(&self.servers[*server]))
    }

    /// Returns the time from which on a reply involving these servers is due.
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

    /// Records that a file is replaced by another of the same name.
    pub(super) fn replace(&mut self, now: Instant, inode: u64, name: Name, data: Vec<u8>) {
        self.replaced.insert(inode, Replaced { name, at: now, data });
    }

    /// Returns the contents of a replaced file.
    pub(super) fn old_contents(&self, inode: u64) -> Option<&[u8]> {
        self.replaced.get(&inode).map(|replaced| &*replaced.data)
    }

    /// Returns whether a file of this name was replaced since.
    pub(super) fn was_replaced(&self, name: &Name, since: Instant) -> bool {
        self.replaced.values().any(|replaced| replaced.name == *name && replaced.at >= since)
    }

    /// Records a change of a name now, or at an unknown time (`None`).
    pub(super) fn change_name(&mut self, name: &Name, at: Option<Instant>) {
        self.names.insert(name.clone(), at.unwrap_or(Instant(u64::MAX)));
    }

    /// Returns whether the existence of a name was uncertain since.
    pub(super) fn is_name_vague(&self, name: &Name, since: Instant) -> bool {
        let was_calm = self.calm_since.is_some_and(|calm| since >= calm);
        !was_calm && self.names.get(name).is_some_and(|at| *at >= since)
    }

    /// Records that the contents of a file are unknown.
    pub(super) fn blur(&mut self, inode: u64) {
        self.vague.insert(inode);
    }

    /// Returns whether the contents of a file are unknown.
    pub(super) fn is_vague(&self, inode: u64) -> bool {
        self.calm_since.is_none() && self.vague.contains(&inode)
    }
}

/// Returns the error of this number.
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
