//! Where workers leave what has ended, for a thread that is not in a hurry (paper, §4.3).
//!
//! A worker never waits for it and never wakes it: it leaves a full batch if nobody has the lock,
//! and takes an empty one; else its batch grows until the next time.

use super::Batch;
use super::shared::lock;
use crate::Record;
use std::sync::Mutex;

/// Records of one batch, as it should be.
pub(super) const BATCH: usize = 1024;

/// Empty batches that are kept, for each worker. Their memory is touched before the run: a page
/// that must be found costs a microsecond.
const SPARE: usize = 64;

/// Full batches on their way to the statistics, and empty ones on their way back.
pub(super) struct Depot {
    full: Mutex<Vec<Batch>>,
    spare: Mutex<Vec<Batch>>,
    spare_max: usize,
    /// Whether batches have names.
    pub(super) named: bool,
}

impl Depot {
    pub(super) fn new(workers: usize, named: bool) -> Depot {
        let spare_max = SPARE * workers.min(4);
        let spare = (0..spare_max).map(|_| touched(named)).collect();
        Depot { full: Mutex::default(), spare: Mutex::new(spare), spare_max, named }
    }

    /// Leaves a batch and takes an empty one, if that can be done at once.
    pub(super) fn leave(&self, batch: &mut Batch) {
        let (Ok(mut full), Ok(mut spare)) = (self.full.try_lock(), self.spare.try_lock()) else {
            return;
        };
        let empty = spare.pop().unwrap_or_else(|| touched(self.named));
        full.push(std::mem::replace(batch, empty));
    }

    /// An empty batch to begin with.
    pub(super) fn empty(&self) -> Batch {
        lock(&self.spare).pop().unwrap_or_else(|| touched(self.named))
    }

    /// Leaves the last batch.
    pub(super) fn leave_last(&self, batch: &mut Batch) {
        lock(&self.full).push(std::mem::take(batch));
    }

    /// Shows all full batches, and keeps their memory.
    pub(super) fn drain(&self, now: u64, observe: &mut dyn FnMut(&[Batch], u64)) {
        let full = std::mem::take(&mut *lock(&self.full));
        observe(&full, now);
        let mut spare = lock(&self.spare);
        for mut batch in full {
            batch.records.clear();
            batch.names.clear();
            if spare.len() < self.spare_max && batch.records.capacity() >= BATCH {
                spare.push(batch);
            }
        }
    }
}

/// An empty batch whose memory is there.
fn touched(named: bool) -> Batch {
    let mut batch = Batch {
        records: vec![Record::default(); BATCH + BATCH / 4],
        names: vec![1; if named { BATCH + BATCH / 4 } else { 0 }],
    };
    batch.records.clear();
    batch.names.clear();
    batch
}
