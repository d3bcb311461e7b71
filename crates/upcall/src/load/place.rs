//! Targets, as text.

use load::driver::Url;
use load::driver::server::Server;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Default ports.
const PORT_9P: u16 = 5640;
const PORT_NFS: u16 = 2049;
const PORT_HTTP: u16 = 80;

/// Target of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadTarget {
    /// Nothing.
    Null,
    /// A file, a block device, or another readable device.
    File(PathBuf),
    /// Numbered files in a directory.
    Directory(PathBuf),
    /// A volume of Upcall.
    Volume(PathBuf),
    /// A file of a 9P server.
    NineP(Server, String),
    /// A file of an NFS server.
    Nfs(Server, String),
    /// An object of an HTTP server.
    Http(Url),
}

impl FromStr for LoadTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadTarget, String> {
        let wrong = || {
            "write null, file:PATH, dir:PATH, volume:PATH, 9p://HOST:PORT/PATH, \
             9p+unix:SOCKET:/PATH, nfs://HOST:PORT/PATH or http://HOST:PORT/PATH"
                .to_string()
        };
        if text == "null" {
            return Ok(LoadTarget::Null);
        }
        if let Some(rest) = text.strip_prefix("9p+unix:") {
            let (socket, path) = rest.rsplit_once(":/").ok_or_else(wrong)?;
            return Ok(LoadTarget::NineP(Server::Unix(socket.into()), format!("/{path}")));
        }
        if let Some(rest) = text.strip_prefix("9p://") {
            let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
            return Ok(LoadTarget::NineP(
                server(host, PORT_9P).ok_or_else(wrong)?,
                format!("/{path}"),
            ));
        }
        if let Some(rest) = text.strip_prefix("nfs://") {
            let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
            return Ok(LoadTarget::Nfs(
                server(host, PORT_NFS).ok_or_else(wrong)?,
                format!("/{path}"),
            ));
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let server = server(host, PORT_HTTP).ok_or_else(wrong)?;
            let strange = |c: char| c.is_whitespace() || c.is_control();
            if host.contains(strange) || path.contains(strange) {
                return Err("percent-encode the path of an object: %20 for a space".into());
            }
            return Ok(LoadTarget::Http(Url {
                server,
                host: host.into(),
                path: format!("/{path}"),
            }));
        }
        if let Some(path) = text.strip_prefix("volume:").filter(|path| !path.is_empty()) {
            return Ok(LoadTarget::Volume(path.into()));
        }
        if let Some(path) = text.strip_prefix("dir:").filter(|path| !path.is_empty()) {
            return Ok(LoadTarget::Directory(path.into()));
        }
        let path = text.strip_prefix("file:");
        let path = path.or_else(|| text.starts_with(['/', '.']).then_some(text));
        path.filter(|path| !path.is_empty())
            .map(|path| LoadTarget::File(path.into()))
            .ok_or_else(wrong)
    }
}

fn server(text: &str, port: u16) -> Option<Server> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()?),
        Some(_) | None => (text, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    Some(Server::Tcp(host.to_string(), port))
}

impl fmt::Display for LoadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadTarget::Null => f.write_str("null"),
            LoadTarget::File(path) => write!(f, "file {}", path.display()),
            LoadTarget::Directory(path) => write!(f, "directory {}", path.display()),
            LoadTarget::Volume(path) => write!(f, "volume {}", path.display()),
            LoadTarget::NineP(server, path) => write!(f, "9p {server} {path}"),
            LoadTarget::Nfs(server, path) => write!(f, "nfs {server} {path}"),
            LoadTarget::Http(url) => write!(f, "http://{}{}", url.host, url.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_people_write_them() {
        for (text, shown) in [
            ("null", "null"),
            ("file:/a b", "file /a b"),
            ("./x", "file ./x"),
            ("dir:d", "directory d"),
            ("volume:v", "volume v"),
            ("9p://host/a/b", "9p host:5640 /a/b"),
            ("9p://:99/a", "9p 127.0.0.1:99 /a"),
            ("9p://[::1]:99/a", "9p [::1]:99 /a"),
            ("9p+unix:/run/u:/a", "9p unix:/run/u /a"),
            ("nfs://host/a/b", "nfs host:2049 /a/b"),
            ("nfs://[::1]:99/a", "nfs [::1]:99 /a"),
            ("http://host:81/a%20b", "http://host:81/a%20b"),
        ] {
            assert_eq!(text.parse::<LoadTarget>().expect(text).to_string(), shown);
        }
        for text in ["", "x", "file:", "9p://host", "9p://host:x/a", "nfs://host", "volume:"] {
            assert!(text.parse::<LoadTarget>().is_err(), "{text}");
        }
        assert!("http://h/a b".parse::<LoadTarget>().is_err(), "a blank is not encoded");
    }
}
