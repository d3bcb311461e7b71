//! The clients: a front of home's that sends their requests.

use super::environment::{Environment, ScheduledEvent};
use super::job::Job;
use crate::trace::hash;
use base::op::Envelope;
use base::{Access, Buf, Caller, Error, Instant, Name, User};
use node::{FromHome, HOME, Shadow};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tree::{Ask, NodeId, OpenId, Reply, Request, RequestId};

/// Number of the front of the clients.
pub(super) const FRONT: usize = HOME + 1;

/// Maximum time that clients stay while the server stops.
const STAY: Duration = Duration::from_secs(5);

/// Purpose of a request.
#[derive(Clone, Copy, Debug)]
enum Requested {
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

impl Requested {
    /// Returns the requesting connection: each client has its own.
    fn connection(self) -> u32 {
        match self {
            Requested::Walk(_) => 0,
            Requested::Open(index)
            | Requested::Write(index, ..)
            | Requested::Read(index, _)
            | Requested::Control(index, _)
            | Requested::Kill(index, ..) => 1 + index as u32,
        }
    }
}

const FILES: [&str; 2] = ["new", "running"];

/// A client.
#[derive(Debug)]
struct Client {
    caller: Caller,
    left: u32,
    job: Option<Job>,
    opening: bool,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Clients {
    shadow: Shadow,
    root: NodeId,
    nodes: [Option<NodeId>; 2],
    requested: BTreeMap<RequestId, Requested>,
    next: u32,
    all: Vec<Client>,
    /// Owners of storelets, by number.
    owners: BTreeMap<u64, usize>,
    /// Files that writers must have written: paths and contents.
    written: Vec<(String, Vec<u8>)>,
    judged: u64,
    /// Whether the server was requested to stop, and whether it has acknowledged it.
    stopping: bool,
    drained: Option<Instant>,
    is_gone: bool,
}

impl Clients {
    pub(super) fn new(env: &mut Environment, shadow: Shadow, root: NodeId) -> Clients {
        let (count, left) = (env.params.run_clients, env.params.jobs);
        let run_client = |number: usize| {
            let uid = 1000 + (number % 3) as u32;
            let user = User { uid, gid: uid, groups: Vec::new(), commands: false };
            let caller = Caller::User(Arc::new(user));
            Client { caller, left, job: None, opening: false }
        };
        let mut run_clients = Clients {
            shadow,
            root,
            nodes: [None; 2],
            requested: BTreeMap::new(),
            next: 0,
            all: (0..count).map(run_client).collect(),
            owners: BTreeMap::new(),
            written: Vec::new(),
            judged: 0,
            stopping: false,
            drained: None,
            is_gone: false,
        };
        (0..FILES.len()).for_each(|file| run_clients.walk(env, file));
        for index in 0..count {
            let at = env.within(10_000);
            env.schedule(at, ScheduledEvent::Wake(index));
        }
        run_clients
    }

    fn send_home(&self, env: &mut Environment, input: names::Input) {
        env.send(FRONT, self.shadow.send_home(input));
    }

    fn ask(
        &mut self,
        env: &mut Environment,
        caller: Caller,
        requested: Requested,
        ask: Ask,
    ) -> RequestId {
        self.next += 1;
        let id = RequestId::new(requested.connection(), self.next);
        self.requested.insert(id, requested);
        self.send_home(env, names::Input::Ask(id, Request { caller, ask }));
        id
    }

    fn walk(&mut self, env: &mut Environment, file: usize) {
        let names = [".upcall", "storelets", FILES[file]];
        let names = names.map(|name| Name::new(name.as_bytes()).expect("a name")).to_vec();
        let ask = Ask::Walk { from: self.root, names };
        self.ask(env, Caller::Server, Requested::Walk(file), ask);
    }

