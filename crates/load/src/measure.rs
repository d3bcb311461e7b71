//! Complete measurement: run, statistics, witness and verdict.

use crate::baseline::{self, Scheme};
use crate::core::{self, Batch, Options, RunMetadata};
use crate::driver::Target;
use crate::records;
use crate::report::{Run, Title};
use crate::statistics::{Machine, Statistics};
use crate::trace::Traced;
use crate::verdict::{Thresholds, Verdict};
use crate::witness::{Witness, WitnessRecord};
use crate::{Filament, Record};
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// Maximum I/Os of a run with a witness, which ends then: they are held in memory until the end.
pub const WITNESSED_MAX: u64 = 20_000_000;

/// Parameters of a measurement.
pub struct Plan<'a> {
    /// Description of the run, for reports.
    pub title: Title,
    /// Options of the run.
    pub options: Options,
    /// Thresholds of the verdict.
    pub thresholds: Thresholds,
    /// Warm-up in ns: I/Os scheduled before it are issued and recorded, but not counted.
    pub warm_up_ns: u64,
    /// Expected number of I/Os for the kernel witness; `None` without a witness.
    pub witness: Option<u64>,
    /// Destination of the records.
    pub records: Option<Box<dyn Write + 'a>>,
    /// Called about every 5 ms with the statistics so far and the time since the start, in ns.
    pub progress: &'a mut dyn FnMut(&Statistics, u64),
}

/// Results of a measurement.
#[derive(Debug)]
pub struct Measured {
    /// Description of the run.
    pub title: Title,
    /// Statistics.
    pub statistics: Statistics,
    /// Interference of the machine.
    pub machine: Machine,
    /// Validity of the results.
    pub verdict: Verdict,
    /// I/Os scheduled or outstanding when the run was aborted.
    pub abandoned: u64,
    /// Number of workers.
    pub workers: usize,
    /// Number of leader changes.
    pub hand_overs: u64,
}

impl Measured {
    /// Returns the run for reports.
    pub fn run(&self) -> Run<'_> {
        let Measured { title, statistics, machine, verdict, .. } = self;
        Run { title, statistics, machine, verdict }
    }
}

/// Accumulator of completed I/Os.
struct Ledger<'a> {
    statistics: Statistics,
    warm_up_ns: u64,
    /// Counted records of a partially counted batch.
    counted: Vec<Record>,
    /// With a witness: records waiting for its data, with their names.
    waiting: Option<Vec<(Record, u64)>>,
    records: Option<records::Writer<Box<dyn Write + 'a>>>,
    trouble: Option<io::Error>,
}

impl Ledger<'_> {
    fn take(&mut self, batches: &[Batch]) {
        for batch in batches {
            self.count(&batch.records);
            if let Some(waiting) = &mut self.waiting {
                waiting.extend(batch.records.iter().copied().zip(batch.names.iter().copied()));
            } else {
                self.write(&batch.records);
            }
        }
    }

    /// Reports whether no more records can be held for the witness.
    fn is_full(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.len() as u64 >= WITNESSED_MAX)
    }

    fn count(&mut self, records: &[Record]) {
        let from_ns = self.warm_up_ns;
        if records.iter().all(|record| record.scheduled_ns >= from_ns) {
            return self.statistics.add(records);
        }
        self.counted.clear();
        self.counted.extend(records.iter().filter(|record| record.scheduled_ns >= from_ns));
        self.statistics.add(&self.counted);
    }

    fn write(&mut self, records: &[Record]) {
        if let Some(writer) = &mut self.records
            && let Err(error) = writer.add(records)
        {
            self.records = None;
            self.trouble = Some(error);
        }
    }

    /// Adds the witness's times to the waiting records.
    fn confront(&mut self, testimony: &WitnessRecord, metadata: &RunMetadata) {
        self.statistics = Statistics::default();
        for (mut record, name) in self.waiting.take().unwrap_or_default() {
            let seen = testimony.saw(name, &metadata.clock);
            record.witnessed_ns = seen.map(|at| at.saturating_sub(metadata.origin_ns));
            self.count(&[record]);
            self.write(&[record]);
        }
    }

    fn end(self) -> io::Result<Statistics> {
        if let Some(error) = self.trouble {
            return Err(error);
        }
        if let Some(writer) = self.records {
            writer.finish()?;
        }
        Ok(self.statistics)
    }
}

