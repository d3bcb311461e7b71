//! Service files: contents that the node makes when they are opened.
//!
//! `/.upcall/` is such a tree: a flat directory of read-only files, each about one [`Topic`].
//! Opening (or fetching) one asks the node for its contents; reads are answered from what it said
//! then, so a reader sees one moment and not a mixture. Contents of all open files are at most
//! [`CONTENTS_MAX`]: with more, those that were not read for longest are forgotten, so that clients
//! that open files and keep them do not keep others from reading. Who opens the one that can be
//! written for reading too reads what was wrong with what he wrote.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what is not a read of these files is not supported by them"
)]

use crate::flat::{self, ROOT};
use crate::request::Topic;
use crate::request::{Ask, Input, NodeId, OpenId, Output, Refusal, Reply, Request, RequestId};
use base::op::{Done, Entry, Op, OpId, PathDone, PathOp, Who};
use base::{Automaton, Buf, Caller, Error, Instant, Kind, Name, Stat, Time};
use control::{Control, Lines};
use slab::Slab;
use std::collections::BTreeMap;

mod control;
#[cfg(test)]
mod tests;

/// Maximum number of open service files.
pub const OPENS_MAX: usize = 65_536;

/// Maximum number of requests that wait for contents: reports of all nodes are held for each.
const RENDERINGS_MAX: usize = 1024;

/// Bytes of contents of all open files, at most; the last one may be larger.
pub const CONTENTS_MAX: usize = 16 << 20;

/// The files: name and topic.
pub const FILES: [(&str, Topic); 5] = [
    ("machines", Topic::Machines),
    ("queues", Topic::Queues),
    ("stages", Topic::Stages),
    ("metrics", Topic::Metrics),
    ("names", Topic::Names),
];

/// The file that can be written.
const CONTROL: usize = FILES.len();

/// The device number of service files; no host has it.
const DEVICE: u64 = u64::MAX;

/// A request that waits for contents.
#[derive(Debug)]
struct Rendering {
    request: RequestId,
    file: usize,
    /// The headroom of a fetch; `None`: an open.
    fetch: Option<u32>,
}

#[derive(Debug)]
enum Opened {
    Directory,
    /// Its contents, with their number in the order of making and reading. `None`: they were
    /// forgotten.
    File(Option<(u64, Vec<u8>)>),
    /// The file that can be written, by somebody who may.
    Control(Box<Control>),
}

/// Lines that are carried out.
#[derive(Debug)]
struct Command {
    /// Through which open file they came.
    open: usize,
    /// Who waits for their end, and what he hears if it is a good one. `None`: they came with the
    /// close.
    waits: Option<(RequestId, Reply)>,
    /// Where they were written.
    offset: Option<u64>,
    /// Lines before them failed.
    given_up: bool,
}

/// The tree automaton.
#[derive(Debug)]
pub struct Service {
    index: u16,
    started: Time,
    /// Who may write, besides root.
    owner: u32,
    /// Directories that others mount here, to be listed.
    places: Vec<Name>,
    opens: Slab<Opened>,
    /// Open files with contents, by the number of these.
    contents: BTreeMap<u64, usize>,
    /// Number given out last, and bytes of contents that are kept.
    made: u64,
    bytes: usize,
    renderings: Slab<Rendering>,
    /// Requests that wait for what the host knows about a user. Bounded: the node admits so many.
    identifying: Slab<RequestId>,
    /// Bounded: the node admits so many requests, and so many files are open.
    commands: Slab<Command>,
}

impl Service {
    /// Number `index` among the node's trees; its files bear the date `started`, and belong to
    /// `owner`. At `places` the
    /// mux mounts directories of others.
    pub fn new(index: u16, started: Time, owner: u32, places: Vec<Name>) -> Service {
        Service {
            index,
            started,
            owner,
            places,
            opens: Slab::new(),
            contents: BTreeMap::new(),
            made: 0,
            bytes: 0,
            renderings: Slab::new(),
            identifying: Slab::new(),
            commands: Slab::new(),
        }
    }

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
}

