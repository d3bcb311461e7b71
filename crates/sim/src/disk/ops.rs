//! Path operations, step by step as in the real reactor's straight-line code.

use super::{DEVICE, Disk, Held, ROOT, SIZE_MAX};
use base::op::{Content, Detail, Entry, File, Listing, PathDone, PathOp, Who};
use base::{Access, Buf, Error, FileHandle, Kind, Name, SetStat, SetTime, StatFs, Time, User};

type Outcome = Result<PathDone, Error>;

/// Size of an entry besides its name, bytes.
const OVERHEAD: usize = 24;
/// Maximum size of an extended attribute's value, bytes.
const ATTR_MAX: usize = 64 << 10;

/// Returns whether an operation changes anything.
pub(crate) fn changes(op: &PathOp) -> bool {
    match op {
        PathOp::Open { access, .. } => access.truncate,
        PathOp::SetStat { .. }
        | PathOp::Create { .. }
        | PathOp::CreateUnnamed { .. }
        | PathOp::Replace { .. }
        | PathOp::MakeDir { .. }
        | PathOp::Symlink { .. }
        | PathOp::MakeNode { .. }
        | PathOp::Link { .. }
        | PathOp::Rename { .. }
        | PathOp::RenameFile { .. }
        | PathOp::Remove { .. }
        | PathOp::RemoveFile { .. }
        | PathOp::SetAttr { .. }
        | PathOp::RemoveAttr { .. } => true,
        PathOp::Walk { .. }
        | PathOp::Fetch { .. }
        | PathOp::Stat { .. }
        | PathOp::FileHandle { .. }
        | PathOp::OpenHandle { .. }
        | PathOp::ReadLink { .. }
        | PathOp::List { .. }
        | PathOp::ListAll { .. }
        | PathOp::ReadAll { .. }
        | PathOp::StatFs { .. }
        | PathOp::GetAttr { .. }
        | PathOp::ListAttrs { .. }
        | PathOp::Identify { .. }
        | PathOp::OpenRoot { .. }
        | PathOp::OpenVolume { .. }
        | PathOp::Resolve { .. } => false,
    }
}

/// Reported usage of the disk.
const STATFS: StatFs = StatFs {
    kind: 0xEF53,
    block_size: 4096,
    blocks: 1 << 20,
    blocks_free: 1 << 19,
    blocks_available: 1 << 18,
    files: 1 << 16,
    files_free: 1 << 15,
    id: DEVICE,
    name_max: 255,
};

impl Disk {
    /// Performs a path operation.
    ///
    /// # Errors
    /// Those of the corresponding system calls.
    pub fn perform(&mut self, now: Time, op: &PathOp) -> Outcome {
        match op {
            PathOp::Walk { root, from, names } => self.walk(*root, *from, names),
            PathOp::Fetch { root, path, read_max, headroom } => {
                self.fetch(*root, path, *read_max, *headroom)
            }
            PathOp::Stat { file } => Ok(PathDone::Stat(self.stat(self.held(*file).inode))),
            PathOp::FileHandle { file, .. } => Ok(PathDone::Handle(self.file_handle(*file))),
            PathOp::OpenHandle { handle, .. } => self.open_handle(handle),
            PathOp::SetStat { file, open, set } => self.set_stat(now, *file, *open, set),
            PathOp::Open { file, access } => self.open(now, *file, *access),
            PathOp::Create { dir, name, access, exclusive, mode, .. } => {
                self.create(now, *dir, name, *access, *exclusive, *mode)
            }
            PathOp::CreateUnnamed { dir, access, mode } => {
                self.create_unnamed(now, *dir, *access, *mode)
            }
            PathOp::MakeDir { dir, name, mode, .. } => {
                self.new_entry(now, *dir, name, Kind::Directory, *mode, |_| ())
            }
            PathOp::Symlink { dir, name, target, .. } => {
                if target.is_empty() {
                    return Err(Error::NotFound);
                }
                if target.contains(&0) {
                    return Err(Error::Invalid);
                }
                let set = |node: &mut super::Inode| node.target.clone_from(target);
                self.new_entry(now, *dir, name, Kind::Symlink, 0o777, set)
            }
            PathOp::MakeNode { dir, name, kind, mode, device, .. } => match kind {
                Kind::Directory | Kind::Symlink => Err(Error::Invalid),
                Kind::CharDevice | Kind::BlockDevice => {
                    let set = |node: &mut super::Inode| node.special = *device;
                    self.new_entry(now, *dir, name, *kind, *mode, set)
                }
                Kind::File | Kind::Fifo | Kind::Socket => {
                    self.new_entry(now, *dir, name, *kind, *mode, |_| ())
                }
            },
            PathOp::ReadLink { file } => {
                let node = self.node(self.held(*file).inode);
                let link = node.kind == Kind::Symlink;
                link.then(|| PathDone::Bytes(node.target.clone())).ok_or(Error::Invalid)
            }
            PathOp::Link { file, dir, name } => self.link(now, *file, *dir, name),
            other => self.perform_more(now, other),
        }
    }

