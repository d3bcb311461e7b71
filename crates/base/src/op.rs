//! Operations of a node on the world, and their completions.
//!
//! Operations on files name an open file by the [`File`] of an earlier completion; operations on
//! connections name a [`Socket`]. Both are opaque outside of the reactor. Work of several system
//! calls (resolve beneath a directory, open, stat, change owner …) is one [`PathOp`], performed as
//! straight-line code.
//!
//! Every operation with an id completes exactly once, also after a cancellation.

mod directory;

use crate::{
    Access, Block, Buf, Caller, Error, Expected, FileHandle, Instant, Kind, Name, SetStat, Stat,
    StatFs, User,
};
pub use directory::{Content, Detail, Entry, Listing};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;

/// Maximum number of blocks in one operation.
pub const BLOCKS_MAX: usize = 512;

/// Maximum number of bytes, give or take a packet, that a reactor queues for a client of a TCP
/// listener without having transmitted them: a larger send completes only after the client has
/// received part of it.
pub const UNSENT_MAX: usize = 512 << 10;

/// Identifier of an operation: chosen by the submitter, returned with the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// An open file or directory of the host, or a handle without access (`O_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File(pub u32);

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub u32);

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener(pub u32);

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// On the network.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(Vec<u8>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", String::from_utf8_lossy(path)),
        }
    }
}

/// A message from one node of a process to another. Its contents are known to nodes only.
#[derive(Debug)]
pub struct Envelope(pub Box<dyn Any + Send>);

/// Destination of received bytes.
#[derive(Debug)]
pub enum ReceiveBuf {
    /// A buffer of the reactor's, of its default size. At the end of the stream it is empty.
    Default,
    /// A buffer of the reactor's, of at most this number of bytes. The end of the stream is
    /// `Disconnected`.
    UpTo(usize),
    /// This buffer, behind its contents. The end of the stream is `Disconnected`.
    Append(Buf),
}

impl ReceiveBuf {
    /// Returns whether this is a buffer of the reactor's default size.
    pub fn is_default(&self) -> bool {
        matches!(self, ReceiveBuf::Default)
    }

    /// Returns the memory, bytes, charged to the connection during the receive: zero for the
    /// reactor's own buffers.
    pub fn held(&self) -> usize {
        match self {
            ReceiveBuf::Default => 0,
            ReceiveBuf::UpTo(count) => *count,
            ReceiveBuf::Append(buf) => buf.capacity(),
        }
    }

    /// Returns a buffer of this room, freshly allocated if there is none to reuse, and the number
    /// of bytes that it may receive.
    pub fn into_buf(self, usual: usize) -> (Buf, usize) {
        match self {
            ReceiveBuf::Default => (Buf::with_room(0, usual), usual),
            ReceiveBuf::UpTo(count) => (Buf::with_room(0, count), count),
            ReceiveBuf::Append(buf) => {
                let count = buf.tailroom();
                (buf, count)
            }
        }
    }
}

/// Asker of operations of no connection: each of them has a turn of its own in the scheduling of
/// [`Op::Path`].
pub const NOBODY: u32 = u32::MAX;

/// Client that an operation is accounted to: a connection, or what the node groups connections by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey(pub u64);

impl ClientKey {
    /// No client, as [`NOBODY`].
    pub const NOBODY: ClientKey = ClientKey::of_requester(NOBODY);

    /// Returns the key of a single connection.
    pub const fn of_requester(requester: u32) -> ClientKey {
        ClientKey(requester as u64)
    }
}

