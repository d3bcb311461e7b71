//! The simulated network: connections as pairs of byte streams, split anywhere, slow, reset.

pub(super) mod hosts;

use super::{Environment, ScheduledEvent};
use base::op::{Address, Done, Event, Listener, OpId, Peer, ReceiveBuf, Socket};
use base::{Buf, Error, Instant};
use hosts::{Host, host_of};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of bytes of a receive without a buffer of its own.
const RECEIVE: usize = 64 << 10;

/// Client number of a connection within this world.
const NOBODY: usize = usize::MAX;

/// One connection.
#[derive(Debug)]
pub struct Link {
    client: usize,
    /// The other end, if it is not a client but another socket of this world.
    peer: Option<Socket>,
    /// Number of the listener.
    port: usize,
    /// Its host, once accepted.
    host: Host,
    /// Whether the node has accepted it.
    accepted: bool,
    /// Whether the node has closed it.
    closed: bool,
    /// Bytes arrived and not yet received.
    inbox: VecDeque<u8>,
    /// Whether the client's end of stream has arrived.
    fin: bool,
    /// Whether it was reset.
    reset: bool,
    /// Whether the node has aborted it.
    hung_up: bool,
    /// Whether the node has shut down sending.
    finished: bool,
    receiving: Option<(OpId, ReceiveBuf)>,
    sending: Option<Sending>,
    /// Bytes sent by the node and not yet read by the client.
    outstanding: usize,
    /// Bytes arrived at a client that does not read.
    unread: Vec<u8>,
    stalled: bool,
    /// Whether the end is to be reported when the client reads again.
    over_due: bool,
    /// Whether the client was notified of the end.
    over_reported: bool,
    last_to_node: Instant,
    last_to_client: Instant,
}

#[derive(Debug)]
struct Sending {
    id: OpId,
    data: VecDeque<Buf>,
}

#[derive(Debug, Default)]
struct Port {
    waiting: VecDeque<Socket>,
    accepting: Option<(OpId, usize)>,
    closed: bool,
}

/// The whole network.
#[derive(Debug, Default)]
pub(super) struct Net {
    ports: Vec<Port>,
    links: BTreeMap<Socket, Link>,
    next: u32,
    /// Connection of each client.
    pub(super) clients: Vec<Option<Socket>>,
    /// Partitioned listeners, and events in flight to or from them.
    cuts: BTreeMap<usize, VecDeque<ScheduledEvent>>,
}

impl Net {
    pub(super) fn listen(&mut self) -> Listener {
        self.ports.push(Port::default());
        Listener(u32::try_from(self.ports.len() - 1).expect("few"))
    }

    pub(super) fn left_over(&self) -> Vec<Socket> {
        self.links.iter().filter(|(_, link)| !link.closed).map(|(socket, _)| *socket).collect()
    }

    /// Returns the remaining connections, whose clients were not notified of their end.
    pub(super) fn unreported(&self) -> Vec<Socket> {
        self.links.keys().copied().collect()
    }

    pub(super) fn is_accepted(&self, socket: Socket) -> bool {
        self.links[&socket].accepted
    }

    pub(super) fn cancel_accept(&mut self, id: OpId) -> bool {
        let port =
            self.ports.iter_mut().find(|port| port.accepting.is_some_and(|(of, _)| of == id));
        port.map(|port| port.accepting = None).is_some()
    }

    fn link(&mut self, socket: Socket) -> &mut Link {
        let link = self.links.get_mut(&socket).filter(|link| link.accepted && !link.closed);
        link.unwrap_or_else(|| panic!("{socket:?} is used, but it is not open"))
    }

    pub(super) fn is_over_due(&self, socket: Socket) -> bool {
        self.links.get(&socket).is_some_and(|link| link.over_due)
    }

    /// Returns whether the client may be notified of the end now, instead of when it reads again.
    pub(super) fn may_tell_over(&mut self, socket: Socket) -> bool {
        let Some(link) = self.links.get_mut(&socket) else { return false };
        link.over_due = link.stalled;
        !link.stalled
    }

