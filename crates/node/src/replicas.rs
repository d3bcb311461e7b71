//! Replicas of services in a node: each is a tree, at `/services/NAME`.

use super::branch::Branch;
use super::{Node, plain};
use base::Name;
use base::op::File;
use names::Mount;
use services::{Hosted, Kept, Options};
use store::Store;
use tree::skeleton::Skeleton;

/// A replica that is kept in an open store.
#[derive(Debug)]
pub struct Replicated {
    /// The file that the store is in.
    pub file: File,
    /// The store, which has recovered.
    pub store: Box<Store>,
    /// What is in it.
    pub kept: Kept,
    /// What the replica needs of the server.
    pub options: Options,
}

impl Node {
    /// Has replicas, before anybody is let in. No two of them are of one service.
    ///
    /// # Panics
    /// If two are of one service, or its name cannot be that of a file.
    pub fn host(&mut self, replicas: Vec<Replicated>) {
        if replicas.is_empty() {
            return;
        }
        let name = |replica: &Replicated| plain(&replica.kept.settings.service);
        let paths: Vec<Vec<Name>> = replicas.iter().map(|replica| vec![name(replica)]).collect();
        self.export.services = replicas.iter().map(name).collect();
        let wall = self.config.wall;
        let make = |index| Branch::Skeleton(Box::new(Skeleton::new(index, wall, &paths)));
        let places = self.trees.plant(make).expect("a node begins with few trees");
        let top = self.trees[places].root();
        let at = self.trees[super::MAIN].root();
        self.names.hide(Mount { at, name: plain(services::PLACE), root: top });
        for replica in replicas {
            let name = name(&replica);
            let Replicated { file, store, kept, options } = replica;
            let make =
                |index| Branch::Replica(Box::new(Hosted::new(index, file, *store, kept, options)));
            let tree = self.trees.plant(make).expect("a node begins with few trees");
            self.names.hide(Mount { at: top, name, root: self.trees[tree].root() });
        }
    }
}
