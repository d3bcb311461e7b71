//! Effects of disk operations, and their faults.

use super::Environment;
use crate::disk;
use base::op::{Done, Op, PathDone, PathOp};
use base::{Buf, Error, Stat};

impl Environment {
    /// Performs a disk operation, or a fault.
    pub(super) fn take_effect(&mut self, op: &Op, found: Option<Option<Stat>>) -> Done {
        if let Some(done) = self.volume_fault(op).or_else(|| self.volume_effect(op)) {
            return done;
        }
        match op {
            Op::Read { file, offset, count, headroom, .. } => {
                if self.chance(self.params.faults.read_error) {
                    return Done::Read(Err(self.inject(Error::Io)));
                }
                Done::Read(self.disk.read(*file, *offset, *count).map(|bytes| {
                    let mut buf = Buf::with_room(*headroom as usize, bytes.len());
                    buf.extend(&bytes);
                    buf
                }))
            }
            Op::Write { file, offset, data, .. } => {
                let now = self.date();
                let (part, error) = self.write_fault(data.len());
                let result = match part {
                    0 if error.is_some() => Ok(0),
                    part => self.disk.write(now, *file, *offset, &data[..part]),
                };
                Done::Written(match (result, error) {
                    (Ok(_), Some(error)) => Err(error),
                    (result, _) => result,
                })
            }
            Op::Sync { .. } => Done::Synced(match self.chance(self.params.faults.sync_error) {
                true => Err(self.inject(Error::Io)),
                false => Ok(()),
            }),
            Op::Path { op, .. } => Done::Path(self.path(op, found)),
            other => unreachable!("{other:?} is not for the disk"),
        }
    }

    /// Records an injected error.
    pub(super) fn inject(&mut self, error: Error) -> Error {
        self.totals.faults += 1;
        self.injected.push((self.now, error));
        self.trace.line(format_args!("{} fault {error:?}", self.now.0));
        error
    }

    /// Draws the number of bytes of a write that are performed, and the error.
    fn write_fault(&mut self, length: usize) -> (usize, Option<Error>) {
        let part = self.rng.usize(..=length);
        if self.chance(self.params.faults.write_error) {
            self.torn.push((self.now, part));
            return (part, Some(self.inject(Error::Io)));
        }
        if self.chance(self.params.faults.no_space) {
            let error = self.inject(Error::NoSpace);
            self.torn.push((self.now, part));
            // A disk that fills up accepts what fits, with a short count; afterwards it accepts
            // nothing.
            return if part > 0 { (part, None) } else { (0, Some(error)) };
        }
        if part > 0 && self.chance(self.params.faults.short_write) {
            self.inject(Error::NoSpace);
            self.torn.push((self.now, part));
            return (part, None);
        }
        (length, None)
    }

    /// Performs a path operation or a fault; `found` is the entry of a conditional change at its
    /// beginning.
    fn path(&mut self, op: &PathOp, found: Option<Option<Stat>>) -> Result<PathDone, Error> {
        let changes = disk::changes(op);
        if self.params.needs_names && matches!(op, PathOp::CreateUnnamed { .. }) {
            return Err(Error::Unsupported);
        }
        if self.chance(self.params.faults.path_error) {
            let error = if changes && self.rng.bool() { Error::NoSpace } else { Error::Io };
            let error = self.inject(error);
            return self.fail_path(op, error);
        }
        if self.chance(self.params.faults.too_many_open) {
            let error = self.inject(Error::TooManyOpen);
            return self.fail_path(op, error);
        }
        if changes && self.chance(self.params.faults.late_error) {
            let done = self.perform(op, found)?;
            self.disk.close_all(&done);
            return Err(self.inject(Error::Io));
        }
        self.perform(op, found)
    }

    fn perform(&mut self, op: &PathOp, found: Option<Option<Stat>>) -> Result<PathDone, Error> {
        let now = self.date();
        match found {
            Some(found) => self.disk.replace_checked(now, op, found),
            None => self.disk.perform(now, op),
        }
    }

    /// Fails before any effect; a walk may have passed some names.
    fn fail_path(&mut self, op: &PathOp, error: Error) -> Result<PathDone, Error> {
        let PathOp::Walk { root, from, names } = op else { return Err(error) };
        let part = self.rng.usize(..names.len());
        if part == 0 {
            let whole = self.rng.bool();
            return if whole { Err(error) } else { Ok(PathDone::Walked(Vec::new(), Err(error))) };
        }
        let names = names[..part].to_vec();
        let walk = PathOp::Walk { root: *root, from: *from, names };
        let done = self.disk.perform(self.date(), &walk)?;
        self.disk.close_all(&done);
        match done {
            PathDone::Walked(stats, Ok(_)) => Ok(PathDone::Walked(stats, Err(error))),
            other => Ok(other),
        }
    }
}
