//! What a node can ask of the world, and what the world answers.
//!
//! Operations on files name an open file by the [`File`] that an earlier completion handed out;
//! operations on connections name a [`Socket`]. Both are opaque to everybody but the reactor.
//! Work that takes several system calls (resolve beneath a directory, open, stat, change owner …)
//! is one [`PathOp`], performed as straight-line code.
//!
//! Every operation with an id completes exactly once, also when it is cancelled.

use crate::{
    Access, Block, Buf, Caller, Error, Expected, Instant, Kind, Name, SetStat, Stat, StatFs, User,
};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;

/// Most blocks of one operation.
pub const BLOCKS_MAX: usize = 512;

/// Maximum number of bytes that a reactor takes for a client of a TCP listener and that are not on
/// their way yet, but for one packet: a send of more ends when the client has taken some of it.
pub const UNSENT_MAX: usize = 512 << 10;

/// Names one operation; chosen by who submits it and given back with the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// An open file or directory of the host, or a handle that only names one (`O_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File(pub u32);

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub u32);

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener(pub u32);

/// Where somebody listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// On the network.
    Tcp(SocketAddr),
    /// A socket in the file system, by its path.
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

/// What one node of a process hands to another. Only nodes know what is in it.
#[derive(Debug)]
pub struct Parcel(pub Box<dyn Any + Send>);

/// Memory that received bytes go into.
#[derive(Debug)]
pub enum ReceiveBuf {
    /// A buffer of the reactor's, of its usual size. At the end of the stream it is empty.
    Default,
    /// A buffer of the reactor's, for so many bytes at most. The end of the stream is
    /// `Disconnected`.
    UpTo(usize),
    /// This buffer, behind its contents. The end of the stream is `Disconnected`.
    Append(Buf),
}

impl ReceiveBuf {
    /// Whether it is what the reactor has.
    pub fn is_default(&self) -> bool {
        matches!(self, ReceiveBuf::Default)
    }

    /// Memory that is held for one connection meanwhile, bytes: none of the reactor's own buffers.
    pub fn held(&self) -> usize {
        match self {
            ReceiveBuf::Default => 0,
            ReceiveBuf::UpTo(count) => *count,
            ReceiveBuf::Append(buf) => buf.capacity(),
        }
    }

