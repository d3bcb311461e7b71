use super::*;
use crate::io::Io;

/// Returns records of a seeded run: `count` I/Os at intervals of 50 µs, each of up to 400 µs.
fn run(seed: u64, count: u64) -> Vec<Record> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let one = |number: u64| {
        let scheduled_ns = number * 50_000;
        let issued_ns = scheduled_ns + rng.u64(..2_000);
        let kind = Kind::ALL[rng.usize(..2)];
        let io = Io { kind, file: rng.u32(..3), offset: rng.u64(..1 << 30), len: 4096 };
        let outcome = if rng.u8(..) == 0 { Outcome::Failed(5) } else { Outcome::Done(4096) };
        let completed_ns = issued_ns + rng.u64(1_000..400_000);
        Record { scheduled_ns, issued_ns, completed_ns, io, outcome, ..Record::default() }
    };
    (0..count).map(one).collect()
}

fn of(records: &[Record]) -> Statistics {
    let mut statistics = Statistics::default();
    statistics.add(records);
    statistics
}

/// Computes the mean queue length by its definition.
fn queue_mean_of(records: &[Record]) -> f64 {
    let area: u64 = records.iter().map(|record| record.completed_ns - record.issued_ns).sum();
    let first = records.iter().map(|record| record.issued_ns).min().unwrap();
    let last = records.iter().map(|record| record.completed_ns).max().unwrap();
    area as f64 / (last - first) as f64
}

fn counts(tick: &Tick) -> [u64; 6] {
    let Tick { scheduled, issued, completed, bytes, lateness_ns_max, .. } = *tick;
    [scheduled, issued, completed, bytes, lateness_ns_max, tick.response_ns_max]
}

#[test]
fn counts_are_exact() {
    let records = run(1, 10_000);
    let statistics = of(&records);
    let failed = records.iter().filter(|record| record.outcome == Outcome::Failed(5)).count();
    assert_eq!(statistics.issued_count(), 10_000);
    assert_eq!(statistics.failed(), failed as u64);
    assert_eq!(statistics.errors().get(&5), Some(&(failed as u64)));
    let micro = records.iter().filter(|record| record.lateness_ns() <= 1000).count() as u64;
    assert_eq!(statistics.within().counts(), [micro, 10_000, 10_000, 10_000]);
    let together = statistics.together();
    assert_eq!(together.lateness.len(), 10_000);
    assert_eq!(together.response.len(), 10_000 - failed as u64);
    assert_eq!(together.bytes, 4096 * (10_000 - failed as u64));
    assert!((statistics.rate() - 20_000.0).abs() < 20.0);
}

#[test]
fn the_length_of_the_queue_is_exact_also_when_intervals_become_wider() {
    let mut records = run(2, 2_000);
    let first = of(&records);
    assert!((first.queue_mean() - queue_mean_of(&records)).abs() < 1e-9);
    // A long one across everything, and one that ends hours later.
    let long = Record { issued_ns: 5, completed_ns: 90_000_000, ..Record::default() };
    records.push(Record { outcome: Outcome::Done(0), ..long });
    records.push(Record { completed_ns: 20_000_000_000_000, ..records[7] });
    let wide = of(&records);
    assert!(wide.series().width_ns() > series::TICK_NS);
    assert!(wide.series().ticks().len() <= series::TICKS_MAX + 1);
    let mean = queue_mean_of(&records);
    assert!((wide.queue_mean() / mean - 1.0).abs() < 1e-9);
}

#[test]
fn the_queue_at_each_boundary_is_the_number_in_flight() {
    let records = run(3, 2_000);
    let statistics = of(&records);
    for (index, queue) in statistics.queue().iter().enumerate() {
        let at = index as u64 * series::TICK_NS;
        let in_flight = records.iter().filter(|r| r.issued_ns < at && at <= r.completed_ns);
        assert_eq!(queue.at_start, in_flight.count() as u64, "at {at}");
    }
}

