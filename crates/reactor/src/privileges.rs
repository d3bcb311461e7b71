//! Who the process is, and how it becomes somebody less.

use crate::path::users;
use base::op::Who;
use base::{Error, User};
use rustix::process::{Gid, Uid};
use std::io;

/// Whether the process may act as any user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that the process acts as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Lets the modes that clients ask for stand as they are.
pub fn clear_umask() {
    rustix::process::umask(rustix::fs::Mode::empty());
}

/// What the host's user database says of a user, by number or name.
///
/// # Errors
/// `NotFound` for a name that it does not know, or if it cannot be asked.
pub fn find_user(text: &str) -> Result<User, Error> {
    let who = match text.parse() {
        Ok(uid) => Who::Uid(uid),
        Err(_) => Who::Name(text.as_bytes().to_vec()),
    };
    users::identify(&who).map_err(|_| Error::NotFound)
}

/// Turns the process into `user`, for good. To be called before any other thread exists.
///
/// # Errors
/// If the process is not root.
pub fn become_user(user: &User) -> io::Result<()> {
    let gid = Gid::from_raw(user.gid);
    let uid = Uid::from_raw(user.uid);
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Lets all other threads run before this one, as far as the kernel does that for niceness.
///
/// # Errors
/// If the kernel refuses, which it does not: everybody may be nicer.
pub fn stand_back() -> io::Result<()> {
    const NICEST: i32 = 19;
    // Of no process means: of this thread.
    Ok(rustix::process::setpriority_process(None, NICEST)?)
}

/// Fills memory with what nobody can guess.
///
/// # Errors
/// If the kernel has none.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}
