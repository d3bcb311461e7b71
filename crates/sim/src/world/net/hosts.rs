//! Several hosts in one world: whose an operation is, hosts that die, and hosts that nothing
//! reaches.
//!
//! Nodes choose the ids of their operations for themselves, so in this world an id says in a part
//! that nodes do not use which host it is of ([`name_op`]). A host that dies leaves nothing behind:
//! what it had under way on the disk is done or not, and its connections are reset. What is on its
//! way to or from a listener that is cut off waits until that is over, in its order.

use super::port_of;
use crate::world::{Happening, Scene, World};
use base::Instant;
use base::op::{Done, Event, File, Listener, OpId, Parcel, PathDone, Socket};
use std::collections::VecDeque;
use std::time::Duration;

/// A process in the world, each life of it one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u16);

/// Where in the id of an operation its host stands: in two parts, for replicas use the bit between
/// them.
const LOW: u64 = 0xff << 32;
const HIGH: u64 = 0x7f << 41;
const MASK: u64 = LOW | HIGH;

/// The id in this world of an operation of a host's.
///
/// # Panics
/// If the node uses the part of the id that says the host.
pub fn name_op(host: Host, id: OpId) -> OpId {
    assert_eq!(id.0 & MASK, 0, "{id:?} has no room for its host");
    assert!(host.0 < 1 << 15, "a process too many: {host:?}");
    let number = u64::from(host.0);
    OpId(id.0 | number << 32 & LOW | number << 33 & HIGH)
}

/// The id that the host itself gave.
pub fn own_op(id: OpId) -> OpId {
    OpId(id.0 & !MASK)
}

/// Whose an operation is.
pub fn host_of(id: OpId) -> Host {
    Host(((id.0 & LOW) >> 32 | (id.0 & HIGH) >> 33) as u16)
}

impl super::Net {
    /// Takes back a connect that nobody has heard of; whether there was one.
    pub(in crate::world) fn cancel_knock(&mut self, id: OpId) -> bool {
        let of = |waits: &Happening| matches!(waits, Happening::Knock(other, _) if *other == id);
        let before: usize = self.cuts.values().map(VecDeque::len).sum();
        self.cuts.values_mut().for_each(|waiting| waiting.retain(|waits| !of(waits)));
        before > self.cuts.values().map(VecDeque::len).sum()
    }
}

impl Scene {
    /// What happens now; `None`: it waits until what it passes is no longer cut.
    pub(in crate::world) fn pass(&mut self, happening: Happening) -> Option<Happening> {
        if self.net.cuts.is_empty() {
            return Some(happening);
        }
        let port = match &happening {
            Happening::Deliver(socket, _) | Happening::Over(socket) => {
                let link = self.net.links.get(socket).filter(|link| link.peer.is_some());
                link.map_or(usize::MAX, |link| link.port)
            }
            Happening::Knock(_, to) => port_of(to),
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

    /// From now on nothing passes to or from this listener's host within the world.
    pub fn cut(&mut self, listener: Listener) {
        self.net.cuts.entry(listener.0 as usize).or_default();
    }

    /// The connections to this listener within the world are reset.
    pub fn reset_all(&mut self, listener: Listener) {
        let port = listener.0 as usize;
        let of = |(socket, link): (&Socket, &super::Link)| {
            (link.port == port && link.peer.is_some()).then_some(*socket)
        };
        let sockets: Vec<Socket> = self.net.links.iter().filter_map(of).collect();
        if let Some(waiting) = self.net.cuts.get_mut(&port) {
            waiting.retain(|waits| matches!(waits, Happening::Knock(..)));
        }
        for socket in sockets {
            self.arrive_end(socket, true);
        }
    }

    /// A process dies at once: nothing that it had under way is told to anybody, whether or not it
    /// was done. `files` are those that it had open.
    pub fn kill(&mut self, host: Host, files: &[File], listeners: &[Listener]) {
        let now = self.now.0;
        self.trace.line(format_args!("{now} {host:?} dies"));
        self.end_pending(host);
        self.end_told(host);
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

    /// One node of a process leaves something for another at this time; letters of a pair of nodes
    /// arrive in order, each within so many microseconds.
    pub fn post(&mut self, (from, to): (Host, Host), sent: Instant, most_us: u64, parcel: Parcel) {
        let span = self.rng.u64(500..=most_us * 1000 + 500);
        let at = self.letters.entry((from, to)).or_insert(sent);
        *at = (*at).max(sent + Duration::from_nanos(span));
        let (at, id) = (*at, name_op(to, OpId(0)));
        self.at(at, Happening::Complete(Event { id, done: Done::Parcel(parcel) }));
    }

    /// Another process listens where one has died.
    pub fn listen_again(&mut self, listener: Listener) {
        self.net.ports[listener.0 as usize].closed = false;
    }

    /// What was under way on the disk takes effect or does not.
    fn end_pending(&mut self, host: Host) {
        let ids: Vec<OpId> =
            self.pending.keys().copied().filter(|id| host_of(*id) == host).collect();
        for id in ids {
            let pending = self.pending.remove(&id).expect("it was there");
            self.stop_using(&pending.op);
            let Some(key) = pending.key else { continue };
            self.queue.remove(&key);
            if self.rng.bool() {
                let done = self.take_effect(&pending.op, pending.found);
                self.drop_done(done);
            }
        }
    }

    /// What was done and not told yet is not told any more.
    fn end_told(&mut self, host: Host) {
        let of = |event: &Event| event.id != OpId::UNASKED && host_of(event.id) == host;
        let told = self.queue.iter().filter_map(|(key, happening)| {
            matches!(happening, Happening::Complete(event) if of(event)).then_some(*key)
        });
        for key in told.collect::<Vec<_>>() {
            if let Some(Happening::Complete(event)) = self.queue.remove(&key) {
                self.drop_done(event.done);
            }
        }
        let own =
            |waits: &Happening| matches!(waits, Happening::Knock(id, _) if host_of(*id) == host);
        self.net.cuts.values_mut().for_each(|waiting| waiting.retain(|waits| !own(waits)));
    }

    /// Gives back what an operation brought that nobody is going to hear of.
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

    /// An end of a connection is gone, together with who had it.
    fn sever(&mut self, socket: Socket) {
        let Some(link) = self.net.links.get_mut(&socket).filter(|link| !link.closed) else {
            return;
        };
        (link.receiving, link.sending) = (None, None);
        (link.closed, link.reset) = (true, true);
        let at = self.arrival_at_client(socket);
        self.at(at, Happening::Over(socket));
    }
}

impl World {
    /// What was cut off is reached again: everything that waited arrives, in its order.
    pub fn heal(&mut self, listener: Listener) {
        let waiting = self.scene.net.cuts.remove(&(listener.0 as usize)).unwrap_or_default();
        let mut events = Vec::new();
        for happening in waiting {
            self.happen(happening, &mut events);
        }
        assert!(events.is_empty(), "what arrives is received later");
    }
}

/// The files and handles that an event brings.
pub fn brought(done: &Done) -> Vec<File> {
    match done {
        Done::Path(Ok(PathDone::Walked(_, Ok(file)) | PathDone::Opened(file, _))) => vec![*file],
        Done::Path(Ok(PathDone::Fetched(_, _, file))) => file.iter().copied().collect(),
        Done::Path(Ok(PathDone::Created(file, handle, _))) => vec![*file, *handle],
        _ => Vec::new(),
    }
}
