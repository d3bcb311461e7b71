//! A tree in memory that replies at once, and counts references.

use base::op::Entry;
use base::{Buf, Error, FileHandle, Kind, Name, Stat};
use std::collections::BTreeMap;
use tree::{Ask, Input, NodeId, OpenId, Reply, Request, RequestId};

#[derive(Debug)]
struct Node {
    parent: usize,
    name: String,
    /// `None` for a file.
    children: Option<BTreeMap<String, usize>>,
    link: Option<String>,
}

/// A tree. A node's id is its inode.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) index: u16,
    nodes: Vec<Node>,
    /// References handed out.
    held: BTreeMap<NodeId, usize>,
    opens: BTreeMap<OpenId, usize>,
    /// Directories that were flushed.
    pub(super) flushed: Vec<String>,
    /// Error of all replies, if any.
    pub(super) broken: Option<Error>,
}

impl Fake {
    /// Returns a tree of files by their paths; a path with a slash at the end is a directory, `a>b`
    /// a link.
    pub(super) fn new(index: u16, files: &[&str]) -> Fake {
        let root =
            Node { parent: 0, name: String::new(), children: Some(BTreeMap::new()), link: None };
        let mut fake = Fake {
            index,
            nodes: vec![root],
            held: BTreeMap::new(),
            opens: BTreeMap::new(),
            flushed: Vec::new(),
            broken: None,
        };
        for file in files {
            let (file, link) = file.split_once('>').map_or((*file, None), |(f, l)| (f, Some(l)));
            let (dirs, last) = file.rsplit_once('/').unwrap_or(("", file));
            let mut at = 0;
            for part in dirs.split('/').filter(|part| !part.is_empty()) {
                at = fake.child(at, part).unwrap_or_else(|| fake.add(at, part, true, None));
            }
            if !last.is_empty() {
                fake.add(at, last, false, link);
            }
        }
        fake
    }

    fn add(&mut self, parent: usize, name: &str, directory: bool, link: Option<&str>) -> usize {
        let new = self.nodes.len();
        let (children, link) = (directory.then(BTreeMap::new), link.map(str::to_string));
        self.nodes.push(Node { parent, name: name.into(), children, link });
        self.nodes[parent].children.as_mut().unwrap().insert(name.into(), new);
        new
    }

    pub(super) fn child(&self, at: usize, name: &str) -> Option<usize> {
        self.nodes[at].children.as_ref()?.get(name).copied()
    }

    pub(super) fn parent(&self, at: usize) -> usize {
        self.nodes[at].parent
    }

    pub(super) fn is_directory(&self, at: usize) -> bool {
        self.nodes[at].children.is_some()
    }

    pub(super) fn path(&self, at: usize) -> String {
        match at {
            0 => "/".into(),
            at => match self.path(self.nodes[at].parent).as_str() {
                "/" => format!("/{}", self.nodes[at].name),
                above => format!("{above}/{}", self.nodes[at].name),
            },
        }
    }

    pub(super) fn root(&self) -> NodeId {
        NodeId::new(self.index, 0)
    }

    pub(super) fn root_stat(&self) -> Stat {
        self.stat(0)
    }

    pub(super) fn held(&self) -> Vec<NodeId> {
        let all = self.held.iter();
        all.flat_map(|(node, count)| std::iter::repeat_n(*node, *count)).collect()
    }

    pub(super) fn is_free(&self) -> bool {
        self.held.is_empty() && self.opens.is_empty()
    }

    pub(super) fn has_no_opens(&self) -> bool {
        self.opens.is_empty()
    }

    fn hold(&mut self, at: usize) -> NodeId {
        let node = NodeId::new(self.index, at);
        *self.held.entry(node).or_insert(0) += 1;
        node
    }

    fn stat(&self, at: usize) -> Stat {
        let node = &self.nodes[at];
        let kind = match (&node.children, &node.link) {
            (Some(_), _) => Kind::Directory,
            (None, Some(_)) => Kind::Symlink,
            (None, None) => Kind::File,
        };
        Stat { kind, device: self.index.into(), inode: at as u64, size: 1000, ..Stat::default() }
    }

