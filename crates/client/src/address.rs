//! Addresses of servers in textual form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Default port of 9P.
pub const PORT: u16 = 5640;

/// Address of a server: `HOST:PORT`, `HOST`, `:PORT` (this host), `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP address. The name is resolved at each connection.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// Port number.
        port: u16,
    },
    /// Unix-domain socket on this host.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("write the path of the socket behind 'unix:'".to_string()),
                false => Ok(Address::Unix(path.into())),
            };
        }
        let (host, port) = split(text);
        let bad = || format!("cannot understand '{text}': write HOST:PORT, HOST or unix:PATH");
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad())?,
            None => PORT,
        };
        let host = if host.is_empty() && text.starts_with(':') { "127.0.0.1" } else { host };
        let strange = |c: char| c.is_whitespace() || "/[]".contains(c);
        if host.is_empty() || host.contains(strange) || port == 0 {
            return Err(bad());
        }
        Ok(Address::Tcp { host: host.to_string(), port })
    }
}

/// Splits host and port; a host in brackets or with several colons is an IPv6 address.
fn split(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => ("", None),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        Some(_) | None => (text, None),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown) in [
            ("host", "host:5640"),
            ("host:99", "host:99"),
            (":99", "127.0.0.1:99"),
            ("::1", "[::1]:5640"),
            ("[::1]:99", "[::1]:99"),
            ("[::1]", "[::1]:5640"),
            ("unix:/run/u", "unix:/run/u"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
        }
        for text in ["", "host:", "host:x", "unix:", "/run/u", "[::1]x", "host:0", "host:99999"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