    /// Lets a client act, periodically.
    pub(super) fn wake(&mut self, env: &mut Environment, index: usize) {
        if self.is_gone {
            return;
        }
        self.act(env, index);
        self.leave(env);
        if !self.is_content(index) {
            let at = env.within(env.params.pace_us);
            env.schedule(at, ScheduledEvent::Wake(index));
        }
    }

    fn act(&mut self, env: &mut Environment, index: usize) {
        let run_client = &mut self.all[index];
        let caller = run_client.caller.clone();
        let Some(job) = &mut run_client.job else {
            let Some(node) = self.nodes[0].filter(|_| run_client.left > 0 && !run_client.opening)
            else {
                return;
            };
            if self.drained.is_some() {
                run_client.left = 0;
                return;
            }
            run_client.opening = true;
            let access = Access { write: true, ..Access::READ };
            self.ask(env, caller, Requested::Open(index), Ask::Open { node, access });
            return;
        };
        let late = self.drained.is_some_and(|since| env.now > since + STAY);
        if job.is_over() || job.wants_to_leave(env.now) || late {
            return self.close(env, index);
        }
        let (open, id) = (job.open, job.id);
        if let Some(data) = job.next_piece() {
            let requested = Requested::Write(index, id, data.len());
            let data = Buf::from(&data[..]);
            self.ask(env, caller.clone(), requested, Ask::Write { open, offset: 0, data });
        }
        let job = self.all[index].job.as_mut().expect("it is there");
        if let Some(count) = job.next_read(env) {
            let ask = Ask::Read { open, offset: 0, count, headroom: env.rng.u32(..30) };
            let read = self.ask(env, caller.clone(), Requested::Read(index, id), ask);
            let job = self.all[index].job.as_mut().expect("it is there");
            job.reading = Some(read);
        }
        let job = self.all[index].job.as_mut().expect("it is there");
        if let Some(read) = job.next_cancel(env) {
            self.send_home(env, names::Input::Cancel(read));
        }
        let job = self.all[index].job.as_mut().expect("it is there");
        if job.next_kill(env.now) {
            // Sometimes another client's.
            let which = if env.rng.u8(..5) == 0 { env.rng.u64(1..=id) } else { id };
            self.kill(env, index, which);
        }
    }

    fn kill(&mut self, env: &mut Environment, index: usize, which: u64) {
        let Some(node) = self.nodes[1] else { return };
        let caller = self.all[index].caller.clone();
        let access = Access { read: false, write: true, ..Access::READ };
        self.ask(env, caller, Requested::Control(index, which), Ask::Open { node, access });
    }

    /// Closes a client's storelet, and checks it.
    fn close(&mut self, env: &mut Environment, index: usize) {
        let run_client = &mut self.all[index];
        let job = run_client.job.take().expect("it is there");
        run_client.left -= 1;
        env.trace.line(format_args!("{} client {index} leaves {}", env.now.0, job.id));
        job.judge(env, self.stopping);
        self.written.extend(job.written());
        self.judged += 1;
        let open = job.open;
        match env.rng.bool() {
            true => self.send_home(env, names::Input::Close(open)),
            false => self.send_home(env, names::Input::Abandon(open)),
        }
    }

    /// Handles a message of home.
    pub(super) fn receive(&mut self, env: &mut Environment, envelope: Envelope) {
        match self.shadow.handle(envelope) {
            FromHome::Reply(id, reply) => {
                let requested = self.requested.remove(&id);
                let requested =
                    requested.unwrap_or_else(|| panic!("{id:?} is answered twice: {reply:?}"));
                self.answered(env, requested, reply);
            }
            FromHome::Drain => {
                self.drained = Some(env.now);
                self.stopping = true;
            }
            FromHome::Other => {}
        }
        self.leave(env);
    }