    /// Returns the client to notify of the end, unless it was notified already.
    pub(super) fn notify_over(&mut self, socket: Socket) -> Option<usize> {
        let link = self.links.get_mut(&socket)?;
        let notified = std::mem::replace(&mut link.over_reported, true);
        (!notified).then_some(link.client)
    }

    /// Closes the node's socket; returns the client to notify that nothing is in flight.
    pub(super) fn close(&mut self, socket: Socket) -> Option<usize> {
        self.links.get_mut(&socket)?.closed = true;
        self.forget(socket)
    }

    /// Removes a connection that both sides are done with; returns its client.
    pub(super) fn forget(&mut self, socket: Socket) -> Option<usize> {
        let link = self.links.get(&socket).filter(|link| link.closed && link.over_reported)?;
        let client = link.client;
        self.links.remove(&socket);
        *self.clients.get_mut(client)? = None;
        Some(client)
    }
}

/// Returns the number of the listener with this address.
fn port_of(to: &Address) -> usize {
    match to {
        Address::Tcp(address) => usize::from(address.port()),
        Address::Unix(_) => usize::MAX,
    }
}

/// Operations of clients.
impl Environment {
    /// Connects; returns false if the connection is refused, which the client learns later.
    pub(crate) fn connect(&mut self, client: usize, listener: Listener) -> bool {
        assert!(self.net.clients[client].is_none(), "client {client} is connected");
        let port = &mut self.net.ports[listener.0 as usize];
        if port.closed || port.waiting.len() >= self.params.backlog {
            let span = self.net_span();
            self.after(span, ScheduledEvent::Refused(client));
            return false;
        }
        let socket = self.new_link(client, None, listener.0 as usize, Host::default());
        self.net.ports[listener.0 as usize].waiting.push_back(socket);
        self.net.clients[client] = Some(socket);
        let span = self.net_span();
        self.after(span, ScheduledEvent::Accept(listener));
        true
    }

    /// Creates a connection of a client, or one end of a connection within this world, which may
    /// belong to a host.
    fn new_link(&mut self, client: usize, peer: Option<Socket>, port: usize, host: Host) -> Socket {
        let socket = Socket(self.net.next + 1000);
        self.net.next += 1;
        let link = Link {
            client,
            peer,
            port,
            host,
            accepted: client == NOBODY && peer.is_none(),
            closed: false,
            inbox: VecDeque::new(),
            fin: false,
            reset: false,
            hung_up: false,
            finished: false,
            receiving: None,
            sending: None,
            outstanding: 0,
            unread: Vec::new(),
            stalled: false,
            over_due: false,
            over_reported: false,
            last_to_node: self.now,
            last_to_client: self.now,
        };
        self.net.links.insert(socket, link);
        socket
    }

