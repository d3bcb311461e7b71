//! Recovery of a replica's data from its volume.

use super::{
    BackgroundTask, HEAD_KEY, Head, LAST, PARTS, RECORDS, SETTINGS, SETTINGS_KEY, part_key,
};
use crate::settings::Settings;
use crate::{Operator, Snapshot};
use replica::binary;
use replica::service::{MembershipState, Record, ReplicaId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Missing, Reader, Store, View};

/// Data of a replica in its volume.
#[derive(Debug)]
pub struct StoredReplica {
    /// Identity of the replica.
    pub settings: Settings,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) records: Vec<Record<Operator>>,
    pub(super) head: Head,
    /// Number of the part after the last complete record.
    pub(super) next: u64,
    pub(super) size: usize,
    pub(super) grown: usize,
    /// Deletions of leftovers that the head does not need.
    pub(super) stale: Vec<BackgroundTask>,
}

impl StoredReplica {
    fn member_state(&self) -> Option<&MembershipState> {
        let mut member_states =
            self.records.iter().filter_map(|record| record.member_state.as_ref());
        let first = self.snapshot.as_ref().map(|snapshot| &snapshot.member_state);
        member_states.next_back().or(first)
    }

    /// Reports whether a replica is a former member.
    pub fn is_retired(&self, id: ReplicaId) -> bool {
        self.member_state()
            .is_some_and(|member_state| member_state.membership.retired.contains_key(&id))
    }

    /// Returns the current and the future members as known here, with their addresses.
    pub fn members(&self) -> BTreeMap<ReplicaId, String> {
        match self.member_state() {
            None => self.settings.members.clone(),
            Some(member_state) => {
                let coming = member_state.change.iter().flat_map(|change| change.members.clone());
                member_state.membership.members.clone().into_iter().chain(coming).collect()
            }
        }
    }
}

/// Reason why a volume has no readable replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The volume contains something else.
    NotAReplica,
    /// The contents are invalid: damaged, or of a newer version.
    Damaged,
    /// Read error.
    Disk(store::Error),
}

/// State of a recovery, which resumes after missing pages were fetched.
#[derive(Debug, Default)]
pub(super) struct Reading {
    begun: Option<(Settings, Head)>,
    stale: Option<Vec<BackgroundTask>>,
    /// Bytes of the snapshot read so far, and below its number of parts.
    snapshot: Vec<u8>,
    parts: u64,
    records: Records,
}

