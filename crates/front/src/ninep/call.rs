//! Calls: messages of the client in progress.
//!
//! Most calls make one request. Those with several (attach, create of 9P2000 …) are machines with a
//! state for each; [`super::Session::resume`] advances them.

use super::fid::{Claim, Fid, Fids, Openness};
use crate::Output;
use base::{Access, Buf, Caller, Kind, NAME_MAX, Name, SetStat, Stat};
use tree::{Ask, NodeId, OpenId};
use wire::ninep::Rmessage;

/// Maximum size of an extended attribute (Linux `XATTR_SIZE_MAX`), bytes.
pub(super) const ATTR_SIZE_MAX: u64 = 65_536;

/// Memory of a listing in progress, per byte of the reply: an entry is much larger than its name.
pub(super) const LISTED: usize = 8;

/// Returns the memory of the names of a walk, and of its results, bytes.
fn names_bytes(names: &[Name]) -> usize {
    const EACH: usize = size_of::<Name>() + size_of::<Stat>();
    names.iter().map(|name| EACH + name.as_bytes().len()).sum()
}

/// Memory of a call in the tree and in the reactor, bytes.
const BELOW: usize = 768;
/// Maximum memory of a name, bytes.
const NAME_BYTES: usize = size_of::<Name>() + NAME_MAX;

/// A message in progress.
#[derive(Debug)]
pub(super) struct Call {
    /// Tag of the message; `None` for an abandoned call, whose reply is discarded.
    pub(super) tag: Option<u16>,
    pub(super) awaits: Await,
    /// Tags of the flushes that wait for this call's reply, in order.
    pub(super) flushes: Vec<u16>,
    /// Bytes that count against the connection's limit.
    pub(super) bytes: usize,
    /// Whether it requests or holds a node, which counts as one of the connection's.
    pub(super) has_node: bool,
}

/// Next step of a call.
#[derive(Debug)]
pub(super) enum Next {
    /// Send a request and wait.
    Ask(Await, Caller, Ask),
    /// Respond.
    Respond(Buf),
    /// Respond with a header, followed by shared data.
    SayPieces(Buf, Vec<Buf>),
}

/// State of a call: the reply that it waits for.
#[derive(Debug)]
pub(super) enum Await {
    /// Waiting for a reply to discard.
    GivenUp,
    /// Waiting for the identity of the client, then for the root, or the path it named.
    Identify { fid: u32, path: Vec<Name> },
    /// Waiting for the directory to attach to.
    Attach { fid: u32, caller: Caller },
    /// Waiting for the end of a walk of this many names.
    Walk { fid: u32, newfid: u32, wanted: usize, last: Option<Name> },
    /// Waiting for the open; with `execute`, only of a file that can be executed (9P2000).
    Open { claim: Claim, access: Access, remove: bool, execute: bool },
    /// Waiting for the attributes of the directory of a new 9P2000 file.
    CreateMode { claim: Claim, name: Name, perm: u32, access: Access, remove: bool },
    /// Waiting for the new file.
    Create { claim: Claim, name: Name, access: Access, remove: bool },
    /// Waiting for the new 9P2000 directory.
    CreateDir { claim: Claim, name: Name, access: Access, remove: bool },
    /// Waiting for the walk to the new 9P2000 directory.
    CreateDirWalk { claim: Claim, name: Name, access: Access, remove: bool },
    /// Waiting for the open of the new 9P2000 directory; only then the fid stands for it.
    CreateDirOpen { claim: Claim, name: Name, access: Access, remove: bool, node: NodeId },
    /// Waiting for bytes of a file.
    Read,
    /// Waiting for data of a stream.
    ReadStream,
    /// Waiting for entries of a directory, for 9P2000.
    ReadEntries { fid: u32, count: u32 },
    /// Waiting for entries of a directory, for 9P2000.L.
    Readdir { count: u32, device: u64 },
    /// Waiting for the number of bytes written.
    Write,
    /// Waiting for attributes, for `Tgetattr`.
    Getattr,
    /// Waiting for attributes, for `Tstat`.
    Stat { fid: u32 },
    /// Waiting for the attributes changed by `Twstat`; then perhaps for a new name.
    Wstat { fid: u32, rename: Option<Name> },
    /// Waiting for the new name set by `Twstat`.
    WstatRename { fid: u32, name: Name },
    /// Waiting for the new symbolic link, directory or special file; `code` is the type of the
    /// response.
    Make { code: u8 },
    /// Waiting for success, reported by a response of this type.
    Success { code: u8 },
    /// Waiting for the target of a link.
    Readlink,
    /// Waiting for the statistics of the file system.
    Statfs,
    /// Waiting for a reference to the node whose attribute a new fid is going to read.
    AttrNode { fid: u32, newfid: u32, name: Vec<u8> },
    /// Waiting for the value of the attribute.
    AttrValue { newfid: u32, node: NodeId, caller: Caller, kind: Kind },
    /// Waiting for the attribute to be set, by the clunk of the fid that held its value.
    AttrSet { file: Fid },
    /// Waiting for the removal of the file, by a clunk or `Tremove`; the fid is gone already.
    Remove { code: u8, file: Fid },
    /// Waiting for the lock.
    Lock,
    /// Waiting for the holder of a conflicting lock.
    Getlock,
}