    pub(super) fn take(&mut self, input: Input) -> Option<(RequestId, Result<Reply, Error>)> {
        match input {
            Input::Ask(id, Request { ask, .. }) => {
                for id in ask.ids().into_iter().flatten() {
                    assert_eq!(id.tree(), self.index, "{ask:?}");
                }
                let answer = self.broken.map_or_else(|| self.answer(ask), Err);
                Some((id, answer))
            }
            Input::Release(node) => {
                let count = self.held.get_mut(&node).expect("it was given out");
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&node);
                }
                None
            }
            Input::Cancel(_) => None,
            Input::Close(open) => {
                self.opens.remove(&open).expect("it is open");
                None
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the objects of a request exist on its arrival.
    pub(super) fn expect_held(&self, input: &Input) {
        let Input::Ask(_, request) = input else { return };
        for id in request.ask.ids().into_iter().flatten() {
            match id {
                tree::Id::Node(node) => {
                    assert!(node == self.root() || self.held.contains_key(&node), "{request:?}");
                }
                tree::Id::Open(open) => assert!(self.opens.contains_key(&open), "{request:?}"),
            }
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        match ask {
            Ask::Walk { from, names } => self.walk(from.local(), &names),
            Ask::FileHandle { node } => Ok(Reply::FileHandle(handle_of(node.local()))),
            Ask::Resolve { handle } => {
                let at = usize::from(handle.identifier()[0]);
                let stat =
                    if at < self.nodes.len() { self.stat(at) } else { return Err(Error::Stale) };
                Ok(Reply::Walked(vec![stat], Some(self.hold(at))))
            }
            Ask::Open { node, access } => {
                assert!(access.read);
                Ok(Reply::Opened(self.open(node.local()), self.stat(node.local())))
            }
            Ask::Read { open, .. } => {
                let at = self.opens[&open];
                Ok(Reply::Data(Buf::from(format!("{}:{}", self.index, self.path(at)).into_bytes())))
            }
            Ask::List { open, cookie, .. } => {
                Ok(Reply::Entries(self.list(self.opens[&open], cookie)))
            }
            Ask::ReadLink { node } => {
                Ok(Reply::Bytes(self.nodes[node.local()].link.clone().unwrap().into_bytes()))
            }
            Ask::Create { dir, name, .. } => {
                let at = self.make(dir.local(), &name, false)?;
                Ok(Reply::Created(self.hold(at), self.open(at), self.stat(at)))
            }
            Ask::MakeDir { dir, name, .. } => {
                let at = self.make(dir.local(), &name, true)?;
                Ok(Reply::Stat(self.stat(at)))
            }
            Ask::Remove { dir, name, .. } => {
                let children = self.nodes[dir.local()].children.as_mut().unwrap();
                children.remove(&name.to_string()).map(|_| Reply::Done).ok_or(Error::NotFound)
            }
            Ask::Rename { from, name, to, new_name, .. } => {
                let children = self.nodes[from.local()].children.as_mut().unwrap();
                let moved = children.remove(&name.to_string()).ok_or(Error::NotFound)?;
                let children = self.nodes[to.local()].children.as_mut().unwrap();
                children.insert(new_name.to_string(), moved);
                (self.nodes[moved].parent, self.nodes[moved].name) =
                    (to.local(), new_name.to_string());
                Ok(Reply::Done)
            }
            Ask::Sync { open, .. } => {
                let path = self.path(self.opens[&open]);
                self.flushed.push(path);
                Ok(Reply::Done)
            }
            other => panic!("{other:?}"),
        }
    }

    fn make(&mut self, dir: usize, name: &Name, directory: bool) -> Result<usize, Error> {
        match self.child(dir, &name.to_string()) {
            Some(_) => Err(Error::Exists),
            None => Ok(self.add(dir, &name.to_string(), directory, None)),
        }
    }

    fn open(&mut self, at: usize) -> OpenId {
        let number = self.opens.keys().next_back().map_or(0, |last| last.local() + 1);
        let open = OpenId::new(self.index, number);
        self.opens.insert(open, at);
        open
    }

    fn walk(&mut self, mut at: usize, names: &[Name]) -> Result<Reply, Error> {
        let mut stats = Vec::new();
        for name in names {
            let next = match name.as_bytes() {
                b"." => Some(at),
                b".." => Some(self.parent(at)),
                _ => self.child(at, &name.to_string()),
            };
            match next {
                Some(next) => at = next,
                None if stats.is_empty() => return Err(Error::NotFound),
                None => return Ok(Reply::Walked(stats, None)),
            }
            stats.push(self.stat(at));
        }
        Ok(Reply::Walked(stats, Some(self.hold(at))))
    }

    /// Lists two entries at a time, with cookies that use all bits.
    fn list(&self, at: usize, cookie: u64) -> Vec<Entry> {
        let all = self.nodes[at].children.iter().flatten();
        let numbered = all.enumerate().map(|(index, entry)| (u64::MAX - index as u64, entry));
        let behind = numbered.filter(|(number, _)| cookie == 0 || *number < cookie);
        let entry = |(cookie, (name, node)): (u64, (&String, &usize))| Entry {
            cookie,
            inode: *node as u64,
            device: None,
            kind: self.stat(*node).kind,
            name: Name::new(name.as_bytes()).unwrap(),
            stat: None,
            handle: Some(handle_of(*node)),
        };
        behind.take(2).map(entry).collect()
    }
}

fn handle_of(node: usize) -> FileHandle {
    FileHandle::new(&[u8::try_from(node).unwrap()]).unwrap()
}
