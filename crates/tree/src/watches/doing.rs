//! Requests of a watch of paths.

use crate::request::{NodeId, OpenId, Reply, StreamOutput as Output};
use base::{Error, Name, Stat};

/// A request in progress.
#[derive(Debug)]
pub(super) enum Activity {
    /// Walks; `own` is to be released afterwards.
    Walking { place: usize, own: Option<NodeId>, rest: Vec<Name> },
    /// Opens a node, which its place has already if it is listed `again`.
    Opening { place: usize, node: NodeId, again: bool },
    /// Gets the attributes of the directory of a file that is watched by its own path.
    Measuring { place: usize, node: NodeId },
    /// Lists: adds the entries, or notes them if they are new.
    Listing { place: usize, open: OpenId },
    /// Looks at the only entry that is watched, for the first time.
    LookingFirst { place: usize, name: Name },
    /// Looks at an entry; changes from number `since` on may be later than the reply.
    Looking { place: usize, name: Name, since: u64 },
}

/// Discards the reply to a request of a closed watch.
pub(super) fn discard(doing: Activity, result: Result<Reply, Error>, out: &mut Vec<Output>) {
    let (node, open) = result.map_or((None, None), |reply| reply.handed_out());
    out.extend(node.map(Output::Release));
    out.extend(open.map(Output::Close));
    match doing {
        Activity::Walking { own, .. } => out.extend(own.map(Output::Release)),
        Activity::LookingFirst { .. } | Activity::Looking { .. } => {}
        Activity::Measuring { node, .. } => out.push(Output::Release(node)),
        Activity::Opening { node, again, .. } => {
            out.extend((!again).then_some(Output::Release(node)));
        }
        Activity::Listing { open, .. } => out.push(Output::Close(open)),
    }
}

/// Returns the attributes of an entry that was looked at; `None` if its user cannot see it.
pub(super) fn seen(result: Result<Reply, Error>, out: &mut Vec<Output>) -> Option<Stat> {
    match result {
        Ok(Reply::Walked(mut stats, node)) => {
            out.extend(node.map(Output::Release));
            stats.pop()
        }
        Ok(reply) => unreachable!("{reply:?} for a walk"),
        Err(_) => None,
    }
}