impl Automaton for Service {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Ask(id, request) => self.ask(id, request, out),
            Input::Cancel(id) => {
                // Contents are made at once: there is nothing else to cut short.
                let waits = |command: &Command| command.waits.as_ref().is_some_and(|w| w.0 == id);
                let commands = self.commands.iter().filter(|(_, command)| waits(command));
                out.extend(commands.map(|(ticket, _)| Output::CancelCommand(ticket as u64)));
            }
            // Nodes are numbers here: there is nothing to free.
            Input::Release(_) => {}
            Input::Close(open) => self.close(open, true, out),
            Input::Abandon(open) => self.close(open, false, out),
            Input::Rendered(ticket, contents) => self.rendered(ticket, contents, out),
            Input::Commanded(ticket, result) => self.commanded(ticket, result, out),
            Input::Done(op, done) => self.identified(op, done, out),
        }
    }

    fn check(&self) {
        let bytes = self.opens.iter().map(|(_, opened)| match opened {
            Opened::File(Some((_, contents))) => contents.len(),
            Opened::File(None) | Opened::Directory | Opened::Control(_) => 0,
        });
        assert_eq!(self.bytes, bytes.sum::<usize>(), "contents are counted");
        assert!(self.renderings.len() <= RENDERINGS_MAX);
        assert!(self.bytes <= CONTENTS_MAX || self.contents.len() == 1, "they are few");
        for (number, opened) in &self.opens {
            let commands =
                self.commands.iter().filter(|(_, command)| command.open == number).count();
            match opened {
                Opened::Control(control) => {
                    assert_eq!(control.commands, commands, "commands under way are counted");
                    assert!(
                        !control.closed || commands > 0,
                        "what was given back waits for commands"
                    );
                    control.check();
                }
                Opened::Directory | Opened::File(_) => {
                    assert_eq!(commands, 0, "it takes no commands")
                }
            }
        }
        let known = |command: &Command| self.opens.contains(command.open);
        assert!(
            self.commands.iter().all(|(_, command)| known(command)),
            "a command came by a file"
        );
        for (_, rendering) in &self.renderings {
            assert!((1..=FILES.len()).contains(&rendering.file), "only files have contents");
        }
    }
}

