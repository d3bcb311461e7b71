//! Quotas: limits on the bytes and files of a user, or of a directory with all beneath it.
//!
//! What a directory's quota counts is a *project*, as in XFS: each inode has the number of its
//! project, new ones that of their directory. A file or an empty directory that is renamed into
//! another project counts for that from then on; directories with entries and files with several
//! names do not cross (`EXDEV`, as in Linux; programs copy instead), so that the number stays true.
//! A directory that has a quota counts for that one alone, not for one of a directory above. Quotas
//! hold for everybody, root as well.
//!
//! Quotas are set by extended attributes, which only root may do:
//!
//! | attribute | of | value |
//! |---|---|---|
//! | `trusted.upcall.quota` | a directory | its quota |
//! | `trusted.upcall.quota.user.UID` | the root | that of a user |
//! | `trusted.upcall.quotas` | the root | all of them, a line each; only to be read |
//!
//! A value is words like `max_bytes=1000000 max_inodes=none`; what is left out has no limit. One
//! that is read tells as well what is used. Lists of attributes do not name them, so that copying
//! a directory with its attributes does not copy a quota.
//!
//! A quota that is set for files that are there is not a limit before they are counted, which the
//! [`counting`](super::counting) machine does.

use super::draft::Draft;
use super::plan::{Effects, Planned, Scene, answer};
use super::record::{Holder, Inode, QUOTAS, Quota, ROOT, SETTINGS, SETTINGS_KEY, Settings};
use super::sight::{Sight, Stop};
use crate::request::Reply;
use base::Error;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::ControlFlow;
use store::{Change, View};

/// Attribute of a directory's quota.
const OF_DIRECTORY: &[u8] = b"trusted.upcall.quota";
/// Attributes of users' quotas begin so, and end with the uid.
const OF_USER: &[u8] = b"trusted.upcall.quota.user.";
/// Attribute of the root with all quotas.
const ALL: &[u8] = b"trusted.upcall.quotas";

/// Maximum number of quotas of a volume: all are in memory, and read before the first change.
const QUOTAS_MAX: usize = 4096;

/// All quotas of a volume.
pub(super) type Quotas = BTreeMap<Holder, Quota>;

/// Reads all quotas.
pub(super) fn load(sight: &Sight<'_>) -> Result<Quotas, Stop> {
    let mut quotas = Quotas::new();
    if !sight.settings.quotas {
        return Ok(quotas);
    }
    let mut damaged = false;
    sight.reader.scan(QUOTAS, &[], &mut |key, value| {
        match (Holder::of_key(key), Quota::decode(&value.bytes())) {
            (Some(holder), Some(quota)) => _ = quotas.insert(holder, quota),
            _ => damaged = true,
        }
        ControlFlow::Continue(())
    })?;
    if damaged { Err(Error::Io.into()) } else { Ok(quotas) }
}

/// Applies what a transaction does to quotas.
pub(super) fn note(quotas: &mut Quotas, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put { table: QUOTAS, key, value } => {
                let holder = Holder::of_key(key).expect("keys of quotas are made here");
                let quota = Quota::decode(value).expect("quotas are made here");
                quotas.insert(holder, quota);
            }
            Change::Delete { table: QUOTAS, key } => {
                let holder = Holder::of_key(key).expect("keys of quotas are made here");
                quotas.remove(&holder);
            }
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Write { .. }
            | Change::Attach { .. }
            | Change::Cut { .. }
            | Change::Free { .. } => {}
        }
    }
}

/// Blocks and files that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) blocks: u64,
    pub(super) inodes: u64,
}

impl Quota {
    /// Whether the limits hold.
    pub(super) fn is_counted(&self) -> bool {
        self.counted == u64::MAX
    }

    pub(super) fn add(&mut self, usage: Usage) {
        self.blocks = self.blocks.saturating_add(usage.blocks);
        self.inodes = self.inodes.saturating_add(usage.inodes);
    }

    fn subtract(&mut self, usage: Usage) {
        self.blocks = self.blocks.saturating_sub(usage.blocks);
        self.inodes = self.inodes.saturating_sub(usage.inodes);
    }

    /// Whether more of what is taken would be beyond a limit.
    fn is_exceeded_by(&self, usage: Usage, block: u64) -> bool {
        let mut after = *self;
        after.add(usage);
        let bytes = after.blocks.saturating_mul(block);
        let blocks = usage.blocks > 0 && bytes > self.bytes_max;
        self.is_counted() && (blocks || usage.inodes > 0 && after.inodes > self.inodes_max)
    }

