//! What stands behind names that are not listed, to be found however much is hidden.

use crate::Mount;
use base::Name;
use std::collections::{BTreeMap, BTreeSet};
use tree::NodeId;

/// All that is hidden.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    mounts: Vec<Mount>,
    /// The places of those in a directory.
    within: BTreeMap<NodeId, Vec<usize>>,
    /// The directory above a root; of several the first.
    above: BTreeMap<NodeId, NodeId>,
    names: BTreeSet<Name>,
}

impl Hidden {
    pub(crate) fn new(mounts: Vec<Mount>) -> Hidden {
        let mut hidden = Hidden::default();
        mounts.into_iter().for_each(|mount| hidden.add(mount));
        hidden
    }

    pub(crate) fn add(&mut self, mount: Mount) {
        self.within.entry(mount.at).or_default().push(self.mounts.len());
        self.above.entry(mount.root).or_insert(mount.at);
        self.names.insert(mount.name.clone());
        self.mounts.push(mount);
    }

    /// Forgets what a tree has hidden.
    pub(crate) fn forget(&mut self, tree: u16) {
        if self.mounts.iter().any(|mount| mount.root.tree() == tree) {
            let mounts = std::mem::take(&mut self.mounts).into_iter();
            *self = Hidden::new(mounts.filter(|mount| mount.root.tree() != tree).collect());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// What stands behind a name in a directory.
    pub(crate) fn behind(&self, at: NodeId, name: &Name) -> Option<NodeId> {
        let mut mounts = self.within.get(&at)?.iter().map(|place| &self.mounts[*place]);
        mounts.find(|mount| mount.name == *name).map(|mount| mount.root)
    }

    /// The directory in which this root is hidden.
    pub(crate) fn above(&self, root: NodeId) -> Option<NodeId> {
        self.above.get(&root).copied()
    }

    /// Whether something is hidden behind this name anywhere.
    pub(crate) fn is_name(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Whether a path of such names goes through one.
    pub(crate) fn is_on(&self, path: &[u8]) -> bool {
        let mut names = path.split(|byte| *byte == b'/').flat_map(Name::new);
        names.any(|name| self.is_name(&name))
    }
}
