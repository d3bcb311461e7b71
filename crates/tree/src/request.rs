//! File requests: what 9P2000.L, NFSv3, HTTP and FUSE have in common.
//!
//! Files are named by [`NodeId`], and what must outlive a name is pinned by an [`OpenId`]. A
//! reply that carries either hands out one reference; [`Input::Release`] and [`Input::Close`]
//! give it back. Ids are made by trees and never by clients, so an unknown one is a mistake of
//! this program and not of a peer.

use base::op::{Done, Op, OpId, Replacement, Who};
use base::{Access, Buf, Caller, Error, Expected, Kind, Name, SetStat};

pub use crate::locks::{Lock, LockKind, Owner};
pub use crate::reply::Reply;

/// Names one request; chosen by who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Bits of a request id that distinguish the calls of one asker.
const CALL_BITS: u32 = 32;

impl RequestId {
    /// Returns the id of call `call` of `asker`: a connection of a node, or a part of the server.
    pub fn new(asker: u32, call: u32) -> RequestId {
        RequestId(u64::from(asker) << CALL_BITS | u64::from(call))
    }

    /// Returns the asker: the same for all requests of one connection.
    pub fn asker(self) -> u32 {
        (self.0 >> CALL_BITS) as u32
    }
}

/// Names a file of a tree for as long as the reference is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Names an open file of a tree for as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenId(pub u64);

/// How many bits of an id say what it is to its tree.
const LOCAL_BITS: u32 = 48;

/// Both kinds of ids say in their upper sixteen bits which tree made them.
macro_rules! of_tree {
    ($type:ident) => {
        impl $type {
            /// The id that a tree gives to what it counts as `local`.
            pub fn new(tree: u16, local: usize) -> $type {
                $type(u64::from(tree) << LOCAL_BITS | local as u64)
            }

            /// Which tree.
            pub fn tree(self) -> u16 {
                (self.0 >> LOCAL_BITS) as u16
            }

            /// What it is to that tree.
            pub fn local(self) -> usize {
                (self.0 & ((1 << LOCAL_BITS) - 1)) as usize
            }
        }
    };
}

of_tree!(NodeId);
of_tree!(OpenId);

/// A node or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// A node.
    Node(NodeId),
    /// An open file.
    Open(OpenId),
}

impl Id {
    /// Which tree it is of.
    pub fn tree(self) -> u16 {
        match self {
            Id::Node(node) => node.tree(),
            Id::Open(open) => open.tree(),
        }
    }
}

/// What can happen to a tree.
#[derive(Debug)]
pub enum Input {
    /// Somebody asks; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// The reply is no longer wanted; it comes all the same, perhaps as `Cancelled`.
    Cancel(RequestId),
    /// A reference to a node is given back.
    Release(NodeId),
    /// An open file is given back, and its locks with it.
    Close(OpenId),
    /// The same, because whoever had it is gone: what was begun with it is not finished.
    Abandon(OpenId),
    /// An operation ended.
    Done(OpId, Done),
    /// The contents of a service file, as asked for by [`Output::Render`].
    Rendered(u64, Vec<u8>),
    /// What was written to a service file was done, or not: the end of [`Output::Command`].
    Commanded(u64, Result<(), Refusal>),
}

/// What a tree can ask for.
#[derive(Debug)]
pub enum Output {
    /// The answer to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// An operation of the reactor.
    Do(Op),
    /// The contents of a service file; comes back with the same number.
    Render(u64, Topic),
    /// Somebody who may wrote lines to a service file; their end comes back with the same number.
    Command {
        /// The number.
        ticket: u64,
        /// Which line of all that was written the first one is, counted from one.
        line: usize,
        /// The lines.
        text: Vec<u8>,
    },
    /// Nobody waits for the end of this command any more; it comes all the same, and soon.
    CancelCommand(u64),
}

/// Why a command was not carried out, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub error: Error,
    /// For people: the line, what is wrong with it, and what to do.
    pub why: String,
}