    /// Sends bytes of a client, split into pieces that arrive in order.
    pub(crate) fn client_sends(&mut self, client: usize, mut bytes: &[u8]) {
        let Some(socket) = self.net.clients[client] else { return };
        self.totals.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let most = if self.rng.u8(..4) == 0 { bytes.len().min(40) } else { bytes.len() };
            let count = self.rng.usize(1..=most);
            let at = self.arrival_at_node(socket);
            self.at(at, ScheduledEvent::Arrive(socket, bytes[..count].to_vec()));
            bytes = &bytes[count..];
        }
    }

    /// Shuts down a client's sending.
    pub(crate) fn client_finishes(&mut self, client: usize) {
        if let Some(socket) = self.net.clients[client] {
            let at = self.arrival_at_node(socket);
            self.at(at, ScheduledEvent::Fin(socket));
        }
    }

    /// Resets a client's connection; the client is notified of the end at once.
    pub(crate) fn client_resets(&mut self, client: usize) {
        if let Some(socket) = self.net.clients[client] {
            let at = self.arrival_at_node(socket);
            self.at(at, ScheduledEvent::Reset(socket));
            self.after(Duration::ZERO, ScheduledEvent::Over(socket));
        }
    }

    /// Abandons a client's connection: it gets no further notifications, and may connect again.
    pub(crate) fn client_abandons(&mut self, client: usize) {
        let Some(socket) = self.net.clients[client].take() else { return };
        let link = self.net.links.get_mut(&socket).expect("it has one");
        (link.client, link.over_reported) = (NOBODY, true);
        let at = self.arrival_at_node(socket);
        let end = match self.rng.bool() {
            true => ScheduledEvent::Fin(socket),
            false => ScheduledEvent::Reset(socket),
        };
        self.at(at, end);
    }

    pub(crate) fn wake_in(&mut self, client: usize, span: Duration) {
        self.after(span, ScheduledEvent::Wake(client));
    }

    /// Returns the arrival time of data sent to the node now, after all earlier data.
    fn arrival_at_node(&mut self, socket: Socket) -> Instant {
        let span = self.net_span();
        let at = self.now + span;
        let Some(link) = self.net.links.get_mut(&socket) else { return at };
        link.last_to_node = at.max(link.last_to_node);
        link.last_to_node
    }

    fn arrival_at_client(&mut self, socket: Socket) -> Instant {
        let span = self.net_span();
        let at = self.now + span;
        let Some(link) = self.net.links.get_mut(&socket) else { return at };
        link.last_to_client = at.max(link.last_to_client);
        link.last_to_client
    }

    /// Delivers bytes to the client, which may be too slow to read them now.
    pub(super) fn take_delivery(
        &mut self,
        socket: Socket,
        bytes: Vec<u8>,
    ) -> Option<(usize, Vec<u8>)> {
        let stall = self.chance(self.params.faults.stall);
        let seconds = self.rng.u64(1..400);
        let link = self.net.links.get_mut(&socket)?;
        if link.over_reported {
            if link.client == NOBODY {
                link.outstanding -= bytes.len();
                self.go_on_sending(socket);
            }
            return None;
        }
        if stall && !link.stalled {
            link.stalled = true;
            self.totals.faults += 1;
            self.after(Duration::from_secs(seconds), ScheduledEvent::Unstall(socket));
        }
        let link = self.net.links.get_mut(&socket)?;
        if link.stalled {
            link.unread.extend(bytes);
            return None;
        }
        link.outstanding -= bytes.len();
        let client = link.client;
        self.totals.bytes += bytes.len() as u64;
        self.go_on_sending(socket);
        Some((client, bytes))
    }

    /// Makes the client read again; returns the bytes received meanwhile.
    pub(super) fn unstall(&mut self, socket: Socket) -> Vec<u8> {
        let Some(link) = self.net.links.get_mut(&socket) else { return Vec::new() };
        link.stalled = false;
        std::mem::take(&mut link.unread)
    }
}

/// Arrivals at the node's host.
impl Environment {
    /// Adds arriving bytes; returns true if the connection was reset instead.
    pub(super) fn arrive(&mut self, socket: Socket, bytes: &[u8]) -> bool {
        let reset = self.chance(self.params.faults.reset);
        let Some(link) = self.net.links.get_mut(&socket).filter(|link| !link.reset) else {
            return false;
        };
        link.inbox.extend(bytes);
        if reset {
            self.totals.faults += 1;
            self.arrive_end(socket, true);
            return true;
        }
        self.pump_soon(socket);
        false
    }

    pub(super) fn arrive_end(&mut self, socket: Socket, reset: bool) {
        let Some(link) = self.net.links.get_mut(&socket) else { return };
        link.fin = true;
        link.reset |= reset;
        self.pump_soon(socket);
        if reset {
            self.break_sending(socket);
        }
    }

    fn break_sending(&mut self, socket: Socket) {
        let Some(link) = self.net.links.get_mut(&socket) else { return };
        if let Some(sending) = link.sending.take() {
            self.complete_later(sending.id, Done::Sent(Err(Error::Disconnected)));
        }
    }

    fn pump_soon(&mut self, socket: Socket) {
        let span = Duration::from_nanos(self.rng.u64(..3000));
        self.after(span, ScheduledEvent::Pump(socket));
    }
}

