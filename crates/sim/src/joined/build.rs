//! Initial state: directories of hosts on the disk, and the tree joined by the mux.

use super::canary::Mistake;
use super::params::Params;
use super::space::{At, EDITED, File as SpaceFile, Lookup, Member, Order, Source, Space, Tree};
use crate::disk::{DEVICE, ROOT};
use crate::world::{WALL, World};
use base::op::{Address, File, Listener, PathDone, PathOp};
use base::rng::Rng;
use base::{Kind, Name, Stat};
use node::{Join, Joined, Served};
use std::collections::BTreeSet;

/// A served directory of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) file: File,
    pub(super) inode: u64,
}

impl Root {
    pub(super) fn served(self) -> Served {
        let (kind, device, inode) = (Kind::Directory, DEVICE, self.inode);
        let stat = Stat { kind, mode: 0o755, device, inode, modified: WALL, ..Stat::default() };
        Served::Directory { root: self.file, stat, path: b"/srv".to_vec() }
    }
}

/// The whole initial state.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) space: Space,
    pub(super) mux: Root,
    pub(super) servers: Vec<Root>,
    /// Directories of the mux's host that it mounts.
    pub(super) others: Vec<File>,
    pub(super) joins: Vec<Join>,
    /// The mux's names of the servers that it mounts.
    pub(super) remotes: Vec<String>,
}

/// Builder of the initial state.
struct Builder<'a> {
    world: &'a mut World,
    rng: Rng,
    params: &'a Params,
    stage: Stage,
    listeners: &'a [Listener],
    mistake: Option<Mistake>,
}

/// Builds everything. The first listener is the mux's.
pub(super) fn build(
    world: &mut World,
    params: &Params,
    listeners: &[Listener],
    mistake: Option<Mistake>,
) -> Stage {
    let mut space = Space::default();
    let mux = make_root(world, &mut space, "mux");
    let named = |number| format!("s{number}");
    let servers = (0..params.servers).map(|it| make_root(world, &mut space, &named(it))).collect();
    let local = make_root(world, &mut space, "local");
    let of_main = |source| Tree { source, root: mux.inode, plain: false };
    space.trees = vec![of_main(Source::OwnEntry), of_main(Source::Hidden)];
    let (others, joins, remotes) = (vec![local.file], Vec::new(), Vec::new());
    let stage = Stage { space, mux, servers, others, joins, remotes };
    let rng = base::rng::seeded(params.seed ^ 0xb111d);
    let mut builder = Builder { world, rng, params, stage, listeners, mistake };
    builder.plant_all(local);
    builder.join_all(local);
    builder.stage
}

/// Creates a directory of the disk, to be served.
fn make_root(world: &mut World, space: &mut Space, name: &str) -> Root {
    let disk = &mut world.env.disk;
    let inode = disk.plant(WALL, ROOT, name.as_bytes(), Kind::Directory, b"");
    space.planted.insert(inode);
    let root = disk.open_root();
    let names = path(name);
    let Ok(PathDone::Walked(_, Ok(file))) =
        disk.perform(WALL, &PathOp::Walk { root, from: root, names })
    else {
        unreachable!("it was planted above");
    };
    disk.close(root);
    Root { file, inode }
}

