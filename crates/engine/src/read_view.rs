//! The read view and the writes of one call.
//!
//! A call is a plan: straight-line code that reads, and records its writes. Where it needs a lock
//! held by another owner, or a page that is not in memory, it stops, and is made again from the
//! start when it can continue. It keeps its locks; its writes count only if it completes.

mod scanning;

use super::request::{Failure, Scan};
use super::writes::Writes;
use super::{ANSWER_MAX, Sequences};
use crate::locks::{Locks, Mode, Outcome, Owner, Refused, Span};
use store::keys::{after_table, full_key};
use store::{Change, Error, Missing, Piece, Reader, Table};

/// Reason why a call stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This must be fetched first.
    Missing(Missing),
    /// Another owner holds a lock that it needs.
    Blocked,
    /// Record numbers of this table must be reserved first, from this one on.
    Reserve(Table, u64),
    /// The call fails.
    Failed(Failure),
}

impl From<Missing> for Stop {
    fn from(missing: Missing) -> Stop {
        Stop::Missing(missing)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(Failure::Store(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// Locking of a call.
#[derive(Debug)]
pub(crate) enum Guard<'a> {
    /// None: the state is immutable, and nothing is written.
    Snapshot,
    /// None: all reads and writes happen at one moment; only writes of locked keys must wait.
    Moment(&'a Locks),
    /// All keys read and written are locked.
    Lock(&'a mut Locks, Owner),
    /// All keys read are locked, and nothing is written.
    LockShared(&'a mut Locks, Owner),
}

/// The read view and the writes of one call.
#[derive(Debug)]
pub(crate) struct ReadView<'a> {
    reader: Reader<'a>,
    guard: Guard<'a>,
    /// Earlier writes of its transaction.
    written: &'a Writes,
    /// Its own writes.
    write_set: Writes,
    sequences: &'a mut Sequences,
}

impl<'a> ReadView<'a> {
    pub(crate) fn new(
        reader: Reader<'a>,
        guard: Guard<'a>,
        written: &'a Writes,
        sequences: &'a mut Sequences,
    ) -> ReadView<'a> {
        ReadView { reader, guard, written, write_set: Writes::default(), sequences }
    }

    /// Returns the writes of the call.
    pub(crate) fn into_write_set(self) -> Writes {
        self.write_set
    }

    /// Returns whether this call may write.
    pub(crate) fn is_writable(&self) -> bool {
        matches!(self.guard, Guard::Moment(_) | Guard::Lock(..))
    }

    /// Returns the value of a key.
    pub(crate) fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        self.lock(Mode::Shared, || Span::key(table, key))?;
        self.look(table, key)
    }

    /// Returns the value of a key to be written.
    pub(crate) fn get_for_update(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Stop> {
        self.lock(Mode::Exclusive, || Span::key(table, key))?;
        self.look(table, key)
    }

    /// Locks a whole table against other users.
    pub(crate) fn lock_table(&mut self, table: Table) -> Result<(), Stop> {
        self.lock(Mode::Exclusive, || Span::range(table, b"", None))
    }

    fn look(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        if !self.written.has_no_keys() || !self.write_set.has_no_keys() {
            let full = full_key(table, key);
            if let Some(own) = self.write_set.get(&full).or_else(|| self.written.get(&full)) {
                return Ok(own.map(<[u8]>::to_vec));
            }
        }
        Ok(self.reader.get(table, key)?.map(|value| value.bytes().into_owned()))
    }

    /// Sets the value of a key.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>) -> Result<(), Stop> {
        let layout = self.reader.layout();
        if key.len() > layout.key_max() || value.len() > layout.value_max() {
            return Err(Error::TooLarge.into());
        }
        self.lock(Mode::Exclusive, || Span::key(table, key))?;
        self.write_set.put(full_key(table, key), Some(value));
        self.expect_room()
    }

    /// Deletes a key.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Stop> {
        if key.len() > self.reader.layout().key_max() {
            return Err(Error::TooLarge.into());
        }
        self.lock(Mode::Exclusive, || Span::key(table, key))?;
        self.write_set.put(full_key(table, key), None);
        self.expect_room()
    }

    /// Reads bytes of a raw object.
    pub(crate) fn raw_read(
        &mut self,
        table: Table,
        object: u64,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, Stop> {
        let end = offset.checked_add(count as u64).filter(|_| count <= ANSWER_MAX);
        let end = end.ok_or(Failure::Invalid)?;
        self.lock(Mode::Shared, || raw_span(table, object, offset, end))?;
        let mut bytes = Vec::with_capacity(count);
        for piece in self.reader.read(table, object, offset, count)? {
            match piece {
                Piece::Data(block, range) => bytes.extend_from_slice(&block[range]),
                Piece::Inline(inline) => bytes.extend_from_slice(&inline),
                Piece::Hole(zeros) => bytes.resize(bytes.len() + zeros, 0),
            }
        }
        for change in self.written.raw().iter().chain(self.write_set.raw()) {
            overlay(change, (table, object), offset, &mut bytes);
        }
        Ok(bytes)
    }

    /// Writes bytes of a raw object.
    pub(crate) fn raw_write(
        &mut self,
        table: Table,
        object: u64,
        offset: u64,
        data: Vec<u8>,
    ) -> Result<(), Stop> {
        let end = offset.checked_add(data.len() as u64).ok_or(Failure::Invalid)?;
        self.lock(Mode::Exclusive, || raw_span(table, object, offset, end))?;
        self.write_set.push_raw(Change::Write { table, object, offset, data });
        self.expect_room()
    }

    /// Punches a hole in a raw object.
    pub(crate) fn raw_cut(
        &mut self,
        table: Table,
        object: u64,
        from: u64,
        to: u64,
    ) -> Result<(), Stop> {
        self.lock(Mode::Exclusive, || raw_span(table, object, from, to))?;
        self.write_set.push_raw(Change::Cut { table, object, from, to });
        self.expect_room()
    }

    /// Returns a record number that is unique in this table for ever.
    pub(crate) fn next_id(&mut self, table: Table) -> Result<u64, Stop> {
        if !self.is_writable() {
            return Err(Error::ReadOnly.into());
        }
        match self.sequences.get_mut(&table).and_then(Iterator::next) {
            Some(id) => Ok(id),
            None => {
                let reserved = self.reader.get(table, b"")?.map(|value| value.bytes().into_owned());
                let from = reserved.map(|bytes| id_from(&bytes)).transpose()?;
                Err(Stop::Reserve(table, from.unwrap_or(1)))
            }
        }
    }

    fn lock(&mut self, mode: Mode, span: impl FnOnce() -> Span) -> Result<(), Stop> {
        match (&mut self.guard, mode) {
            (Guard::Snapshot, Mode::Shared) | (Guard::Moment(_), Mode::Shared) => Ok(()),
            (Guard::Snapshot | Guard::LockShared(..), Mode::Exclusive) => {
                Err(Error::ReadOnly.into())
            }
            (Guard::Moment(locks), Mode::Exclusive) => {
                let free = locks.is_empty() || locks.is_free(&span(), mode);
                if free { Ok(()) } else { Err(Stop::Blocked) }
            }
            (Guard::Lock(locks, owner), Mode::Shared | Mode::Exclusive)
            | (Guard::LockShared(locks, owner), Mode::Shared) => {
                match locks.request(*owner, span(), mode) {
                    Ok(Outcome::Granted) => Ok(()),
                    Ok(Outcome::Waits) => Err(Stop::Blocked),
                    Err(Refused::WouldDeadlock) => Err(Error::WouldDeadlock.into()),
                    Err(Refused::Full) => Err(Failure::Busy.into()),
                }
            }
        }
    }

    fn expect_room(&self) -> Result<(), Stop> {
        let bytes = self.written.bytes() + self.write_set.bytes();
        let fits = bytes <= self.reader.layout().transaction_max();
        if fits { Ok(()) } else { Err(Error::TooLarge.into()) }
    }
}

/// Decodes a record number.
pub(crate) fn id_from(bytes: &[u8]) -> Result<u64, Error> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| Error::Damaged)
}

/// Returns the ends of a scan as keys with their table in front.
fn ends(scan: &Scan) -> (Vec<u8>, Vec<u8>) {
    let to = match &scan.to {
        Some(to) => full_key(scan.table, to),
        None => after_table(scan.table),
    };
    (full_key(scan.table, &scan.from), to)
}

/// Returns a range of bytes of a raw object as a range of virtual keys, one for each byte.
fn raw_span(table: Table, object: u64, from: u64, to: u64) -> Span {
    let key = |at: u64| [object.to_be_bytes(), at.to_be_bytes()].concat();
    let mut end = key(to);
    if to == u64::MAX {
        end.push(0xff);
    }
    Span::range(table, &key(from), Some(&end))
}

/// Overlays bytes read at an offset with a later change of the transaction.
fn overlay(change: &Change, (table, object): (Table, u64), offset: u64, bytes: &mut [u8]) {
    let end = offset + bytes.len() as u64;
    let (of, from, to, data) = match change {
        Change::Write { table, object, offset, data } => {
            ((*table, *object), *offset, offset.saturating_add(data.len() as u64), Some(data))
        }
        Change::Cut { table, object, from, to } => ((*table, *object), *from, *to, None),
        Change::Put { .. }
        | Change::Delete { .. }
        | Change::Attach { .. }
        | Change::Free { .. } => {
            return;
        }
    };
    let (start, stop) = (from.max(offset), to.min(end));
    if of != (table, object) || start >= stop {
        return;
    }
    let target = &mut bytes[(start - offset) as usize..(stop - offset) as usize];
    match data {
        Some(data) => {
            target.copy_from_slice(&data[(start - from) as usize..(stop - from) as usize])
        }
        None => target.fill(0),
    }
}