    /// Blocks and files that there may be, of so many.
    pub(super) fn limits(&self, block: u64, blocks: u64, inodes: u64) -> Usage {
        Usage { blocks: blocks.min(self.bytes_max / block), inodes: inodes.min(self.inodes_max) }
    }
}

impl Draft<'_> {
    pub(super) fn quota(&self, holder: Holder) -> Option<Quota> {
        match self.quotas.get(&holder) {
            Some(changed) => *changed,
            None => self.known.get(&holder).copied(),
        }
    }

    pub(super) fn set_quota(&mut self, holder: Holder, quota: Option<Quota>) {
        self.quotas.insert(holder, quota);
    }

    fn has_quotas(&self) -> bool {
        !self.known.is_empty() || !self.quotas.is_empty()
    }

    /// Counts what an inode takes more, for its owner and its project.
    ///
    /// # Errors
    /// `QuotaExceeded` past a limit of one of them.
    pub(super) fn take_quota(
        &mut self,
        ino: u64,
        inode: &Inode,
        usage: Usage,
    ) -> Result<(), Error> {
        if self.has_quotas() {
            self.take_of(Holder::User(inode.uid), ino, usage)?;
            self.take_of(Holder::Project(inode.project), ino, usage)?;
        }
        Ok(())
    }

    /// Counts what an inode takes no more.
    pub(super) fn give_quota(&mut self, ino: u64, inode: &Inode, usage: Usage) {
        if self.has_quotas() {
            self.give_of(Holder::User(inode.uid), ino, usage);
            self.give_of(Holder::Project(inode.project), ino, usage);
        }
    }

    fn take_of(&mut self, holder: Holder, ino: u64, usage: Usage) -> Result<(), Error> {
        let Some(mut quota) = self.counted(holder, ino) else { return Ok(()) };
        if quota.is_exceeded_by(usage, self.sight.block) {
            return Err(Error::QuotaExceeded);
        }
        quota.add(usage);
        self.set_quota(holder, Some(quota));
        Ok(())
    }

    fn give_of(&mut self, holder: Holder, ino: u64, usage: Usage) {
        if let Some(mut quota) = self.counted(holder, ino) {
            quota.subtract(usage);
            self.set_quota(holder, Some(quota));
        }
    }

    /// The quota that an inode has been counted for.
    fn counted(&self, holder: Holder, ino: u64) -> Option<Quota> {
        self.quota(holder).filter(|quota| match holder {
            Holder::User(_) => ino < quota.counted,
            Holder::Project(_) => true,
        })
    }

    /// Counts a file for its new owner.
    ///
    /// # Errors
    /// `QuotaExceeded` past a limit of that one.
    pub(super) fn give_away(&mut self, ino: u64, uid: u32) -> Result<(), Stop> {
        let inode = self.look(ino)?;
        if self.has_quotas() && inode.uid != uid {
            let usage = Usage { blocks: inode.blocks, inodes: 1 };
            self.give_of(Holder::User(inode.uid), ino, usage);
            self.take_of(Holder::User(uid), ino, usage)?;
        }
        self.inode(ino)?.uid = uid;
        Ok(())
    }

    /// The project that an inode counts for; zero if it has none, or none any more.
    pub(super) fn project(&self, inode: &Inode) -> u64 {
        match self.quota(Holder::Project(inode.project)) {
            Some(_) => inode.project,
            None => 0,
        }
    }

    /// The project of the place where an inode has its names.
    fn project_around(&self, ino: u64) -> Result<u64, Stop> {
        let inode = self.look(ino)?;
        match self.quota(Holder::Project(inode.project)) {
            Some(quota) if quota.directory == ino => Ok(self.project(&self.look(inode.parent)?)),
            Some(_) => Ok(inode.project),
            None => Ok(0),
        }
    }

    /// Counts an inode that gets a name in the directory `to`, and loses its name in `from`, or had
    /// none, for the project of `to`. Returns the quota for which files beneath it have to be
    /// counted, if any.
    ///
    /// # Errors
    /// `CrossDevice` if more than this inode would have to be counted, or it has other names;
    /// `QuotaExceeded` past a limit of the project.
    pub(super) fn adopt(
        &mut self,
        ino: u64,
        from: Option<u64>,
        to: u64,
    ) -> Result<Option<Holder>, Stop> {
        if !self.has_quotas() {
            return Ok(None);
        }
        let (old, new) = (self.project_around(ino)?, self.project(&self.look(to)?));
        if old == new {
            return Ok(None);
        }
        let inode = self.look(ino)?;
        let is_alone = if inode.is_directory() { inode.entries == 0 } else { inode.links <= 1 };
        let has_own = inode.project != old && self.project(&inode) != 0;
        let moves = !has_own && is_alone;
        if !moves && !self.are_being_counted(old, new, from, to)? {
            return Err(Error::CrossDevice.into());
        }
        // What is counted already may go where the rest has not been counted yet.
        if has_own || !moves && new == 0 {
            return Ok(None);
        }
        let usage = Usage { blocks: inode.blocks, inodes: 1 };
        self.give_of(Holder::Project(old), ino, usage);
        self.take_of(Holder::Project(new), ino, usage)?;
        self.inode(ino)?.project = new;
        Ok((!moves).then_some(Holder::Project(new)))
    }

    /// Whether two places differ in their projects only because the files of the directory in which
    /// both are have not all been counted yet.
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
            && self.sight.is_beneath(from, quota.directory)?
            && self.sight.is_beneath(to, quota.directory)?)
    }

    /// # Errors
    /// `CrossDevice` if one more name in this directory would be in another project.
    pub(super) fn expect_same_project(&self, ino: u64, dir: u64) -> Result<(), Stop> {
        if !self.has_quotas() || self.project_around(ino)? == self.project(&self.look(dir)?) {
            return Ok(());
        }
        Err(Error::CrossDevice.into())
    }

    /// Removes the quota of a directory that has no name any more.
    pub(super) fn drop_quota_of(&mut self, ino: u64, inode: &Inode) {
        let holder = Holder::Project(inode.project);
        if self.quota(holder).is_some_and(|quota| quota.directory == ino) {
            self.set_quota(holder, None);
        }
    }
}

