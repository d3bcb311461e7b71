//! Privileges of the process, and how it drops them.

use crate::errno;
use crate::identity::{self, IdentityPart, ProcessCredentials};
use crate::path::users;
use base::op::Who;
use base::{Caller, Error, User};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::path::Path;

/// Returns whether the process can act as any user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the user that the process acts as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Clears the umask, so that clients get exactly the modes they request.
pub fn clear_umask() {
    rustix::process::umask(rustix::fs::Mode::empty());
}

/// Looks up a user in the host's user database, by number or name.
///
/// # Errors
/// `NotFound` for an unknown name, or if the database is unavailable; `Invalid` for the number
/// 2³² - 1, which is no user's.
pub fn find_user(text: &str) -> Result<User, Error> {
    let who = match text.parse() {
        Ok(uid) => Who::Uid(uid),
        Err(_) => Who::Name(text.as_bytes().to_vec()),
    };
    users::identify(&who).map_err(|failure| {
        let error = Error::from(failure);
        if error == Error::Invalid { error } else { Error::NotFound }
    })
}

/// Turns the process into `user`, irrevocably: programs that it starts have no more privileges
/// either, with or without set-id bits. To be called before any other thread exists.
///
/// # Errors
/// If the process is not root, or if the kernel did not perform all of it.
pub fn become_user(user: &User) -> io::Result<()> {
    if user.uid == u32::MAX || user.gid == u32::MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let gid = Gid::from_raw(user.gid);
    let uid = Uid::from_raw(user.uid);
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    match identity::is_exactly(user)? {
        true => Ok(rustix::thread::set_no_new_privs(true)?),
        false => Err(io::Error::other("the kernel kept another user or group")),
    }
}

/// Turns a process of root into one of `root` without the privileges of root, irrevocably: its
/// access to files depends on their owner and mode, as for any user. It may still listen at ports
/// below 1024. To be called before any other thread exists.
///
/// # Errors
/// If the kernel did not perform all of it.
pub fn renounce_privileges(root: &User) -> io::Result<()> {
    become_user(root)?;
    let all = rustix::thread::capabilities(None)?;
    let left = all.permitted & CapabilitySet::NET_BIND_SERVICE;
    let (effective, permitted, inheritable) = (left, left, CapabilitySet::empty());
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    match rustix::thread::capabilities(None)?.permitted == left {
        true => Ok(()),
        false => Err(io::Error::other("the kernel kept other privileges")),
    }
}

/// Checks that `caller` may list the directory and access its entries.
///
/// # Errors
/// The kernel's error if not; `Io` if the process cannot determine its own identity.
pub fn check_list(path: &Path, caller: &Caller) -> Result<(), Error> {
    let own = ProcessCredentials::get().map_err(errno::translate)?;
    own.assume(caller, None, IdentityPart::Changing)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
        .and_then(|dir| rustix::fs::openat(dir, c".", OFlags::PATH | flags, Mode::empty()));
    own.be_server()?;
    listed.map(drop).map_err(errno::translate)
}

/// Fills memory with cryptographically secure random bytes.
///
/// # Errors
/// If the kernel has no random numbers.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_means_unchanged_is_no_user() {
        assert_eq!(find_user("4294967295"), Err(Error::Invalid));
        assert!(find_user("4294967294").is_ok());
    }

    #[test]
    fn becoming_nobody_fails_and_leaves_the_process_as_it_is() {
        let own = rustix::process::getgroups().expect("groups");
        let (gid, groups) = (rustix::process::getegid().as_raw(), own.into_iter().map(Gid::as_raw));
        let user = User { uid: u32::MAX, gid, groups: groups.collect(), commands: false };
        assert!(become_user(&user).is_err());
        let own = User { uid: own_user(), ..user };
        assert!(identity::is_exactly(&own).expect("its own identity"));
        assert!(!identity::is_exactly(&User { uid: 12_345, ..own }).expect("another identity"));
    }
}
