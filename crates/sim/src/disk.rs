//! The simulated disk: an in-memory model of a host directory, with the semantics of Linux.
//!
//! Inodes, entries with stable cookies, hard and symbolic links, files that are open but unlinked.
//! A handle remembers the *entry* by which it was found (the kernel's dentry), because moving and
//! removing a file "by handle" act on that. Operations take effect at once here; latency, faults
//! and order belong to [`crate::world`].

mod fetch;
mod ops;
mod replace;
mod sparse;

pub(crate) use ops::changes;
pub use sparse::Sparse;

use base::op::{File, PathDone, PathOp};
use base::{Access, Error, Kind, Name, Stat, Time};
use std::collections::BTreeMap;

/// Processor time that a large job reports, ns.
pub(crate) const JOB_NS: u64 = 50_000;

/// Number of the simulated device.
pub const DEVICE: u64 = 7;
/// Inode of the served root.
pub const ROOT: u64 = 1;
/// Maximum size of a file, bytes (ext4's).
pub const SIZE_MAX: u64 = 1 << 44;

/// One file of any kind.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// Kind of the file.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Number of links; for a directory, as counted by Linux.
    pub links: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Contents of a plain file.
    pub data: Sparse,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub attrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Device number, for devices.
    pub special: u64,
    /// Times of access, modification and change of attributes.
    pub times: [Time; 3],
    /// Entries of a directory.
    pub entries: BTreeMap<Name, DirEntry>,
    by_cookie: BTreeMap<u64, Name>,
    next_cookie: u64,
    /// Parent of a directory.
    parent: u64,
    /// The entry of a directory.
    dentry: u64,
    /// Whether it reports size zero, as files of `/proc` do.
    hides_size: bool,
    /// Number of handles and open files.
    holds: u32,
}

/// Value of a directory entry.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub inode: u64,
    dentry: u64,
    cookie: u64,
}

/// Referent of a [`File`].
#[derive(Clone, Copy, Debug)]
struct Held {
    inode: u64,
    dentry: u64,
    /// `None` for a handle without access.
    access: Option<Access>,
}

/// A file or directory of the initial contents.
#[derive(Clone, Debug)]
pub struct Planted {
    /// Inode of its directory.
    pub dir: u64,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its contents.
    pub data: Vec<u8>,
    /// Its inode.
    pub inode: u64,
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    inodes: BTreeMap<u64, Inode>,
    files: BTreeMap<u32, Held>,
    /// Present location of each entry.
    dentries: BTreeMap<u64, (u64, Name)>,
    next_inode: u64,
    next_file: u32,
    next_dentry: u64,
}

impl Disk {
    /// Returns a disk with an empty root.
    pub fn new(now: Time) -> Disk {
        let root = Inode {
            kind: Kind::Directory,
            mode: 0o755,
            links: 2,
            times: [now; 3],
            parent: ROOT,
            ..Inode::default()
        };
        Disk {
            inodes: BTreeMap::from([(ROOT, root)]),
            files: BTreeMap::new(),
            dentries: BTreeMap::new(),
            next_inode: ROOT + 1,
            next_file: 3,
            next_dentry: 1,
        }
    }

    /// Returns a handle for the root.
    pub fn open_root(&mut self) -> File {
        self.hold(ROOT, 0, None)
    }

    /// Returns the number of open files and handles.
    pub fn open_count(&self) -> usize {
        self.files.len()
    }

    /// Returns a file, if it exists (perhaps unlinked).
    pub fn inode(&self, inode: u64) -> Option<&Inode> {
        self.inodes.get(&inode)
    }

    /// Returns whether this file or handle is open.
    pub fn is_open(&self, file: File) -> bool {
        self.files.contains_key(&file.0)
    }

    /// Returns whether this file was opened with access.
    pub fn is_more_than_handle(&self, file: File) -> bool {
        self.files.get(&file.0).is_some_and(|held| held.access.is_some())
    }

    /// Closes a file or handle.
    ///
    /// # Panics
    /// If it is not open: the node closed it twice, or invented it.
    pub fn close(&mut self, file: File) {
        let held = self.files.remove(&file.0);
        let held = held.unwrap_or_else(|| panic!("{file:?} is closed, but it is not open"));
        self.node_mut(held.inode).holds -= 1;
        self.collect(held.inode);
    }

