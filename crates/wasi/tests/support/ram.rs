//! A tree in memory that supports all requests of guests, and tracks the resources handed out.

use base::op::{Content, Entry, Listing};
use base::{Access, Buf, Error, Kind, Name, SetStat, SetTime, Stat, Time};
use std::collections::BTreeMap;
use tree::{Ask, NodeId, OpenId, Reply};
use wasi::Given;

/// Maximum size of a file, bytes: protects the memory of the tests against huge ones.
const FILE_MAX: u64 = 64 << 20;

const ROOT: u64 = 1;

enum Body {
    File(Vec<u8>),
    /// Entries by name: their files and their cookies.
    Directory(BTreeMap<Name, (u64, u64)>),
    Symlink(Vec<u8>),
    Special(Kind),
}

struct File {
    body: Body,
    links: u32,
    modified: Time,
}

/// The tree.
pub(crate) struct Ram {
    files: BTreeMap<u64, File>,
    nodes: BTreeMap<u64, u64>,
    opens: BTreeMap<u64, (u64, Access)>,
    /// Next number of a file, node, open file or cookie.
    next: u64,
    /// Maximum number of entries in a reply.
    pub(crate) entries_max: usize,
    /// Maximum number of bytes in a read or write.
    pub(crate) transfer_max: usize,
    /// Whether reads are answered in pieces.
    pub(crate) in_pieces: bool,
    /// Whether batch requests for prefetching are supported.
    pub(crate) prefetch: bool,
    /// Number of requests served.
    pub(crate) requests: u64,
}

