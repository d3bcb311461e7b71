//! Remote procedure calls on the wire: ONC RPC, version 2 (RFC 5531), over a stream.
//!
//! A record is one message, in fragments: `last[1 bit] length[31 bits] bytes…`. A call is
//! `xid call rpc-version program version procedure credential verifier arguments`; its reply has
//! the same xid. Replies may come in any order.

use crate::xdr::{DecodeError, Reader, Xdr};

/// Size of the mark in front of a fragment, bytes.
pub const MARK_SIZE: usize = 4;

/// Bytes in front of the results of a successful call: mark, xid, type, status, verifier, status.
pub const REPLY_SIZE: usize = MARK_SIZE + 24;

/// Maximum size of a credential or verifier, bytes (RFC 5531, 8.2).
const AUTH_MAX: usize = 400;

/// Maximum number of groups in a credential (RFC 5531, appendix A).
const GROUPS_MAX: usize = 16;

/// Flag of the last fragment of a record.
const LAST: u32 = 1 << 31;

/// Returns the size of the first fragment in `bytes`, without its mark, and whether it is the last
/// one of its record; `None` while the mark is incomplete.
pub fn fragment(bytes: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*bytes.first_chunk()?);
    Some(((mark & !LAST) as usize, mark & LAST != 0))
}

/// Returns the mark of a record in one fragment of this size.
///
/// # Panics
/// If the record has 2 GiB or more.
pub fn mark(size: usize) -> [u8; MARK_SIZE] {
    let size = u32::try_from(size).expect("records are below 2 GiB");
    assert!(size & LAST == 0, "records are below 2 GiB");
    (size | LAST).to_be_bytes()
}

/// Authentication flavour and identity of a caller (RFC 5531, 8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE: anonymous.
    None,
    /// AUTH_SYS: the caller's claim.
    Sys(Sys<'a>),
    /// Another flavour.
    Other(u32),
}

/// The identity claimed in an AUTH_SYS credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sys<'a> {
    /// Number chosen by the client.
    pub stamp: u32,
    /// Name of the client's host.
    pub machine: &'a [u8],
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, at most sixteen.
    pub gids: Vec<u32>,
}

impl<'a> Sys<'a> {
    fn get(reader: &mut Reader<'a>) -> Result<Sys<'a>, DecodeError> {
        let (stamp, machine) = (reader.get()?, reader.opaque(255)?);
        let (uid, gid, count) = (reader.get()?, reader.get()?, reader.get::<u32>()? as usize);
        if count > GROUPS_MAX {
            return Err(DecodeError::Long);
        }
        let gids = (0..count).map(|_| reader.get()).collect::<Result<_, _>>()?;
        Ok(Sys { stamp, machine, uid, gid, gids })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.stamp.put(out);
        self.machine.put(out);
        self.uid.put(out);
        self.gid.put(out);
        u32::try_from(self.gids.len()).expect("at most sixteen").put(out);
        self.gids.iter().for_each(|gid| gid.put(out));
    }
}

/// AUTH_NONE and AUTH_SYS.
const NONE: u32 = 0;
const SYS: u32 = 1;

impl<'a> Xdr<'a> for Credential<'a> {
    fn get(reader: &mut Reader<'a>) -> Result<Credential<'a>, DecodeError> {
        let (flavour, body) = (reader.get::<u32>()?, reader.opaque(AUTH_MAX)?);
        match flavour {
            NONE => Ok(Credential::None),
            SYS => {
                let mut body = Reader::new(body);
                let sys = Sys::get(&mut body)?;
                body.end()?;
                Ok(Credential::Sys(sys))
            }
            other => Ok(Credential::Other(other)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let flavour = match self {
            Credential::None => NONE,
            Credential::Sys(sys) => {
                sys.put(&mut body);
                SYS
            }
            Credential::Other(other) => *other,
        };
        flavour.put(out);
        body.as_slice().put(out);
    }
}

/// A call without its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Number chosen by the client, to recognise the reply.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of the program.
    pub procedure: u32,
    /// Identity of the caller.
    pub credential: Credential<'a>,
}

/// Reason why a record is not a call that can be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No call: there is nothing to reply to.
    NoCall,
    /// A call of this xid with another version of RPC.
    RpcVersion(u32),
    /// A call of this xid with a credential or verifier that cannot be decoded.
    Credential(u32),
}

/// Type of a call and of a reply.
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// Version of RPC.
const RPC_VERSION: u32 = 2;

impl<'a> Call<'a> {
    /// Decodes a call; returns it with its arguments.
    ///
    /// # Errors
    /// If it is no call, of another version, or its credential cannot be decoded.
    pub fn decode(record: &'a [u8]) -> Result<(Call<'a>, &'a [u8]), CallError> {
        let mut reader = Reader::new(record);
        let mut next = || reader.get::<u32>().map_err(|_| CallError::NoCall);
        let (xid, kind, rpc) = (next()?, next()?, next()?);
        if kind != CALL {
            return Err(CallError::NoCall);
        }
        if rpc != RPC_VERSION {
            return Err(CallError::RpcVersion(xid));
        }
        let (program, version, procedure) = (next()?, next()?, next()?);
        let bad = |_| CallError::Credential(xid);
        let credential = reader.get().map_err(bad)?;
        let (_flavour, _verifier) =
            (reader.get::<u32>().map_err(bad)?, reader.opaque(AUTH_MAX).map_err(bad)?);
        Ok((Call { xid, program, version, procedure, credential }, reader.rest()))
    }

