//! All replay modes, in virtual time.

use super::*;
use crate::simulated::{Device, Queueing, run};
use crate::{Io, Record};

/// Creates a trace from times and durations in µs.
fn trace(records: &[(u64, u64)]) -> Vec<Result<Traced, Error>> {
    let traced = |(place, (at, took)): (usize, &(u64, u64))| {
        let io = Io { offset: place as u64 * 4096, len: 4096, ..Io::default() };
        Ok(Traced { at_ns: at * 1000, took_ns: Some(took * 1000), io, stream: 0 })
    };
    records.iter().enumerate().map(traced).collect()
}

fn play((filament, feed): (Box<dyn Filament>, Feed), device: &mut dyn Device) -> Vec<Record> {
    let mut records = run(vec![filament], device).records;
    assert!(feed.trouble().is_none());
    records.sort_by_key(|record| record.scheduled_ns);
    records
}

fn times(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.scheduled_ns / 1000).collect()
}

fn device(us: u64) -> Queueing {
    Queueing::new(4, Duration::from_micros(us), Duration::ZERO)
}

#[test]
fn timed_it_keeps_the_times_however_many_there_are() {
    let records: Vec<_> = (0..10_000).map(|i| (i * 37, 5)).collect();
    let played = play(timed(trace(&records).into_iter()), &mut device(100_000));
    assert_eq!(times(&played), records.iter().map(|(at, _)| *at).collect::<Vec<_>>());
}

#[test]
fn fast_it_keeps_the_depth() {
    let played = play(fast(trace(&[(0, 1), (500, 1), (900, 1)]).into_iter(), 2), &mut device(10));
    assert_eq!(times(&played), [0, 0, 10]);
}

#[test]
fn loaded_it_keeps_the_queue_of_the_trace() {
    // Two at once, then one alone, then one more during that.
    let records = trace(&[(0, 50), (10, 50), (100, 50), (120, 50)]);
    let played = play(loaded(records.into_iter()), &mut device(7));
    assert_eq!(times(&played), [0, 0, 7, 7]);
}

/// Absurd latencies (a day each) keep every I/O of the trace "in progress": the work per I/O must
/// not grow with their number.
#[test]
fn senseless_latencies_cost_no_more_than_others() {
    let mut limit = Limit::Traced(BinaryHeap::new());
    for (number, record) in trace(&vec![(1, 86_400_000_000); 200_000]).into_iter().enumerate() {
        assert_eq!(limit.of(&record.unwrap()), number as u32);
    }
}

#[test]
fn dependent_it_thinks_as_long_as_the_trace() {
    let parents: [&[u64]; 4] = [&[], &[0], &[0], &[2, 1]];
    let think = [0, 20, 30, 5];
    let records = trace(&[(0, 100), (120, 50), (130, 60), (195, 5)]);
    let depended = records.into_iter().zip(parents).zip(think).map(|((traced, parents), us)| {
        Ok(Depended { traced: traced?, parents: parents.to_vec(), think_ns: us * 1000 })
    });
    let depended: Vec<_> = depended.collect();
    let played = play(dependent(depended.into_iter()), &mut device(10));
    assert_eq!(times(&played), [0, 30, 40, 55]);
}

#[test]
fn a_syntax_error_is_reported_after_the_records_before_it() {
    let mut records = trace(&[(0, 1), (10, 1)]);
    let reason = "the disk is broken".to_string();
    records.push(Err(Error::System { file: "trace".to_string(), reason }));
    let (filament, feed) = timed(records.into_iter());
    assert_eq!(run(vec![filament], &mut device(1)).records.len(), 2);
    assert!(feed.trouble().is_some());
}
