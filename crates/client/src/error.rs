//! Errors: the operation, the cause and the next step.

use crate::Address;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Client error.
#[derive(Clone, Debug)]
pub enum Error {
    /// The connection could not be established.
    Unreachable {
        /// Server address.
        address: Address,
        /// Cause.
        cause: Arc<io::Error>,
    },
    /// The connection was lost.
    Disconnected {
        /// Server address.
        address: Address,
        /// Cause.
        cause: Arc<io::Error>,
    },
    /// The server sent no data within the deadline.
    Silent {
        /// Server address.
        address: Address,
        /// Time waited.
        waited: Duration,
    },
    /// The server violated the protocol. The connection is closed.
    Broken {
        /// Server address.
        address: Address,
        /// Violation.
        what: String,
    },
    /// The server rejected a request.
    Refused {
        /// Attempted operation.
        doing: &'static str,
        /// File of the operation.
        path: PathBuf,
        /// The server's error.
        refusal: Refusal,
    },
    /// The path cannot be sent to a server.
    BadPath {
        /// Path.
        path: PathBuf,
        /// Reason.
        why: &'static str,
    },
    /// The operation does not exist in 9P2000, which this server uses.
    Unsupported {
        /// Attempted operation.
        doing: &'static str,
        /// File of the operation.
        path: PathBuf,
    },
    /// Cancelled by [`crate::Client::cancel`].
    Cancelled,
    /// The connection has the protocol's maximum number of outstanding requests.
    TooMany,
}

/// Error reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Linux errno; 0 if unknown. 9P2000 has only texts, of which those of common servers are
    /// recognized.
    pub errno: u32,
    /// The server's text, with 9P2000.
    pub sentence: Option<String>,
    /// User as which the client attached, for permission errors.
    pub(crate) user: Option<String>,
}

const EPERM: u32 = 1;
const ENOENT: u32 = 2;
const EACCES: u32 = 13;
const EEXIST: u32 = 17;
const EXDEV: u32 = 18;
const ENOTDIR: u32 = 20;
const EISDIR: u32 = 21;
const ENOSPC: u32 = 28;
const EROFS: u32 = 30;
const ENOSYS: u32 = 38;
const ENOTEMPTY: u32 = 39;
const ELOOP: u32 = 40;
const ENODATA: u32 = 61;
const EOPNOTSUPP: u32 = 95;
const EDQUOT: u32 = 122;

/// Fragments of 9P2000 servers' texts with their errno; the first match counts.
const SENTENCES: &[(&str, u32)] = &[
    ("not a directory", ENOTDIR),
    ("is a directory", EISDIR),
    ("not empty", ENOTEMPTY),
    ("already exists", EEXIST),
    ("file exists", EEXIST),
    ("does not exist", ENOENT),
    ("not found", ENOENT),
    ("no such file", ENOENT),
    ("no such path", ENOENT),
    ("permission denied", EACCES),
    ("not permitted", EPERM),
    ("read-only", EROFS),
    ("read only", EROFS),
    ("no space", ENOSPC),
    ("file system full", ENOSPC),
    ("quota", EDQUOT),
    ("not supported", EOPNOTSUPP),
];

/// Operation that servers reject for unknown users.
pub(crate) const AS_USER: &str = "attach as user";

/// Operations on files that do not exist yet: what is missing is their directory.
pub(crate) const CREATE: &str = "create";
pub(crate) const MAKE_DIR: &str = "make the directory";

/// Reason for refusing a path that ends with no name.
pub(crate) const NAMELESS: &str = "it has no name of its own";

/// Failed lookup of a host, as the cause of [`Error::Unreachable`].
#[derive(Debug)]
pub(crate) struct UnknownHost(pub(crate) io::Error);

impl fmt::Display for UnknownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UnknownHost {}

impl From<UnknownHost> for io::Error {
    fn from(error: UnknownHost) -> io::Error {
        io::Error::new(error.0.kind(), error)
    }
}

/// Obstacle on the way to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The name of its host cannot be resolved.
    Name,
    /// The permissions of its unix socket.
    Permission,
    Other,
}

impl Obstacle {
    fn of(address: &Address, cause: &io::Error) -> Obstacle {
        if cause.get_ref().is_some_and(|inner| inner.is::<UnknownHost>()) {
            return Obstacle::Name;
        }
        let is_denied = cause.kind() == io::ErrorKind::PermissionDenied;
        match address {
            Address::Unix(_) if is_denied => Obstacle::Permission,
            Address::Unix(_) | Address::Tcp { .. } => Obstacle::Other,
        }
    }