    /// Reads from an open file.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read(&self, file: File, offset: u64, count: u32) -> Result<Vec<u8>, Error> {
        let held = self.held(file);
        let node = self.node(held.inode);
        match (node.kind, held.access) {
            (Kind::Directory, _) => Err(Error::IsDirectory),
            (_, Some(access)) if access.read => match i64::try_from(offset) {
                Ok(_) => Ok(node.data.read(offset, count as usize)),
                Err(_) => Err(Error::Invalid),
            },
            _ => Err(Error::Invalid),
        }
    }

    /// Writes to an open file.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    pub fn write(&mut self, now: Time, file: File, at: u64, data: &[u8]) -> Result<u32, Error> {
        let held = self.held(file);
        let Some(access) = held.access.filter(|access| access.write || access.append) else {
            return Err(Error::Invalid);
        };
        if i64::try_from(at).is_err() {
            return Err(Error::Invalid);
        }
        let node = self.node_mut(held.inode);
        let at = if access.append { node.data.len() } else { at };
        if at.saturating_add(data.len() as u64) > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        node.data.write(at, data);
        node.touch(now);
        Ok(u32::try_from(data.len()).expect("one message"))
    }

    /// Returns the file of an entry, for setup and checks.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let name = Name::new(name).ok()?;
        Some(self.inodes.get(&dir)?.entries.get(&name)?.inode)
    }

    /// Creates a file out of band.
    ///
    /// # Panics
    /// If the name exists.
    pub fn plant(&mut self, now: Time, dir: u64, name: &[u8], kind: Kind, data: &[u8]) -> u64 {
        let name = Name::new(name).expect("a name of the stage");
        assert!(!self.node(dir).entries.contains_key(&name), "{name} is taken");
        let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
        let (inode, _) = self.make(now, dir, &name, kind, mode);
        match kind {
            Kind::Symlink => self.node_mut(inode).target = data.to_vec(),
            _ => self.node_mut(inode).data.write(0, data),
        }
        inode
    }

    /// Returns every file and directory, in the order of their creation.
    pub fn planted(&self) -> Vec<Planted> {
        let mut all: Vec<Planted> = Vec::new();
        for (dir, node) in &self.inodes {
            for (name, place) in &node.entries {
                let found = self.node(place.inode);
                let data = found.data.read(0, found.data.len() as usize);
                let (dir, name, kind) = (*dir, name.to_string(), found.kind);
                all.push(Planted { dir, name, kind, data, inode: place.inode });
            }
        }
        all.sort_by_key(|planted| planted.inode);
        all
    }

    /// Makes a file report size zero.
    pub fn hide_size(&mut self, inode: u64) {
        self.node_mut(inode).hides_size = true;
    }

    /// Removes a plain file out of band.
    pub fn uproot(&mut self, now: Time, dir: u64, name: &[u8]) {
        let name = Name::new(name).expect("a name of the stage");
        let place = self.node(dir).entries.get(&name).copied();
        if let Some(place) = place {
            self.unlink(now, dir, &name, place);
        }
    }

    fn held(&self, file: File) -> Held {
        let held = self.files.get(&file.0).copied();
        held.unwrap_or_else(|| panic!("{file:?} is used, but it is not open"))
    }

    fn node(&self, inode: u64) -> &Inode {
        self.inodes.get(&inode).expect("inodes in use exist")
    }

    fn node_mut(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("inodes in use exist")
    }

    fn hold(&mut self, inode: u64, dentry: u64, access: Option<Access>) -> File {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, Held { inode, dentry, access });
        self.node_mut(inode).holds += 1;
        File(file)
    }

    /// Frees an unreachable file. Directories stay: open descendants may still look up their
    /// parents.
    fn collect(&mut self, inode: u64) {
        let node = self.node(inode);
        if node.links == 0 && node.holds == 0 && node.kind != Kind::Directory {
            self.inodes.remove(&inode);
        }
    }

    /// Creates an inode with a name; returns it and its entry.
    fn make(&mut self, now: Time, dir: u64, name: &Name, kind: Kind, mode: u32) -> (u64, u64) {
        let inode = self.next_inode;
        self.next_inode += 1;
        let links = if kind == Kind::Directory { 2 } else { 0 };
        let mode = if kind == Kind::Symlink { 0o777 } else { mode & 0o7777 };
        let times = [now; 3];
        let node = Inode { kind, mode, links, times, parent: dir, ..Inode::default() };
        self.inodes.insert(inode, node);
        let dentry = self.enter(now, dir, name, inode, None);
        if kind == Kind::Directory {
            self.node_mut(dir).links += 1;
            self.node_mut(inode).dentry = dentry;
        }
        (inode, dentry)
    }

    /// Creates a plain file without a name.
    fn make_unnamed(&mut self, now: Time, mode: u32) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        let (kind, mode, times) = (Kind::File, mode & 0o7777, [now; 3]);
        self.inodes.insert(inode, Inode { kind, mode, times, parent: ROOT, ..Inode::default() });
        inode
    }

    /// Names an unnamed file; its handles refer to that entry from now on.
    fn name(&mut self, now: Time, dir: u64, name: &Name, inode: u64) {
        let dentry = self.enter(now, dir, name, inode, None);
        let unnamed = self.files.values_mut().filter(|held| held.inode == inode);
        unnamed.filter(|held| held.dentry == 0).for_each(|held| held.dentry = dentry);
    }

    /// Adds an entry, new or moved here.
    fn enter(&mut self, now: Time, dir: u64, name: &Name, inode: u64, old: Option<u64>) -> u64 {
        let dentry = old.unwrap_or(self.next_dentry);
        self.next_dentry += u64::from(old.is_none());
        self.dentries.insert(dentry, (dir, name.clone()));
        let node = self.node_mut(dir);
        node.next_cookie += 1;
        let cookie = node.next_cookie;
        node.by_cookie.insert(cookie, name.clone());
        node.entries.insert(name.clone(), DirEntry { inode, dentry, cookie });
        node.touch(now);
        let target = self.node_mut(inode);
        target.links += u32::from(target.kind != Kind::Directory);
        target.times[2] = now;
        dentry
    }

    /// Removes an entry; its file keeps its other names and its handles.
    fn leave(&mut self, now: Time, dir: u64, name: &Name, place: DirEntry) {
        let node = self.node_mut(dir);
        node.entries.remove(name);
        node.by_cookie.remove(&place.cookie);
        node.touch(now);
        let target = self.node_mut(place.inode);
        target.links -= u32::from(target.kind != Kind::Directory);
        target.times[2] = now;
    }

    /// Removes an entry for good.
    fn unlink(&mut self, now: Time, dir: u64, name: &Name, place: DirEntry) {
        self.leave(now, dir, name, place);
        self.dentries.remove(&place.dentry);
        if self.node(place.inode).kind == Kind::Directory {
            self.node_mut(place.inode).links = 0;
            self.node_mut(dir).links -= 1;
        }
        self.collect(place.inode);
    }

    fn stat(&self, inode: u64) -> Stat {
        let node = self.node(inode);
        let size = match node.kind {
            Kind::Directory => 4096,
            Kind::Symlink => node.target.len() as u64,
            _ if node.hides_size => 0,
            _ => node.data.len(),
        };
        Stat {
            kind: node.kind,
            mode: node.mode,
            links: node.links,
            uid: node.owner.0,
            gid: node.owner.1,
            size,
            blocks: node.data.blocks(),
            block_size: 4096,
            device: DEVICE,
            inode,
            special_device: node.special,
            accessed: node.times[0],
            modified: node.times[1],
            changed: node.times[2],
            created: None,
        }
    }
}

