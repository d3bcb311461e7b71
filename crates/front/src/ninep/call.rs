//! A call: one message of the client on its way to an answer.
//!
//! Most calls ask once. Those that ask several times (attach, create of 9P2000 …) are machines
//! whose state says what they wait for; [`super::Session::resume`] moves them on.

use super::fid::{Claim, Fid, Fids, Openness};
use super::linux::ATTR_SIZE_MAX;
use crate::Output;
use base::{Access, Buf, Caller, Kind, NAME_MAX, Name, SetStat, Stat};
use tree::{Ask, NodeId, OpenId};
use wire::ninep::Rmessage;

/// Memory that a listing takes while it is made, for each byte of the reply: an entry is much
/// larger than its name.
pub(super) const LISTED: usize = 8;

/// Bytes of the names of a walk, and of what is found by each.
fn names_bytes(names: &[Name]) -> usize {
    const EACH: usize = size_of::<Name>() + size_of::<Stat>();
    names.iter().map(|name| EACH + name.as_bytes().len()).sum()
}

/// Bytes of one name, at most.
const NAME_BYTES: usize = size_of::<Name>() + NAME_MAX;

/// A message under way.
#[derive(Debug)]
pub(super) struct Call {
    /// `None`: given up; nobody waits for the answer.
    pub(super) tag: Option<u16>,
    pub(super) awaits: Await,
    /// Flushes that wait for this call's answer, in order.
    pub(super) flushes: Vec<u16>,
    /// Bytes it asked for, which count against the connection's limit.
    pub(super) bytes: usize,
    /// It asks for a node, or holds one, which counts as one of the connection's.
    pub(super) has_node: bool,
}

/// What a call does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Ask, and wait.
    Ask(Await, Caller, Ask),
    /// Answer.
    Say(Buf),
    /// Answer with a header and, behind it, data that is shared with others.
    SayPieces(Buf, Vec<Buf>),
}

/// What a call waits for.
#[derive(Debug)]
pub(super) enum Await {
    /// An answer that nobody wants any more.
    GivenUp,
    /// Who the client is; then the root, or the place it named.
    Identify { fid: u32, path: Vec<Name> },
    /// The place to attach to.
    Attach { fid: u32, caller: Caller },
    /// The end of a walk of so many names.
    Walk { fid: u32, newfid: u32, wanted: usize, last: Option<Name> },
    /// The file opened; it may be wanted only if it can be executed (9P2000).
    Open { claim: Claim, access: Access, remove: bool, execute: bool },
    /// The attributes of the directory that a 9P2000 file is going to be made in.
    CreateMode { claim: Claim, name: Name, perm: u32, access: Access, remove: bool },
    /// The new file.
    Create { claim: Claim, name: Name, access: Access, remove: bool },
    /// The new 9P2000 directory.
    CreateDir { claim: Claim, name: Name, access: Access, remove: bool },
    /// The way to the new 9P2000 directory.
    CreateDirWalk { claim: Claim, name: Name, access: Access, remove: bool },
    /// The new 9P2000 directory opened; only then the fid stands for it.
    CreateDirOpen { claim: Claim, name: Name, access: Access, remove: bool, node: NodeId },
    /// Bytes of a file.
    Read,
    /// What is said next.
    ReadComing,
    /// Entries of a directory, for 9P2000.
    ReadEntries { fid: u32, count: u32 },
    /// Entries of a directory, for 9P2000.L.
    Readdir { count: u32, device: u64 },
    /// The count of bytes written.
    Write,
    /// Attributes, for `Tgetattr`.
    Getattr,
    /// Attributes, for `Tstat`.
    Stat { fid: u32 },
    /// Attributes changed by `Twstat`; then perhaps a new name.
    Wstat { fid: u32, rename: Option<Name> },
    /// The new name set by `Twstat`.
    WstatRename { fid: u32, name: Name },
    /// The new symbolic link, directory or special file: which answer its qid goes into.
    Make { code: u8 },
    /// Success, which this answer tells.
    Success { code: u8 },
    /// What a link says.
    Readlink,
    /// How full the tree is.
    Statfs,
    /// A reference to the node whose attribute a new fid is going to read.
    AttrNode { fid: u32, newfid: u32, name: Vec<u8> },
    /// The attribute's value.
    AttrValue { newfid: u32, node: NodeId, caller: Caller, kind: Kind },
    /// The attribute set, by clunking the fid that held its value.
    AttrSet { file: Fid },
    /// The file removed, by clunking or `Tremove`; the fid is gone already.
    Remove { code: u8, file: Fid },
    /// The lock.
    Lock,
    /// Who is in the way of a lock.
    Getlock,
}

