//! Several hosts in one world: owners of operations, crashes, and partitions.
//!
//! Nodes choose the ids of their operations themselves, so in this world an id contains its host in
//! bits that nodes do not use ([`name_op`]). A crashed host leaves nothing behind: its disk
//! operations in flight are done or not, and its connections are reset. Traffic to or from a
//! partitioned listener waits until the partition heals, in order.

use super::port_of;
use crate::world::{Environment, ScheduledEvent, World};
use base::Instant;
use base::op::{Done, Envelope, Event, File, Listener, OpId, PathDone, Socket};
use std::collections::VecDeque;
use std::time::Duration;

/// A process in the world; each restart is a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u16);

/// Bits of an operation's id that contain its host: two ranges, because replicas use the bit
/// between them.
const LOW: u64 = 0xff << 32;
const HIGH: u64 = 0x7f << 41;
const MASK: u64 = LOW | HIGH;

/// Returns the id in this world of a host's operation.
///
/// # Panics
/// If the node uses the bits reserved for the host.
pub fn name_op(host: Host, id: OpId) -> OpId {
    assert_eq!(id.0 & MASK, 0, "{id:?} has no room for its host");
    assert!(host.0 < 1 << 15, "a process too many: {host:?}");
    let number = u64::from(host.0);
    OpId(id.0 | number << 32 & LOW | number << 33 & HIGH)
}

/// Returns the id given by the host itself.
pub fn own_op(id: OpId) -> OpId {
    OpId(id.0 & !MASK)
}

/// Returns the host of an operation.
pub fn host_of(id: OpId) -> Host {
    Host(((id.0 & LOW) >> 32 | (id.0 & HIGH) >> 33) as u16)
}

impl super::Net {
    /// Cancels a connect that has not arrived; returns whether there was one.
    pub(in crate::world) fn cancel_knock(&mut self, id: OpId) -> bool {
        let of =
            |waits: &ScheduledEvent| matches!(waits, ScheduledEvent::Knock(it, _) if *it == id);
        let before: usize = self.cuts.values().map(VecDeque::len).sum();
        self.cuts.values_mut().for_each(|waiting| waiting.retain(|waits| !of(waits)));
        before > self.cuts.values().map(VecDeque::len).sum()
    }
}

impl Environment {
    /// Returns an event that may happen now; `None` if it was queued because of a partition.
    pub(in crate::world) fn pass(&mut self, happening: ScheduledEvent) -> Option<ScheduledEvent> {
        if self.net.cuts.is_empty() {
            return Some(happening);
        }
        let port = match &happening {
            ScheduledEvent::Deliver(socket, _) | ScheduledEvent::Over(socket) => {
                let link = self.net.links.get(socket).filter(|link| link.peer.is_some());
                link.map_or(usize::MAX, |link| link.port)
            }
            ScheduledEvent::Knock(_, to) => port_of(to),
            _ => usize::MAX,
        };
        match self.net.cuts.get_mut(&port) {
            Some(waiting) => {
                waiting.push_back(happening);
                None
            }
            None => Some(happening),
        }
    }

    /// Partitions this listener's host within the world.
    pub fn cut(&mut self, listener: Listener) {
        self.net.cuts.entry(listener.0 as usize).or_default();
    }

    /// Resets the connections to this listener within the world.
    pub fn reset_all(&mut self, listener: Listener) {
        let port = listener.0 as usize;
        let of = |(socket, link): (&Socket, &super::Link)| {
            (link.port == port && link.peer.is_some()).then_some(*socket)
        };
        let sockets: Vec<Socket> = self.net.links.iter().filter_map(of).collect();
        if let Some(waiting) = self.net.cuts.get_mut(&port) {
            waiting.retain(|waits| matches!(waits, ScheduledEvent::Knock(..)));
        }
        for socket in sockets {
            self.arrive_end(socket, true);
        }
    }

    /// Crashes a process: none of its operations in flight completes, whether or not it was done.
    /// `files` are its open files.
    pub fn kill(&mut self, host: Host, files: &[File], listeners: &[Listener]) {
        let now = self.now.0;
        self.trace.line(format_args!("{now} {host:?} dies"));
        self.end_pending(host);
        self.end_reported(host);
        for socket in self.sockets_of(host) {
            self.sever(socket);
        }
        for listener in listeners {
            let port = &mut self.net.ports[listener.0 as usize];
            (port.closed, port.accepting) = (true, None);
            for socket in std::mem::take(&mut port.waiting) {
                self.sever(socket);
            }
        }
        files.iter().for_each(|file| self.close_file(*file));
    }

