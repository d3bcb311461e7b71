//! A stream of a subtree: walks it depth first, one request at a time, and encodes what it finds.
//!
//! ```text
//! find ──▶ enter ──▶ open ──▶ list ──▶ read ──▶ enter the next ──▶ open ──▶ …
//! ```
//!
//! It stays in the first tree: a directory that is another one than was listed, because something
//! is mounted or bound there, is not entered. Nor are directories for whose paths there is no
//! memory; clients look at these themselves.

use crate::locks::FileKey;
use crate::request::{Ask, NodeId, OpenId, Reply, StreamOutput as Output};
use base::op::{Detail, Entry};
use base::{Access, Error, Kind, Name, Stat};
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use wire::ninep::{self, Qid, WALK_MAX};
use wire::subtree::{CONTENT_MAX, PATH_MAX, Record};

/// Size of unread records at which no further request is sent, bytes.
const BUFFER_MAX: usize = 128 << 10;

/// Maximum size of the records of one reply, bytes.
const REPLY_MAX: usize = 512 << 10;

/// Maximum memory of the paths of directories to enter, bytes.
const PATHS_MAX: usize = 256 << 10;

/// Maximum memory of the names of files to read, bytes.
const NAMES_MAX: usize = 256 << 10;

/// Maximum memory of a stream, bytes.
pub(super) const BYTES_MAX: usize = BUFFER_MAX + REPLY_MAX + PATHS_MAX + NAMES_MAX + PATH_MAX;

/// Size of a listing request, bytes: up to a thousand entries, which are encoded in one turn.
const LIST: u32 = 32 << 10;

/// Maximum size of the contents of files read by one request, and number of these.
const READ: u32 = 256 << 10;
const READ_FILES_MAX: usize = 128;

/// The namespace.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) root: NodeId,
    /// Device number of the first tree.
    pub(super) device: u64,
    /// Names of entries that may be mount points.
    pub(super) points: BTreeSet<Name>,
}

/// A directory to enter.
#[derive(Debug)]
struct Target {
    /// Path relative to the directory that was requested.
    path: Vec<u8>,
    /// Identity when it was listed; `None` for the directory that was requested.
    key: Option<FileKey>,
}

impl Target {
    /// Returns the directory that was requested.
    fn top() -> Target {
        Target { path: Vec::new(), key: None }
    }

    fn bytes(&self) -> usize {
        self.path.len() + size_of::<Target>()
    }

    fn names(&self) -> Vec<Name> {
        let parts = self.path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.map(|part| Name::new(part).expect("it was listed")).collect()
    }
}

/// A directory in progress.
#[derive(Debug)]
struct Directory {
    node: NodeId,
    device: u64,
    path: Vec<u8>,
    /// Directories in it that will be entered.
    below: Vec<Target>,
    /// Files in it that will be read, with their sizes, and the memory of their names, bytes.
    files: VecDeque<(Name, u64)>,
    names_bytes: usize,
}

/// A request, with the nodes and open files to return after it.
#[derive(Debug)]
enum Step {
    /// Walk to the directory that was requested.
    Find { names: Vec<Name>, own: Option<NodeId> },
    /// Walk from there to a directory.
    Enter { target: Target, names: Vec<Name>, own: Option<NodeId> },
    /// Open the directory.
    Open { target: Target, node: NodeId, qid: Qid },
    /// List its entries behind a cookie.
    List { dir: Box<Directory>, open: OpenId, cookie: u64 },
    /// Read its first small files.
    Read { dir: Box<Directory> },
}

/// State of a stream.
#[derive(Debug, Default)]
enum State {
    /// Waiting for the request of the client.
    #[default]
    Unasked,
    /// Waiting for room for the reply to the next request.
    Ready(Step),
    /// Waiting for a reply.
    Requested(Step),
    /// Waiting for the client to read the last records.
    Over,
    /// Waiting for a reply that is discarded.
    Closing(Step),
    /// Closed, with nothing in progress.
    Closed,
}

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    state: State,
    /// Whether contents are sent, too.
    has_contents: bool,
    /// Path from the directory that was requested to the one to begin with.
    start: Vec<u8>,
    /// The directory that was requested, when it has been found.
    top: Option<NodeId>,
    /// Directories to enter, the next one last.
    pending: Vec<Target>,
    /// Memory of these and of those in the directory in progress, bytes.
    paths: usize,
    /// Records, of which this number of bytes has been read.
    buffer: Vec<u8>,
    taken: usize,
}