impl Service {
    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let answer = match request.ask {
            Ask::Open { node, access } if access.changes() => {
                self.open_control(&request.caller, node)
            }
            Ask::Write { open, offset, data } if self.is_control(open) => {
                let written = Reply::Written(u32::try_from(data.len()).expect("one message"));
                let lines = self.control(open.local()).write(offset, &data);
                return self.command(open, (id, written), Some(offset), lines, out);
            }
            Ask::Sync { open, .. } if self.is_control(open) => {
                let rest = self.control(open.local()).rest();
                return self.command(open, (id, Reply::Done), None, Ok(rest), out);
            }
            // Who writes a file anew makes it empty first.
            Ask::SetStat { node, set, .. } if node.local() == CONTROL && set.size.is_some() => {
                self.open_control(&request.caller, node).map(|opened| {
                    if let Reply::Opened(open, _) = opened {
                        self.opens.remove(open.local());
                    }
                    Reply::Done
                })
            }
            ask if ask.changes() => Err(Error::NotPermitted),
            Ask::Identify { who } => return self.identify(id, request.caller, who, out),
            Ask::Open { node, .. } if node.local() != ROOT => {
                return self.render(id, node.local(), None, out);
            }
            Ask::Fetch { path, headroom, .. } => match find_path(&path) {
                Some(ROOT) => self
                    .open(Opened::Directory)
                    .map(|open| Reply::Fetched(self.stat(ROOT), Buf::default(), Some(open))),
                Some(file) => return self.render(id, file, Some(headroom), out),
                None => Err(Error::NotFound),
            },
            ask => self.answer(ask),
        };
        out.push(Output::Reply(id, answer));
    }

    /// Who a user is only the host knows. Other trees may have nothing to do with it.
    fn identify(&mut self, id: RequestId, caller: Caller, who: Who, out: &mut Vec<Output>) {
        let slot = self.identifying.insert(id);
        let asker = id.asker();
        let (id, op) = (OpId(NodeId::new(self.index, slot).0), PathOp::Identify { who });
        out.push(Output::Do(Op::Path { id, caller, asker, within: None, op }));
    }

    fn identified(&mut self, op: OpId, done: Done, out: &mut Vec<Output>) {
        let id = self.identifying.remove(NodeId(op.0).local());
        let reply = match done {
            Done::Path(Ok(PathDone::User(user))) => Ok(Reply::User(user)),
            Done::Path(Err(error)) => Err(error),
            other => unreachable!("{other:?} identifies nobody"),
        };
        out.push(Output::Reply(id, reply));
    }

    /// Only root and the server's own user may change how it is put together, and of them only
    /// who the kernel knows and who asked for it.
    fn open_control(&mut self, caller: &Caller, node: NodeId) -> Result<Reply, Error> {
        let may = match caller {
            Caller::Server => false,
            Caller::User(user) => user.commands && [0, self.owner].contains(&user.uid),
        };
        match node.local() {
            CONTROL if may => {
                let open = self.open(Opened::Control(Box::default()))?;
                Ok(Reply::Opened(open, self.stat(CONTROL)))
            }
            ROOT => Err(Error::IsDirectory),
            _file => Err(Error::Denied),
        }
    }

    fn is_control(&self, open: OpenId) -> bool {
        matches!(self.opens[open.local()], Opened::Control(_))
    }

    fn control(&mut self, open: usize) -> &mut Control {
        match &mut self.opens[open] {
            Opened::Control(control) => control,
            other @ (Opened::Directory | Opened::File(_)) => unreachable!("{other:?}"),
        }
    }

    /// Has lines carried out before somebody is answered, if there are any.
    fn command(
        &mut self,
        open: OpenId,
        waits: (RequestId, Reply),
        offset: Option<u64>,
        lines: Result<Option<Lines>, Error>,
        out: &mut Vec<Output>,
    ) {
        let (id, reply) = waits;
        match lines {
            Ok(Some(lines)) => self.carry_out(open.local(), Some((id, reply)), offset, lines, out),
            Ok(None) => out.push(Output::Reply(id, Ok(reply))),
            Err(error) => out.push(Output::Reply(id, Err(error))),
        }
    }

    fn carry_out(
        &mut self,
        open: usize,
        waits: Option<(RequestId, Reply)>,
        offset: Option<u64>,
        lines: Lines,
        out: &mut Vec<Output>,
    ) {
        self.control(open).commands += 1;
        let ticket = self.commands.insert(Command { open, waits, offset, given_up: false }) as u64;
        out.push(Output::Command { ticket, line: lines.first, text: lines.text });
    }

    fn commanded(&mut self, ticket: u64, result: Result<(), Refusal>, out: &mut Vec<Output>) {
        let Command { open, waits, offset, given_up } = self.commands.remove(ticket as usize);
        assert!(self.control(open).commands > 0, "each command of a file is counted");
        if let Err(refusal) = result.as_ref()
            && !given_up
        {
            self.control(open).fail(&refusal.why, offset);
            self.give_up(open, out);
        }
        if let Some((id, reply)) = waits {
            out.push(Output::Reply(id, result.map(|()| reply).map_err(|refusal| refusal.error)));
        }
        self.control(open).commands -= 1;
        self.forget(open);
    }

    /// Has nothing carried out that was written behind what failed.
    fn give_up(&mut self, open: usize, out: &mut Vec<Output>) {
        for (ticket, command) in &mut self.commands {
            if command.open == open && !command.given_up {
                command.given_up = true;
                out.push(Output::CancelCommand(ticket as u64));
            }
        }
    }

    /// Takes an open file back; `finished`: whoever had it has written all that was to be written.
    fn close(&mut self, open: OpenId, finished: bool, out: &mut Vec<Output>) {
        let open = open.local();
        let Opened::Control(control) = &mut self.opens[open] else {
            self.drop_contents(open);
            self.opens.remove(open);
            return;
        };
        control.closed = true;
        if let Some(rest) = control.rest().filter(|_| finished) {
            self.carry_out(open, None, None, rest, out);
        }
        self.forget(open);
    }

    /// Forgets a control file that was given back, when nothing of it is under way.
    fn forget(&mut self, open: usize) {
        let control = self.control(open);
        if control.closed && control.commands == 0 {
            self.opens.remove(open);
        }
    }

    fn render(&mut self, id: RequestId, file: usize, fetch: Option<u32>, out: &mut Vec<Output>) {
        assert!((1..=FILES.len()).contains(&file), "only files have contents");
        let is_full = fetch.is_none() && self.opens.len() + self.renderings.len() >= OPENS_MAX;
        if is_full || self.renderings.len() >= RENDERINGS_MAX {
            return out.push(Output::Reply(id, Err(Error::TooManyOpen)));
        }
        let (_, topic) = FILES[file - 1];
        let ticket = self.renderings.insert(Rendering { request: id, file, fetch });
        out.push(Output::Render(ticket as u64, topic));
    }

    fn rendered(&mut self, ticket: u64, contents: Vec<u8>, out: &mut Vec<Output>) {
        let rendering = self.renderings.remove(ticket as usize);
        let stat = Stat { size: contents.len() as u64, ..self.stat(rendering.file) };
        let reply = match rendering.fetch {
            Some(headroom) => {
                let mut data = Buf::with_room(headroom as usize, contents.len());
                data.extend(&contents);
                Reply::Fetched(stat, data, None)
            }
            None => {
                let open = self.opens.insert(Opened::File(None));
                self.keep_contents(open, contents);
                Reply::Opened(OpenId::new(self.index, open), stat)
            }
        };
        out.push(Output::Reply(rendering.request, Ok(reply)));
    }

    /// Keeps the contents of an open file, and forgets the oldest while there are too many.
    fn keep_contents(&mut self, open: usize, contents: Vec<u8>) {
        self.made += 1;
        self.bytes += contents.len();
        self.contents.insert(self.made, open);
        self.opens[open] = Opened::File(Some((self.made, contents)));
        while self.bytes > CONTENTS_MAX && self.contents.len() > 1 {
            let (_, oldest) = self.contents.first_key_value().expect("there are two");
            self.drop_contents(*oldest);
        }
    }

    /// Contents that are read are forgotten after those that are only kept.
    fn note_read(&mut self, open: usize) {
        if let Opened::File(Some((number, _))) = &mut self.opens[open] {
            self.made += 1;
            self.contents.remove(number);
            self.contents.insert(self.made, open);
            *number = self.made;
        }
    }

    /// Forgets the contents of an open file, if it has some.
    fn drop_contents(&mut self, open: usize) {
        if let Opened::File(contents) = &mut self.opens[open]
            && let Some((number, contents)) = contents.take()
        {
            self.bytes -= contents.len();
            let known = self.contents.remove(&number);
            assert_eq!(known, Some(open), "contents are known by their number");
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        match ask {
            Ask::Walk { from, names } => flat::walk(from, &names, find, |node| self.stat(node)),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::Open { .. } => {
                let open = self.open(Opened::Directory)?;
                Ok(Reply::Opened(open, self.stat(ROOT)))
            }
            Ask::Read { open, offset, count, headroom } => self.read(open, offset, count, headroom),
            Ask::List { open, cookie, with_stat, .. } => self.list(open, cookie, with_stat),
            other => flat::answer(&other),
        }
    }

    fn open(&mut self, opened: Opened) -> Result<OpenId, Error> {
        if self.opens.len() + self.renderings.len() >= OPENS_MAX {
            return Err(Error::TooManyOpen);
        }
        Ok(OpenId::new(self.index, self.opens.insert(opened)))
    }

    fn read(&mut self, open: OpenId, offset: u64, count: u32, room: u32) -> Result<Reply, Error> {
        self.note_read(open.local());
        let contents = match &self.opens[open.local()] {
            Opened::File(Some((_, contents))) => contents.as_slice(),
            Opened::File(None) => return Err(Error::Stale),
            Opened::Control(control) => control.complaint(),
            Opened::Directory => return Err(Error::IsDirectory),
        };
        Ok(Reply::Data(flat::part(contents, offset, count, room)))
    }

    fn list(&self, open: OpenId, cookie: u64, with_stat: bool) -> Result<Reply, Error> {
        let Opened::Directory = &self.opens[open.local()] else {
            return Err(Error::NotDirectory);
        };
        let first = usize::try_from(cookie).map_or(usize::MAX, |seen| seen.saturating_add(1));
        let entry = |file: usize| {
            let (name, _) = FILES[file - 1];
            let name = Name::new(name.as_bytes()).expect("a plain name");
            let stat = with_stat.then(|| self.stat(file));
            Entry {
                cookie: file as u64,
                inode: file as u64,
                device: None,
                kind: Kind::File,
                name,
                stat,
            }
        };
        let place = |index: usize| {
            let name = self.places[index - FILES.len() - 1].clone();
            let stat = with_stat.then(|| self.stat(ROOT));
            let number = index as u64;
            Entry { cookie: number, inode: number, device: None, kind: Kind::Directory, name, stat }
        };
        let last = FILES.len() + self.places.len();
        let all = first..=last;
        let entries =
            all.map(|index| if index <= FILES.len() { entry(index) } else { place(index) });
        Ok(Reply::Entries(entries.collect()))
    }

    fn stat(&self, node: usize) -> Stat {
        let (kind, mode, links) = match node {
            ROOT => (Kind::Directory, 0o555, 2),
            CONTROL => (Kind::File, 0o644, 1),
            _file => (Kind::File, 0o444, 1),
        };
        let (accessed, modified, changed) = (self.started, self.started, self.started);
        let (device, inode, block_size) = (DEVICE, node as u64, 4096);
        Stat {
            kind,
            mode,
            links,
            device,
            inode,
            uid: self.owner,
            block_size,
            accessed,
            modified,
            changed,
            ..Stat::default()
        }
    }
}

fn find(name: &Name) -> Result<usize, Error> {
    if matches!(name.as_bytes(), b"." | b"..") {
        return Ok(ROOT);
    }
    let index = FILES.iter().position(|(known, _)| known.as_bytes() == name.as_bytes());
    index.map(|index| index + 1).ok_or(Error::NotFound)
}

fn find_path(path: &[Name]) -> Option<usize> {
    match path {
        [] => Some(ROOT),
        [name] => find(name).ok(),
        [..] => None,
    }
}