/// What one quota limits, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Owner of the files, by uid; `None`: the quota is that of a directory.
    pub uid: Option<u32>,
    /// Inode of the directory; zero for a user.
    pub directory: u64,
    /// Bytes and files in use.
    pub used: Limits,
    /// Maximum numbers of both.
    pub most: Limits,
}

impl Limited {
    pub(super) fn new(holder: Holder, quota: &Quota, block: u64) -> Limited {
        let uid = match holder {
            Holder::User(uid) => Some(uid),
            Holder::Project(_) => None,
        };
        let bytes = quota.blocks.saturating_mul(block);
        let most = Limits { bytes: quota.bytes_max, inodes: quota.inodes_max };
        Limited {
            uid,
            directory: quota.directory,
            used: Limits { bytes, inodes: quota.inodes },
            most,
        }
    }
}

/// Bytes of contents and files of every kind; `u64::MAX` as a limit: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of contents, in whole blocks.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
}

impl Limits {
    /// What is told besides the limits is passed over, so that a value that was read can be set.
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
    if text == "none" { Some(u64::MAX) } else { text.parse().ok() }
}

/// A limit as it is told.
struct Told(u64);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("none"),
            most => most.fmt(f),
        }
    }
}

/// Value of an attribute.
fn tell(quota: &Quota, block: u64) -> String {
    format!(
        "max_bytes={} max_inodes={} used_bytes={} used_inodes={} state={}",
        Told(quota.bytes_max),
        Told(quota.inodes_max),
        quota.blocks.saturating_mul(block),
        quota.inodes,
        if quota.is_counted() { "enforced" } else { "counting" },
    )
}

/// Quota that an attribute stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Directory,
    User(u32),
    All,
}

impl Asked {
    pub(super) fn of(name: &[u8]) -> Option<Asked> {
        match name {
            OF_DIRECTORY => Some(Asked::Directory),
            ALL => Some(Asked::All),
            _other => {
                let uid = str::from_utf8(name.strip_prefix(OF_USER)?).ok()?;
                uid.parse().ok().filter(|uid| *uid != u32::MAX).map(Asked::User)
            }
        }
    }
}

