//! Quotas: limits on the bytes and files of a user, or of a directory with all beneath it.
//!
//! A directory's quota counts a *project*, as in XFS: each inode has the number of its project, new
//! ones that of their directory. A file or an empty directory renamed into another project counts
//! for the new one from then on; directories with entries and files with several names cannot be
//! renamed between projects (`EXDEV`, as in Linux; programs copy instead), so that the count stays
//! exact. A directory with a quota of its own counts for that one only, not for one of a directory
//! above. Quotas apply to all users, root included.
//!
//! Quotas are set by extended attributes, by root only:
//!
//! | attribute | of | value |
//! |---|---|---|
//! | `trusted.upcall.quota` | a directory | its quota |
//! | `trusted.upcall.quota.user.UID` | the root | that of a user |
//! | `trusted.upcall.quotas`, `.1` … | the root | all, a line each, 256 in each; read-only |
//!
//! A value is a list of words such as `max_bytes=1000000 max_inodes=none`; a missing word means no
//! limit. A value that is read includes the usage. Lists of attributes do not include quotas,
//! so that copying a directory with its attributes does not copy a quota.
//!
//! A quota set for existing files is enforced only after the [`counting`](super::counting) machine
//! has counted them.

use super::plan::{Effects, Planned, Planner, answer};
use super::read_view::{DEPTH_MAX, Stop};
use super::record::{Holder, Inode, Quota, ROOT, SETTINGS, SETTINGS_KEY, Settings};
use super::usage::{RECOUNT, Usage};
use super::write_set::WriteSet;
use crate::request::Reply;
use base::Error;
use std::fmt::{self, Write as _};
use store::View;

/// Attribute of a directory's quota.
const OF_DIRECTORY: &[u8] = b"trusted.upcall.quota";
/// Prefix of the attributes of users' quotas, followed by the uid.
const OF_USER: &[u8] = b"trusted.upcall.quota.user.";
/// Attribute of the root with all quotas; further parts are followed by a dot and a number.
const ALL: &[u8] = b"trusted.upcall.quotas";
/// Prefix of all reserved attributes.
const OWN: &[u8] = b"trusted.upcall.";

/// Number of quotas in one attribute: as many as fit Linux's limit (`XATTR_SIZE_MAX`).
const PART: usize = 256;

/// Maximum number of directories counted at once by a rename.
const CHAIN_MAX: usize = 64;

/// Maximum number of quotas of a volume: all are kept in memory, and loaded before the first
/// change.
const QUOTAS_MAX: usize = 4096;