/// Operations of the node.
impl Environment {
    pub(super) fn accept(&mut self, id: OpId, listener: Listener, max: usize) {
        let port = &mut self.net.ports[listener.0 as usize];
        assert!(port.accepting.is_none(), "{listener:?} accepts already");
        assert!(!port.closed, "{listener:?} accepts, but it is closed");
        port.accepting = Some((id, max));
        let span = Duration::from_nanos(self.rng.u64(..3000));
        self.after(span, ScheduledEvent::Accept(listener));
    }

    /// Connects to a listener of this world, whose number is its port.
    pub(super) fn connect_out(&mut self, id: OpId, to: Address) {
        if let Some(ScheduledEvent::Knock(id, to)) = self.pass(ScheduledEvent::Knock(id, to)) {
            self.knock(id, &to);
        }
    }

    pub(super) fn knock(&mut self, id: OpId, to: &Address) {
        let number = port_of(to);
        let backlog = self.params.backlog;
        let port = self.net.ports.get(number);
        if port.is_none_or(|port| port.closed || port.waiting.len() >= backlog) {
            let (span, done) = (self.net_span(), Done::Connected(Err(Error::Disconnected)));
            self.after(span, ScheduledEvent::Complete(Event { id, done }));
            return;
        }
        let near = self.new_link(NOBODY, None, number, host_of(id));
        let far = self.new_link(NOBODY, Some(near), number, Host::default());
        self.net.link(near).peer = Some(far);
        self.net.ports[number].waiting.push_back(far);
        let (span, done) = (self.net_span(), Done::Connected(Ok(near)));
        self.after(span, ScheduledEvent::Complete(Event { id, done }));
        let span = self.net_span();
        let listener = Listener(u32::try_from(number).expect("few"));
        self.after(span, ScheduledEvent::Accept(listener));
    }

    /// Moves bytes from one end of a connection within the world to the other; returns true if the
    /// connection was reset instead. `None`: the other end is a client.
    pub(super) fn take_over(&mut self, socket: Socket, bytes: &[u8]) -> Option<bool> {
        let link = self.net.links.get_mut(&socket)?;
        let peer = link.peer?;
        link.outstanding -= bytes.len();
        self.totals.bytes += bytes.len() as u64;
        self.go_on_sending(socket);
        let reset = self.arrive(peer, bytes);
        if reset {
            self.arrive_end(socket, true);
        }
        Some(reset)
    }

    /// Notifies the other end of a connection within the world of this one's end.
    pub(super) fn notify_peer(&mut self, socket: Socket) -> bool {
        let Some(link) = self.net.links.get_mut(&socket) else { return false };
        let Some(peer) = link.peer else { return false };
        let reset = link.hung_up || link.reset;
        if !std::mem::replace(&mut link.over_reported, true) {
            self.arrive_end(peer, reset);
        }
        self.net.forget(socket);
        true
    }

    /// Closes a listener; waiting connections are refused.
    pub(super) fn close_listener(&mut self, listener: Listener) {
        let port = &mut self.net.ports[listener.0 as usize];
        assert!(!port.closed, "{listener:?} is closed twice");
        port.closed = true;
        let (waiting, accepting) = (std::mem::take(&mut port.waiting), port.accepting.take());
        if let Some((id, _)) = accepting {
            self.complete_later(id, Done::Accepted(Err(Error::Cancelled)));
        }
        for socket in waiting {
            self.net.links.get_mut(&socket).expect("a waiting entry exists").closed = true;
            let at = self.arrival_at_client(socket);
            self.at(at, ScheduledEvent::Over(socket));
        }
    }

    pub(super) fn try_accept(&mut self, listener: Listener) {
        let fails = self.chance(self.params.faults.accept_error);
        let port = &mut self.net.ports[listener.0 as usize];
        if port.accepting.is_none() || port.waiting.is_empty() {
            return;
        }
        let (id, max) = port.accepting.take().expect("looked at above");
        if fails {
            self.totals.faults += 1;
            return self.complete_later(id, Done::Accepted(Err(Error::TooManyOpen)));
        }
        let sockets = port.waiting.drain(..port.waiting.len().min(max));
        let accepted = sockets.map(|socket| {
            let link = self.net.links.get_mut(&socket).expect("a waiting entry exists");
            (link.accepted, link.host) = (true, host_of(id));
            (socket, Peer::Network(format!("10.0.0.{}:{}", link.client, socket.0)))
        });
        let accepted = accepted.collect();
        self.complete_later(id, Done::Accepted(Ok(accepted)));
    }

