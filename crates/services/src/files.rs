//! The files of a replica.
//!
//! | file | |
//! |---|---|
//! | `ops` | operations are written, answers are read |
//! | `value` | the value after all that is done here |
//! | `stable` | the value after all that is final |
//! | `status`, `status.json` | how far this replica and the others are |
//! | `events` | a line of JSON for each operation that becomes final from now on |
//! | `peer` | what the other replicas write |

use crate::door::Door;
use crate::events::Events;
use crate::hosted::Hosted;
use crate::reads::Reads;
use crate::talk::Talk;
use crate::{Operator, Value};
use base::{Buf, Error, Instant, Name, SAYING_DEVICES, Stat};
use replica::service::{Entry as Operation, Input, Ticket};
use std::time::Duration;
use tree::flat::{self, ROOT, part};
use tree::{Ask, NodeId, OpenId, Output, Reply, Request, RequestId};

/// Most files that can be open at once.
pub const OPENS_MAX: usize = 1 << 18;

/// How many bytes the texts may have together that are open to be looked at.
pub(crate) const TEXTS_MAX: usize = 256 << 20;

/// How many doors may be open to those who have proved nothing.
pub(crate) const UNPROVEN_MAX: usize = 256;

/// The files, with their numbers and modes.
const OPS: usize = 1;
pub(crate) const VALUE: usize = 2;
pub(crate) const STABLE: usize = 3;
pub(crate) const STATUS: usize = 4;
pub(crate) const STATUS_JSON: usize = 5;
const PEER: usize = 6;
const EVENTS: usize = 7;
const FILES: [flat::File; 7] = [
    ("ops", OPS, 0o666),
    ("value", VALUE, 0o444),
    ("stable", STABLE, 0o444),
    ("status", STATUS, 0o444),
    ("status.json", STATUS_JSON, 0o444),
    ("peer", PEER, 0o666),
    ("events", EVENTS, 0o444),
];

/// How many lines of one file are taken in one turn.
const LINES_AT_ONCE: usize = 32;

/// How long answers are waited for when the server ends. Who waits for one that needs others is
/// told that it does not come.
const ENDING_TIME: Duration = Duration::from_secs(1);

/// What those who wait for something to be said can hope for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Whatever comes.
    No,
    /// Answers, until then.
    Until(Instant),
    /// Nothing: the server ends.
    Now,
}

/// An open file.
#[derive(Debug)]
pub(crate) enum Opened {
    Directory,
    Text(Vec<u8>),
    /// What a client asks, and its reads.
    Ops(Box<Talk>, Reads),
    /// What another replica writes.
    Door(Door),
    /// What becomes final, and reads that wait for it.
    Events(Box<Events>, Reads),
}

impl Opened {
    /// How many bytes of answers are there.
    pub(crate) fn held(&self) -> usize {
        match self {
            Opened::Ops(talk, _) => talk.held(),
            Opened::Directory | Opened::Text(_) | Opened::Door(_) | Opened::Events(..) => 0,
        }
    }
}

impl Hosted {
    /// The root.
    pub fn root(&self) -> NodeId {
        NodeId::new(self.index, ROOT)
    }

    /// Its attributes.
    pub fn root_stat(&self) -> Stat {
        self.stat(ROOT)
    }

    /// How many files are open.
    pub fn opens(&self) -> usize {
        self.opens.len()
    }

    pub(crate) fn ask(
        &mut self,
        now: Instant,
        id: RequestId,
        request: Request,
        out: &mut Vec<Output>,
    ) {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
        let answer = match request.ask {
            Ask::Open { node, access } => match node.local() {
                ROOT if access.changes() => Err(Error::IsDirectory),
                ROOT => self.opened(Opened::Directory, ROOT),
                OPS => {
                    let talk = Box::new(Talk::new(self.settings.id, self.known()));
                    self.opened(Opened::Ops(talk, Reads::default()), OPS)
                }
                PEER => {
                    let door = self.challenge();
                    let opened = self.opened(Opened::Door(door), PEER);
                    if let Ok(Reply::Opened(open, _)) = &opened {
                        self.expect_proof(open.local());
                    }
                    opened
                }
                _text if access.changes() => Err(Error::Denied),
                EVENTS => {
                    self.step_replica(now, Input::Watch(true), out);
                    self.opened(Opened::Events(Box::default(), Reads::default()), EVENTS)
                }
                text => self.look(text),
            },
            Ask::Read { open, offset, count, headroom } => match &mut self.opens[open.local()] {
                Opened::Text(text) => Ok(Reply::Data(part(text, offset, count, headroom))),
                Opened::Door(_) => self.read_door(open.local(), (offset, count), headroom),
                Opened::Ops(_, reads) | Opened::Events(_, reads) => {
                    reads.add(id, count, headroom);
                    return self.answer_reads(open.local(), out);
                }
                Opened::Directory => Err(Error::IsDirectory),
            },
            Ask::Write { open, offset, data } => self.write(now, open.local(), offset, &data, out),
            Ask::Fetch { path, read_max, headroom, .. } => self.fetch(&path, read_max, headroom),
            // Who writes a file anew makes it empty first: nothing is kept here.
            Ask::SetStat { node, set, .. } if node.local() == OPS && set.size.is_some() => {
                Ok(Reply::Done)
            }
            ask if ask.changes() => Err(Error::NotPermitted),
            ask => self.look_at(ask),
        };
        out.push(Output::Reply(id, answer));
    }

