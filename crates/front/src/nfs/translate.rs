//! Translation between NFS and file requests.

use base::{Caller, Error, Kind, SetStat, SetTime, Stat, Time};
use wire::nfs::{Attributes, FileKind, SetAttributes, Special, Status, Timestamp, mount};
use wire::nfs::{MakeNode, SetTime as WireTime};

/// Returns the status of an error.
pub(super) fn status(error: Error) -> Status {
    match error {
        Error::NotFound => Status::NoEnt,
        Error::Denied | Error::Busy | Error::TextBusy => Status::Access,
        Error::NotPermitted => Status::Perm,
        Error::Exists => Status::Exist,
        Error::NotDirectory => Status::NotDir,
        Error::IsDirectory => Status::IsDir,
        Error::NotEmpty => Status::NotEmpty,
        Error::NameTooLong => Status::NameTooLong,
        Error::CrossDevice => Status::XDev,
        Error::NoSpace => Status::NoSpc,
        Error::QuotaExceeded => Status::DQuot,
        Error::FileTooLarge => Status::FBig,
        Error::ReadOnly => Status::RoFs,
        Error::TooManyLinks => Status::MLink,
        Error::Invalid | Error::Loop | Error::NoAttribute | Error::AttributeTooLarge => {
            Status::Inval
        }
        Error::Unsupported => Status::NotSupp,
        Error::Stale => Status::Stale,
        Error::NoDevice => Status::NxIo,
        // The client tries again.
        Error::TooManyOpen
        | Error::Cancelled
        | Error::WouldDeadlock
        | Error::WouldBlock
        | Error::TimedOut
        | Error::NoMemory => Status::Jukebox,
        Error::Disconnected | Error::Io => Status::Io,
    }
}

/// Returns the status of MNT for a status of NFS.
pub(super) fn mount_status(status: Status) -> mount::Status {
    match status {
        Status::Perm => mount::Status::Perm,
        Status::NoEnt | Status::Stale => mount::Status::NoEnt,
        Status::Access => mount::Status::Access,
        Status::NotDir => mount::Status::NotDir,
        Status::Inval => mount::Status::Inval,
        Status::NameTooLong => mount::Status::NameTooLong,
        Status::NotSupp => mount::Status::NotSupp,
        Status::Jukebox => mount::Status::ServerFault,
        Status::Ok
        | Status::Io
        | Status::NxIo
        | Status::Exist
        | Status::XDev
        | Status::NoDev
        | Status::IsDir
        | Status::FBig
        | Status::NoSpc
        | Status::RoFs
        | Status::MLink
        | Status::NotEmpty
        | Status::DQuot
        | Status::BadHandle
        | Status::NotSync
        | Status::BadCookie
        | Status::TooSmall
        | Status::ServerFault
        | Status::BadType => mount::Status::Io,
    }
}

/// Returns the attributes of a file as shown to clients. All files are shown as of one file system,
/// `device`: a client would mount every other one by itself.
pub(super) fn attributes(stat: &Stat, device: u64) -> Attributes {
    let kind = match stat.kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    };
    Attributes {
        kind,
        mode: stat.mode,
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        used: stat.blocks.saturating_mul(512),
        rdev: special(stat.special_device),
        fsid: device,
        fileid: crate::file_number(stat, device),
        atime: timestamp(stat.accessed),
        mtime: timestamp(stat.modified),
        ctime: timestamp(stat.changed),
    }
}

/// Returns a time as seconds without a sign: those before 1970 are shown as 1970, those after 2106
/// as 2106.
pub(super) fn timestamp(time: Time) -> Timestamp {
    let seconds = time.secs.clamp(0, u32::MAX.into());
    let seconds = u32::try_from(seconds).expect("it was clamped");
    let exact = i64::from(seconds) == time.secs;
    Timestamp { seconds, nanoseconds: if exact { time.nanos } else { 0 } }
}

/// Decodes Linux's encoding of a device number (`makedev(3)`).
fn special(device: u64) -> Special {
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    Special { major: major as u32, minor: minor as u32 }
}

/// Returns the attributes to set.
///
/// # Errors
/// `Invalid` if there are a billion nanoseconds or more.
pub(super) fn set_stat(set: &SetAttributes) -> Result<SetStat, Error> {
    let time = |time: WireTime| match time {
        WireTime::Keep => Ok(None),
        WireTime::Server => Ok(Some(SetTime::Now)),
        WireTime::Client(Timestamp { nanoseconds: 1_000_000_000.., .. }) => Err(Error::Invalid),
        WireTime::Client(Timestamp { seconds, nanoseconds }) => {
            Ok(Some(SetTime::At(Time { secs: seconds.into(), nanos: nanoseconds })))
        }
    };
    Ok(SetStat {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: time(set.atime)?,
        modified: time(set.mtime)?,
    })
}

