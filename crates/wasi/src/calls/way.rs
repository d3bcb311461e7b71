//! Parameters of an open, and the open file that results.

use crate::abi::{self, Errno};
use crate::host::OpenFile;
use crate::listings::Seen;
use crate::window::Window;
use base::{Access, Buf, Stat};
use tree::{NodeId, OpenId};

/// Parameters of an open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenParameters {
    pub(super) access: Access,
    /// Whether the last name may be a link.
    pub(super) follow: bool,
    oflags: u16,
    rights: u64,
}

impl OpenParameters {
    /// Decodes `lookupflags`, `oflags`, `rights` and `fdflags`.
    pub(super) fn new(
        flags: u32,
        oflags: u16,
        rights: u64,
        fdflags: u16,
    ) -> Result<OpenParameters, Errno> {
        let access = Access {
            read: rights & abi::RIGHT_READ != 0 || rights & abi::RIGHT_WRITE == 0,
            write: rights & abi::RIGHT_WRITE != 0,
            append: fdflags & abi::APPEND != 0,
            truncate: oflags & abi::TRUNC != 0,
            sync: fdflags & (abi::SYNC | abi::DSYNC) != 0,
        };
        let way =
            OpenParameters { access, follow: flags & abi::SYMLINK_FOLLOW != 0, oflags, rights };
        match way.has(abi::CREAT) && way.has(abi::DIRECTORY) {
            true => Err(Errno::Inval),
            false => Ok(way),
        }
    }

    /// Returns whether one of these `oflags` is set.
    pub(super) fn has(&self, flag: u16) -> bool {
        self.oflags & flag != 0
    }

    /// Returns whether it could change anything.
    pub(super) fn changes(&self) -> bool {
        self.access.changes() || self.has(abi::CREAT)
    }

    /// Creates a file that was opened with these parameters.
    pub(super) fn opened(&self, node: NodeId, open: OpenId) -> OpenFile {
        OpenFile {
            node: Some(node),
            path: Vec::new(),
            open: Some(open),
            stat: None,
            writes: self.access.write,
            window: None,
            offset: 0,
            append: self.access.append,
            rights: self.rights,
        }
    }

    /// Creates a file that was fetched at this path, from its attributes, its first bytes, and the
    /// open file if there is more.
    pub(super) fn fetched(
        &self,
        path: Vec<u8>,
        (stat, data, open): (Stat, Buf, Option<OpenId>),
        seen: Seen,
    ) -> OpenFile {
        let window = Window::first(data, stat.size, seen);
        OpenFile {
            node: None,
            path,
            open,
            stat: Some((stat, seen)),
            writes: false,
            window: Some(Box::new(window)),
            offset: 0,
            append: false,
            rights: self.rights,
        }
    }
}