impl Inode {
    fn touch(&mut self, now: Time) {
        self.times[1] = now;
        self.times[2] = now;
    }
}

/// Additions for checkers, which use a disk of their own as a model of the real one.
impl Disk {
    /// Sets the number of the next inode, so that a checker's files have the real ones.
    pub fn choose_inode(&mut self, inode: u64) {
        self.next_inode = inode;
    }

    /// Returns the inode of a handle.
    pub fn inode_of(&self, file: File) -> u64 {
        self.held(file).inode
    }

    /// Returns the entry by which a handle was found, if it still exists: directory and name.
    pub fn place_of(&self, file: File) -> Option<(u64, Name)> {
        self.dentries.get(&self.held(file).dentry).cloned()
    }

    /// Duplicates a handle.
    pub fn duplicate(&mut self, file: File) -> File {
        let held = self.held(file);
        self.hold(held.inode, held.dentry, None)
    }

    /// Returns the attributes of a file.
    pub fn attributes(&self, inode: u64) -> Option<Stat> {
        self.inodes.contains_key(&inode).then(|| self.stat(inode))
    }

    /// Returns the names in a directory, each with a number that identifies the entry.
    pub fn names(&self, dir: u64) -> BTreeMap<Name, u64> {
        let entries = self.node(dir).entries.iter();
        entries.map(|(name, place)| (name.clone(), place.dentry)).collect()
    }

