//! NFS version 3 (RFC 1813) and its MOUNT protocol ([`mount`]) on the wire, above [`crate::rpc`].
//!
//! The table of procedures below reads like the RFC's: arguments, results of a success, and what
//! follows the status of a failure. Both directions of the codec are generated from it.

mod attributes;
pub mod mount;

#[cfg(test)]
mod tests;

pub use attributes::{
    Attributes, FileKind, PostOp, PreOp, SetAttributes, SetTime, Special, Timestamp, Wcc,
};

use crate::xdr::{DecodeError, Reader, Xdr, enumeration, structure};
use std::fmt;

/// Program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// Version of NFS.
pub const VERSION: u32 = 3;

/// Maximum size of a file handle, bytes.
pub const HANDLE_MAX: usize = 64;

/// Bytes in front of the data in the reply to a READ, its record's mark included.
pub const READ_HEADER_SIZE: usize = crate::rpc::REPLY_SIZE + 4 + ATTRIBUTES_SIZE + 12;

/// Size of optional attributes that are present, bytes.
const ATTRIBUTES_SIZE: usize = 4 + 84;

/// Maximum size of arguments beside the data of a WRITE, with the header of the call, bytes.
pub const CALL_OVERHEAD: usize = 1024;

enumeration! {
    /// Status of a procedure (`nfsstat3`).
    Status {
        /// Success.
        Ok = 0,
        /// Not the owner.
        Perm = 1,
        /// No such entry.
        NoEnt = 2,
        /// Input/output error.
        Io = 5,
        /// No such device or address.
        NxIo = 6,
        /// Permission denied.
        Access = 13,
        /// The entry exists.
        Exist = 17,
        /// A hard link or rename across file systems.
        XDev = 18,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// A directory.
        IsDir = 21,
        /// Invalid argument.
        Inval = 22,
        /// File too large.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// Read-only file system.
        RoFs = 30,
        /// Too many hard links.
        MLink = 31,
        /// Name too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// Quota exceeded.
        DQuot = 69,
        /// The file of the handle does not exist any more.
        Stale = 70,
        /// The handle is not one of this server.
        BadHandle = 10_001,
        /// The ctime of the guard of a SETATTR is not that of the file.
        NotSync = 10_002,
        /// The cookie of a READDIR is stale.
        BadCookie = 10_003,
        /// Not supported.
        NotSupp = 10_004,
        /// The size allowed is too small.
        TooSmall = 10_005,
        /// An error of the server that has no other status.
        ServerFault = 10_006,
        /// The server cannot create files of this type.
        BadType = 10_007,
        /// The server cannot do it now: try again later.
        Jukebox = 10_008,
    }
}

enumeration! {
    /// Durability of a WRITE (`stable_how`).
    Stable {
        /// Perhaps not durable.
        Unstable = 0,
        /// The data is durable.
        DataSync = 1,
        /// Data and attributes are durable.
        FileSync = 2,
    }
}

/// A file handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    bytes: [u8; HANDLE_MAX],
    length: usize,
}

impl Handle {
    /// Returns the handle of these bytes; `None` if there are more than [`HANDLE_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Handle> {
        let mut handle = Handle { bytes: [0; HANDLE_MAX], length: bytes.len() };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'a> Xdr<'a> for Handle {
    fn get(reader: &mut Reader<'a>) -> Result<Handle, DecodeError> {
        Ok(Handle::new(reader.opaque(HANDLE_MAX)?).expect("as short as handles are"))
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }
}

/// Creation of a file (`createhow3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing file is no error; its size may be set.
    Unchecked(SetAttributes),
    /// An existing file is an error.
    Guarded(SetAttributes),
    /// An existing file is an error, unless it was created with this verifier.
    Exclusive([u8; 8]),
}