/// Performs a measurement.
///
/// # Errors
/// If the target or the witness is unavailable, or the records cannot be written.
pub fn measure(
    target: &dyn Target,
    filaments: Vec<Box<dyn Filament>>,
    plan: Plan<'_>,
) -> io::Result<Measured> {
    let run =
        |options: &Options, observe: Observer<'_>| core::run(target, filaments, options, observe);
    let mut measured = account(plan, run)?;
    measured.verdict.notes.extend(target.troubles());
    Ok(measured)
}

/// Measures a naive replayer.
///
/// # Errors
/// If the target is unavailable, or the records cannot be written.
pub fn measure_naive(
    target: &dyn Target,
    ios: &[Traced],
    scheme: Scheme,
    plan: Plan<'_>,
) -> io::Result<Measured> {
    account(plan, |options, observe| baseline::run(target, ios, scheme, options, observe))
}

/// Consumer of completed I/Os during a run.
type Observer<'a> = &'a mut dyn FnMut(&[Batch], u64);

/// Accumulates the results of a run.
fn account(
    plan: Plan<'_>,
    run: impl FnOnce(&Options, Observer<'_>) -> io::Result<RunMetadata>,
) -> io::Result<Measured> {
    let Plan { title, mut options, thresholds, warm_up_ns, witness, records, progress } = plan;
    let witness = witness.map(|ios| Witness::call(ios.min(WITNESSED_MAX))).transpose()?;
    options.named = witness.is_some();
    let start = title.started_unix_ns;
    let mut ledger = Ledger {
        statistics: Statistics::default(),
        warm_up_ns,
        counted: Vec::new(),
        waiting: witness.as_ref().map(|_| Vec::new()),
        records: records.map(|to| records::Writer::new(to, start)).transpose()?,
        trouble: None,
    };
    let metadata = run(&options, &mut |batches, now| {
        ledger.take(batches);
        if ledger.is_full() {
            options.stop.store(true, Ordering::Relaxed);
        }
        progress(&ledger.statistics, now);
    })?;
    let mut notes = Vec::new();
    if ledger.is_full() {
        notes.push(format!("a run with a witness has {WITNESSED_MAX} I/Os at most"));
    }
    if let Some(witness) = &witness {
        let testimony = witness.handle()?;
        if testimony.is_empty() {
            notes
                .push("the kernel's trace saw none of the I/Os: this target has no witness".into());
        }
        if testimony.lost > 0 {
            notes.push(format!("the kernel's trace lost {} events", testimony.lost));
        }
        ledger.confront(&testimony, &metadata);
    }
    let statistics = ledger.end()?;
    let RunMetadata { machine, abandoned, stopped, workers, hand_overs, .. } = metadata;
    let mut verdict = Verdict::of(&statistics, &machine, title.asked_rate, &thresholds);
    verdict.notes.extend(notes);
    if let Some(why) = stopped {
        verdict.notes.push(format!("the run ended early: {why}"));
    }
    if abandoned > 0 {
        verdict.valid = false;
        verdict.notes.push(format!("{abandoned} I/Os had not ended 30 s after the end of the run"));
    }
    Ok(Measured { title, statistics, machine, verdict, abandoned, workers, hand_overs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Null;
    use crate::workload::{Arrival, Mix, stream::Stream};
    use std::time::Duration;

    #[test]
    fn every_io_is_counted_and_written_down_once() {
        let arrival = Arrival::Poisson { rate: 20_000.0 };
        let stream = Stream::new(arrival, Mix::default(), 1, Duration::ZERO, 3000);
        let (mut file, mut seen) = (Vec::new(), 0);
        let plan = Plan {
            title: Title::default(),
            options: Options::default(),
            thresholds: Thresholds::default(),
            warm_up_ns: 0,
            witness: None,
            records: Some(Box::new(&mut file)),
            progress: &mut |statistics, _| seen = statistics.issued_count(),
        };
        let measured = measure(&Null, vec![Box::new(stream)], plan).expect("it is measured");
        assert_eq!((measured.statistics.issued_count(), seen, measured.abandoned), (3000, 3000, 0));
        let records = records::Reader::new(file.as_slice()).expect("a file of records");
        let records: Vec<Record> = records.map(|record| record.expect("it is whole")).collect();
        assert_eq!(records.len(), 3000);
        assert!(
            records.iter().all(|r| r.scheduled_ns <= r.issued_ns && r.issued_ns <= r.completed_ns)
        );
    }
}
