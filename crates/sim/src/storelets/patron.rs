//! The clients: a front of home's that sends their requests.

use super::errand::Errand;
use super::sky::{Happening, Sky};
use super::yard::FRONT;
use crate::trace::hash;
use base::op::Envelope;
use base::{Access, Buf, Caller, Error, Instant, Name, User};
use node::{Heard, Shadow};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tree::{Ask, NodeId, OpenId, Reply, Request, RequestId};

/// Maximum time that clients stay while the server stops.
const STAY: Duration = Duration::from_secs(5);

/// Purpose of a request.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Looks up a file of the storelets, by its index among them.
    Walk(usize),
    /// Begins a storelet of a client.
    Open(usize),
    /// Writes to one: the client, the storelet's number, and the number of bytes.
    Write(usize, u64, usize),
    /// Reads from it.
    Read(usize, u64),
    /// Ends one: the client and the number of the storelet.
    Control(usize, u64),
    Kill(usize, u64, OpenId),
}

impl Asked {
    /// Returns the requesting connection: each client has its own.
    fn connection(self) -> u32 {
        match self {
            Asked::Walk(_) => 0,
            Asked::Open(index)
            | Asked::Write(index, ..)
            | Asked::Read(index, _)
            | Asked::Control(index, _)
            | Asked::Kill(index, ..) => 1 + index as u32,
        }
    }
}

const FILES: [&str; 2] = ["new", "running"];

/// A client.
#[derive(Debug)]
struct Patron {
    caller: Caller,
    left: u32,
    errand: Option<Errand>,
    opening: bool,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Patrons {
    shadow: Shadow,
    root: NodeId,
    nodes: [Option<NodeId>; 2],
    asked: BTreeMap<RequestId, Asked>,
    next: u32,
    all: Vec<Patron>,
    /// Owners of storelets, by number.
    owners: BTreeMap<u64, usize>,
    /// Files that writers must have written: paths and contents.
    written: Vec<(String, Vec<u8>)>,
    judged: u64,
    /// Whether the server was asked to stop, and whether it has said so.
    stopping: bool,
    drained: Option<Instant>,
    is_gone: bool,
}

impl Patrons {
    pub(super) fn new(sky: &mut Sky, shadow: Shadow, root: NodeId) -> Patrons {
        let (count, left) = (sky.params.patrons, sky.params.errands);
        let patron = |number: usize| {
            let uid = 1000 + (number % 3) as u32;
            let user = User { uid, gid: uid, groups: Vec::new(), commands: false };
            let caller = Caller::User(Arc::new(user));
            Patron { caller, left, errand: None, opening: false }
        };
        let mut patrons = Patrons {
            shadow,
            root,
            nodes: [None; 2],
            asked: BTreeMap::new(),
            next: 0,
            all: (0..count).map(patron).collect(),
            owners: BTreeMap::new(),
            written: Vec::new(),
            judged: 0,
            stopping: false,
            drained: None,
            is_gone: false,
        };
        (0..FILES.len()).for_each(|file| patrons.walk(sky, file));
        for index in 0..count {
            let at = sky.within(10_000);
            sky.at(at, Happening::Wake(index));
        }
        patrons
    }

    fn tell(&self, sky: &mut Sky, input: names::Input) {
        sky.send(FRONT, self.shadow.tell(input));
    }

    fn ask(&mut self, sky: &mut Sky, caller: Caller, asked: Asked, ask: Ask) -> RequestId {
        self.next += 1;
        let id = RequestId::new(asked.connection(), self.next);
        self.asked.insert(id, asked);
        self.tell(sky, names::Input::Ask(id, Request { caller, ask }));
        id
    }

    fn walk(&mut self, sky: &mut Sky, file: usize) {
        let names = [".upcall", "storelets", FILES[file]];
        let names = names.map(|name| Name::new(name.as_bytes()).expect("a name")).to_vec();
        let ask = Ask::Walk { from: self.root, names };
        self.ask(sky, Caller::Server, Asked::Walk(file), ask);
    }

    /// Lets a client act, periodically.
    pub(super) fn wake(&mut self, sky: &mut Sky, index: usize) {
        if self.is_gone {
            return;
        }
        self.act(sky, index);
        self.leave(sky);
        if !self.is_content(index) {
            let at = sky.within(sky.params.pace_us);
            sky.at(at, Happening::Wake(index));
        }
    }

