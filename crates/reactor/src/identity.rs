//! File-system identity of the current thread.
//!
//! The kernel checks permissions against per-thread credentials: file-system user and group,
//! supplementary groups and effective capabilities. A thread that acts for a user assumes all four,
//! and restores all four before it acts for the server again. The capabilities matter as much as
//! the user id: without dropping them a user could set security attributes, write trusted ones, and
//! use the blocks and quota reserved for root.
//!
//! Each change costs about 1.6 us, and there are four of them, so the thread keeps an identity
//! until it needs another one: consecutive work for one user costs nothing. And where names are
//! only looked up and files opened with the access that their modes allow, unrelated capabilities
//! are kept ([`IdentityPart::Looking`]).
#![allow(unsafe_code)]

use base::{Caller, Error, Kind, User};
use rustix::process::Gid;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

/// Capabilities for acting as any user.
const ACT_AS_OTHERS: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Credentials of the process itself.
#[derive(Debug)]
pub(crate) struct ProcessCredentials {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
    /// Whether it can act as any user.
    is_powerful: bool,
}

/// Part of a user's identity that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityPart {
    /// Path resolution, reading of attributes, and opening of existing files.
    Looking,
    /// Any operation.
    Changing,
}

/// A user whose identity the thread has assumed.
struct AssumedIdentity {
    user: Arc<User>,
    /// Group for new files.
    gid: u32,
    /// Whether all capabilities are dropped, and not only those over files.
    bare: bool,
}

static OWN: OnceLock<ProcessCredentials> = OnceLock::new();

thread_local! {
    /// `None` for the process's own identity.
    static PRESENT: RefCell<Option<AssumedIdentity>> = const { RefCell::new(None) };
}

impl ProcessCredentials {
    /// Returns the identity of the process at the first call: before any thread has another one,
    /// because they are only assumed through this.
    pub(crate) fn get() -> rustix::io::Result<&'static ProcessCredentials> {
        match OWN.get() {
            Some(own) => Ok(own),
            None => ProcessCredentials::read().map(|own| OWN.get_or_init(|| own)),
        }
    }

    fn read() -> rustix::io::Result<ProcessCredentials> {
        let (uid, capabilities) =
            (rustix::process::geteuid().as_raw(), rustix::thread::capabilities(None)?);
        Ok(ProcessCredentials {
            uid,
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()?,
            capabilities,
            is_powerful: uid == 0 && capabilities.effective.contains(ACT_AS_OTHERS),
        })
    }

    /// Returns whether the kernel checks `caller` like the process itself.
    pub(crate) fn acts_as_server(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Server => true,
            Caller::User(user) if self.is_powerful => user.uid == 0 && user.gid == self.gid,
            Caller::User(user) => user.uid == self.uid,
        }
    }

    /// Checks that a file of this kind may get this mode. If clients act as root without its
    /// privileges, no file may get a mode that returns these: one that runs as root, whoever starts
    /// it. Set-id bits of directories determine the owner of new entries, and are allowed.
    ///
    /// # Errors
    /// `EPERM` for a set-id bit.
    pub(crate) fn admit_mode(&self, kind: Kind, mode: u32) -> rustix::io::Result<()> {
        const SET_ID: u32 = 0o6000;
        let is_limited = self.uid == 0 && !self.is_powerful;
        let refused = is_limited && kind != Kind::Directory && mode & SET_ID != 0;
        if refused { Err(rustix::io::Errno::PERM) } else { Ok(()) }
    }

    /// Restores the process's own identity of the current thread.
    pub(crate) fn be_server(&self) -> Result<(), Error> {
        PRESENT.with_borrow_mut(|present| self.leave(present))
    }

    /// Assumes the identity of `caller` in the current thread; new files get group `gid` if the
    /// user is a member of it (other groups are ignored, and any for [`Caller::Server`]).
    ///
    /// # Errors
    /// `NotPermitted` if the process is not root and `caller` is another user.
    pub(crate) fn assume(
        &self,
        caller: &Caller,
        gid: Option<u32>,
        depth: IdentityPart,
    ) -> Result<(), Error> {
        let user = match caller {
            Caller::Server => return self.be_server(),
            Caller::User(user) if !self.is_powerful => {
                return if user.uid == self.uid { Ok(()) } else { Err(Error::NotPermitted) };
            }
            Caller::User(user) => user,
        };
        let member = |g: &u32| *g == user.gid || user.uid == 0 || user.groups.contains(g);
        let gid = gid.filter(member).unwrap_or(user.gid);
        if user.uid == 0 && gid == self.gid {
            return self.be_server();
        }
        PRESENT.with_borrow_mut(|present| {
            let result = self.become_user(present, user, gid, depth);
            if result.is_err() {
                self.leave(present)?;
            }
            result
        })
    }

    /// Restores the process's own identity.
    fn leave(&self, present: &mut Option<AssumedIdentity>) -> Result<(), Error> {
        let Some(AssumedIdentity { bare, .. }) = present else { return Ok(()) };
        // First, because the change of groups needs one of the capabilities.
        if *bare {
            set_capabilities(self.capabilities)?;
        }
        set_fs_user(self.uid)?;
        set_fs_group(self.gid)?;
        set_groups(&self.groups)?;
        // With the user id the kernel has restored all permitted capabilities, perhaps too many.
        if self.capabilities.effective != self.capabilities.permitted {
            set_capabilities(self.capabilities)?;
        }
        *present = None;
        Ok(())
    }

    fn become_user(
        &self,
        present: &mut Option<AssumedIdentity>,
        user: &Arc<User>,
        gid: u32,
        depth: IdentityPart,
    ) -> Result<(), Error> {
        let same = present.as_ref().is_some_and(|p| is_same(&p.user, user) && p.gid == gid);
        if !same {
            // Capabilities return only together with the server's user id: the kernel drops those
            // over files when it changes from zero to another.
            if present.as_ref().is_some_and(|p| p.bare) {
                self.leave(present)?;
            }
            // Recorded in advance, so that `leave` undoes a partial failure.
            *present = Some(AssumedIdentity { user: Arc::clone(user), gid, bare: false });
            take_on(user, gid)?;
        }
        if let Some(present) = present
            && depth == IdentityPart::Changing
            && !present.bare
            && user.uid != 0
        {
            let effective = CapabilitySet::empty();
            set_capabilities(CapabilitySets { effective, ..self.capabilities })?;
            present.bare = true;
        }
        Ok(())
    }
}

