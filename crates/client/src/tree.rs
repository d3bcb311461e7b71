//! Fids, and walking from the root to a file.

use crate::line::{Dialect, Line};
use crate::{Error, Path};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use wire::ninep::{Names, Qid, Rmessage, Tmessage, WALK_MAX};

/// Most symbolic links on the way to a file (Linux's `MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Longest path, in names: also with links nobody walks further.
const NAMES_MAX: usize = 4096;

/// Longest name, bytes; no file system takes more.
const NAME_MAX: usize = 4096;

/// What of a message is not names, bytes, or more.
const WALK_HEADER: usize = 32;

/// A file that the server keeps for us; given back when dropped.
#[derive(Debug)]
pub(crate) struct Fid {
    pub(crate) line: Arc<Line>,
    pub(crate) number: u32,
    known: bool,
}

impl Fid {
    pub(crate) fn new(line: Arc<Line>, number: u32) -> Fid {
        Fid { line, number, known: true }
    }

    /// The server has forgotten it, or is about to.
    pub(crate) fn forget(mut self) -> u32 {
        self.known = false;
        self.number
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        if self.known {
            self.line.clunk(self.number);
        }
    }
}

/// What is wanted of one kind of reply.
macro_rules! only {
    ($pattern:pat => $value:expr) => {
        |reply| {
            let $pattern = reply else { return None };
            Some($value)
        }
    };
}
pub(crate) use only;

type Name = Vec<u8>;

/// The tree that was attached to.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Fid,
    pub(crate) qid: Qid,
}

/// Where a walk has ended.
enum End {
    Reached(Fid, Qid),
    /// A symbolic link stands there and more names follow.
    Link(usize),
}