    pub(super) fn receive(&mut self, id: OpId, socket: Socket, into: ReceiveBuf) {
        let is_full = matches!(&into, ReceiveBuf::Append(buf) if buf.tailroom() == 0);
        assert!(!is_full && !matches!(into, ReceiveBuf::UpTo(0)), "no room to receive into");
        let link = self.net.link(socket);
        assert!(link.receiving.is_none(), "{socket:?} receives already");
        link.receiving = Some((id, into));
        self.pump_soon(socket);
    }

    /// Completes a receive, if there is something to receive.
    pub(super) fn pump(&mut self, socket: Socket, events: &mut Vec<Event>) {
        let Some(link) = self.net.links.get_mut(&socket) else { return };
        let ready = link.reset || link.hung_up || link.fin || !link.inbox.is_empty();
        if !ready {
            return;
        }
        let Some((id, into)) = link.receiving.take() else { return };
        let own = into.is_default();
        let result = if link.reset || link.hung_up {
            Err(Error::Disconnected)
        } else if link.inbox.is_empty() {
            if own { Ok(Buf::default()) } else { Err(Error::Disconnected) }
        } else {
            let (mut buf, room) = into.into_buf(RECEIVE);
            let most = self.params.piece_max.min(link.inbox.len()).min(room);
            let count = if most < 64 { most } else { self.rng.usize(1..=most) };
            let bytes: Vec<u8> = link.inbox.drain(..count).collect();
            buf.spare()[..count].copy_from_slice(&bytes);
            buf.grow(count);
            Ok(buf)
        };
        self.give(Event { id, done: Done::Received(result) }, events);
    }

    pub(super) fn send(&mut self, id: OpId, socket: Socket, data: Vec<Buf>) {
        let link = self.net.link(socket);
        assert!(link.sending.is_none(), "{socket:?} sends already");
        assert!(!link.finished && !link.hung_up, "{socket:?} sends behind the end");
        assert!(data.iter().any(|buf| !buf.is_empty()), "{socket:?} sends nothing");
        if link.reset {
            return self.complete_later(id, Done::Sent(Err(Error::Disconnected)));
        }
        link.sending = Some(Sending { id, data: data.into() });
        self.go_on_sending(socket);
    }

    /// Sends what fits the window; completes the send when everything fits.
    fn go_on_sending(&mut self, socket: Socket) {
        let window = self.params.window;
        loop {
            let Some(link) = self.net.links.get_mut(&socket) else { return };
            let Some(sending) = &mut link.sending else { return };
            let room = window.saturating_sub(link.outstanding);
            let Some(first) = sending.data.front_mut() else {
                let id = sending.id;
                link.sending = None;
                return self.complete_later(id, Done::Sent(Ok(())));
            };
            if first.is_empty() {
                sending.data.pop_front();
                continue;
            }
            if room == 0 {
                return;
            }
            let count = room.min(first.len());
            let bytes = first[..count].to_vec();
            first.consume(count);
            link.outstanding += count;
            let at = self.arrival_at_client(socket);
            self.at(at, ScheduledEvent::Deliver(socket, bytes));
        }
    }

    pub(super) fn hang_up(&mut self, socket: Socket, both: bool) {
        let link = self.net.link(socket);
        link.finished = true;
        link.hung_up |= both;
        if both {
            self.break_sending(socket);
            self.pump_soon(socket);
        }
        let at = self.arrival_at_client(socket);
        self.at(at, ScheduledEvent::Over(socket));
    }

    pub(super) fn close_socket(&mut self, socket: Socket) {
        let link = self.net.link(socket);
        assert!(link.receiving.is_none(), "{socket:?} is closed while it receives");
        assert!(link.sending.is_none(), "{socket:?} is closed while it sends");
        if !link.hung_up {
            let at = self.arrival_at_client(socket);
            self.at(at, ScheduledEvent::Over(socket));
        }
    }
}