fn take_on(user: &User, gid: u32) -> Result<(), Error> {
    let all = std::iter::once(&user.gid).chain(&user.groups);
    let groups: Vec<Gid> = all.filter(|g| **g != u32::MAX).map(|g| Gid::from_raw(*g)).collect();
    set_groups(&groups)?;
    set_fs_group(gid)?;
    set_fs_user(user.uid)
}

fn is_same(a: &Arc<User>, b: &Arc<User>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

fn set_capabilities(sets: CapabilitySets) -> Result<(), Error> {
    rustix::thread::set_capabilities(None, sets).map_err(|_| Error::NotPermitted)
}

fn set_groups(groups: &[Gid]) -> Result<(), Error> {
    rustix::thread::set_thread_groups(groups).map_err(|_| Error::NotPermitted)
}

fn set_fs_user(uid: u32) -> Result<(), Error> {
    // SAFETY: setfsuid takes a number and changes only this thread's credentials.
    let call = |uid: u32| unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    call(uid);
    verify(call(u32::MAX), uid)
}

fn set_fs_group(gid: u32) -> Result<(), Error> {
    // SAFETY: setfsgid takes a number and changes only this thread's credentials.
    let call = |gid: u32| unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    call(gid);
    verify(call(u32::MAX), gid)
}

/// Checks the result of a change: both calls return the previous value and never an error; an
/// invalid id changes nothing, so a second call reveals the result of the first.
fn verify(now: libc::c_long, wanted: u32) -> Result<(), Error> {
    let wanted_valid = wanted != u32::MAX;
    if wanted_valid && now == libc::c_long::from(wanted) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Returns whether this thread is `user` in every respect: real, effective and saved ids, and
/// groups.
pub(crate) fn is_exactly(user: &User) -> rustix::io::Result<bool> {
    let (mut uids, mut gids) = ([0; 3], [0; 3]);
    let [real, effective, saved] = &mut uids;
    // SAFETY: the pointers are to three numbers that live across the call.
    let status = unsafe { libc::getresuid(real, effective, saved) };
    let [real, effective, saved] = &mut gids;
    // SAFETY: as above.
    let status = status | unsafe { libc::getresgid(real, effective, saved) };
    let sorted = |mut groups: Vec<u32>| {
        groups.sort_unstable();
        groups.dedup();
        groups
    };
    let groups = rustix::process::getgroups()?.into_iter().map(Gid::as_raw).collect();
    Ok(status == 0
        && uids == [user.uid; 3]
        && gids == [user.gid; 3]
        && sorted(groups) == sorted(user.groups.clone()))
}