impl Await {
    /// Whether nothing changes whether or not the call ends, so that it can be given up.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Await::Identify { .. }
            | Await::Attach { .. }
            | Await::Walk { .. }
            | Await::Read
            | Await::ReadComing
            | Await::ReadEntries { .. }
            | Await::Readdir { .. }
            | Await::Getattr
            | Await::Stat { .. }
            | Await::Readlink
            | Await::Statfs
            | Await::AttrNode { .. }
            | Await::AttrValue { .. }
            | Await::Getlock => true,
            // Opening leaves nothing behind unless it empties the file.
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

    /// Whether a node that no fid stands for is asked for or held, now or in the next step.
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

    /// How many bytes count against the limit while it waits.
    pub(super) fn bytes(&self, ask: &Ask) -> usize {
        let carried = match (self, ask) {
            // A third of it is asked for, with attributes.
            (Await::ReadEntries { count, .. }, _) => *count as usize * LISTED / 2,
            (Await::Readdir { count, .. }, _) => *count as usize * LISTED,
            // Nothing is held for it until there is something.
            (Await::ReadComing, _) => 0,
            (_, Ask::Read { count, .. }) => *count as usize,
            (_, Ask::Write { data, .. }) => data.capacity(),
            (_, Ask::GetAttr { .. } | Ask::ListAttrs { .. }) => ATTR_SIZE_MAX as usize,
            (Await::AttrNode { name, .. }, _) => name.len(),
            (_, Ask::SetAttr { name, value, .. }) => name.len() + value.len(),
            (_, Ask::Symlink { target, .. }) => target.len() + NAME_BYTES,
            (Await::Identify { path, .. }, _) => names_bytes(path),
            (_, Ask::Walk { names, .. }) => names_bytes(names),
            // One in the request, and one in what waits for its answer.
            (_, Ask::Create { .. } | Ask::MakeDir { .. } | Ask::Rename { .. }) => 2 * NAME_BYTES,
            (_, Ask::MakeNode { .. } | Ask::Link { .. } | Ask::Remove { .. }) => NAME_BYTES,
            (_, Ask::RenameNode { .. }) => NAME_BYTES,
            (_, _) => 0,
        };
        carried + size_of::<Call>()
    }

    /// Gives back what a call that comes to nothing, or to its end, has held.
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
            | Await::ReadComing
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
            Await::Read | Await::ReadComing => "read",
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

/// Cost of a message, in requests of a turn: a path is walked at once, however many names it has.
pub(super) fn cost(message: &[u8]) -> usize {
    const TATTACH: u8 = 104;
    const TWALK: u8 = 110;
    const REQUEST: usize = 256;
    match message[super::TYPE] {
        TATTACH | TWALK => 1 + message.len() / REQUEST,
        _other => 1,
    }
}

/// A whole message.
pub(super) fn encode(tag: u16, message: &Rmessage<'_>) -> Buf {
    let mut bytes = Vec::with_capacity(64);
    message.encode(tag, &mut bytes);
    Buf::from(bytes)
}

/// How an opened file or directory is kept in a fid.
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
            let says_what_comes = stat.says_what_comes();
            Openness::File { open, access, remove, says_what_comes }
        }
    }
}

/// Whether a change of attributes changes nothing.
pub(super) fn is_nothing(set: &SetStat) -> bool {
    *set == SetStat::default()
}