    /// Describes the difference of a file from the same one on another disk, except timestamps;
    /// `None` if there is none.
    pub fn difference(&self, other: &Disk, inode: u64) -> Option<String> {
        let (one, two) = match (self.inode(inode), other.inode(inode)) {
            (Some(one), Some(two)) => (one, two),
            // An unlinked file may be referenced on one disk, and freed on the other.
            (Some(only), None) | (None, Some(only)) if only.links == 0 => return None,
            (one, two) => {
                let there = (one.is_some(), two.is_some());
                return (there != (false, false)).then(|| format!("there: {there:?}"));
            }
        };
        let facts = |node: &Inode| (node.kind, node.mode, node.links, node.owner, node.special);
        let entries = |node: &Inode| -> Vec<(Name, u64)> {
            node.entries.iter().map(|(name, place)| (name.clone(), place.inode)).collect()
        };
        if facts(one) != facts(two) {
            return Some(format!("{:?} and {:?}", facts(one), facts(two)));
        }
        if one.target != two.target || one.attrs != two.attrs {
            return Some(format!("{:?} and {:?}", one.attrs, two.attrs));
        }
        if entries(one) != entries(two) {
            return Some(format!("{:?} and {:?}", entries(one), entries(two)));
        }
        let sizes = (one.data.len(), two.data.len());
        (one.data != two.data).then(|| format!("contents of {} and {} bytes", sizes.0, sizes.1))
    }
}

impl Disk {
    /// Marks a timestamp as unknown.
    pub fn forget_date(&mut self, inode: u64, unknown: Time) {
        if let Some(node) = self.inodes.get_mut(&inode) {
            node.times[1] = unknown;
        }
    }

    /// Returns the result of one step from a directory, if any.
    pub fn next(&self, dir: u64, name: &Name) -> Option<u64> {
        self.step(dir, name).ok().map(|(inode, _)| inode)
    }
}

impl Disk {
    /// Returns the position at which a write at `offset` takes effect.
    pub fn write_position(&self, file: File, offset: u64) -> u64 {
        let held = self.held(file);
        let appends = held.access.is_some_and(|access| access.append);
        if appends { self.node(held.inode).data.len() } else { offset }
    }

    /// Returns the directory and name where an operation creates a file.
    pub fn makes<'a>(&self, op: &'a PathOp) -> Option<(u64, &'a Name)> {
        match op {
            PathOp::Create { dir, name, .. }
            | PathOp::MakeDir { dir, name, .. }
            | PathOp::Symlink { dir, name, .. }
            | PathOp::MakeNode { dir, name, .. } => Some((self.inode_of(*dir), name)),
            _ => None,
        }
    }

    /// Closes the files opened by an operation whose completion is not delivered.
    pub fn close_all(&mut self, done: &PathDone) {
        let files = match done {
            PathDone::Walked(_, Ok(file)) | PathDone::Opened(file, _) => vec![*file],
            PathDone::Fetched(_, _, file) => file.iter().copied().collect(),
            PathDone::Created(file, handle, _) => vec![*file, *handle],
            _ => Vec::new(),
        };
        files.into_iter().for_each(|file| self.close(file));
    }
}
