//! The tree that a node serves: a directory of the host, or a volume.

use super::{Config, MAIN, Served};
use base::{Automaton, Instant};
use tree::host::Host;
use tree::volume::Volume;
use tree::{Input, NodeId, Output};

/// The tree.
#[derive(Debug)]
pub(crate) enum Main {
    /// A directory, and the device that it is on.
    Host(Box<Host>, u64),
    Volume(Box<Volume>),
}

/// How much of everything a tree has, whichever it is.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) nodes: usize,
    pub(crate) opens: usize,
    pub(crate) locks: (usize, usize),
    pub(crate) errands: Vec<(&'static str, usize)>,
    /// Of a volume: its store, and its reaper with how many inodes wait for that.
    pub(crate) volume: Option<(store::Counts, (&'static str, usize))>,
}

impl Main {
    pub(crate) fn new(served: Served, config: &Config) -> Main {
        match served {
            Served::Directory { root, stat, .. } => {
                let host = Host::new(MAIN, root, &stat, config.read_only);
                Main::Host(Box::new(host), stat.device)
            }
            Served::Volume { file, store, said, .. } => {
                let mut volume = Volume::new(MAIN, file, *store, config.wall, config.read_only);
                let mut out = Vec::new();
                volume.begin(Instant(0), said, &mut out);
                assert!(out.is_empty(), "the store was opened before it was given to the node");
                Main::Volume(Box::new(volume))
            }
        }
    }

    pub(crate) fn root(&self) -> NodeId {
        match self {
            Main::Host(host, _) => host.root(),
            Main::Volume(volume) => volume.root(),
        }
    }

    /// The number of the device that its files say they are on.
    pub(crate) fn device(&self) -> u64 {
        match self {
            Main::Host(_, device) => *device,
            Main::Volume(volume) => volume.device(),
        }
    }

    pub(crate) fn volume(&self) -> Option<&Volume> {
        match self {
            Main::Host(..) => None,
            Main::Volume(volume) => Some(volume),
        }
    }

    /// The directory of snapshots, if it has one.
    pub(crate) fn snapshots(&self) -> Option<NodeId> {
        self.volume().map(Volume::snapshots_root)
    }

    /// How many nodes and open files there may be if there are files of the process for so many.
    pub(crate) fn handles_max(&self, files: usize) -> usize {
        match self {
            Main::Host(..) => files.min(tree::host::HANDLES_MAX),
            // Its files are not files of the process.
            Main::Volume(_) => tree::volume::HANDLES_MAX,
        }
    }

    pub(crate) fn set_handles_max(&mut self, most: usize) {
        match self {
            Main::Host(host, _) => host.set_handles_max(most),
            Main::Volume(volume) => volume.set_handles_max(most),
        }
    }

    /// Does what is due at the end of a turn.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self {
            Main::Host(..) => {}
            Main::Volume(volume) => volume.tick(now, out),
        }
    }

    /// Makes everything durable, for the end of the node.
    pub(crate) fn close(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self {
            Main::Host(..) => {}
            Main::Volume(volume) => volume.close(now, out),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Main::Host(..) => true,
            Main::Volume(volume) => volume.is_closed().is_some(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match self {
            Main::Host(host, _) => {
                let counts = host.counts();
                Counts {
                    nodes: counts.nodes,
                    opens: counts.opens,
                    locks: counts.locks,
                    errands: counts.errands,
                    volume: None,
                }
            }
            Main::Volume(volume) => {
                let counts = volume.counts();
                Counts {
                    nodes: counts.nodes,
                    opens: counts.opens,
                    locks: counts.locks,
                    errands: counts.errands,
                    volume: Some((volume.store().counts(), counts.reaper)),
                }
            }
        }
    }
}

impl Automaton for Main {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match self {
            Main::Host(host, _) => host.step(now, input, out),
            Main::Volume(volume) => volume.step(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Main::Host(host, _) => host.deadline(),
            Main::Volume(volume) => volume.deadline(),
        }
    }

    fn check(&self) {
        match self {
            Main::Host(host, _) => host.check(),
            Main::Volume(volume) => volume.check(),
        }
    }
}
