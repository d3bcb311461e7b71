//! Errors of mounting, with cause and next step.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Error of a mount.
#[derive(Debug)]
pub enum Error {
    /// `/dev/fuse` cannot be opened.
    Device(io::Error),
    /// The directory to mount on cannot be used.
    Target {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The system call failed.
    Mount {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The flags of a mount cannot be changed.
    Remount {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The program that mounts for users failed.
    Helper {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It cannot be unmounted.
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The server cannot be used.
    Server(client::Error),
    /// No thread can be started.
    Thread(io::Error),
    /// The kernel speaks another version of FUSE.
    Version(u32, u32),
    /// The kernel has ended the session before it began.
    Ended(PathBuf),
}

impl Error {
    pub(crate) fn device(errno: Errno) -> Error {
        Error::Device(errno.into())
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Error {
        Error::Server(error)
    }
}

/// Returns the errno of an error, if it has one.
fn errno(cause: &io::Error) -> Option<Errno> {
    Errno::from_io_error(cause)
}

/// Returns the text of an error without Rust's number.
fn text(cause: &io::Error) -> String {
    let text = cause.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

fn target_step(cause: &io::Error) -> &'static str {
    match errno(cause) {
        Some(Errno::NOENT) => "create the directory first",
        Some(Errno::NOTDIR) => "name a directory",
        Some(Errno::NOTCONN) => "unmount what is left of an earlier mount: umount -l DIR",
        Some(Errno::ACCESS) => "name a directory that you may enter",
        Some(_) | None => "name another directory",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Device(cause) => {
                let step = match errno(cause) {
                    Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
                        "load FUSE with 'modprobe fuse', or give the container --device /dev/fuse"
                    }
                    Some(_) | None => "run it as root, or with the permission to use it",
                };
                write!(f, "cannot open /dev/fuse: {}; {step}", text(cause))
            }
            Error::Target { dir, cause } => {
                let step = target_step(cause);
                write!(f, "cannot mount on {}: {}; {step}", dir.display(), text(cause))
            }
            Error::Remount { dir, cause } => {
                let step = match errno(cause) {
                    Some(Errno::PERM | Errno::ACCESS) => "only root may do this",
                    Some(Errno::INVAL) => "mount it there first",
                    Some(Errno::BUSY) => "close the files that are open for writing",
                    Some(_) | None => "see the messages of the kernel (dmesg)",
                };
                write!(f, "cannot change the mount on {}: {}; {step}", dir.display(), text(cause))
            }
            Error::Mount { dir, cause } => {
                let step = match errno(cause) {
                    Some(Errno::PERM | Errno::ACCESS) => {
                        "run it with the capability CAP_SYS_ADMIN (a container: --cap-add \
                         SYS_ADMIN)"
                    }
                    Some(Errno::BUSY) => "unmount what is there, or name another directory",
                    Some(Errno::NODEV) => "load FUSE with 'modprobe fuse'",
                    Some(_) | None => target_step(cause),
                };
                write!(f, "cannot mount on {}: {}; {step}", dir.display(), text(cause))
            }
            Error::Helper { dir, cause } => {
                let step = match errno(cause) {
                    Some(Errno::NOENT) => "install the package fuse3, or mount as root",
                    Some(_) | None => {
                        "see its message above; allow_other needs user_allow_other in \
                         /etc/fuse.conf"
                    }
                };
                write!(f, "cannot mount on {}: {}; {step}", dir.display(), text(cause))
            }
            Error::Unmount { dir, cause } => {
                let step = match errno(cause) {
                    Some(Errno::BUSY) => "close the files and leave the directories in it",
                    Some(_) | None => "unmount it with 'umount -l'",
                };
                write!(f, "cannot unmount {}: {}; {step}", dir.display(), text(cause))
            }
            Error::Server(error) => write!(f, "{error}"),
            Error::Thread(cause) => {
                write!(f, "cannot start a thread: {}; raise the limit of threads", text(cause))
            }
            Error::Version(major, minor) => write!(
                f,
                "cannot mount: the kernel speaks FUSE {major}.{minor}; use Linux 5.4 or newer"
            ),
            Error::Ended(dir) => {
                write!(f, "cannot mount on {}: it was unmounted at once", dir.display())
            }
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_cause_and_next_step() {
        let dir = PathBuf::from("/mnt/x");
        let cause = |errno: Errno| io::Error::from(errno);
        for (error, text) in [
            (
                Error::Target { dir: dir.clone(), cause: cause(Errno::NOENT) },
                "cannot mount on /mnt/x: No such file or directory; create the directory first",
            ),
            (
                Error::Mount { dir: dir.clone(), cause: cause(Errno::BUSY) },
                "cannot mount on /mnt/x: Device or resource busy; unmount what is there, or name \
                 another directory",
            ),
            (
                Error::Remount { dir: dir.clone(), cause: cause(Errno::INVAL) },
                "cannot change the mount on /mnt/x: Invalid argument; mount it there first",
            ),
            (
                Error::Device(cause(Errno::NOENT)),
                "cannot open /dev/fuse: No such file or directory; load FUSE with 'modprobe \
                 fuse', or give the container --device /dev/fuse",
            ),
            (
                Error::Unmount { dir, cause: cause(Errno::BUSY) },
                "cannot unmount /mnt/x: Device or resource busy; close the files and leave the \
                 directories in it",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