    /// A buffer with this room, where there is no memory to be used again; and the number of bytes
    /// that it may take.
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

/// Asker of operations that are counted for no connection: each of them has a turn of its own
/// ([`Op::Path`]).
pub const NOBODY: u32 = u32::MAX;

/// An operation.
#[derive(Debug)]
pub enum Op {
    /// Accept connections: waits for one, and takes others that have come by then.
    Accept {
        /// Comes back with [`Done::Accepted`].
        id: OpId,
        /// Where.
        listener: Listener,
        /// Maximum number of connections, at least one.
        max: usize,
    },
    /// Listen no more: who tries to connect is refused. An accept under way is cancelled.
    CloseListener {
        /// Where.
        listener: Listener,
    },
    /// Connect to somebody. A peer that dies later is found out within about half a minute.
    Connect {
        /// Comes back with [`Done::Connected`].
        id: OpId,
        /// To whom.
        to: Address,
    },
    /// Hand something to another node of this process. It arrives as [`Done::Parcel`] there.
    Post {
        /// Which node.
        to: usize,
        /// What.
        parcel: Parcel,
    },
    /// Receive whatever arrives next.
    Receive {
        /// Comes back with [`Done::Received`].
        id: OpId,
        /// From whom.
        socket: Socket,
        /// Where to put it.
        into: ReceiveBuf,
    },
    /// Send all of this, in order.
    Send {
        /// Comes back with [`Done::Sent`].
        id: OpId,
        /// To whom. One send at a time.
        socket: Socket,
        /// What.
        data: Vec<Buf>,
    },
    /// Say that nothing more will be sent.
    Finish {
        /// To whom.
        socket: Socket,
    },
    /// End the connection at once; what is outstanding completes with `Disconnected`.
    Hangup {
        /// Whose.
        socket: Socket,
    },
    /// Give the socket back. Nothing may be outstanding.
    CloseSocket {
        /// Which.
        socket: Socket,
    },
    /// Read up to `count` bytes.
    Read {
        /// Comes back with [`Done::Read`].
        id: OpId,
        /// From an open file.
        file: File,
        /// Where in the file.
        offset: u64,
        /// At most.
        count: u32,
        /// How much room to leave in front of the data.
        headroom: u32,
    },
    /// Write all of `data`, or as much as fits.
    Write {
        /// Comes back with [`Done::Written`].
        id: OpId,
        /// As whom (set-id bits are cleared for ordinary users).
        caller: Caller,
        /// To an open file.
        file: File,
        /// Where in the file.
        offset: u64,
        /// What.
        data: Buf,
    },
    /// Make what was written durable.
    Sync {
        /// Comes back with [`Done::Synced`].
        id: OpId,
        /// Of an open file.
        file: File,
        /// Only the contents, not the dates.
        data_only: bool,
    },
    /// Read whole blocks of a volume, each into memory of its own.
    ReadBlocks {
        /// Comes back with [`Done::Blocks`].
        id: OpId,
        /// The volume's file or device.
        file: File,
        /// Where, bytes; a multiple of `size`.
        offset: u64,
        /// How many blocks, at most [`BLOCKS_MAX`].
        count: u32,
        /// Size of a block, bytes: a power of two, at least 512.
        size: u32,
    },
    /// Write whole blocks of a volume, one behind the other.
    WriteBlocks {
        /// Comes back with [`Done::Stored`].
        id: OpId,
        /// The volume's file or device.
        file: File,
        /// Where, bytes; a multiple of the blocks' size.
        offset: u64,
        /// At most [`BLOCKS_MAX`], all of one size.
        blocks: Vec<Block>,
        /// Whether it completes only when these blocks (and perhaps no others) are durable.
        durable: bool,
    },
    /// Several system calls on paths, as one operation.
    Path {
        /// Comes back with [`Done::Path`].
        id: OpId,
        /// As whom.
        caller: Caller,
        /// For which connection, or [`NOBODY`]: of several that have operations waiting, each has
        /// one begun in turn.
        asker: u32,
        /// Directory that the operation may not leave: names are looked up, made and removed only
        /// in directories that are it or beneath it at that moment (`Stale` otherwise), whatever
        /// they were when their handles were made.
        within: Option<File>,
        /// What.
        op: PathOp,
    },
    /// Give a file or handle back. Nothing may be outstanding on it.
    CloseFile {
        /// Which.
        file: File,
        /// The file may have no name left, so that closing frees its storage, which takes time.
        last: bool,
    },
    /// Try to end an operation early. It completes all the same, perhaps with `Cancelled`.
    Cancel {
        /// Which.
        id: OpId,
    },
}

/// Straight-line work on the host's directories. `File`s here may be mere handles (`O_PATH`).
#[derive(Clone, Debug)]
pub enum PathOp {
    /// Find the file named by `names`, one after the other, from `from`; links are not followed.
    Walk {
        /// The served root: `..` stops here.
        root: File,
        /// Where to start.
        from: File,
        /// At least one.
        names: Vec<Name>,
    },
    /// Find a file by its path from `root`, following links that stay beneath; open and read it.
    Fetch {
        /// Where to start.
        root: File,
        /// Components joined by `/`; empty means `root` itself.
        path: Vec<u8>,
        /// How much to read at once, bytes.
        read_max: u32,
        /// How much room to leave in front of the data.
        headroom: u32,
    },
    /// The attributes.
    Stat {
        /// Of what.
        file: File,
    },
    /// Change attributes; all or as many as the order size, owner, mode, dates allows.
    SetStat {
        /// Of what.
        file: File,
        /// Whether `file` is open for writing, which is permission enough to set the size.
        open: bool,
        /// What.
        set: SetStat,
    },
    /// Open a file or directory that is held by a handle.
    Open {
        /// Which.
        file: File,
        /// How.
        access: Access,
    },
    /// Make a file and open it; or open it, if it is there and `exclusive` is not asked for.
    Create {
        /// Where.
        dir: File,
        /// Its name.
        name: Name,
        /// How to open it.
        access: Access,
        /// Whether it must not be there.
        exclusive: bool,
        /// Permission bits.
        mode: u32,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Make a plain file without a name and open it (`O_TMPFILE`); it is gone when its handles are
    /// given back, unless [`PathOp::Replace`] gives it a name.
    CreateUnnamed {
        /// Directory on whose file system it is made, and whose permissions count.
        dir: File,
        /// How to open it.
        access: Access,
        /// Permission bits.
        mode: u32,
    },
    /// Make a directory.
    MakeDir {
        /// Where.
        dir: File,
        /// Its name.
        name: Name,
        /// Permission bits.
        mode: u32,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Make a symbolic link.
    Symlink {
        /// Where.
        dir: File,
        /// Its name.
        name: Name,
        /// What it says.
        target: Vec<u8>,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// Make a special (or plain) file without opening it.
    MakeNode {
        /// Where.
        dir: File,
        /// Its name.
        name: Name,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// For devices: which (Linux's encoding).
        device: u64,
        /// Group, if the caller chooses it.
        gid: Option<u32>,
    },
    /// What a symbolic link says.
    ReadLink {
        /// Which.
        file: File,
    },
    /// Give a file one more name.
    Link {
        /// Which.
        file: File,
        /// Where.
        dir: File,
        /// The name.
        name: Name,
    },
    /// Move an entry.
    Rename {
        /// From where.
        from: File,
        /// Which.
        name: Name,
        /// To where.
        to: File,
        /// As what.
        new_name: Name,
        /// Whether what has that name is replaced; else it is an error (`Exists`).
        replace: bool,
    },
    /// Move a file that is known by a handle; its present name is found out.
    RenameFile {
        /// The served root, which the file must be beneath.
        root: File,
        /// Which.
        file: File,
        /// To where; `None`: within its directory.
        to: Option<File>,
        /// As what.
        new_name: Name,
        /// Whether what has that name is replaced; else it is an error (`Exists`).
        replace: bool,
    },
    /// Remove an entry.
    Remove {
        /// From where.
        dir: File,
        /// Which.
        name: Name,
        /// Whether it must be a directory (`Some(true)`) or must not be (`Some(false)`).
        directory: Option<bool>,
    },
    /// Remove a file that is known by a handle; its present name is found out.
    RemoveFile {
        /// The served root, which the file must be beneath.
        root: File,
        /// Which.
        file: File,
    },
    /// Replace or remove an entry if its present state is as expected. A file that takes the place
    /// gets the date of the change as its modification time, finer than the kernel's own clock
    /// tick. The check and the change are two system calls: whoever asks sees to it that no other
    /// change of the same entry is under way.
    Replace {
        /// Directory of the entry.
        dir: File,
        /// Its name.
        name: Name,
        /// The file that takes its place.
        by: Replacement<File>,
        /// Precondition.
        expected: Expected,
    },
    /// Entries of an open directory, from a cookie on.
    List {
        /// Which.
        file: File,
        /// Zero, or the cookie of the last entry seen.
        cookie: u64,
        /// How many bytes of names, each with 24 bytes of overhead, to return about.
        bytes_max: u32,
        /// Whether each entry's attributes are wanted.
        with_stat: bool,
    },
    /// Entries of directories and of those beneath them, as many whole directories as fit; in the
    /// order in which somebody looks who goes into each directory as soon as he meets it. What
    /// cannot be listed, and what is on another file system, is left out.
    ListAll {
        /// Where the paths start.
        from: File,
        /// Which directories: components joined by `/`; empty means `from` itself.
        paths: Vec<Vec<u8>>,
        /// How many bytes of names, each with 24 bytes of overhead, to return at most.
        bytes_max: u32,
    },
    /// Small plain files, each as a whole, as many of the first as fit. What is not there, is
    /// something else or larger, is on another file system or cannot be read, is left out.
    ReadAll {
        /// Where the paths start.
        from: File,
        /// Which files: components joined by `/`, followed by nothing but directories.
        paths: Vec<Vec<u8>>,
        /// The largest of them, bytes.
        size_max: u32,
        /// How many bytes of contents to return at most.
        bytes_max: u32,
    },
    /// How full the file system is.
    StatFs {
        /// Any file on it.
        file: File,
    },
    /// The value of an extended attribute.
    GetAttr {
        /// Of what.
        file: File,
        /// Its name.
        name: Vec<u8>,
    },
    /// Set an extended attribute.
    SetAttr {
        /// Of what.
        file: File,
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
        file: File,
    },
    /// Remove an extended attribute.
    RemoveAttr {
        /// Of what.
        file: File,
        /// Its name.
        name: Vec<u8>,
    },
    /// What the host knows about a user.
    Identify {
        /// By number or name.
        who: Who,
    },
    /// Open a directory that will be served, as a handle.
    OpenRoot {
        /// Its path on the host.
        path: Vec<u8>,
    },
    /// Open and lock the file or block device of a volume, and read how it begins.
    OpenVolume {
        /// Its path on the host.
        path: Vec<u8>,
        /// Whether it will be written.
        writable: bool,
        /// How much to read, bytes; a multiple of 4096.
        head: u32,
    },
    /// The numbers of a server that is named in words.
    Resolve {
        /// `HOST:PORT`.
        address: String,
    },
}

/// The file that takes the place of a directory entry. `N` names nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement<N> {
    /// None: the entry is removed.
    Nothing,
    /// The file of this directory and name, which is moved.
    Entry(N, Name),
    /// A file that has no name yet.
    Unnamed(N),
}

/// How a client names a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By user id.
    Uid(u32),
    /// By name.
    Name(Vec<u8>),
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where to go on behind this entry. Stable while the directory changes.
    pub cookie: u64,
    /// Which file on its device.
    pub inode: u64,
    /// The device. `None`: that of the directory when it was opened.
    pub device: Option<u64>,
    /// What it is.
    pub kind: Kind,
    /// Its name, neither `.` nor `..`.
    pub name: Name,
    /// Its attributes, where they were asked for and could be had.
    pub stat: Option<Stat>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody on the network: an address that proves nothing.
    Network(String),
    /// A process of this host; the kernel says whose.
    Local(User),
}

/// When an operation on files was submitted, when the work on it began, and when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Given to the reactor.
    pub submitted: Instant,
    /// Begun: at once, or when a thread of the pool took it.
    pub started: Instant,
    /// Done, and on its way to whoever asked.
    pub finished: Instant,
}

/// A completion.
#[derive(Debug)]
pub struct Event {
    /// Of which operation.
    pub id: OpId,
    /// How it ended.
    pub done: Done,
}

/// How an operation ended.
#[derive(Debug)]
pub enum Done {
    /// Connections came; none if another thread that listens there accepted them.
    Accepted(Result<Vec<(Socket, Peer)>, Error>),
    /// There is a connection, or nobody listens there. Also after a cancel there may be one.
    Connected(Result<Socket, Error>),
    /// Another node of this process handed something over. Nobody asked for it.
    Parcel(Parcel),
    /// Bytes came; none: the peer will send nothing more.
    Received(Result<Buf, Error>),
    /// All was sent, or the connection is broken.
    Sent(Result<(), Error>),
    /// Bytes were read; none: at or past the end of the file.
    Read(Result<Buf, Error>),
    /// So many bytes were written.
    Written(Result<u32, Error>),
    /// Every block that was asked for.
    Blocks(Result<Vec<Block>, Error>),
    /// Every block was written.
    Stored(Result<(), Error>),
    /// What was written is durable. After an error nobody knows what is on the disk.
    Synced(Result<(), Error>),
    /// A path operation ended.
    Path(Result<PathDone, Error>),
    /// A person asked the process to end; unasked for, each time it happens.
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

/// All entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its path from where it was asked for: components joined by `/`.
    pub path: Vec<u8>,
    /// Its entries, without attributes.
    pub entries: Vec<Entry>,
}

/// A file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its path from where it was asked for: components joined by `/`.
    pub path: Vec<u8>,
    /// Its attributes.
    pub stat: Stat,
    /// What is in it: as many bytes as they say.
    pub data: Buf,
}

