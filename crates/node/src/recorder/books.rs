//! The recorder's view of the namespace: paths of nodes, and the files behind them.

use super::Requested;
use base::op::Replacement;
use base::{Kind, Name, Stat};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId};

/// Maximum length of a stored path, bytes; deeper files are named by their node's number.
pub(super) const PATH_MAX: usize = 1024;

/// Maximum number of unused files whose numbers are retained.
pub(super) const FILES_KEPT: usize = 1 << 14;

/// A plain file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) number: u32,
    pub(super) path: Arc<str>,
    /// Size in bytes, as far as known.
    size: Cell<u64>,
}

impl File {
    pub(super) fn size(&self) -> u64 {
        self.size.get()
    }

    pub(super) fn set_size(&self, size: u64) {
        self.size.set(size);
    }
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) file: Rc<File>,
    /// Whether writes append.
    pub(super) append: bool,
}

/// A node, with the number of references held by sessions.
#[derive(Debug)]
struct Node {
    path: Arc<str>,
    file: Option<Rc<File>>,
    references: usize,
}

/// The view of the namespace. Nodes and open files are bounded as in the trees.
#[derive(Debug)]
pub(super) struct Books {
    root: NodeId,
    /// Whether the server's own files are below `/.upcall`.
    service: bool,
    nodes: BTreeMap<NodeId, Node>,
    /// Open plain files.
    opens: BTreeMap<OpenId, Open>,
    files: BTreeMap<Arc<str>, Rc<File>>,
    /// Files in the order in which they are examined for eviction.
    queue: VecDeque<Rc<File>>,
    next: u32,
}

impl Books {
    pub(super) fn new(root: NodeId, service: bool) -> Books {
        let path: Arc<str> = Arc::from("");
        Books {
            root,
            service,
            nodes: BTreeMap::from([(root, Node { path, file: None, references: 1 })]),
            opens: BTreeMap::new(),
            files: BTreeMap::new(),
            queue: VecDeque::new(),
            next: 0,
        }
    }

