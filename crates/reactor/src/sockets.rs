//! Listening sockets, and identification of peers.
#![allow(unsafe_code)]

use crate::errno;
use base::op::{self, Peer, UNSENT_MAX};
use base::{Error, User};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On the network. Port zero for any free port.
    Tcp(SocketAddr),
    /// A Unix socket, by its path.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A listening socket. Removes its name from the file system when it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    /// The socket.
    pub(crate) fd: OwnedFd,
    unix: Option<Bound>,
}

impl Listening {
    /// Returns a socket shared with another owner.
    pub(crate) fn shared(fd: OwnedFd) -> Listening {
        Listening { fd, unix: None }
    }
}

/// Name of a Unix socket, with the identity of its file when it was bound.
#[derive(Debug)]
struct Bound {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(bound) = &self.unix else { return };
        // Another process may have bound its own socket there.
        if identity(&bound.path) == Some(bound.identity) {
            let _ = std::fs::remove_file(&bound.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    metadata.file_type().is_socket().then(|| (metadata.dev(), metadata.ino()))
}

/// Listens; returns the actual address, too.
pub(crate) fn listen(address: &Address) -> io::Result<(Listening, Address)> {
    // Accepting several connections at once ends with `EAGAIN`.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match address {
        Address::Tcp(address) => listen_tcp(address, flags),
        Address::Unix(path) => listen_unix(path, flags),
    }
}

fn listen_tcp(address: &SocketAddr, flags: SocketFlags) -> io::Result<(Listening, Address)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    set_tcp_options(&fd)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    Ok((Listening { fd, unix: None }, Address::Tcp(bound)))
}

