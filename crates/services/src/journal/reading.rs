//! What a volume keeps of a replica, as it is read.

use super::{Chore, HEAD_KEY, Head, LAST, PARTS, RECORDS, SETTINGS, SETTINGS_KEY, part_key};
use crate::settings::Settings;
use crate::{Operator, Snapshot};
use replica::binary;
use replica::service::{Record, ReplicaId, Standing};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Missing, Reader, Store, View};

/// What a volume keeps of a replica.
#[derive(Debug)]
pub struct Kept {
    /// Who it is.
    pub settings: Settings,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) records: Vec<Record<Operator>>,
    pub(super) head: Head,
    /// The number of the part behind the last whole record.
    pub(super) next: u64,
    pub(super) size: usize,
    pub(super) grown: usize,
    /// What takes away that no head needs.
    pub(super) stale: Vec<Chore>,
}

impl Kept {
    fn standing(&self) -> Option<&Standing> {
        let mut standings = self.records.iter().filter_map(|record| record.standing.as_ref());
        let first = self.snapshot.as_ref().map(|snapshot| &snapshot.standing);
        standings.next_back().or(first)
    }

    /// Whether a replica was a member, and is none any more.
    pub fn is_retired(&self, id: ReplicaId) -> bool {
        self.standing().is_some_and(|standing| standing.membership.retired.contains_key(&id))
    }

    /// The members as it knows them, and those that are to come, each with where it is.
    pub fn members(&self) -> BTreeMap<ReplicaId, String> {
        match self.standing() {
            None => self.settings.members.clone(),
            Some(standing) => {
                let coming = standing.change.iter().flat_map(|change| change.members.clone());
                standing.membership.members.clone().into_iter().chain(coming).collect()
            }
        }
    }
}

/// Why a volume keeps no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It has something else in it.
    NotAReplica,
    /// What is in it makes no sense: damaged, or of a newer version.
    Damaged,
    /// It could not be read, and why.
    Disk(store::Error),
}

/// What was read of a volume so far: it goes on where pages were missing.
#[derive(Debug, Default)]
pub(super) struct Reading {
    begun: Option<(Settings, Head)>,
    stale: Option<Vec<Chore>>,
    /// The snapshot, as far as it was read, and of how many parts that is.
    snapshot: Vec<u8>,
    parts: u64,
    records: Records,
}

impl Reading {
    /// Reads on, to the end of all that a volume keeps of a replica.
    ///
    /// # Errors
    /// Outer: what has to be fetched first. Inner: why there is no replica.
    pub(super) fn go_on(
        &mut self,
        reader: &Reader<'_>,
    ) -> Result<Result<Kept, Unreadable>, Missing> {
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
                Ok(Ok(Kept { settings, snapshot, records, head, next, size, grown, stale }))
            }
            (Ok(_) | Err(_), _) => Ok(Err(Unreadable::Damaged)),
        }
    }
}

/// What stands in front of everything.
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

/// What takes away that a crash left and no head needs: parts of a snapshot that did not come to
/// count, parts and records that one has replaced. Their keys say so; they are not read.
fn stale(reader: &Reader<'_>, head: &Head) -> Result<Vec<Chore>, Missing> {
    let mut stale = Vec::new();
    reader.keys(RECORDS, &mut |key| {
        let first = key.try_into().map_or(head.first, u64::from_be_bytes);
        if first < head.first {
            stale.push(Chore::DeleteRecords(first..head.first));
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
            Some(Chore::DeleteParts(of, parts)) if *of == generation && parts.end == part => {
                parts.end += 1;
            }
            Some(_) | None if counts => {}
            Some(_) | None => stale.push(Chore::DeleteParts(generation, part..part + 1)),
        }
        ControlFlow::Continue(())
    })?;
    Ok(stale)
}

/// Records, as they are read.
#[derive(Debug, Default)]
struct Records {
    /// The number of the next part.
    at: u64,
    /// The number of the part behind the last whole record.
    next: u64,
    /// Parts of one that is not whole yet.
    part: Vec<u8>,
    records: Vec<Record<Operator>>,
    size: usize,
    damaged: bool,
}

impl Records {
    /// Takes the next part; `None`: it is not what it should be.
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

/// Reads everything that a store keeps of a replica, with whoever brings pages.
///
/// # Errors
/// Why there is no replica.
pub fn read_all(
    store: &mut Store,
    fetch: &mut dyn FnMut(&mut Store, Missing) -> Result<(), store::Error>,
) -> Result<Kept, Unreadable> {
    let mut reading = Reading::default();
    loop {
        let reader = store.reader(View::Present).expect("the present is always there");
        match reading.go_on(&reader) {
            Ok(result) => return result,
            Err(missing) => fetch(store, missing).map_err(Unreadable::Disk)?,
        }
    }
}
