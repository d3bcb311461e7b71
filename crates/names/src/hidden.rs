//! Mounts behind names that are not listed, indexed for lookup.

use crate::Mount;
use base::Name;
use std::collections::{BTreeMap, BTreeSet};
use tree::NodeId;

/// All hidden mounts.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    mounts: Vec<Mount>,
    /// Indices of the mounts by their directory.
    within: BTreeMap<NodeId, Vec<usize>>,
    /// Directory above each root; that of the first mount if there are several.
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

    /// Removes the mounts of a tree.
    pub(crate) fn forget(&mut self, tree: u16) {
        if self.mounts.iter().any(|mount| mount.root.tree() == tree) {
            let mounts = std::mem::take(&mut self.mounts).into_iter();
            *self = Hidden::new(mounts.filter(|mount| mount.root.tree() != tree).collect());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// Returns the root mounted behind a name in a directory.
    pub(crate) fn behind(&self, at: NodeId, name: &Name) -> Option<NodeId> {
        let mut mounts = self.within.get(&at)?.iter().map(|position| &self.mounts[*position]);
        mounts.find(|mount| mount.name == *name).map(|mount| mount.root)
    }

    /// Returns the directory in which this root is mounted.
    pub(crate) fn above(&self, root: NodeId) -> Option<NodeId> {
        self.above.get(&root).copied()
    }

    /// Returns whether any mount is hidden behind this name.
    pub(crate) fn is_name(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Returns whether a path contains the name of a hidden mount.
    pub(crate) fn is_on(&self, path: &[u8]) -> bool {
        let mut names = path.split(|byte| *byte == b'/').flat_map(Name::new);
        names.any(|name| self.is_name(&name))
    }
}
