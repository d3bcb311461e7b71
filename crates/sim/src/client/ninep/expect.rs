//! Expected result of a request: the rules of the session, then the shadow disk.

use super::request::Request;
use super::{Fid, FidState, Ninep};
use base::op::{File, PathDone, PathOp};
use base::{Access, Error, Kind, Name, SetStat, Stat, Time};
use wire::ninep::IO_HEADER_SIZE;

/// Timestamp on the shadow for unknown times.
pub(super) const UNKNOWN: Time = Time { secs: i64::MIN, nanos: 0 };

/// Result of a successful request.
#[derive(Debug)]
pub(super) enum Seen {
    /// Attributes of the files along the path; the shadow's handle, if the walk was complete.
    Walked(Vec<Stat>, Option<File>),
    /// The shadow's open file.
    Opened(File, Stat),
    /// The shadow's open file and handle.
    Created(File, File, Stat),
    Stat(Stat),
    Bytes(Vec<u8>),
    /// Success without a result, or a result checked elsewhere.
    Done,
}

/// One change made by a request.
#[derive(Debug)]
pub(super) enum Step {
    Path(PathOp),
    Write(File, u64, Vec<u8>),
}

/// Checks a name under which nothing can be created or found.
fn special(name: &Name, error: Error) -> Result<(), Error> {
    if name.plain() { Ok(()) } else { Err(error) }
}

impl Ninep {
    fn fid(&self, fid: u32) -> Result<&Fid, Error> {
        self.fids.get(&fid).ok_or(Error::Invalid)
    }

    /// Returns the file of a fid; that of an attribute has none.
    fn handle(&self, fid: u32) -> Result<File, Error> {
        let fid = self.fid(fid)?;
        match fid.state {
            FidState::AttrRead { .. } | FidState::AttrWrite { .. } => Err(Error::Invalid),
            _ => Ok(fid.handle),
        }
    }

    fn open_file(&self, fid: u32) -> Option<(File, Access)> {
        match &self.fids.get(&fid)?.state {
            FidState::Open { file, access, .. } => Some((*file, *access)),
            FidState::Closed | FidState::AttrRead { .. } | FidState::AttrWrite { .. } => None,
        }
    }

    fn expect_closed(&self, fid: u32) -> Result<File, Error> {
        match self.fid(fid)?.state {
            FidState::Closed => self.handle(fid),
            _ => Err(Error::Invalid),
        }
    }