    fn perform_more(&mut self, now: Time, op: &PathOp) -> Outcome {
        match op {
            PathOp::Rename { from, name, to, new_name, replace } => {
                let (from, to) = (self.held(*from).inode, self.held(*to).inode);
                self.rename(now, (from, name), (to, new_name), *replace)
            }
            PathOp::RenameFile { file, to, new_name, replace, .. } => {
                let (parent, name) = self.locate(*file)?;
                let to = to.map_or(parent, |to| self.held(to).inode);
                self.rename(now, (parent, &name), (to, new_name), *replace)
            }
            PathOp::Replace { dir, name, by, expected } => {
                self.replace(now, self.held(*dir).inode, name, by, *expected)
            }
            PathOp::Remove { dir, name, directory } => {
                self.remove(now, self.held(*dir).inode, name, *directory)
            }
            PathOp::RemoveFile { file, .. } => {
                let (parent, name) = self.locate(*file)?;
                self.remove(now, parent, &name, None)
            }
            PathOp::List { file, cookie, bytes_max, detail } => {
                self.list(*file, *cookie, *bytes_max as usize, *detail)
            }
            PathOp::ListAll { from, paths, bytes_max } => {
                Ok(self.list_all(*from, paths, *bytes_max as usize))
            }
            PathOp::ReadAll { from, paths, size_max, bytes_max } => {
                Ok(self.read_all(*from, paths, (*size_max).into(), (*bytes_max).into()))
            }
            PathOp::StatFs { .. } => Ok(PathDone::StatFs(STATFS)),
            PathOp::GetAttr { file, name } => {
                let value = self.node(self.held(*file).inode).attrs.get(name);
                value.cloned().map(PathDone::Bytes).ok_or(Error::NoAttribute)
            }
            PathOp::SetAttr { file, name, value, create } => {
                self.set_attr(now, *file, name, value, *create)
            }
            PathOp::ListAttrs { file } => {
                let names = self.node(self.held(*file).inode).attrs.keys();
                Ok(PathDone::Bytes(
                    names.flat_map(|name| name.iter().copied().chain([0])).collect(),
                ))
            }
            PathOp::RemoveAttr { file, name } => {
                let held = self.held(*file);
                let found = self.node_mut(held.inode).attrs.remove(name);
                found.map(|_| PathDone::Ok).ok_or(Error::NoAttribute)
            }
            PathOp::Identify { who } => match who {
                Who::Uid(uid) => Ok(PathDone::User(User {
                    uid: *uid,
                    gid: *uid,
                    groups: Vec::new(),
                    commands: false,
                })),
                Who::Name(_) => Err(Error::NotFound),
            },
            PathOp::OpenRoot { path } => self.open_named(path),
            // No file here is a volume; those of the world are passed to the node.
            PathOp::OpenVolume { .. } => Err(Error::NotFound),
            PathOp::Resolve { address } => {
                let number = address.parse().map_err(|_| Error::NotFound);
                number.map(|number| PathDone::Addresses(vec![number]))
            }
            other => unreachable!("{other:?} is performed above"),
        }
    }

    /// Performs one step from a directory: returns the file and its entry.
    pub(super) fn step(&self, dir: u64, name: &Name) -> Result<(u64, u64), Error> {
        let node = self.node(dir);
        if node.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        match name.as_bytes() {
            b"." => Ok((dir, node.dentry)),
            b".." => Ok((node.parent, self.node(node.parent).dentry)),
            _ => match node.entries.get(name) {
                Some(place) => Ok((place.inode, place.dentry)),
                None => Err(Error::NotFound),
            },
        }
    }

