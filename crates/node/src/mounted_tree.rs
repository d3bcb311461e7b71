//! A tree of a node, of any kind.

use super::log::{Level, News};
use super::messages::{self, NodeMessage};
use super::relay::{self, Relay};
use super::{Config, Served};
use base::op::{File, OpId};
use base::{Automaton, Instant, Name, Stat};
use names::Mount;
use services::Hosted;
use storelet::{Settings, Storelets};
use tree::host::Host;
use tree::remote::Remote;
use tree::service::Service;
use tree::skeleton::Skeleton;
use tree::volume::Volume;
use tree::{Input, NodeId, Output, RequestId};

/// Upper bits of the device numbers of remote files, which no host uses.
const REMOTE_DEVICES: u64 = 0xfffe << 48;

/// A tree.
#[derive(Debug)]
pub(crate) enum MountedTree {
    /// A directory of the host, and its attributes.
    Host(Box<Host>, Box<Stat>),
    Volume(Box<Volume>),
    /// The server's own state.
    Service(Box<Service>),
    /// Empty directories as mount points.
    Skeleton(Box<Skeleton>),
    /// The files of another server.
    Remote(Box<Remote>),
    /// Programs of clients.
    Storelets(Box<Storelets>),
    /// A replica of a service.
    Replica(Box<Hosted>),
    /// A tree that another node of this process has.
    Relay(Box<Relay>),
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

impl MountedTree {
    /// Creates the tree with this number; a volume has recovered already.
    pub(crate) fn opened(index: u16, served: Served, config: &Config) -> MountedTree {
        let mut out = Vec::new();
        let mounted = MountedTree::new(index, served, config, Instant(0), &mut out);
        assert!(out.is_empty(), "the store was opened before it was given to the node");
        mounted
    }