/// An operation.
#[derive(Debug)]
pub enum Op {
    /// Accept connections: waits for one, then takes others pending at that time, up to `max`.
    Accept {
        /// Completes with [`Done::Accepted`].
        id: OpId,
        /// The listening socket.
        listener: Listener,
        /// Maximum number of connections, at least one.
        max: usize,
    },
    /// Close a listener: further connection attempts are refused. An accept in flight is cancelled.
    CloseListener {
        /// The listening socket.
        listener: Listener,
    },
    /// Open a connection. The death of the peer is detected within about half a minute.
    Connect {
        /// Completes with [`Done::Connected`].
        id: OpId,
        /// Address of the server.
        to: Address,
    },
    /// Send a message to another node of this process, where it arrives as [`Done::Envelope`].
    Post {
        /// Index of the node.
        to: usize,
        /// The message.
        envelope: Envelope,
    },
    /// Receive the next bytes.
    Receive {
        /// Completes with [`Done::Received`].
        id: OpId,
        /// The connection.
        socket: Socket,
        /// Destination of the bytes.
        into: ReceiveBuf,
    },
    /// Send all of this, in order.
    Send {
        /// Completes with [`Done::Sent`].
        id: OpId,
        /// The connection. One send at a time.
        socket: Socket,
        /// The bytes.
        data: Vec<Buf>,
    },
    /// Shut down the sending direction.
    Finish {
        /// The connection.
        socket: Socket,
    },
    /// Abort the connection; outstanding operations complete with `Disconnected`.
    Hangup {
        /// The connection.
        socket: Socket,
    },
    /// Close the socket. Nothing may be outstanding.
    CloseSocket {
        /// The connection.
        socket: Socket,
    },
    /// Read up to `count` bytes.
    Read {
        /// Completes with [`Done::Read`].
        id: OpId,
        /// An open file.
        file: File,
        /// Offset in the file, bytes.
        offset: u64,
        /// Maximum number of bytes.
        count: u32,
        /// Headroom in front of the data, bytes.
        headroom: u32,
    },
    /// Write all of `data`, or as much as fits.
    Write {
        /// Completes with [`Done::Written`].
        id: OpId,
        /// Identity of the writer (set-id bits are cleared for ordinary users).
        caller: Caller,
        /// An open file.
        file: File,
        /// Offset in the file, bytes.
        offset: u64,
        /// The data.
        data: Buf,
    },
    /// Make completed writes durable.
    Sync {
        /// Completes with [`Done::Synced`].
        id: OpId,
        /// An open file.
        file: File,
        /// Whether only the contents become durable, not the timestamps.
        data_only: bool,
    },
    /// Read whole blocks of a volume, each into memory of its own.
    ReadBlocks {
        /// Completes with [`Done::Blocks`].
        id: OpId,
        /// The volume's file or device.
        file: File,
        /// Offset, bytes; a multiple of `size`.
        offset: u64,
        /// Number of blocks, at most [`BLOCKS_MAX`].
        count: u32,
        /// Size of a block, bytes: a power of two, at least 512.
        size: u32,
    },
    /// Write whole, consecutive blocks of a volume.
    WriteBlocks {
        /// Completes with [`Done::Stored`].
        id: OpId,
        /// The volume's file or device.
        file: File,
        /// Offset, bytes; a multiple of the block size.
        offset: u64,
        /// The blocks: at most [`BLOCKS_MAX`], all of one size.
        blocks: Vec<Block>,
        /// Whether it completes only when these blocks (and perhaps no others) are durable.
        durable: bool,
    },
    /// Several system calls on paths, as one operation.
    Path {
        /// Completes with [`Done::Path`].
        id: OpId,
        /// Identity of the caller.
        caller: Caller,
        /// The connection, or [`NOBODY`]: connections with waiting operations are served round
        /// robin.
        requester: u32,
        /// Directory that the operation may not leave: names are looked up, created and removed
        /// only in directories that are it or beneath it at that moment (`Stale` otherwise),
        /// wherever they were when their handles were opened.
        within: Option<File>,
        /// The operation.
        op: PathOp,
    },
    /// Close a file or handle. Nothing may be outstanding on it. It does not complete; if it may
    /// take long, [`Done::Closing`] reports when its descriptor is free.
    CloseFile {
        /// The file or handle.
        file: File,
        /// The client whose file it was: clients with waiting closes are served round robin.
        client: ClientKey,
    },
    /// Try to end an operation early. It completes nevertheless, perhaps with `Cancelled`.
    Cancel {
        /// The operation.
        id: OpId,
    },
}