impl WriteSet<'_> {
    pub(super) fn quota(&self, holder: Holder) -> Option<Quota> {
        match self.quotas.get(&holder) {
            Some(changed) => *changed,
            None => self.known.get(&holder).copied(),
        }
    }

    pub(super) fn set_quota(&mut self, holder: Holder, quota: Option<Quota>) {
        assert_ne!(holder, Holder::Project(0), "zero is no project");
        self.quotas.insert(holder, quota);
    }

    /// Returns whether there is any quota, before or after the write set.
    pub(super) fn has_quotas(&self) -> bool {
        !self.known.is_empty() || !self.quotas.is_empty()
    }

    /// Adds usage of an inode to its owner and its project.
    ///
    /// # Errors
    /// `QuotaExceeded` past a limit of one of them.
    pub(super) fn charge(&mut self, ino: u64, inode: &Inode, usage: Usage) -> Result<(), Error> {
        self.charge_to(Holder::User(inode.uid), ino, usage)?;
        self.charge_to(Holder::Project(inode.project), ino, usage)
    }

    /// Removes usage of an inode from its owner and its project.
    pub(super) fn release(&mut self, ino: u64, inode: &Inode, usage: Usage) {
        self.release_from(Holder::User(inode.uid), ino, usage);
        self.release_from(Holder::Project(inode.project), ino, usage);
    }

    fn charge_to(&mut self, holder: Holder, ino: u64, usage: Usage) -> Result<(), Error> {
        let Some(mut quota) = self.counted(holder, ino) else { return Ok(()) };
        if quota.is_exceeded_by(usage, self.read_view.block) {
            return Err(Error::QuotaExceeded);
        }
        quota.add(usage);
        self.set_quota(holder, Some(quota));
        Ok(())
    }

    fn release_from(&mut self, holder: Holder, ino: u64, usage: Usage) {
        if let Some(mut quota) = self.counted(holder, ino) {
            quota.subtract(usage);
            self.set_quota(holder, Some(quota));
        }
    }

    /// Returns the quota of a holder, if the inode is already counted for it.
    fn counted(&self, holder: Holder, ino: u64) -> Option<Quota> {
        self.quota(holder).filter(|quota| match holder {
            Holder::User(_) => ino < quota.counted,
            Holder::Project(_) => true,
        })
    }

    /// Counts a file for its new owner.
    ///
    /// # Errors
    /// `QuotaExceeded` past a limit of the new owner.
    pub(super) fn change_owner(&mut self, ino: u64, uid: u32) -> Result<(), Stop> {
        let inode = self.look(ino)?;
        if self.has_quotas() && inode.uid != uid {
            let usage = Usage { blocks: inode.blocks, inodes: 1 };
            self.release_from(Holder::User(inode.uid), ino, usage);
            self.charge_to(Holder::User(uid), ino, usage)?;
        }
        self.inode(ino)?.uid = uid;
        Ok(())
    }

    /// Gives a directory a project of its own; returns a quota without limits.
    ///
    /// # Errors
    /// `Invalid` beneath a directory with a quota, from which files would be taken.
    fn new_project(&mut self, ino: u64) -> Result<(Holder, Quota), Stop> {
        let inode = self.look(ino)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory.into());
        }
        if inode.links == 0 {
            return Err(Error::NotFound.into());
        }
        if self.is_within_quota(ino)? {
            return Err(Error::Invalid.into());
        }
        let project = self.number()?;
        assert!(project > ROOT, "inodes and projects share their numbers");
        self.inode(ino)?.project = project;
        let quota = Quota { inodes: 1, directory: ino, ..Quota::default() };
        Ok((Holder::Project(project), quota))
    }

    /// Returns the project that an inode counts for; zero if it has none, or its quota was removed.
    pub(super) fn project(&self, inode: &Inode) -> u64 {
        match self.quota(Holder::Project(inode.project)) {
            Some(_) => inode.project,
            None => 0,
        }
    }

    /// Returns the project of the directory of an inode.
    fn project_around(&self, ino: u64) -> Result<u64, Stop> {
        let inode = self.look(ino)?;
        match self.quota(Holder::Project(inode.project)) {
            Some(quota) if quota.directory == ino => Ok(self.project(&self.look(inode.parent)?)),
            Some(_) => Ok(inode.project),
            None => Ok(0),
        }
    }

    /// Counts an inode that gets a name in the directory `to` for that directory's project. Its
    /// name in `from`, if any, is removed or kept. Returns the directory beneath which files must
    /// be counted, with its quota, if any.
    ///
    /// # Errors
    /// `CrossDevice` if more than this inode would have to be counted, or it has other names;
    /// `QuotaExceeded` past a limit of the project.
    pub(super) fn adopt(
        &mut self,
        ino: u64,
        from: Option<u64>,
        to: u64,
        keeps: bool,
    ) -> Result<Option<(Holder, u64)>, Stop> {
        if !self.has_quotas() {
            return Ok(None);
        }
        let (old, new) = (self.project_around(ino)?, self.project(&self.look(to)?));
        // A file of another project stays there when renamed within its directory.
        if old == new || old != 0 && from == Some(to) {
            return Ok(None);
        }
        let inode = self.look(ino)?;
        let is_alone = if inode.is_directory() { inode.entries == 0 } else { inode.links <= 1 };
        let has_own = inode.project != old && self.project(&inode) != 0;
        if !has_own && is_alone && !keeps {
            self.change_project(ino, old, new)?;
            return Ok(None);
        }
        if !self.are_being_counted(old, new, from, to)? {
            return Err(Error::CrossDevice.into());
        }
        if has_own {
            return Ok(None);
        }
        if new == 0 {
            // A counted file stays so: its new directory is counted as well.
            self.count_directories(to, old)?;
            return Ok(None);
        }
        self.change_project(ino, old, new)?;
        Ok(inode.is_directory().then_some((Holder::Project(new), ino)))
    }

    fn change_project(&mut self, ino: u64, old: u64, new: u64) -> Result<(), Stop> {
        assert_ne!(old, new, "a project changes");
        let usage = Usage { blocks: self.look(ino)?.blocks, inodes: 1 };
        self.release_from(Holder::Project(old), ino, usage);
        self.charge_to(Holder::Project(new), ino, usage)?;
        self.inode(ino)?.project = new;
        Ok(())
    }

    /// Counts a directory, and those above it up to the first counted one, for a project. The
    /// counting machine finds their entries later.
    fn count_directories(&mut self, mut dir: u64, project: u64) -> Result<(), Stop> {
        for _ in 0..CHAIN_MAX {
            let inode = self.look(dir)?;
            if inode.project == project {
                return Ok(());
            }
            self.change_project(dir, 0, project)?;
            dir = inode.parent;
        }
        Err(Error::CrossDevice.into())
    }

    /// Returns whether the projects of two directories differ only because the common directory has
    /// not been counted completely.
    fn are_being_counted(
        &self,
        old: u64,
        new: u64,
        from: Option<u64>,
        to: u64,
    ) -> Result<bool, Stop> {
        let ((0, project) | (project, 0)) = (old, new) else { return Ok(false) };
        let (Some(quota), Some(from)) = (self.quota(Holder::Project(project)), from) else {
            return Ok(false);
        };
        Ok(!quota.is_counted()
            && self.read_view.is_beneath(from, quota.directory)?
            && self.read_view.is_beneath(to, quota.directory)?)
    }

    /// Returns whether a directory, or one above it, has a quota.
    fn is_within_quota(&self, mut dir: u64) -> Result<bool, Stop> {
        for _ in 0..=DEPTH_MAX {
            let inode = self.look(dir)?;
            if self.project(&inode) != 0 {
                return Ok(true);
            }
            if dir == ROOT {
                return Ok(false);
            }
            dir = inode.parent;
        }
        Err(Error::NameTooLong.into())
    }

    /// Removes the quota of a directory that has lost its name.
    pub(super) fn drop_quota_of(&mut self, ino: u64, inode: &Inode) {
        let holder = Holder::Project(inode.project);
        if self.quota(holder).is_some_and(|quota| quota.directory == ino) {
            self.set_quota(holder, None);
        }
    }
}

