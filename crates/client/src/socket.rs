//! Connected nonblocking socket, and waiting for it.

use crate::error::UnknownHost;
use crate::{Address, Error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Kind of socket.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    pub(crate) address: Address,
}

/// Readiness of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether the waiting thread was interrupted.
    pub(crate) woken: bool,
}

impl Ready {
    pub(crate) fn nothing(self) -> bool {
        !self.readable && !self.writable && !self.woken
    }
}

impl Socket {
    pub(crate) fn connect(address: &Address, deadline: Duration) -> Result<Socket, Error> {
        let connected = match address {
            Address::Tcp { host, port } => by_tcp(host, *port, deadline).map(Stream::Tcp),
            Address::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }),
        };
        let failed =
            |cause| Error::Unreachable { address: address.clone(), cause: Arc::new(cause) };
        Ok(Socket { stream: connected.map_err(failed)?, address: address.clone() })
    }

    /// Reads available bytes; returns 0 at the end.
    pub(crate) fn read(&self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).read_vectored(parts),
            Stream::Unix(stream) => (&mut &*stream).read_vectored(parts),
        }
    }

    /// Writes as many bytes as fit.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).write_vectored(parts),
            Stream::Unix(stream) => (&mut &*stream).write_vectored(parts),
        }
    }

    /// Shuts down the sending direction.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Waits for readiness, at most this long.
    pub(crate) fn wait(
        &self,
        (to_read, to_write): (bool, bool),
        wake: Option<BorrowedFd<'_>>,
        time: Duration,
    ) -> io::Result<Ready> {
        let mut wants = PollFlags::empty();
        wants.set(PollFlags::IN, to_read);
        wants.set(PollFlags::OUT, to_write);
        let socket = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        let mut fds = vec![PollFd::from_borrowed_fd(socket, wants)];
        fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&time)) {
            // Like an interruption: the caller checks its state and waits again.
            Err(Errno::INTR) => return Ok(Ready { woken: true, ..Ready::default() }),
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
        let socket = fds[0].revents();
        let broken = socket.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        Ok(Ready {
            readable: to_read && (broken || socket.contains(PollFlags::IN)),
            writable: to_write && (broken || socket.contains(PollFlags::OUT)),
            woken: fds.get(1).is_some_and(|wake| wake.revents().contains(PollFlags::IN)),
        })
    }
}

/// Connects to each address of a name in turn.
fn by_tcp(host: &str, port: u16, deadline: Duration) -> io::Result<TcpStream> {
    let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut last = UnknownHost(none).into();
    for address in (host, port).to_socket_addrs().map_err(UnknownHost)? {
        match TcpStream::connect_timeout(&address, deadline) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