    /// Returns the meaning of a request, if it is I/O or leads to I/O.
    pub(super) fn understand(&mut self, ask: &Ask) -> Option<Requested> {
        match ask {
            Ask::Walk { from, names } => Some(Requested::Walk(self.below(*from, names))),
            Ask::Resolve { handle } => Some(Requested::Walk(format!("handle/{handle:?}").into())),
            Ask::Fetch { root, path, .. } => {
                Some(Requested::Fetch(self.below(root.unwrap_or(self.root), path)))
            }
            Ask::Open { node, access } => Some(Requested::Open(self.path(*node), *access)),
            Ask::Create { dir, name, access, .. } => {
                Some(Requested::Create(self.entry(*dir, name), *access))
            }
            Ask::CreateUnnamed { dir, name, access, .. } => {
                Some(Requested::CreateAnew(self.entry(*dir, name), *access))
            }
            Ask::MakeNode { dir, name, kind: Kind::File, .. } => {
                Some(Requested::Make(self.entry(*dir, name)))
            }
            Ask::Read { open, offset, .. } => {
                self.opens.get(open).map(|open| Requested::Read(open.file.clone(), *offset))
            }
            Ask::Write { open, offset, .. } => {
                self.opens.get(open).map(|open| Requested::Write(open.clone(), *offset))
            }
            Ask::Sync { open, .. } => {
                self.opens.get(open).map(|open| Requested::Sync(open.file.clone()))
            }
            Ask::SetStat { node, set, .. } => {
                let file = self.nodes.get(node).and_then(|node| node.file.clone());
                file.zip(set.size).map(|(file, size)| Requested::Size(file, size))
            }
            Ask::Replace { dir, name, by: Replacement::Nothing, .. } => {
                self.removed(*dir, name, Some(false))
            }
            Ask::Remove { dir, name, directory } => self.removed(*dir, name, *directory),
            Ask::RemoveNode { node } => {
                let file = self.nodes.get(node).and_then(|node| node.file.clone());
                file.map(Requested::Remove)
            }
            Ask::Stat { .. }
            | Ask::FileHandle { .. }
            | Ask::List { .. }
            | Ask::NextData { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::MakeDir { .. }
            | Ask::Symlink { .. }
            | Ask::MakeNode { .. }
            | Ask::ReadLink { .. }
            | Ask::Link { .. }
            | Ask::Rename { .. }
            | Ask::RenameNode { .. }
            | Ask::Replace { by: Replacement::Entry(..) | Replacement::Unnamed(_), .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::SetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::RemoveAttr { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => None,
        }
    }

    /// Returns a removal, unless it is of a directory. With an unspecified kind only known files
    /// count.
    fn removed(&mut self, dir: NodeId, name: &Name, directory: Option<bool>) -> Option<Requested> {
        let path = self.entry(dir, name);
        match directory {
            Some(true) => None,
            Some(false) => {
                let stat = Stat { kind: Kind::File, ..Stat::default() };
                let known = self.known(&path).cloned();
                known.or_else(|| self.file(path, &stat)).map(Requested::Remove)
            }
            None => self.known(&path).cloned().map(Requested::Remove),
        }
    }

    /// Records a reference to a node, with its attributes.
    pub(super) fn hold(&mut self, node: NodeId, path: Arc<str>, stat: Option<&Stat>) {
        let file = match stat {
            Some(stat) => self.file(path.clone(), stat),
            None => self.known(&path).cloned(),
        };
        let known = self.nodes.entry(node).or_insert(Node { path, file: None, references: 0 });
        known.references += 1;
        known.file = known.file.take().or(file);
    }

    /// Records the release of a reference.
    pub(super) fn release(&mut self, node: NodeId) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        known.references -= 1;
        if known.references == 0 {
            self.nodes.remove(&node);
        }
    }

    /// Records an open file.
    pub(super) fn open(&mut self, open: OpenId, file: Open) {
        self.opens.insert(open, file);
    }

    /// Records the close of a file.
    pub(super) fn close(&mut self, open: OpenId) {
        self.opens.remove(&open);
    }

    /// Returns the file at a path, if it is recorded; its size is taken from the attributes.
    pub(super) fn file(&mut self, path: Arc<str>, stat: &Stat) -> Option<Rc<File>> {
        if stat.kind != Kind::File || self.is_own(&path) {
            return None;
        }
        if let Some(file) = self.files.get(&path) {
            file.set_size(stat.size);
            return Some(file.clone());
        }
        let size = Cell::new(stat.size);
        let file = Rc::new(File { number: self.next, path: path.clone(), size });
        self.next = self.next.wrapping_add(1);
        self.files.insert(path, file.clone());
        self.queue.push_back(file.clone());
        self.tidy();
        Some(file)
    }

    /// Returns the file last known at a path.
    pub(super) fn known(&self, path: &str) -> Option<&Rc<File>> {
        self.files.get(path)
    }

    /// Forgets a file: the next one at its path is another.
    pub(super) fn forget(&mut self, file: &Rc<File>) {
        if self.known(&file.path).is_some_and(|known| Rc::ptr_eq(known, file)) {
            self.files.remove(&file.path);
        }
    }

    /// Examines, for each new file, the two files that were not examined for longest, and forgets
    /// unused ones.
    fn tidy(&mut self) {
        for _ in 0..2 {
            if self.queue.len() <= FILES_KEPT {
                return;
            }
            let Some(file) = self.queue.pop_front() else { return };
            // One reference is here, and perhaps one at its path; any other is a use.
            let at_path = self.known(&file.path).is_some_and(|known| Rc::ptr_eq(known, &file));
            match Rc::strong_count(&file) > 1 + usize::from(at_path) {
                true => self.queue.push_back(file),
                false => self.forget(&file),
            }
        }
    }

    /// Returns whether it is one of the server's own files. Snapshots, which are below them, are
    /// not.
    fn is_own(&self, path: &str) -> bool {
        let below = self.service.then(|| path.strip_prefix("/.upcall/")).flatten();
        below.is_some_and(|below| !below.starts_with("snapshots/"))
    }

    /// Returns the path of a node; if unknown or too long, the node's number.
    fn path(&self, node: NodeId) -> Arc<str> {
        let known = self.nodes.get(&node).map(|node| node.path.clone());
        known.filter(|path| path.len() <= PATH_MAX).unwrap_or_else(|| number(node))
    }

    fn entry(&self, dir: NodeId, name: &Name) -> Arc<str> {
        Arc::from(format!("{}/{name}", self.path(dir)))
    }

    /// Returns the path at the end of a walk.
    fn below(&self, from: NodeId, names: &[Name]) -> Arc<str> {
        let path = self.path(from);
        if names.is_empty() {
            return path;
        }
        let mut below = path.to_string();
        for name in names {
            if name.is_parent() {
                below.truncate(below.rfind('/').unwrap_or(0));
            } else if name.plain() {
                below.push('/');
                below.push_str(&String::from_utf8_lossy(name.as_bytes()));
            }
        }
        Arc::from(below)
    }

    pub(super) fn clear(&mut self) {
        *self = Books::new(self.root, self.service);
    }

    /// Returns whether no node except the root, and no open file, is tracked.
    pub(super) fn is_idle(&self) -> bool {
        self.opens.is_empty() && self.nodes.values().map(|node| node.references).eq([1])
    }

    pub(super) fn check(&self) {
        assert!(self.nodes.values().all(|node| node.references > 0));
        assert!(self.nodes.contains_key(&self.root), "the root is never given back for good");
        assert!(self.files.len() <= self.queue.len());
    }
}

/// Returns the name of a node of unknown path.
fn number(node: NodeId) -> Arc<str> {
    Arc::from(format!("/#{:x}", node.0))
}
