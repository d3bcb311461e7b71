//! The trees of a node: the trait of every kind, and its implementations.
//!
//! To add a kind of tree, implement [`Tree`] for it here, and create it in [`create`] or where the
//! node does.

use super::log::{Level, LogMessage};
use super::messages::{self, NodeMessage};
use super::relay::{self, Relay};
use super::{Config, Served};
use base::op::{ClientKey, File};
use base::{Automaton, Instant, Name, Stat};
use names::Mount;
use services::Hosted;
use std::any::Any;
use std::fmt::Debug;
use storelet::Storelets;
use tree::host::Host;
use tree::remote::Remote;
use tree::service::Service;
use tree::skeleton::Skeleton;
use tree::volume::Volume;
use tree::{FileKey, Id, Input, NodeId, Output};

/// Upper bits of the device numbers of remote files, which no host uses.
const REMOTE_DEVICES: u64 = 0xfffe << 48;

/// A tree of any kind.
///
/// The defaults are those of users' files that need nothing beside their requests.
pub(crate) trait Tree:
    Automaton<Input = Input, Output = Output> + Any + Debug + Send
{
    /// Returns the root.
    fn root(&self) -> NodeId;

    /// Returns the attributes that identify its root.
    fn root_stat(&self) -> Stat;

    /// Returns the statistics.
    fn counts(&self) -> Counts;

    /// Returns the maximum number of nodes and open files, where they are not files of the process.
    fn own_handles_max(&self) -> Option<usize>;

    /// Returns the number of its nodes and open files.
    fn handles(&self) -> usize {
        let counts = self.counts();
        counts.nodes + counts.opens
    }

    /// Returns whether it holds users' files, rather than the server's state.
    fn has_files(&self) -> bool {
        true
    }

    /// Returns whether it resolves the identities of users.
    fn identifies(&self) -> bool {
        false
    }

    /// Returns the file to close when it is no longer needed.
    fn file(&self) -> Option<File> {
        None
    }

    /// Returns the identity of the file of a node or an open file, for its watchers; `None` if
    /// changes are not reported.
    fn key(&self, _id: Id) -> Option<FileKey> {
        None
    }

    /// Sets the client that the next request is accounted to.
    fn set_client(&mut self, _client: ClientKey) {}

    /// Performs the work due at the end of a turn.
    fn tick(&mut self, _now: Instant, _out: &mut Vec<Output>) {}

    /// Takes the next message for the operator.
    fn next_log_message(&mut self) -> Option<LogMessage> {
        None
    }

    /// Prepares for the shutdown: requests that would wait indefinitely are ended.
    fn drain(&mut self, _now: Instant, _out: &mut Vec<Output>) {}

    /// Makes everything durable at the end of the node.
    fn close(&mut self, _now: Instant, _out: &mut Vec<Output>) {}

    /// Returns whether everything is durable.
    fn is_closed(&self) -> bool {
        true
    }
}