impl Stream {
    /// Handles the request of the client: `attributes` or `contents` with a path.
    ///
    /// # Errors
    /// `Invalid` if it is malformed or not the first one, `NameTooLong`.
    pub(super) fn request(&mut self, data: &[u8]) -> Result<(), Error> {
        if !matches!(self.state, State::Unasked) {
            return Err(Error::Invalid);
        }
        let Request { has_contents, names, start } = parse(data)?;
        (self.has_contents, self.start) = (has_contents, start);
        self.state = State::Ready(Step::Find { names, own: None });
        Ok(())
    }

    /// Returns whether there is a request to send, and room for the reply.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_)) && self.unread() < BUFFER_MAX
    }

    /// Returns whether there will be no more records.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns whether it is closed and waits for no reply.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Returns its memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
            + self.paths
            + self.start.len()
            + self.directory().map_or(0, |dir| dir.names_bytes)
    }

    /// Returns the size of unread records, bytes.
    pub(super) fn unread(&self) -> usize {
        self.buffer.len() - self.taken
    }

    fn directory(&self) -> Option<&Directory> {
        match &self.state {
            State::Ready(step) | State::Requested(step) | State::Closing(step) => match step {
                Step::List { dir, .. } | Step::Read { dir } => Some(dir),
                Step::Find { .. } | Step::Enter { .. } | Step::Open { .. } => None,
            },
            State::Unasked | State::Over | State::Closed => None,
        }
    }

    /// Passes the next unread bytes to `reply`, at most `most`.
    pub(super) fn take<T>(&mut self, most: usize, reply: impl FnOnce(&[u8]) -> T) -> T {
        let end = self.taken.saturating_add(most).min(self.buffer.len());
        let result = reply(&self.buffer[self.taken..end]);
        self.taken = end;
        if self.unread() == 0 {
            (self.buffer, self.taken) = (Vec::new(), 0);
        }
        result
    }

    /// Returns the next request, to be sent.
    pub(super) fn next(&mut self, space: &Space) -> Ask {
        let State::Ready(step) = mem::take(&mut self.state) else {
            unreachable!("there is no request to send");
        };
        let first = |names: &[Name]| names.iter().take(WALK_MAX).cloned().collect();
        let ask = match &step {
            Step::Find { names, own } => {
                Ask::Walk { from: own.unwrap_or(space.root), names: first(names) }
            }
            Step::Enter { names, own, .. } => {
                let from = own.or(self.top).expect("it was found");
                Ask::Walk { from, names: first(names) }
            }
            Step::Open { node, .. } => Ask::Open { node: *node, access: Access::READ },
            Step::List { open, cookie, .. } => {
                let (open, cookie, detail) = (*open, *cookie, Detail::Stat);
                Ask::List { open, cookie, bytes_max: LIST, detail }
            }
            Step::Read { dir } => {
                let files = dir.files.iter().take(batch(&dir.files));
                Ask::ReadAll {
                    from: dir.node,
                    paths: files.map(|(name, _)| name.as_bytes().to_vec()).collect(),
                    size_max: CONTENT_MAX as u32,
                    bytes_max: READ,
                }
            }
        };
        self.state = State::Requested(step);
        ask
    }

    /// Handles the reply to its request.
    pub(super) fn answered(
        &mut self,
        result: Result<Reply, Error>,
        space: &Space,
        out: &mut Vec<Output>,
    ) {
        self.buffer.drain(..mem::take(&mut self.taken));
        self.state = match mem::take(&mut self.state) {
            State::Requested(step) => match self.progress(step, result, space, out) {
                Some(step) => State::Ready(step),
                None => {
                    out.extend(self.top.take().map(Output::Release));
                    State::Over
                }
            },
            State::Closing(step) => {
                let (node, open) = result.map_or((None, None), |reply| reply.handed_out());
                out.extend(node.map(Output::Release));
                out.extend(open.map(Output::Close));
                give_back(step, out);
                out.extend(self.top.take().map(Output::Release));
                State::Closed
            }
            state @ (State::Unasked | State::Ready(_) | State::Over | State::Closed) => {
                unreachable!("{state:?} waits for no reply")
            }
        };
    }

    /// Returns the next step, or `None` after the last one.
    fn progress(
        &mut self,
        step: Step,
        result: Result<Reply, Error>,
        space: &Space,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        match (step, result) {
            (Step::Find { mut names, own }, result) => {
                out.extend(own.map(Output::Release));
                names.drain(..names.len().min(WALK_MAX));
                self.found(names, result, out)
            }
            (Step::Enter { target, mut names, own }, result) => {
                out.extend(own.map(Output::Release));
                names.drain(..names.len().min(WALK_MAX));
                self.entered(target, names, result, space, out)
            }
            (Step::Open { target, node, qid }, Ok(Reply::Opened(open, stat))) => {
                self.opened(target, (node, open), (&stat, qid), space, out)
            }
            (Step::Open { target, node, qid }, Err(error)) => {
                out.push(Output::Release(node));
                self.fail(&target, qid, error)
            }
            (Step::List { dir, open, .. }, Ok(Reply::Entries(entries))) => {
                self.listed(dir, open, &entries, space, out)
            }
            (Step::List { mut dir, open, .. }, Err(error)) => {
                Record::Failed { errno: ninep::errno(error) }.encode(&mut self.buffer);
                out.push(Output::Close(open));
                self.paths -= dir.below.drain(..).map(|target| target.bytes()).sum::<usize>();
                self.leave(*dir, out)
            }
            (Step::Read { dir }, result) => self.read(dir, result, space, out),
            // The kind of a reply follows from the request.
            (step, reply) => unreachable!("{reply:?} for {step:?}"),
        }
    }

    /// Handles a part of the walk to the directory that was requested.
    fn found(
        &mut self,
        names: Vec<Name>,
        result: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let (stats, node) = match walked(result) {
            Ok(found) => found,
            Err(error) => return self.fail(&Target::top(), Qid::default(), error),
        };
        if !names.is_empty() {
            return Some(Step::Find { names, own: Some(node) });
        }
        if stats.last().is_some_and(|stat| stat.kind != Kind::Directory) {
            out.push(Output::Release(node));
            return self.fail(&Target::top(), Qid::default(), Error::NotDirectory);
        }
        self.top = Some(node);
        // It gets a reference of its own, like those beneath it.
        Some(Step::Enter { target: Target::top(), names, own: None })
    }

    /// Handles a part of the walk to a directory. One that is no longer there is passed over.
    fn entered(
        &mut self,
        target: Target,
        names: Vec<Name>,
        result: Result<Reply, Error>,
        space: &Space,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let (stats, node) = match (walked(result), target.key) {
            (Ok(found), _) => found,
            (Err(_), Some(_)) => return self.enter_next(),
            (Err(error), None) => return self.fail(&target, Qid::default(), error),
        };
        if !names.is_empty() {
            return Some(Step::Enter { target, names, own: Some(node) });
        }
        let (Some(stat), Some(key)) = (stats.last(), target.key) else {
            return Some(Step::Open { target, node, qid: Qid::default() });
        };
        if key != (stat.device, stat.inode) {
            out.push(Output::Release(node));
            return self.enter_next();
        }
        Some(Step::Open { target, node, qid: ninep::qid(stat, space.device) })
    }

    fn opened(
        &mut self,
        target: Target,
        (node, open): (NodeId, OpenId),
        (stat, qid): (&Stat, Qid),
        space: &Space,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let Target { path, key } = &target;
        let is_other = key.is_some_and(|key| key != (stat.device, stat.inode));
        let error = match stat.kind == Kind::Directory {
            true => (stat.device != space.device).then_some(Error::CrossDevice),
            false => Some(Error::NotDirectory),
        };
        if is_other || error.is_some() {
            out.extend([Output::Close(open), Output::Release(node)]);
            return match error.filter(|_| !is_other) {
                Some(error) => self.fail(&target, qid, error),
                None => self.enter_next(),
            };
        }
        let qid = ninep::qid(stat, space.device);
        Record::Directory { qid, path }.encode(&mut self.buffer);
        let dir = Directory {
            node,
            device: stat.device,
            path: target.path,
            below: Vec::new(),
            files: VecDeque::new(),
            names_bytes: 0,
        };
        Some(Step::List { dir: Box::new(dir), open, cookie: 0 })
    }

    /// Sends a directory that cannot be opened.
    fn fail(&mut self, target: &Target, qid: Qid, error: Error) -> Option<Step> {
        Record::Directory { qid, path: &target.path }.encode(&mut self.buffer);
        Record::Failed { errno: ninep::errno(error) }.encode(&mut self.buffer);
        self.enter_next()
    }

    fn listed(
        &mut self,
        mut dir: Box<Directory>,
        open: OpenId,
        entries: &[Entry],
        space: &Space,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        for entry in entries {
            self.add_entry(&mut dir, entry, space);
        }
        if let Some(last) = entries.last() {
            return Some(Step::List { dir, open, cookie: last.cookie });
        }
        Record::End.encode(&mut self.buffer);
        out.push(Output::Close(open));
        self.skip(&mut dir);
        if dir.files.is_empty() { self.leave(*dir, out) } else { Some(Step::Read { dir }) }
    }

    /// On the way to the directory to begin with: passes over what comes before it.
    fn skip(&mut self, dir: &mut Directory) {
        let rest = match &dir.path[..] {
            b"" => Some(&self.start[..]),
            path => self.start.strip_prefix(path).and_then(|rest| rest.strip_prefix(b"/")),
        };
        let Some(name) = rest.and_then(|rest| rest.split(|byte| *byte == b'/').next()) else {
            return;
        };
        if name.is_empty() {
            return;
        }
        dir.files.clear();
        dir.names_bytes = 0;
        let is_it = |target: &Target| target.path.rsplit(|byte| *byte == b'/').next() == Some(name);
        let before = dir.below.iter().position(is_it).unwrap_or(0);
        self.paths -= dir.below.drain(..before).map(|target| target.bytes()).sum::<usize>();
    }

    /// Sends an entry, and notes what is to be done with it when its directory has ended.
    fn add_entry(&mut self, dir: &mut Directory, entry: &Entry, space: &Space) {
        let Entry { cookie, inode, kind, name, .. } = entry;
        // A walk to a mount point leads to another file, with attributes of its own.
        let is_point = space.points.contains(name);
        let stat = entry.stat.as_ref().filter(|_| !is_point);
        let record = Record::Entry {
            qid: ninep::entry_qid(entry, dir.device, space.device),
            cookie: *cookie,
            kind: kind.dirent_type(),
            name: name.as_bytes(),
            attributes: stat.map(|stat| ninep::attributes(stat, space.device)),
        };
        record.encode(&mut self.buffer);
        let own = (entry.device.unwrap_or(dir.device), *inode);
        let key = stat.map_or(own, |stat| (stat.device, stat.inode));
        if is_point || key.0 != space.device {
            return;
        }
        match kind {
            Kind::Directory => self.add_directory(dir, name, key),
            Kind::File => self.add_file(dir, name, stat.map_or(0, |stat| stat.size)),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
        }
    }

    fn add_directory(&mut self, dir: &mut Directory, name: &Name, key: FileKey) {
        let mut path = dir.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let is_long = path.len() > PATH_MAX;
        let target = Target { path, key: Some(key) };
        if !is_long && self.paths + target.bytes() <= PATHS_MAX {
            self.paths += target.bytes();
            dir.below.push(target);
        }
    }

    fn add_file(&self, dir: &mut Directory, name: &Name, size: u64) {
        let bytes = name.as_bytes().len() + size_of::<(Name, u64)>();
        let is_small = (1..=CONTENT_MAX as u64).contains(&size);
        if self.has_contents && is_small && dir.names_bytes + bytes <= NAMES_MAX {
            dir.names_bytes += bytes;
            dir.files.push_back((name.clone(), size));
        }
    }

    /// Handles the contents of the first files of a directory. Those that were not read are left
    /// out.
    fn read(
        &mut self,
        mut dir: Box<Directory>,
        result: Result<Reply, Error>,
        space: &Space,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let count = batch(&dir.files);
        match result {
            Ok(Reply::Contents(contents, _)) => {
                dir.files.drain(..count);
                for content in contents {
                    assert!(content.data.len() <= CONTENT_MAX, "larger files are left out");
                    let (qid, name) = (ninep::qid(&content.stat, space.device), &content.path);
                    let record = Record::Content { qid, name, data: &content.data };
                    record.encode(&mut self.buffer);
                }
            }
            Ok(reply) => unreachable!("{reply:?} for files"),
            Err(_) => dir.files.clear(),
        }
        if dir.files.is_empty() { self.leave(*dir, out) } else { Some(Step::Read { dir }) }
    }

    /// Ends a directory, and continues with those in it.
    fn leave(&mut self, dir: Directory, out: &mut Vec<Output>) -> Option<Step> {
        out.push(Output::Release(dir.node));
        self.pending.extend(dir.below.into_iter().rev());
        self.enter_next()
    }

    fn enter_next(&mut self) -> Option<Step> {
        let target = self.pending.pop()?;
        self.paths -= target.bytes();
        let names = target.names();
        Some(Step::Enter { target, names, own: None })
    }

    /// Ends it; the reply to a request in progress is discarded.
    pub(super) fn close(&mut self, out: &mut Vec<Output>) {
        let Stream { state, mut top, .. } = mem::take(self);
        let state = match state {
            State::Unasked | State::Over => State::Closed,
            State::Ready(step) => {
                give_back(step, out);
                out.extend(top.take().map(Output::Release));
                State::Closed
            }
            // The request may need the nodes.
            State::Requested(step) => State::Closing(step),
            state @ (State::Closing(_) | State::Closed) => unreachable!("{state:?} was closed"),
        };
        *self = Stream { state, top, ..Stream::default() };
    }

    pub(super) fn check(&self) {
        let in_progress = self.directory();
        let below = in_progress.into_iter().flat_map(|dir| &dir.below);
        let paths: usize = self.pending.iter().chain(below).map(Target::bytes).sum();
        let names = in_progress.into_iter().flat_map(|dir| &dir.files);
        let names: usize = names.map(|(name, _)| name.as_bytes().len()).sum();
        assert!(names <= in_progress.map_or(0, |dir| dir.names_bytes), "names are counted");
        assert!(in_progress.is_none_or(|dir| dir.names_bytes <= NAMES_MAX), "names are few");
        assert!(self.buffer.len() <= BUFFER_MAX + REPLY_MAX, "{} bytes", self.buffer.len());
        assert!(self.taken < self.buffer.len() || self.buffer.is_empty(), "read buffers are freed");
        match &self.state {
            State::Ready(Step::Find { .. }) | State::Requested(Step::Find { .. }) => {
                assert!(self.top.is_none() && paths == 0, "nothing was found yet");
            }
            State::Ready(_) | State::Requested(_) => {
                assert!(self.top.is_some(), "all directories are walked to from there");
                assert!(paths == self.paths && paths <= PATHS_MAX, "paths are counted");
            }
            State::Unasked | State::Over => {
                assert!(self.top.is_none() && self.paths + paths == 0, "nothing is in progress");
            }
            State::Closing(_) | State::Closed => {
                assert!(self.start.is_empty());
                let held = self.paths + self.pending.len() + self.buffer.len();
                let is_held = self.top.is_some() && self.is_closed();
                assert!(held == 0 && !is_held, "nothing is left");
            }
        }
    }
}

