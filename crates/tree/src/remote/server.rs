//! The server of a remote tree: its addresses, and the time that requests wait for it.

use base::Instant;
use base::op::Address;
use std::mem;
use std::time::Duration;

/// A server, and the tree that it exports.
#[derive(Debug)]
pub(super) struct Server {
    /// Addresses, tried in turn.
    addresses: Vec<Address>,
    /// Number of attempts.
    tries: usize,
    pub(super) aname: Vec<u8>,
    /// Number of connections established so far.
    pub(super) connections: u64,
}

impl Server {
    pub(super) fn new(addresses: Vec<Address>, aname: Vec<u8>) -> Server {
        assert!(!addresses.is_empty(), "a server has an address");
        Server { addresses, tries: 0, aname, connections: 0 }
    }

    /// Returns the address of the next attempt.
    pub(super) fn next_address(&mut self) -> Address {
        let to = self.addresses[self.tries % self.addresses.len()].clone();
        self.tries = self.tries.wrapping_add(1);
        to
    }

    /// Counts a connection; the next one tries the same address first.
    pub(super) fn connected(&mut self) {
        self.connections += 1;
        self.tries = self.tries.wrapping_sub(1);
    }

    /// Returns whether all addresses were tried equally often.
    pub(super) fn is_exhausted(&self) -> bool {
        self.tries.is_multiple_of(self.addresses.len())
    }

    /// Returns the name of the server in events.
    pub(super) fn name(&self) -> String {
        let (to, aname) = (&self.addresses[0], String::from_utf8_lossy(&self.aname));
        format!("{to} {aname}").trim_end().to_string()
    }
}

/// The time without a connection.
#[derive(Debug)]
pub(super) struct Outage {
    timeout: Duration,
    /// Whether there was a connection since the last loss.
    was_up: bool,
    /// Deadline of requests that wait for a connection.
    until: Option<Instant>,
}

impl Outage {
    /// Returns an outage during which requests wait for so long.
    pub(super) fn new(timeout: Duration) -> Outage {
        Outage { timeout, was_up: false, until: None }
    }

    /// Begins the first outage at the first input, as after a loss.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until.get_or_insert(now + self.timeout);
    }

    /// Records that requests can be sent.
    pub(super) fn up(&mut self) {
        self.was_up = true;
    }

    /// Records a loss; that of a connection for requests begins an outage.
    pub(super) fn lost(&mut self, now: Instant) {
        if mem::take(&mut self.was_up) {
            self.until = Some(now + self.timeout);
        }
    }

    /// Ends the wait of all requests.
    pub(super) fn expire(&mut self, now: Instant) {
        self.until = Some(now);
    }

    /// Returns the deadline of requests that wait for a connection.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns whether requests no longer wait for a connection.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}