/// Returns the address of a listener of the world.
pub(super) fn address(listener: Listener) -> Address {
    let port = u16::try_from(listener.0).expect("few listeners");
    Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Returns the names of a path.
fn path(text: &str) -> Vec<Name> {
    let parts = text.split('/').filter(|part| !part.is_empty());
    parts.map(|part| Name::new(part.as_bytes()).expect("a plain name")).collect()
}

impl Builder<'_> {
    fn dir(&mut self, dir: u64, name: &str) -> u64 {
        let disk = &mut self.world.env.disk;
        let inode = disk.plant(WALL, dir, name.as_bytes(), Kind::Directory, b"");
        self.stage.space.planted.insert(inode);
        inode
    }

    /// Creates directories and files in a directory, recursively.
    fn plant(&mut self, dir: u64, depth: u32) {
        for name in ["a", "b", "c"] {
            if depth == 0 || (depth < 3 && self.rng.bool()) {
                let inode = self.dir(dir, name);
                self.plant(inode, depth + 1);
            }
        }
        for name in ["f", "g", "h", "long-name-of-some-file"] {
            if self.rng.u8(..3) > 0 {
                let length = [0, 10, 4096, 30_000][self.rng.usize(..4)];
                let mut data = vec![0; length];
                self.rng.fill(&mut data);
                self.world.env.disk.plant(WALL, dir, name.as_bytes(), Kind::File, &data);
            }
        }
    }

    fn plant_all(&mut self, local: Root) {
        for inode in self.stage.servers.clone().into_iter().chain([local]).map(|root| root.inode) {
            self.plant(inode, 0);
            self.dir(inode, "in");
            self.dir(inode, "loop");
        }
        if self.rng.u8(..3) == 0 {
            let many = self.stage.servers[0].inode;
            let dir = self.dir(many, "many");
            for number in 0..400 {
                let name = format!("entry-{number}");
                self.world.env.disk.plant(WALL, dir, name.as_bytes(), Kind::File, b"");
            }
        }
        if let Some(server) = self.params.edited() {
            let root = self.stage.servers[server].inode;
            self.world.env.disk.plant(WALL, root, EDITED.as_bytes(), Kind::File, b"");
        }
        let mux = self.stage.mux.inode;
        for number in 0..self.stage.servers.len() {
            self.dir(mux, &format!("p{number}"));
        }
        for name in ["local", "b", "me", "void"] {
            self.dir(mux, name);
        }
        let union = self.dir(mux, "u");
        self.plant(union, 2);
    }

    /// Returns the place of a path while no server is in trouble.
    fn at(&mut self, path: &[Name]) -> At {
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.stage.space, &self.world.env.disk, &nobody);
        path.iter().fold(self.stage.space.root(), |at, name| {
            let found = look.step(&at, name).remove(0);
            found.unwrap_or_else(|error| panic!("{path:?} of the stage: {error}"))
        })
    }

    fn join(&mut self, what: Joined, members: Vec<Member>, at: &str, order: Order) {
        let create = members.iter().any(|member| member.create);
        let at_path = path(at);
        let place = self.at(&at_path);
        self.stage.space.join(&place, members, order);
        let source_text = format!("{:?}", self.stage.joins.len()).into();
        let create = create != (self.mistake == Some(Mistake::OtherMember));
        self.stage.joins.push(Join { what, at: at_path, order, create, source_text });
    }

    fn mount(&mut self, tree: Tree, served: Served, at: &str, order: Order, create: bool) {
        let number = self.stage.space.trees.len();
        self.stage.space.trees.push(tree);
        let file: SpaceFile = self.stage.space.root_of(number);
        self.join(Joined::Tree(served), vec![Member { file, create }], at, order);
    }

    fn mount_server(&mut self, server: usize, aname: &str, at: &str, order: Order, create: bool) {
        let root = self.stage.servers[server].inode;
        let names = path(aname);
        let root = names.iter().fold(root, |dir, name| {
            self.world.env.disk.lookup(dir, name.as_bytes()).expect("it was planted")
        });
        let plain = self.params.is_plain(server);
        let tree = Tree { source: Source::Server(server), root, plain };
        let served = self.remote(server + 1, aname);
        self.mount(tree, served, at, order, create);
    }

    fn remote(&mut self, listener: usize, aname: &str) -> Served {
        let to = address(self.listeners[listener]);
        self.stage.remotes.push(format!("{to} {aname}").trim_end().to_string());
        Served::Remote { to: vec![to], aname: aname.as_bytes().to_vec(), path: b"9p".to_vec() }
    }

    fn bind(&mut self, new: &str, at: &str, order: Order, create: bool) {
        let what = path(new);
        let source = self.at(&what);
        let members = self.stage.space.source(&source, create);
        self.join(Joined::Path(what), members, at, order);
    }

    fn server(&mut self) -> usize {
        self.rng.usize(..self.stage.servers.len())
    }

    fn order(&mut self) -> Order {
        [Order::Before, Order::After][self.rng.usize(..2)]
    }

    /// Joins the whole namespace: mounts, a union, binds, nested mounts, and cycles.
    fn join_all(&mut self, local: Root) {
        for server in 0..self.stage.servers.len() {
            let aname = ["", "", "/", "/a"][self.rng.usize(..4)];
            // The first has all directories that are bound below.
            let whole = server == 0 || self.params.edited() == Some(server);
            let aname = if whole { "" } else { aname };
            let create = self.rng.bool();
            self.mount_server(server, aname, &format!("/p{server}"), Order::Replace, create);
        }
        let tree = Tree { source: Source::OwnEntry, root: local.inode, plain: false };
        self.mount(tree, local.served(), "/local", Order::Replace, false);
        self.join_union();
        self.bind("/p0/b", "/b", Order::Replace, false);
        let (server, order) = (self.server(), self.order());
        self.mount_server(server, "", "/p0/in", Order::Replace, true);
        self.bind("/p0", "/p0/loop", Order::Replace, false);
        self.bind("/local", "/local/loop", order, true);
        let create = self.rng.bool();
        self.bind("/local/a", "/p0/c", order, create);
        if self.rng.bool() {
            self.bind("/u", "/void", order, create);
        }
        if self.params.again {
            let (source, root) = (Source::Again, self.stage.mux.inode);
            let tree = Tree { source, root, plain: false };
            let served = self.remote(0, "");
            self.mount(tree, served, "/me", Order::Replace, false);
        }
    }

    /// Joins a union of several members, one of which may take new entries.
    fn join_union(&mut self) {
        for _ in 0..self.rng.usize(2..=4) {
            let (order, create) = (self.order(), self.rng.bool());
            match self.rng.u8(..4) {
                0 => self.bind("/p0/a", "/u", order, create),
                1 => self.bind("/local/b", "/u", order, create),
                2 => {
                    let server = self.server();
                    self.mount_server(server, "/b", "/u", order, create);
                }
                _ => {
                    let server = self.server();
                    self.mount_server(server, "", "/u", order, create);
                }
            }
        }
    }
}