/// Returns kind, device number and attributes of a special file to create.
///
/// # Errors
/// The kind is created by another procedure.
pub(super) fn special_file(what: MakeNode) -> Result<(Kind, u64, SetAttributes), FileKind> {
    let device = |Special { major, minor }| crate::device_number(major, minor);
    match what {
        MakeNode::CharDevice(set, special) => Ok((Kind::CharDevice, device(special), set)),
        MakeNode::BlockDevice(set, special) => Ok((Kind::BlockDevice, device(special), set)),
        MakeNode::Socket(set) => Ok((Kind::Socket, 0, set)),
        MakeNode::Fifo(set) => Ok((Kind::Fifo, 0, set)),
        MakeNode::Other(kind) => Err(kind),
    }
}

/// Rights of ACCESS (RFC 1813, 3.3.4).
mod right {
    pub(super) const READ: u32 = 0x01;
    pub(super) const LOOKUP: u32 = 0x02;
    pub(super) const MODIFY: u32 = 0x04;
    pub(super) const EXTEND: u32 = 0x08;
    pub(super) const DELETE: u32 = 0x10;
    pub(super) const EXECUTE: u32 = 0x20;
}

/// Returns the rights of a caller to a file, by its mode bits.
pub(super) fn rights(caller: &Caller, stat: &Stat) -> u32 {
    let is_directory = stat.kind == Kind::Directory;
    let bits = match caller {
        Caller::User(user) if user.uid == 0 => {
            let execute = u32::from(is_directory || stat.mode & 0o111 != 0);
            0o6 | execute
        }
        Caller::Server => 0o7,
        Caller::User(user) if user.uid == stat.uid => stat.mode >> 6,
        Caller::User(user) if user.gid == stat.gid || user.groups.contains(&stat.gid) => {
            stat.mode >> 3
        }
        Caller::User(_) => stat.mode,
    };
    let (write, execute) = match is_directory {
        true => (right::MODIFY | right::EXTEND | right::DELETE, right::LOOKUP),
        false => (right::MODIFY | right::EXTEND, right::EXECUTE),
    };
    let of = |bit: u32, right: u32| if bits & bit != 0 { right } else { 0 };
    of(0o4, right::READ) | of(0o2, write) | of(0o1, execute)
}

/// Returns whether a caller may read or write a file that its mode bits forbid to open: its owner
/// may have opened it before, and a program is read to be executed (RFC 1813, 4.4).
pub(super) fn may_open(caller: &Caller, stat: &Stat, write: bool) -> bool {
    let Caller::User(user) = caller else { return false };
    let may_execute = rights(caller, stat) & right::EXECUTE != 0;
    stat.kind == Kind::File && (user.uid == stat.uid || !write && may_execute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::User;
    use std::sync::Arc;

    #[test]
    fn rights_follow_the_mode_bits_of_the_class_of_the_caller() {
        let user = |uid, gid, groups: &[u32]| {
            let groups = groups.to_vec();
            Caller::User(Arc::new(User { uid, gid, groups, commands: false }))
        };
        let file = Stat { mode: 0o640, uid: 5, gid: 6, ..Stat::default() };
        assert_eq!(rights(&user(5, 1, &[]), &file), 0x01 | 0x04 | 0x08);
        assert_eq!(rights(&user(1, 1, &[6]), &file), 0x01);
        assert_eq!(rights(&user(1, 1, &[]), &file), 0);
        assert_eq!(rights(&user(0, 0, &[]), &file), 0x01 | 0x04 | 0x08);
        let dir = Stat { kind: Kind::Directory, mode: 0o711, uid: 5, ..Stat::default() };
        assert_eq!(rights(&user(5, 1, &[]), &dir), 0x1f);
        assert_eq!(rights(&user(1, 1, &[]), &dir), 0x02);
    }

    #[test]
    fn owners_and_those_who_execute_may_open_what_mode_bits_forbid() {
        let user =
            |uid| Caller::User(Arc::new(User { uid, gid: 9, groups: Vec::new(), commands: false }));
        let file = Stat { mode: 0o011, uid: 5, gid: 6, ..Stat::default() };
        let may = |uid, write| may_open(&user(uid), &file, write);
        assert_eq!(
            [may(5, false), may(5, true), may(1, false), may(1, true)],
            [true, true, true, false]
        );
        let secret = Stat { mode: 0, ..file };
        assert!(!may_open(&user(1), &secret, false) && !may_open(&Caller::Server, &secret, false));
    }

    #[test]
    fn device_numbers_are_decoded_as_they_are_encoded() {
        for (major, minor) in [(8, 1), (0xfff, 0xff), (0x1234_5678, 0x9abc_def0)] {
            let encoded = crate::device_number(major, minor);
            assert_eq!(special(encoded), Special { major, minor });
        }
    }

    #[test]
    fn times_out_of_range_are_shown_as_the_nearest() {
        let shown = |secs| {
            let Timestamp { seconds, nanoseconds } = timestamp(Time { secs, nanos: 7 });
            (seconds, nanoseconds)
        };
        assert_eq!([shown(-1), shown(5), shown(1 << 40)], [(0, 0), (5, 7), (u32::MAX, 0)]);
    }
}
