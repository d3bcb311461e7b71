//! A directory of the host, as one side of a copy. Symbolic links are never followed.

use super::side::{Attrs, Outcome, Part, Side, Trouble, keeps};
use base::{Buf, Error, Kind, Name, Stat, Time};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::path::Path;
use std::rc::Rc;

/// Bytes of one read.
const READ_MAX: u64 = 1 << 20;

/// Maximum number of pieces of one write.
const PIECES_MAX: usize = 512;

/// Files of the host.
#[derive(Debug)]
pub(crate) struct Host {
    /// Whether owners are kept, and attributes reserved for root.
    root: bool,
    /// A file of the target's file system, for making it durable.
    written: Option<Rc<OwnedFd>>,
}

/// A file: its directory and name, and for a directory its own descriptor.
#[derive(Debug)]
pub(crate) struct Node {
    dir: Rc<OwnedFd>,
    name: Name,
    fd: Option<Rc<OwnedFd>>,
}

impl Node {
    fn directory(&self) -> Outcome<&Rc<OwnedFd>> {
        self.fd.as_ref().ok_or_else(|| Trouble::of(Error::NotDirectory))
    }

    /// Returns a path for calls without a directory descriptor; it must not be followed.
    fn path(&self) -> Vec<u8> {
        use rustix::fd::AsRawFd as _;
        let mut path = format!("/proc/self/fd/{}/", self.dir.as_raw_fd()).into_bytes();
        path.extend_from_slice(self.name.as_bytes());
        path
    }
}

fn trouble(errno: Errno) -> Trouble {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            Trouble::Over("no space left: delete something there, then copy again".to_string())
        }
        errno => Trouble::File(std::io::Error::from(errno).to_string()),
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Host {
    pub(crate) fn new(root: bool) -> Host {
        Host { root, written: None }
    }

    /// Returns a file or directory by its path, following all components except the last name; the
    /// last one too for `.` and the like.
    pub(crate) fn node(path: &Path) -> Result<(Node, Stat), Errno> {
        use std::os::unix::ffi::OsStrExt as _;
        let last = path.file_name().and_then(|name| Name::new(name.as_bytes()).ok());
        let (above, name) = match last {
            Some(name) => (path.parent().unwrap_or(Path::new("")), name),
            None => (path, Name::new(b".").expect("a name")),
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = Rc::new(fs::open(above, flags, Mode::empty())?);
        look(&dir, &name)
    }

    /// Returns the directory of a path, existing or not, and the name in it.
    pub(crate) fn place(path: &Path) -> Result<(Node, Name), Errno> {
        use std::os::unix::ffi::OsStrExt as _;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let name = Name::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = Rc::new(fs::open(above, flags, Mode::empty())?);
        let dot = Name::new(b".").expect("a name");
        Ok((Node { dir: fd.clone(), name: dot, fd: Some(fd) }, name))
    }

    fn attrs_of(&self, node: &Node) -> Result<Attrs, Errno> {
        let path = node.path();
        let names =
            sized(|| fs::llistxattr_query(&path[..]), |bytes| fs::llistxattr(&path[..], bytes))?;
        let mut attrs = Attrs::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if keeps(name, self.root) {
                let value = sized(
                    || fs::lgetxattr_query(&path[..], name),
                    |bytes| fs::lgetxattr(&path[..], name, bytes),
                )?;
                attrs.push((name.to_vec(), value));
            }
        }
        Ok(attrs)
    }
}