    /// Opens a directory by its path from the root.
    fn open_named(&mut self, path: &[u8]) -> Outcome {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let (mut at, mut dentry) = (super::ROOT, 0);
        for name in names {
            let name = Name::new(name).map_err(|_| Error::Invalid)?;
            (at, dentry) = self.step(at, &name)?;
        }
        if self.node(at).kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(PathDone::Root(self.hold(at, dentry, None), self.stat(at)))
    }

    /// Walks without leaving the root upwards.
    fn file_handle(&self, file: File) -> FileHandle {
        identity(self.held(file).inode)
    }

    fn open_handle(&mut self, handle: &FileHandle) -> Outcome {
        let inode = handle.identifier().try_into().map(u64::from_be_bytes);
        let inode = inode.map_err(|_| Error::Stale)?;
        let exists = self.inodes.get(&inode).is_some_and(|node| node.links > 0);
        if !exists {
            return Err(Error::Stale);
        }
        let place = self.dentries.iter().find(|(dentry, (dir, name))| {
            let entry = self.inodes.get(dir).and_then(|dir| dir.entries.get(name));
            entry.is_some_and(|entry| entry.inode == inode && entry.dentry == **dentry)
        });
        let dentry = place.map_or(0, |(dentry, _)| *dentry);
        let stats = vec![self.stat(inode)];
        Ok(PathDone::Walked(stats, Ok(self.hold(inode, dentry, None))))
    }

    fn walk(&mut self, root: File, from: File, names: &[Name]) -> Outcome {
        let (root, mut at) = (self.held(root).inode, self.held(from).inode);
        let mut dentry = 0;
        let mut stats = Vec::new();
        for name in names {
            match self.step(at, name) {
                Ok(_) if name.is_parent() && at == root => dentry = self.node(root).dentry,
                Ok(next) => (at, dentry) = next,
                Err(error) => return Ok(PathDone::Walked(stats, Err(error))),
            }
            stats.push(self.stat(at));
        }
        assert!(!names.is_empty(), "a walk without names is not for the reactor");
        let file = self.hold(at, dentry, None);
        Ok(PathDone::Walked(stats, Ok(file)))
    }

