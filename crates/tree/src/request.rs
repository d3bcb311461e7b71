//! File requests: the common core of 9P2000.L, NFSv3, HTTP and FUSE.
//!
//! A [`NodeId`] identifies a file, and an [`OpenId`] pins a file beyond the life of its name. A
//! reply with either hands out one reference; [`Input::Release`] and [`Input::Close`] return it.
//! Ids are created by trees and never by clients, so an unknown one is a bug of this program and
//! not an error of a peer.

use base::op::{Detail, Done, Op, OpId, Replacement, Who};
use base::{Access, Buf, Caller, Error, Expected, FileHandle, Kind, Name, SetStat};

pub use crate::locks::{Lock, LockKind, Owner};
pub use crate::reply::Reply;

/// Identifier of a request, chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Number of lower bits of a request id, which distinguish the calls of one caller.
const CALL_BITS: u32 = 32;

impl RequestId {
    /// Returns the id of call `call` of a requester: a connection of a node, or a part of the
    /// server.
    pub fn new(requester: u32, call: u32) -> RequestId {
        RequestId(u64::from(requester) << CALL_BITS | u64::from(call))
    }

    /// Returns the caller: the same for all requests of one connection.
    pub fn requester(self) -> u32 {
        (self.0 >> CALL_BITS) as u32
    }
}

/// Identifier of a file in a tree while a reference is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Identifier of an open file in a tree while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenId(pub u64);

/// Number of lower bits of an id, which are local to its tree.
const LOCAL_BITS: u32 = 48;

/// Defines the common layout of ids: the tree's number is in the upper sixteen bits.
macro_rules! of_tree {
    ($type:ident) => {
        impl $type {
            /// Returns the id of the tree's object `local`.
            pub fn new(tree: u16, local: usize) -> $type {
                $type(u64::from(tree) << LOCAL_BITS | local as u64)
            }

            /// Returns the tree's number.
            pub fn tree(self) -> u16 {
                (self.0 >> LOCAL_BITS) as u16
            }

            /// Returns the number local to the tree.
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
    /// Returns the tree's number.
    pub fn tree(self) -> u16 {
        match self {
            Id::Node(node) => node.tree(),
            Id::Open(open) => open.tree(),
        }
    }
}

/// An input of a tree.
#[derive(Debug)]
pub enum Input {
    /// A request; exactly one [`Output::Reply`] follows.
    Ask(RequestId, Request),
    /// The reply is no longer wanted; it follows nevertheless, perhaps as `Cancelled`.
    Cancel(RequestId),
    /// A reference to a node is released.
    Release(NodeId),
    /// An open file is closed, and its locks are released.
    Close(OpenId),
    /// Like [`Input::Close`], after the loss of the client: unfinished work on the file is dropped.
    Abandon(OpenId),
    /// The completion of an operation.
    Done(OpId, Done),
    /// The contents of a service file, in reply to [`Output::Render`].
    Rendered(u64, Vec<u8>),
    /// The result of an [`Output::Command`].
    Commanded(u64, Result<(), Refusal>),
    /// The reply to an [`AsClient::Ask`] with the same number.
    Answered(u64, Result<Reply, Error>),
}

/// An output of a tree.
#[derive(Debug)]
pub enum Output {
    /// The reply to a request.
    Reply(RequestId, Result<Reply, Error>),
    /// An operation of the reactor.
    Do(Op),
    /// A request for the contents of a service file; the reply has the same number.
    Render(u64, Topic),
    /// Lines written to a service file by an authorised user; their result has the same number.
    Command {
        /// Number of the command.
        ticket: u64,
        /// Number of the first line in the text written, counted from one.
        line: usize,
        /// The lines.
        text: Vec<u8>,
    },
    /// Nobody waits for the result of this command any longer; it follows nevertheless, and soon.
    CancelCommand(u64),
    /// The tree is itself a client of the namespace.
    AsClient(AsClient),
}

/// An output of a tree as a client of the namespace.
#[derive(Debug)]
pub enum AsClient {
    /// A request; the reply ([`Input::Answered`]) has the same number.
    Ask(u64, Request),
    /// A node of a reply is released.
    Release(NodeId),
    /// An open file of a reply is closed.
    Close(OpenId),
}

/// An output of one stream of a tree that is a client of the namespace.
#[derive(Debug)]
pub(crate) enum StreamOutput {
    /// A request; the stream sends the next one after the reply.
    Ask(Ask),
    /// A node of a reply is released.
    Release(NodeId),
    /// An open file of a reply is closed.
    Close(OpenId),
}

impl StreamOutput {
    /// Returns it as an output of the tree: a request has this number and caller.
    pub(crate) fn numbered(self, number: u64, caller: &Caller) -> AsClient {
        match self {
            StreamOutput::Ask(ask) => {
                AsClient::Ask(number, Request { caller: caller.clone(), ask })
            }
            StreamOutput::Release(node) => AsClient::Release(node),
            StreamOutput::Close(open) => AsClient::Close(open),
        }
    }
}

/// Reason why a command was not or only partly executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error code, for programs.
    pub error: Error,
    /// Message for people: the line, its error, and the remedy.
    pub why: String,
}

/// Subject of a service file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// All kinds of machines, with the number in each state.
    Machines,
    /// All queues, with length and limit.
    Queues,
    /// Latencies of the stages of a request.
    Stages,
    /// All of these as Prometheus text.
    Metrics,
    /// Mounts and binds, in the syntax of a names file; lines of the same syntax change them.
    Names,
}