    fn act(&mut self, sky: &mut Sky, index: usize) {
        let patron = &mut self.all[index];
        let caller = patron.caller.clone();
        let Some(errand) = &mut patron.errand else {
            let Some(node) = self.nodes[0].filter(|_| patron.left > 0 && !patron.opening) else {
                return;
            };
            if self.drained.is_some() {
                patron.left = 0;
                return;
            }
            patron.opening = true;
            let access = Access { write: true, ..Access::READ };
            self.ask(sky, caller, Asked::Open(index), Ask::Open { node, access });
            return;
        };
        let late = self.drained.is_some_and(|since| sky.now > since + STAY);
        if errand.is_over() || errand.wants_to_leave(sky.now) || late {
            return self.close(sky, index);
        }
        let (open, id) = (errand.open, errand.id);
        if let Some(data) = errand.next_piece() {
            let asked = Asked::Write(index, id, data.len());
            let data = Buf::from(&data[..]);
            self.ask(sky, caller.clone(), asked, Ask::Write { open, offset: 0, data });
        }
        let errand = self.all[index].errand.as_mut().expect("it is there");
        if let Some(count) = errand.next_read(sky) {
            let ask = Ask::Read { open, offset: 0, count, headroom: sky.rng.u32(..30) };
            let read = self.ask(sky, caller.clone(), Asked::Read(index, id), ask);
            let errand = self.all[index].errand.as_mut().expect("it is there");
            errand.reading = Some(read);
        }
        let errand = self.all[index].errand.as_mut().expect("it is there");
        if let Some(read) = errand.next_cancel(sky) {
            self.tell(sky, names::Input::Cancel(read));
        }
        let errand = self.all[index].errand.as_mut().expect("it is there");
        if errand.next_kill(sky.now) {
            // Sometimes another client's.
            let which = if sky.rng.u8(..5) == 0 { sky.rng.u64(1..=id) } else { id };
            self.kill(sky, index, which);
        }
    }

    fn kill(&mut self, sky: &mut Sky, index: usize, which: u64) {
        let Some(node) = self.nodes[1] else { return };
        let caller = self.all[index].caller.clone();
        let access = Access { read: false, write: true, ..Access::READ };
        self.ask(sky, caller, Asked::Control(index, which), Ask::Open { node, access });
    }

    /// Closes a client's storelet, and checks it.
    fn close(&mut self, sky: &mut Sky, index: usize) {
        let patron = &mut self.all[index];
        let errand = patron.errand.take().expect("it is there");
        patron.left -= 1;
        sky.trace.line(format_args!("{} patron {index} leaves {}", sky.now.0, errand.id));
        errand.judge(sky, self.stopping);
        self.written.extend(errand.written());
        self.judged += 1;
        let open = errand.open;
        match sky.rng.bool() {
            true => self.tell(sky, names::Input::Close(open)),
            false => self.tell(sky, names::Input::Abandon(open)),
        }
    }

    /// Handles a message of home.
    pub(super) fn hear(&mut self, sky: &mut Sky, envelope: Envelope) {
        match self.shadow.hear(envelope) {
            Heard::Reply(id, reply) => {
                let asked = self.asked.remove(&id);
                let asked = asked.unwrap_or_else(|| panic!("{id:?} is answered twice: {reply:?}"));
                self.answered(sky, asked, reply);
            }
            Heard::Drain => {
                self.drained = Some(sky.now);
                self.stopping = true;
            }
            Heard::Other => {}
        }
        self.leave(sky);
    }

