//! Namespaces as text, in the manner of Plan 9's namespace(6).
//!
//! ```text
//! # what                      where it is seen
//! mount / volume:demo.volume
//! mount -a /lib 9p://127.0.0.1:5641/lib
//! mount /logs host:/var/log
//! bind -b /src/mine /src/all
//! unmount /logs
//! grow volume:demo.volume 32G
//! ```
//!
//! A line is a command, its options, and its words; words with blanks are in single quotes, and
//! quotes within them are doubled. `-b` puts the new directory in front of the present ones, `-a`
//! behind them, otherwise it replaces them; `-c` allows the creation of files in it. As in Plan 9
//! the order is `bind NEW OLD`.

use crate::Order;
use base::Name;
use std::fmt;

#[cfg(test)]
mod tests;

/// Default port of a 9P server.
const PORT: u16 = 564;

/// Maximum length of the path of a Unix socket, bytes (unix(7)).
const SOCKET_MAX: usize = 107;

/// Maximum length of an attach name, bytes.
const ANAME_MAX: usize = 4096;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Mount an external source.
    Mount {
        /// Path of the mount point.
        at: Vec<Name>,
        /// The source.
        source: Source,
        /// Position among the present members.
        order: Order,
        /// Whether new files may be created in it.
        create: bool,
    },
    /// Bind a directory of the namespace to another place.
    Bind {
        /// Path of the source.
        new: Vec<Name>,
        /// Path of the mount point.
        old: Vec<Name>,
        /// Position among the present members.
        order: Order,
        /// Whether new files may be created in it.
        create: bool,
    },
    /// Unmount.
    Unmount {
        /// Only members with this source or path, unquoted, as listed.
        what: Option<String>,
        /// Path of the mount point.
        at: Vec<Name>,
    },
    /// Grow a mounted volume, whose file or device has grown already.
    Grow {
        /// File of the volume.
        file: String,
        /// New size, bytes.
        bytes: u64,
    },
}

/// A source of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `volume:FILE`.
    Volume(String),
    /// `host:DIRECTORY`.
    Host(String),
    /// `9p://HOST:PORT/ANAME`.
    NineP {
        /// `HOST:PORT`.
        address: String,
        /// Attach name; may be empty.
        aname: String,
    },
    /// `9p+unix:PATH` or `9p+unix:PATH!ANAME`.
    NinePUnix {
        /// Path of the socket.
        path: String,
        /// Attach name; may be empty.
        aname: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Volume(file) => write!(f, "volume:{file}"),
            Source::Host(directory) => write!(f, "host:{directory}"),
            Source::NineP { address, aname } => write!(f, "9p://{address}{aname}"),
            Source::NinePUnix { path, aname } if aname.is_empty() => write!(f, "9p+unix:{path}"),
            Source::NinePUnix { path, aname } => write!(f, "9p+unix:{path}!{aname}"),
        }
    }
}

/// A syntax error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Number of the line, counted from one.
    pub line: usize,
    /// The error, and the correct form.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// Parses the lines of a text; returns each with its number, without empty ones and comments.
///
/// # Errors
/// The first line with a syntax error.
pub fn parse(text: &str) -> Result<Vec<(usize, Line)>, ScriptError> {
    let mut lines = Vec::new();
    for (number, text) in (1..).zip(text.lines()) {
        let wrong = |what| ScriptError { line: number, what };
        let words = words(text).map_err(wrong)?;
        if let Some((command, rest)) = words.split_first() {
            lines.push((number, line(command, rest).map_err(wrong)?));
        }
    }
    Ok(lines)
}

/// Returns a path in the syntax of a script, quoted if necessary.
pub fn path_text(path: &[Name]) -> String {
    quoted(&unquoted(path))
}

fn unquoted(path: &[Name]) -> String {
    let mut text = String::new();
    path.iter().for_each(|name| text.push_str(&format!("/{name}")));
    if path.is_empty() { "/".into() } else { text }
}

/// Returns a word in the syntax of a script, quoted if necessary.
pub fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'#".contains(c));
    if plain { word.to_string() } else { format!("'{}'", word.replace('\'', "''")) }
}

fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut chars) = (Vec::new(), text.chars().peekable());
    while let Some(&first) = chars.peek() {
        match first {
            '#' => break,
            blank if blank.is_whitespace() => drop(chars.next()),
            _ => words.push(word(&mut chars)?),
        }
    }
    Ok(words)
}

fn word(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let (mut word, mut inside) = (String::new(), false);
    while let Some(&next) = chars.peek() {
        if !inside && next.is_whitespace() {
            break;
        }
        chars.next();
        match next {
            '\'' if inside && chars.peek() == Some(&'\'') => {
                chars.next();
                word.push('\'');
            }
            '\'' => inside = !inside,
            other => word.push(other),
        }
    }
    if inside { Err("a quote that is not closed".into()) } else { Ok(word) }
}