impl Scene<'_> {
    /// Value of a quota's attribute, for root.
    pub(super) fn get_quota(&self, view: View, ino: u64, asked: Asked) -> Planned {
        if view != View::Present {
            return Err(Error::NoAttribute.into());
        }
        let draft = self.draft()?;
        let block = draft.sight.block;
        if asked == Asked::All && ino == ROOT {
            let mut text = String::new();
            for (holder, quota) in draft.known {
                let value = tell(quota, block);
                let written = match holder {
                    Holder::User(uid) => writeln!(text, "user={uid} {value}"),
                    Holder::Project(_) => writeln!(text, "inode={} {value}", quota.directory),
                };
                written.expect("text takes text");
            }
            return answer(Reply::Bytes(text.into_bytes()));
        }
        let quota = holder(&draft, ino, asked)?.and_then(|holder| draft.quota(holder));
        let quota = quota.ok_or(Error::NoAttribute)?;
        answer(Reply::Bytes(tell(&quota, block).into_bytes()))
    }

    /// Sets a quota, or changes its limits.
    pub(super) fn limit(&self, ino: u64, asked: Asked, value: &[u8]) -> Planned {
        let limits = Limits::parse(value).ok_or(Error::Invalid)?;
        let mut draft = self.draft()?;
        let (holder, new) = match (holder(&draft, ino, asked)?, asked) {
            (_, Asked::All) => return Err(Error::Invalid.into()),
            // Root is not limited: the server works as root for itself.
            (_, Asked::User(0)) => return Err(Error::Invalid.into()),
            (Some(holder), _) => (holder, None),
            (None, Asked::User(_)) => return Err(Error::Invalid.into()),
            (None, Asked::Directory) => {
                let inode = draft.look(ino)?;
                if !inode.is_directory() {
                    return Err(Error::NotDirectory.into());
                }
                if inode.links == 0 {
                    return Err(Error::NotFound.into());
                }
                // One beneath a directory that has a quota would take files from that.
                if draft.project(&inode) != 0 {
                    return Err(Error::Invalid.into());
                }
                let project = draft.number()?;
                draft.inode(ino)?.project = project;
                let (blocks, inodes) = (inode.blocks, 1);
                (Holder::Project(project), Some(Usage { blocks, inodes }))
            }
        };
        let Limits { bytes: bytes_max, inodes: inodes_max } = limits;
        let quota = match draft.quota(holder) {
            Some(quota) => Quota { bytes_max, inodes_max, ..quota },
            None if draft.known.len() >= QUOTAS_MAX => return Err(Error::NoSpace.into()),
            None => {
                let Usage { blocks, inodes } = new.unwrap_or_default();
                let directory = if new.is_some() { ino } else { 0 };
                Quota { bytes_max, inodes_max, blocks, inodes, counted: 0, directory }
            }
        };
        draft.set_quota(holder, Some(quota));
        if !draft.sight.settings.quotas {
            let settings = Settings { quotas: true, ..draft.sight.settings };
            draft.put(SETTINGS, SETTINGS_KEY.to_vec(), settings.encode());
        }
        let now = draft.now();
        draft.inode(ino)?.touch(now);
        self.commit(draft, Reply::Done, Effects { quota: Some(holder), ..Effects::default() })
    }

    /// Removes a quota. Files keep the number of its project, which counts for nothing then; if a
    /// directory above has a quota, they are counted for that one.
    pub(super) fn remove_quota(&self, ino: u64, asked: Asked) -> Planned {
        let mut draft = self.draft()?;
        let holder = holder(&draft, ino, asked)?.filter(|holder| draft.quota(*holder).is_some());
        let holder = holder.ok_or(Error::NoAttribute)?;
        let above = match holder {
            Holder::Project(_) => Some(Holder::Project(draft.project_around(ino)?)),
            Holder::User(_) => None,
        };
        draft.set_quota(holder, None);
        let again = above.and_then(|above| Some((above, draft.quota(above)?)));
        if let Some((above, quota)) = again {
            draft.set_quota(above, Some(Quota { counted: 0, ..quota }));
        }
        let now = draft.now();
        draft.inode(ino)?.touch(now);
        let quota = again.map(|(above, _)| above);
        self.commit(draft, Reply::Done, Effects { quota, ..Effects::default() })
    }
}

/// Holder of the quota that an attribute of an inode stands for; `None`: it has no such quota.
fn holder(draft: &Draft<'_>, ino: u64, asked: Asked) -> Result<Option<Holder>, Stop> {
    match asked {
        Asked::User(uid) => Ok((ino == ROOT).then_some(Holder::User(uid))),
        Asked::All => Ok(None),
        Asked::Directory => {
            let holder = Holder::Project(draft.look(ino)?.project);
            let own = draft.quota(holder).is_some_and(|quota| quota.directory == ino);
            Ok(own.then_some(holder))
        }
    }
}