    fn answered(&mut self, sky: &mut Sky, asked: Asked, reply: Result<Reply, Error>) {
        match (asked, reply) {
            (Asked::Walk(file), Ok(Reply::Walked(_, Some(node)))) => self.nodes[file] = Some(node),
            (Asked::Walk(file), Err(_)) if sky.faults > 0 => self.walk(sky, file),
            (Asked::Open(index), Ok(Reply::Opened(open, _))) => {
                let id = self.owners.keys().next_back().unwrap_or(&0) + 1;
                self.owners.insert(id, index);
                let errand = Errand::draw(sky, open, id, index);
                let patron = &mut self.all[index];
                (patron.errand, patron.opening) = (Some(errand), false);
                self.act(sky, index);
            }
            (Asked::Open(index), Err(Error::Busy)) if self.stopping => {
                let patron = &mut self.all[index];
                (patron.left, patron.opening) = (0, false);
            }
            (Asked::Write(index, id, count), reply) => {
                let Some(errand) = self.errand(index, id) else {
                    return expect_late(&reply);
                };
                errand.wrote(sky, count, reply);
                self.act(sky, index);
            }
            (Asked::Read(index, id), reply) => {
                let Some(errand) = self.errand(index, id) else {
                    return expect_late(&reply);
                };
                let bytes = errand.heard(reply);
                let sum = bytes.map(|bytes| (bytes.len(), hash(0, &bytes)));
                sky.trace.line(format_args!("{} patron {index} hears {sum:?}", sky.now.0));
                self.act(sky, index);
            }
            (Asked::Control(index, which), Ok(Reply::Opened(open, _))) => {
                let data = Buf::from(format!("kill {which}\n").as_bytes());
                let caller = self.all[index].caller.clone();
                // Marked in advance, because the effect may precede the reply.
                if self.may(index, which) {
                    self.mark_killed(which);
                }
                let asked = Asked::Kill(index, which, open);
                self.ask(sky, caller, asked, Ask::Write { open, offset: 0, data });
            }
            (Asked::Kill(index, which, open), reply) => {
                match reply {
                    Ok(Reply::Written(_)) => assert!(self.may(index, which), "not his: {which}"),
                    Err(Error::NotPermitted) => assert!(!self.may(index, which), "his: {which}"),
                    Err(Error::NotFound) => {
                        let owner = self.owners[&which];
                        assert!(self.errand(owner, which).is_none(), "{which} is there");
                    }
                    reply => panic!("a kill is answered by {reply:?}"),
                }
                self.tell(sky, names::Input::Close(open));
            }
            (asked, reply) => panic!("{asked:?} is answered by {reply:?}"),
        }
    }

    fn may(&self, index: usize, which: u64) -> bool {
        self.all[index].caller == self.all[self.owners[&which]].caller
    }

    fn mark_killed(&mut self, which: u64) {
        let owner = self.owners[&which];
        if let Some(errand) = self.errand(owner, which) {
            errand.killed = true;
        }
    }

    fn errand(&mut self, index: usize, id: u64) -> Option<&mut Errand> {
        self.all[index].errand.as_mut().filter(|errand| errand.id == id)
    }

    fn is_content(&self, index: usize) -> bool {
        let patron = &self.all[index];
        patron.left == 0 && patron.errand.is_none() && !patron.opening
    }

    /// Returns whether all clients are done.
    pub(super) fn are_content(&self) -> bool {
        (0..self.all.len()).all(|index| self.is_content(index))
    }

    /// Makes the clients leave and release everything, when the server stops and all are done.
    fn leave(&mut self, sky: &mut Sky) {
        if self.drained.is_none() || self.is_gone {
            return;
        }
        for index in 0..self.all.len() {
            if self.all[index].errand.is_none() && !self.all[index].opening {
                self.all[index].left = 0;
            }
        }
        if !self.are_content() || !self.asked.is_empty() {
            return;
        }
        for node in std::mem::take(&mut self.nodes).into_iter().flatten() {
            self.tell(sky, names::Input::Release(node));
        }
        sky.send(FRONT, self.shadow.leave());
        self.is_gone = true;
    }

    /// Records that the server is asked to stop.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns the number of storelets checked.
    pub(super) fn judged(&self) -> u64 {
        self.judged
    }

    /// Returns the files that must have been written.
    pub(super) fn written(&self) -> &[(String, Vec<u8>)] {
        &self.written
    }

    /// Checks at the end that nothing is outstanding.
    pub(super) fn finish(&self) {
        assert!(self.asked.is_empty(), "nobody answers {:?}", self.asked);
        assert!(self.is_gone, "clients are left: {self:?}");
    }
}

/// Checks a reply to a client that has left.
fn expect_late(reply: &Result<Reply, Error>) {
    let fits = matches!(
        reply,
        Ok(Reply::Data(_) | Reply::Written(_))
            | Err(Error::Cancelled | Error::Disconnected | Error::Invalid)
    );
    assert!(fits, "who has left is answered {reply:?}");
}