    fn step(self) -> &'static str {
        match self {
            Obstacle::Name => "check its name",
            Obstacle::Permission => {
                "act as a user who may write to the socket, or ask its owner for permission"
            }
            Obstacle::Other => "check whether a server listens there",
        }
    }
}

impl Refusal {
    /// Creates a refusal from a Linux errno.
    pub(crate) fn number(errno: u32) -> Refusal {
        Refusal { errno, sentence: None, user: None }
    }

    /// Creates a refusal from the text of a 9P2000 server.
    pub(crate) fn words(words: &[u8]) -> Refusal {
        let sentence = String::from_utf8_lossy(words).into_owned();
        let lower = sentence.to_lowercase();
        let known = SENTENCES.iter().find(|(part, _)| lower.contains(part));
        let errno = known.map_or(0, |(_, errno)| *errno);
        Refusal { errno, sentence: Some(sentence), user: None }
    }

    /// Adds the user as which the client attached to a permission error.
    pub(crate) fn of_user(self, user: Option<&String>) -> Refusal {
        let user = user.filter(|_| [EPERM, EACCES].contains(&self.errno)).cloned();
        Refusal { user, ..self }
    }

    fn step(&self) -> &'static str {
        match self.errno {
            ENOENT => "look for its name in the directory above",
            EPERM | EACCES if self.user.is_some() => {
                "attach as a user who may, or ask its owner; the server may treat this user as \
                 another one"
            }
            EPERM | EACCES => "attach as a user who may, or ask its owner",
            EEXIST => "remove it first, or choose another name",
            EXDEV => "copy it there and remove it here, with 'upcall cp' and 'upcall rm'",
            ENOTDIR => "name a directory there",
            EISDIR => "name a file, or take the whole directory",
            ENOTEMPTY => "remove its contents first",
            ENOSPC => "make room on the server",
            EDQUOT => "remove files there, or ask for a larger quota",
            ENODATA => "look at the name of the attribute",
            EROFS => "the file system is read-only; choose another place",
            ELOOP => "name the file by a path with fewer links",
            ENOSYS | EOPNOTSUPP => "this server cannot do it; find another way",
            _other => "check the server and its log",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sentence {
            // The server's text may be printed on terminals.
            Some(words) => write!(f, "{}", words.escape_debug()),
            None => {
                let text = io::Error::from_raw_os_error(self.errno.cast_signed()).to_string();
                f.write_str(text.split(" (os error").next().unwrap_or_default())
            }
        }
    }
}

impl Error {
    /// Returns the errno of a refusal, also as derived from its text; 0 if unknown.
    pub fn errno(&self) -> u32 {
        match self {
            Error::Refused { refusal, .. } => refusal.errno,
            Error::Unsupported { .. } => EOPNOTSUPP,
            Error::Unreachable { .. }
            | Error::Disconnected { .. }
            | Error::Silent { .. }
            | Error::Broken { .. }
            | Error::BadPath { .. }
            | Error::Cancelled
            | Error::TooMany => 0,
        }
    }

