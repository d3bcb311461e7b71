//! Connection setup before a run: version, attach, walks and opens, one after the other.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "straight-line talk: what is no answer to the question is an error, whatever it is"
)]

use super::fid_of;
use crate::driver::server::{Server, Stream, numbered};
use std::io::{self, Read, Write};
use wire::ninep::{NO_FID, NO_TAG, Names, Rmessage, Tmessage, frame_size};

/// Requested message size in bytes: 1 MiB of data and its overhead.
pub(super) const SIZE: u32 = (1 << 20) + super::OVERHEAD;

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
    size_max: u32,
    linux: bool,
    reply: Vec<u8>,
}

/// Reply of a server.
enum ServerReply {
    /// Error, with its text.
    No(String),
    /// Success, with the number of names walked.
    Yes(usize),
    /// Version reply: message size and version.
    Version(u32, String),
}

impl AttachedConnection {
    /// Connects and attaches to a tree, with 9P2000.L, or 9P2000 if the server knows only that.
    ///
    /// # Errors
    /// If the server is unreachable or does not speak 9P.
    pub(super) fn greet(server: &Server, aname: &str) -> io::Result<AttachedConnection> {
        let stream = server.connect()?;
        let mut greeted =
            AttachedConnection { stream, size_max: SIZE, linux: true, reply: Vec::new() };
        let version = Tmessage::Version { msize: SIZE, version: b"9P2000.L" };
        match greeted.call(NO_TAG, &version)? {
            ServerReply::Version(size, version) if version == "9P2000.L" && size > 1024 => {
                greeted.size_max = size.min(SIZE);
            }
            // After a rejected version the connection may be unusable.
            _other => greeted = AttachedConnection::greet_plainly(server)?,
        }
        let uid = rustix::process::getuid().as_raw();
        let name = uid.to_string();
        let uname: &[u8] = if greeted.linux { b"" } else { name.as_bytes() };
        let uid = greeted.linux.then_some(uid);
        let attach =
            Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname: aname.as_bytes(), uid };
        greeted.must("attach to", if aname.is_empty() { "/" } else { aname }, &attach)?;
        Ok(greeted)
    }

    fn greet_plainly(server: &Server) -> io::Result<AttachedConnection> {
        let stream = server.connect()?;
        let mut greeted =
            AttachedConnection { stream, size_max: SIZE, linux: false, reply: Vec::new() };
        let version = Tmessage::Version { msize: SIZE, version: b"9P2000" };
        match greeted.call(NO_TAG, &version)? {
            ServerReply::Version(size, version) if version == "9P2000" && size > 1024 => {
                greeted.size_max = size.min(SIZE);
                Ok(greeted)
            }
            _other => Err(io::Error::other(format!("{server} does not speak 9P"))),
        }
    }

    /// Opens files 0 to `files` at a path with a number in it.
    ///
    /// # Errors
    /// The server's error.
    pub(super) fn open(&mut self, path: &str, files: u32, writes: bool) -> io::Result<()> {
        (0..files.max(1)).try_for_each(|file| self.open_one(&numbered(path, file), file, writes))
    }

    fn open_one(&mut self, path: &str, file: u32, writes: bool) -> io::Result<()> {
        let fid = fid_of(file);
        let names: Vec<&[u8]> = components(path).collect();
        match self.walk(fid, &names)? {
            ServerReply::Yes(_) => {}
            ServerReply::No(why) => return Err(refused("walk to", path, &why)),
            ServerReply::Version(..) => {
                return Err(refused("walk to", path, "an answer to another question"));
            }
        }
        let open = match (self.linux, writes) {
            (true, true) => Tmessage::Lopen { fid, flags: O_RDWR },
            (true, false) => Tmessage::Lopen { fid, flags: 0 },
            (false, true) => Tmessage::Open { fid, mode: ORDWR },
            (false, false) => Tmessage::Open { fid, mode: OREAD },
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
            match self.call(0, &Tmessage::Walk { fid: from, newfid: fid, names: list })? {
                ServerReply::Yes(count) if count == names.len() => from = fid,
                ServerReply::Yes(_) => return Ok(ServerReply::No("it does not exist".to_string())),
                said => return Ok(said),
            }
        }
        Ok(ServerReply::Yes(names.len()))
    }

    /// Returns the connection, the maximum message size, and whether it uses 9P2000.L.
    pub(super) fn into_parts(self) -> (Stream, u32, bool) {
        (self.stream, self.size_max, self.linux)
    }

    fn must(&mut self, what: &str, path: &str, message: &Tmessage<'_>) -> io::Result<()> {
        match self.call(0, message)? {
            ServerReply::No(why) => Err(refused(what, path, &why)),
            _other => Ok(()),
        }
    }

    /// Sends a request and waits for the reply.
    fn call(&mut self, tag: u16, message: &Tmessage<'_>) -> io::Result<ServerReply> {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.reply.resize(4, 0);
        self.stream.read_exact(&mut self.reply)?;
        let size = frame_size(&self.reply).unwrap_or(0);
        if size < 7 || size > SIZE as usize {
            return Err(io::Error::other("the server does not speak 9P"));
        }
        self.reply.resize(size, 0);
        self.stream.read_exact(&mut self.reply[4..])?;
        let (_, reply) = Rmessage::decode(&self.reply).map_err(|error| {
            io::Error::other(format!("the server's answer cannot be understood: {error}"))
        })?;
        Ok(match reply {
            Rmessage::Version { msize, version } => {
                ServerReply::Version(msize, String::from_utf8_lossy(version).into_owned())
            }
            Rmessage::Lerror { ecode } => {
                let error = io::Error::from_raw_os_error(ecode.cast_signed());
                ServerReply::No(error.to_string())
            }
            Rmessage::Error { ename } => {
                ServerReply::No(String::from_utf8_lossy(ename).into_owned())
            }
            Rmessage::Walk { qids } => ServerReply::Yes(qids.as_slice().len()),
            _other => ServerReply::Yes(0),
        })
    }
}

fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes)
}

fn refused(what: &str, path: &str, why: &str) -> io::Error {
    io::Error::other(format!("the server refuses to {what} {path}: {why}"))
}
