//! Lookups in the host's user database, which may contact a server on the network (NSS), so never
//! cached.
#![allow(unsafe_code)]

use super::Outcome;
use base::op::Who;
use base::{Error, User};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// Maximum size of an entry of the user database, bytes.
const ENTRY_MAX: usize = 1 << 20;

/// Maximum number of groups of a user (Linux `NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Returns a user with the groups of the host's user database.
///
/// A number unknown to the host is still a valid user: with a group of the same number and no
/// others.
///
/// # Errors
/// `NotFound` for an unknown name; `Invalid` for the number 2³² - 1 as user or group, which stands
/// for none (`setresuid(2)`).
pub(crate) fn identify(who: &Who) -> Outcome<User> {
    let found = match who {
        Who::Uid(uid) => lookup(|entry, bytes, found| {
            // SAFETY: all pointers are to memory that lives across the call, with its length.
            unsafe { libc::getpwuid_r(*uid, entry, bytes.as_mut_ptr().cast(), bytes.len(), found) }
        })?,
        Who::Name(name) => {
            let name = CString::new(name.as_slice()).map_err(|_| Error::NotFound)?;
            lookup(|entry, bytes, found| {
                let (memory, size) = (bytes.as_mut_ptr().cast(), bytes.len());
                // SAFETY: as above; the name is a C string that lives across the call.
                unsafe { libc::getpwnam_r(name.as_ptr(), entry, memory, size, found) }
            })?
        }
    };
    let user = match (found, who) {
        (Some(user), _) => user,
        (None, Who::Uid(uid)) => User { uid: *uid, gid: *uid, groups: Vec::new(), commands: false },
        (None, Who::Name(_)) => return Err(Error::NotFound.into()),
    };
    // To the kernel this number means "leave unchanged": the process would stay root.
    match user.uid == u32::MAX || user.gid == u32::MAX {
        true => Err(Error::Invalid.into()),
        false => Ok(user),
    }
}

/// Calls one of the `getpw…_r` functions with as much memory as it needs.
fn lookup(
    call: impl Fn(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> libc::c_int,
) -> Outcome<Option<User>> {
    let mut bytes = vec![0u8; 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        let code = call(entry.as_mut_ptr(), &mut bytes, &raw mut found);
        match code {
            libc::ERANGE if bytes.len() < ENTRY_MAX => bytes.resize(bytes.len() * 4, 0),
            libc::EINTR => {}
            // The results by which various databases report that there is no such user.
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if found.is_null() => {
                return Ok(None);
            }
            0 => {
                // SAFETY: on success `found` points to `entry`, which is filled in, and its name
                // to a C string in `bytes`; both live until the end of this block.
                let (name, uid, gid) =
                    unsafe { ((*found).pw_name, (*found).pw_uid, (*found).pw_gid) };
                // SAFETY: see above.
                let name = unsafe { CStr::from_ptr(name) };
                return Ok(Some(User { uid, gid, groups: groups(name, gid), commands: false }));
            }
            code => return Err(Errno::from_raw_os_error(code).into()),
        }
    }
}

/// Returns the supplementary groups, without the primary one.
fn groups(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).expect("at most GROUPS_MAX");
        // SAFETY: the name is a C string, and there is room for `count` groups.
        let code =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if code >= 0 || groups.len() >= GROUPS_MAX {
            groups.truncate(count);
            groups.retain(|group| *group != gid);
            return groups;
        }
        groups.resize((groups.len() * 4).clamp(count.min(GROUPS_MAX), GROUPS_MAX), 0);
    }
}
