//! Connection setup: protocol, message size and user.

use crate::error::AS_USER;
use crate::line::Line;
use crate::message::Message;
use crate::reader::Reader;
use crate::socket::Socket;
use crate::tree::{Fid, Tree, only};
use crate::{Address, Error, Options};
use session::{Agreement, Answer, CALLS_MAX, Dialect, Session, Violation};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;
use wire::ninep::{NO_UID, Rmessage};

/// Minimum message size for every message.
const MSIZE_MIN: u32 = 512;

/// Maximum message size that can be requested.
const MSIZE_MAX: u32 = 16 << 20;

/// Timeout of the first version proposal if there is a fallback: some servers never reply to a
/// version that they do not know (go9p).
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// Connects with a protocol that the server supports.
pub(crate) fn connect(address: &Address, options: &Options) -> Result<Arc<Line>, Error> {
    let wanted = options.dialect.unwrap_or(Dialect::Linux);
    let timeout = match options.dialect {
        None => options.deadline.min(FIRST_PATIENCE),
        Some(_) => options.deadline,
    };
    let first = greet(address, options, wanted, timeout);
    match (first, options.dialect) {
        (Ok(Ok(line)), _) => Ok(line),
        (Err(error), None)
            if !matches!(error, Error::Disconnected { .. } | Error::Silent { .. }) =>
        {
            Err(error)
        }
        // After any reply other than an agreement, the protocol state is undefined (version(5)),
        // and some servers close the connection or never reply: a new connection works for all of
        // them.
        (Ok(Err(_)) | Err(_), None) => greet(address, options, Dialect::Plan9, options.deadline)?
            .map_err(|reason| no_agreement(address, &reason)),
        (Ok(Err(reason)), Some(_)) => Err(no_agreement(address, &reason)),
        (Err(error), Some(_)) => Err(error),
    }
}

fn no_agreement(address: &Address, reason: &str) -> Error {
    let what = format!("it answers Tversion with '{}'", reason.escape_debug());
    Error::Broken { address: address.clone(), what }
}

/// Offers a version on a new connection. Returns the connection after an agreement, or a
/// description of any other reply.
fn greet(
    address: &Address,
    options: &Options,
    wanted: Dialect,
    timeout: Duration,
) -> Result<Result<Arc<Line>, String>, Error> {
    let socket = Socket::connect(address, options.deadline)?;
    let mut session = Session::new(CALLS_MAX);
    let offer = session.offer(wanted, MSIZE_MIN..=options.msize.clamp(MSIZE_MIN, MSIZE_MAX));
    let mut reader = Reader::new(session.size_max());
    let message = exchange(&socket, &mut reader, &offer, timeout)?;
    let (agreement, reply) =
        session.receive(message.bytes()).map_err(|violation| broken(address, violation))?;
    if let Answer::Version(Agreement::Agreed(..)) = agreement {
        let line = Line::new(socket, reader, session, options.deadline)?;
        return Ok(Ok(Arc::new(line)));
    }
    if let Rmessage::Version { version: text, .. } | Rmessage::Error { ename: text } = reply {
        return Ok(Err(String::from_utf8_lossy(text).into_owned()));
    }
    let Rmessage::Lerror { ecode } = reply else { unreachable!("{reply:?} answers no version") };
    Ok(Err(format!("error {ecode}")))
}

fn broken(address: &Address, violation: Violation) -> Error {
    Error::Broken { address: address.clone(), what: violation.to_string() }
}

/// Sends `Tversion` and receives a message.
fn exchange(
    socket: &Socket,
    reader: &mut Reader,
    offer: &[u8],
    deadline: Duration,
) -> Result<Message, Error> {
    let address = &socket.address;
    let lost = |cause| Error::Disconnected { address: address.clone(), cause: Arc::new(cause) };
    // A new socket has room for so few bytes.
    let count = socket.write(&[IoSlice::new(offer)]).map_err(lost)?;
    if count < offer.len() {
        return Err(lost(io::Error::other("it takes nothing")));
    }
    loop {
        if let Some(message) = reader.take().map_err(|violation| broken(address, violation))? {
            return Ok(message);
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
    line.set_user(if uname.is_empty() { uid.to_string() } else { uname.clone() });
    let (uname, aname) = (uname.as_bytes(), options.aname.as_bytes());
    let fid = line.new_fid()?;
    let message = session::attach(line.dialect, fid, (uname, uid), aname);
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