/// What a path operation gives.
#[derive(Debug)]
pub enum PathDone {
    /// Nothing but success.
    Ok,
    /// [`PathOp::Walk`]: attributes of every file on the way; a handle if all were found, else
    /// why the next one was not.
    Walked(Vec<Stat>, Result<File, Error>),
    /// [`PathOp::Fetch`]: attributes, the first bytes, and the open file if there may be more.
    Fetched(Stat, Buf, Option<File>),
    /// [`PathOp::Stat`], [`PathOp::MakeDir`], [`PathOp::Symlink`], [`PathOp::MakeNode`]; also
    /// [`PathOp::Replace`] by a file: its attributes after the change.
    Stat(Stat),
    /// [`PathOp::Open`]: the open file.
    Opened(File, Stat),
    /// [`PathOp::Create`], [`PathOp::CreateUnnamed`]: the open file and a handle that names it.
    Created(File, File, Stat),
    /// [`PathOp::Replace`]: nothing was changed, because this is the present state of the entry.
    Unexpected(Option<Stat>),
    /// [`PathOp::ReadLink`], [`PathOp::GetAttr`], [`PathOp::ListAttrs`].
    Bytes(Vec<u8>),
    /// [`PathOp::List`]: none: the end.
    Entries(Vec<Entry>),
    /// [`PathOp::ListAll`]: directories that were listed, and the processor time that took, ns.
    Listings(Vec<Listing>, u64),
    /// [`PathOp::ReadAll`]: files that were read, and the processor time that took, ns.
    Contents(Vec<Content>, u64),
    /// [`PathOp::StatFs`].
    StatFs(StatFs),
    /// [`PathOp::Identify`].
    User(User),
    /// [`PathOp::OpenRoot`].
    Root(File, Stat),
    /// [`PathOp::OpenVolume`]: the file, its size in bytes, and its beginning; nothing of one that
    /// is shorter than what was to be read.
    Volume(File, u64, Vec<u8>),
    /// [`PathOp::Resolve`]: at least one.
    Addresses(Vec<SocketAddr>),
}

impl OpId {
    /// The id of events nobody asked for ([`Done::Stop`]).
    pub const UNASKED: OpId = OpId(u64::MAX);
}
