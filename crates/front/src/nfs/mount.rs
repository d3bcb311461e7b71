//! MNT: the handle of a directory by its path.

use super::call::{Context, Next, Procedure};
use super::{secret, translate};
use base::{Error, Kind, Name};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::nfs::{After, Handle, Status, mount};

/// MNT.
#[derive(Debug)]
pub(super) struct Mount {
    path: Vec<Name>,
    node: Option<NodeId>,
    kind: Kind,
}

/// Maximum number of names in the path of a directory to mount.
const NAMES_MAX: usize = 64;

/// Maximum number of names walked at once.
const WALK_MAX: usize = 16;

/// Flavours of authentication that are accepted: AUTH_SYS and AUTH_NONE.
const FLAVOURS: &[u32] = &[1, 0];

impl Mount {
    /// Returns the mount of a path, which may begin with the path of the served directory on the
    /// host.
    ///
    /// # Errors
    /// `NameTooLong` or `Invalid` if it is no path.
    pub(super) fn new(path: &[u8], served: &[u8]) -> Result<Mount, Error> {
        let beneath = path.strip_prefix(served).filter(|rest| matches!(rest, [] | [b'/', ..]));
        let parts = beneath.unwrap_or(path).split(|byte| *byte == b'/');
        let names = parts.filter(|part| !part.is_empty() && *part != b".").map(Name::new);
        let path = names.collect::<Result<Vec<Name>, Error>>()?;
        if path.len() > NAMES_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(Mount { path, node: None, kind: Kind::Directory })
    }

    fn walk(&mut self, from: NodeId) -> Next {
        let names = self.path.drain(..self.path.len().min(WALK_MAX)).collect();
        Next::Ask(Ask::Walk { from, names })
    }

    fn walked(&mut self, reply: Reply, context: &mut Context<'_>) -> Next {
        let Reply::Walked(stats, Some(node)) = reply else { return Next::Fail(Error::NotFound) };
        let kind = stats.last().map_or(Kind::Directory, |stat| stat.kind);
        let before = self.node.replace(node);
        let next = if self.path.is_empty() {
            self.kind = kind;
            if kind == Kind::Directory {
                Next::Ask(Ask::FileHandle { node })
            } else {
                Next::Fail(Error::NotDirectory)
            }
        } else {
            self.walk(node)
        };
        context.out.extend(before.map(crate::Output::Release));
        next
    }
}

impl Procedure for Mount {
    fn handles(&self) -> [Option<Handle>; 2] {
        [None, None]
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        self.walk(context.export.root)
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match reply {
            Ok(Reply::FileHandle(handle)) => {
                let handle = secret::seal(&context.export.nfs.key, &handle);
                let node = self.node.take().expect("it was found");
                context.keep(handle, self.kind, node);
                mount::put_mounted(&handle, FLAVOURS, context.body);
                Next::Reply
            }
            Ok(reply) => self.walked(reply, context),
            Err(error) => Next::Fail(error),
        }
    }

    fn failure(&self) -> After {
        After::Nothing
    }

    fn put_failure(&self, status: Status, body: &mut Vec<u8>) {
        mount::put_failure(translate::mount_status(status), body);
    }

    fn held(&mut self) -> (Option<NodeId>, Option<OpenId>) {
        (self.node.take(), None)
    }
}