/// A file request with its caller.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identity of the caller; every tree enforces permissions.
    pub caller: Caller,
    /// The request.
    pub ask: Ask,
}

/// A type of fields of requests: what it refers to. The defaults are those of plain values.
trait Field {
    fn add_ids(&self, _ids: &mut [Option<Id>; 2]) {}

    fn each_node(&mut self, _visit: &mut dyn FnMut(&mut NodeId)) {}
}

/// Adds an id to at most one other.
fn add(ids: &mut [Option<Id>; 2], id: Id) {
    let free = ids.iter_mut().find(|id| id.is_none());
    *free.expect("a request is about two files at most") = Some(id);
}

impl Field for NodeId {
    fn add_ids(&self, ids: &mut [Option<Id>; 2]) {
        add(ids, Id::Node(*self));
    }

    fn each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        visit(self);
    }
}

impl Field for OpenId {
    fn add_ids(&self, ids: &mut [Option<Id>; 2]) {
        add(ids, Id::Open(*self));
    }
}

impl<T: Field> Field for Option<T> {
    fn add_ids(&self, ids: &mut [Option<Id>; 2]) {
        self.iter().for_each(|field| field.add_ids(ids));
    }

    fn each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        self.iter_mut().for_each(|field| field.each_node(visit));
    }
}

impl Field for Replacement<NodeId> {
    fn add_ids(&self, ids: &mut [Option<Id>; 2]) {
        if let Replacement::Entry(node, _) | Replacement::Unnamed(node) = self {
            node.add_ids(ids);
        }
    }

    fn each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
        if let Replacement::Entry(node, _) | Replacement::Unnamed(node) = self {
            visit(node);
        }
    }
}

macro_rules! plain {
    ($($type:ty),*) => { $(impl Field for $type {})* };
}

plain!(bool, u32, u64, Name, Buf, Access, Kind, SetStat, Detail, Expected, FileHandle, Lock, Who);

impl<T> Field for Vec<T> {}