    fn expect_free(&self, fid: u32) -> Result<(), Error> {
        if self.fids.contains_key(&fid) { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Returns the changes made by a request, in order.
    pub(super) fn steps(&self, request: &Request) -> Result<Vec<Step>, Error> {
        if let Request::Write { fid, offset, data } = request {
            let open = self.open_file(*fid).filter(|(_, access)| access.write);
            let step = open.map(|(file, _)| Step::Write(file, *offset, data.0.clone()));
            return Ok(step.into_iter().collect());
        }
        Ok(self.path_steps(request)?.into_iter().map(Step::Path).collect())
    }

    fn path_steps(&self, request: &Request) -> Result<Vec<PathOp>, Error> {
        let gid = None;
        Ok(match request {
            Request::Open { fid, access, .. } => {
                vec![PathOp::Open { file: self.expect_closed(*fid)?, access: *access }]
            }
            Request::Create { fid, name, access, exclusive, mode, dir } => {
                let name = Name::new(name)?;
                let file = self.expect_closed(*fid)?;
                let (access, exclusive) = (*access, *exclusive);
                let mode = self.made_mode(file, *mode, *dir);
                special(&name, Error::Exists)?;
                match dir {
                    true => vec![PathOp::MakeDir { dir: file, name, mode, gid }],
                    false => vec![PathOp::Create { dir: file, name, access, exclusive, mode, gid }],
                }
            }
            Request::SetStat { fid, set, rename } => {
                self.set_steps(*fid, set, rename.as_deref())?
            }
            Request::MakeDir { fid, name, mode } => {
                let (dir, name) = (self.handle(*fid)?, Name::new(name)?);
                special(&name, Error::Exists)?;
                vec![PathOp::MakeDir { dir, name, mode: *mode, gid }]
            }
            Request::Symlink { fid, name, target } => {
                let (dir, name, target) = (self.handle(*fid)?, Name::new(name)?, target.clone());
                special(&name, Error::Exists)?;
                vec![PathOp::Symlink { dir, name, target, gid }]
            }
            Request::MakeNode { fid, name, kind, mode, device: (major, minor) } => {
                let (dir, name, kind, mode) = (self.handle(*fid)?, Name::new(name)?, *kind, *mode);
                special(&name, Error::Exists)?;
                let (major, minor) = (u64::from(*major), u64::from(*minor));
                let device = major << 8 | (minor & !0xff) << 12 | minor & 0xff;
                vec![PathOp::MakeNode { dir, name, kind, mode, device, gid }]
            }
            Request::Link { dir, fid, name } => {
                let (dir, file, name) = (self.handle(*dir)?, self.handle(*fid)?, Name::new(name)?);
                special(&name, Error::Exists)?;
                vec![PathOp::Link { file, dir, name }]
            }
            other => self.end_steps(other)?,
        })
    }

    /// Returns the steps of renames and removals.
    fn end_steps(&self, request: &Request) -> Result<Vec<PathOp>, Error> {
        let root = self.home;
        Ok(match request {
            Request::Rename { fid, dir, name } => {
                let (file, to) = (self.handle(*fid)?, Some(self.handle(*dir)?));
                let new_name = Name::new(name)?;
                special(&new_name, Error::Busy)?;
                vec![PathOp::RenameFile { root, file, to, new_name, replace: true }]
            }
            Request::RenameAt { from, name, to, new } => {
                let (from, to) = (self.handle(*from)?, self.handle(*to)?);
                let (name, new_name) = (Name::new(name)?, Name::new(new)?);
                special(&name, Error::Busy)?;
                special(&new_name, Error::Busy)?;
                vec![PathOp::Rename { from, name, to, new_name, replace: true }]
            }
            Request::Unlink { fid, name, directory } => {
                let (dir, name) = (self.handle(*fid)?, Name::new(name)?);
                special(&name, Error::Invalid)?;
                vec![PathOp::Remove { dir, name, directory: Some(*directory) }]
            }
            Request::Remove { fid } => vec![PathOp::RemoveFile { root, file: self.handle(*fid)? }],
            Request::Clunk { fid } => match &self.fid(*fid)?.state {
                FidState::Open { remove: true, .. } => {
                    vec![PathOp::RemoveFile { root, file: self.handle(*fid)? }]
                }
                FidState::AttrWrite { name, value, size, flags } if value.len() == *size => {
                    let file = self.fid(*fid)?.handle;
                    let (name, value) = (name.clone(), value.clone());
                    match flags {
                        2 if value.is_empty() => vec![PathOp::RemoveAttr { file, name }],
                        flags => {
                            let create = [None, Some(true), Some(false)][*flags as usize];
                            vec![PathOp::SetAttr { file, name, value, create }]
                        }
                    }
                }
                FidState::AttrWrite { .. } => return Err(Error::Invalid),
                _ => Vec::new(),
            },
            _looks => Vec::new(),
        })
    }

    /// Returns the mode of a new file: 9P2000 limits its permissions to those of its directory
    /// (open(5)).
    fn made_mode(&self, dir: File, mode: u32, is_dir: bool) -> u32 {
        let above = self.shadow.attributes(self.shadow.inode_of(dir)).map_or(0, |stat| stat.mode);
        match (self.setup.linux, is_dir) {
            (true, _) => mode,
            (false, true) => mode & above & 0o777,
            (false, false) => mode & (!0o666 | above & 0o666) & 0o777,
        }
    }

    fn set_steps(
        &self,
        fid: u32,
        set: &SetStat,
        rename: Option<&[u8]>,
    ) -> Result<Vec<PathOp>, Error> {
        let (handle, name) = (self.handle(fid)?, self.fid(fid)?.name.clone());
        let open = self.open_file(fid).filter(|(_, access)| access.write && set.size.is_some());
        let file = open.map_or(handle, |(file, _)| file);
        let (set, open) = (set.clone(), open.is_some());
        let mut steps = Vec::new();
        let rename = match rename.filter(|new| *new != name) {
            Some(new) => Some(Name::new(new)?),
            None => None,
        };
        if set != SetStat::default() {
            steps.push(PathOp::SetStat { file, open, set });
        }
        if let Some(new_name) = rename {
            special(&new_name, Error::Busy)?;
            let (root, file, to) = (self.home, handle, None);
            steps.push(PathOp::RenameFile { root, file, to, new_name, replace: false });
        }
        Ok(steps)
    }

    /// Performs a request on the shadow.
    pub(super) fn expect(&mut self, request: &Request) -> Result<Seen, Error> {
        match request {
            Request::Walk { fid, newfid, names } => self.expect_walk(*fid, *newfid, names),
            Request::Read { fid, offset, count } => self.expect_read(*fid, *offset, *count),
            Request::Write { fid, offset, data } => self.expect_write(*fid, *offset, &data.0),
            Request::Stat { fid } => {
                let inode = self.shadow.inode_of(self.handle(*fid)?);
                Ok(Seen::Stat(self.shadow.attributes(inode).expect("it is held")))
            }
            Request::ReadLink { fid } => self.path(&PathOp::ReadLink { file: self.handle(*fid)? }),
            Request::StatFs { fid } => self.handle(*fid).map(|_| Seen::Done),
            Request::Sync { fid } | Request::Lock { fid, .. } | Request::GetLock { fid, .. } => {
                self.open_file(*fid).map(|_| Seen::Done).ok_or(Error::Invalid)
            }
            Request::List { fid, .. } => {
                self.open_file(*fid).map(|_| Seen::Done).ok_or(Error::Invalid)
            }
            Request::AttrWalk { fid, newfid, name } => {
                self.expect_free(*newfid)?;
                let file = self.handle(*fid)?;
                match name.is_empty() {
                    true => self.path(&PathOp::ListAttrs { file }),
                    false => self.path(&PathOp::GetAttr { file, name: name.clone() }),
                }
            }
            Request::AttrCreate { fid, .. } => self.expect_closed(*fid).map(|_| Seen::Done),
            Request::Clunk { fid } if !self.fids.contains_key(fid) => Err(Error::Invalid),
            changes => {
                let steps = self.path_steps(changes)?;
                let mut seen = Seen::Done;
                for step in &steps {
                    seen = self.path(step)?;
                }
                Ok(seen)
            }
        }
    }

    /// Performs a path operation on the shadow.
    fn path(&mut self, op: &PathOp) -> Result<Seen, Error> {
        Ok(match self.shadow.perform(UNKNOWN, op)? {
            PathDone::Opened(file, stat) => Seen::Opened(file, stat),
            PathDone::Created(file, handle, stat) => Seen::Created(file, handle, stat),
            PathDone::Stat(stat) => Seen::Stat(stat),
            PathDone::Bytes(bytes) => Seen::Bytes(bytes),
            PathDone::Walked(stats, file) => Seen::Walked(stats, file.ok()),
            _ => Seen::Done,
        })
    }

    fn expect_walk(&mut self, fid: u32, newfid: u32, names: &[Vec<u8>]) -> Result<Seen, Error> {
        let from = self.handle(fid)?;
        match newfid == fid {
            true if self.open_file(fid).is_some() => return Err(Error::Invalid),
            true => {}
            false => self.expect_free(newfid)?,
        }
        let good: Vec<Name> = names.iter().map_while(|name| Name::new(name).ok()).collect();
        if names.is_empty() {
            return Ok(Seen::Walked(Vec::new(), Some(self.shadow.duplicate(from))));
        }
        if good.is_empty() {
            Name::new(&names[0])?;
        }
        let whole = good.len() == names.len();
        let root = self.root;
        match self.shadow.perform(UNKNOWN, &PathOp::Walk { root, from, names: good })? {
            PathDone::Walked(stats, Err(error)) if stats.is_empty() => Err(error),
            PathDone::Walked(stats, Ok(file)) if !whole => {
                self.shadow.close(file);
                Ok(Seen::Walked(stats, None))
            }
            PathDone::Walked(stats, file) => Ok(Seen::Walked(stats, file.ok())),
            other => unreachable!("{other:?} is no walk"),
        }
    }

    fn expect_read(&mut self, fid: u32, offset: u64, count: u32) -> Result<Seen, Error> {
        let count = count.min(self.msize - IO_HEADER_SIZE);
        match &self.fid(fid)?.state {
            FidState::Open { .. } if self.fid(fid)?.kind == Kind::Directory => {
                Err(Error::IsDirectory)
            }
            FidState::Open { file, .. } => self.shadow.read(*file, offset, count).map(Seen::Bytes),
            FidState::AttrRead { value } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                let end = start.saturating_add(count as usize).min(value.len());
                Ok(Seen::Bytes(value[start..end].to_vec()))
            }
            FidState::Closed | FidState::AttrWrite { .. } => Err(Error::Invalid),
        }
    }

    fn expect_write(&mut self, fid: u32, offset: u64, data: &[u8]) -> Result<Seen, Error> {
        let kind = self.fid(fid)?.kind;
        let state = &mut self.fids.get_mut(&fid).expect("looked at above").state;
        match state {
            FidState::Open { .. } if kind == Kind::Directory => Err(Error::IsDirectory),
            FidState::Open { file, access, .. } if access.write => {
                self.shadow.write(UNKNOWN, *file, offset, data).map(|_| Seen::Done)
            }
            FidState::AttrWrite { value, size, .. } => {
                if offset != value.len() as u64 || value.len() + data.len() > *size {
                    return Err(Error::Invalid);
                }
                value.extend_from_slice(data);
                Ok(Seen::Done)
            }
            _ => Err(Error::Invalid),
        }
    }
}