#[test]
fn merged_halves_are_the_whole() {
    let mut records = run(4, 6_000);
    records[5_999].completed_ns = 500_000_000_000;
    let whole = of(&records);
    let mut halves = of(&records[..3_000]);
    halves.merge(&of(&records[3_000..]));
    let means = |of: &Statistics| of.queue().iter().map(|q| q.mean).collect::<Vec<_>>();
    let counts = |of: &Statistics| of.series().ticks().iter().map(counts).collect::<Vec<_>>();
    let ticks = means(&halves).len().min(means(&whole).len());
    assert!(means(&halves)[..ticks] == means(&whole)[..ticks]);
    assert!(counts(&halves)[..ticks] == counts(&whole)[..ticks]);
    assert!(halves.spans().all() == whole.spans().all());
    assert_eq!(halves.together().response, whole.together().response);
    assert_eq!(halves.errors(), whole.errors());
    assert_eq!(halves.drift(), whole.drift());
    assert!((halves.queue_mean() - whole.queue_mean()).abs() < 1e-12);
}

#[test]
fn drift_is_what_the_last_tenth_is_later_than_the_first() {
    let mut records = run(5, 40_000);
    for record in &mut records {
        // 500 µs late after 2 s: 250 µs per second.
        record.issued_ns = record.scheduled_ns + record.scheduled_ns / 4_000;
    }
    let drift = of(&records).drift().unwrap();
    assert!((430_000..=470_000).contains(&drift.median_ns), "{drift:?}");
    assert!((drift.slope_ns_per_s - 250_000.0).abs() < 5_000.0, "{drift:?}");
    assert!((499_000..=501_000).contains(&drift.stretch_ns), "{drift:?}");
}

#[test]
fn skipped_ones_are_scheduled_and_nothing_more() {
    let skipped = Record { scheduled_ns: 7, cause: Cause::Generator, ..Record::default() };
    let statistics = of(&[skipped; 3]);
    assert_eq!((statistics.skipped(), statistics.issued_count()), (3, 0));
    assert_eq!(statistics.series().ticks()[0].scheduled, 3);
    assert_eq!(statistics.series().ticks()[0].issued, 0);
    let (_, late) = statistics.causes().last().unwrap();
    assert_eq!(late.skipped, 3);
}

#[test]
fn distances_are_from_the_end_of_the_one_before_in_the_same_file() {
    let at = |file, offset| Record {
        io: Io { file, offset, len: 100, kind: Kind::Read },
        outcome: Outcome::Done(100),
        ..Record::default()
    };
    let statistics = of(&[at(0, 0), at(1, 5_000), at(0, 100), at(0, 150), at(70_000, 1)]);
    let distances = statistics.distances();
    assert_eq!((distances.count(), distances.sequential), (2, 1));
    assert_eq!((distances.quantile(0.5), distances.quantile(1.0)), (0, 50));
}

#[test]
fn the_witness_tells_an_issue_before_its_time() {
    let record = Record {
        scheduled_ns: 1_000,
        issued_ns: 2_000,
        completed_ns: 9_000,
        outcome: Outcome::Done(1),
        ..Record::default()
    };
    let early = Record { witnessed_ns: Some(1_900), ..record };
    let after = Record { witnessed_ns: Some(2_400), ..record };
    let statistics = of(&[record, early, after]);
    let witness = statistics.witness().unwrap();
    assert_eq!((witness.lateness.len(), witness.before), (2, 1));
    assert_eq!((witness.apart.min(), witness.apart.max()), (100, 400));
}

#[test]
fn nonsense_times_are_survived() {
    let mut rng = fastrand::Rng::with_seed(9);
    let mut statistics = Statistics::default();
    for _ in 0..20_000 {
        let mut time = || rng.u64(..) >> rng.u32(..64);
        let record = Record {
            scheduled_ns: time(),
            issued_ns: time(),
            completed_ns: time(),
            outcome: Outcome::Done(1),
            ..Record::default()
        };
        statistics.add(&[record]);
    }
    assert_eq!(statistics.issued_count(), 20_000);
    assert!(statistics.series().ticks().len() <= series::TICKS_MAX + 1);
    assert!(statistics.queue_mean() >= 0.0);
}