impl Reading {
    /// Continues to the end of the replica's data.
    ///
    /// # Errors
    /// Outer: the pages to fetch first. Inner: the reason why there is no replica.
    pub(super) fn go_on(
        &mut self,
        reader: &Reader<'_>,
    ) -> Result<Result<StoredReplica, Unreadable>, Missing> {
        if self.begun.is_none() {
            match begin(reader)? {
                Ok((settings, head)) => {
                    (self.records.at, self.records.next) = (head.first, head.first);
                    self.begun = Some((settings, head));
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        let (settings, head) = self.begun.clone().expect("it was begun");
        if self.stale.is_none() {
            self.stale = Some(stale(reader, &head)?);
        }
        let (bytes, parts) = (&mut self.snapshot, &mut self.parts);
        if head.generation > 0 && *parts < head.parts {
            reader.scan(PARTS, &part_key(head.generation, *parts), &mut |key, value| {
                if *parts == head.parts || key != part_key(head.generation, *parts) {
                    return ControlFlow::Break(());
                }
                bytes.extend_from_slice(&value.bytes());
                *parts += 1;
                ControlFlow::Continue(())
            })?;
        }
        let records = &mut self.records;
        reader.scan(RECORDS, &records.at.to_be_bytes(), &mut |key, value| match records
            .take(key, &value.bytes())
        {
            Some(()) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        })?;
        let Records { next, records, size: grown, damaged, .. } = std::mem::take(records);
        let (size, is_whole) = (self.snapshot.len(), self.parts == head.parts);
        let snapshot = (head.generation > 0).then(|| binary::read(&self.snapshot)).transpose();
        match (snapshot, damaged || !is_whole) {
            (Ok(snapshot), false) => {
                let stale = self.stale.take().expect("it was looked for");
                Ok(Ok(StoredReplica {
                    settings,
                    snapshot,
                    records,
                    head,
                    next,
                    size,
                    grown,
                    stale,
                }))
            }
            (Ok(_) | Err(_), _) => Ok(Err(Unreadable::Damaged)),
        }
    }
}

/// Reads the settings and the head.
fn begin(reader: &Reader<'_>) -> Result<Result<(Settings, Head), Unreadable>, Missing> {
    let settings = reader.get(SETTINGS, SETTINGS_KEY)?;
    let head = reader.get(SETTINGS, HEAD_KEY)?;
    let (Some(settings), Some(head)) = (settings, head) else {
        return Ok(Err(Unreadable::NotAReplica));
    };
    let settings: Result<Settings, _> = serde_json::from_slice(&settings.bytes());
    let head: Result<Head, _> = binary::read(&head.bytes());
    let known = settings.ok().filter(Settings::is_known).zip(head.ok());
    Ok(known.ok_or(Unreadable::Damaged))
}

/// Returns the deletions of a crash's leftovers: parts of incomplete snapshots, and parts and
/// records that were replaced. Only their keys are read.
fn stale(reader: &Reader<'_>, head: &Head) -> Result<Vec<BackgroundTask>, Missing> {
    let mut stale = Vec::new();
    reader.keys(RECORDS, &mut |key| {
        let first = key.try_into().map_or(head.first, u64::from_be_bytes);
        if first < head.first {
            stale.push(BackgroundTask::DeleteRecords(first..head.first));
        }
        ControlFlow::Break(())
    })?;
    reader.keys(PARTS, &mut |key| {
        let Ok(key) = key.try_into().map(u128::from_be_bytes) else {
            return ControlFlow::Continue(());
        };
        let (generation, part) = ((key >> 64) as u64, key as u64);
        let counts = generation == head.generation && part < head.parts;
        match stale.last_mut() {
            Some(BackgroundTask::DeleteParts(of, parts))
                if *of == generation && parts.end == part =>
            {
                parts.end += 1;
            }
            Some(_) | None if counts => {}
            Some(_) | None => stale.push(BackgroundTask::DeleteParts(generation, part..part + 1)),
        }
        ControlFlow::Continue(())
    })?;
    Ok(stale)
}

/// Reader of records.
#[derive(Debug, Default)]
struct Records {
    /// Number of the next part.
    at: u64,
    /// Number of the part after the last complete record.
    next: u64,
    /// Parts of an incomplete record.
    part: Vec<u8>,
    records: Vec<Record<Operator>>,
    size: usize,
    damaged: bool,
}

impl Records {
    /// Processes the next part; `None` if it is invalid.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        self.damaged = true;
        let (flag, bytes) = value.split_first()?;
        if key != self.at.to_be_bytes() {
            return None;
        }
        self.at += 1;
        self.part.extend_from_slice(bytes);
        self.size += bytes.len();
        if *flag == LAST {
            self.next = self.at;
            self.records.push(binary::read(&std::mem::take(&mut self.part)).ok()?);
        }
        self.damaged = false;
        Some(())
    }
}

/// Recovers all data of a replica from a store; `fetch` loads pages.
///
/// # Errors
/// The reason why there is no replica.
pub fn read_all(
    store: &mut Store,
    fetch: &mut dyn FnMut(&mut Store, Missing) -> Result<(), store::Error>,
) -> Result<StoredReplica, Unreadable> {
    let mut reading = Reading::default();
    loop {
        let reader = store.reader(View::Present).expect("the present is always there");
        match reading.go_on(&reader) {
            Ok(result) => return result,
            Err(missing) => fetch(store, missing).map_err(Unreadable::Disk)?,
        }
    }
}