    /// Creates the tree with this number; a volume may begin to recover.
    pub(crate) fn new(
        index: u16,
        served: Served,
        config: &Config,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> MountedTree {
        match served {
            Served::Directory { root, stat, .. } => {
                let host = Host::new(index, root, &stat, config.read_only);
                MountedTree::Host(Box::new(host), Box::new(stat))
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
                MountedTree::Remote(Box::new(Remote::new(index, to, aname, settings)))
            }
            Served::Skeleton { paths } => {
                let skeleton = Skeleton::new(index, config.wall, &paths);
                MountedTree::Skeleton(Box::new(skeleton))
            }
            Served::Volume { file, store, outputs, path } => {
                let mut volume = Volume::new(index, file, *store, config.wall, config.read_only);
                volume.set_write_through(config.write_through);
                volume.set_name(String::from_utf8_lossy(&path).into_owned());
                volume.begin(now, outputs, out);
                MountedTree::Volume(Box::new(volume))
            }
        }
    }

    /// Creates the tree of storelets with this number.
    pub(crate) fn storelets(index: u16, settings: Settings, config: &Config) -> MountedTree {
        let Config { wall, owner, .. } = *config;
        MountedTree::Storelets(Box::new(Storelets::new(index, wall, owner, settings)))
    }

    pub(crate) fn root(&self) -> NodeId {
        match self {
            MountedTree::Host(host, _) => host.root(),
            MountedTree::Volume(volume) => volume.root(),
            MountedTree::Service(service) => service.root(),
            MountedTree::Skeleton(skeleton) => skeleton.root(),
            MountedTree::Remote(remote) => remote.root(),
            MountedTree::Storelets(storelets) => storelets.root(),
            MountedTree::Replica(replica) => replica.root(),
            MountedTree::Relay(relay) => relay.root(),
        }
    }

    /// Returns the attributes that identify its root.
    pub(crate) fn root_stat(&self) -> Stat {
        match self {
            MountedTree::Host(_, stat) => (**stat).clone(),
            MountedTree::Volume(volume) => volume.root_stat(),
            MountedTree::Service(service) => service.root_stat(),
            MountedTree::Skeleton(skeleton) => skeleton.root_stat(),
            MountedTree::Remote(remote) => remote.root_stat(),
            MountedTree::Storelets(storelets) => storelets.root_stat(),
            MountedTree::Replica(replica) => replica.root_stat(),
            MountedTree::Relay(relay) => relay.root_stat().clone(),
        }
    }

    /// Returns the request that an outstanding operation serves, for host trees.
    pub(crate) fn request_of(&self, op: OpId) -> Option<RequestId> {
        let MountedTree::Host(host, _) = self else { return None };
        Some(host.request_of(op))
    }

    pub(crate) fn volume(&self) -> Option<&Volume> {
        match self {
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => None,
            MountedTree::Volume(volume) => Some(volume),
        }
    }

    /// Grows a volume to `bytes`.
    pub(crate) fn grow(&mut self, now: Instant, bytes: u64, out: &mut Vec<Output>) {
        let MountedTree::Volume(volume) = self else { unreachable!("only volumes grow") };
        volume.grow(now, bytes, out);
    }

    /// Takes the result of a volume's last growth, when it is known.
    pub(crate) fn take_grown(&mut self) -> Option<Result<(), store::Error>> {
        let MountedTree::Volume(volume) = self else { unreachable!("only volumes grow") };
        volume.take_grown()
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

    /// Returns the file to close when it is no longer needed.
    pub(crate) fn file(&self) -> Option<File> {
        match self {
            MountedTree::Host(host, _) => Some(host.root_file()),
            MountedTree::Volume(volume) => Some(volume.file()),
            MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => None,
        }
    }

    /// Returns whether it resolves the identities of users.
    pub(crate) fn identifies(&self) -> bool {
        matches!(self, MountedTree::Host(..) | MountedTree::Volume(_))
    }

    /// Returns the directory of snapshots, if it has one.
    pub(crate) fn snapshots(&self) -> Option<NodeId> {
        self.volume().map(Volume::snapshots_root)
    }

    /// Returns the directory of snapshots as a hidden entry of its root, for trees other than the
    /// first one.
    pub(crate) fn hidden_snapshots(&self) -> Option<Mount> {
        let name = Name::new(b".snapshots").expect("a plain name");
        self.snapshots().map(|root| Mount { at: self.root(), name, root })
    }

    /// Returns whether its nodes are files of the process.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self, MountedTree::Host(..))
    }

    /// Returns whether it holds users' files, rather than the server's state.
    pub(crate) fn has_files(&self) -> bool {
        match self {
            MountedTree::Host(..)
            | MountedTree::Volume(_)
            | MountedTree::Remote(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => true,
            MountedTree::Service(_) | MountedTree::Skeleton(_) | MountedTree::Storelets(_) => false,
        }
    }

    /// Returns the number of its nodes and open files.
    pub(crate) fn handles(&self) -> usize {
        match self {
            MountedTree::Host(host, _) => host.handles(),
            MountedTree::Volume(_)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => {
                let counts = self.counts();
                counts.nodes + counts.opens
            }
        }
    }

    /// Returns the maximum number of nodes and open files, where they are not files of the process.
    pub(crate) fn own_handles_max(&self) -> Option<usize> {
        match self {
            MountedTree::Host(..) => None,
            MountedTree::Volume(_) => Some(tree::volume::HANDLES_MAX),
            MountedTree::Service(_) => Some(tree::service::OPENS_MAX),
            MountedTree::Skeleton(_) => Some(tree::skeleton::OPENS_MAX),
            MountedTree::Remote(_) => Some(tree::remote::HANDLES_MAX),
            MountedTree::Storelets(_) => Some(storelet::OPENS_MAX),
            MountedTree::Replica(_) | MountedTree::Relay(_) => Some(services::OPENS_MAX),
        }
    }

    /// Sets the maximum number of nodes and open files, where they are files of the process.
    pub(crate) fn set_handles_max(&mut self, most: usize) {
        match self {
            MountedTree::Host(host, _) => host.set_handles_max(most),
            MountedTree::Volume(_)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => {}
        }
    }

    /// Performs the work due at the end of a turn.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self {
            MountedTree::Service(_) | MountedTree::Skeleton(_) | MountedTree::Relay(_) => {}
            MountedTree::Host(host, _) => host.tick(out),
            MountedTree::Storelets(storelets) => storelets.tick(now, out),
            MountedTree::Replica(replica) => replica.tick(now, out),
            MountedTree::Volume(volume) => volume.tick(now, out),
            MountedTree::Remote(remote) => remote.tick(now, out),
        }
    }