    /// Sends a message between two nodes of a process at this time; messages of a pair arrive in
    /// order, each within this many microseconds.
    pub fn post(
        &mut self,
        (from, to): (Host, Host),
        sent: Instant,
        most_us: u64,
        envelope: Envelope,
    ) {
        let span = self.rng.u64(500..=most_us * 1000 + 500);
        let at = self.node_messages.entry((from, to)).or_insert(sent);
        *at = (*at).max(sent + Duration::from_nanos(span));
        let (at, id) = (*at, name_op(to, OpId(0)));
        self.at(at, ScheduledEvent::Complete(Event { id, done: Done::Envelope(envelope) }));
    }

    /// Reopens a listener for the successor of a crashed process.
    pub fn listen_again(&mut self, listener: Listener) {
        self.net.ports[listener.0 as usize].closed = false;
    }

    /// Ends disk operations in flight, with or without effect.
    fn end_pending(&mut self, host: Host) {
        let ids: Vec<OpId> =
            self.pending.keys().copied().filter(|id| host_of(*id) == host).collect();
        for id in ids {
            let pending = self.pending.remove(&id).expect("it was there");
            self.stop_using(&pending.op);
            let Some(key) = pending.key else { continue };
            self.queue.remove(key);
            if self.rng.bool() {
                let done = self.take_effect(&pending.op, pending.found);
                self.drop_done(done);
            }
        }
    }

    /// Drops completions that were not delivered.
    fn end_reported(&mut self, host: Host) {
        let of = |event: &Event| event.id != OpId::UNREQUESTED && host_of(event.id) == host;
        let is_of = |scheduled: &ScheduledEvent| match scheduled {
            ScheduledEvent::Complete(event) => of(event),
            _other => false,
        };
        for scheduled in self.queue.take_all(is_of) {
            if let ScheduledEvent::Complete(event) = scheduled {
                self.drop_done(event.done);
            }
        }
        let own = |event: &ScheduledEvent| match event {
            ScheduledEvent::Knock(id, _) => host_of(*id) == host,
            _other => false,
        };
        self.net.cuts.values_mut().for_each(|waiting| waiting.retain(|waits| !own(waits)));
    }

    /// Releases the resources of a completion that is not delivered.
    pub fn drop_done(&mut self, done: Done) {
        match done {
            Done::Path(Ok(done)) => self.disk.close_all(&done),
            Done::Connected(Ok(socket)) => self.sever(socket),
            Done::Accepted(Ok(accepted)) => {
                accepted.into_iter().for_each(|(socket, _)| self.sever(socket));
            }
            _ => {}
        }
    }

    fn sockets_of(&self, host: Host) -> Vec<Socket> {
        let links = self.net.links.iter();
        let of = links.filter(|(_, link)| link.host == host && link.accepted && !link.closed);
        of.map(|(socket, _)| *socket).collect()
    }

    /// Removes an end of a connection together with its owner.
    fn sever(&mut self, socket: Socket) {
        let Some(link) = self.net.links.get_mut(&socket).filter(|link| !link.closed) else {
            return;
        };
        (link.receiving, link.sending) = (None, None);
        (link.closed, link.reset) = (true, true);
        let at = self.arrival_at_client(socket);
        self.at(at, ScheduledEvent::Over(socket));
    }
}

impl World {
    /// Heals a partition: queued events arrive, in order.
    pub fn heal(&mut self, listener: Listener) {
        let waiting = self.env.net.cuts.remove(&(listener.0 as usize)).unwrap_or_default();
        let mut events = Vec::new();
        for happening in waiting {
            self.happen(happening, &mut events);
        }
        assert!(events.is_empty(), "arrivals follow their sends");
    }
}

/// Returns the files and handles that an event hands over.
pub fn brought(done: &Done) -> Vec<File> {
    match done {
        Done::Path(Ok(PathDone::Walked(_, Ok(file)) | PathDone::Opened(file, _))) => vec![*file],
        Done::Path(Ok(PathDone::Fetched(_, _, file))) => file.iter().copied().collect(),
        Done::Path(Ok(PathDone::Created(file, handle, _))) => vec![*file, *handle],
        _ => Vec::new(),
    }
}
