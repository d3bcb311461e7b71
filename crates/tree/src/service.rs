//! Service files: contents that the node makes when they are opened.
//!
//! `/.upcall/` is such a tree: a flat directory of read-only files, each about one [`Topic`].
//! Opening (or fetching) one asks the node for its contents; reads are answered from what it said
//! then, so a reader sees one moment and not a mixture.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what is not a read of these files is not supported by them"
)]

use crate::request::{Ask, Input, NodeId, OpenId, Output, Reply, Request, RequestId, Topic};
use base::op::{Done, Entry, Op, OpId, PathDone, PathOp, Who};
use base::{Automaton, Buf, Caller, Error, Instant, Kind, Name, Stat, StatFs, Time};
use slab::Slab;

#[cfg(test)]
mod tests;

/// Most service files that can be open at once.
pub const OPENS_MAX: usize = 1024;

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
const ROOT: usize = 0;

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
    File(Vec<u8>),
    /// The file that can be written, by somebody who may.
    Control,
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
    renderings: Slab<Rendering>,
    /// Requests that wait for what the host knows about a user. Bounded: the node admits so many.
    identifying: Slab<RequestId>,
    /// Requests that wait for what they wrote to be done, and how many bytes that was.
    commands: Slab<(RequestId, u32)>,
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
                let commands = self.commands.iter().filter(|(_, (request, _))| *request == id);
                let cancel = |(ticket, _)| Output::CancelCommand(ticket as u64);
                out.extend(commands.map(cancel));
            }
            // Nodes are numbers here: there is nothing to free.
            Input::Release(_) => {}
            Input::Close(open) => drop(self.opens.remove(open.local())),
            Input::Rendered(ticket, contents) => self.rendered(ticket, contents, out),
            Input::Commanded(ticket, result) => {
                let (id, count) = self.commands.remove(ticket as usize);
                out.push(Output::Reply(id, result.map(|()| Reply::Written(count))));
            }
            Input::Done(op, done) => self.identified(op, done, out),
        }
    }

    fn check(&self) {
        assert!(self.opens.len() + self.renderings.len() <= OPENS_MAX);
    }
}

impl Service {
    fn ask(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let answer = match request.ask {
            Ask::Open { node, access } if access.changes() => {
                self.open_control(&request.caller, node)
            }
            Ask::Write { open, data, .. } if self.is_control(open) => {
                let count = u32::try_from(data.len()).expect("one message");
                let ticket = self.commands.insert((id, count));
                return out.push(Output::Command(ticket as u64, data.to_vec()));
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
        let (id, op) = (OpId(NodeId::new(self.index, slot).0), PathOp::Identify { who });
        out.push(Output::Do(Op::Path { id, caller, op }));
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
                let open = self.open(Opened::Control)?;
                Ok(Reply::Opened(open, self.stat(CONTROL)))
            }
            ROOT => Err(Error::IsDirectory),
            _file => Err(Error::Denied),
        }
    }

    fn is_control(&self, open: OpenId) -> bool {
        matches!(self.opens[open.local()], Opened::Control)
    }

    fn render(&mut self, id: RequestId, file: usize, fetch: Option<u32>, out: &mut Vec<Output>) {
        if self.opens.len() + self.renderings.len() >= OPENS_MAX {
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
                let open = self.opens.insert(Opened::File(contents));
                Reply::Opened(OpenId::new(self.index, open), stat)
            }
        };
        out.push(Output::Reply(rendering.request, Ok(reply)));
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        match ask {
            Ask::Walk { from, names } => self.walk(from, &names),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(node.local()))),
            Ask::Open { .. } => {
                let open = self.open(Opened::Directory)?;
                Ok(Reply::Opened(open, self.stat(ROOT)))
            }
            Ask::Read { open, offset, count, headroom } => {
                self.read(open, offset, count as usize, headroom as usize)
            }
            Ask::List { open, cookie, with_stat, .. } => self.list(open, cookie, with_stat),
            Ask::Sync { .. } => Ok(Reply::Done),
            Ask::StatFs { .. } => Ok(Reply::StatFs(StatFs { name_max: 255, ..StatFs::default() })),
            Ask::ListAttrs { .. } => Ok(Reply::Bytes(Vec::new())),
            Ask::GetAttr { .. } => Err(Error::NoAttribute),
            Ask::ReadLink { .. } => Err(Error::Invalid),
            _other => Err(Error::Unsupported),
        }
    }

    fn walk(&self, from: NodeId, names: &[Name]) -> Result<Reply, Error> {
        let (mut node, mut stats) = (from.local(), Vec::new());
        for name in names {
            let next = if node == ROOT { find(name) } else { Err(Error::NotDirectory) };
            match next {
                Ok(found) => node = found,
                Err(error) if stats.is_empty() => return Err(error),
                Err(_) => return Ok(Reply::Walked(stats, None)),
            }
            stats.push(self.stat(node));
        }
        Ok(Reply::Walked(stats, Some(NodeId::new(self.index, node))))
    }

    fn open(&mut self, opened: Opened) -> Result<OpenId, Error> {
        if self.opens.len() + self.renderings.len() >= OPENS_MAX {
            return Err(Error::TooManyOpen);
        }
        Ok(OpenId::new(self.index, self.opens.insert(opened)))
    }

    fn read(&self, open: OpenId, offset: u64, count: usize, room: usize) -> Result<Reply, Error> {
        let contents = match &self.opens[open.local()] {
            Opened::File(contents) => contents.as_slice(),
            Opened::Control => &[],
            Opened::Directory => return Err(Error::IsDirectory),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let end = start.saturating_add(count).min(contents.len());
        let mut data = Buf::with_room(room, end - start);
        data.extend(&contents[start..end]);
        Ok(Reply::Data(data))
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
            Entry { cookie: file as u64, inode: file as u64, kind: Kind::File, name, stat }
        };
        let place = |index: usize| {
            let name = self.places[index - FILES.len() - 1].clone();
            let stat = with_stat.then(|| self.stat(ROOT));
            let number = index as u64;
            Entry { cookie: number, inode: number, kind: Kind::Directory, name, stat }
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