/// Defines the requests from their table.
///
/// Behind its name stands what it could do, for trees that are read-only or full: `reads` or
/// `changes`, and `hands_out`, if it could hand out a node or open file; then, as `[dir/name]`, the
/// entries that it would create, rename, replace or remove. Its nodes and open files follow from
/// the types of its fields.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $effect:ident $(, $hands_out:ident)?
        $([$($dir:ident/$entry:ident),*])? { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* },
    )*) => {
        /// A file request.
        #[derive(Clone, Debug)]
        pub enum Ask { $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)* }

        impl Ask {
            /// Returns the nodes and open files of the request, at most two.
            pub fn ids(&self) -> [Option<Id>; 2] {
                let mut ids = [None, None];
                match self { $(Ask::$name { $($field),* } => { $($field.add_ids(&mut ids);)* })* }
                ids
            }

            /// Passes every node of the request to `visit`, to be replaced by another id of the
            /// same file.
            pub fn each_node(&mut self, visit: &mut dyn FnMut(&mut NodeId)) {
                match self { $(Ask::$name { $($field),* } => { $($field.each_node(visit);)* })* }
            }

            /// Returns whether this could change anything, so that a read-only tree refuses it.
            pub fn changes(&self) -> bool {
                if let Ask::Open { access, .. } = self {
                    return access.changes();
                }
                match self { $(Ask::$name { .. } => requests!(@ $effect),)* }
            }

            /// Returns whether this could hand out a node or open file, so that a full tree
            /// refuses it.
            pub fn hands_out(&self) -> bool {
                match self { $(Ask::$name { .. } => requests!(@ $($hands_out)?),)* }
            }

            /// Returns the entries that the request would create, rename, replace or remove:
            /// directory and name.
            pub fn entries(&self) -> [Option<(NodeId, &Name)>; 2] {
                if let Ask::Replace { dir, name, by: Replacement::Entry(from, old), .. } = self {
                    return [Some((*from, old)), Some((*dir, name))];
                }
                match self { $(Ask::$name { $($($dir, $entry,)*)? .. } => two([
                    $($(Option::from(*$dir).map(|dir| (dir, $entry))),*)?
                ]),)* }
            }

            /// Replaces the directories of [`Ask::entries`], as many as are given.
            pub fn set_dirs(&mut self, dirs: &[NodeId]) {
                let mut dirs = dirs.iter().copied();
                let mut set = |dir: &mut NodeId| *dir = dirs.next().unwrap_or(*dir);
                if let Ask::Replace { by: Replacement::Entry(from, _), .. } = self {
                    set(from);
                }
                match self { $(Ask::$name { $($($dir,)*)? .. } => {
                    $($($dir.each_node(&mut set);)*)?
                })* }
            }
        }
    };
    (@ reads) => { false };
    (@ changes) => { true };
    (@ hands_out) => { true };
    (@) => { false };
}

/// Returns two elements.
fn two<T, const N: usize>(all: [Option<T>; N]) -> [Option<T>; 2] {
    assert!(N <= 2, "a request is about two entries at most");
    let mut all = all.into_iter().flatten();
    [all.next(), all.next()]
}