    fn set_stat(&mut self, now: Time, file: File, open: bool, set: &SetStat) -> Outcome {
        let held = self.held(file);
        let node = self.node_mut(held.inode);
        if let Some(size) = set.size {
            if size > i64::MAX as u64 {
                return Err(Error::FileTooLarge);
            }
            match (node.kind, open, held.access) {
                (_, true, Some(access)) if !access.write => return Err(Error::Invalid),
                (Kind::File, ..) => {}
                (Kind::Directory, ..) => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid),
            }
            if size > SIZE_MAX {
                return Err(Error::FileTooLarge);
            }
            node.data.resize(size);
            node.touch(now);
        }
        node.owner = (set.uid.unwrap_or(node.owner.0), set.gid.unwrap_or(node.owner.1));
        if let Some(mode) = set.mode {
            if node.kind == Kind::Symlink {
                return Err(Error::Unsupported);
            }
            node.mode = mode & 0o7777;
        }
        for (slot, time) in [(0, set.accessed), (1, set.modified)] {
            match time {
                Some(SetTime::Now) => node.times[slot] = now,
                Some(SetTime::At(time)) => node.times[slot] = time,
                None => {}
            }
        }
        node.times[2] = now;
        Ok(PathDone::Ok)
    }

    pub(super) fn expect_plain(&self, inode: u64, access: Access) -> Result<(), Error> {
        match self.node(inode).kind {
            Kind::Directory if access.changes() => Err(Error::IsDirectory),
            Kind::File | Kind::Directory => Ok(()),
            Kind::Symlink => Err(Error::Loop),
            _ => Err(Error::Unsupported),
        }
    }

    fn open(&mut self, now: Time, file: File, access: Access) -> Outcome {
        let Held { inode, dentry, .. } = self.held(file);
        self.expect_plain(inode, access)?;
        if access.truncate {
            self.node_mut(inode).data.resize(0);
            self.node_mut(inode).touch(now);
        }
        let open = self.hold(inode, dentry, Some(access));
        Ok(PathDone::Opened(open, self.stat(inode)))
    }

    fn expect_room(&self, dir: u64, name: &Name) -> Result<(), Error> {
        if !name.plain() {
            return Err(Error::Exists);
        }
        let node = self.node(dir);
        match node.kind {
            Kind::Directory if node.entries.contains_key(name) => Err(Error::Exists),
            Kind::Directory if node.links == 0 => Err(Error::NotFound),
            Kind::Directory => Ok(()),
            _ => Err(Error::NotDirectory),
        }
    }

    fn create(
        &mut self,
        now: Time,
        dir: File,
        name: &Name,
        access: Access,
        exclusive: bool,
        mode: u32,
    ) -> Outcome {
        let dir = self.held(dir).inode;
        let (inode, dentry) = match self.expect_room(dir, name) {
            Ok(()) => self.make(now, dir, name, Kind::File, mode),
            Err(Error::Exists) if !exclusive && name.plain() => {
                let found = self.step(dir, name)?;
                if self.node(found.0).kind == Kind::Directory {
                    return Err(Error::IsDirectory);
                }
                self.expect_plain(found.0, access)?;
                if access.truncate {
                    self.node_mut(found.0).data.resize(0);
                    self.node_mut(found.0).touch(now);
                }
                found
            }
            Err(error) => return Err(error),
        };
        let file = self.hold(inode, dentry, Some(access));
        let handle = self.hold(inode, dentry, None);
        Ok(PathDone::Created(file, handle, self.stat(inode)))
    }

    fn new_entry(
        &mut self,
        now: Time,
        dir: File,
        name: &Name,
        kind: Kind,
        mode: u32,
        set: impl FnOnce(&mut super::Inode),
    ) -> Outcome {
        let dir = self.held(dir).inode;
        self.expect_room(dir, name)?;
        let (inode, _) = self.make(now, dir, name, kind, mode);
        set(self.node_mut(inode));
        Ok(PathDone::Stat(self.stat(inode)))
    }

    fn link(&mut self, now: Time, file: File, dir: File, name: &Name) -> Outcome {
        let (inode, dir) = (self.held(file).inode, self.held(dir).inode);
        if !name.plain() {
            return Err(Error::Exists);
        }
        self.expect_room(dir, name)?;
        if self.node(inode).kind == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        if self.node(inode).links == 0 {
            return Err(Error::NotFound);
        }
        self.enter(now, dir, name, inode, None);
        Ok(PathDone::Ok)
    }

    /// Returns the present name of a file, by the entry through which it was found.
    fn locate(&self, file: File) -> Result<(u64, Name), Error> {
        let held = self.held(file);
        match self.dentries.get(&held.dentry) {
            _ if held.inode == ROOT => Err(Error::NotPermitted),
            Some((dir, name)) => Ok((*dir, name.clone())),
            None => Err(Error::NotFound),
        }
    }

    pub(super) fn remove(
        &mut self,
        now: Time,
        dir: u64,
        name: &Name,
        directory: Option<bool>,
    ) -> Outcome {
        if !name.plain() {
            return Err(Error::Invalid);
        }
        self.step(dir, name)?;
        let place = self.node(dir).entries[name];
        let node = self.node(place.inode);
        match (node.kind == Kind::Directory, directory) {
            (true, Some(false)) => return Err(Error::IsDirectory),
            (false, Some(true)) => return Err(Error::NotDirectory),
            (true, _) if !node.entries.is_empty() => return Err(Error::NotEmpty),
            _ => {}
        }
        self.unlink(now, dir, name, place);
        Ok(PathDone::Ok)
    }

    /// Returns whether the directory `inode` is `above` or beneath it.
    fn is_beneath(&self, mut inode: u64, above: u64) -> bool {
        while inode != above {
            if inode == ROOT {
                return false;
            }
            inode = self.node(inode).parent;
        }
        true
    }

    pub(super) fn rename(
        &mut self,
        now: Time,
        (from, name): (u64, &Name),
        (to, new): (u64, &Name),
        replace: bool,
    ) -> Outcome {
        if !name.plain() || !new.plain() {
            return Err(Error::Invalid);
        }
        if self.node(to).kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        self.step(from, name)?;
        let source = self.node(from).entries[name];
        let target = self.node(to).entries.get(new).copied();
        if !replace && target.is_some() {
            return Err(Error::Exists);
        }
        let is_dir = |inode: u64| self.node(inode).kind == Kind::Directory;
        if is_dir(source.inode) && self.is_beneath(to, source.inode) {
            return Err(Error::Invalid);
        }
        if let Some(target) = target {
            if is_dir(target.inode) && self.is_beneath(from, target.inode) {
                return Err(Error::NotEmpty);
            }
            match (is_dir(source.inode), is_dir(target.inode)) {
                _ if source.inode == target.inode => return Ok(PathDone::Ok),
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.node(target.inode).entries.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        } else if self.node(to).links == 0 {
            return Err(Error::NotFound);
        }
        let directory = is_dir(source.inode);
        if let Some(target) = target {
            self.unlink(now, to, new, target);
        }
        self.leave(now, from, name, source);
        self.enter(now, to, new, source.inode, Some(source.dentry));
        if directory {
            self.node_mut(from).links -= 1;
            self.node_mut(to).links += 1;
            self.node_mut(source.inode).parent = to;
        }
        Ok(PathDone::Ok)
    }

    fn list_all(&self, from: File, paths: &[Vec<u8>], mut left: usize) -> PathDone {
        let mut listings = Vec::new();
        let mut todo: Vec<(Vec<u8>, u64)> = Vec::new();
        for path in paths.iter().rev() {
            let found = self.below(self.held(from).inode, path);
            todo.extend(found.map(|inode| (path.clone(), inode)));
        }
        while let Some((path, inode)) = todo.pop() {
            let Ok(entries) = self.entries(inode, 0, usize::MAX, Detail::Name) else { continue };
            let names = entries.iter().map(|e| e.name.as_bytes().len() + OVERHEAD);
            let bytes = names.sum::<usize>() + OVERHEAD;
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
        PathDone::Listings(listings, super::JOB_NS)
    }

    fn read_all(&self, from: File, paths: &[Vec<u8>], size_max: u64, mut left: u64) -> PathDone {
        let mut contents = Vec::new();
        for path in paths {
            let found = self.below(self.held(from).inode, path);
            let stat = found.map(|inode| (inode, self.stat(inode)));
            let plain = stat
                .filter(|(_, stat)| stat.kind == Kind::File && (1..=size_max).contains(&stat.size));
            let Some((inode, stat)) = plain else { continue };
            if stat.size > left {
                break;
            }
            left -= stat.size;
            let data = self.node(inode).data.read(0, stat.size as usize);
            contents.push(Content { path: path.clone(), stat, data: Buf::from(&data[..]) });
        }
        PathDone::Contents(contents, super::JOB_NS)
    }

    /// Returns the file at a path without `..`.
    fn below(&self, from: u64, path: &[u8]) -> Option<u64> {
        let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.try_fold(from, |dir, part| {
            let name = Name::new(part).ok()?;
            self.step(dir, &name).ok().map(|(inode, _)| inode)
        })
    }

    fn list(&self, file: File, cookie: u64, bytes_max: usize, detail: Detail) -> Outcome {
        let inode = self.held(file).inode;
        self.entries(inode, cookie, bytes_max, detail).map(PathDone::Entries)
    }

    fn entries(
        &self,
        inode: u64,
        cookie: u64,
        bytes_max: usize,
        detail: Detail,
    ) -> Result<Vec<Entry>, Error> {
        let node = self.node(inode);
        if node.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for (cookie, name) in node.by_cookie.range(cookie.saturating_add(1)..) {
            bytes += name.as_bytes().len() + OVERHEAD;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let inode = node.entries[name].inode;
            let (kind, name) = (self.node(inode).kind, name.clone());
            let stat = detail.has_stat().then(|| self.stat(inode));
            let handle = detail.has_handle().then(|| identity(inode));
            entries.push(Entry { cookie: *cookie, inode, device: None, kind, name, stat, handle });
        }
        Ok(entries)
    }

    fn set_attr(
        &mut self,
        now: Time,
        file: File,
        name: &[u8],
        value: &[u8],
        create: Option<bool>,
    ) -> Outcome {
        let held = self.held(file);
        let node = self.node_mut(held.inode);
        if value.len() > ATTR_MAX {
            return Err(Error::AttributeTooLarge);
        }
        match (create, node.attrs.contains_key(name)) {
            (Some(true), true) => return Err(Error::Exists),
            (Some(false), false) => return Err(Error::NoAttribute),
            _ => {}
        }
        node.attrs.insert(name.to_vec(), value.to_vec());
        node.times[2] = now;
        Ok(PathDone::Ok)
    }
}

/// Returns the identity of a file.
fn identity(inode: u64) -> FileHandle {
    FileHandle::new(&inode.to_be_bytes()).expect("a number fits")
}