/// Statistics of a tree of any kind.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) nodes: usize,
    pub(crate) opens: usize,
    pub(crate) locks: (usize, usize),
    pub(crate) pending: Vec<(&'static str, usize)>,
    /// Number of storelets in each state; memory allocated to them, and its limit, bytes.
    pub(crate) domains: Vec<(&'static str, usize)>,
    pub(crate) memory: Option<(u64, u64)>,
    /// Bytes held by a replica's open files, and their limit.
    pub(crate) held: Option<(usize, usize)>,
    /// State of the link to a remote server.
    pub(crate) link: Option<&'static str>,
    /// Store of a volume, and its reaper with the number of queued inodes.
    pub(crate) volume: Option<(store::Space, store::Counts, (&'static str, usize))>,
    /// State of the machine that counts files for quotas, and the quotas of a volume.
    pub(crate) quotas: Option<(&'static str, Vec<tree::volume::Limited>)>,
}

/// Creates the tree with this number; a volume has recovered already.
pub(crate) fn open(index: u16, served: Served, config: &Config) -> Box<dyn Tree> {
    let mut out = Vec::new();
    let tree = create(index, served, config, Instant(0), &mut out);
    assert!(out.is_empty(), "the store was opened before it was given to the node");
    tree
}

/// Creates the tree with this number; a volume may begin to recover.
pub(crate) fn create(
    index: u16,
    served: Served,
    config: &Config,
    now: Instant,
    out: &mut Vec<Output>,
) -> Box<dyn Tree> {
    match served {
        Served::Directory { root, stat, .. } => {
            Box::new(Host::new(index, root, &stat, config.read_only))
        }
        Served::Remote { to, aname, .. } => {
            let index_seed = u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let settings = tree::remote::Config {
                device: REMOTE_DEVICES | u64::from(index),
                read_only: config.read_only,
                server_uid: config.owner,
                seed: config.wall.secs as u64 ^ index_seed,
                ..tree::remote::Config::default()
            };
            Box::new(Remote::new(index, to, aname, settings))
        }
        Served::Skeleton { paths } => Box::new(Skeleton::new(index, config.wall, &paths)),
        Served::Volume { file, store, outputs, path } => {
            let mut volume = Volume::new(index, file, *store, config.wall, config.read_only);
            volume.set_write_through(config.write_through);
            volume.set_name(String::from_utf8_lossy(&path).into_owned());
            volume.begin(now, outputs, out);
            Box::new(volume)
        }
    }
}

impl dyn Tree {
    /// Returns the tree as one of this kind, or `None` if it is of another.
    pub(crate) fn downcast_ref<T: Tree>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Returns the tree as one of this kind, or `None` if it is of another.
    pub(crate) fn downcast_mut<T: Tree>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }

    /// Returns whether it is of this kind.
    pub(crate) fn is<T: Tree>(&self) -> bool {
        (self as &dyn Any).is::<T>()
    }

    /// Returns whether its nodes are files of the process.
    pub(crate) fn is_host(&self) -> bool {
        self.is::<Host>()
    }

    pub(crate) fn volume(&self) -> Option<&Volume> {
        self.downcast_ref()
    }

    /// Returns a volume, to grow it.
    pub(crate) fn growing(&mut self) -> &mut Volume {
        self.downcast_mut().expect("only volumes grow")
    }

    /// Returns whether it can be used, or the reason why it never can; trees other than volumes
    /// always can.
    pub(crate) fn recovered(&self) -> Option<Result<(), base::Error>> {
        self.volume().map_or(Some(Ok(())), Volume::is_open)
    }

    /// Returns whether it has no nodes and open files, and nothing is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        let counts = self.counts();
        counts.nodes + counts.opens == 0 && counts.pending.is_empty()
    }

    /// Returns the directory of snapshots as a hidden entry of its root, for trees other than the
    /// first one.
    pub(crate) fn hidden_snapshots(&self) -> Option<Mount> {
        let name = Name::new(b".snapshots").expect("a plain name");
        self.volume().map(|volume| Mount { at: self.root(), name, root: volume.snapshots_root() })
    }
}

/// Implements methods of [`Tree`] by a kind's own methods of these names.
macro_rules! own {
    ($($method:ident),*) => { $(own!(@ $method);)* };
    (@ root) => {
        fn root(&self) -> NodeId {
            self.root()
        }
    };
    (@ root_stat) => {
        fn root_stat(&self) -> Stat {
            self.root_stat()
        }
    };
    (@ tick) => {
        fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
            self.tick(now, out);
        }
    };
    (@ close) => {
        fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
            self.close(now, out);
        }
    };
    (@ is_closed) => {
        fn is_closed(&self) -> bool {
            self.is_closed()
        }
    };
}

/// A directory of the host.
impl Tree for Host {
    own!(root, root_stat);

    fn counts(&self) -> Counts {
        let tree::host::Counts { nodes, opens, locks, pending } = self.counts();
        Counts { nodes, opens, locks, pending, ..Counts::default() }
    }

    fn own_handles_max(&self) -> Option<usize> {
        None
    }

    fn handles(&self) -> usize {
        self.handles()
    }

    fn identifies(&self) -> bool {
        true
    }

    fn file(&self) -> Option<File> {
        Some(self.root_file())
    }

    fn key(&self, id: Id) -> Option<FileKey> {
        Some(self.key(id))
    }

    fn set_client(&mut self, client: ClientKey) {
        self.set_client(client);
    }

    fn tick(&mut self, _now: Instant, out: &mut Vec<Output>) {
        self.tick(out);
    }
}

impl Tree for Volume {
    own!(root, root_stat, tick, close);

    fn counts(&self) -> Counts {
        let counts = self.counts();
        Counts {
            nodes: counts.nodes,
            opens: counts.opens,
            locks: counts.locks,
            pending: counts.pending,
            volume: Some((self.store().space(), self.store().counts(), counts.reaper)),
            quotas: Some((counts.counting, self.quotas())),
            ..Counts::default()
        }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(tree::volume::HANDLES_MAX)
    }

    fn identifies(&self) -> bool {
        true
    }

    fn file(&self) -> Option<File> {
        Some(self.file())
    }

    fn key(&self, id: Id) -> Option<FileKey> {
        Some(self.key(id))
    }

    fn set_client(&mut self, client: ClientKey) {
        self.set_client(client);
    }

    fn next_log_message(&mut self) -> Option<LogMessage> {
        let text = self.next_report()?;
        Some(LogMessage { level: Level::Error, target: "volume", text })
    }

    fn is_closed(&self) -> bool {
        self.is_closed().is_some()
    }
}

/// The server's own state.
impl Tree for Service {
    own!(root, root_stat, tick);

    fn counts(&self) -> Counts {
        Counts { opens: self.opens(), ..Counts::default() }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(tree::service::OPENS_MAX)
    }

    fn set_client(&mut self, client: ClientKey) {
        self.set_client(client);
    }