/// Returns the nodes and open files of a step that is given up.
fn give_back(step: Step, out: &mut Vec<Output>) {
    match step {
        Step::Find { own, .. } | Step::Enter { own, .. } => out.extend(own.map(Output::Release)),
        Step::Open { node, .. } => out.push(Output::Release(node)),
        Step::List { dir, open, .. } => {
            out.extend([Output::Close(open), Output::Release(dir.node)]);
        }
        Step::Read { dir } => out.push(Output::Release(dir.node)),
    }
}

/// Returns the result of a walk if all its names were found.
fn walked(result: Result<Reply, Error>) -> Result<(Vec<Stat>, NodeId), Error> {
    match result {
        Ok(Reply::Walked(stats, Some(node))) => Ok((stats, node)),
        Ok(Reply::Walked(_, None)) => Err(Error::NotFound),
        Ok(reply) => unreachable!("{reply:?} for a walk"),
        Err(error) => Err(error),
    }
}

/// Returns the number of first files that one request reads.
fn batch(files: &VecDeque<(Name, u64)>) -> usize {
    let mut bytes = 0;
    let fits = |(_, size): &&(Name, u64)| {
        bytes += size;
        bytes <= READ.into()
    };
    files.iter().take(READ_FILES_MAX).take_while(fits).count()
}

