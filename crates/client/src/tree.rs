//! Fids, and path resolution from the root.

use crate::error::NAMELESS;
use crate::line::Line;
use crate::{Dialect, Error, Path};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use wire::ninep::{Names, Qid, Rmessage, Tmessage, WALK_MAX};

/// Maximum symbolic links in a path resolution (Linux's `MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Maximum names in a path, including those of followed links.
const NAMES_MAX: usize = 4096;

/// Maximum length of a name, in bytes; no file system permits more.
const NAME_MAX: usize = 4096;

/// Upper bound of the bytes in a walk message beside its names.
const WALK_HEADER: usize = 32;

/// File handle on the server; clunked when dropped.
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

    /// Returns the number without a clunk: the server has discarded it or is about to.
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

/// Closure that extracts the value of one kind of reply.
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

/// Attached tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Fid,
    pub(crate) qid: Qid,
}

/// End of a walk.
enum End {
    Reached(Fid, Qid),
    /// Index of a symbolic link followed by more names.
    Link(usize),
}

impl Tree {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.root.line
    }

    /// Resolves a path. Intermediate links are followed; the last one if `follow`.
    pub(crate) fn find(&self, path: &Path, follow: bool) -> Result<(Fid, Qid), Error> {
        let mut links = 0;
        let (fid, qid, _) = self.reach(names(path)?, follow, &mut links)?;
        Ok((fid, qid))
    }

    /// Resolves a path below a directory. Links on the way to the directory are followed; below it
    /// a link is an error.
    pub(crate) fn find_beneath(&self, top: &Path, below: &Path) -> Result<(Fid, Qid), Error> {
        let below = names(below)?;
        if below.iter().any(|name| name == b"..") {
            return Err(Error::bad_path("it leads out of the directory"));
        }
        let (_, _, mut all) = self.reach(names(top)?, true, &mut 0)?;
        all.extend(below);
        match self.walk(&all)? {
            End::Reached(fid, qid) if !self.is_link(qid) => Ok((fid, qid)),
            End::Reached(..) | End::Link(_) => Err(Error::too_many_links()),
        }
    }

    /// Resolves the parent directory of a path, and returns it with the last name.
    pub(crate) fn find_above<'a>(&self, path: &'a Path) -> Result<(Fid, &'a [u8]), Error> {
        let name = path.file_name().ok_or_else(|| Error::bad_path(NAMELESS))?;
        names(Path::new(name))?;
        let above = path.parent().unwrap_or(Path::new(""));
        let (fid, _) = self.find(above, true)?;
        Ok((fid, name.as_bytes()))
    }

    /// Resolves names. Also returns equivalent names without links and `..`.
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
                // The parent of everything before it, with links followed.
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

    /// Walks without following links, in as many messages as necessary.
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

    /// Returns as many names as fit one message.
    fn batch<'a>(&self, names: &'a [Name]) -> &'a [Name] {
        let mut room = (self.line().msize as usize).saturating_sub(WALK_HEADER);
        let fits = names.iter().take(WALK_MAX).take_while(|name| {
            let left = room.checked_sub(2 + name.len());
            room = left.unwrap_or(0);
            left.is_some()
        });
        // A single name that does not fit is rejected when it is sent.
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
            let what = format!("a walk of {} names in reply to {}", qids.len(), names.len());
            return Err(line.broken(what));
        }
        Ok(qids)
    }
}

/// Returns the target of a symbolic link.
pub(crate) fn read_link(fid: &Fid) -> Result<Vec<u8>, Error> {
    let message = Tmessage::Readlink { fid: fid.number };
    fid.line.call(&message, only!(Rmessage::Readlink { target } => target.to_vec()))
}

/// Splits a path into names. `.` is dropped.
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

/// Replaces a link by its target. An absolute target starts at the root of the tree.
fn substituted(names: &[Name], at: usize, target: &[u8]) -> Vec<Name> {
    let above = if target.starts_with(b"/") { &[] } else { &names[..at] };
    let mut all = above.to_vec();
    all.extend(split(target));
    all.extend(names[at + 1..].iter().cloned());
    all
}