/// Straight-line work on the host's directories. The `File`s may be handles without access
/// (`O_PATH`).
#[derive(Clone, Debug)]
pub enum PathOp {
    /// Look up `names`, one after the other, from `from`, without following links.
    Walk {
        /// The served root: `..` stops here.
        root: File,
        /// First directory.
        from: File,
        /// The names, at least one.
        names: Vec<Name>,
    },
    /// Look up a path from `root`, following links that stay beneath; open and read the file.
    Fetch {
        /// First directory.
        root: File,
        /// Components joined by `/`; empty means `root` itself.
        path: Vec<u8>,
        /// Maximum number of bytes to read at once.
        read_max: u32,
        /// Headroom in front of the data, bytes.
        headroom: u32,
    },
    /// Get the attributes.
    Stat {
        /// File or handle.
        file: File,
    },
    /// Get the persistent identity of a file.
    FileHandle {
        /// The served root.
        root: File,
        /// Handle of the file.
        file: File,
    },
    /// Open the file of a persistent identity, as a handle.
    OpenHandle {
        /// The served root.
        root: File,
        /// Identity of the file.
        handle: FileHandle,
    },
    /// Change attributes: all, or as many as succeed in the order size, owner, mode, timestamps.
    SetStat {
        /// File or handle.
        file: File,
        /// Whether `file` is open for writing, which is permission enough to set the size.
        open: bool,
        /// The new attributes.
        set: SetStat,
    },
    /// Open a file or directory by its handle.
    Open {
        /// Handle of the file.
        file: File,
        /// Access mode.
        access: Access,
    },
    /// Create a file and open it; or open an existing one unless `exclusive` is set.
    Create {
        /// The directory.
        dir: File,
        /// Name of the file.
        name: Name,
        /// Access mode.
        access: Access,
        /// Whether an existing file is an error.
        exclusive: bool,
        /// Permission bits.
        mode: u32,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Create an unnamed plain file and open it (`O_TMPFILE`); it is freed when its handles are
    /// closed, unless [`PathOp::Replace`] gives it a name.
    CreateUnnamed {
        /// Directory that provides the file system, and whose permissions count.
        dir: File,
        /// Access mode.
        access: Access,
        /// Permission bits.
        mode: u32,
    },
    /// Create a directory.
    MakeDir {
        /// The parent directory.
        dir: File,
        /// Name of the directory.
        name: Name,
        /// Permission bits.
        mode: u32,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Create a symbolic link.
    Symlink {
        /// The directory.
        dir: File,
        /// Name of the link.
        name: Name,
        /// Its target.
        target: Vec<u8>,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Create a special (or plain) file without opening it.
    MakeNode {
        /// The directory.
        dir: File,
        /// Name of the file.
        name: Name,
        /// Its kind.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// Device number, for devices (Linux's encoding).
        device: u64,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Read the target of a symbolic link.
    ReadLink {
        /// Handle of the link.
        file: File,
    },
    /// Add a hard link to a file.
    Link {
        /// Handle of the file.
        file: File,
        /// Directory of the new link.
        dir: File,
        /// Name of the new link.
        name: Name,
    },
    /// Rename an entry.
    Rename {
        /// Old directory.
        from: File,
        /// Old name.
        name: Name,
        /// New directory.
        to: File,
        /// New name.
        new_name: Name,
        /// Whether an existing file of that name is replaced; otherwise it is an error (`Exists`).
        replace: bool,
    },
    /// Rename a file given by its handle; its present name is looked up.
    RenameFile {
        /// The served root, which the file must be beneath.
        root: File,
        /// Handle of the file.
        file: File,
        /// New directory; `None`: the present one.
        to: Option<File>,
        /// New name.
        new_name: Name,
        /// Whether an existing file of that name is replaced; otherwise it is an error (`Exists`).
        replace: bool,
    },
    /// Remove an entry.
    Remove {
        /// The directory.
        dir: File,
        /// Name of the entry.
        name: Name,
        /// Whether it must be a directory (`Some(true)`) or must not be (`Some(false)`).
        directory: Option<bool>,
    },
    /// Remove a file given by its handle; its present name is looked up.
    RemoveFile {
        /// The served root, which the file must be beneath.
        root: File,
        /// Handle of the file.
        file: File,
    },
    /// Replace or remove an entry if its present state is as expected. A replacing file gets the
    /// time of the change as its modification time, finer than the kernel's own clock tick. The
    /// check and the change are two system calls: the caller ensures that no other change of the
    /// same entry is in flight.
    Replace {
        /// Directory of the entry.
        dir: File,
        /// Name of the entry.
        name: Name,
        /// The replacement.
        by: Replacement<File>,
        /// Precondition.
        expected: Expected,
    },
    /// List an open directory, from a cookie on.
    List {
        /// The open directory.
        file: File,
        /// Zero, or the cookie of the last entry listed.
        cookie: u64,
        /// Approximate size of the result: bytes of names, with 24 bytes of overhead each.
        bytes_max: u32,
        /// Details of each entry.
        detail: Detail,
    },
    /// List directories and those beneath them, as many whole directories as fit, in depth-first
    /// order. Directories that cannot be listed, and those on another file system, are left out.
    ListAll {
        /// Directory that the paths are relative to.
        from: File,
        /// Paths of the directories: components joined by `/`; empty means `from` itself.
        paths: Vec<Vec<u8>>,
        /// Maximum size of the result: bytes of names, with 24 bytes of overhead each.
        bytes_max: u32,
    },
    /// Read small plain files as a whole, as many of the first as fit. Files that are missing, of
    /// another kind, larger, on another file system or unreadable are left out.
    ReadAll {
        /// Directory that the paths are relative to.
        from: File,
        /// Paths of the files: components joined by `/`, with directories in front of the last
        /// only.
        paths: Vec<Vec<u8>>,
        /// Maximum size of a file, bytes.
        size_max: u32,
        /// Maximum total size of the contents, bytes.
        bytes_max: u32,
    },
    /// Get the usage of the file system.
    StatFs {
        /// Any file on it.
        file: File,
    },
    /// Get the value of an extended attribute.
    GetAttr {
        /// File or handle.
        file: File,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Set an extended attribute.
    SetAttr {
        /// File or handle.
        file: File,
        /// Name of the attribute.
        name: Vec<u8>,
        /// Value of the attribute.
        value: Vec<u8>,
        /// `Some(true)`: must be new; `Some(false)`: must exist.
        create: Option<bool>,
    },
    /// List the names of the extended attributes, each terminated by NUL.
    ListAttrs {
        /// File or handle.
        file: File,
    },
    /// Remove an extended attribute.
    RemoveAttr {
        /// File or handle.
        file: File,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Look up a user of the host.
    Identify {
        /// User id or name.
        who: Who,
    },
    /// Open a directory to be served, as a handle.
    OpenRoot {
        /// Its path on the host.
        path: Vec<u8>,
    },
    /// Open and lock the file or block device of a volume, and read its beginning.
    OpenVolume {
        /// Its path on the host.
        path: Vec<u8>,
        /// Whether it will be written.
        writable: bool,
        /// Number of bytes to read, a multiple of 4096.
        head: u32,
    },
    /// Resolve the addresses of a server.
    Resolve {
        /// `HOST:PORT`.
        address: String,
    },
}

impl PathOp {
    /// Returns the files that the operation uses, at most three.
    pub fn files(&self) -> impl Iterator<Item = File> + use<> {
        let files = match *self {
            PathOp::Walk { root, from, .. } => [Some(root), Some(from), None],
            PathOp::Fetch { root: one, .. }
            | PathOp::OpenHandle { root: one, .. }
            | PathOp::Stat { file: one }
            | PathOp::SetStat { file: one, .. }
            | PathOp::Open { file: one, .. }
            | PathOp::ReadLink { file: one }
            | PathOp::Create { dir: one, .. }
            | PathOp::CreateUnnamed { dir: one, .. }
            | PathOp::MakeDir { dir: one, .. }
            | PathOp::Symlink { dir: one, .. }
            | PathOp::MakeNode { dir: one, .. }
            | PathOp::Remove { dir: one, .. }
            | PathOp::Replace { dir: one, by: Replacement::Nothing, .. }
            | PathOp::List { file: one, .. }
            | PathOp::ListAll { from: one, .. }
            | PathOp::ReadAll { from: one, .. }
            | PathOp::StatFs { file: one }
            | PathOp::GetAttr { file: one, .. }
            | PathOp::SetAttr { file: one, .. }
            | PathOp::ListAttrs { file: one }
            | PathOp::RemoveAttr { file: one, .. } => [Some(one), None, None],
            PathOp::Replace {
                dir: one,
                by: Replacement::Entry(two, _) | Replacement::Unnamed(two),
                ..
            }
            | PathOp::Link { file: one, dir: two, .. }
            | PathOp::Rename { from: one, to: two, .. }
            | PathOp::FileHandle { root: one, file: two }
            | PathOp::RemoveFile { root: one, file: two } => [Some(one), Some(two), None],
            PathOp::RenameFile { root, file, to, .. } => [Some(root), Some(file), to],
            PathOp::Identify { .. }
            | PathOp::OpenRoot { .. }
            | PathOp::OpenVolume { .. }
            | PathOp::Resolve { .. } => [None; 3],
        };
        files.into_iter().flatten()
    }
}

/// Replacement of a directory entry. `N` is the type of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement<N> {
    /// None: the entry is removed.
    Nothing,
    /// The file of this directory and name, which is renamed.
    Entry(N, Name),
    /// An unnamed file.
    Unnamed(N),
}

/// A client's name of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By user id.
    Uid(u32),
    /// By name.
    Name(Vec<u8>),
}

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client on the network: its unauthenticated address.
    Network(String),
    /// A process of this host, with its user according to the kernel.
    Local(User),
}

/// Times of an operation on files: submission, start, completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Submission to the reactor.
    pub submitted: Instant,
    /// Start: at once, or when a thread of the pool took it.
    pub started: Instant,
    /// Completion, before delivery.
    pub finished: Instant,
}

/// A completion.
#[derive(Debug)]
pub struct Event {
    /// The operation.
    pub id: OpId,
    /// Its result.
    pub done: Done,
}

/// Result of an operation.
#[derive(Debug)]
pub enum Done {
    /// The accepted connections; none if another thread accepted them from the same socket.
    Accepted(Result<Vec<(Socket, Peer)>, Error>),
    /// The new connection, or an error. After a cancel there may be a connection, too.
    Connected(Result<Socket, Error>),
    /// A message from another node of this process. Unsolicited.
    Envelope(Envelope),
    /// Received bytes; none: the peer has shut down its sending direction.
    Received(Result<Buf, Error>),
    /// Everything was sent, or the connection is broken.
    Sent(Result<(), Error>),
    /// Bytes read; none: at or past the end of the file.
    Read(Result<Buf, Error>),
    /// Number of bytes written.
    Written(Result<u32, Error>),
    /// All requested blocks.
    Blocks(Result<Vec<Block>, Error>),
    /// All blocks were written.
    Stored(Result<(), Error>),
    /// Completed writes are durable. After an error the state of the disk is unknown.
    Synced(Result<(), Error>),
    /// Result of a path operation.
    Path(Result<PathDone, Error>),
    /// A close of a file of this client takes long, so a thread does it (`begins`), and its end.
    /// Meanwhile its descriptor is in use. Unsolicited.
    Closing {
        /// The client.
        client: ClientKey,
        /// Whether this is the beginning.
        begins: bool,
    },
    /// Termination was requested by a signal; unsolicited, each time it happens.
    Stop,
    /// File systems and services that do not respond; unsolicited, each time that the list
    /// changes.
    Unresponsive(Vec<Unresponsive>),
}

/// A file system or service of the host with an operation that has not ended for a long time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresponsive {
    /// Mount point and type, for people.
    pub name: String,
    /// When the oldest of its operations began.
    pub since: Instant,
    /// Operations begun and not ended. Each keeps a thread.
    pub running: usize,
    /// Operations waiting for one of its threads.
    pub waiting: usize,
}

/// Result of a path operation.
#[derive(Debug)]
pub enum PathDone {
    /// Success without a value.
    Ok,
    /// [`PathOp::Walk`]: attributes of every file on the way; a handle if all names were found,
    /// otherwise the error of the next one. [`PathOp::OpenHandle`]: attributes of the file.
    Walked(Vec<Stat>, Result<File, Error>),
    /// [`PathOp::Fetch`]: attributes, the first bytes, and the open file if there may be more.
    Fetched(Stat, Buf, Option<File>),
    /// [`PathOp::Stat`], [`PathOp::MakeDir`], [`PathOp::Symlink`], [`PathOp::MakeNode`]; also
    /// [`PathOp::Replace`] by a file: its attributes after the change.
    Stat(Stat),
    /// [`PathOp::FileHandle`].
    Handle(FileHandle),
    /// [`PathOp::Open`]: the open file.
    Opened(File, Stat),
    /// [`PathOp::Create`], [`PathOp::CreateUnnamed`]: the open file and a handle.
    Created(File, File, Stat),
    /// [`PathOp::Replace`]: nothing was changed, because the entry is in this other state.
    Unexpected(Option<Stat>),
    /// [`PathOp::ReadLink`], [`PathOp::GetAttr`], [`PathOp::ListAttrs`].
    Bytes(Vec<u8>),
    /// [`PathOp::List`]: empty at the end.
    Entries(Vec<Entry>),
    /// [`PathOp::ListAll`]: the directories that were listed, and the processor time used, ns.
    Listings(Vec<Listing>, u64),
    /// [`PathOp::ReadAll`]: the files that were read, and the processor time used, ns.
    Contents(Vec<Content>, u64),
    /// [`PathOp::StatFs`].
    StatFs(StatFs),
    /// [`PathOp::Identify`].
    User(User),
    /// [`PathOp::OpenRoot`].
    Root(File, Stat),
    /// [`PathOp::OpenVolume`]: the file, its size in bytes, and its beginning, which is empty if
    /// the file is shorter.
    Volume(File, u64, Vec<u8>),
    /// [`PathOp::Resolve`]: at least one address.
    Addresses(Vec<SocketAddr>),
}

impl OpId {
    /// Id of unsolicited events such as [`Done::Stop`].
    pub const UNREQUESTED: OpId = OpId(u64::MAX);
}