/// Sets the options that accepted sockets inherit from a listening one, which saves calls for each.
pub(crate) fn set_tcp_options(fd: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(fd, true)?;
    // Detects the death of a client's host, so that its locks and files are released.
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(fd, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(fd, 4)?;
    set_unsent_max(fd)
}

/// Limits the unsent bytes of a connection, or of those accepted by a socket (`TCP_NOTSENT_LOWAT`,
/// Linux 3.12). Otherwise `tcp_wmem` allows 4 MiB, outside of the accounted memory, and copying
/// them delays others.
fn set_unsent_max(fd: &OwnedFd) -> rustix::io::Result<()> {
    let most = UNSENT_MAX as libc::c_int;
    let bytes = size_of_val(&most) as libc::socklen_t;
    // SAFETY: the pointer is to `bytes` bytes of memory that live across the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const most).cast(),
            bytes,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

fn listen_unix(path: &Path, flags: SocketFlags) -> io::Result<(Listening, Address)> {
    let name = SocketAddrUnix::new(path)?;
    let new = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let fd = new()?;
    match rustix::net::bind(&fd, &name) {
        Err(rustix::io::Errno::ADDRINUSE) => {
            remove_stale(path, &new()?, &name)?;
            rustix::net::bind(&fd, &name)?;
        }
        other => other?,
    }
    let identity = identity(path).unwrap_or_default();
    rustix::net::listen(&fd, BACKLOG)?;
    let unix = Some(Bound { path: path.to_path_buf(), identity });
    Ok((Listening { fd, unix }, Address::Unix(path.to_path_buf())))
}

/// Removes a socket without a listener. Other files stay.
fn remove_stale(path: &Path, probe: &OwnedFd, name: &SocketAddrUnix) -> io::Result<()> {
    let in_use = || io::Error::from(rustix::io::Errno::ADDRINUSE);
    if identity(path).is_none() {
        return Err(in_use());
    }
    match rustix::net::connect(probe, name) {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        _ => Err(in_use()),
    }
}

/// Accepts up to `max` connections; `None` if none is pending. An error after the first connection
/// is dropped: the next accept returns it again unless it concerned that client only.
pub(crate) fn accept_up_to<T>(
    max: usize,
    mut accept: impl FnMut() -> Result<Option<T>, Error>,
) -> Option<Result<Vec<T>, Error>> {
    let mut accepted = Vec::new();
    while accepted.len() < max {
        match accept() {
            Ok(Some(connection)) => accepted.push(connection),
            Err(error) if accepted.is_empty() => return Some(Err(error)),
            Ok(None) | Err(_) => break,
        }
    }
    (!accepted.is_empty()).then_some(Ok(accepted))
}

/// Returns a socket for a connection to `address`.
pub(crate) fn dial(address: &op::Address, extra: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | extra;
    let op::Address::Tcp(address) = address else {
        return rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    // Detects the death of the peer's host: by probes when idle, by missing acknowledgements when
    // busy.
    sockopt::set_socket_keepalive(&fd, true)?;
    sockopt::set_tcp_keepidle(&fd, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(&fd, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(&fd, 5)?;
    sockopt::set_tcp_user_timeout(&fd, 15_000)?;
    set_unsent_max(&fd)?;
    Ok(fd)
}

/// Converts an address for the kernel.
pub(crate) fn kernel_address(address: &op::Address) -> rustix::io::Result<SocketAddrAny> {
    match address {
        op::Address::Tcp(address) => Ok((*address).into()),
        op::Address::Unix(path) => SocketAddrUnix::new(&path[..]).map(Into::into),
    }
}

/// Returns the peer of an accepted connection.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> Result<Peer, Error> {
    let local = rustix::net::getsockname(fd).map_err(errno::translate)?;
    if local.address_family() == AddressFamily::UNIX {
        return local_peer(fd).map(Peer::Local).map_err(errno::translate);
    }
    let address = rustix::net::getpeername(fd).map_err(errno::translate)?;
    let address = address.and_then(|a: SocketAddrAny| SocketAddr::try_from(a).ok());
    address.map(|a| Peer::Network(a.to_string())).ok_or(Error::Disconnected)
}

fn local_peer(fd: BorrowedFd<'_>) -> rustix::io::Result<User> {
    let credentials = sockopt::socket_peercred(fd)?;
    Ok(User {
        uid: credentials.uid.as_raw(),
        gid: credentials.gid.as_raw(),
        groups: peer_groups(fd)?,
        commands: false,
    })
}

/// Returns the supplementary groups of the process that connected (`SO_PEERGROUPS`, Linux 4.13).
fn peer_groups(fd: BorrowedFd<'_>) -> rustix::io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice()))
            .expect("at most the 65536 groups that Linux has");
        // SAFETY: the pointer is to `bytes` bytes of memory that live across the call.
        let result = unsafe {
            libc::getsockopt(
                fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::RANGE) if count > groups.len() => groups.resize(count, 0),
            errno => return Err(errno.unwrap_or(rustix::io::Errno::IO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::net::SendFlags;
    use std::net::TcpStream;

    #[test]
    fn a_client_that_reads_nothing_leaves_little_in_the_kernel() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listening, bound) = listen(&Address::Tcp(any)).expect("a socket");
        let Address::Tcp(bound) = bound else { panic!("{bound}") };
        let client = TcpStream::connect(bound).expect("it listens");
        let fd = rustix::net::accept_with(&listening.fd, SocketFlags::NONBLOCK).expect("a client");
        let most = option(&fd, libc::TCP_NOTSENT_LOWAT);
        assert_eq!(usize::try_from(most), Ok(UNSENT_MAX), "accepted sockets inherit it");
        let dialled = dial(&op::Address::Tcp(bound), SocketFlags::empty()).expect("a socket");
        assert_eq!(option(&dialled, libc::TCP_NOTSENT_LOWAT), most);
        let (bytes, mut sent) = (vec![0; 1 << 20], 0);
        // Buffers grow as data arrives, and the client's kernel may be late to receive it.
        let is_writable = || {
            let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
            let pause = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            rustix::event::poll(&mut fds, Some(&pause)).expect("a socket") > 0
        };
        while is_writable() || unsent(&fd) == 0 {
            match rustix::net::send(&fd, &bytes, SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let unsent = unsent(&fd);
        assert!(sent >= unsent && unsent > 0, "{sent} {unsent}");
        // One packet may exceed the limit.
        assert!(unsent <= UNSENT_MAX + (64 << 10), "{unsent}");
        drop(client);
    }

    /// Returns a numeric option of TCP.
    fn option(fd: &OwnedFd, name: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = 0;
        let mut bytes = size_of_val(&value) as libc::socklen_t;
        let place = (&raw mut value).cast();
        // SAFETY: the pointers are to a number and its size, which live across the call.
        let result = unsafe {
            libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, name, place, &raw mut bytes)
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        value
    }

    /// Returns the number of bytes not yet transmitted on a socket (`SIOCOUTQNSD`, `tcp(7)`).
    fn unsent(fd: &OwnedFd) -> usize {
        const SIOCOUTQNSD: libc::Ioctl = 0x894b;
        let mut count: libc::c_int = 0;
        // SAFETY: the call writes one number, which lives across it.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCOUTQNSD, &raw mut count) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        usize::try_from(count).expect("a number of bytes")
    }
}