impl<'a> Xdr<'a> for CreateHow {
    fn get(reader: &mut Reader<'a>) -> Result<CreateHow, DecodeError> {
        match reader.get::<u32>()? {
            0 => Ok(CreateHow::Unchecked(reader.get()?)),
            1 => Ok(CreateHow::Guarded(reader.get()?)),
            2 => Ok(CreateHow::Exclusive(reader.get()?)),
            other => Err(DecodeError::Value(other)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CreateHow::Unchecked(attributes) => (0u32.put(out), attributes.put(out)),
            CreateHow::Guarded(attributes) => (1u32.put(out), attributes.put(out)),
            CreateHow::Exclusive(verifier) => (2u32.put(out), verifier.put(out)),
        };
    }
}

/// Kind and attributes of a special file to create (`mknoddata3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MakeNode {
    /// A character device.
    CharDevice(SetAttributes, Special),
    /// A block device.
    BlockDevice(SetAttributes, Special),
    /// A Unix socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// A kind that this procedure does not create.
    Other(FileKind),
}

impl<'a> Xdr<'a> for MakeNode {
    fn get(reader: &mut Reader<'a>) -> Result<MakeNode, DecodeError> {
        Ok(match reader.get()? {
            FileKind::CharDevice => MakeNode::CharDevice(reader.get()?, reader.get()?),
            FileKind::BlockDevice => MakeNode::BlockDevice(reader.get()?, reader.get()?),
            FileKind::Socket => MakeNode::Socket(reader.get()?),
            FileKind::Fifo => MakeNode::Fifo(reader.get()?),
            other @ (FileKind::File | FileKind::Directory | FileKind::Symlink) => {
                MakeNode::Other(other)
            }
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let (kind, attributes, special) = match self {
            MakeNode::CharDevice(attributes, special) => {
                (FileKind::CharDevice, Some(attributes), Some(special))
            }
            MakeNode::BlockDevice(attributes, special) => {
                (FileKind::BlockDevice, Some(attributes), Some(special))
            }
            MakeNode::Socket(attributes) => (FileKind::Socket, Some(attributes), None),
            MakeNode::Fifo(attributes) => (FileKind::Fifo, Some(attributes), None),
            MakeNode::Other(kind) => (*kind, None, None),
        };
        kind.put(out);
        attributes.into_iter().for_each(|attributes| attributes.put(out));
        special.into_iter().for_each(|special| special.put(out));
    }
}

structure! {
    /// An entry of a READDIR.
    Entry<'a> {
        /// Inode number.
        fileid: u64,
        /// Name.
        name: &'a [u8],
        /// Position behind it.
        cookie: u64,
    }
}

structure! {
    /// An entry of a READDIRPLUS.
    EntryPlus<'a> {
        /// Inode number.
        fileid: u64,
        /// Name.
        name: &'a [u8],
        /// Position behind it.
        cookie: u64,
        /// Its attributes.
        attributes: PostOp,
        /// Its handle.
        handle: Option<Handle>,
    }
}

/// Results of a failure, behind its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Nothing,
    /// Attributes of the file or directory.
    Attributes(PostOp),
    /// Attributes of the file or directory that was to be changed, before and after.
    Changed(Wcc),
    /// The same of the source and target directories of a RENAME.
    Renamed(Wcc, Wcc),
    /// Attributes of the file of a LINK, and of the directory before and after.
    Linked(PostOp, Wcc),
}

impl After {
    /// Decodes what has the same form as this.
    fn get_like(&self, reader: &mut Reader<'_>) -> Result<After, DecodeError> {
        Ok(match self {
            After::Nothing => After::Nothing,
            After::Attributes(_) => After::Attributes(reader.get()?),
            After::Changed(_) => After::Changed(reader.get()?),
            After::Renamed(..) => After::Renamed(reader.get()?, reader.get()?),
            After::Linked(..) => After::Linked(reader.get()?, reader.get()?),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            After::Nothing => {}
            After::Attributes(attributes) => attributes.put(out),
            After::Changed(wcc) => wcc.put(out),
            After::Renamed(from, to) => {
                from.put(out);
                to.put(out);
            }
            After::Linked(file, directory) => {
                file.put(out);
                directory.put(out);
            }
        }
    }
}

/// The forms of [`After`], without attributes.
mod form {
    use super::{After, Wcc};

