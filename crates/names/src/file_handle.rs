//! Persistent identities of files in the namespace.
//!
//! A tree identifies its files; the mux adds a tag of the tree, so that each handle finds its tree
//! again after a restart. The tag of a mounted tree depends on its mount point and its source. A
//! mount point itself, which may be a union, is identified by its path.

use crate::table::{MountPoint, Position};
use crate::task::Task;
use crate::{Names, Output};
use base::{Caller, Error, FileHandle, TAG_SIZE};
use sha2::{Digest as _, Sha256};
use tree::{Ask, NodeId, OpenId, Reply, Request, RequestId};

/// Tag of a tree, in front of a handle.
pub(crate) type Tag = [u8; TAG_SIZE];

/// Tag of the first tree.
const FIRST: Tag = [0; TAG_SIZE];

/// Tag of mount points.
const POINT: Tag = [0, 0, 0, 1];

/// Flag of the tags of mounted trees.
const MOUNTED: u8 = 1 << 7;

impl Names {
    /// Gets the identity of a node.
    ///
    /// # Errors
    /// `Unsupported` if its tree will not be recognised again.
    pub(crate) fn file_handle(
        &mut self,
        id: RequestId,
        caller: Caller,
        node: NodeId,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let Position { node, stack, at_point } = self.position(node);
        if let Some(last) = stack.last().filter(|_| at_point) {
            let handle = FileHandle::new(&path_hash(&last.point)).expect("a hash fits");
            out.push(Output::Reply(id, Ok(Reply::FileHandle(handle.with_tag(POINT)))));
            return Ok(());
        }
        let tag = self.tag_of(node.tree()).ok_or(Error::Unsupported)?;
        if tag != FIRST {
            self.tasks.insert(id, Task::FileHandle(tag));
        }
        self.send_request(node.tree(), id, caller, Ask::FileHandle { node }, out);
        Ok(())
    }

    /// Lists a directory of a tree, with the identities of its entries.
    pub(crate) fn list_handles(
        &mut self,
        id: RequestId,
        Request { caller, ask }: Request,
        open: OpenId,
        out: &mut Vec<Output>,
    ) {
        let tree = open.tree();
        self.tasks.insert(id, Task::Handles(tree, self.tag_of(tree)));
        self.send_request(tree, id, caller, ask, out);
    }

    /// Adds the tag of their tree to the identities of entries. Those that may be mount points have
    /// another one, and those of trees that will not be recognised again have none.
    pub(crate) fn tag_entries(&self, tree: u16, tag: Option<Tag>, reply: Reply) -> Reply {
        let Reply::Entries(mut entries) = reply else { unreachable!("{reply:?} is no list") };
        for entry in &mut entries {
            let name = &entry.name;
            let may_be_point = self.table.may_be_point(tree, name) || self.hidden.is_name(name);
            let tag = tag.filter(|_| !may_be_point);
            entry.handle = entry.handle.zip(tag).map(|(handle, tag)| handle.with_tag(tag));
        }
        Reply::Entries(entries)
    }

    /// Gets a node of the file with an identity: from its tree, or by the path of its mount point.
    ///
    /// # Errors
    /// `Stale` if the tree is not mounted any more.
    pub(crate) fn resolve(
        &mut self,
        id: RequestId,
        caller: Caller,
        handle: FileHandle,
        out: &mut Vec<Output>,
    ) -> Result<(), Error> {
        if handle.tag() == POINT {
            let is_it = |point: &&MountPoint| path_hash(point) == handle.identifier();
            let point = self.table.points().map(AsRef::as_ref).find(is_it).ok_or(Error::Stale)?;
            let path = point.path.clone();
            let task = Task::walk(caller, self.root_place(), path);
            self.go_on(id, task, None, out);
            return Ok(());
        }
        let tree = self.tree_of(handle.tag()).ok_or(Error::Stale)?;
        self.send_request(tree, id, caller, Ask::Resolve { handle }, out);
        Ok(())
    }

    fn tag_of(&self, tree: u16) -> Option<Tag> {
        if tree == self.root.tree() {
            return Some(FIRST);
        }
        self.mounted().find(|(mounted, _)| *mounted == tree).map(|(_, tag)| tag)
    }

    fn tree_of(&self, tag: Tag) -> Option<u16> {
        if tag == FIRST {
            return Some(self.root.tree());
        }
        self.mounted().find(|(_, known)| *known == tag).map(|(tree, _)| tree)
    }

    /// Returns the mounted trees with their tags.
    fn mounted(&self) -> impl Iterator<Item = (u16, Tag)> {
        self.table.points().flat_map(|point| {
            let mounts = point.members.iter().filter(|member| !member.root.owned);
            mounts.filter_map(|member| {
                let hash = hash(point, member.what.as_deref()?);
                let [first, second, third, fourth, ..] = hash;
                Some((member.root.node.tree(), [first | MOUNTED, second, third, fourth]))
            })
        })
    }
}

fn path_hash(point: &MountPoint) -> [u8; 32] {
    hash(point, "")
}

/// Returns a hash of a mount point's path and of a source.
fn hash(point: &MountPoint, source: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for name in &point.path {
        hash.update(name.as_bytes());
        hash.update(b"/");
    }
    hash.update(source);
    hash.finalize().into()
}
