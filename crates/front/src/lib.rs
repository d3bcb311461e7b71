//! Sessions with clients.
//!
//! A session is an automaton between the bytes of one connection and file requests: received bytes
//! are parsed into messages, each message becomes a call, each call sends requests to the name
//! space and receives replies. It knows neither the storage of files nor the transport of bytes:
//! its results are [`Output`]s, performed by the node.
//!
//! - [`ninep`] speaks 9P2000 and 9P2000.L.
//! - [`http`] speaks HTTP/1.1.
//! - [`nfs`] speaks NFSv3 and its MOUNT protocol.
//!
//! [`webdav`] has the locks of all HTTP connections.

pub mod http;
pub mod nfs;
pub mod ninep;
mod room;
mod session;
pub mod webdav;

use room::HANDLES_FEW;
pub use room::{HANDLES_MIN, Room, SMALL_MAX};
pub use session::{Protocol, Session};

use base::{Buf, Caller, Error, Instant, Stat};
use ipnet::IpNet;
use std::net::IpAddr;
use tree::{NodeId, OpenId, Reply, Request};

/// Identifier of a call of a session: a client's request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u32);

/// Inputs of a session.
#[derive(Debug)]
pub enum Input {
    /// Received bytes.
    Received(Buf),
    /// Reply of the namespace to a call.
    Answered(CallId, Result<Reply, Error>),
    /// Result of the claim of an NFS call.
    Claimed(CallId, nfs::Claim),
    /// Reply of the locks of WebDAV.
    Locks(webdav::Reply),
    /// Number of queued bytes that have been sent to the client.
    Sent(usize),
    /// End of the stream from the client.
    Ended,
    /// Loss of the connection.
    Lost,
    /// A deadline has passed, or the limits have changed.
    Tick,
    /// Shutdown of the server: complete the calls in flight, start none.
    Drain,
}

