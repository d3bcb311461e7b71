//! Calls of one connection: xids, the credential, and the matching of replies.

use slab::Slab;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::ControlFlow;
use wire::nfs::{self, Call, Results};
use wire::rpc::{self, Credential, MARK_SIZE, Outcome, Sys};

/// Maximum calls in flight.
pub(super) const CALLS_MAX: usize = 1 << SLOT_BITS;

/// Bits of an xid that are the index of its call. The others are a counter: a server answers a
/// reused xid from its cache of replies.
const SLOT_BITS: u32 = 11;

/// Maximum data of a READ or WRITE, bytes.
pub(super) const DATA_MAX: u32 = 1 << 20;

/// Maximum size of a reply with the marks of its fragments, bytes.
const REPLY_MAX: usize = DATA_MAX as usize + (64 << 10);

/// Linux errno values.
const EIO: u16 = 5;
const EACCES: u16 = 13;
const EPROTONOSUPPORT: u16 = 93;
const ENOTSUP: u16 = 95;

/// Results of a call, or the Linux errno of its failure.
pub(super) type Reply<'a> = Result<Results<'a>, u16>;

/// Call in flight.
struct InFlight<T> {
    xid: u32,
    procedure: u32,
    token: T,
}

/// Calls in flight, each with a token of the caller.
pub(super) struct Calls<T> {
    slots: Slab<InFlight<T>>,
    /// Counter of calls, in the upper bits of an xid.
    count: u32,
    uid: u32,
    gid: u32,
}

impl<T> Calls<T> {
    /// Returns an empty set. Calls have the credential of this process.
    pub(super) fn new() -> Calls<T> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Calls { slots: Slab::new(), count: any_number(), uid, gid }
    }

    /// Returns the number of calls in flight.
    pub(super) fn outstanding(&self) -> usize {
        self.slots.len()
    }

    /// Appends the record of a call.
    ///
    /// # Panics
    /// If [`CALLS_MAX`] are in flight.
    pub(super) fn send(&mut self, call: &Call<'_>, token: T, out: &mut Vec<u8>) {
        assert!(self.slots.len() < CALLS_MAX, "the caller limits the calls in flight");
        let slot = self.slots.vacant_entry();
        self.count = self.count.wrapping_add(1);
        let (xid, procedure) = (self.count << SLOT_BITS | slot.key() as u32, call.procedure());
        slot.insert(InFlight { xid, procedure, token });
        let start = out.len();
        out.extend([0; MARK_SIZE]);
        let (program, version) = (nfs::PROGRAM, nfs::VERSION);
        let credential = credential(self.uid, self.gid);
        rpc::Call { xid, program, version, procedure, credential }.put(out);
        call.put(out);
        rpc::seal(&mut out[start..], 0);
    }

    /// Matches a reply, without marks, with its call.
    ///
    /// # Errors
    /// If no call has its xid, or it cannot be decoded; the connection is then unusable.
    pub(super) fn receive<'a>(&mut self, record: &'a [u8]) -> Result<(T, Reply<'a>), &'static str> {
        let decoded = rpc::decode_reply(record);
        let (xid, outcome, results) = decoded.map_err(|_| "a reply cannot be decoded")?;
        let key = xid as usize & (CALLS_MAX - 1);
        if self.slots.get(key).is_none_or(|call| call.xid != xid) {
            return Err("a reply without a call");
        }
        let call = self.slots.remove(key);
        let reply = match outcome {
            Outcome::Success => Results::decode(call.procedure, results)
                .map_err(|_| "the results of a call cannot be decoded")?
                .map_err(|(status, _)| errno(status as u32)),
            Outcome::Refused(_) => Err(EACCES),
            Outcome::NoProgram | Outcome::VersionMismatch(..) | Outcome::RpcMismatch => {
                Err(EPROTONOSUPPORT)
            }
            Outcome::NoProcedure => Err(ENOTSUP),
            Outcome::GarbageArguments | Outcome::SystemError => Err(EIO),
        };
        Ok((call.token, reply))
    }

    /// Forgets all calls, with their connection.
    pub(super) fn close(&mut self) {
        self.slots.clear();
    }
}

/// Returns a different number each time, also in other processes.
pub(super) fn any_number() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Returns the credential of a user.
pub(super) fn credential(uid: u32, gid: u32) -> Credential<'static> {
    Credential::Sys(Sys { stamp: 0, machine: b"upcall-load", uid, gid, gids: Vec::new() })
}

/// Returns the Linux errno of a status of NFS or MOUNT, most of which are BSD's.
pub(super) fn errno(status: u32) -> u16 {
    match status {
        63 => 36,                   // ENAMETOOLONG
        66 => 39,                   // ENOTEMPTY
        69 => 122,                  // EDQUOT
        70 | 10_001 => 116,         // ESTALE
        10_004 | 10_007 => ENOTSUP, // NOTSUPP, BADTYPE
        10_008 => 11,               // JUKEBOX: EAGAIN
        10_000.. => EIO,
        same => same as u16,
    }
}

/// Returns the size of the first record with the marks of its fragments; `None` while it is
/// incomplete.
///
/// # Errors
/// If it is larger than any reply.
pub(super) fn record_size(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let walked = fragments(bytes, |_| ());
    match walked {
        ControlFlow::Break(end) if end <= REPLY_MAX => Ok((end <= bytes.len()).then_some(end)),
        ControlFlow::Continue(end) if end <= REPLY_MAX => Ok(None),
        ControlFlow::Break(_) | ControlFlow::Continue(_) => Err("a reply is too large"),
    }
}

/// Returns a complete record without its marks; `buffer` gets the bytes of several fragments.
pub(super) fn joined<'a>(record: &'a [u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    if let Some((_, true)) = rpc::fragment(record) {
        return &record[MARK_SIZE..];
    }
    buffer.clear();
    let _ = fragments(record, |bytes| buffer.extend_from_slice(bytes));
    buffer
}

/// Passes the complete fragments of the first record. Breaks with the end of the last one, or
/// continues with the known end of those so far, which may be incomplete.
fn fragments<'a>(bytes: &'a [u8], mut each: impl FnMut(&'a [u8])) -> ControlFlow<usize, usize> {
    let mut at = 0;
    while let Some((size, is_last)) = bytes.get(at..).and_then(rpc::fragment) {
        let start = at + MARK_SIZE;
        at = start + size;
        if let Some(fragment) = bytes.get(start..at) {
            each(fragment);
        }
        if is_last {
            return ControlFlow::Break(at);
        }
    }
    ControlFlow::Continue(at)
}