/// Calls a function that fills a buffer, with a buffer of sufficient size.
fn sized(
    size: impl Fn() -> Result<usize, Errno>,
    call: impl Fn(&mut Vec<u8>) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    loop {
        let mut bytes = vec![0; size()?];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        match call(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
            // It has grown meanwhile.
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn look(dir: &Rc<OwnedFd>, name: &Name) -> Result<(Node, Stat), Errno> {
    let found = fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
    let stat = stat_of(&found);
    let fd = match stat.kind {
        Kind::Directory => {
            Some(Rc::new(fs::openat(dir, name.as_bytes(), DIRECTORY, Mode::empty())?))
        }
        Kind::File
        | Kind::Symlink
        | Kind::Fifo
        | Kind::Socket
        | Kind::CharDevice
        | Kind::BlockDevice => None,
    };
    Ok((Node { dir: dir.clone(), name: name.clone(), fd }, stat))
}

fn stat_of(found: &fs::Stat) -> Stat {
    let time = |secs, nanos: u64| Time { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    Stat {
        kind: Kind::from_mode(found.st_mode).unwrap_or_default(),
        mode: found.st_mode & 0o7777,
        links: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        size: found.st_size.cast_unsigned(),
        blocks: found.st_blocks.cast_unsigned(),
        block_size: 4096,
        device: found.st_dev,
        inode: found.st_ino,
        special_device: found.st_rdev,
        accessed: time(found.st_atime, found.st_atime_nsec),
        modified: time(found.st_mtime, found.st_mtime_nsec),
        changed: time(found.st_ctime, found.st_ctime_nsec),
        created: None,
    }
}

impl Side for Host {
    type Node = Node;
    type Open = OwnedFd;

    fn find(&mut self, dir: &Node, name: &Name) -> Outcome<Option<(Node, Stat)>> {
        match look(dir.directory()?, name) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(trouble(errno)),
        }
    }

    fn release(&mut self, _node: Node) {}

    fn list(&mut self, dir: &Node) -> Outcome<Vec<Name>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir.directory()?.as_fd()).map_err(trouble)? {
            let entry = entry.map_err(trouble)?;
            let name = Name::new(entry.file_name().to_bytes()).map_err(Trouble::of)?;
            if name.plain() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn target(&mut self, node: &Node) -> Outcome<Vec<u8>> {
        let target = fs::readlinkat(&node.dir, node.name.as_bytes(), Vec::new());
        Ok(target.map_err(trouble)?.into_bytes())
    }

    fn attrs(&mut self, node: &Node, _stat: &Stat) -> Outcome<Attrs> {
        match self.attrs_of(node) {
            // This file system has none.
            Err(Errno::OPNOTSUPP) => Ok(Attrs::new()),
            other => other.map_err(|errno| trouble(errno).doing("extended attributes")),
        }
    }

    fn open(&mut self, node: &Node) -> Outcome<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        fs::openat(&node.dir, node.name.as_bytes(), flags, Mode::empty()).map_err(trouble)
    }

    fn read(&mut self, open: &mut OwnedFd, from: u64, stat: &Stat) -> Outcome<Option<Part>> {
        let (mut at, mut end) = (from, stat.size);
        if from >= stat.size {
            return Ok(None);
        }
        if stat.blocks.saturating_mul(512) < stat.size {
            at = match fs::seek(&*open, SeekFrom::Data(from)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(None),
                Err(errno) => return Err(trouble(errno)),
            };
            end = fs::seek(&*open, SeekFrom::Hole(at)).map_err(trouble)?;
        }
        let count = READ_MAX.min(end.saturating_sub(at)) as usize;
        let (mut bytes, mut done) = (vec![0; count], 0);
        while done < count {
            match rustix::io::pread(&*open, &mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(trouble(errno)),
            }
        }
        bytes.truncate(done);
        let next = at + done as u64;
        Ok((done > 0).then(|| Part { at, bytes: vec![Buf::from(bytes)], next }))
    }

    fn close(&mut self, _open: OwnedFd) {}

    fn make_dir(&mut self, dir: &Node, name: &Name) -> Outcome<Node> {
        let above = dir.directory()?;
        fs::mkdirat(above, name.as_bytes(), Mode::RWXU).map_err(trouble)?;
        self.written = Some(above.clone());
        look(above, name).map(|(node, _)| node).map_err(trouble)
    }

    fn create(&mut self, dir: &Node, name: &Name) -> Outcome<(Node, OwnedFd)> {
        let above = dir.directory()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = fs::openat(above, name.as_bytes(), flags, mode).map_err(trouble)?;
        self.written = Some(above.clone());
        Ok((Node { dir: above.clone(), name: name.clone(), fd: None }, open))
    }

    fn write(&mut self, open: &mut OwnedFd, part: Part) -> Outcome<()> {
        let Part { mut at, mut bytes, .. } = part;
        while !bytes.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                bytes.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            let mut count = match rustix::io::pwritev(&*open, &slices, at) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(trouble(errno)),
            };
            at += count as u64;
            let whole = bytes.iter().take_while(|piece| {
                let whole = piece.len() <= count;
                count -= if whole { piece.len() } else { 0 };
                whole
            });
            let whole = whole.count();
            bytes.drain(..whole);
            if count > 0 {
                bytes[0].consume(count);
            }
        }
        Ok(())
    }

    fn lengthen(&mut self, _node: &Node, open: &mut OwnedFd, size: u64) -> Outcome<()> {
        fs::ftruncate(&*open, size).map_err(trouble)
    }

    fn symlink(&mut self, dir: &Node, name: &Name, target: &[u8]) -> Outcome<Node> {
        let above = dir.directory()?;
        fs::symlinkat(target, above, name.as_bytes()).map_err(trouble)?;
        self.written = Some(above.clone());
        Ok(Node { dir: above.clone(), name: name.clone(), fd: None })
    }

    fn make_node(&mut self, dir: &Node, name: &Name, stat: &Stat) -> Outcome<Node> {
        let above = dir.directory()?;
        let kind = fs::FileType::from_raw_mode(stat.kind.mode_bits());
        let mode = Mode::RUSR | Mode::WUSR;
        fs::mknodat(above, name.as_bytes(), kind, mode, stat.special_device).map_err(trouble)?;
        self.written = Some(above.clone());
        Ok(Node { dir: above.clone(), name: name.clone(), fd: None })
    }

    fn link(&mut self, node: &Node, dir: &Node, name: &Name) -> Outcome<()> {
        let (from, to) = (node.name.as_bytes(), name.as_bytes());
        fs::linkat(&node.dir, from, dir.directory()?, to, AtFlags::empty()).map_err(trouble)
    }

    fn remove(&mut self, dir: &Node, name: &Name) -> Outcome<()> {
        fs::unlinkat(dir.directory()?, name.as_bytes(), AtFlags::empty()).map_err(trouble)
    }

    fn dress(&mut self, node: &Node, stat: &Stat, attrs: &Attrs) -> Outcome<()> {
        let (dir, name) = (&node.dir, node.name.as_bytes());
        let still = AtFlags::SYMLINK_NOFOLLOW;
        if self.root {
            let (uid, gid) = (fs::Uid::from_raw(stat.uid), fs::Gid::from_raw(stat.gid));
            fs::chownat(dir, name, Some(uid), Some(gid), still)
                .map_err(|errno| trouble(errno).doing("owner"))?;
        }
        for (attr, value) in attrs {
            fs::lsetxattr(&node.path()[..], &attr[..], value, XattrFlags::empty()).map_err(
                |errno| {
                    let attr = String::from_utf8_lossy(attr);
                    trouble(errno).doing(format!("extended attribute {attr}"))
                },
            )?;
        }
        if stat.kind != Kind::Symlink {
            let mode = Mode::from_raw_mode(stat.mode);
            fs::chmodat(dir, name, mode, AtFlags::empty())
                .map_err(|errno| trouble(errno).doing("mode"))?;
        }
        let time = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
        let times =
            Timestamps { last_access: time(stat.accessed), last_modification: time(stat.modified) };
        fs::utimensat(dir, name, &times, still).map_err(|errno| trouble(errno).doing("dates"))
    }

    fn sync(&mut self) -> Outcome<()> {
        match &self.written {
            Some(dir) => fs::syncfs(dir).map_err(trouble),
            None => Ok(()),
        }
    }
}