impl Tree {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.root.line
    }

    /// The file of this path. Links on the way are followed, the last one if `follow`.
    pub(crate) fn find(&self, path: &Path, follow: bool) -> Result<(Fid, Qid), Error> {
        let mut links = 0;
        let (fid, qid, _) = self.reach(names(path)?, follow, &mut links)?;
        Ok((fid, qid))
    }

    /// The directory that a file of this path is or would be in, and its name there.
    pub(crate) fn find_above<'a>(&self, path: &'a Path) -> Result<(Fid, &'a [u8]), Error> {
        let name = path.file_name().ok_or_else(|| {
            Error::bad_path("it has no name of its own; write the path with its last name")
        })?;
        names(Path::new(name))?;
        let above = path.parent().unwrap_or(Path::new(""));
        let (fid, _) = self.find(above, true)?;
        Ok((fid, name.as_bytes()))
    }

    /// The same with names, and the names without links and `..` that lead there as well.
    fn reach(
        &self,
        mut names: Vec<Name>,
        follow: bool,
        links: &mut usize,
    ) -> Result<(Fid, Qid, Vec<Name>), Error> {
        loop {
            if names.len() > NAMES_MAX {
                return Err(Error::bad_path("it is too long"));
            }
            if let Some(at) = names.iter().position(|name| name == b"..") {
                // Above what is in front of it, links followed.
                let rest = names.split_off(at + 1);
                names.pop();
                let (_, _, mut above) = self.reach(names, true, links)?;
                above.pop();
                above.extend(rest);
                names = above;
                continue;
            }
            let at = match self.walk(&names)? {
                End::Reached(fid, qid) if follow && self.is_link(qid) && !names.is_empty() => {
                    let target = read_link(&fid)?;
                    names = substituted(&names, names.len() - 1, &target);
                    None
                }
                End::Reached(fid, qid) => return Ok((fid, qid, names)),
                End::Link(at) => Some(at),
            };
            *links += 1;
            if *links > LINKS_MAX {
                return Err(Error::too_many_links());
            }
            if let Some(at) = at {
                let End::Reached(fid, _) = self.walk(&names[..=at])? else {
                    return Err(Error::too_many_links());
                };
                let target = read_link(&fid)?;
                names = substituted(&names, at, &target);
            }
        }
    }

    fn is_link(&self, qid: Qid) -> bool {
        self.line().dialect == Dialect::Linux && qid.kind & Qid::SYMLINK != 0
    }

    /// Walks without following anything, in as many messages as it takes.
    fn walk(&self, names: &[Name]) -> Result<End, Error> {
        let number = self.line().new_fid()?;
        let mut fid = None;
        let (mut done, mut last) = (0, self.qid);
        loop {
            let batch = self.batch(&names[done..]);
            let from = fid.as_ref().map_or(self.root.number, |fid: &Fid| fid.number);
            let qids = match self.step(from, number, batch) {
                Ok(qids) => qids,
                Err(error) => {
                    if fid.is_none() && !error.is_fatal() {
                        self.line().free_fid(number);
                    }
                    return Err(error);
                }
            };
            let complete = qids.len() == batch.len();
            if fid.is_none() && complete {
                fid = Some(Fid::new(self.line().clone(), number));
            } else if fid.is_none() {
                self.line().free_fid(number);
            }
            let more = done + batch.len() < names.len();
            for (index, qid) in qids.iter().enumerate() {
                let inner = index + 1 < batch.len() || more;
                if inner && self.is_link(*qid) {
                    return Ok(End::Link(done + index));
                }
            }
            last = qids.last().copied().unwrap_or(last);
            match fid {
                Some(fid) if complete && !more => return Ok(End::Reached(fid, last)),
                other if complete => fid = other,
                _ if last.kind & Qid::DIR == 0 => return Err(Error::not_directory()),
                _ => return Err(Error::not_found()),
            }
            done += batch.len();
        }
    }

    /// As many names as one message takes.
    fn batch<'a>(&self, names: &'a [Name]) -> &'a [Name] {
        let mut room = (self.line().msize as usize).saturating_sub(WALK_HEADER);
        let fits = names.iter().take(WALK_MAX).take_while(|name| {
            let left = room.checked_sub(2 + name.len());
            room = left.unwrap_or(0);
            left.is_some()
        });
        // A single name that does not fit is refused when it is sent.
        &names[..fits.count().max(usize::from(!names.is_empty()))]
    }

    fn step(&self, fid: u32, newfid: u32, names: &[Name]) -> Result<Vec<Qid>, Error> {
        let list: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let list = Names::new(&list).expect("at most sixteen");
        let makes = (fid != newfid).then_some(newfid);
        let line = self.line();
        let pending = line.begin(&Tmessage::Walk { fid, newfid, names: list }, makes)?;
        let reply = pending.wait()?;
        let qids = line.read(&reply, only!(Rmessage::Walk { qids } => qids.as_slice().to_vec()))?;
        if qids.len() > names.len() {
            let what = format!("a walk of {} names, asked for {}", qids.len(), names.len());
            return Err(line.broken(what));
        }
        Ok(qids)
    }
}

/// The target of a symbolic link.
pub(crate) fn read_link(fid: &Fid) -> Result<Vec<u8>, Error> {
    let message = Tmessage::Readlink { fid: fid.number };
    fid.line.call(&message, only!(Rmessage::Readlink { target } => target.to_vec()))
}

/// The names of a path. `.` is nowhere else.
fn names(path: &Path) -> Result<Vec<Name>, Error> {
    let names = split(path.as_os_str().as_bytes());
    if names.iter().any(|name| name.contains(&0)) {
        return Err(Error::bad_path("no name may have a NUL in it"));
    }
    if names.iter().any(|name| name.len() > NAME_MAX) {
        return Err(Error::bad_path("one of its names is too long"));
    }
    Ok(names)
}

fn split(path: &[u8]) -> Vec<Name> {
    let parts = path.split(|byte| *byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
}

/// The names with a link's target in its place. The root is that of the tree.
fn substituted(names: &[Name], at: usize, target: &[u8]) -> Vec<Name> {
    let above = if target.starts_with(b"/") { &[] } else { &names[..at] };
    let mut all = above.to_vec();
    all.extend(split(target));
    all.extend(names[at + 1..].iter().cloned());
    all
}