    fn write(
        &mut self,
        now: Instant,
        open: usize,
        offset: u64,
        data: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<Reply, Error> {
        let written = Reply::Written(u32::try_from(data.len()).expect("one message"));
        match &mut self.opens[open] {
            Opened::Ops(talk, _) => talk.write(data)?,
            Opened::Door(_) => return self.hear(now, open, offset, data, out).map(|()| written),
            Opened::Directory | Opened::Text(_) | Opened::Events(..) => return Err(Error::Denied),
        };
        self.take_lines(now, open, out);
        Ok(written)
    }

    /// Asks what lines of an open file ask; when those are many, some now and others later.
    pub(crate) fn take_lines(&mut self, now: Instant, open: usize, out: &mut Vec<Output>) {
        for _ in 0..LINES_AT_ONCE {
            let Some(Opened::Ops(talk, _)) = self.opens.get_mut(open) else { return };
            let Some(line) = talk.next_line() else { break };
            self.request(now, open, &line, out);
        }
        if let Some(Opened::Ops(talk, _)) = self.opens.get(open)
            && talk.has_lines()
        {
            self.has_lines.insert(open);
        }
        self.answer_reads(open, out);
    }

    fn open(&mut self, opened: Opened) -> Result<OpenId, Error> {
        let bytes = if let Opened::Text(text) = &opened { text.len() } else { 0 };
        if self.opens.len() >= OPENS_MAX || self.texts + bytes > TEXTS_MAX {
            return Err(Error::TooManyOpen);
        }
        self.texts += bytes;
        Ok(OpenId::new(self.index, self.opens.insert(opened)))
    }

    /// Who came first and has proved nothing makes room for who comes now.
    fn expect_proof(&mut self, open: usize) {
        self.unproven.push_back(open);
        if self.unproven.len() > UNPROVEN_MAX
            && let Some(first) = self.unproven.pop_front()
            && let Some(Opened::Door(door)) = self.opens.get_mut(first)
        {
            door.shut();
        }
    }

    fn opened(&mut self, opened: Opened, file: usize) -> Result<Reply, Error> {
        Ok(Reply::Opened(self.open(opened)?, self.stat(file)))
    }

    /// Opens what can only be looked at: all of it is of one moment.
    fn look(&mut self, file: usize) -> Result<Reply, Error> {
        let text = self.text(file);
        let stat = Stat { size: text.len() as u64, ..self.stat(file) };
        Ok(Reply::Opened(self.open(Opened::Text(text))?, stat))
    }

    fn fetch(&mut self, path: &[Name], read_max: u32, room: u32) -> Result<Reply, Error> {
        match path {
            [] => {
                let open = self.open(Opened::Directory)?;
                Ok(Reply::Fetched(self.stat(ROOT), Buf::default(), Some(open)))
            }
            [name] => match find(name)? {
                OPS | PEER | EVENTS => Err(Error::Unsupported),
                file => {
                    let text = self.text(file);
                    let stat = Stat { size: text.len() as u64, ..self.stat(file) };
                    let first = part(&text, 0, read_max, room);
                    let rest = text.len() > first.len();
                    let open = rest.then(|| self.open(Opened::Text(text))).transpose()?;
                    Ok(Reply::Fetched(stat, first, open))
                }
            },
            [..] => Err(Error::NotFound),
        }
    }

    /// Gives reads of an open file what is there; where nothing more is coming, that is the end.
    pub(crate) fn answer_reads(&mut self, open: usize, out: &mut Vec<Output>) {
        let end = |ends: bool| ends.then(Vec::new);
        let (no_answers, no_events) = (self.ending == Ending::Now, self.ending != Ending::No);
        match self.opens.get_mut(open) {
            Some(Opened::Ops(talk, reads)) => {
                self.answers -= talk.held();
                reads.answer(|count| talk.read(count).or_else(|| end(no_answers)), out);
                self.answers += talk.held();
            }
            Some(Opened::Events(events, reads)) => {
                reads.answer(|count| events.read(count).or_else(|| end(no_events)), out);
            }
            Some(Opened::Directory | Opened::Text(_) | Opened::Door(_)) | None => {}
        }
    }

    /// The server ends: nobody waits here for what does not come. For an answer a little, for more
    /// to become final not at all.
    pub fn drain(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.ending = Ending::Until(now + ENDING_TIME);
        self.answer_all(out);
    }

    /// Looks whether it is time to give up the answers that did not come.
    pub(crate) fn end_waits(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Ending::Until(at) = self.ending
            && at <= now
        {
            self.ending = Ending::Now;
            self.answer_all(out);
        }
    }

    fn answer_all(&mut self, out: &mut Vec<Output>) {
        let opens: Vec<usize> = self.opens.iter().map(|(open, _)| open).collect();
        opens.into_iter().for_each(|open| self.answer_reads(open, out));
    }

    /// Tells everybody who listens what has become final.
    pub(crate) fn tell_final(&mut self, entry: &Operation<Operator>, value: &Value) {
        let line = Events::line(entry, value);
        for (_, opened) in &mut self.opens {
            if let Opened::Events(events, _) = opened {
                events.add(&line);
            }
        }
        self.has_events = true;
    }

    /// Gives those who wait for what has become final what there is.
    pub(crate) fn answer_listeners(&mut self, out: &mut Vec<Output>) {
        if !std::mem::take(&mut self.has_events) {
            return;
        }
        for (_, opened) in &mut self.opens {
            if let Opened::Events(events, reads) = opened {
                reads.answer(|count| events.read(count), out);
            }
        }
    }

    /// Nobody wants the answer to a request any more: only reads wait.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        for (_, opened) in &mut self.opens {
            if let Opened::Ops(_, reads) | Opened::Events(_, reads) = opened
                && reads.cancel(id, out)
            {
                return;
            }
        }
    }

    pub(crate) fn take_back(&mut self, now: Instant, open: OpenId, out: &mut Vec<Output>) {
        match self.opens.remove(open.local()) {
            Opened::Ops(talk, reads) => {
                self.answers -= talk.held();
                reads.end(out);
                // What is refused meanwhile has nobody to hear it.
                self.has_lines.remove(&open.local());
                let open: Vec<Ticket> = talk.open().collect();
                let asked = open.into_iter().filter(|it| self.tickets.remove(it).is_some());
                for ticket in asked.collect::<Vec<Ticket>>() {
                    self.step_replica(now, Input::Forget(ticket), out);
                }
            }
            Opened::Events(_, reads) => {
                reads.end(out);
                let watched = self.opens.iter().any(|(_, it)| matches!(it, Opened::Events(..)));
                self.step_replica(now, Input::Watch(watched), out);
            }
            Opened::Text(text) => self.texts -= text.len(),
            Opened::Door(_) => self.unproven.retain(|it| *it != open.local()),
            Opened::Directory => {}
        }
    }

    fn look_at(&self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike in all flat trees")]
        match ask {
            Ask::Walk { from, names } => flat::walk(from, &names, find, |file| self.stat(file)),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::List { open, cookie, with_stat, .. } => match &self.opens[open.local()] {
                Opened::Directory => Ok(flat::list(&FILES, cookie, with_stat, &self.alike())),
                Opened::Text(_) | Opened::Ops(..) | Opened::Door(_) | Opened::Events(..) => {
                    Err(Error::NotDirectory)
                }
            },
            other => flat::answer(&other),
        }
    }

    fn alike(&self) -> flat::Alike {
        let device = SAYING_DEVICES | u64::from(self.index);
        flat::Alike { device, uid: self.owner, date: self.started }
    }

    fn stat(&self, file: usize) -> Stat {
        flat::stat(&FILES, file, &self.alike())
    }
}

fn find(name: &Name) -> Result<usize, Error> {
    flat::find(&FILES, name)
}