impl Await {
    /// Returns whether the call has no side effects, so that it can be abandoned.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Await::Identify { .. }
            | Await::Attach { .. }
            | Await::Walk { .. }
            | Await::Read
            | Await::ReadStream
            | Await::ReadEntries { .. }
            | Await::Readdir { .. }
            | Await::Getattr
            | Await::Stat { .. }
            | Await::Readlink
            | Await::Statfs
            | Await::AttrNode { .. }
            | Await::AttrValue { .. }
            | Await::Getlock => true,
            // Opening has no side effect unless it truncates the file.
            Await::Open { access, .. } => !access.truncate,
            Await::GivenUp
            | Await::CreateMode { .. }
            | Await::Create { .. }
            | Await::CreateDir { .. }
            | Await::CreateDirWalk { .. }
            | Await::CreateDirOpen { .. }
            | Await::Write
            | Await::Wstat { .. }
            | Await::WstatRename { .. }
            | Await::Make { .. }
            | Await::Success { .. }
            | Await::AttrSet { .. }
            | Await::Remove { .. }
            | Await::Lock => false,
        }
    }

    /// Returns whether it requests or holds a node without a fid, now or in the next step.
    pub(super) fn has_node(&self) -> bool {
        matches!(
            self,
            Await::Identify { .. }
                | Await::Attach { .. }
                | Await::Walk { .. }
                | Await::AttrNode { .. }
                | Await::AttrValue { .. }
                | Await::CreateDirWalk { .. }
                | Await::CreateDirOpen { .. }
                | Await::AttrSet { .. }
                | Await::Remove { .. }
        )
    }

    /// Returns the bytes that count against the limit while it waits.
    pub(super) fn bytes(&self, ask: &Ask) -> usize {
        let carried = match (self, ask) {
            // A third of it is requested, with attributes.
            (Await::ReadEntries { count, .. }, _) => *count as usize * LISTED / 2,
            (Await::Readdir { count, .. }, _) => *count as usize * LISTED,
            // A pending read of a stream holds no memory.
            (Await::ReadStream, _) => 0,
            (_, Ask::Read { count, .. }) => *count as usize,
            (_, Ask::Write { data, .. }) => data.capacity(),
            (_, Ask::GetAttr { .. } | Ask::ListAttrs { .. }) => ATTR_SIZE_MAX as usize,
            (Await::AttrNode { name, .. }, _) => name.len(),
            (_, Ask::SetAttr { name, value, .. }) => name.len() + value.len(),
            (_, Ask::Symlink { target, .. }) => target.len() + NAME_BYTES,
            (Await::Identify { path, .. }, _) => names_bytes(path),
            (_, Ask::Walk { names, .. }) => names_bytes(names),
            // One in the request, and one in the state of the call.
            (_, Ask::Create { .. } | Ask::MakeDir { .. } | Ask::Rename { .. }) => 2 * NAME_BYTES,
            (_, Ask::MakeNode { .. } | Ask::Link { .. } | Ask::Remove { .. }) => NAME_BYTES,
            (_, Ask::RenameNode { .. }) => NAME_BYTES,
            (_, _) => 0,
        };
        carried + size_of::<Call>() + BELOW
    }

    /// Releases the resources of a call that has failed or ended.
    pub(super) fn end(self, fids: &mut Fids, out: &mut Vec<Output>) {
        match self {
            Await::Open { claim, .. }
            | Await::Create { claim, .. }
            | Await::CreateMode { claim, .. }
            | Await::CreateDir { claim, .. }
            | Await::CreateDirWalk { claim, .. } => fids.unclaim(claim),
            Await::CreateDirOpen { claim, node, .. } => {
                fids.unclaim(claim);
                out.push(Output::Release(node));
            }
            Await::AttrValue { node, .. } => out.push(Output::Release(node)),
            Await::AttrSet { file } | Await::Remove { file, .. } => file.forget(out),
            Await::GivenUp
            | Await::Identify { .. }
            | Await::Attach { .. }
            | Await::Walk { .. }
            | Await::Read
            | Await::ReadStream
            | Await::ReadEntries { .. }
            | Await::Readdir { .. }
            | Await::Write
            | Await::Getattr
            | Await::Stat { .. }
            | Await::Wstat { .. }
            | Await::WstatRename { .. }
            | Await::Make { .. }
            | Await::Success { .. }
            | Await::Readlink
            | Await::Statfs
            | Await::AttrNode { .. }
            | Await::Lock
            | Await::Getlock => {}
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Await::GivenUp => "given_up",
            Await::Identify { .. } => "identify",
            Await::Attach { .. } => "attach",
            Await::Walk { .. } => "walk",
            Await::Open { .. } => "open",
            Await::CreateMode { .. }
            | Await::Create { .. }
            | Await::CreateDir { .. }
            | Await::CreateDirWalk { .. }
            | Await::CreateDirOpen { .. } => "create",
            Await::Read | Await::ReadStream => "read",
            Await::ReadEntries { .. } | Await::Readdir { .. } => "list",
            Await::Write => "write",
            Await::Getattr | Await::Stat { .. } => "stat",
            Await::Wstat { .. } | Await::WstatRename { .. } => "set_stat",
            Await::Make { .. } => "make",
            Await::Success { .. } => "change",
            Await::Readlink => "read_link",
            Await::Statfs => "stat_fs",
            Await::AttrNode { .. } | Await::AttrValue { .. } | Await::AttrSet { .. } => "attr",
            Await::Remove { .. } => "remove",
            Await::Lock => "lock",
            Await::Getlock => "get_lock",
        }
    }
}

