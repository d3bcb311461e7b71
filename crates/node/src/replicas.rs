//! Replicas of services in a node: each is a tree, at `/services/NAME`.

use super::branch::Branch;
use super::{Node, limits, plain};
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
        self.export.limits = limits(&self.config, &self.trees);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Limits, Served};
    use base::{Instant, Time};
    use std::collections::BTreeMap;
    use store::drive::{self, Disk as _, Memory};
    use store::{Durability, Geometry, Ticket};

    const NOW: Instant = Instant(1);

    fn settings() -> services::Settings {
        let (version, secret) = (services::settings::VERSION, [1; 32]);
        let text = format!(
            r#"{{
                "version": {version}, "id": 1, "service": "hits", "kind": "counter",
                "me": 1, "members": {{ "1": "" }}, "joins": false, "secret": {secret:?}
            }}"#
        );
        serde_json::from_str(&text).expect("settings as they are kept")
    }

    /// A new replica.
    fn replicated() -> Replicated {
        let mut disk = Memory::formatted(&Geometry::for_bytes(16 << 20)).expect("a disk");
        let head = disk.head().expect("a head");
        let layout = store::Superblock::newest(&head).expect("a volume").layout;
        let (config, mut said) = (store::Config::for_memory(1 << 20, &layout), Vec::new());
        let mut store = Store::open(&head, config, NOW, &mut said).expect("a volume");
        while let Some(output) = said.pop() {
            if let store::Output::Io(io) = output {
                let (id, done) = drive::perform(&mut disk, &io);
                store.done(NOW, id, done, &mut said);
            }
        }
        let changes = services::format(&settings());
        store.commit(NOW, Ticket(0), &changes, Durability::Soon, &mut said).expect("room");
        let mut fetch = |_: &mut Store, missing| panic!("{missing:?} in a new volume");
        let kept = services::read_all(&mut store, &mut fetch).expect("a replica");
        let options = Options {
            wall: Time::default(),
            owner: 0,
            seed: [0; 32],
            addresses: BTreeMap::new(),
            limits: services::Limits::shared_by(1),
        };
        Replicated { file: File(1), store: Box::new(store), kept, options }
    }

    #[test]
    fn one_client_leaves_some_files_of_a_replica_to_the_others() {
        let config = Config {
            read_only: false,
            service: false,
            http_write: false,
            owner: 0,
            ports: Vec::new(),
            wall: Time::default(),
            limits: Limits::default(),
            connections_max: 1000,
            bytes_max: 1 << 30,
            files_max: 1 << 20,
            sharers: 1,
            volume_cache: 1 << 20,
            storelets: None,
        };
        let mut node = Node::new(config, Served::Skeleton { paths: Vec::new() }, Vec::new());
        // One that is open is two of them.
        assert!(node.export().limits.fids / 2 >= services::OPENS_MAX);
        node.host(vec![replicated()]);
        let most = node.export().limits.fids / 2;
        assert!(most > 10_000 && most < services::OPENS_MAX / 2, "{most}");
    }
}
