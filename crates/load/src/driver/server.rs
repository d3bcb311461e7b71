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
                let stream = self.connect_tcp(host, *port)?;
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

    /// Connects to the first address of a host that accepts.
    fn connect_tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let unknown = |error: io::Error| {
            let text = format!("cannot find the host '{host}': {error}; check its name");
            io::Error::new(error.kind(), text)
        };
        let mut last = None;
        for address in (host, port).to_socket_addrs().map_err(unknown)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        let none = || unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        Err(last.map_or_else(none, |error| self.unreachable(&error)))
    }

    fn unreachable(&self, error: &io::Error) -> io::Error {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        let text = match self {
            Server::Unix(_) if is_denied => format!(
                "cannot connect to {self} as user {}: {error}; act as a user who may write to the \
                 socket, or ask its owner for permission",
                rustix::process::geteuid().as_raw()
            ),
            Server::Tcp(..) | Server::Unix(_) => {
                format!("cannot connect to {self}: {error}; is the server running there?")
            }
        };
        io::Error::new(error.kind(), text)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_host_is_named_with_its_next_step() {
        let server = Server::Tcp("no-such-host.invalid".to_string(), 5640);
        let error = server.connect().err().expect("it has no address").to_string();
        assert!(error.starts_with("cannot find the host 'no-such-host.invalid': "), "{error}");
        assert!(error.ends_with("; check its name"), "{error}");
    }

    #[test]
    fn a_socket_without_permission_is_named_with_the_user() {
        let denied = io::Error::from_raw_os_error(13);
        let error = Server::Unix("/s".into()).unreachable(&denied).to_string();
        let user = rustix::process::geteuid().as_raw();
        assert!(error.contains(&format!("unix:/s as user {user}: Permission denied")), "{error}");
        assert!(error.ends_with("ask its owner for permission"), "{error}");
    }
}
