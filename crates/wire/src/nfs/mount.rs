//! The MOUNT protocol, version 3 (RFC 1813, 5.0): paths to file handles.

use super::Handle;
use crate::xdr::{DecodeError, Reader, Xdr, enumeration, structure};

/// Program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// Version of MOUNT.
pub const VERSION: u32 = 3;

/// Maximum size of a path, bytes.
const PATH_MAX: usize = 1024;

enumeration! {
    /// Status of MNT (`mountstat3`).
    Status {
        /// Success.
        Ok = 0,
        /// Not the owner.
        Perm = 1,
        /// No such directory.
        NoEnt = 2,
        /// Input/output error.
        Io = 5,
        /// Permission denied.
        Access = 13,
        /// Not a directory.
        NotDir = 20,
        /// Invalid argument.
        Inval = 22,
        /// Path too long.
        NameTooLong = 63,
        /// Not supported.
        NotSupp = 10_004,
        /// An error of the server that has no other status.
        ServerFault = 10_006,
    }
}

/// A call of MOUNT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// NULL: do nothing.
    Null,
    /// MNT: get the handle of this directory.
    Mount(&'a [u8]),
    /// DUMP: list the mounts.
    Dump,
    /// UMNT: forget a mount.
    Unmount(&'a [u8]),
    /// UMNTALL: forget all mounts of the client.
    UnmountAll,
    /// EXPORT: list the directories that can be mounted.
    Export,
}

impl<'a> Call<'a> {
    /// Decodes the arguments of a procedure; `None` if there is no such procedure.
    ///
    /// # Errors
    /// If the arguments are too short or too long.
    pub fn decode(procedure: u32, arguments: &'a [u8]) -> Result<Option<Call<'a>>, DecodeError> {
        let mut reader = Reader::new(arguments);
        let call = match procedure {
            0 => Call::Null,
            1 => Call::Mount(reader.opaque(PATH_MAX)?),
            2 => Call::Dump,
            3 => Call::Unmount(reader.opaque(PATH_MAX)?),
            4 => Call::UnmountAll,
            5 => Call::Export,
            _unknown => return Ok(None),
        };
        reader.end()?;
        Ok(Some(call))
    }

    /// Returns the number of the procedure.
    pub fn procedure(&self) -> u32 {
        match self {
            Call::Null => 0,
            Call::Mount(_) => 1,
            Call::Dump => 2,
            Call::Unmount(_) => 3,
            Call::UnmountAll => 4,
            Call::Export => 5,
        }
    }

    /// Appends the arguments.
    pub fn put(&self, out: &mut Vec<u8>) {
        if let Call::Mount(path) | Call::Unmount(path) = self {
            path.put(out);
        }
    }
}

structure! {
    /// A mount (`mountbody`).
    Mounted<'a> {
        /// Name of the client's host.
        host: &'a [u8],
        /// The directory.
        path: &'a [u8],
    }
}

structure! {
    /// A directory that can be mounted (`exportnode`).
    Export<'a> {
        /// The directory.
        path: &'a [u8],
        /// Hosts or groups of hosts that may mount it; none: all.
        groups: Vec<&'a [u8]>,
    }
}

/// Appends the results of a successful MNT: the handle, and the flavours of authentication.
pub fn put_mounted(handle: &Handle, flavours: &[u32], out: &mut Vec<u8>) {
    Status::Ok.put(out);
    handle.put(out);
    u32::try_from(flavours.len()).expect("there are few").put(out);
    flavours.iter().for_each(|flavour| flavour.put(out));
}

/// Appends the status of a failed MNT.
pub fn put_failure(status: Status, out: &mut Vec<u8>) {
    assert!(status != Status::Ok, "a failure is no success");
    status.put(out);
}

/// Appends the results of DUMP, a list without mounts: the server remembers none.
pub fn put_dump(out: &mut Vec<u8>) {
    Vec::<Mounted<'_>>::new().put(out);
}

/// Appends the results of EXPORT.
pub fn put_exports(exports: Vec<Export<'_>>, out: &mut Vec<u8>) {
    exports.put(out);
}

/// Decodes the results of MNT.
///
/// # Errors
/// If the bytes are too few or too many, or have an undefined value.
pub fn decode_mounted(bytes: &[u8]) -> Result<Result<(Handle, Vec<u32>), Status>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let status: Status = reader.get()?;
    if status != Status::Ok {
        reader.end()?;
        return Ok(Err(status));
    }
    let handle = reader.get()?;
    let count: u32 = reader.get()?;
    let flavours = (0..count).map(|_| reader.get()).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(Ok((handle, flavours)))
}