/// Returns the cost of a message, in requests of a turn: a path is walked at once, however many
/// names it has.
pub(super) fn cost(message: &[u8]) -> usize {
    const TATTACH: u8 = 104;
    const TWALK: u8 = 110;
    const REQUEST: usize = 256;
    match message[super::TYPE] {
        TATTACH | TWALK => 1 + message.len() / REQUEST,
        _other => 1,
    }
}

/// Encodes a message.
pub(super) fn encode(tag: u16, message: &Rmessage<'_>) -> Buf {
    let mut bytes = Vec::with_capacity(64);
    message.encode(tag, &mut bytes);
    Buf::from(bytes)
}

/// Returns the state of a fid with an opened file or directory.
pub(super) fn opened(stat: &Stat, open: OpenId, access: Access, remove: bool) -> Openness {
    match stat.kind {
        Kind::Directory => {
            let cursor = super::fid::Cursor::default();
            Openness::Directory { open, device: stat.device, cursor, remove }
        }
        Kind::File
        | Kind::Symlink
        | Kind::Fifo
        | Kind::Socket
        | Kind::CharDevice
        | Kind::BlockDevice => {
            let is_stream = stat.is_stream();
            Openness::File { open, access, remove, is_stream }
        }
    }
}

/// Returns whether a change of attributes is empty.
pub(super) fn is_nothing(set: &SetStat) -> bool {
    *set == SetStat::default()
}
