//! Counters of clients' requests and responses, by protocol.

use front::{Account, Protocol};
use std::collections::BTreeMap;
use wire::ninep::Rmessage;

/// Counters since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    ninep: Bytes,
    nfs: Bytes,
    http: Bytes,
    /// 9P replies by type.
    replies: BTreeMap<u8, u64>,
    /// NFS calls by procedure and success.
    calls: BTreeMap<(&'static str, bool), u64>,
    /// HTTP responses by method and status.
    responses: BTreeMap<(&'static str, u16), u64>,
    /// Content bytes of HTTP responses.
    contents: u64,
    /// Namespace commands that succeeded, and that failed.
    commands: (u64, u64),
}

/// Bytes on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    received: u64,
    sent: u64,
}

impl Traffic {
    fn bytes(&mut self, protocol: Protocol) -> &mut Bytes {
        match protocol {
            Protocol::NineP => &mut self.ninep,
            Protocol::Nfs => &mut self.nfs,
            Protocol::Http => &mut self.http,
        }
    }

    /// Counts received bytes.
    pub(crate) fn receive(&mut self, protocol: Protocol, bytes: usize) {
        self.bytes(protocol).received += bytes as u64;
    }

    /// Counts sent bytes.
    pub(crate) fn send(&mut self, protocol: Protocol, bytes: usize) {
        self.bytes(protocol).sent += bytes as u64;
    }

    /// Counts a 9P reply.
    pub(crate) fn reply(&mut self, kind: u8) {
        *self.replies.entry(kind).or_insert(0) += 1;
    }

    /// Counts an NFS call.
    pub(crate) fn call(&mut self, name: &'static str, is_done: bool) {
        *self.calls.entry((name, is_done)).or_insert(0) += 1;
    }

    /// Counts an HTTP response.
    pub(crate) fn respond(&mut self, account: &Account) {
        *self.responses.entry((account.method, account.status)).or_insert(0) += 1;
        self.contents += account.bytes;
    }

    /// Counts a namespace command.
    pub(crate) fn command(&mut self, is_done: bool) {
        self.commands.0 += u64::from(is_done);
        self.commands.1 += u64::from(!is_done);
    }

    /// Adds the counters of another node.
    pub(crate) fn add(&mut self, other: &Traffic) {
        let Traffic { ninep, nfs, http, replies, calls, responses, contents, commands } = other;
        let sums = [(&mut self.ninep, ninep), (&mut self.nfs, nfs), (&mut self.http, http)];
        for (sum, of) in sums {
            sum.received += of.received;
            sum.sent += of.sent;
        }
        for (kind, count) in replies {
            *self.replies.entry(*kind).or_insert(0) += count;
        }
        for (key, count) in calls {
            *self.calls.entry(*key).or_insert(0) += count;
        }
        for (key, count) in responses {
            *self.responses.entry(*key).or_insert(0) += count;
        }
        self.contents += contents;
        self.commands.0 += commands.0;
        self.commands.1 += commands.1;
    }

    /// Returns the received and sent bytes of each protocol.
    pub(crate) fn by_protocol(&self) -> [(&'static str, u64, u64); 3] {
        let row = |name, bytes: Bytes| (name, bytes.received, bytes.sent);
        [row("9p", self.ninep), row("nfs", self.nfs), row("http", self.http)]
    }

    /// Returns the 9P replies by type.
    pub(crate) fn replies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.replies.iter().filter_map(|(kind, count)| Some((Rmessage::name_of(*kind)?, *count)))
    }

    /// Returns the NFS calls by procedure and success.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, bool, u64)> {
        self.calls.iter().map(|((name, is_done), count)| (*name, *is_done, *count))
    }

    /// Returns the HTTP responses by method and status.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (&'static str, u16, u64)> {
        self.responses.iter().map(|((method, status), count)| (*method, *status, *count))
    }

    /// Returns the content bytes of HTTP responses.
    pub(crate) fn contents(&self) -> u64 {
        self.contents
    }

    /// Returns the namespace commands by success.
    pub(crate) fn commands(&self) -> [(bool, u64); 2] {
        [(true, self.commands.0), (false, self.commands.1)]
    }
}