    /// Appends a call up to its arguments, without a mark.
    pub fn put(&self, out: &mut Vec<u8>) {
        [self.xid, CALL, RPC_VERSION].iter().for_each(|item| item.put(out));
        [self.program, self.version, self.procedure].iter().for_each(|item| item.put(out));
        self.credential.put(out);
        Credential::None.put(out);
    }
}

/// Outcome of a call (RFC 5531, 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The procedure was executed; its results follow.
    Success,
    /// The server does not have the program.
    NoProgram,
    /// The server has these versions of the program only, the lowest and the highest.
    VersionMismatch(u32, u32),
    /// The program does not have the procedure.
    NoProcedure,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// The server cannot execute it, for example for lack of memory.
    SystemError,
    /// The server speaks version 2 of RPC only.
    RpcMismatch,
    /// The credential was refused, with an `auth_stat`.
    Refused(u32),
}

/// `auth_stat` of a credential that cannot be decoded.
pub const BAD_CREDENTIAL: u32 = 1;
/// `auth_stat` of a credential that is too weak.
pub const TOO_WEAK: u32 = 5;

/// Appends the mark and the header of a reply; [`seal`] completes the mark.
pub fn put_reply(xid: u32, outcome: Outcome, out: &mut Vec<u8>) {
    out.extend([0; MARK_SIZE]);
    xid.put(out);
    REPLY.put(out);
    let (denied, rest): (u32, &[u32]) = match outcome {
        Outcome::Success => (0, &[0]),
        Outcome::NoProgram => (0, &[1]),
        Outcome::VersionMismatch(low, high) => (0, &[2, low, high]),
        Outcome::NoProcedure => (0, &[3]),
        Outcome::GarbageArguments => (0, &[4]),
        Outcome::SystemError => (0, &[5]),
        Outcome::RpcMismatch => (1, &[0, RPC_VERSION, RPC_VERSION]),
        Outcome::Refused(why) => (1, &[1, why]),
    };
    denied.put(out);
    if denied == 0 {
        Credential::None.put(out);
    }
    rest.iter().for_each(|item| item.put(out));
}

/// Sets the mark of a whole record that is followed by `more` bytes sent separately.
///
/// # Panics
/// If there is no mark, or the record has 2 GiB or more.
pub fn seal(record: &mut [u8], more: usize) {
    let size = record.len() - MARK_SIZE + more;
    record[..MARK_SIZE].copy_from_slice(&mark(size));
}

/// Decodes a reply without its mark; returns its xid, its outcome and its results.
///
/// # Errors
/// If it is no well-formed reply.
pub fn decode_reply(record: &[u8]) -> Result<(u32, Outcome, &[u8]), DecodeError> {
    let mut reader = Reader::new(record);
    let (xid, kind) = (reader.get()?, reader.get::<u32>()?);
    if kind != REPLY {
        return Err(DecodeError::Value(kind));
    }
    let denied: bool = reader.get()?;
    if !denied {
        let (_flavour, _verifier) = (reader.get::<u32>()?, reader.opaque(AUTH_MAX)?);
    }
    let outcome = match (denied, reader.get::<u32>()?) {
        (false, 0) => Outcome::Success,
        (false, 1) => Outcome::NoProgram,
        (false, 2) => Outcome::VersionMismatch(reader.get()?, reader.get()?),
        (false, 3) => Outcome::NoProcedure,
        (false, 4) => Outcome::GarbageArguments,
        (false, 5) => Outcome::SystemError,
        (true, 0) => {
            let (_low, _high) = (reader.get::<u32>()?, reader.get::<u32>()?);
            Outcome::RpcMismatch
        }
        (true, 1) => Outcome::Refused(reader.get()?),
        (_, other) => return Err(DecodeError::Value(other)),
    };
    Ok((xid, outcome, reader.rest()))
}