/// Converts a text to a name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Ram {
    /// Creates a tree with these files: path, kind, and contents or target. Directories are created
    /// as needed.
    pub(crate) fn new(files: &[(&str, Kind, &str)]) -> Ram {
        let mut ram = Ram {
            files: BTreeMap::new(),
            nodes: BTreeMap::new(),
            opens: BTreeMap::new(),
            next: ROOT,
            entries_max: usize::MAX,
            transfer_max: usize::MAX,
            in_pieces: false,
            prefetch: true,
            requests: 0,
        };
        let root =
            File { body: Body::Directory(BTreeMap::new()), links: 1, modified: Time::default() };
        ram.files.insert(ROOT, root);
        for (path, kind, contents) in files {
            ram.put(path, *kind, contents.as_bytes());
        }
        ram
    }

    /// Creates a file with its directories.
    pub(crate) fn put(&mut self, path: &str, kind: Kind, contents: &[u8]) {
        let (mut dir, mut names) = (ROOT, path.split('/').map(name).peekable());
        while let Some(name) = names.next() {
            let last = names.peek().is_none();
            let kind = if last { kind } else { Kind::Directory };
            dir = match self.child(dir, &name) {
                Ok(file) => file,
                Err(_) => self.make(dir, name, kind, contents).expect("it can be made"),
            };
        }
        if let Body::File(bytes) = &mut self.file(dir).body {
            *bytes = contents.to_vec();
        }
    }

    /// Returns the contents of a file.
    pub(crate) fn contents(&self, path: &str) -> Option<&[u8]> {
        let mut file = ROOT;
        for part in path.split('/') {
            file = self.child(file, &name(part)).ok()?;
        }
        match &self.files[&file].body {
            Body::File(bytes) | Body::Symlink(bytes) => Some(bytes),
            Body::Directory(_) | Body::Special(_) => None,
        }
    }

    /// Returns a reference to the root, for a guest.
    pub(crate) fn root(&mut self) -> NodeId {
        self.hand_out(ROOT)
    }

    /// Returns the number of nodes and open files not yet released.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.nodes.len(), self.opens.len())
    }

    /// Takes a resource back.
    pub(crate) fn take_back(&mut self, given: Given) {
        match given {
            Given::Node(node) => assert!(self.nodes.remove(&node.0).is_some(), "given once"),
            Given::Open(open) => assert!(self.opens.remove(&open.0).is_some(), "given once"),
        }
    }

    /// Replies to a request.
    pub(crate) fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        self.requests += 1;
        #[allow(clippy::wildcard_enum_match_arm, reason = "guests cannot ask for the rest")]
        match ask {
            Ask::Walk { from, names } => self.walk(from, names),
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(self.nodes[&node.0]))),
            Ask::Open { node, access } => self.open(self.nodes[&node.0], access),
            Ask::Read { open, offset, count, .. } => self.read(open, offset, count),
            Ask::List { open, cookie, bytes_max, .. } => self.list(open, cookie, bytes_max),
            Ask::ReadLink { node } => match &self.files[&self.nodes[&node.0]].body {
                Body::Symlink(target) => Ok(Reply::Bytes(target.clone())),
                Body::File(_) | Body::Directory(_) | Body::Special(_) => Err(Error::Invalid),
            },
            Ask::Sync { open, .. } => {
                assert!(self.opens.contains_key(&open.0), "it is open");
                Ok(Reply::Done)
            }
            Ask::Fetch { root: Some(root), path, read_max, .. } => {
                self.fetch(self.nodes[&root.0], &path, read_max)
            }
            Ask::ListAll { from, paths, bytes_max } if self.prefetch => {
                Ok(self.list_all(self.nodes[&from.0], paths, bytes_max as usize))
            }
            Ask::ReadAll { from, paths, size_max, bytes_max } if self.prefetch => {
                Ok(self.read_all(self.nodes[&from.0], paths, size_max as usize, bytes_max as usize))
            }
            Ask::ListAll { .. } | Ask::ReadAll { .. } => Err(Error::Unsupported),
            other => self.change(other),
        }
    }

    /// Looks up a plain file without following links.
    fn fetch(&mut self, root: u64, path: &[Name], read_max: u32) -> Result<Reply, Error> {
        let found = path.iter().try_fold(root, |dir, name| self.child(dir, name))?;
        if !self.prefetch || !matches!(self.files[&found].body, Body::File(_)) {
            return Err(Error::Unsupported);
        }
        let Reply::Opened(open, stat) = self.open(found, Access::READ)? else {
            unreachable!("a file is opened")
        };
        let Body::File(bytes) = &self.files[&found].body else { unreachable!("it is one") };
        let data = Buf::from(&bytes[..bytes.len().min(read_max as usize)]);
        let all = data.len() as u64 == stat.size;
        if all {
            self.opens.remove(&open.0);
        }
        Ok(Reply::Fetched(stat, data, (!all).then_some(open)))
    }

    fn below(&self, from: u64, path: &[u8]) -> Option<u64> {
        let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.try_fold(from, |dir, part| self.child(dir, &Name::new(part).ok()?).ok())
    }

    fn read_all(&self, from: u64, paths: Vec<Vec<u8>>, most: usize, mut left: usize) -> Reply {
        let mut contents = Vec::new();
        for path in paths {
            let Some(found) = self.below(from, &path) else { continue };
            let Body::File(bytes) = &self.files[&found].body else { continue };
            if bytes.is_empty() || bytes.len() > most {
                continue;
            }
            if bytes.len() > left {
                break;
            }
            left -= bytes.len();
            let (stat, data) = (self.stat(found), Buf::from(&bytes[..]));
            contents.push(Content { path, stat, data });
        }
        Reply::Contents(contents, 0)
    }

    fn list_all(&self, from: u64, paths: Vec<Vec<u8>>, mut left: usize) -> Reply {
        let find = |path: &Vec<u8>| self.below(from, path);
        let mut todo: Vec<(Vec<u8>, u64)> =
            paths.iter().rev().filter_map(|path| Some((path.clone(), find(path)?))).collect();
        let mut listings = Vec::new();
        while let Some((path, dir)) = todo.pop() {
            let Ok(entries) = self.entries(dir) else { continue };
            let entry = |(name, (inode, cookie)): (&Name, &(u64, u64))| Entry {
                cookie: *cookie,
                inode: *inode,
                device: None,
                kind: self.kind(*inode),
                name: name.clone(),
                stat: None,
                handle: None,
            };
            let mut entries: Vec<Entry> = entries.iter().map(entry).collect();
            entries.sort_unstable_by_key(|entry| entry.cookie);
            let bytes: usize = entries.iter().map(|entry| entry.name.as_bytes().len() + 24).sum();
            if bytes > left {
                break;
            }
            left -= bytes;
            for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
                let name = entry.name.as_bytes();
                let below = if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
                todo.push((below, entry.inode));
            }
            listings.push(Listing { path, entries });
        }
        Reply::Listings(listings, 0)
    }

    /// Executes requests that change something.
    fn change(&mut self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "guests cannot ask for the rest")]
        match ask {
            Ask::Create { dir, name, access, exclusive, .. } => {
                self.create(self.nodes[&dir.0], name, access, exclusive)
            }
            Ask::Write { open, offset, data } => self.write(open, offset, &data),
            Ask::SetStat { node, open, set } => self.set_stat(self.nodes[&node.0], open, &set),
            Ask::MakeDir { dir, name, .. } => {
                self.make(self.nodes[&dir.0], name, Kind::Directory, b"").map(|_| Reply::Done)
            }
            Ask::Symlink { dir, name, target, .. } => {
                self.make(self.nodes[&dir.0], name, Kind::Symlink, &target).map(|_| Reply::Done)
            }
            Ask::Link { node, dir, name } => {
                self.link(self.nodes[&node.0], self.nodes[&dir.0], name)
            }
            Ask::Rename { from, name, to, new_name, .. } => {
                self.rename(self.nodes[&from.0], &name, self.nodes[&to.0], new_name)
            }
            Ask::Remove { dir, name, directory } => {
                self.remove(self.nodes[&dir.0], &name, directory)
            }
            other => panic!("no guest asks {other:?}"),
        }
    }

    fn file(&mut self, file: u64) -> &mut File {
        self.files.get_mut(&file).expect("files stay")
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn hand_out(&mut self, file: u64) -> NodeId {
        let node = self.next();
        self.nodes.insert(node, file);
        NodeId(node)
    }

    fn entries(&self, dir: u64) -> Result<&BTreeMap<Name, (u64, u64)>, Error> {
        match &self.files[&dir].body {
            Body::Directory(entries) => Ok(entries),
            Body::File(_) | Body::Symlink(_) | Body::Special(_) => Err(Error::NotDirectory),
        }
    }

    fn entries_mut(&mut self, dir: u64) -> Result<&mut BTreeMap<Name, (u64, u64)>, Error> {
        match &mut self.file(dir).body {
            Body::Directory(entries) => Ok(entries),
            Body::File(_) | Body::Symlink(_) | Body::Special(_) => Err(Error::NotDirectory),
        }
    }

    fn child(&self, dir: u64, name: &Name) -> Result<u64, Error> {
        assert!(name.plain(), "guests' paths are resolved before trees see them");
        self.entries(dir)?.get(name).map(|(file, _)| *file).ok_or(Error::NotFound)
    }

    fn kind(&self, file: u64) -> Kind {
        match &self.files[&file].body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind) => *kind,
        }
    }

    fn stat(&self, file: u64) -> Stat {
        let File { body, links, modified } = &self.files[&file];
        let size = match body {
            Body::File(bytes) | Body::Symlink(bytes) => bytes.len() as u64,
            Body::Directory(_) | Body::Special(_) => 0,
        };
        let (kind, links, modified) = (self.kind(file), *links, *modified);
        Stat { kind, size, links, modified, inode: file, device: 1, ..Stat::default() }
    }

    fn walk(&mut self, from: NodeId, names: Vec<Name>) -> Result<Reply, Error> {
        assert!(names.len() <= 16, "at most sixteen names");
        let (mut file, mut stats) = (self.nodes[&from.0], Vec::new());
        for name in names {
            match self.child(file, &name) {
                Ok(next) => file = next,
                Err(error) if stats.is_empty() => return Err(error),
                Err(_) => return Ok(Reply::Walked(stats, None)),
            }
            stats.push(self.stat(file));
        }
        let node = self.hand_out(file);
        Ok(Reply::Walked(stats, Some(node)))
    }

    fn open(&mut self, file: u64, access: Access) -> Result<Reply, Error> {
        let kind = self.kind(file);
        assert!(matches!(kind, Kind::File | Kind::Directory), "nothing else is opened: {kind:?}");
        match &mut self.file(file).body {
            Body::File(bytes) if access.truncate => bytes.clear(),
            Body::Directory(_) if access.changes() => return Err(Error::IsDirectory),
            Body::File(_) | Body::Directory(_) | Body::Symlink(_) | Body::Special(_) => {}
        }
        let open = self.next();
        self.opens.insert(open, (file, access));
        Ok(Reply::Opened(OpenId(open), self.stat(file)))
    }

    fn read(&mut self, open: OpenId, offset: u64, count: u32) -> Result<Reply, Error> {
        let (file, access) = self.opens[&open.0];
        assert!(i64::try_from(offset).is_ok(), "an offset that no file has: {offset}");
        let Body::File(bytes) = &self.files[&file].body else { return Err(Error::IsDirectory) };
        if !access.read {
            return Err(Error::NotPermitted);
        }
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let rest = &rest[..rest.len().min(count as usize).min(self.transfer_max)];
        let buf = |bytes: &[u8]| {
            let mut data = Buf::with_room(0, bytes.len());
            data.extend(bytes);
            data
        };
        Ok(match self.in_pieces {
            true => Reply::Pieces(rest.chunks(1000).map(buf).collect()),
            false => Reply::Data(buf(rest)),
        })
    }

    fn write(&mut self, open: OpenId, offset: u64, data: &[u8]) -> Result<Reply, Error> {
        let (file, access) = self.opens[&open.0];
        assert!(i64::try_from(offset).is_ok(), "an offset that no file has: {offset}");
        let data = &data[..data.len().min(self.transfer_max)];
        let modified = self.later();
        let file = self.file(file);
        let Body::File(bytes) = &mut file.body else { return Err(Error::IsDirectory) };
        if !access.write {
            return Err(Error::NotPermitted);
        }
        let offset = if access.append { bytes.len() as u64 } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_MAX);
        let (offset, end) = (offset as usize, end.ok_or(Error::FileTooLarge)? as usize);
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(data);
        file.modified = modified;
        Ok(Reply::Written(data.len() as u32))
    }

    /// A timestamp after all others.
    fn later(&mut self) -> Time {
        Time { secs: 1_700_000_000, nanos: self.next() as u32 % 1_000_000_000 }
    }

    fn list(&mut self, open: OpenId, cookie: u64, bytes_max: u32) -> Result<Reply, Error> {
        let (dir, _) = self.opens[&open.0];
        let mut behind: Vec<_> = self
            .entries(dir)?
            .iter()
            .filter(|(_, (_, own))| *own > cookie)
            .map(|(name, (file, own))| (*own, *file, name.clone()))
            .collect();
        behind.sort_unstable_by_key(|(own, ..)| *own);
        let mut room = bytes_max as usize;
        let entries =
            behind.into_iter().take(self.entries_max).map_while(|(cookie, inode, name)| {
                room = room.checked_sub(24 + name.as_bytes().len())?;
                let (kind, stat, handle) = (self.kind(inode), None, None);
                Some(Entry { cookie, inode, device: None, kind, name, stat, handle })
            });
        Ok(Reply::Entries(entries.collect()))
    }

    fn make(&mut self, dir: u64, name: Name, kind: Kind, bytes: &[u8]) -> Result<u64, Error> {
        assert!(name.plain(), "a plain name");
        if self.child(dir, &name).is_ok() {
            return Err(Error::Exists);
        }
        let (file, cookie, modified) = (self.next(), self.next(), self.later());
        self.entries_mut(dir)?.insert(name, (file, cookie));
        let body = match kind {
            Kind::File => Body::File(bytes.to_vec()),
            Kind::Directory => Body::Directory(BTreeMap::new()),
            Kind::Symlink => Body::Symlink(bytes.to_vec()),
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Body::Special(kind),
        };
        self.files.insert(file, File { body, links: 1, modified });
        Ok(file)
    }

    fn create(
        &mut self,
        dir: u64,
        name: Name,
        access: Access,
        exclusive: bool,
    ) -> Result<Reply, Error> {
        let file = match self.child(dir, &name) {
            Ok(_) if exclusive => return Err(Error::Exists),
            // Links are not followed.
            Ok(file) if self.kind(file) == Kind::Symlink => return Err(Error::Exists),
            Ok(file) => file,
            Err(Error::NotFound) => self.make(dir, name, Kind::File, b"")?,
            Err(error) => return Err(error),
        };
        let Reply::Opened(open, stat) = self.open(file, access)? else { unreachable!() };
        Ok(Reply::Created(self.hand_out(file), open, stat))
    }

    fn set_stat(&mut self, file: u64, open: Option<OpenId>, set: &SetStat) -> Result<Reply, Error> {
        if let Some(open) = open {
            assert_eq!(self.opens[&open.0].0, file, "the same file");
        }
        let now = self.later();
        let file = self.file(file);
        if let Some(size) = set.size {
            assert!(i64::try_from(size).is_ok(), "a size that no file has: {size}");
            let Body::File(bytes) = &mut file.body else { return Err(Error::IsDirectory) };
            if size > FILE_MAX {
                return Err(Error::FileTooLarge);
            }
            bytes.resize(size as usize, 0);
        }
        match set.modified {
            Some(SetTime::At(time)) => file.modified = time,
            Some(SetTime::Now) => file.modified = now,
            None => {}
        }
        Ok(Reply::Done)
    }

    fn link(&mut self, file: u64, dir: u64, name: Name) -> Result<Reply, Error> {
        if self.kind(file) == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        if self.child(dir, &name).is_ok() {
            return Err(Error::Exists);
        }
        let cookie = self.next();
        self.entries_mut(dir)?.insert(name, (file, cookie));
        self.file(file).links += 1;
        Ok(Reply::Done)
    }

    fn remove(&mut self, dir: u64, name: &Name, directory: Option<bool>) -> Result<Reply, Error> {
        let file = self.child(dir, name)?;
        match (directory, self.entries(file).map(BTreeMap::is_empty)) {
            (Some(true), Err(_)) => return Err(Error::NotDirectory),
            (Some(false), Ok(_)) => return Err(Error::IsDirectory),
            (_, Ok(false)) => return Err(Error::NotEmpty),
            (_, Ok(true) | Err(_)) => {}
        }
        self.entries_mut(dir)?.remove(name);
        self.file(file).links -= 1;
        Ok(Reply::Done)
    }

    fn rename(&mut self, from: u64, name: &Name, to: u64, new_name: Name) -> Result<Reply, Error> {
        let file = self.child(from, name)?;
        if self.is_beneath(to, file) {
            return Err(Error::Invalid);
        }
        match self.child(to, &new_name) {
            Ok(old) if old == file => return Ok(Reply::Done),
            Ok(_) => {
                let directory = self.kind(file) == Kind::Directory;
                self.remove(to, &new_name, Some(directory))?;
            }
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.entries_mut(from)?.remove(name);
        let cookie = self.next();
        self.entries_mut(to)?.insert(new_name, (file, cookie));
        Ok(Reply::Done)
    }

    /// Returns whether a directory is another one or lies beneath it.
    fn is_beneath(&self, dir: u64, above: u64) -> bool {
        let beneath = |entries: &BTreeMap<Name, (u64, u64)>| {
            entries.values().any(|(file, _)| self.is_beneath(dir, *file))
        };
        dir == above || self.entries(above).is_ok_and(beneath)
    }
}