    pub(super) const NOTHING: After = After::Nothing;
    pub(super) const ATTRIBUTES: After = After::Attributes(None);
    pub(super) const CHANGED: After = After::Changed(Wcc::NONE);
    pub(super) const RENAMED: After = After::Renamed(Wcc::NONE, Wcc::NONE);
    pub(super) const LINKED: After = After::Linked(None, Wcc::NONE);
}

/// Declares the procedures: name, number, arguments, results of a success, form of a failure.
macro_rules! procedures {
    ($($name:ident = $code:literal
        ( $($argument:ident : $atype:ty),* $(,)? )
        -> ( $($result:ident : $rtype:ty),* $(,)? ) or $form:ident)*) => {
        /// A call of NFS.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the RFC's own names for the arguments")]
        pub enum Call<'a> { $($name { $($argument: $atype),* }),* }

        /// The results of a successful call.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the RFC's own names for the results")]
        pub enum Results<'a> { $($name { $($result: $rtype),* }),* }

        /// Returns the name of a procedure.
        pub fn procedure_name(procedure: u32) -> Option<&'static str> {
            match procedure {
                $($code => Some(stringify!($name)),)*
                _unknown => None,
            }
        }

        impl<'a> Call<'a> {
            /// Decodes the arguments of a procedure; `None` if there is no such procedure.
            ///
            /// # Errors
            /// If the arguments are too short or too long, or have an undefined value.
            pub fn decode(
                procedure: u32,
                arguments: &'a [u8],
            ) -> Result<Option<Call<'a>>, DecodeError> {
                let mut reader = Reader::new(arguments);
                let call = match procedure {
                    $($code => Call::$name { $($argument: reader.get::<$atype>()?),* },)*
                    _unknown => return Ok(None),
                };
                reader.end()?;
                Ok(Some(call))
            }

            /// Returns the number of the procedure.
            pub fn procedure(&self) -> u32 {
                match self { $(Call::$name { .. } => $code),* }
            }

            /// Appends the arguments.
            pub fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Call::$name { $($argument),* } => { $($argument.put(out);)* }),*
                }
            }

            /// Returns the form of what follows the status of a failure, without attributes.
            pub fn failure(&self) -> After {
                match self { $(Call::$name { .. } => form::$form),* }
            }
        }

        impl<'a> Results<'a> {
            /// Decodes the results of a procedure, or its failure.
            ///
            /// # Errors
            /// If the bytes are too few or too many, or have an undefined value, or there is no
            /// such procedure.
            pub fn decode(
                procedure: u32,
                bytes: &'a [u8],
            ) -> Result<Result<Results<'a>, (Status, After)>, DecodeError> {
                let mut reader = Reader::new(bytes);
                let status = if procedure == 0 { Status::Ok } else { reader.get()? };
                let results = match (procedure, status) {
                    $(($code, Status::Ok) => Ok(Results::$name {
                        $($result: reader.get::<$rtype>()?),*
                    }),
                    ($code, status) => Err((status, form::$form.get_like(&mut reader)?)),)*
                    (unknown, _) => return Err(DecodeError::Value(unknown)),
                };
                reader.end()?;
                Ok(results)
            }

            /// Appends the status of success and the results.
            pub fn put(&self, out: &mut Vec<u8>) {
                if !matches!(self, Results::Null {}) {
                    Status::Ok.put(out);
                }
                match self {
                    $(Results::$name { $($result),* } => { $($result.put(out);)* }),*
                }
            }
        }
    };
}

/// Appends the results of a successful READ up to the data, which follows with its padding.
pub fn put_read(attributes: PostOp, count: u32, eof: bool, out: &mut Vec<u8>) {
    Status::Ok.put(out);
    attributes.put(out);
    count.put(out);
    eof.put(out);
    count.put(out);
}

/// Appends the status of a failure, and what follows it.
pub fn put_failure(status: Status, after: &After, out: &mut Vec<u8>) {
    assert!(status != Status::Ok, "a failure is no success");
    status.put(out);
    after.put(out);
}

