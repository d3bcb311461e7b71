//! A remote tree with a reactor of its own, on a network that splits streams anywhere.

use super::far::Far;
use base::op::{Address, Done, Op, OpId, ReceiveBuf, Socket};
use base::rng::Rng;
use base::{Automaton, Error, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tree::remote::{Config, Remote};
use tree::{Ask, Input, Output, Reply, Request, RequestId};

/// The client.
#[derive(Debug)]
pub struct Near {
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
    asked: u64,
}

impl Near {
    /// Returns a client in its initial state.
    pub fn new(rng: Rng, config: Config) -> Near {
        let address = Address::Unix(b"/far".to_vec());
        Near {
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
            asked: 0,
        }
    }

    /// Sends a request and returns its reply; time passes until it arrives.
    ///
    /// # Panics
    /// If no reply arrives.
    pub fn ask(&mut self, far: &mut Far, request: Request) -> Result<Reply, Error> {
        let id = self.start(far, request);
        for _ in 0..10_000 {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.pass(far);
        }
        panic!("no answer: {:?}", self.remote.counts());
    }

    /// Sends a request, and progresses as far as possible without waiting.
    pub fn start(&mut self, far: &mut Far, request: Request) -> RequestId {
        self.next += 1;
        self.asked += 1;
        let id = RequestId(self.next);
        self.step(far, Input::Ask(id, request));
        id
    }

    /// Returns the reply, if it has arrived.
    pub fn answer(&mut self, id: RequestId) -> Option<Result<Reply, Error>> {
        self.replies.remove(&id)
    }

    /// Passes an input to the tree and performs its operations.
    pub fn step(&mut self, far: &mut Far, input: Input) {
        let mut out = Vec::new();
        self.remote.step(self.now, input, &mut out);
        self.remote.check();
        self.perform(far, out);
        self.settle(far);
    }

    /// Advances time to the next deadline.
    pub fn pass(&mut self, far: &mut Far) {
        let later = self.now + Duration::from_secs(1);
        self.now = self.remote.deadline().unwrap_or(later).max(self.now + Duration::from_micros(1));
        self.deliver_all(far);
    }

    /// Breaks the connection.
    pub fn break_off(&mut self, far: &mut Far) {
        if self.socket.is_some() && !self.broken {
            self.broken = true;
            self.incoming.clear();
            far.lost();
        }
        self.settle(far);
    }

    /// Delivers the server's outstanding replies.
    pub fn deliver_all(&mut self, far: &mut Far) {
        let lazy = std::mem::replace(&mut self.lazy, false);
        self.settle(far);
        self.lazy = lazy;
    }

    /// Closes the tree.
    pub fn close(&mut self, far: &mut Far) {
        let mut out = Vec::new();
        self.remote.close(self.now, &mut out);
        self.perform(far, out);
        self.deliver_all(far);
    }

    fn settle(&mut self, far: &mut Far) {
        for turn in 0.. {
            assert!(turn < 100_000, "it comes to no rest: {:#?}", far.said);
            let mut out = Vec::new();
            self.remote.tick(self.now, &mut out);
            self.remote.check();
            let arrives = !self.lazy && !self.incoming.is_empty();
            let ready = self.receiving.is_some() && (self.broken || arrives);
            if out.is_empty() && !ready {
                return;
            }
            self.perform(far, out);
            self.deliver(far);
        }
    }

    fn done(&mut self, far: &mut Far, id: OpId, done: Done) {
        let mut out = Vec::new();
        self.remote.step(self.now, Input::Done(id, done), &mut out);
        self.remote.check();
        self.perform(far, out);
    }

    /// Completes a receive, with a random number of the available bytes.
    fn deliver(&mut self, far: &mut Far) {
        if self.broken {
            if let Some((id, _)) = self.receiving.take() {
                self.done(far, id, Done::Received(Err(Error::Disconnected)));
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
        self.done(far, id, Done::Received(Ok(buf)));
    }

    fn perform(&mut self, far: &mut Far, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply(id, reply) => {
                    self.asked -= 1;
                    assert!(self.replies.insert(id, reply).is_none(), "{id:?} is answered twice");
                }
                Output::Do(op) => self.do_op(far, op),
                Output::Render(..) | Output::Command { .. } | Output::CancelCommand(_) => {
                    panic!("no file here is rendered")
                }
            }
        }
    }

    fn do_op(&mut self, far: &mut Far, op: Op) {
        match op {
            Op::Connect { id, .. } => {
                assert!(self.socket.is_none(), "one connection at a time");
                let connected = if self.reachable {
                    self.sockets += 1;
                    self.socket = Some(Socket(self.sockets));
                    self.broken = false;
                    far.connected();
                    Ok(Socket(self.sockets))
                } else {
                    Err(Error::Disconnected)
                };
                self.done(far, id, Done::Connected(connected));
            }
            Op::Receive { id, socket, into } => {
                assert_eq!(Some(socket), self.socket);
                assert!(self.receiving.replace((id, into)).is_none(), "one receive at a time");
            }
            Op::Send { id, socket, data } => {
                assert_eq!(Some(socket), self.socket);
                let sent = if self.broken { Err(Error::Disconnected) } else { Ok(()) };
                if sent.is_ok() {
                    self.carry(far, &data.iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>());
                }
                self.done(far, id, Done::Sent(sent));
            }
            Op::Hangup { socket } => {
                assert_eq!(Some(socket), self.socket);
                if !self.broken {
                    self.broken = true;
                    self.incoming.clear();
                    far.lost();
                }
                self.deliver(far);
            }
            Op::CloseSocket { socket } => {
                assert_eq!(self.socket.take(), Some(socket));
                assert!(self.receiving.is_none(), "closed while it receives");
                if !self.broken {
                    far.lost();
                }
                self.incoming.clear();
            }
            Op::Cancel { .. } => {}
            other => panic!("{other:?} of a remote tree"),
        }
    }

    /// Transfers bytes both ways; the connection may break in either direction.
    fn carry(&mut self, far: &mut Far, bytes: &[u8]) {
        let forth = self.breaks_after.map_or(bytes.len(), |left| left.min(bytes.len()));
        let back = far.received(&bytes[..forth]);
        let left = self.breaks_after.map(|left| left - forth);
        let count = left.map_or(back.len(), |left| left.min(back.len()));
        self.incoming.extend(&back[..count]);
        self.breaks_after = left.map(|left| left - count);
        if self.breaks_after == Some(0) {
            self.breaks_after = None;
            self.broken = true;
            self.incoming.clear();
            far.lost();
        }
    }

    /// Returns the number of requests without a reply.
    pub fn outstanding(&self) -> u64 {
        self.asked
    }

    /// Returns a request of the server's own identity.
    pub fn request(ask: Ask) -> Request {
        Request { caller: base::Caller::Server, ask }
    }
}
