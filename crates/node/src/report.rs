//! Statistics of a node, which home adds to its own.

use crate::stages::Stages;
use crate::traffic::Traffic;
use std::collections::BTreeMap;
use tree::volume::Limited;

/// Statistics of a node.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Automata by kind and state.
    pub(crate) machines: BTreeMap<(&'static str, &'static str), usize>,
    /// Every queue, with its name, length and limit; those of several volumes are summed.
    pub(crate) queues: Vec<(&'static str, usize, usize)>,
    pub(crate) stages: Stages,
    pub(crate) traffic: Traffic,
    /// Volumes, by the numbers of their trees.
    pub(crate) volumes: Vec<(usize, store::Space, store::Counts)>,
    /// Quotas, by the numbers of the trees of their volumes.
    pub(crate) quotas: Vec<(usize, Limited)>,
    pub(crate) replicas: Vec<services::Counts>,
    /// Mounted servers by name, with their connection state.
    pub(crate) servers: Vec<(String, bool)>,
    /// Number of connections closed to give memory or a place to others.
    pub(crate) ended: u64,
}

impl Report {
    /// Adds the report of another node.
    pub(crate) fn add(&mut self, front: Report) {
        for ((kind, state), n) in front.machines {
            self.count(kind, state, n);
        }
        front.queues.into_iter().for_each(|queue| self.add_queue(queue));
        self.stages.add(&front.stages);
        self.traffic.add(&front.traffic);
        self.volumes.extend(front.volumes);
        self.quotas.extend(front.quotas);
        self.replicas.extend(front.replicas);
        self.servers.extend(front.servers);
        self.ended += front.ended;
    }

    pub(crate) fn count(&mut self, kind: &'static str, state: &'static str, n: usize) {
        *self.machines.entry((kind, state)).or_insert(0) += n;
    }

    pub(crate) fn add_queue(&mut self, (name, length, limit): (&'static str, usize, usize)) {
        match self.queues.iter_mut().find(|(known, ..)| *known == name) {
            Some(known) => {
                (known.1, known.2) = (known.1 + length, known.2.saturating_add(limit));
            }
            None => self.queues.push((name, length, limit)),
        }
    }
}