    fn drain(&mut self, _now: Instant, out: &mut Vec<Output>) {
        self.drain(out);
    }

    fn has_files(&self) -> bool {
        false
    }
}

/// Empty directories as mount points.
impl Tree for Skeleton {
    own!(root, root_stat);

    fn counts(&self) -> Counts {
        Counts { opens: self.opens(), ..Counts::default() }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(tree::skeleton::OPENS_MAX)
    }

    fn has_files(&self) -> bool {
        false
    }
}

/// The files of another server.
impl Tree for Remote {
    own!(root, root_stat, tick, close, is_closed);

    fn counts(&self) -> Counts {
        let counts = self.counts();
        Counts {
            nodes: counts.nodes,
            opens: counts.opens,
            pending: counts.pending,
            link: Some(counts.link),
            ..Counts::default()
        }
    }

    fn key(&self, id: Id) -> Option<FileKey> {
        Some(self.key(id))
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(tree::remote::HANDLES_MAX)
    }

    fn next_log_message(&mut self) -> Option<LogMessage> {
        let state = self.next_link_state()?;
        let level = if state.is_up() { Level::Info } else { Level::Warn };
        Some(LogMessage { level, target: "mount", text: format!("{}: {state}", self.name()) })
    }
}

/// Programs of clients.
impl Tree for Storelets {
    own!(root, root_stat, tick, close, is_closed);

    fn counts(&self) -> Counts {
        Counts {
            opens: self.opens(),
            domains: self.states(),
            memory: Some(self.memory()),
            ..Counts::default()
        }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(storelet::OPENS_MAX)
    }

    fn next_log_message(&mut self) -> Option<LogMessage> {
        let text = self.next_report()?;
        Some(LogMessage { level: Level::Warn, target: "storelet", text })
    }

    fn has_files(&self) -> bool {
        false
    }
}

/// A replica of a service.
impl Tree for Hosted {
    own!(root, root_stat, tick, close, is_closed);

    fn counts(&self) -> Counts {
        let held = Some((self.held(), self.held_max()));
        Counts { held, opens: self.opens(), ..Counts::default() }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(services::OPENS_MAX)
    }

    fn next_log_message(&mut self) -> Option<LogMessage> {
        let (is_up, text) = match self.next_report() {
            Some(text) => (false, text),
            None => self.next_connection_report()?,
        };
        let level = if is_up { Level::Info } else { Level::Warn };
        Some(LogMessage { level, target: "replica", text })
    }

    fn drain(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.drain(now, out);
    }
}

/// A tree that another node of this process has.
#[derive(Debug)]
pub(crate) struct StandIn(pub(crate) Relay);

impl StandIn {
    /// Steps the stand-in; its outputs leave as messages to the other node.
    pub(crate) fn pass(&mut self, now: Instant, input: relay::Input, out: &mut Vec<Output>) {
        let (mut requested, mut posts) = (Vec::new(), Vec::new());
        self.0.step(now, input, &mut requested);
        let (node, tree) = (self.0.node(), self.0.root().tree());
        let mut post = |node_message| messages::post(node, node_message, &mut posts);
        for output in requested {
            match output {
                relay::Output::Forward(input) => post(NodeMessage::Forward(tree, input)),
                relay::Output::Drain => post(NodeMessage::DrainTree(tree)),
                relay::Output::Finish => post(NodeMessage::CloseTree(tree)),
                relay::Output::Reply(id, reply) => out.push(Output::Reply(id, reply)),
            }
        }
        out.extend(posts.into_iter().map(Output::Do));
    }
}

impl Automaton for StandIn {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let input = match input {
            Input::Ask(id, request) => relay::Input::Ask(id, request),
            Input::Cancel(id) => relay::Input::Cancel(id),
            // Nodes of a replica's tree are plain numbers: nothing to release.
            Input::Release(_) => return,
            Input::Close(open) => relay::Input::Close(open),
            Input::Abandon(open) => relay::Input::Abandon(open),
            Input::Done(..) | Input::Rendered(..) | Input::Commanded(..) | Input::Answered(..) => {
                unreachable!("a stand-in asks nothing of this node")
            }
        };
        self.pass(now, input, out);
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn check(&self) {
        self.0.check();
    }
}

impl Tree for StandIn {
    fn root(&self) -> NodeId {
        self.0.root()
    }

    fn root_stat(&self) -> Stat {
        self.0.root_stat().clone()
    }

    fn counts(&self) -> Counts {
        let pending = Some(("replica", self.0.pending())).filter(|(_, count)| *count > 0);
        let pending = pending.into_iter().collect();
        Counts { opens: self.0.opens(), pending, ..Counts::default() }
    }

    fn own_handles_max(&self) -> Option<usize> {
        Some(services::OPENS_MAX)
    }

    fn drain(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.pass(now, relay::Input::Drain, out);
    }

    fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.pass(now, relay::Input::Finish, out);
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}
