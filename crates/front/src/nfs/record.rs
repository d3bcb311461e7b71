//! Records of the client: from bytes to the procedure that they begin.

use super::call::Procedure;
use super::directory::ReadDir;
use super::entries::Change;
use super::io::{Commit, Read};
use super::look::{AttributeQuery, FsStat, ReadLink, SetAttr};
use super::make::Make;
use super::mount::Mount;
use super::translate;
use super::users::Claim;
use crate::Export;
use base::{Buf, Error, Name};
use std::ops::Deref;
use wire::nfs::{self, Handle, Stable, Status, mount};
use wire::rpc::{self, CallError, Outcome};
use wire::xdr::DecodeError;

/// A whole record, without marks.
#[derive(Debug)]
pub(super) enum Record<'a> {
    /// In the input buffer.
    Borrowed(&'a [u8]),
    /// In a buffer of its own.
    Owned(Buf),
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Record::Borrowed(bytes) => bytes,
            Record::Owned(buf) => buf,
        }
    }
}

/// A call to begin.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) xid: u32,
    /// Name of the procedure.
    pub(super) name: &'static str,
    /// Identity that the client claims.
    pub(super) claim: Claim,
    pub(super) begin: Begin,
    /// Memory that it needs, bytes.
    pub(super) need: usize,
}

/// The beginning of a call.
#[derive(Debug)]
pub(super) enum Begin {
    /// Reply with these results; whether it was successful.
    Reply(Vec<u8>, bool),
    /// Begin a procedure.
    Procedure(Box<dyn Procedure>),
    /// Begin a WRITE of the data at the end of the record, of this length.
    Write { handle: Handle, offset: u64, stable: Stable, length: usize },
}

/// Reason why a record begins no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no call: the stream makes no sense.
    Hangup(&'static str),
    /// The call is refused.
    Reply(u32, Outcome),
}

/// Memory of a call in the tree and in the reactor, bytes.
const BELOW: usize = 1024;

/// Memory of a listing in progress, per byte of the reply: an entry is much larger than its name.
const LISTED: usize = 8;

/// Decodes a record.
pub(super) fn decode(record: &[u8], export: &Export) -> Result<Work, Refusal> {
    let (call, arguments) = rpc::Call::decode(record).map_err(|error| match error {
        CallError::NoCall => Refusal::Hangup("bytes that are no call"),
        CallError::RpcVersion(xid) => Refusal::Reply(xid, Outcome::RpcMismatch),
        CallError::Credential(xid) => Refusal::Reply(xid, Outcome::Refused(rpc::BAD_CREDENTIAL)),
    })?;
    let rpc::Call { xid, program, version, procedure, credential } = call;
    let refuse = |outcome| Refusal::Reply(xid, outcome);
    let garbage = |_: DecodeError| refuse(Outcome::GarbageArguments);
    let versions = |only: u32| match version == only {
        true => Ok(()),
        false => Err(refuse(Outcome::VersionMismatch(only, only))),
    };
    let (name, begin, need) = match program {
        nfs::PROGRAM => {
            versions(nfs::VERSION)?;
            let call = nfs::Call::decode(procedure, arguments).map_err(garbage)?;
            let call = call.ok_or(refuse(Outcome::NoProcedure))?;
            let (name, need) = (nfs::procedure_name(procedure), need(&call, export));
            let failure = call.failure();
            let begin = begin(call).unwrap_or_else(|status| {
                let mut results = Vec::new();
                nfs::put_failure(status, &failure, &mut results);
                Begin::Reply(results, false)
            });
            (name.expect("it was decoded"), begin, need)
        }
        mount::PROGRAM => {
            versions(mount::VERSION)?;
            let call = mount::Call::decode(procedure, arguments).map_err(garbage)?;
            let call = call.ok_or(refuse(Outcome::NoProcedure))?;
            let (name, begin) = begin_mount(&call, export);
            (name, begin, BELOW)
        }
        _other => return Err(refuse(Outcome::NoProgram)),
    };
    Ok(Work { xid, name, claim: Claim::from(&credential), begin, need })
}

/// Returns the memory that a call needs, bytes.
fn need(call: &nfs::Call<'_>, export: &Export) -> usize {
    let size = |count: u32| count.min(export.limits.msize) as usize;
    let data = match call {
        nfs::Call::Read { count, .. } => size(*count),
        nfs::Call::Write { data, .. } => data.len(),
        nfs::Call::ReadDir { count, .. } | nfs::Call::ReadDirPlus { max_count: count, .. } => {
            size(*count) * LISTED
        }
        nfs::Call::SymLink { data, .. } => data.len(),
        nfs::Call::Null {}
        | nfs::Call::GetAttr { .. }
        | nfs::Call::SetAttr { .. }
        | nfs::Call::Lookup { .. }
        | nfs::Call::Access { .. }
        | nfs::Call::ReadLink { .. }
        | nfs::Call::Create { .. }
        | nfs::Call::MkDir { .. }
        | nfs::Call::MkNod { .. }
        | nfs::Call::Remove { .. }
        | nfs::Call::RmDir { .. }
        | nfs::Call::Rename { .. }
        | nfs::Call::Link { .. }
        | nfs::Call::FsStat { .. }
        | nfs::Call::FsInfo { .. }
        | nfs::Call::PathConf { .. }
        | nfs::Call::Commit { .. } => 0,
    };
    BELOW + data
}