    /// Returns the units of work that a replica has done so far.
    pub(crate) fn worked(&self) -> u64 {
        match self {
            MountedTree::Replica(replica) => replica.worked_ever(),
            MountedTree::Host(..)
            | MountedTree::Volume(_)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Relay(_) => 0,
        }
    }

    /// Returns the usage of finished storelets, for the tree of storelets.
    pub(crate) fn storelet_totals(&self) -> Option<&storelet::Totals> {
        match self {
            MountedTree::Storelets(storelets) => Some(storelets.totals()),
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Volume(_)
            | MountedTree::Remote(_)
            | MountedTree::Replica(_)
            | MountedTree::Relay(_) => None,
        }
    }

    pub(crate) fn replica_counts(&self) -> Option<services::Counts> {
        match self {
            MountedTree::Replica(replica) => Some(replica.counts()),
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Volume(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_)
            | MountedTree::Relay(_) => None,
        }
    }

    /// Returns the name of a mounted server, and whether it is connected.
    pub(crate) fn server(&self) -> Option<(String, bool)> {
        match self {
            MountedTree::Remote(remote) => Some((remote.name().to_string(), remote.is_connected())),
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Volume(_)
            | MountedTree::Replica(_)
            | MountedTree::Storelets(_)
            | MountedTree::Relay(_) => None,
        }
    }

    /// Takes the next message for the operator.
    pub(crate) fn next_news(&mut self) -> Option<News> {
        let (level, target, text) = match self {
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Relay(_) => {
                return None;
            }
            MountedTree::Volume(volume) => (Level::Error, "volume", volume.next_report()?),
            MountedTree::Storelets(storelets) => (Level::Warn, "storelet", storelets.next_news()?),
            MountedTree::Replica(replica) => match replica.next_news() {
                Some(text) => (Level::Warn, "replica", text),
                None => {
                    let (is_up, text) = replica.next_connection_news()?;
                    (if is_up { Level::Info } else { Level::Warn }, "replica", text)
                }
            },
            MountedTree::Remote(remote) => {
                let news = remote.next_news()?;
                let level = if news.is_up() { Level::Info } else { Level::Warn };
                (level, "mount", format!("{}: {news}", remote.name()))
            }
        };
        Some(News { level, target, text })
    }

    /// Prepares for the shutdown: requests that would wait indefinitely are ended.
    pub(crate) fn drain(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self {
            MountedTree::Replica(replica) => replica.drain(now, out),
            MountedTree::Relay(relay) => pass(relay, now, relay::Input::Drain, out),
            MountedTree::Host(..)
            | MountedTree::Service(_)
            | MountedTree::Skeleton(_)
            | MountedTree::Volume(_)
            | MountedTree::Remote(_)
            | MountedTree::Storelets(_) => {}
        }
    }

