//! Persistent identities of files: the view and the inode number, which is not used again.

use super::NodeRef;
use super::plan::{Answer, Plan, Planned, Planner, answer};
use crate::request::{NodeId, Reply};
use base::{Error, FileHandle};
use store::{SnapshotId, View};

/// Identifier of the directory of snapshots; those of files are longer.
const SNAPSHOTS: &[u8] = &[0];

impl Planner<'_> {
    /// Returns the identity of a file: its inode, behind the snapshot if it is in one.
    pub(super) fn file_handle(&self, node: NodeId) -> Planned {
        let mut identifier = Vec::new();
        match self.volume.node_ref(node) {
            NodeRef::File(View::Present, ino) => identifier.extend(ino.to_be_bytes()),
            NodeRef::File(View::Snapshot(id), ino) => {
                identifier.extend(id.0.to_be_bytes());
                identifier.extend(ino.to_be_bytes());
            }
            NodeRef::Snapshots => identifier.extend(SNAPSHOTS),
        }
        let handle = FileHandle::new(&identifier).expect("two numbers fit");
        answer(Reply::FileHandle(handle))
    }

    /// Returns a node of the file of a handle.
    ///
    /// # Errors
    /// `Stale` if the file or its snapshot does not exist any more.
    pub(super) fn find_handle(&self, handle: &FileHandle) -> Planned {
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let identifier = handle.identifier();
        let node_ref = match (identifier.len(), identifier) {
            (_, SNAPSHOTS) => NodeRef::Snapshots,
            (8, ino) => NodeRef::File(View::Present, number(ino).ok_or(Error::Stale)?),
            (16, both) => {
                let (id, ino) = both.split_at(8);
                let view = View::Snapshot(SnapshotId(number(id).ok_or(Error::Stale)?));
                self.read_view(view).map_err(|_gone| Error::Stale)?;
                NodeRef::File(view, number(ino).ok_or(Error::Stale)?)
            }
            (_, _other) => return Err(Error::Stale.into()),
        };
        let stat = self.here(node_ref)?.stat;
        Ok(Plan::Answer(Answer::Walked(vec![stat], node_ref, None), Vec::new()))
    }
}
