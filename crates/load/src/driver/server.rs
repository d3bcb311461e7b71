//! Server addresses, and blocking communication before a run starts.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Timeouts of a connection attempt, and of replies before the run.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(30);

/// Time without acknowledged data after which a connection is lost, in ms.
const LOST_MS: u32 = 30_000;

/// Server address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Host name or IP address, and port.
    Tcp(String, u16),
    /// Unix-domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Server::Tcp(host, port) => write!(f, "{host}:{port}"),
            Server::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Connection during blocking communication.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Server {
    /// Connects.
    pub(super) fn connect(&self) -> io::Result<Stream> {
        let stream = match self {
            Server::Tcp(host, port) => {
                let stream = connect(host, *port).map_err(|error| self.unreachable(&error))?;
                stream.set_nodelay(true)?;
                set_tcp_user_timeout(&stream, LOST_MS)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Stream::Tcp(stream)
            }
            Server::Unix(path) => {
                let stream = UnixStream::connect(path);
                let stream = stream.map_err(|error| self.unreachable(&error))?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Stream::Unix(stream)
            }
        };
        Ok(stream)
    }

    fn unreachable(&self, error: &io::Error) -> io::Error {
        let text = format!("cannot connect to {self}: {error}; is the server running there?");
        io::Error::new(error.kind(), text)
    }
}

/// Connects to the first address of a host that accepts.
fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    /// Returns the socket, for a ring.
    pub(super) fn into_socket(self) -> io::Result<OwnedFd> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(None)?;
                Ok(stream.into())
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(None)?;
                Ok(stream.into())
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces `{}` in a path by the file number.
pub fn numbered(path: &str, file: u32) -> String {
    path.replace("{}", &file.to_string())
}