fn begin(call: nfs::Call<'_>) -> Result<Begin, Status> {
    let name = |bytes: &[u8]| Name::new(bytes).map_err(translate::status);
    let made = |made: Result<Make, Error>| made.map_err(translate::status);
    Ok(Begin::Procedure(match call {
        nfs::Call::Null {} => return Ok(Begin::Reply(Vec::new(), true)),
        nfs::Call::GetAttr { object } => Box::new(AttributeQuery::attributes(object)),
        nfs::Call::SetAttr { object, attributes, guard } => {
            Box::new(SetAttr::new(object, attributes, guard))
        }
        nfs::Call::Lookup { dir, name: text } => Box::new(Make::lookup(dir, name(text)?)),
        nfs::Call::Access { object, access } => Box::new(AttributeQuery::access(object, access)),
        nfs::Call::ReadLink { symlink } => Box::new(ReadLink(symlink)),
        nfs::Call::Read { file, offset, count } => Box::new(Read::new(file, offset, count)),
        nfs::Call::Write { file, offset, count, stable, data } => {
            let (handle, length) = (file, data.len());
            if count as usize != length {
                return Err(Status::Inval);
            }
            return Ok(Begin::Write { handle, offset, stable, length });
        }
        nfs::Call::Create { dir, name: text, how } => {
            Box::new(made(Make::create(dir, name(text)?, how))?)
        }
        nfs::Call::MkDir { dir, name: text, attributes } => {
            Box::new(made(Make::directory(dir, name(text)?, &attributes))?)
        }
        nfs::Call::SymLink { dir, name: text, attributes, data } => {
            Box::new(made(Make::symlink(dir, name(text)?, &attributes, data))?)
        }
        nfs::Call::MkNod { dir, name: text, what } => {
            let special = translate::special_file(what).map_err(|_| Status::BadType)?;
            let (kind, device, set) = (special.0, special.1, &special.2);
            Box::new(made(Make::special(dir, name(text)?, (kind, device, set)))?)
        }
        nfs::Call::Remove { dir, name: text } => Box::new(Change::remove(dir, name(text)?, false)),
        nfs::Call::RmDir { dir, name: text } => Box::new(Change::remove(dir, name(text)?, true)),
        nfs::Call::Rename { from_dir, from, to_dir, to } => {
            Box::new(Change::rename((from_dir, name(from)?), (to_dir, name(to)?)))
        }
        nfs::Call::Link { file, dir, name: text } => {
            Box::new(Change::link(file, (dir, name(text)?)))
        }
        nfs::Call::ReadDir { dir, cookie, verifier: _, count } => {
            Box::new(ReadDir::new(dir, cookie, count, false))
        }
        nfs::Call::ReadDirPlus { dir, cookie, verifier: _, dir_count: _, max_count } => {
            Box::new(ReadDir::new(dir, cookie, max_count, true))
        }
        nfs::Call::FsStat { root } => Box::new(FsStat(root)),
        nfs::Call::FsInfo { root } => Box::new(AttributeQuery::fs_info(root)),
        nfs::Call::PathConf { object } => Box::new(AttributeQuery::path_conf(object)),
        nfs::Call::Commit { file, offset: _, count: _ } => Box::new(Commit::new(file)),
    }))
}

fn begin_mount(call: &mount::Call<'_>, export: &Export) -> (&'static str, Begin) {
    let mut results = Vec::new();
    let name = match call {
        mount::Call::Null => "MountNull",
        mount::Call::Mount(path) => {
            match Mount::new(path, &export.path) {
                Ok(mount) => return ("Mount", Begin::Procedure(Box::new(mount))),
                Err(error) => {
                    let status = translate::mount_status(translate::status(error));
                    mount::put_failure(status, &mut results);
                }
            }
            return ("Mount", Begin::Reply(results, false));
        }
        mount::Call::Dump => {
            mount::put_dump(&mut results);
            "Dump"
        }
        mount::Call::Unmount(_) => "Unmount",
        mount::Call::UnmountAll => "UnmountAll",
        mount::Call::Export => {
            let all = mount::Export { path: b"/", groups: Vec::new() };
            mount::put_exports(vec![all], &mut results);
            "Export"
        }
    };
    (name, Begin::Reply(results, true))
}

/// Returns the data at the end of the record of a WRITE.
pub(super) fn data(record: Record<'_>, length: usize) -> Buf {
    let start = record.len() - length - wire::xdr::padding(length);
    match record {
        Record::Borrowed(bytes) => Buf::from(&bytes[start..start + length]),
        Record::Owned(mut buf) => {
            buf.consume(start);
            buf.truncate(length);
            buf
        }
    }
}
