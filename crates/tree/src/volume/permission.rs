//! Permission checks: the rules of POSIX, with Linux's choices where POSIX leaves them open.

use super::record::Inode;
use base::{Caller, Error, Kind};

/// Permission to read.
pub(super) const READ: u32 = 4;
/// Permission to write.
pub(super) const WRITE: u32 = 2;
/// Permission to execute a file, or to look up names in a directory.
pub(super) const SEARCH: u32 = 1;

const SET_UID: u32 = 0o4000;
/// Mode bit of a directory whose new files get its group.
pub(super) const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;

/// Identity of a caller. The server itself has the rights of root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials<'a>(pub(super) &'a Caller);

impl Credentials<'_> {
    pub(super) fn is_root(self) -> bool {
        match self.0 {
            Caller::Server => true,
            Caller::User(user) => user.uid == 0,
        }
    }

    fn uid(self) -> u32 {
        match self.0 {
            Caller::Server => 0,
            Caller::User(user) => user.uid,
        }
    }

    /// Returns whether the caller is in this group, or exempt from group checks.
    pub(super) fn is_member(self, gid: u32) -> bool {
        match self.0 {
            Caller::Server => true,
            Caller::User(user) => user.uid == 0 || user.gid == gid || user.groups.contains(&gid),
        }
    }

    /// Returns whether the caller owns a file, or has the rights of its owner.
    pub(super) fn owns(self, inode: &Inode) -> bool {
        self.is_root() || self.uid() == inode.uid
    }

    /// # Errors
    /// `Denied` unless the mode allows all of `want`. Root may do everything but execute files
    /// without any execute bit.
    pub(super) fn may(self, inode: &Inode, want: u32) -> Result<(), Error> {
        let granted = if self.is_root() {
            let executable = inode.is_directory() || inode.mode & 0o111 != 0;
            READ | WRITE | if executable { SEARCH } else { 0 }
        } else if self.uid() == inode.uid {
            inode.mode >> 6
        } else if self.is_member(inode.gid) {
            inode.mode >> 3
        } else {
            inode.mode
        };
        if want & !granted == 0 { Ok(()) } else { Err(Error::Denied) }
    }

    /// # Errors
    /// `Denied` or `NotPermitted` unless the caller may remove `victim`'s name from the directory
    /// `dir`.
    pub(super) fn may_unname(self, dir: &Inode, victim: &Inode) -> Result<(), Error> {
        self.may(dir, WRITE | SEARCH)?;
        let sticky = dir.mode & STICKY != 0;
        if sticky && !self.owns(dir) && !self.owns(victim) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// # Errors
    /// `NotPermitted` unless the caller may add a hard link to a file: their own, or a plain
    /// one that they may read and write (Linux's `protected_hardlinks`, docs/decisions/0013).
    pub(super) fn may_link(self, inode: &Inode) -> Result<(), Error> {
        let runs_as_group = inode.mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
        let plain = inode.kind == Kind::File && inode.mode & SET_UID == 0 && !runs_as_group;
        let theirs = self.owns(inode) || plain && self.may(inode, READ | WRITE).is_ok();
        if theirs { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// Returns owner and group of a new file in `dir`: the directory's group if it has the
    /// set-group-id bit, otherwise the chosen one if the caller is in it. Files created by the
    /// server itself belong to the owner of the directory, because the server's own uid is
    /// meaningless in a volume.
    pub(super) fn owner_in(self, dir: &Inode, chosen: Option<u32>) -> (u32, u32) {
        let (uid, gid) = match self.0 {
            Caller::Server => (dir.uid, dir.gid),
            Caller::User(user) => {
                let chosen = chosen.filter(|gid| self.is_member(*gid) && *gid != u32::MAX);
                (user.uid, chosen.unwrap_or(user.gid))
            }
        };
        (uid, if dir.mode & SET_GID != 0 { dir.gid } else { gid })
    }

    /// Returns the mode of a new file in `dir` with this group.
    pub(super) fn mode_in(self, dir: &Inode, kind: Kind, mode: u32, gid: u32) -> u32 {
        match kind {
            Kind::Directory => (mode & 0o1777) | (dir.mode & SET_GID),
            Kind::Symlink => 0o777,
            Kind::File | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                let strange = SET_GID | GROUP_EXECUTE;
                let taken = mode & strange == strange && !self.is_member(gid);
                mode & 0o7777 & !(if taken { SET_GID } else { 0 })
            }
        }
    }

    /// Returns the mode after `chmod(2)`: only members of a file's group set its set-group-id bit.
    pub(super) fn mode_after_chmod(self, mode: u32, gid: u32) -> u32 {
        if self.is_member(gid) { mode & 0o7777 } else { mode & 0o7777 & !SET_GID }
    }

    /// Returns the mode after a change of the contents.
    pub(super) fn mode_after_write(self, inode: &Inode) -> u32 {
        if self.is_root() { inode.mode } else { self.mode_after_chown(inode) }
    }

    /// Returns the mode after a change of owner or group, also one by root (Linux since 2.2.13).
    pub(super) fn mode_after_chown(self, inode: &Inode) -> u32 {
        if inode.is_directory() {
            return inode.mode;
        }
        let executable = inode.mode & GROUP_EXECUTE != 0;
        let group = if executable || !self.is_member(inode.gid) { SET_GID } else { 0 };
        inode.mode & !(SET_UID | group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::User;
    use std::sync::Arc;

    fn user(uid: u32, groups: &[u32]) -> Caller {
        Caller::User(Arc::new(User { uid, gid: uid, groups: groups.to_vec(), commands: false }))
    }

    fn file(mode: u32) -> Inode {
        Inode { mode, uid: 10, gid: 20, ..Inode::default() }
    }

    fn dir(mode: u32) -> Inode {
        Inode { kind: Kind::Directory, ..file(mode) }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let (owner, member, other) = (user(10, &[20]), user(11, &[20]), user(12, &[]));
        let may = |caller: &Caller, mode| Credentials(caller).may(&file(mode), READ).is_ok();
        assert!(!may(&owner, 0o077) && may(&member, 0o070) && may(&other, 0o007));
        assert!(!may(&member, 0o704) && !may(&other, 0o770) && may(&owner, 0o400));
    }

    #[test]
    fn root_may_do_all_but_execute_what_nobody_may() {
        for caller in [Caller::Server, user(0, &[])] {
            let person = Credentials(&caller);
            assert!(person.may(&file(0), READ | WRITE).is_ok());
            assert!(person.may(&file(0), SEARCH).is_err() && person.may(&dir(0), SEARCH).is_ok());
        }
    }

    #[test]
    fn in_a_sticky_directory_only_owners_take_names_away() {
        let (anybody, owner) = (user(11, &[]), user(10, &[]));
        let theirs = Inode { uid: 11, ..file(0) };
        let (sticky, open) = (dir(0o1777), dir(0o777));
        let unname =
            |caller: &Caller, dir: &Inode, file: &Inode| Credentials(caller).may_unname(dir, file);
        assert_eq!(unname(&anybody, &sticky, &file(0)), Err(Error::NotPermitted));
        assert_eq!(unname(&anybody, &sticky, &theirs), Ok(()));
        assert_eq!(unname(&owner, &sticky, &theirs), Ok(()));
        assert_eq!(unname(&anybody, &open, &file(0)), Ok(()));
        assert_eq!(unname(&anybody, &dir(0o1755), &theirs), Err(Error::Denied));
    }

    #[test]
    fn only_owners_keep_what_others_could_not_have_written() {
        let (owner, member, other) = (user(10, &[]), user(11, &[20]), user(12, &[]));
        let may = |caller: &Caller, inode: &Inode| Credentials(caller).may_link(inode).is_ok();
        assert!(may(&owner, &file(0)) && may(&user(0, &[]), &file(0)));
        assert!(may(&Caller::Server, &file(0o4755)) && may(&owner, &file(0o6777)));
        assert!(may(&member, &file(0o660)) && may(&other, &file(0o606)));
        assert!(!may(&member, &file(0o640)) && !may(&other, &file(0o662)));
        assert!(!may(&other, &file(0o4777)) && !may(&other, &file(0o2777)));
        assert!(may(&other, &file(0o2767)));
        let pipe = Inode { kind: Kind::Fifo, ..file(0o666) };
        assert!(!may(&other, &pipe) && may(&owner, &pipe));
    }

    #[test]
    fn set_id_bits_go_when_others_could_use_them() {
        let (member, stranger) = (user(11, &[20]), user(12, &[]));
        assert_eq!(Credentials(&member).mode_after_write(&file(0o6755)), 0o755);
        assert_eq!(Credentials(&member).mode_after_write(&file(0o6745)), 0o2745);
        assert_eq!(Credentials(&stranger).mode_after_write(&file(0o6745)), 0o745);
        assert_eq!(Credentials(&Caller::Server).mode_after_write(&file(0o6755)), 0o6755);
        assert_eq!(Credentials(&Caller::Server).mode_after_chown(&file(0o6755)), 0o755);
        assert_eq!(Credentials(&Caller::Server).mode_after_chown(&dir(0o6755)), 0o6755);
        assert_eq!(Credentials(&stranger).mode_after_chmod(0o2755, 20), 0o755);
        assert_eq!(Credentials(&member).mode_after_chmod(0o2755, 20), 0o2755);
    }

    #[test]
    fn a_set_group_directory_hands_its_group_down() {
        let caller = user(11, &[30]);
        let person = Credentials(&caller);
        let (plain, handing) = (dir(0o777), dir(0o2777));
        assert_eq!(person.owner_in(&plain, None), (11, 11));
        assert_eq!(person.owner_in(&plain, Some(30)), (11, 30));
        assert_eq!(person.owner_in(&plain, Some(31)), (11, 11));
        assert_eq!(person.owner_in(&handing, Some(30)), (11, 20));
        assert_eq!(person.mode_in(&handing, Kind::Directory, 0o4755, 20), 0o2755);
        assert_eq!(person.mode_in(&handing, Kind::File, 0o2755, 20), 0o755);
        assert_eq!(person.mode_in(&plain, Kind::File, 0o2755, 30), 0o2755);
        assert_eq!(Credentials(&Caller::Server).owner_in(&plain, Some(5)), (10, 20));
    }
}