/// What a service file is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Every kind of machine, how many are in which state.
    Machines,
    /// Every queue, its length and its limit.
    Queues,
    /// How long each stage of a request takes.
    Stages,
    /// All of it as Prometheus text.
    Metrics,
    /// What is mounted and bound where, in the words of a names file; the same words change it.
    Names,
}

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Request {
    /// On whose behalf; every tree enforces permissions.
    pub caller: Caller,
    /// What.
    pub ask: Ask,
}

/// What can be asked of a tree.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Follow names one after the other. No names: one more reference to the same node.
    Walk {
        /// Where to start.
        from: NodeId,
        /// At most sixteen.
        names: Vec<Name>,
    },
    /// Find a file by its path from the root, following links that stay within, and read it.
    Fetch {
        /// Another directory to start from, out of which nothing leads: neither a link that begins
        /// with `/` nor `..`. `None`: the tree's own root.
        root: Option<NodeId>,
        /// Components, none of them `.` or `..`.
        path: Vec<Name>,
        /// How much to read at once, bytes.
        read_max: u32,
        /// How much room to leave in front of the data.
        headroom: u32,
    },
    /// The attributes.
    Stat {
        /// Of what.
        node: NodeId,
    },
    /// Change attributes.
    SetStat {
        /// Of what.
        node: NodeId,
        /// The same file, open for writing, which is permission enough to set the size.
        open: Option<OpenId>,
        /// What.
        set: SetStat,
    },
    /// Open a file or directory.
    Open {
        /// Which.
        node: NodeId,
        /// How.
        access: Access,
    },
    /// Make a file and open it.
    Create {
        /// Where.
        dir: NodeId,
        /// Its name.
        name: Name,
        /// How to open it.
        access: Access,
        /// Whether it must not be there.
        exclusive: bool,
        /// Permission bits.
        mode: u32,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Make a plain file without a name and open it, to be given the name below by
    /// [`Ask::Replace`]; without that it is gone when it is given back, also after a crash. A tree
    /// need not know this (`Unsupported`).
    CreateUnnamed {
        /// Directory of the entry whose place it will take.
        dir: NodeId,
        /// The entry's name.
        name: Name,
        /// How to open it.
        access: Access,
        /// Permission bits.
        mode: u32,
    },
    /// Read from an open file.
    Read {
        /// Which.
        open: OpenId,
        /// Where.
        offset: u64,
        /// How much at most, bytes.
        count: u32,
        /// How much room to leave in front of the data.
        headroom: u32,
    },
    /// The first byte that takes space, of those of an open file from one on: SEEK_DATA of
    /// lseek(2). A tree need not know this (`Unsupported`); what it reads is the same either way.
    NextData {
        /// Which.
        open: OpenId,
        /// Offset in bytes.
        from: u64,
    },
    /// Write to an open file.
    Write {
        /// Which.
        open: OpenId,
        /// Where.
        offset: u64,
        /// What.
        data: Buf,
    },
    /// Make what was written durable.
    Sync {
        /// Which.
        open: OpenId,
        /// Only the contents, not the dates.
        data_only: bool,
    },
    /// Entries of an open directory.
    List {
        /// Which.
        open: OpenId,
        /// Zero, or the cookie of the last entry seen.
        cookie: u64,
        /// About how many bytes of names and 24 bytes for each.
        bytes_max: u32,
        /// Whether each entry's attributes are wanted.
        with_stat: bool,
    },
    /// All entries of some directories and of those beneath them, as many whole directories as fit,
    /// in the order in which somebody looks who goes into each as soon as he meets it. What cannot
    /// be listed is left out; a tree need not know this (`Unsupported`).
    ListAll {
        /// Where the paths start.
        from: NodeId,
        /// Which directories: components joined by `/`, followed by nothing but directories; empty
        /// means `from` itself.
        paths: Vec<Vec<u8>>,
        /// At most so many bytes of names, and 24 bytes for each and for each directory.
        bytes_max: u32,
    },
    /// Small plain files, each as a whole, as many of the first as fit. What is not there, is
    /// something else or larger, or cannot be read, is left out; a tree need not know this
    /// (`Unsupported`).
    ReadAll {
        /// Where the paths start.
        from: NodeId,
        /// Which files: components joined by `/`, followed by nothing but directories.
        paths: Vec<Vec<u8>>,
        /// The largest of them, bytes.
        size_max: u32,
        /// At most so many bytes of contents.
        bytes_max: u32,
    },
    /// Make a directory.
    MakeDir {
        /// Where.
        dir: NodeId,
        /// Its name.
        name: Name,
        /// Permission bits.
        mode: u32,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Make a symbolic link.
    Symlink {
        /// Where.
        dir: NodeId,
        /// Its name.
        name: Name,
        /// What it says.
        target: Vec<u8>,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Make a special (or plain) file.
    MakeNode {
        /// Where.
        dir: NodeId,
        /// Its name.
        name: Name,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// For devices: which.
        device: u64,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// What a symbolic link says.
    ReadLink {
        /// Which.
        node: NodeId,
    },
    /// Give a file one more name.
    Link {
        /// Which.
        node: NodeId,
        /// Where.
        dir: NodeId,
        /// The name.
        name: Name,
    },
    /// Move an entry.
    Rename {
        /// From where.
        from: NodeId,
        /// Which.
        name: Name,
        /// To where.
        to: NodeId,
        /// As what.
        new_name: Name,
        /// Whether what has that name is replaced; else it is an error (`Exists`).
        replace: bool,
    },
    /// Move a file that is known by a node.
    RenameNode {
        /// Which.
        node: NodeId,
        /// To where; `None`: within its directory.
        to: Option<NodeId>,
        /// As what.
        new_name: Name,
        /// Whether what has that name is replaced; else it is an error (`Exists`).
        replace: bool,
    },
    /// Remove an entry.
    Remove {
        /// From where.
        dir: NodeId,
        /// Which.
        name: Name,
        /// Whether it must be a directory or must not be.
        directory: Option<bool>,
    },
    /// Replace or remove an entry if its present state is as expected, in one step with respect to
    /// every other change of the entry that goes through this tree. Answered with
    /// [`Reply::Unexpected`], or with the attributes after the change where the tree knows them.
    Replace {
        /// Directory of the entry.
        dir: NodeId,
        /// Its name.
        name: Name,
        /// The file that takes its place.
        by: Replacement<NodeId>,
        /// Precondition.
        expected: Expected,
    },
    /// Remove a file that is known by a node.
    RemoveNode {
        /// Which.
        node: NodeId,
    },
    /// How full the tree is.
    StatFs {
        /// Any file of it.
        node: NodeId,
    },
    /// The value of an extended attribute.
    GetAttr {
        /// Of what.
        node: NodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// Set an extended attribute.
    SetAttr {
        /// Of what.
        node: NodeId,
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// `Some(true)`: must be new; `Some(false)`: must be there.
        create: Option<bool>,
    },
    /// The names of the extended attributes, each ended by NUL.
    ListAttrs {
        /// Of what.
        node: NodeId,
    },
    /// Remove an extended attribute.
    RemoveAttr {
        /// Of what.
        node: NodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// Lock or unlock a range.
    Lock {
        /// Of which open file.
        open: OpenId,
        /// What.
        lock: Lock,
        /// Whether to wait while somebody else holds it.
        wait: bool,
    },
    /// Who is in the way of such a lock.
    GetLock {
        /// Of which open file.
        open: OpenId,
        /// What.
        lock: Lock,
    },
    /// What the host knows about a user.
    Identify {
        /// By number or name.
        who: Who,
    },
}

impl Ask {
    /// The nodes and open files it is about, at most two.
    pub fn ids(&self) -> [Option<Id>; 2] {
        let node = |id: &NodeId| Some(Id::Node(*id));
        let open = |id: &OpenId| Some(Id::Open(*id));
        match self {
            Ask::Walk { from: one, .. }
            | Ask::Stat { node: one }
            | Ask::Open { node: one, .. }
            | Ask::ListAll { from: one, .. }
            | Ask::ReadAll { from: one, .. }
            | Ask::Create { dir: one, .. }
            | Ask::CreateUnnamed { dir: one, .. }
            | Ask::MakeDir { dir: one, .. }
            | Ask::Symlink { dir: one, .. }
            | Ask::MakeNode { dir: one, .. }
            | Ask::ReadLink { node: one }
            | Ask::Remove { dir: one, .. }
            | Ask::RemoveNode { node: one }
            | Ask::StatFs { node: one }
            | Ask::GetAttr { node: one, .. }
            | Ask::SetAttr { node: one, .. }
            | Ask::ListAttrs { node: one }
            | Ask::RemoveAttr { node: one, .. } => [node(one), None],
            Ask::SetStat { node: one, open: other, .. } => {
                [node(one), other.as_ref().and_then(open)]
            }
            Ask::Link { node: one, dir: two, .. } | Ask::Rename { from: one, to: two, .. } => {
                [node(one), node(two)]
            }
            Ask::RenameNode { node: one, to, .. } => [node(one), to.as_ref().and_then(node)],
            Ask::Replace { dir: one, by, .. } => match by {
                Replacement::Nothing => [node(one), None],
                Replacement::Entry(two, _) | Replacement::Unnamed(two) => [node(one), node(two)],
            },
            Ask::Read { open: one, .. }
            | Ask::NextData { open: one, .. }
            | Ask::Write { open: one, .. }
            | Ask::Sync { open: one, .. }
            | Ask::List { open: one, .. }
            | Ask::Lock { open: one, .. }
            | Ask::GetLock { open: one, .. } => [open(one), None],
            Ask::Fetch { root, .. } => [root.as_ref().and_then(node), None],
            Ask::Identify { .. } => [None, None],
        }
    }

    /// Shows every node it is about, to be replaced by another name for the same.
    pub fn each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        match self {
            Ask::Walk { from: one, .. }
            | Ask::Stat { node: one }
            | Ask::Open { node: one, .. }
            | Ask::ListAll { from: one, .. }
            | Ask::ReadAll { from: one, .. }
            | Ask::Create { dir: one, .. }
            | Ask::CreateUnnamed { dir: one, .. }
            | Ask::MakeDir { dir: one, .. }
            | Ask::Symlink { dir: one, .. }
            | Ask::MakeNode { dir: one, .. }
            | Ask::ReadLink { node: one }
            | Ask::Remove { dir: one, .. }
            | Ask::RemoveNode { node: one }
            | Ask::StatFs { node: one }
            | Ask::GetAttr { node: one, .. }
            | Ask::SetAttr { node: one, .. }
            | Ask::ListAttrs { node: one }
            | Ask::RemoveAttr { node: one, .. }
            | Ask::SetStat { node: one, .. }
            | Ask::Fetch { root: Some(one), .. }
            | Ask::Replace { dir: one, by: Replacement::Nothing, .. }
            | Ask::RenameNode { node: one, to: None, .. } => visit(one),
            Ask::Link { node: one, dir: two, .. }
            | Ask::Rename { from: one, to: two, .. }
            | Ask::Replace {
                dir: one,
                by: Replacement::Entry(two, _) | Replacement::Unnamed(two),
                ..
            }
            | Ask::RenameNode { node: one, to: Some(two), .. } => {
                visit(one);
                visit(two);
            }
            Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Write { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Fetch { root: None, .. }
            | Ask::Identify { .. } => {}
        }
    }

    /// Replaces the directories of [`Ask::entries`], as many as are given.
    pub fn set_dirs(&mut self, dirs: &[NodeId]) {
        let mut dirs = dirs.iter().copied();
        let mut set = |dir: &mut NodeId| *dir = dirs.next().unwrap_or(*dir);
        match self {
            Ask::Create { dir, .. }
            | Ask::CreateUnnamed { dir, .. }
            | Ask::MakeDir { dir, .. }
            | Ask::Symlink { dir, .. }
            | Ask::MakeNode { dir, .. }
            | Ask::Link { dir, .. }
            | Ask::Remove { dir, .. }
            | Ask::Replace { dir, by: Replacement::Nothing | Replacement::Unnamed(_), .. }
            | Ask::RenameNode { to: Some(dir), .. } => set(dir),
            Ask::Replace { dir: to, by: Replacement::Entry(from, _), .. }
            | Ask::Rename { from, to, .. } => {
                set(from);
                set(to);
            }
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Stat { .. }
            | Ask::SetStat { .. }
            | Ask::Open { .. }
            | Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Write { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::ReadLink { .. }
            | Ask::RenameNode { to: None, .. }
            | Ask::RemoveNode { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::SetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::RemoveAttr { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => {}
        }
    }

    /// The entries it would make, move, replace or remove: directory and name.
    pub fn entries(&self) -> [Option<(NodeId, &Name)>; 2] {
        match self {
            Ask::Create { dir, name, .. }
            | Ask::CreateUnnamed { dir, name, .. }
            | Ask::MakeDir { dir, name, .. }
            | Ask::Symlink { dir, name, .. }
            | Ask::MakeNode { dir, name, .. }
            | Ask::Link { dir, name, .. }
            | Ask::Replace {
                dir, name, by: Replacement::Nothing | Replacement::Unnamed(_), ..
            }
            | Ask::Remove { dir, name, .. } => [Some((*dir, name)), None],
            Ask::Replace {
                dir: to, name: new_name, by: Replacement::Entry(from, name), ..
            }
            | Ask::Rename { from, name, to, new_name, .. } => {
                [Some((*from, name)), Some((*to, new_name))]
            }
            Ask::RenameNode { to: Some(to), new_name, .. } => [Some((*to, new_name)), None],
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Stat { .. }
            | Ask::SetStat { .. }
            | Ask::Open { .. }
            | Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Write { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::ReadLink { .. }
            | Ask::RenameNode { to: None, .. }
            | Ask::RemoveNode { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::SetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::RemoveAttr { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => [None, None],
        }
    }

    /// Whether this could give out one more node or open file, so that a full tree refuses it.
    pub fn hands_out(&self) -> bool {
        match self {
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Open { .. }
            | Ask::Create { .. }
            | Ask::CreateUnnamed { .. }
            | Ask::MakeDir { .. }
            | Ask::Symlink { .. }
            | Ask::MakeNode { .. } => true,
            Ask::Stat { .. }
            | Ask::SetStat { .. }
            | Ask::Replace { .. }
            | Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Write { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::ReadLink { .. }
            | Ask::Link { .. }
            | Ask::Rename { .. }
            | Ask::RenameNode { .. }
            | Ask::Remove { .. }
            | Ask::RemoveNode { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::SetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::RemoveAttr { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => false,
        }
    }

    /// Whether this could change anything, so that a read-only tree refuses it.
    pub fn changes(&self) -> bool {
        match self {
            Ask::Open { access, .. } => access.changes(),
            Ask::SetStat { .. }
            | Ask::Create { .. }
            | Ask::CreateUnnamed { .. }
            | Ask::Replace { .. }
            | Ask::Write { .. }
            | Ask::MakeDir { .. }
            | Ask::Symlink { .. }
            | Ask::MakeNode { .. }
            | Ask::Link { .. }
            | Ask::Rename { .. }
            | Ask::RenameNode { .. }
            | Ask::Remove { .. }
            | Ask::RemoveNode { .. }
            | Ask::SetAttr { .. }
            | Ask::RemoveAttr { .. } => true,
            Ask::Walk { .. }
            | Ask::Fetch { .. }
            | Ask::Stat { .. }
            | Ask::Read { .. }
            | Ask::NextData { .. }
            | Ask::Sync { .. }
            | Ask::List { .. }
            | Ask::ListAll { .. }
            | Ask::ReadAll { .. }
            | Ask::ReadLink { .. }
            | Ask::StatFs { .. }
            | Ask::GetAttr { .. }
            | Ask::ListAttrs { .. }
            | Ask::Lock { .. }
            | Ask::GetLock { .. }
            | Ask::Identify { .. } => false,
        }
    }
}

impl Ask {
    /// Has each write to a file that this opens wait until it is durable; a file without a name is
    /// synced before it gets one.
    pub fn write_through(&mut self) {
        if let Ask::Open { access, .. } | Ask::Create { access, .. } = self {
            access.sync |= access.write;
        }
    }
}