requests! {
    /// Walk names one after the other. Without names: one more reference to the same node.
    Walk: reads, hands_out {
        /// First directory.
        from: NodeId,
        /// The names, at most sixteen.
        names: Vec<Name>,
    },
    /// Look up a path from the root, following links that stay within, and read the file.
    Fetch: reads, hands_out {
        /// Another directory to start from, which neither a link that begins with `/` nor `..` can
        /// leave. `None`: the tree's own root.
        root: Option<NodeId>,
        /// Components, none of them `.` or `..`.
        path: Vec<Name>,
        /// Maximum number of bytes to read at once.
        read_max: u32,
        /// Headroom in front of the data, bytes.
        headroom: u32,
    },
    /// Get the attributes.
    Stat: reads {
        /// The file.
        node: NodeId,
    },
    /// Get the persistent identity of a file. Optional for a tree (`Unsupported`).
    FileHandle: reads {
        /// The file.
        node: NodeId,
    },
    /// Get a reference to the file of a persistent identity; no permissions are checked. `Stale` if
    /// there is no such file any more.
    Resolve: reads, hands_out {
        /// Identity of the file.
        handle: FileHandle,
    },
    /// Change attributes.
    SetStat: changes {
        /// The file.
        node: NodeId,
        /// The same file, open for writing, which is permission enough to set the size.
        open: Option<OpenId>,
        /// The new attributes.
        set: SetStat,
    },
    /// Open a file or directory; whether this changes anything depends on `access`.
    Open: reads, hands_out {
        /// The file.
        node: NodeId,
        /// Access mode.
        access: Access,
    },
    /// Create a file and open it.
    Create: changes, hands_out [dir/name] {
        /// The directory.
        dir: NodeId,
        /// Name of the file.
        name: Name,
        /// Access mode.
        access: Access,
        /// Whether an existing file is an error.
        exclusive: bool,
        /// Permission bits.
        mode: u32,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Create an unnamed plain file and open it, to be named by a later [`Ask::Replace`]; otherwise
    /// it is freed when it is released, also after a crash. Optional for a tree (`Unsupported`).
    CreateUnnamed: changes, hands_out [dir/name] {
        /// Directory of the entry that it will replace.
        dir: NodeId,
        /// Name of that entry.
        name: Name,
        /// Access mode.
        access: Access,
        /// Permission bits.
        mode: u32,
    },
    /// Read from an open file.
    Read: reads {
        /// The open file.
        open: OpenId,
        /// Offset, bytes.
        offset: u64,
        /// Maximum number of bytes.
        count: u32,
        /// Headroom in front of the data, bytes.
        headroom: u32,
    },
    /// Find the first allocated byte of an open file from an offset on: SEEK_DATA of lseek(2).
    /// Optional for a tree (`Unsupported`); reads return the same either way.
    NextData: reads {
        /// The open file.
        open: OpenId,
        /// Offset, bytes.
        from: u64,
    },
    /// Write to an open file.
    Write: changes {
        /// The open file.
        open: OpenId,
        /// Offset, bytes.
        offset: u64,
        /// The data.
        data: Buf,
    },
    /// Make completed writes durable.
    Sync: reads {
        /// The open file.
        open: OpenId,
        /// Whether only the contents become durable, not the timestamps.
        data_only: bool,
    },
    /// List an open directory.
    List: reads {
        /// The open directory.
        open: OpenId,
        /// Zero, or the cookie of the last entry listed.
        cookie: u64,
        /// Approximate size of the result: bytes of names, with 24 bytes of overhead each.
        bytes_max: u32,
        /// Details of each entry.
        detail: Detail,
    },
    /// List directories and those beneath them, as many whole directories as fit, in depth-first
    /// order. Directories that cannot be listed are left out. Optional for a tree (`Unsupported`).
    ListAll: reads {
        /// Directory that the paths are relative to.
        from: NodeId,
        /// Paths of the directories: components joined by `/`, all of them directories; empty means
        /// `from` itself.
        paths: Vec<Vec<u8>>,
        /// Maximum size of the result: bytes of names, with 24 bytes of overhead for each and for
        /// each directory.
        bytes_max: u32,
    },
    /// Read small plain files as a whole, as many of the first as fit. Files that are missing, of
    /// another kind, larger or unreadable are left out. Optional for a tree (`Unsupported`).
    ReadAll: reads {
        /// Directory that the paths are relative to.
        from: NodeId,
        /// Paths of the files: components joined by `/`, with directories in front of the last
        /// only.
        paths: Vec<Vec<u8>>,
        /// Maximum size of a file, bytes.
        size_max: u32,
        /// Maximum total size of the contents, bytes.
        bytes_max: u32,
    },
    /// Create a directory.
    MakeDir: changes, hands_out [dir/name] {
        /// The parent directory.
        dir: NodeId,
        /// Name of the directory.
        name: Name,
        /// Permission bits.
        mode: u32,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Create a symbolic link.
    Symlink: changes, hands_out [dir/name] {
        /// The directory.
        dir: NodeId,
        /// Name of the link.
        name: Name,
        /// Its target.
        target: Vec<u8>,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Create a special (or plain) file.
    MakeNode: changes, hands_out [dir/name] {
        /// The directory.
        dir: NodeId,
        /// Name of the file.
        name: Name,
        /// Its kind.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// Device number, for devices.
        device: u64,
        /// Group, if the client chooses it.
        gid: Option<u32>,
    },
    /// Read the target of a symbolic link.
    ReadLink: reads {
        /// The link.
        node: NodeId,
    },
    /// Add a hard link to a file.
    Link: changes [dir/name] {
        /// The file.
        node: NodeId,
        /// Directory of the new link.
        dir: NodeId,
        /// Name of the new link.
        name: Name,
    },
    /// Rename an entry.
    Rename: changes [from/name, to/new_name] {
        /// Old directory.
        from: NodeId,
        /// Old name.
        name: Name,
        /// New directory.
        to: NodeId,
        /// New name.
        new_name: Name,
        /// Whether an existing file of that name is replaced; otherwise it is an error (`Exists`).
        replace: bool,
    },
    /// Rename a file given by its node.
    RenameNode: changes [to/new_name] {
        /// The file.
        node: NodeId,
        /// New directory; `None`: the present one.
        to: Option<NodeId>,
        /// New name.
        new_name: Name,
        /// Whether an existing file of that name is replaced; otherwise it is an error (`Exists`).
        replace: bool,
    },
    /// Remove an entry.
    Remove: changes [dir/name] {
        /// The directory.
        dir: NodeId,
        /// Name of the entry.
        name: Name,
        /// Whether it must be a directory (`Some(true)`) or must not be (`Some(false)`).
        directory: Option<bool>,
    },
    /// Replace or remove an entry if its present state is as expected, atomically with respect to
    /// every other change of the entry through this tree. The reply is [`Reply::Unexpected`], or
    /// the attributes after the change where the tree knows them.
    Replace: changes [dir/name] {
        /// Directory of the entry.
        dir: NodeId,
        /// Name of the entry.
        name: Name,
        /// The replacement.
        by: Replacement<NodeId>,
        /// Precondition.
        expected: Expected,
    },
    /// Remove a file given by its node.
    RemoveNode: changes {
        /// The file.
        node: NodeId,
    },
    /// Get the usage of the tree.
    StatFs: reads {
        /// Any file of the tree.
        node: NodeId,
    },
    /// Get the value of an extended attribute.
    GetAttr: reads {
        /// The file.
        node: NodeId,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Set an extended attribute.
    SetAttr: changes {
        /// The file.
        node: NodeId,
        /// Name of the attribute.
        name: Vec<u8>,
        /// Value of the attribute.
        value: Vec<u8>,
        /// `Some(true)`: must be new; `Some(false)`: must exist.
        create: Option<bool>,
    },
    /// List the names of the extended attributes, each terminated by NUL.
    ListAttrs: reads {
        /// The file.
        node: NodeId,
    },
    /// Remove an extended attribute.
    RemoveAttr: changes {
        /// The file.
        node: NodeId,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Lock or unlock a range.
    Lock: reads {
        /// The open file.
        open: OpenId,
        /// Range, type and owner of the lock.
        lock: Lock,
        /// Whether to wait for conflicting locks.
        wait: bool,
    },
    /// Get a lock that conflicts with this one.
    GetLock: reads {
        /// The open file.
        open: OpenId,
        /// Range, type and owner of the lock.
        lock: Lock,
    },
    /// Look up a user of the host.
    Identify: reads {
        /// User id or name.
        who: Who,
    },
}

impl Ask {
    /// Makes each write to a file opened by this request wait for durability; an unnamed file is
    /// synced before it gets a name.
    pub fn write_through(&mut self) {
        if let Ask::Open { access, .. } | Ask::Create { access, .. } = self {
            access.sync |= access.write;
        }
    }
}