    fn answered(
        &mut self,
        env: &mut Environment,
        requested: Requested,
        reply: Result<Reply, Error>,
    ) {
        match (requested, reply) {
            (Requested::Walk(file), Ok(Reply::Walked(_, Some(node)))) => {
                self.nodes[file] = Some(node)
            }
            (Requested::Walk(file), Err(_)) if env.faults > 0 => self.walk(env, file),
            (Requested::Open(index), Ok(Reply::Opened(open, _))) => {
                let id = self.owners.keys().next_back().unwrap_or(&0) + 1;
                self.owners.insert(id, index);
                let job = Job::draw(env, open, id, index);
                let run_client = &mut self.all[index];
                (run_client.job, run_client.opening) = (Some(job), false);
                self.act(env, index);
            }
            (Requested::Open(index), Err(Error::Busy)) if self.stopping => {
                let run_client = &mut self.all[index];
                (run_client.left, run_client.opening) = (0, false);
            }
            (Requested::Write(index, id, count), reply) => {
                let Some(job) = self.job(index, id) else {
                    return expect_late(&reply);
                };
                job.wrote(env, count, reply);
                self.act(env, index);
            }
            (Requested::Read(index, id), reply) => {
                let Some(job) = self.job(index, id) else {
                    return expect_late(&reply);
                };
                let bytes = job.received(reply);
                let sum = bytes.map(|bytes| (bytes.len(), hash(0, &bytes)));
                env.trace.line(format_args!("{} client {index} hears {sum:?}", env.now.0));
                self.act(env, index);
            }
            (Requested::Control(index, which), Ok(Reply::Opened(open, _))) => {
                let data = Buf::from(format!("kill {which}\n").as_bytes());
                let caller = self.all[index].caller.clone();
                // Marked in advance, because the effect may precede the reply.
                if self.may(index, which) {
                    self.mark_killed(which);
                }
                let requested = Requested::Kill(index, which, open);
                self.ask(env, caller, requested, Ask::Write { open, offset: 0, data });
            }
            (Requested::Kill(index, which, open), reply) => {
                match reply {
                    Ok(Reply::Written(_)) => assert!(self.may(index, which), "not his: {which}"),
                    Err(Error::NotPermitted) => assert!(!self.may(index, which), "his: {which}"),
                    Err(Error::NotFound) => {
                        let owner = self.owners[&which];
                        assert!(self.job(owner, which).is_none(), "{which} is there");
                    }
                    reply => panic!("a kill is answered by {reply:?}"),
                }
                self.send_home(env, names::Input::Close(open));
            }
            (requested, reply) => panic!("{requested:?} is answered by {reply:?}"),
        }
    }

    fn may(&self, index: usize, which: u64) -> bool {
        self.all[index].caller == self.all[self.owners[&which]].caller
    }

    fn mark_killed(&mut self, which: u64) {
        let owner = self.owners[&which];
        if let Some(job) = self.job(owner, which) {
            job.killed = true;
        }
    }

    fn job(&mut self, index: usize, id: u64) -> Option<&mut Job> {
        self.all[index].job.as_mut().filter(|job| job.id == id)
    }

    fn is_content(&self, index: usize) -> bool {
        let run_client = &self.all[index];
        run_client.left == 0 && run_client.job.is_none() && !run_client.opening
    }

    /// Returns whether all clients are done.
    pub(super) fn are_content(&self) -> bool {
        (0..self.all.len()).all(|index| self.is_content(index))
    }

    /// Makes the clients leave and release everything, when the server stops and all are done.
    fn leave(&mut self, env: &mut Environment) {
        if self.drained.is_none() || self.is_gone {
            return;
        }
        for index in 0..self.all.len() {
            if self.all[index].job.is_none() && !self.all[index].opening {
                self.all[index].left = 0;
            }
        }
        if !self.are_content() || !self.requested.is_empty() {
            return;
        }
        for node in std::mem::take(&mut self.nodes).into_iter().flatten() {
            self.send_home(env, names::Input::Release(node));
        }
        env.send(FRONT, self.shadow.leave());
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
        assert!(self.requested.is_empty(), "nobody answers {:?}", self.requested);
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
    assert!(fits, "a client that has left got {reply:?}");
}
