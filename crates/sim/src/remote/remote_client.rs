//! A remote tree with a reactor of its own, on a network that splits streams anywhere.

use super::remote_server::RemoteServer;
use base::op::{Address, Done, Op, OpId, ReceiveBuf, Socket};
use base::rng::Rng;
use base::{Automaton, Error, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tree::remote::{Config, Remote};
use tree::{Ask, Input, Output, Reply, Request, RequestId};

/// The client.
#[derive(Debug)]
pub struct RemoteClient {
    /// The tree.
    pub remote: Remote,
    /// The time.
    pub now: Instant,
    rng: Rng,
    socket: Option<Socket>,
    sockets: u32,
    receiving: Option<(OpId, ReceiveBuf)>,
    incoming: VecDeque<u8>,
    broken: bool,
    /// Whether the server accepts connections.
    pub reachable: bool,
    /// Whether replies wait until they are delivered explicitly or time passes.
    pub lazy: bool,
    /// Number of bytes after which the connection breaks.
    pub breaks_after: Option<usize>,
    replies: BTreeMap<RequestId, Result<Reply, Error>>,
    next: u64,
    requested: u64,
}

impl RemoteClient {
    /// Returns a client in its initial state.
    pub fn new(rng: Rng, config: Config) -> RemoteClient {
        let address = Address::Unix(b"/far".to_vec());
        RemoteClient {
            remote: Remote::new(7, vec![address], Vec::new(), config),
            now: Instant(1),
            rng,
            socket: None,
            sockets: 0,
            receiving: None,
            incoming: VecDeque::new(),
            broken: false,
            reachable: true,
            lazy: false,
            breaks_after: None,
            replies: BTreeMap::new(),
            next: 0,
            requested: 0,
        }
    }

    /// Sends a request and returns its reply; time passes until it arrives.
    ///
    /// # Panics
    /// If no reply arrives.
    pub fn ask(
        &mut self,
        remote_server: &mut RemoteServer,
        request: Request,
    ) -> Result<Reply, Error> {
        let id = self.start(remote_server, request);
        for _ in 0..10_000 {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.pass(remote_server);
        }
        panic!("no answer: {:?}", self.remote.counts());
    }

    /// Sends a request, and progresses as far as possible without waiting.
    pub fn start(&mut self, remote_server: &mut RemoteServer, request: Request) -> RequestId {
        self.next += 1;
        self.requested += 1;
        let id = RequestId(self.next);
        self.step(remote_server, Input::Ask(id, request));
        id
    }

    /// Returns the reply, if it has arrived.
    pub fn answer(&mut self, id: RequestId) -> Option<Result<Reply, Error>> {
        self.replies.remove(&id)
    }

    /// Passes an input to the tree and performs its operations.
    pub fn step(&mut self, remote_server: &mut RemoteServer, input: Input) {
        let mut out = Vec::new();
        self.remote.step(self.now, input, &mut out);
        self.remote.check();
        self.perform(remote_server, out);
        self.settle(remote_server);
    }

    /// Advances time to the next deadline.
    pub fn pass(&mut self, remote_server: &mut RemoteServer) {
        let later = self.now + Duration::from_secs(1);
        self.now = self.remote.deadline().unwrap_or(later).max(self.now + Duration::from_micros(1));
        self.deliver_all(remote_server);
    }

    /// Breaks the connection.
    pub fn break_off(&mut self, remote_server: &mut RemoteServer) {
        if self.socket.is_some() && !self.broken {
            self.broken = true;
            self.incoming.clear();
            remote_server.lost();
        }
        self.settle(remote_server);
    }

    /// Delivers the server's outstanding replies.
    pub fn deliver_all(&mut self, remote_server: &mut RemoteServer) {
        let lazy = std::mem::replace(&mut self.lazy, false);
        self.settle(remote_server);
        self.lazy = lazy;
    }

    /// Closes the tree.
    pub fn close(&mut self, remote_server: &mut RemoteServer) {
        let mut out = Vec::new();
        self.remote.close(self.now, &mut out);
        self.perform(remote_server, out);
        self.deliver_all(remote_server);
    }

    fn settle(&mut self, remote_server: &mut RemoteServer) {
        for turn in 0.. {
            assert!(turn < 100_000, "it comes to no rest: {:#?}", remote_server.outputs);
            let mut out = Vec::new();
            self.remote.tick(self.now, &mut out);
            self.remote.check();
            let arrives = !self.lazy && !self.incoming.is_empty();
            let ready = self.receiving.is_some() && (self.broken || arrives);
            if out.is_empty() && !ready {
                return;
            }
            self.perform(remote_server, out);
            self.deliver(remote_server);
        }
    }

    fn done(&mut self, remote_server: &mut RemoteServer, id: OpId, done: Done) {
        let mut out = Vec::new();
        self.remote.step(self.now, Input::Done(id, done), &mut out);
        self.remote.check();
        self.perform(remote_server, out);
    }

    /// Completes a receive, with a random number of the available bytes.
    fn deliver(&mut self, remote_server: &mut RemoteServer) {
        if self.broken {
            if let Some((id, _)) = self.receiving.take() {
                self.done(remote_server, id, Done::Received(Err(Error::Disconnected)));
            }
            return;
        }
        if self.incoming.is_empty() || self.lazy {
            return;
        }
        let Some((id, into)) = self.receiving.take() else { return };
        let (mut buf, room) = into.into_buf(16_384);
        let most = self.incoming.len().min(room);
        let count = if self.rng.bool() { most } else { self.rng.usize(1..=most) };
        let bytes: Vec<u8> = self.incoming.drain(..count).collect();
        buf.extend(&bytes);
        self.done(remote_server, id, Done::Received(Ok(buf)));
    }

    fn perform(&mut self, remote_server: &mut RemoteServer, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply(id, reply) => {
                    self.requested -= 1;
                    assert!(self.replies.insert(id, reply).is_none(), "{id:?} is answered twice");
                }
                Output::Do(op) => self.do_op(remote_server, op),
                Output::Render(..)
                | Output::Command { .. }
                | Output::CancelCommand(_)
                | Output::AsClient(_) => {
                    panic!("no file here is rendered")
                }
            }
        }
    }

    fn do_op(&mut self, remote_server: &mut RemoteServer, op: Op) {
        match op {
            Op::Connect { id, .. } => {
                assert!(self.socket.is_none(), "one connection at a time");
                let connected = if self.reachable {
                    self.sockets += 1;
                    self.socket = Some(Socket(self.sockets));
                    self.broken = false;
                    remote_server.connected();
                    Ok(Socket(self.sockets))
                } else {
                    Err(Error::Disconnected)
                };
                self.done(remote_server, id, Done::Connected(connected));
            }
            Op::Receive { id, socket, into } => {
                assert_eq!(Some(socket), self.socket);
                assert!(self.receiving.replace((id, into)).is_none(), "one receive at a time");
            }
            Op::Send { id, socket, data } => {
                assert_eq!(Some(socket), self.socket);
                let sent = if self.broken { Err(Error::Disconnected) } else { Ok(()) };
                if sent.is_ok() {
                    self.carry(
                        remote_server,
                        &data.iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>(),
                    );
                }
                self.done(remote_server, id, Done::Sent(sent));
            }
            Op::Hangup { socket } => {
                assert_eq!(Some(socket), self.socket);
                if !self.broken {
                    self.broken = true;
                    self.incoming.clear();
                    remote_server.lost();
                }
                self.deliver(remote_server);
            }
            Op::CloseSocket { socket } => {
                assert_eq!(self.socket.take(), Some(socket));
                assert!(self.receiving.is_none(), "closed while it receives");
                if !self.broken {
                    remote_server.lost();
                }
                self.incoming.clear();
            }
            Op::Cancel { .. } => {}
            other => panic!("{other:?} of a remote tree"),
        }
    }

    /// Transfers bytes both ways; the connection may break in either direction.
    fn carry(&mut self, remote_server: &mut RemoteServer, bytes: &[u8]) {
        let forth = self.breaks_after.map_or(bytes.len(), |left| left.min(bytes.len()));
        let back = remote_server.received(&bytes[..forth]);
        let left = self.breaks_after.map(|left| left - forth);
        let count = left.map_or(back.len(), |left| left.min(back.len()));
        self.incoming.extend(&back[..count]);
        self.breaks_after = left.map(|left| left - count);
        if self.breaks_after == Some(0) {
            self.breaks_after = None;
            self.broken = true;
            self.incoming.clear();
            remote_server.lost();
        }
    }

    /// Returns the number of requests without a reply.
    pub fn outstanding(&self) -> u64 {
        self.requested
    }

    /// Returns a request of the server's own identity.
    pub fn request(ask: Ask) -> Request {
        Request { caller: base::Caller::Server, ask }
    }
}