fn line(command: &str, rest: &[String]) -> Result<Line, String> {
    let (mut order, mut create, mut words) = (Order::Replace, false, Vec::new());
    for word in rest {
        let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            words.push(word.as_str());
            continue;
        };
        for flag in flags.chars() {
            match flag {
                'a' => order = Order::After,
                'b' => order = Order::Before,
                'r' => order = Order::Replace,
                'c' => create = true,
                other => return Err(format!("no option -{other}; there are -a, -b, -r and -c")),
            }
        }
    }
    match (command, words.as_slice()) {
        ("mount", [at, source]) => {
            Ok(Line::Mount { at: path(at)?, source: self::source(source)?, order, create })
        }
        ("bind", [new, old]) => Ok(Line::Bind { new: path(new)?, old: path(old)?, order, create }),
        ("unmount", [at]) => Ok(Line::Unmount { what: None, at: path(at)? }),
        ("unmount", [what, at]) => {
            let what = match what.starts_with('/') {
                true => unquoted(&path(what)?),
                false => self::source(what)?.to_string(),
            };
            Ok(Line::Unmount { what: Some(what), at: path(at)? })
        }
        ("grow", [source, size]) => match self::source(source)? {
            Source::Volume(file) => Ok(Line::Grow { file, bytes: base::size::parse(size)? }),
            Source::Host(_) | Source::NineP { .. } | Source::NinePUnix { .. } => {
                Err("only volumes grow: grow volume:FILE 32G".into())
            }
        },
        ("mount", _) => Err("mount takes a place and a source: mount /logs host:/var/log".into()),
        ("bind", _) => Err("bind takes two places: bind -b /src/mine /src/all".into()),
        ("unmount", _) => Err("unmount takes a place: unmount /logs".into()),
        ("grow", _) => Err("grow takes a volume and a size: grow volume:FILE 32G".into()),
        (other, _) => Err(format!("no command `{other}`; there are mount, bind, unmount and grow")),
    }
}

/// Parses a path from the root of the namespace.
///
/// # Errors
/// The reason why it is no such path.
pub fn path(text: &str) -> Result<Vec<Name>, String> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(format!("`{text}` is no place: places begin with /"));
    };
    let name = |part: &str| match Name::new(part.as_bytes()) {
        Ok(name) if name.plain() => Ok(name),
        Ok(_) => Err(format!("`{text}`: . and .. have no place here")),
        Err(error) => Err(format!("`{text}`: {error}")),
    };
    rest.split('/').filter(|part| !part.is_empty()).map(name).collect()
}

fn source(text: &str) -> Result<Source, String> {
    let wrong = || {
        let forms = "volume:FILE, host:DIRECTORY, 9p://HOST:PORT/ANAME, 9p+unix:PATH!ANAME";
        Err(format!("`{text}` is no source; sources are {forms}"))
    };
    let Some((kind, rest)) = text.split_once(':') else { return wrong() };
    if rest.contains('\0') {
        return Err(format!("{text:?}: no path has a NUL"));
    }
    match (kind, rest.strip_prefix("//")) {
        (_, _) if rest.is_empty() => wrong(),
        ("volume", _) => Ok(Source::Volume(rest.into())),
        ("host", _) => Ok(Source::Host(rest.into())),
        ("9p", Some(rest)) => {
            let (address, aname) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let aname = if aname == "/" { "" } else { aname };
            Ok(Source::NineP { address: self::address(address)?, aname: self::aname(aname)? })
        }
        ("9p+unix", _) => {
            let (path, aname) = rest.split_once('!').unwrap_or((rest, ""));
            Ok(Source::NinePUnix { path: socket(path)?, aname: self::aname(aname)? })
        }
        (_, _) => wrong(),
    }
}

/// Parses the `HOST:PORT` of a server, with the default port if there is none.
fn address(text: &str) -> Result<String, String> {
    let (host, port) = match text.rfind(']').filter(|_| text.starts_with('[')) {
        Some(end) => {
            let (host, rest) = text.split_at(end + 1);
            (host, (!rest.is_empty()).then(|| rest.strip_prefix(':').unwrap_or(rest)))
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(format!("`{text}` has no host; use HOST or HOST:PORT"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            let brackets =
                if port.contains(':') { "; IPv6 addresses stand in brackets" } else { "" };
            format!("`{port}` in `{text}` is no port; ports are 1 to 65535{brackets}")
        })?,
    };
    Ok(format!("{host}:{port}"))
}

/// Checks the path of a Unix socket.
fn socket(path: &str) -> Result<String, String> {
    match path.len() {
        0 => Err("the socket path is missing; use 9p+unix:PATH or 9p+unix:PATH!ANAME".into()),
        length if length > SOCKET_MAX => {
            Err(format!("`{path}`: the path of a socket has at most {SOCKET_MAX} bytes"))
        }
        _fits => Ok(path.into()),
    }
}

/// Checks an attach name.
fn aname(text: &str) -> Result<String, String> {
    if text.len() > ANAME_MAX {
        return Err(format!("the attach name has at most {ANAME_MAX} bytes"));
    }
    // Clients act there as this server's user, who may administer it.
    if text.split('/').any(|name| name == ".upcall") {
        return Err("clients of this server may not send commands to other servers".into());
    }
    Ok(text.into())
}
