//! A pending request, waiting for the completion of its one operation.

use super::Host;
use crate::entry_queue::Ticket;
use crate::request::{Id, Output, Reply, RequestId};
use base::op::{ClientKey, Done, PathDone};
use base::{Error, Kind};

/// A pending request.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: RequestId,
    /// The client that its handles are accounted to.
    pub(super) client: ClientKey,
    pub(super) awaits: Awaits,
    /// Handles that must stay open until the completion.
    pub(super) pins: [Option<Id>; 2],
    /// Its ticket in the queues of the entries that it changes.
    pub(super) ticket: Option<Ticket>,
}

/// Awaited completion of a pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Attributes of the files walked, and a handle.
    Walk,
    /// Attributes, first bytes, and perhaps the open file.
    Fetch,
    /// An open file.
    Open,
    /// An open new file and its handle.
    Create,
    /// Bytes of a file.
    Read,
    /// Number of bytes written.
    Write,
    /// Durability of a file.
    Sync,
    /// Removal of a name, perhaps the last of its file.
    Remove,
    /// Result of any other path operation.
    Path,
}

impl Awaits {
    pub(super) fn name(self) -> &'static str {
        match self {
            Awaits::Walk => "walk",
            Awaits::Fetch => "fetch",
            Awaits::Open => "open",
            Awaits::Create => "create",
            Awaits::Read => "read",
            Awaits::Write => "write",
            Awaits::Sync => "sync",
            Awaits::Remove => "remove",
            Awaits::Path => "path",
        }
    }
}

impl Pending {
    pub(super) fn pins(&self) -> impl Iterator<Item = Id> + use<> {
        self.pins.into_iter().flatten()
    }
}

/// Converts a completion to the reply; registers its handles as nodes and open files.
pub(super) fn finish(
    host: &mut Host,
    pending: &Pending,
    done: Done,
    out: &mut Vec<Output>,
) -> Result<Reply, Error> {
    match (pending.awaits, done) {
        (Awaits::Read, Done::Read(result)) => result.map(Reply::Data),
        (Awaits::Write, Done::Written(result)) => result.map(Reply::Written),
        (Awaits::Sync, Done::Synced(result)) => result.map(|()| Reply::Done),
        (
            Awaits::Walk
            | Awaits::Fetch
            | Awaits::Open
            | Awaits::Create
            | Awaits::Remove
            | Awaits::Path,
            Done::Path(result),
        ) => result.and_then(|done| finish_path(host, pending.client, done, out)),
        // The reactor completes every operation with its own variant.
        (awaits, done) => unreachable!("{done:?} for {awaits:?}"),
    }
}

fn finish_path(
    host: &mut Host,
    client: ClientKey,
    done: PathDone,
    out: &mut Vec<Output>,
) -> Result<Reply, Error> {
    Ok(match done {
        PathDone::Ok => Reply::Done,
        PathDone::Walked(stats, Ok(file)) => {
            let last = stats.last().expect("a walk that arrived passed a file");
            let node = host.arrive(client, file, last, out);
            Reply::Walked(stats, Some(node))
        }
        PathDone::Walked(stats, Err(error)) if stats.is_empty() => return Err(error),
        PathDone::Walked(stats, Err(_)) => Reply::Walked(stats, None),
        PathDone::Fetched(stat, data, file) => {
            assert!(file.is_some() || stat.kind == Kind::File);
            let open = file.map(|file| host.add_open(client, file, &stat));
            Reply::Fetched(stat, data, open)
        }
        PathDone::Unexpected(present) => Reply::Unexpected(present),
        PathDone::Stat(stat) => Reply::Stat(stat),
        PathDone::Handle(handle) => Reply::FileHandle(handle),
        PathDone::Opened(file, stat) => Reply::Opened(host.add_open(client, file, &stat), stat),
        PathDone::Created(file, handle, stat) => {
            let open = host.add_open(client, file, &stat);
            Reply::Created(host.add_node(client, handle, &stat), open, stat)
        }
        PathDone::Bytes(bytes) => Reply::Bytes(bytes),
        PathDone::Entries(entries) => Reply::Entries(entries),
        PathDone::Listings(listings, cpu_ns) => Reply::Listings(listings, cpu_ns),
        PathDone::Contents(contents, cpu_ns) => Reply::Contents(contents, cpu_ns),
        PathDone::StatFs(stat) => Reply::StatFs(stat),
        PathDone::User(user) => Reply::User(user),
        PathDone::Root(..) | PathDone::Volume(..) | PathDone::Addresses(_) => {
            unreachable!("a tree mounts nothing: {done:?}")
        }
    })
}
