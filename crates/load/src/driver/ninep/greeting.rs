//! Connection setup before a run: version, attach, walks and opens, one after the other.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a linear handshake: every other reply is an error"
)]

use super::fid_of;
use crate::driver::server::{Server, Stream, numbered};
use session::{Agreement, Answer, CALLS_MAX, Dialect, Session, Violation, attach, message_size};
use std::io::{self, Read, Write};
use wire::ninep::{Names, Rmessage, Tmessage};

/// Requested message size in bytes: 1 MiB of data and its overhead.
pub(super) const SIZE: u32 = (1 << 20) + super::OVERHEAD;

/// Minimum usable message size in bytes.
const SIZE_MIN: u32 = 1025;

/// Maximum names in a walk.
const NAMES_MAX: usize = 16;

/// Fid of the root.
const ROOT: u32 = 0;

/// Linux open flag.
const O_RDWR: u32 = 2;

/// Open modes of 9P2000.
const OREAD: u8 = 0;
const ORDWR: u8 = 2;

/// Connection after version negotiation and attach.
pub(super) struct AttachedConnection {
    stream: Stream,
    session: Session<usize>,
    reply: Vec<u8>,
}

/// Reply of a server: the number of names walked, or an error's text.
type ServerReply = Result<usize, String>;

impl AttachedConnection {
    /// Connects and attaches to a tree, with 9P2000.L, or 9P2000 if the server knows only that.
    ///
    /// # Errors
    /// If the server is unreachable or does not speak 9P.
    pub(super) fn greet(server: &Server, aname: &str) -> io::Result<AttachedConnection> {
        // After a rejected version the connection may be unusable.
        let greeted = match AttachedConnection::offer(server, Dialect::Linux)? {
            Some(greeted) => Some(greeted),
            None => AttachedConnection::offer(server, Dialect::Plan9)?,
        };
        let unknown = || io::Error::other(format!("{server} does not speak 9P"));
        let mut greeted = greeted.ok_or_else(unknown)?;
        let (dialect, uid) = (greeted.session.dialect(), rustix::process::getuid().as_raw());
        let name = uid.to_string();
        let uname: &[u8] = if dialect == Dialect::Linux { b"" } else { name.as_bytes() };
        let attach = attach(dialect, greeted.new_fid(), (uname, uid), aname.as_bytes());
        greeted.must("attach to", if aname.is_empty() { "/" } else { aname }, &attach)?;
        Ok(greeted)
    }

    /// Connects and offers a version; `None` if the server does not accept it.
    fn offer(server: &Server, dialect: Dialect) -> io::Result<Option<AttachedConnection>> {
        let mut session = Session::new(CALLS_MAX);
        let offer = session.offer(dialect, SIZE_MIN..=SIZE);
        let (stream, reply) = (server.connect()?, Vec::new());
        let mut greeted = AttachedConnection { stream, session, reply };
        let (answer, _) = greeted.exchange(&offer)?;
        Ok(matches!(answer, Answer::Version(Agreement::Agreed(..))).then_some(greeted))
    }

    fn new_fid(&mut self) -> u32 {
        self.session.new_fid().expect("there are fewer files than fids")
    }

    /// Opens files 0 to `files` at a path with a number in it.
    ///
    /// # Errors
    /// The server's error.
    pub(super) fn open(&mut self, path: &str, files: u32, writes: bool) -> io::Result<()> {
        (0..files.max(1)).try_for_each(|file| self.open_one(&numbered(path, file), file, writes))
    }

    fn open_one(&mut self, path: &str, file: u32, writes: bool) -> io::Result<()> {
        let fid = self.new_fid();
        assert_eq!(fid, fid_of(file), "fids follow that of the root");
        let names: Vec<&[u8]> = components(path).collect();
        self.walk(fid, &names)?.map_err(|why| refused("walk to", path, &why))?;
        let open = match (self.session.dialect(), writes) {
            (Dialect::Linux, true) => Tmessage::Lopen { fid, flags: O_RDWR },
            (Dialect::Linux, false) => Tmessage::Lopen { fid, flags: 0 },
            (Dialect::Plan9, true) => Tmessage::Open { fid, mode: ORDWR },
            (Dialect::Plan9, false) => Tmessage::Open { fid, mode: OREAD },
        };
        self.must("open", path, &open)
    }

    /// Walks from the root; the fid exists only after a complete walk.
    fn walk(&mut self, fid: u32, names: &[&[u8]]) -> io::Result<ServerReply> {
        let mut from = ROOT;
        let mut chunks: Vec<&[&[u8]]> = names.chunks(NAMES_MAX).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        for names in chunks {
            let list = Names::new(names).expect("there are few enough");
            match self.call(&Tmessage::Walk { fid: from, newfid: fid, names: list })? {
                Ok(count) if count == names.len() => from = fid,
                Ok(_) => return Ok(Err("it does not exist".to_string())),
                refused @ Err(_) => return Ok(refused),
            }
        }
        Ok(Ok(names.len()))
    }

    /// Returns the connection and its session.
    pub(super) fn into_parts(self) -> (Stream, Session<usize>) {
        (self.stream, self.session)
    }

    fn must(&mut self, what: &str, path: &str, message: &Tmessage<'_>) -> io::Result<()> {
        self.call(message)?.map(|_| ()).map_err(|why| refused(what, path, &why))
    }

    /// Sends a message and receives the reply.
    fn exchange(&mut self, message: &[u8]) -> io::Result<(Answer<usize>, Rmessage<'_>)> {
        self.stream.write_all(message)?;
        self.reply.resize(4, 0);
        self.stream.read_exact(&mut self.reply)?;
        let size = message_size(&self.reply, self.session.size_max()).map_err(no_ninep)?;
        self.reply.resize(size.expect("its four bytes are there"), 0);
        self.stream.read_exact(&mut self.reply[4..])?;
        self.session.receive(&self.reply).map_err(no_ninep)
    }

    /// Sends a request and waits for the reply.
    fn call(&mut self, message: &Tmessage<'_>) -> io::Result<ServerReply> {
        let mut bytes = Vec::new();
        self.session.send(message, 0, &mut bytes).expect("no other is outstanding");
        let (_, reply) = self.exchange(&bytes)?;
        Ok(match reply {
            Rmessage::Lerror { ecode } => {
                let error = io::Error::from_raw_os_error(ecode.cast_signed());
                Err(error.to_string())
            }
            Rmessage::Error { ename } => Err(String::from_utf8_lossy(ename).into_owned()),
            Rmessage::Walk { qids } => Ok(qids.as_slice().len()),
            _other => Ok(0),
        })
    }
}

fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes)
}

fn no_ninep(violation: Violation) -> io::Error {
    io::Error::other(format!("the server does not speak 9P: it sends {violation}"))
}

fn refused(what: &str, path: &str, why: &str) -> io::Error {
    io::Error::other(format!("the server refuses to {what} {path}: {why}"))
}
