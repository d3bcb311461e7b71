//! Exchange of completed batches between workers and a background thread (paper, §4.3).
//!
//! A worker never blocks on the exchange and never wakes the consumer: if the lock is free, it
//! swaps a full batch for an empty one; otherwise its batch grows until the next attempt.

use super::Batch;
use super::lock::lock;
use crate::Record;
use std::sync::Mutex;

/// Nominal records in a batch.
pub(super) const BATCH: usize = 1024;

/// Preallocated batches for each worker. Their memory is touched before the run: a page fault costs
/// 1 µs.
const SPARE: usize = 64;

/// Full batches on their way to the statistics, and empty ones on their way back.
pub(super) struct BatchExchange {
    full: Mutex<Vec<Batch>>,
    spare: Mutex<Vec<Batch>>,
    spare_max: usize,
    /// Whether batches have names.
    pub(super) named: bool,
}

impl BatchExchange {
    pub(super) fn new(workers: usize, named: bool) -> BatchExchange {
        let spare_max = SPARE * workers.min(4);
        let spare = (0..spare_max).map(|_| touched(named)).collect();
        BatchExchange { full: Mutex::default(), spare: Mutex::new(spare), spare_max, named }
    }

    /// Swaps a full batch for an empty one, if that is possible without waiting.
    pub(super) fn leave(&self, batch: &mut Batch) {
        let (Ok(mut full), Ok(mut spare)) = (self.full.try_lock(), self.spare.try_lock()) else {
            return;
        };
        let empty = spare.pop().unwrap_or_else(|| touched(self.named));
        full.push(std::mem::replace(batch, empty));
    }

    /// Returns an empty batch.
    pub(super) fn empty(&self) -> Batch {
        lock(&self.spare).pop().unwrap_or_else(|| touched(self.named))
    }

    /// Hands in the last batch.
    pub(super) fn leave_last(&self, batch: &mut Batch) {
        lock(&self.full).push(std::mem::take(batch));
    }

    /// Passes all full batches to the observer, and recycles them.
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

/// Returns an empty batch with resident memory.
fn touched(named: bool) -> Batch {
    let mut batch = Batch {
        records: vec![Record::default(); BATCH + BATCH / 4],
        names: vec![1; if named { BATCH + BATCH / 4 } else { 0 }],
    };
    batch.records.clear();
    batch.names.clear();
    batch
}
