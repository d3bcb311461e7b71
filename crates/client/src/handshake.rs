//! Connection setup: protocol, message size and user.

use crate::error::AS_USER;
use crate::line::{Dialect, Line};
use crate::reader::Reader;
use crate::socket::Socket;
use crate::tree::{Fid, Tree, only};
use crate::{Address, Error, Options};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, NO_UID, Rmessage, Tmessage};

/// Minimum message size for every message.
const MSIZE_MIN: u32 = 512;

/// Maximum message size that can be requested.
const MSIZE_MAX: u32 = 16 << 20;

/// Maximum message before a size is negotiated.
const NEW_SIZE_MAX: usize = 8192;

/// Timeout of the first version proposal if there is a fallback: some servers never reply to a
/// version that they do not know (go9p).
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

impl Dialect {
    /// Returns its name in `Tversion`.
    pub fn version(self) -> &'static str {
        match self {
            Dialect::Plan9 => "9P2000",
            Dialect::Linux => "9P2000.L",
        }
    }
}

/// Connects with a protocol that the server supports.
pub(crate) fn connect(address: &Address, options: &Options) -> Result<Arc<Line>, Error> {
    let wanted = options.dialect.unwrap_or(Dialect::Linux);
    let timeout = match options.dialect {
        None => options.deadline.min(FIRST_PATIENCE),
        Some(_) => options.deadline,
    };
    let first = greet(address, options, wanted, timeout);
    match (first, options.dialect) {
        (Ok(Answer::Agreed(line)), _) => Ok(line),
        (Err(error), None)
            if !matches!(error, Error::Disconnected { .. } | Error::Silent { .. }) =>
        {
            Err(error)
        }
        // After any reply other than an agreement, the protocol state is undefined (version(5)),
        // and some servers close the connection or never reply: a new connection works for all of
        // them.
        (Ok(Answer::Other(_)) | Err(_), None) => {
            match greet(address, options, Dialect::Plan9, options.deadline)? {
                Answer::Agreed(line) => Ok(line),
                Answer::Other(said) => Err(no_agreement(address, &said)),
            }
        }
        (Ok(Answer::Other(said)), Some(_)) => Err(no_agreement(address, &said)),
        (Err(error), Some(_)) => Err(error),
    }
}

fn no_agreement(address: &Address, said: &str) -> Error {
    let what = format!("it answers Tversion with '{}'", said.escape_debug());
    Error::Broken { address: address.clone(), what }
}

enum Answer {
    Agreed(Arc<Line>),
    Other(String),
}

fn greet(
    address: &Address,
    options: &Options,
    wanted: Dialect,
    timeout: Duration,
) -> Result<Answer, Error> {
    let socket = Socket::connect(address, options.deadline)?;
    let mut reader = Reader::new(NEW_SIZE_MAX);
    let msize = options.msize.clamp(MSIZE_MIN, MSIZE_MAX);
    let reply = ask(&socket, &mut reader, msize, wanted, timeout)?;
    let (agreed, said) = match reply {
        Ok(reply) => reply,
        Err(said) => return Ok(Answer::Other(said)),
    };
    let known = [wanted, Dialect::Plan9].into_iter().find(|known| known.version() == said);
    let Some(dialect) = known else { return Ok(Answer::Other(said)) };
    if !(MSIZE_MIN..=msize).contains(&agreed) {
        let what =
            format!("it proposed a message size of {agreed} bytes after {msize} were offered");
        return Err(Error::Broken { address: address.clone(), what });
    }
    let line = Line::new(socket, reader, (dialect, agreed), options.deadline)?;
    Ok(Answer::Agreed(Arc::new(line)))
}

/// Sends `Tversion`. Returns the message size and version, or a description of any other reply.
fn ask(
    socket: &Socket,
    reader: &mut Reader,
    msize: u32,
    wanted: Dialect,
    deadline: Duration,
) -> Result<Result<(u32, String), String>, Error> {
    let address = &socket.address;
    let lost = |cause| Error::Disconnected { address: address.clone(), cause: Arc::new(cause) };
    let broken = |what: String| Error::Broken { address: address.clone(), what };
    let mut bytes = Vec::new();
    let version = wanted.version().as_bytes();
    Tmessage::Version { msize, version }.encode(NO_TAG, &mut bytes);
    // A new socket has room for so few bytes.
    let count = socket.write(&[IoSlice::new(&bytes)]).map_err(lost)?;
    if count < bytes.len() {
        return Err(lost(io::Error::other("it takes nothing")));
    }
    let message = loop {
        if let Some(message) = reader.take().map_err(broken)? {
            break message;
        }
        match reader.receive(socket) {
            Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let ready = socket.wait((true, false), None, deadline).map_err(lost)?;
                if ready.nothing() {
                    return Err(Error::Silent { address: address.clone(), waited: deadline });
                }
            }
            Err(error) => return Err(lost(error)),
        }
    };
    match Rmessage::decode(message.bytes()) {
        Ok((NO_TAG, Rmessage::Version { msize, version })) => {
            Ok(Ok((msize, String::from_utf8_lossy(version).into_owned())))
        }
        Ok((_, Rmessage::Error { ename })) => Ok(Err(String::from_utf8_lossy(ename).into_owned())),
        Ok((_, Rmessage::Lerror { ecode })) => Ok(Err(format!("error {ecode}"))),
        Ok((_, _)) => Err(broken("the answer to its first message is another one".to_string())),
        Err(error) => Err(broken(format!("the answer to its first message: {error}"))),
    }
}

/// Sends `Tattach`, for the tree as seen by this user.
pub(crate) fn attach(line: Arc<Line>, options: &Options) -> Result<Tree, Error> {
    let own = rustix::process::getuid().as_raw();
    let uid = match (options.uid, &options.user) {
        (Some(uid), _) => uid,
        (None, Some(_)) => NO_UID,
        (None, None) => own,
    };
    let name = options.user.clone().or_else(|| match line.dialect {
        Dialect::Linux => None,
        Dialect::Plan9 => std::env::var("USER").ok().filter(|name| !name.is_empty()),
    });
    let uname = name.unwrap_or_else(|| match line.dialect {
        Dialect::Linux => String::new(),
        Dialect::Plan9 => uid.to_string(),
    });
    let uid = (line.dialect == Dialect::Linux).then_some(uid);
    let (uname, aname) = (uname.as_bytes(), options.aname.as_bytes());
    let fid = line.new_fid()?;
    let message = Tmessage::Attach { fid, afid: NO_FID, uname, aname, uid };
    let attached = line.call(&message, only!(Rmessage::Attach { qid } => qid));
    let qid = attached.map_err(|error| match &options.aname[..] {
        // The root always exists.
        "" if error.is_not_found() && !uname.is_empty() => {
            error.of(AS_USER, OsStr::from_bytes(uname).as_ref())
        }
        "" => error.of("attach to", "/".as_ref()),
        place => error.of("attach to", place.as_ref()),
    })?;
    Ok(Tree { root: Fid::new(line, fid), qid })
}