/// Usage and limits of one quota, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Owner of the files, by uid; `None` for the quota of a directory.
    pub uid: Option<u32>,
    /// Inode of the directory; zero for a user.
    pub directory: u64,
    /// Bytes and files in use.
    pub used: Limits,
    /// Maximum numbers of bytes and files.
    pub most: Limits,
    /// Whether the limits are enforced: all existing files are counted.
    pub is_enforced: bool,
}

impl Limited {
    pub(super) fn new(holder: Holder, quota: &Quota, block: u64) -> Limited {
        let uid = match holder {
            Holder::User(uid) => Some(uid),
            Holder::Project(_) => None,
        };
        let bytes = quota.blocks.saturating_mul(block);
        let most = Limits { bytes: quota.bytes_max, inodes: quota.inodes_max };
        let used = Limits { bytes, inodes: quota.inodes };
        Limited { uid, directory: quota.directory, used, most, is_enforced: quota.is_enforced() }
    }
}

/// Numbers of bytes and files; `u64::MAX` as a limit means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of contents, in whole blocks.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
}

impl Limits {
    /// Parses limits; ignores the other words of a value, so that a value that was read can be set.
    fn parse(value: &[u8]) -> Option<Limits> {
        let mut limits = Limits { bytes: u64::MAX, inodes: u64::MAX };
        for word in str::from_utf8(value).ok()?.split_ascii_whitespace() {
            let (name, value) = word.split_once('=')?;
            match name {
                "max_bytes" => limits.bytes = limit(value)?,
                "max_inodes" => limits.inodes = limit(value)?,
                "used_bytes" | "used_inodes" | "state" => {}
                _unknown => return None,
            }
        }
        Some(limits)
    }
}

fn limit(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if text == "none" { Some(u64::MAX) } else { text.parse().ok().filter(|_| digits) }
}

/// A limit in the text of a value.
struct Limit(u64);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("none"),
            most => most.fmt(f),
        }
    }
}

/// Returns the value of a quota's attribute.
fn value(quota: &Quota, block: u64) -> String {
    format!(
        "max_bytes={} max_inodes={} used_bytes={} used_inodes={} state={}",
        Limit(quota.bytes_max),
        Limit(quota.inodes_max),
        quota.blocks.saturating_mul(block),
        quota.inodes,
        if quota.is_enforced() { "enforced" } else { "counting" },
    )
}

/// Meaning of a reserved attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Directory,
    User(u32),
    /// A part of the list of all quotas.
    All(usize),
    /// No quota.
    Nothing,
}

impl Named {
    /// Returns the meaning of an attribute; `None` if it is not reserved.
    pub(super) fn of(name: &[u8]) -> Option<Named> {
        let number = |digits: &[u8]| -> Option<u32> {
            let number: u32 = str::from_utf8(digits).ok()?.parse().ok()?;
            (number.to_string().as_bytes() == digits && number != u32::MAX).then_some(number)
        };
        name.strip_prefix(OWN)?;
        if name == OF_DIRECTORY {
            return Some(Named::Directory);
        }
        if name == ALL {
            return Some(Named::All(0));
        }
        let user = name.strip_prefix(OF_USER).and_then(number).map(Named::User);
        let part = name.strip_prefix(ALL).and_then(|rest| rest.strip_prefix(b"."));
        let part = part.and_then(number).map(|part| Named::All(part as usize));
        Some(user.or(part).unwrap_or(Named::Nothing))
    }
}