/// Outputs of a session.
#[derive(Debug)]
pub enum Output {
    /// Send a request to the namespace; exactly one [`Input::Answered`] follows.
    Ask(CallId, Request),
    /// Cancel a call; its reply comes nevertheless.
    Cancel(CallId),
    /// Release a node.
    Release(NodeId),
    /// Close an open file.
    Close(OpenId),
    /// Close an open file whose client is gone or starts afresh: its work with the file is
    /// incomplete.
    Abandon(OpenId),
    /// Send these bytes to the client, in order.
    Send(Buf),
    /// Close the sending direction when everything is sent.
    Finish,
    /// Close the connection when everything is sent; with the reason for the log.
    Hangup(&'static str),
    /// Type of the reply to a 9P message.
    Replied(u8),
    /// End of an NFS call: its procedure, and whether it was successful.
    Called(&'static str, bool),
    /// Claim an NFS call that changes something; one [`Input::Claimed`] follows.
    Claim(CallId, nfs::CallKey),
    /// End a claimed call, with the reply to give to those that claim it later.
    Settle(nfs::CallKey, Option<Vec<u8>>),
    /// Send a request of this user to the locks of WebDAV; one [`Input::Locks`] follows if there
    /// is a reply.
    Locks(Caller, webdav::Request),
    /// End of an HTTP request, completed or not.
    Account(Account),
}

/// Accounting of a finished HTTP request, for metrics and the access log.
#[derive(Debug)]
pub struct Account {
    /// Method; `other` if the request could not be parsed.
    pub method: &'static str,
    /// Status of the response; 499 if the client disconnected before it.
    pub status: u16,
    /// Size of the response content, bytes.
    pub bytes: u64,
    /// Access log entry, if enabled.
    pub entry: Option<Box<Entry>>,
}

/// An access log entry.
#[derive(Debug)]
pub struct Entry {
    /// Arrival of the request.
    pub begun: Instant,
    /// End of the response.
    pub ended: Instant,
    /// Request line with the logged fields, if it could be parsed.
    pub line: Option<wire::http::Line>,
}

/// Identity under which a client's requests are performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// This identity, whatever the client claims.
    Fixed(Caller),
    /// The identity that the client claims; without a claim this one, or none.
    Claimed(Option<Caller>),
}

/// Server properties that a session needs.
#[derive(Clone, Debug)]
pub struct Export {
    /// The root of the namespace.
    pub root: NodeId,
    /// Device of most files; their inode numbers are shown unchanged.
    pub device: u64,
    /// Path of the served directory on the host; clients may attach to it by this name.
    pub path: Vec<u8>,
    /// Wall-clock time at [`Instant`] zero.
    pub wall: base::Time,
    /// Limits of one connection.
    pub limits: Limits,
    /// Settings of HTTP.
    pub web: Web,
    /// Settings of NFS.
    pub nfs: Nfs,
    /// Replicated services of this server, by the names of their directories.
    pub services: std::sync::Arc<[base::Name]>,
}

/// Settings of HTTP.
#[derive(Clone, Debug, Default)]
pub struct Web {
    /// Whether changes are allowed.
    pub write: bool,
    /// Whether the file `index.html` of a directory is shown in its place.
    pub index: bool,
    /// Whether requests are written to an access log.
    pub logs: bool,
    /// Names of this server besides those of loopback: requests for them are served on loopback
    /// too, behind a proxy.
    pub hosts: std::sync::Arc<[String]>,
}

/// Settings of NFS.
#[derive(Clone, Debug, Default)]
pub struct Nfs {
    /// Key of file handles. Handles are valid as long as it is the same.
    pub key: nfs::Key,
    /// Write verifier: another one after every start, so that clients write again what may be lost.
    pub verifier: [u8; 8],
    /// Claimed identities that are replaced by that of nobody.
    pub squash: Squash,
    /// Whether changes of directories and attributes are durable only after some time, and not
    /// before their replies.
    pub is_async: bool,
    /// Networks of its clients; none: all.
    pub allow: Vec<IpNet>,
}

impl Nfs {
    /// Returns the settings for a served tree. Each tree has a key of its own, made from the
    /// server's secret: a handle of one must not open a file of another one.
    pub fn new(secret: &nfs::Key, tree: &[u8], verifier: [u8; 8], squash: Squash) -> Nfs {
        let (is_async, allow) = (false, Vec::new());
        Nfs { key: nfs::key_of(secret, tree), verifier, squash, is_async, allow }
    }

    /// Returns whether clients at this address are served.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(&address))
    }
}

/// Claimed identities that are replaced by that of nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// User and group 0.
    #[default]
    Root,
    /// All.
    All,
    /// None.
    None,
}

/// Limits of one connection. At a limit an HTTP socket is not read; a 9P connection parks a bounded
/// number of messages, so that flushes still get through, and is not read beyond.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest 9P message, bytes.
    pub msize: u32,
    /// Maximum number of fids; an open one counts as two, because it holds two handles of its tree.
    pub fids: usize,
    /// Maximum number of nodes and open files of all connections together.
    pub handles: usize,
    /// Maximum number of calls in flight.
    pub calls: usize,
    /// Maximum number of bytes requested, or in replies not yet sent.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { msize: 1 << 20, fids: 1 << 20, handles: 1 << 20, calls: 1024, bytes: 32 << 20 }
    }
}

/// Returns the number of a file for clients of the server with this device.
fn file_number(stat: &Stat, device: u64) -> u64 {
    base::file_number((stat.device, stat.inode), device)
}

/// Encodes a device number as Linux does (`makedev(3)`).
fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

/// Discards a reply that is no longer needed and releases its resources.
fn discard(reply: Result<Reply, Error>, out: &mut Vec<Output>) {
    if let Ok(reply) = reply {
        let (node, open) = reply.handed_out();
        out.extend(open.map(Output::Close));
        out.extend(node.map(Output::Release));
    }
}