    /// Makes everything durable at the end of the node.
    pub(crate) fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self {
            MountedTree::Host(..) | MountedTree::Service(_) | MountedTree::Skeleton(_) => {}
            MountedTree::Volume(volume) => volume.close(now, out),
            MountedTree::Remote(remote) => remote.close(now, out),
            MountedTree::Storelets(storelets) => storelets.close(now, out),
            MountedTree::Replica(replica) => replica.close(now, out),
            MountedTree::Relay(relay) => pass(relay, now, relay::Input::Finish, out),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            MountedTree::Host(..) | MountedTree::Service(_) | MountedTree::Skeleton(_) => true,
            MountedTree::Volume(volume) => volume.is_closed().is_some(),
            MountedTree::Remote(remote) => remote.is_closed(),
            MountedTree::Storelets(storelets) => storelets.is_closed(),
            MountedTree::Replica(replica) => replica.is_closed(),
            MountedTree::Relay(relay) => relay.is_closed(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match self {
            MountedTree::Host(host, _) => {
                let counts = host.counts();
                Counts {
                    nodes: counts.nodes,
                    opens: counts.opens,
                    locks: counts.locks,
                    pending: counts.pending,
                    ..Counts::default()
                }
            }
            MountedTree::Volume(volume) => {
                let counts = volume.counts();
                Counts {
                    nodes: counts.nodes,
                    opens: counts.opens,
                    locks: counts.locks,
                    pending: counts.pending,
                    volume: Some((volume.store().space(), volume.store().counts(), counts.reaper)),
                    quotas: Some((counts.counting, volume.quotas())),
                    ..Counts::default()
                }
            }
            MountedTree::Service(service) => Counts { opens: service.opens(), ..Counts::default() },
            MountedTree::Skeleton(skeleton) => {
                Counts { opens: skeleton.opens(), ..Counts::default() }
            }
            MountedTree::Replica(replica) => Counts {
                held: Some((replica.held(), replica.held_max())),
                opens: replica.opens(),
                ..Counts::default()
            },
            MountedTree::Relay(relay) => Counts {
                opens: relay.opens(),
                pending: [("replica", relay.pending())].into_iter().filter(|it| it.1 > 0).collect(),
                ..Counts::default()
            },
            MountedTree::Storelets(storelets) => Counts {
                opens: storelets.opens(),
                domains: storelets.states(),
                memory: Some(storelets.memory()),
                ..Counts::default()
            },
            MountedTree::Remote(remote) => {
                let counts = remote.counts();
                Counts {
                    nodes: counts.nodes,
                    opens: counts.opens,
                    pending: counts.pending,
                    link: Some(counts.link),
                    ..Counts::default()
                }
            }
        }
    }
}

/// Steps a stand-in; its outputs leave as messages to the other node.
pub(crate) fn pass(relay: &mut Relay, now: Instant, input: relay::Input, out: &mut Vec<Output>) {
    let (mut asked, mut posts) = (Vec::new(), Vec::new());
    relay.step(now, input, &mut asked);
    let (node, tree) = (relay.node(), relay.root().tree());
    let mut post = |node_message| messages::post(node, node_message, &mut posts);
    for output in asked {
        match output {
            relay::Output::Forward(input) => post(NodeMessage::Forward(tree, input)),
            relay::Output::Drain => post(NodeMessage::DrainTree(tree)),
            relay::Output::Finish => post(NodeMessage::CloseTree(tree)),
            relay::Output::Reply(id, reply) => out.push(Output::Reply(id, reply)),
        }
    }
    out.extend(posts.into_iter().map(Output::Do));
}

impl Automaton for MountedTree {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match self {
            MountedTree::Host(host, _) => host.step(now, input, out),
            MountedTree::Volume(volume) => volume.step(now, input, out),
            MountedTree::Service(service) => service.step(now, input, out),
            MountedTree::Skeleton(skeleton) => skeleton.step(now, input, out),
            MountedTree::Remote(remote) => remote.step(now, input, out),
            MountedTree::Storelets(storelets) => storelets.step(now, input, out),
            MountedTree::Replica(replica) => replica.step(now, input, out),
            MountedTree::Relay(relay) => match input {
                Input::Ask(id, request) => pass(relay, now, relay::Input::Ask(id, request), out),
                Input::Cancel(id) => pass(relay, now, relay::Input::Cancel(id), out),
                // Nodes of a replica's tree are plain numbers: nothing to release.
                Input::Release(_) => {}
                Input::Close(open) => pass(relay, now, relay::Input::Close(open), out),
                Input::Abandon(open) => pass(relay, now, relay::Input::Abandon(open), out),
                Input::Done(..) | Input::Rendered(..) | Input::Commanded(..) => {
                    unreachable!("a stand-in asks nothing of this node")
                }
            },
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            MountedTree::Host(host, _) => host.deadline(),
            MountedTree::Volume(volume) => volume.deadline(),
            MountedTree::Service(service) => service.deadline(),
            MountedTree::Skeleton(skeleton) => skeleton.deadline(),
            MountedTree::Remote(remote) => remote.deadline(),
            MountedTree::Storelets(storelets) => storelets.deadline(),
            MountedTree::Replica(replica) => replica.deadline(),
            MountedTree::Relay(relay) => relay.deadline(),
        }
    }

    fn check(&self) {
        match self {
            MountedTree::Host(host, _) => host.check(),
            MountedTree::Volume(volume) => volume.check(),
            MountedTree::Service(service) => service.check(),
            MountedTree::Skeleton(skeleton) => skeleton.check(),
            MountedTree::Remote(remote) => remote.check(),
            MountedTree::Storelets(storelets) => storelets.check(),
            MountedTree::Replica(replica) => replica.check(),
            MountedTree::Relay(relay) => relay.check(),
        }
    }
}