procedures! {
    Null = 0 () -> () or NOTHING
    GetAttr = 1 (object: Handle) -> (attributes: Attributes) or NOTHING
    SetAttr = 2 (object: Handle, attributes: SetAttributes, guard: Option<Timestamp>)
        -> (object: Wcc) or CHANGED
    Lookup = 3 (dir: Handle, name: &'a [u8])
        -> (object: Handle, attributes: PostOp, dir: PostOp) or ATTRIBUTES
    Access = 4 (object: Handle, access: u32) -> (attributes: PostOp, access: u32) or ATTRIBUTES
    ReadLink = 5 (symlink: Handle) -> (attributes: PostOp, data: &'a [u8]) or ATTRIBUTES
    Read = 6 (file: Handle, offset: u64, count: u32)
        -> (attributes: PostOp, count: u32, eof: bool, data: &'a [u8]) or ATTRIBUTES
    Write = 7 (file: Handle, offset: u64, count: u32, stable: Stable, data: &'a [u8])
        -> (file: Wcc, count: u32, committed: Stable, verifier: [u8; 8]) or CHANGED
    Create = 8 (dir: Handle, name: &'a [u8], how: CreateHow)
        -> (object: Option<Handle>, attributes: PostOp, dir: Wcc) or CHANGED
    MkDir = 9 (dir: Handle, name: &'a [u8], attributes: SetAttributes)
        -> (object: Option<Handle>, attributes: PostOp, dir: Wcc) or CHANGED
    SymLink = 10 (dir: Handle, name: &'a [u8], attributes: SetAttributes, data: &'a [u8])
        -> (object: Option<Handle>, attributes: PostOp, dir: Wcc) or CHANGED
    MkNod = 11 (dir: Handle, name: &'a [u8], what: MakeNode)
        -> (object: Option<Handle>, attributes: PostOp, dir: Wcc) or CHANGED
    Remove = 12 (dir: Handle, name: &'a [u8]) -> (dir: Wcc) or CHANGED
    RmDir = 13 (dir: Handle, name: &'a [u8]) -> (dir: Wcc) or CHANGED
    Rename = 14 (from_dir: Handle, from: &'a [u8], to_dir: Handle, to: &'a [u8])
        -> (from_dir: Wcc, to_dir: Wcc) or RENAMED
    Link = 15 (file: Handle, dir: Handle, name: &'a [u8]) -> (file: PostOp, dir: Wcc) or LINKED
    ReadDir = 16 (dir: Handle, cookie: u64, verifier: [u8; 8], count: u32)
        -> (dir: PostOp, verifier: [u8; 8], entries: Vec<Entry<'a>>, eof: bool) or ATTRIBUTES
    ReadDirPlus = 17 (dir: Handle, cookie: u64, verifier: [u8; 8], dir_count: u32, max_count: u32)
        -> (dir: PostOp, verifier: [u8; 8], entries: Vec<EntryPlus<'a>>, eof: bool) or ATTRIBUTES
    FsStat = 18 (root: Handle)
        -> (attributes: PostOp, tbytes: u64, fbytes: u64, abytes: u64, tfiles: u64, ffiles: u64,
            afiles: u64, invarsec: u32) or ATTRIBUTES
    FsInfo = 19 (root: Handle)
        -> (attributes: PostOp, rtmax: u32, rtpref: u32, rtmult: u32, wtmax: u32, wtpref: u32,
            wtmult: u32, dtpref: u32, maxfilesize: u64, time_delta: Timestamp, properties: u32)
        or ATTRIBUTES
    PathConf = 20 (object: Handle)
        -> (attributes: PostOp, linkmax: u32, name_max: u32, no_trunc: bool,
            chown_restricted: bool, case_insensitive: bool, case_preserving: bool) or ATTRIBUTES
    Commit = 21 (file: Handle, offset: u64, count: u32) -> (file: Wcc, verifier: [u8; 8]) or CHANGED
}
