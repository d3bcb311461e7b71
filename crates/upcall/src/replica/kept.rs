//! Opening of a replica's volume, to serve it.

use crate::clock;
use crate::output::quoted;
use crate::place;
use crate::volume::file::{self, FileDisk, How};
use base::Time;
use base::op::Address;
use node::Replicated;
use reactor::World;
use replica::service::ReplicaId;
use services::{Limits, Options, StoredReplica, Unreadable};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use store::drive::{self, Disk};
use store::{Missing, Output, Store, Ticket};

/// Memory for the cached blocks of a replica's volume, bytes.
const CACHE: usize = 64 << 20;

/// A replica read from its volume.
pub(crate) struct Opened {
    disk: FileDisk,
    store: Store,
    kept: StoredReplica,
    addresses: BTreeMap<ReplicaId, Vec<Address>>,
}

/// A replica's volume, and its contents.
pub(super) struct Read {
    pub(super) path: PathBuf,
    pub(super) disk: FileDisk,
    pub(super) store: Store,
    pub(super) kept: StoredReplica,
}

/// Opens a replica's volume and reads its contents.
///
/// # Errors
/// The cause, and the next step.
pub(super) fn read(path: &Path) -> Result<Read, String> {
    if std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(format!(
            "{} does not exist; 'upcall replica init' creates the replicas of a new service, \
             'upcall replica join' adds one to an existing service",
            path.display()
        ));
    }
    let how = How { memory: CACHE, if_served: "end that server first", ..How::WRITE };
    let file::Opened { mut disk, mut store } = file::open(path, &how)?;
    let clock = clock::Clock::start();
    let mut fetch = |store: &mut Store, missing| fetch(store, &mut disk, &clock, missing);
    let kept = services::read_all(&mut store, &mut fetch).map_err(|why| explain(path, why))?;
    Ok(Read { path: path.to_path_buf(), disk, store, kept })
}

/// Returns the reason why a file has no replica, and the next step.
pub(super) fn explain(path: &Path, why: Unreadable) -> String {
    let shown = path.display();
    match why {
        Unreadable::NotAReplica => format!(
            "{shown} is a volume, but no replica: serve it as it is, or make replicas with \
             'upcall replica init'"
        ),
        Unreadable::Damaged => format!(
            "cannot read the replica in {shown}: it is damaged, or written by another version of \
             upcall; run 'upcall volume check {}'",
            quoted(path)
        ),
        Unreadable::Disk(error) => file::explain(path, error),
    }
}

/// Opens a replica to serve it.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn open(path: &Path) -> Result<Opened, String> {
    let Read { disk, store, kept, .. } = read(path)?;
    let members = kept.members();
    let others = members.iter().filter(|(id, _)| **id != kept.settings.me);
    // An unresolvable address does not prevent serving.
    let found = others.filter_map(|(id, address)| match addresses(address) {
        Ok(found) => Some((*id, found)),
        Err(error) => {
            err_line!("upcall: replica {} is not reached before the next start: {error}", id.0);
            None
        }
    });
    let addresses = found.collect();
    Ok(Opened { disk, store, kept, addresses })
}

impl Opened {
    /// Returns the name of its service.
    pub(crate) fn service(&self) -> &str {
        &self.kept.settings.service
    }

    /// Sets another address for a peer, given as `NAME.ID=ADDR`; returns whether it concerns this
    /// service.
    pub(crate) fn reach(&mut self, reply: &str) -> Result<bool, String> {
        let parts = reply.split_once('=').and_then(|(who, address)| {
            let (service, id) = who.rsplit_once('.')?;
            Some((service, ReplicaId(id.parse().ok()?), address))
        });
        let Some((service, id, address)) = parts else { return Ok(false) };
        match self.addresses.get_mut(&id).filter(|_| service == self.kept.settings.service) {
            Some(known) => {
                *known = addresses(address)?;
                Ok(true)
            }
            // A former member: the option may be older than its removal.
            None => Ok(service == self.kept.settings.service && self.kept.is_retired(id)),
        }
    }

    /// Describes it in one line.
    pub(crate) fn line(&self) -> String {
        let (settings, members) = (&self.kept.settings, self.kept.members());
        let count = members.len();
        format!(
            "/{}/{}, a {}: replica {} of {count}",
            services::PLACE,
            settings.service,
            settings.kind,
            settings.me.0
        )
    }

    /// Passes it to the world in which it is served, whose clock was zero at `wall`; its files have
    /// the timestamp `date`, and `limits` are its limits.
    pub(crate) fn adopt(
        self,
        world: &mut World,
        (wall, date): (Time, Time),
        limits: Limits,
    ) -> Result<Replicated, String> {
        let Opened { disk, store, kept, addresses } = self;
        let file = world.adopt_volume(disk.file);
        let seed = clock::random_bytes().map_err(|error| format!("no random number: {error}"))?;
        let owner = reactor::own_user();
        let options = Options { wall, date, owner, seed, addresses, limits };
        Ok(Replicated { file, store: Box::new(store), kept, options })
    }
}

/// Fetches missing pages.
pub(super) fn fetch(
    store: &mut Store,
    disk: &mut impl Disk,
    clock: &clock::Clock,
    missing: Missing,
) -> Result<(), store::Error> {
    let mut reply = Vec::new();
    store.fetch(clock.now(), Ticket(0), missing, &mut reply);
    while let Some(output) = reply.pop() {
        match output {
            Output::Io(io) => {
                let (id, done) = drive::perform(disk, &io);
                store.done(clock.now(), id, done, &mut reply);
            }
            Output::Fetched(_, result) => return result,
            other @ (Output::Opened(_)
            | Output::Committed(..)
            | Output::Placed(..)
            | Output::Closed(..)) => unreachable!("{other:?} was not asked for"),
        }
    }
    Ok(())
}

/// Resolves the address of a server: HOST:PORT, or unix:PATH.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn addresses(text: &str) -> Result<Vec<Address>, String> {
    match services::address(text) {
        Some(address) => Ok(vec![address]),
        None => place::resolve(text),
    }
}
