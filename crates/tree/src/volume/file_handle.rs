//! Persistent identities of files: the view, the inode number, which is not used again, and the
//! device number, which another volume does not have.

use super::NodeRef;
use super::plan::{Answer, Plan, Planned, Planner, answer};
use crate::request::{NodeId, Reply};
use base::{Error, FileHandle};
use store::{SnapshotId, View};

/// Returns the identity of a file of the volume with this device number.
pub(super) fn of(node_ref: NodeRef, device: u64) -> FileHandle {
    let mut identifier = Vec::new();
    match node_ref {
        NodeRef::File(View::Present, ino) => identifier.extend(ino.to_be_bytes()),
        NodeRef::File(View::Snapshot(id), ino) => {
            identifier.extend(ino.to_be_bytes());
            identifier.extend(id.0.to_be_bytes());
        }
        NodeRef::Snapshots => {}
    }
    identifier.extend(device.to_be_bytes());
    FileHandle::new(&identifier).expect("three numbers fit")
}

impl Planner<'_> {
    /// Returns the identity of a file: its inode, the snapshot if it is in one, and the device.
    pub(super) fn file_handle(&self, node: NodeId) -> Planned {
        let node_ref = self.volume.node_ref(node);
        let device = self.here(node_ref)?.stat.device;
        answer(Reply::FileHandle(of(node_ref, device)))
    }

    /// Returns a node of the file of a handle.
    ///
    /// # Errors
    /// `Stale` if the file or its snapshot does not exist any more.
    pub(super) fn find_handle(&self, handle: &FileHandle) -> Planned {
        let (numbers, []) = handle.identifier().as_chunks() else {
            return Err(Error::Stale.into());
        };
        let numbers: Vec<u64> = numbers.iter().copied().map(u64::from_be_bytes).collect();
        let (node_ref, device) = match numbers[..] {
            [device] => (NodeRef::Snapshots, device),
            [ino, device] => (NodeRef::File(View::Present, ino), device),
            [ino, id, device] => {
                let view = View::Snapshot(SnapshotId(id));
                self.read_view(view).map_err(|_gone| Error::Stale)?;
                (NodeRef::File(view, ino), device)
            }
            _ => return Err(Error::Stale.into()),
        };
        let stat = self.here(node_ref)?.stat;
        if stat.device != device {
            return Err(Error::Stale.into());
        }
        Ok(Plan::Answer(Answer::Walked(vec![stat], node_ref, None), Vec::new()))
    }
}