/// Request of a client.
struct Request {
    has_contents: bool,
    names: Vec<Name>,
    start: Vec<u8>,
}

/// Splits the request of a client.
fn parse(data: &[u8]) -> Result<Request, Error> {
    let (has_contents, path) = match data.strip_prefix(b"contents ") {
        Some(path) => (true, path),
        None => (false, data.strip_prefix(b"attributes ").ok_or(Error::Invalid)?),
    };
    if path.len() > PATH_MAX {
        return Err(Error::NameTooLong);
    }
    let below = path.strip_prefix(b"/").ok_or(Error::Invalid)?;
    let mut parts = below.splitn(2, |byte| *byte == 0);
    let (path, start) = (parts.next().unwrap_or_default(), parts.next());
    if start.is_some_and(<[u8]>::is_empty) {
        return Err(Error::Invalid);
    }
    let start = start.unwrap_or_default();
    names_of(start)?;
    Ok(Request { has_contents, names: names_of(path)?, start: start.to_vec() })
}

/// Splits a path.
fn names_of(path: &[u8]) -> Result<Vec<Name>, Error> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let name = |part: &[u8]| match Name::new(part) {
        Ok(name) if name.plain() => Ok(name),
        Err(Error::NameTooLong) => Err(Error::NameTooLong),
        Ok(_) | Err(_) => Err(Error::Invalid),
    };
    path.split(|byte| *byte == b'/').map(name).collect()
}
