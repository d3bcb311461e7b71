//! Sessions with clients.
//!
//! A session is an automaton between the bytes of one connection and file requests: what arrives
//! is parsed into messages, each message becomes a call, each call asks the name space and is
//! answered. It does not know how files are stored, nor how bytes travel: what it has to say
//! leaves as [`Output`], and the node carries it.
//!
//! - [`ninep`] speaks 9P2000 and 9P2000.L.
//! - [`http`] speaks HTTP/1.1.

pub mod http;
pub mod ninep;
mod room;
mod session;

pub use room::{HANDLES_MIN, Room, SMALL_MAX};
pub use session::{Protocol, Session};

use base::{Buf, Caller, Error, Instant};
use tree::{NodeId, OpenId, Reply, Request};

/// Names one call of a session: a request of a client that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u32);

/// What can happen to a session.
#[derive(Debug)]
pub enum Input {
    /// Bytes came.
    Received(Buf),
    /// The name space answered a call.
    Answered(CallId, Result<Reply, Error>),
    /// So many bytes of what was said are on their way to the client.
    Sent(usize),
    /// The client will send nothing more.
    Ended,
    /// The connection is dead.
    Lost,
    /// A deadline passed, or there is more allowance: look again.
    Tick,
    /// The server ends: answer what is under way, begin nothing new.
    Drain,
}

/// What a session can ask for.
#[derive(Debug)]
pub enum Output {
    /// Ask the name space; exactly one [`Input::Answered`] follows.
    Ask(CallId, Request),
    /// The answer to a call is no longer wanted; it comes all the same.
    Cancel(CallId),
    /// Give a node back.
    Release(NodeId),
    /// Give an open file back.
    Close(OpenId),
    /// The same, because the client is gone or begins anew: what it began with the file is not
    /// finished.
    Abandon(OpenId),
    /// Say this to the client, in order.
    Send(Buf),
    /// Tell the client, when everything is said, that nothing more will be.
    Finish,
    /// End the connection when everything is said; for the log: why.
    Hangup(&'static str),
    /// A 9P message is answered by one of this type.
    Replied(u8),
    /// An HTTP request has been answered, or was given up.
    Account(Account),
}

/// An HTTP request that has ended, for metrics and the access log.
#[derive(Debug)]
pub struct Account {
    /// The method; `other` if the request could not be understood.
    pub method: &'static str,
    /// The status of the response; 499 if the client left before it.
    pub status: u16,
    /// Bytes of the response's content.
    pub bytes: u64,
    /// The entry of the access log, if there is one.
    pub entry: Option<Box<Entry>>,
}

/// An entry of the access log.
#[derive(Debug)]
pub struct Entry {
    /// Arrival of the request.
    pub begun: Instant,
    /// End of the response.
    pub ended: Instant,
    /// The request line with the fields that are logged, if it could be understood.
    pub line: Option<wire::http::Line>,
}

/// As whom a client's requests are performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// As this user, whatever the client says.
    Fixed(Caller),
    /// As whom the client claims to be; who claims nothing acts as this user, or not at all.
    Claimed(Option<Caller>),
}

/// What a session needs to know of the server.
#[derive(Clone, Debug)]
pub struct Export {
    /// The root of the name space.
    pub root: NodeId,
    /// The device most files are on; their inode numbers are shown as they are.
    pub device: u64,
    /// What the served directory is called on the host; clients may attach to it by this name.
    pub path: Vec<u8>,
    /// What the date on the wall was when the clock of inputs stood at zero.
    pub wall: base::Time,
    /// Limits of one connection.
    pub limits: Limits,
    /// Settings of HTTP.
    pub web: Web,
    /// The replicated services of this server, by the names of their directories.
    pub services: std::sync::Arc<[base::Name]>,
}

/// Settings of HTTP.
#[derive(Clone, Debug, Default)]
pub struct Web {
    /// `PUT` and `DELETE` are allowed.
    pub write: bool,
    /// The file `index.html` of a directory is shown in its place.
    pub index: bool,
    /// Each request is written to an access log.
    pub logs: bool,
    /// Names of this server besides those of loopback: requests for them are answered on loopback
    /// too, where a proxy passes them on.
    pub hosts: std::sync::Arc<[String]>,
}

/// Limits of one connection. At a limit an HTTP socket is not read; of a 9P connection a bounded
/// number of messages waits, so that flushes still get through, and then it is not read either.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest 9P message, bytes.
    pub msize: u32,
    /// Most fids; one that is open counts as two, because it holds two handles of its tree.
    pub fids: usize,
    /// Most nodes and open files of all connections together.
    pub handles: usize,
    /// Most calls under way.
    pub calls: usize,
    /// Most bytes asked for, or answered and not yet sent.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { msize: 1 << 20, fids: 1 << 20, handles: 1 << 20, calls: 1024, bytes: 32 << 20 }
    }
}

/// Throws an answer away that nobody waits for: gives back what it brought.
fn discard(reply: Result<Reply, Error>, out: &mut Vec<Output>) {
    if let Ok(reply) = reply {
        let (node, open) = reply.handed_out();
        out.extend(open.map(Output::Close));
        out.extend(node.map(Output::Release));
    }
}
