//! Linux error numbers in replies to the kernel.

/// Linux error number.
pub(crate) type Errno = u32;

pub(crate) const EPERM: Errno = 1;
pub(crate) const ENOENT: Errno = 2;
pub(crate) const EINTR: Errno = 4;
pub(crate) const EIO: Errno = 5;
pub(crate) const EBADF: Errno = 9;
pub(crate) const EAGAIN: Errno = 11;
pub(crate) const EACCES: Errno = 13;
pub(crate) const ENODEV: Errno = 19;
pub(crate) const ENOTDIR: Errno = 20;
pub(crate) const EXDEV: Errno = 18;
pub(crate) const EISDIR: Errno = 21;
pub(crate) const EINVAL: Errno = 22;
pub(crate) const ENFILE: Errno = 23;
pub(crate) const EMFILE: Errno = 24;
pub(crate) const ERANGE: Errno = 34;
pub(crate) const ENAMETOOLONG: Errno = 36;
pub(crate) const ENOLCK: Errno = 37;
pub(crate) const ENOSYS: Errno = 38;
pub(crate) const EPROTO: Errno = 71;
pub(crate) const EOPNOTSUPP: Errno = 95;
pub(crate) const ESTALE: Errno = 116;