    /// Reports whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == ENOENT
    }

    /// Reports whether the file has no such extended attribute.
    pub fn is_no_attribute(&self) -> bool {
        self.errno() == ENODATA
    }

    /// Reports whether the operation is not permitted to this user.
    pub fn is_not_permitted(&self) -> bool {
        self.errno() == EPERM
    }

    /// Reports whether permission is denied.
    pub fn is_denied(&self) -> bool {
        self.errno() == EACCES
    }

    /// Reports whether the file already exists.
    pub fn is_exists(&self) -> bool {
        self.errno() == EEXIST
    }

    /// Reports whether the file may be a directory; some servers report that as not permitted.
    pub(crate) fn may_be_directory(&self) -> bool {
        [EISDIR, EPERM].contains(&self.errno())
    }

    /// Reports whether the server does not support the message.
    pub(crate) fn is_unknown(&self) -> bool {
        [EOPNOTSUPP, ENOSYS].contains(&self.errno())
    }

    /// Reports whether the connection is unusable from now on.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::Unreachable { .. }
            | Error::Disconnected { .. }
            | Error::Silent { .. }
            | Error::Broken { .. }
            | Error::Cancelled => true,
            Error::Refused { .. }
            | Error::BadPath { .. }
            | Error::Unsupported { .. }
            | Error::TooMany => false,
        }
    }

    /// Returns the recommended next step.
    pub fn next_step(&self) -> &'static str {
        match self {
            Error::Unreachable { address, cause } => Obstacle::of(address, cause).step(),
            Error::Disconnected { .. } => "check whether the server still runs, then try again",
            Error::Silent { .. } => "check whether the server hangs, then try again",
            Error::Broken { .. } => "ask a server that speaks 9P2000.L or 9P2000",
            Error::Refused { doing, .. } if *doing == AS_USER => "name a user that it knows",
            Error::Refused {
                doing: CREATE | MAKE_DIR,
                refusal: Refusal { errno: ENOENT, .. },
                ..
            } => "make the directory that is to contain it first",
            Error::Refused { refusal, .. } => refusal.step(),
            Error::BadPath { why: NAMELESS, .. } => "write the path with its last name",
            Error::BadPath { .. } => "name another one",
            Error::Unsupported { doing, .. } if *doing != "move" => "use a server of 9P2000.L",
            Error::Unsupported { .. } => "copy and remove instead, or use a server of 9P2000.L",
            Error::Cancelled => "start again when you like",
            Error::TooMany => "ask for less at once",
        }
    }

    /// Creates a refusal whose file is set later.
    pub(crate) fn refused(refusal: Refusal) -> Error {
        Error::Refused { doing: "reach", path: PathBuf::new(), refusal }
    }

    /// Creates a path error whose path is set later.
    pub(crate) fn bad_path(why: &'static str) -> Error {
        Error::BadPath { path: PathBuf::new(), why }
    }

    pub(crate) fn not_found() -> Error {
        Error::refused(Refusal::number(ENOENT))
    }

    pub(crate) fn not_directory() -> Error {
        Error::refused(Refusal::number(ENOTDIR))
    }

    pub(crate) fn too_many_links() -> Error {
        Error::refused(Refusal::number(ELOOP))
    }

    /// Sets the operation and the file, unless already set.
    pub(crate) fn of(mut self, tried: &'static str, file: &Path) -> Error {
        match &mut self {
            Error::Refused { path, doing, .. } if path.as_os_str().is_empty() => {
                (*doing, *path) = (tried, shown(file));
            }
            Error::BadPath { path, .. } if path.as_os_str().is_empty() => *path = shown(file),
            Error::Refused { .. }
            | Error::BadPath { .. }
            | Error::Unreachable { .. }
            | Error::Disconnected { .. }
            | Error::Silent { .. }
            | Error::Broken { .. }
            | Error::Unsupported { .. }
            | Error::Cancelled
            | Error::TooMany => {}
        }
        self
    }
}

/// Returns `/` for the root, so that no empty path is displayed.
fn shown(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from("/") } else { path.to_path_buf() }
}

fn unreachable(f: &mut fmt::Formatter<'_>, address: &Address, cause: &io::Error) -> fmt::Result {
    match (Obstacle::of(address, cause), address) {
        (Obstacle::Name, Address::Tcp { host, .. }) => {
            write!(f, "cannot find the host '{host}': {cause}")
        }
        (Obstacle::Permission, _) => {
            let user = rustix::process::geteuid().as_raw();
            write!(f, "cannot reach {address} as user {user}: {cause}")
        }
        (Obstacle::Name | Obstacle::Other, _) => write!(f, "cannot reach {address}: {cause}"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { address, cause } => unreachable(f, address, cause)?,
            Error::Disconnected { address, cause } => {
                write!(f, "the connection with {address} is lost: {cause}")?;
            }
            Error::Silent { address, waited } => {
                write!(f, "{address} has not replied for {} s", waited.as_secs_f32())?;
            }
            Error::Broken { address, what } => write!(f, "{address} breaks the protocol: {what}")?,
            Error::Refused { doing, path, refusal } => {
                write!(f, "cannot {doing} {}", path.display())?;
                if let Some(user) = &refusal.user {
                    write!(f, " as user {}", user.escape_debug())?;
                }
                write!(f, ": {refusal}")?;
            }
            Error::BadPath { path, why } => write!(f, "{}: {why}", path.display())?,
            Error::Unsupported { doing, path } => {
                write!(f, "cannot {doing} {}: 9P2000 has no message for it", path.display())?;
            }
            Error::Cancelled => f.write_str("interrupted")?,
            Error::TooMany => f.write_str("too many requests are in flight")?,
        }
        write!(f, "; {}", self.next_step())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreachable { cause, .. } | Error::Disconnected { cause, .. } => Some(&**cause),
            Error::Silent { .. }
            | Error::Broken { .. }
            | Error::Refused { .. }
            | Error::BadPath { .. }
            | Error::Unsupported { .. }
            | Error::Cancelled
            | Error::TooMany => None,
        }
    }
}

