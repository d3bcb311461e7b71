//! Home's disk: operations take effect at one moment, complete a little later, and may fail.

use super::environment::{Environment, ScheduledEvent};
use crate::disk::Disk;
use crate::world::WALL;
use base::op::{Done, Event, File, Op, OpId};
use base::{Buf, Error, Time};
use node::HOME;
use std::collections::BTreeMap;

/// The disk, and its operations in flight.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) disk: Disk,
    pending: BTreeMap<OpId, (Op, Option<(base::Instant, u64)>)>,
    /// Number of operations in flight on each file.
    using: BTreeMap<File, u32>,
}

impl Files {
    pub(super) fn new(disk: Disk) -> Files {
        Files { disk, pending: BTreeMap::new(), using: BTreeMap::new() }
    }

    /// Begins an operation of home's.
    pub(super) fn submit(&mut self, env: &mut Environment, op: Op) {
        match op {
            Op::CloseFile { file, .. } => {
                assert!(!self.using.contains_key(&file), "{file:?} is closed while it is used");
                self.disk.close(file);
            }
            Op::Cancel { id } => self.cancel(env, id),
            Op::Read { id, .. } | Op::Write { id, .. } | Op::Sync { id, .. } => {
                self.begin(env, id, op);
            }
            Op::Path { id, .. } => self.begin(env, id, op),
            other => panic!("home asks for {other:?}"),
        }
    }

    fn begin(&mut self, env: &mut Environment, id: OpId, op: Op) {
        for file in used(&op) {
            assert!(self.disk.is_open(file), "{file:?} is not open: {op:?}");
            *self.using.entry(file).or_insert(0) += 1;
        }
        let at = env.within(env.params.disk_us);
        let key = env.schedule(at, ScheduledEvent::Apply(id));
        let before = self.pending.insert(id, (op, Some(key)));
        assert!(before.is_none(), "{id:?} is in flight already: {before:?}");
    }

    /// Cancels an operation, unless it is too late.
    fn cancel(&mut self, env: &mut Environment, id: OpId) {
        let lucky = env.rng.bool();
        let Some((op, key)) = self.pending.get_mut(&id) else { return };
        let Some(key) = key.take_if(|_| lucky) else { return };
        env.remove(key);
        let done = failed(op, Error::Cancelled);
        self.complete(env, id, done);
    }

    /// Makes an operation take effect.
    pub(super) fn apply(&mut self, env: &mut Environment, id: OpId) {
        let (op, key) = self.pending.get_mut(&id).expect("only operations in flight are applied");
        *key = None;
        let done = match env.one_in(env.params.disk_error) {
            true => {
                env.faults += 1;
                env.trace.line(format_args!("{} fault", env.now.0));
                failed(op, Error::Io)
            }
            false => perform(&mut self.disk, date(env), op),
        };
        self.complete(env, id, done);
    }

    fn complete(&mut self, env: &mut Environment, id: OpId, done: Done) {
        let (op, _) = self.pending.remove(&id).expect("it is in flight");
        for file in used(&op) {
            let count = self.using.get_mut(&file).expect("counted when it began");
            *count -= 1;
            if *count == 0 {
                self.using.remove(&file);
            }
        }
        // The disk has finished; home is notified a little later.
        let at = env.within(1);
        env.schedule(at, ScheduledEvent::Event(HOME, Event { id, done }));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

fn date(env: &Environment) -> Time {
    let secs = WALL.secs + (env.now.0 / 1_000_000_000).cast_signed();
    Time { secs, nanos: (env.now.0 % 1_000_000_000) as u32 }
}

fn used(op: &Op) -> Vec<File> {
    match op {
        Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file, .. } => vec![*file],
        Op::Path { op, .. } => op.files().collect(),
        _ => Vec::new(),
    }
}

fn failed(op: &Op, error: Error) -> Done {
    match op {
        Op::Read { .. } => Done::Read(Err(error)),
        Op::Write { .. } => Done::Written(Err(error)),
        Op::Sync { .. } => Done::Synced(Err(error)),
        _ => Done::Path(Err(error)),
    }
}

fn perform(disk: &mut Disk, now: Time, op: &Op) -> Done {
    match op {
        Op::Read { file, offset, count, headroom, .. } => {
            Done::Read(disk.read(*file, *offset, *count).map(|bytes| {
                let mut buf = Buf::with_room(*headroom as usize, bytes.len());
                buf.extend(&bytes);
                buf
            }))
        }
        Op::Write { file, offset, data, .. } => {
            Done::Written(disk.write(now, *file, *offset, data))
        }
        Op::Sync { .. } => Done::Synced(Ok(())),
        Op::Path { op, .. } => Done::Path(disk.perform(now, op)),
        other => unreachable!("{other:?} is not for the disk"),
    }
}