impl Planner<'_> {
    /// Returns the value of a quota's attribute, for root.
    pub(super) fn get_quota(&self, view: View, ino: u64, named: Named) -> Planned {
        if view != View::Present {
            return Err(Error::NoAttribute.into());
        }
        let write_set = self.write_set()?;
        let block = write_set.read_view.block;
        if let (Named::All(part), ROOT) = (named, ino) {
            let mut text = String::new();
            for (holder, quota) in write_set.known.iter().skip(part * PART).take(PART) {
                let value = value(quota, block);
                let written = match holder {
                    Holder::User(uid) => writeln!(text, "user={uid} {value}"),
                    Holder::Project(_) => writeln!(text, "inode={} {value}", quota.directory),
                };
                written.expect("text takes text");
            }
            return answer(Reply::Bytes(text.into_bytes()));
        }
        let quota = holder(&write_set, ino, named)?.and_then(|holder| write_set.quota(holder));
        let quota = quota.ok_or(Error::NoAttribute)?;
        answer(Reply::Bytes(value(&quota, block).into_bytes()))
    }

    /// Sets a quota or changes its limits; `create`: `Some(true)` for a new one only, `Some(false)`
    /// for an existing one only.
    pub(super) fn limit(
        &self,
        ino: u64,
        named: Named,
        value: &[u8],
        create: Option<bool>,
    ) -> Planned {
        let Limits { bytes: bytes_max, inodes: inodes_max } =
            Limits::parse(value).ok_or(Error::Invalid)?;
        let mut write_set = self.write_set()?;
        let known = holder(&write_set, ino, named)?;
        let before = known.and_then(|holder| write_set.quota(holder));
        match (before, create) {
            (Some(_), Some(true)) => return Err(Error::Exists.into()),
            (None, Some(false)) => return Err(Error::NoAttribute.into()),
            (None, _) if write_set.known.len() >= QUOTAS_MAX => return Err(Error::NoSpace.into()),
            (Some(_) | None, _) => {}
        }
        let (holder, quota) = match (known, before, named) {
            (Some(holder), Some(before), _) => (holder, before),
            (Some(holder), None, _) => (holder, Quota::default()),
            (None, _, Named::Directory) => write_set.new_project(ino)?,
            (None, _, Named::User(_) | Named::All(_) | Named::Nothing) => {
                return Err(Error::Invalid.into());
            }
        };
        write_set.set_quota(holder, Some(Quota { bytes_max, inodes_max, ..quota }));
        if !write_set.read_view.settings.quotas {
            let settings = Settings { quotas: true, ..write_set.read_view.settings };
            write_set.put(SETTINGS, SETTINGS_KEY.to_vec(), settings.encode());
        }
        let now = write_set.now();
        write_set.inode(ino)?.touch(now);
        // An existing one is being counted already.
        let uncounted = before.is_none().then_some((holder, quota.directory));
        self.commit(write_set, Reply::Done, Effects { uncounted, ..Effects::default() })
    }

    /// Removes a quota. Files keep the number of its project, which has no effect then; if a
    /// directory above has a quota, they are counted for that one.
    pub(super) fn remove_quota(&self, ino: u64, named: Named) -> Planned {
        let mut write_set = self.write_set()?;
        let holder =
            holder(&write_set, ino, named)?.filter(|holder| write_set.quota(*holder).is_some());
        let holder = holder.ok_or(Error::NoAttribute)?;
        let above = match holder {
            Holder::Project(_) => Holder::Project(write_set.project_around(ino)?),
            Holder::User(_) => Holder::Project(0),
        };
        write_set.set_quota(holder, None);
        let mut uncounted = None;
        if let (Holder::Project(project), Some(mut quota)) = (above, write_set.quota(above)) {
            quota.counted = if quota.is_enforced() { RECOUNT } else { quota.counted };
            quota.add(Usage { blocks: 0, inodes: 1 });
            write_set.set_quota(above, Some(quota));
            write_set.inode(ino)?.project = project;
            uncounted = Some((above, ino));
        }
        let now = write_set.now();
        write_set.inode(ino)?.touch(now);
        self.commit(write_set, Reply::Done, Effects { uncounted, ..Effects::default() })
    }
}

/// Returns the holder of the quota of an inode's attribute; `None` if there is no such quota.
fn holder(write_set: &WriteSet<'_>, ino: u64, named: Named) -> Result<Option<Holder>, Stop> {
    match named {
        Named::User(uid) => Ok((ino == ROOT).then_some(Holder::User(uid))),
        Named::All(_) | Named::Nothing => Ok(None),
        Named::Directory => {
            let holder = Holder::Project(write_set.look(ino)?.project);
            let own = write_set.quota(holder).is_some_and(|quota| quota.directory == ino);
            Ok(own.then_some(holder))
        }
    }
}