/// Conversion for users of the `std::io` traits. The I/O error contains the original one.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Unreachable { cause, .. } | Error::Disconnected { cause, .. } => cause.kind(),
            Error::Silent { .. } => io::ErrorKind::TimedOut,
            Error::Broken { .. } => io::ErrorKind::InvalidData,
            Error::Refused { refusal, .. } if refusal.errno != 0 => {
                io::Error::from_raw_os_error(refusal.errno.cast_signed()).kind()
            }
            Error::Unsupported { .. } => io::ErrorKind::Unsupported,
            Error::BadPath { .. } => io::ErrorKind::InvalidInput,
            // Not `Interrupted`, which makes loops of the standard library retry.
            Error::Refused { .. } | Error::Cancelled | Error::TooMany => io::ErrorKind::Other,
        };
        let kind = if kind == io::ErrorKind::Interrupted { io::ErrorKind::Other } else { kind };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_cause_and_next_step() {
        let error = Error::refused(Refusal::number(2)).of("open", Path::new("/a"));
        assert_eq!(
            error.to_string(),
            "cannot open /a: No such file or directory; look for its name in the directory above"
        );
        let create = Error::refused(Refusal::number(2)).of(CREATE, Path::new("/no/a"));
        assert_eq!(
            create.to_string(),
            "cannot create /no/a: No such file or directory; make the directory that is to \
             contain it first"
        );
        let error = error.of("read", Path::new("/b"));
        assert!(error.to_string().contains("open /a"), "{error}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn permission_errors_name_the_user() {
        let user = "1000".to_string();
        let refused = |errno| {
            let refusal = Refusal::number(errno).of_user(Some(&user));
            Error::refused(refusal).of("open", Path::new("/a")).to_string()
        };
        assert_eq!(
            refused(EACCES),
            "cannot open /a as user 1000: Permission denied; attach as a user who may, or ask its \
             owner; the server may treat this user as another one"
        );
        assert!(refused(EPERM).starts_with("cannot open /a as user 1000: "));
        assert!(refused(ENOENT).starts_with("cannot open /a: "));
    }

    #[test]
    fn unreachable_servers_have_the_next_step_of_their_cause() {
        let printed = |address: &str, cause: io::Error| {
            let address = address.parse().expect("it is one");
            Error::Unreachable { address, cause: Arc::new(cause) }.to_string()
        };
        let unknown = UnknownHost(io::Error::other("Name or service not known")).into();
        assert_eq!(
            printed("nas.invalid:5640", unknown),
            "cannot find the host 'nas.invalid': Name or service not known; check its name"
        );
        let denied = || io::Error::from_raw_os_error(13);
        let (user, socket) = (rustix::process::geteuid().as_raw(), printed("unix:/s", denied()));
        assert!(socket.starts_with(&format!("cannot reach unix:/s as user {user}: ")), "{socket}");
        assert!(socket.ends_with("ask its owner for permission"), "{socket}");
        let port = printed("127.0.0.1:1", denied());
        assert!(port.ends_with("; check whether a server listens there"), "{port}");
    }

    #[test]
    fn nameless_paths_have_one_next_step() {
        let error = Error::bad_path(NAMELESS).of("remove", Path::new("/"));
        assert_eq!(
            error.to_string(),
            "/: it has no name of its own; write the path with its last name"
        );
    }

    #[test]
    fn sentences_of_plan_9_are_understood() {
        for (words, errno) in [
            ("file does not exist", 2),
            ("'x' directory entry not found", 2),
            ("No such path", 2),
            ("permission denied", 13),
            ("file already exists", 17),
            ("phase error", 0),
        ] {
            assert_eq!(Refusal::words(words.as_bytes()).errno, errno, "{words}");
        }
    }
}
