//! Listening sockets that the service manager passes to the process (`sd_listen_fds(3)`).
#![allow(unsafe_code)]

use crate::sockets::{self, Address};
use rustix::fd::{FromRawFd as _, OwnedFd, RawFd};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// A listening socket of the service manager.
#[derive(Debug)]
pub struct Inherited {
    /// Name given by the service manager (`FileDescriptorName=`).
    pub name: String,
    /// Address of the socket.
    pub address: Address,
    /// The socket, for [`World::adopt_listener`](crate::World::adopt_listener).
    pub socket: OwnedFd,
}

/// Whether the sockets have been taken: each descriptor has one owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the listening sockets that are meant for this process (`LISTEN_PID`). Later calls return
/// none.
///
/// # Errors
/// `InvalidInput` if the variables are malformed, or a descriptor is not a listening stream socket
/// of IPv4, IPv6 or a Unix socket with a path; those of `getsockopt(2)` and `setsockopt(2)`.
pub fn take_inherited() -> io::Result<Vec<Inherited>> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // Names without sockets are those of another process.
    if sd_notify::listen_fds()?.len() == 0 {
        return Ok(Vec::new());
    }
    let given: Vec<(RawFd, String)> = sd_notify::listen_fds_with_names()?.collect();
    let adopt = |(number, name): (RawFd, String)| {
        if rustix::fs::fcntl_getfl(unowned(&number)).is_err() {
            return Err(refuse(&name, "is not open"));
        }
        // SAFETY: the descriptor is open; the service manager has passed it to this process, which
        // takes each one once, as `TAKEN` ensures, and before it opens others.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let address = prepare(&socket, &name)?;
        Ok(Inherited { name, address, socket })
    };
    given.into_iter().map(adopt).collect()
}

/// Borrows a descriptor that may not be open.
fn unowned(number: &RawFd) -> rustix::fd::BorrowedFd<'_> {
    assert!(*number >= 0, "descriptors of the service manager begin with 3");
    // SAFETY: it is used for one call, which fails if it is not open.
    unsafe { rustix::fd::BorrowedFd::borrow_raw(*number) }
}

/// Checks that a socket is a listening one, and sets its options to those of own sockets; returns
/// its address.
fn prepare(socket: &OwnedFd, name: &str) -> io::Result<Address> {
    let is_stream = sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
    if !is_stream || !sockopt::socket_acceptconn(socket)? {
        return Err(refuse(name, "is not a listening stream socket"));
    }
    rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(socket, true)?;
    let bound = rustix::net::getsockname(socket)?;
    if bound.address_family() == AddressFamily::UNIX {
        let path = SocketAddrUnix::try_from(bound)?;
        let path = path.path().map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
        return path.map(Address::Unix).ok_or_else(|| refuse(name, "has no path"));
    }
    let address = SocketAddr::try_from(bound)
        .map_err(|_| refuse(name, "is neither an IPv4, an IPv6 nor a Unix socket"))?;
    sockets::set_tcp_options(socket)?;
    Ok(Address::Tcp(address))
}

fn refuse(name: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("socket '{name}' {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_listening_socket_gets_the_options_of_own_ones() {
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a port"));
        let Ok(Address::Tcp(address)) = prepare(&socket, "http") else { panic!("an address") };
        assert_ne!(address.port(), 0);
        assert!(sockopt::tcp_nodelay(&socket).expect("an option"));
        let flags = rustix::fs::fcntl_getfl(&socket).expect("flags");
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[test]
    fn a_unix_socket_has_its_path() {
        let path = std::env::temp_dir().join(format!("upcall-inherited-{}", std::process::id()));
        let socket = OwnedFd::from(UnixListener::bind(&path).expect("a socket"));
        assert_eq!(prepare(&socket, "9p").expect("it listens"), Address::Unix(path.clone()));
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn other_descriptors_are_refused() {
        let datagrams = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let error = prepare(&datagrams, "http").expect_err("datagrams");
        assert_eq!(error.to_string(), "socket 'http' is not a listening stream socket");
        let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("a device"));
        assert!(prepare(&file, "9p").is_err());
    }

    #[test]
    fn without_a_service_manager_there_are_none() {
        assert!(take_inherited().expect("no variables").is_empty());
        assert!(take_inherited().expect("taken").is_empty());
    }
}
