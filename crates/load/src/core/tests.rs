//! The core on targets that take no time: no I/O is lost or early, and every run ends.
#![allow(clippy::disallowed_methods, reason = "a filament that is slow has to be slow")]

use super::*;
use crate::driver::one::{OneByOne, Perform};
use crate::driver::{Blocking, Null, Opened, Ring};
use crate::workload::{Arrival, Mix, stream::Stream, users::Think, users::Users};
use crate::{Event, Io, Outcome, Request};
use base::op::Envelope;
use base::{Automaton, Instant};
use std::sync::atomic::AtomicUsize;

/// Runs filaments; returns all records and the metadata.
fn played(
    target: &dyn Target,
    filaments: Vec<Box<dyn Filament>>,
    options: &Options,
) -> (Vec<Record>, RunMetadata) {
    let mut records = Vec::new();
    let metadata = run(target, filaments, options, &mut |batches, _| {
        batches.iter().for_each(|batch| records.extend(&batch.records));
    });
    (records, metadata.expect("it runs"))
}

fn gently(workers: usize) -> Options {
    Options { workers, policy: Choice::Fixed(Policy::Sleep), ..Options::default() }
}

fn stream(rate: f64, count: u64) -> Box<dyn Filament> {
    let arrival = Arrival::Poisson { rate };
    Box::new(Stream::new(arrival, Mix::default(), 3, Duration::ZERO, count))
}

#[test]
fn each_io_is_issued_once_and_never_early_with_any_number_of_workers() {
    for (workers, policy) in [(1, Policy::Spin), (2, Policy::Nap), (3, Policy::Sleep)] {
        let options = Options { policy: Choice::Fixed(policy), ..gently(workers) };
        let filaments = vec![stream(20_000.0, 2000), stream(3000.0, 300)];
        let (records, metadata) = played(&Null, filaments, &options);
        assert_eq!((records.len(), metadata.abandoned, metadata.workers), (2300, 0, workers));
        let early = records.iter().filter(|record| record.issued_ns < record.scheduled_ns);
        assert_eq!(early.count(), 0, "{policy}");
        let mut first: Vec<u64> =
            records.iter().filter(|r| r.filament == 1).map(|r| r.scheduled_ns).collect();
        first.sort_unstable();
        let mut wanted = Vec::new();
        let simulated = crate::simulated::run(
            vec![stream(20_000.0, 2000), stream(3000.0, 300)],
            &mut crate::simulated::Instantly,
        );
        wanted.extend(simulated.records.iter().filter(|r| r.filament == 1).map(|r| r.scheduled_ns));
        assert_eq!(first, wanted, "the times are those of virtual time");
    }
}

#[test]
fn closed_loops_of_several_filaments_end_with_their_count() {
    let users = |seed| -> Box<dyn Filament> {
        let think = Think::Exponential(Duration::from_micros(50));
        Box::new(Users::new(5, think, Mix::default(), seed, Duration::ZERO, 1000))
    };
    let (records, metadata) = played(&Null, vec![users(1), users(2), users(3)], &gently(3));
    assert_eq!((records.len(), metadata.abandoned), (3000, 0));
}

#[test]
fn files_are_read_by_a_ring_and_by_threads() {
    let path = std::env::temp_dir().join(format!("upcall-load-core-{}", std::process::id()));
    std::fs::write(&path, vec![7; 1 << 20]).expect("a file");
    let opened = || Opened {
        files: vec![std::fs::File::open(&path).expect("it is there")],
        name: "file".to_string(),
        io_max: 4096,
        aside_from: Some(8),
    };
    let (ring, threads) = (Ring(opened()), Blocking(opened()));
    for target in [&ring as &dyn Target, &threads] {
        let mix = Mix { span: 1 << 20, ..Mix::default() };
        let users = Users::new(20, Think::Not, mix, 1, Duration::ZERO, 3000);
        let (records, metadata) = played(target, vec![Box::new(users)], &gently(2));
        assert_eq!((records.len(), metadata.abandoned), (3000, 0));
        assert!(records.iter().all(|record| record.outcome == Outcome::Done(4096)));
    }
    std::fs::remove_file(&path).expect("it was made");
}

/// Schedules ten I/Os 1 ms apart, and returns 60 ms after the first is due.
struct Slow;

impl Automaton for Slow {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            // Filaments are started before the first moment of the run.
            Event::Started => {
                out.push(Request::Timer { at: now + Duration::from_millis(10), tag: 1 });
            }
            Event::Timer(_) => {
                let ios = (0..10).map(|number| now + Duration::from_millis(number));
                out.extend(ios.map(|at| Request::io(at, Io::default())));
                std::thread::sleep(Duration::from_millis(60));
            }
            Event::Message { .. } | Event::Ended(_) => {}
        }
    }
}

#[test]
fn late_ios_are_issued_skipped_moved_or_end_the_run() {
    // Minimum lateness of all; a busy machine increases it.
    let late = 45_000_000;
    let with = |late| {
        let options = Options { late, ..gently(1) };
        let (mut records, metadata) = played(&Null, vec![Box::new(Slow)], &options);
        records.sort_by_key(|record| record.scheduled_ns);
        (records, metadata)
    };
    let skipped = |records: &[Record]| {
        records.iter().filter(|record| record.outcome == Outcome::Skipped).count()
    };
    let (records, _) = with(Late::CatchUp);
    assert_eq!((records.len(), skipped(&records)), (10, 0));
    assert!(records.iter().all(|record| record.lateness_ns() >= late), "{records:?}");

    let (records, _) = with(Late::Skip(late - 1));
    assert_eq!((records.len(), skipped(&records)), (10, 10));
    // No I/O is that late.
    let (records, _) = with(Late::Skip(u64::MAX));
    assert_eq!((records.len(), skipped(&records)), (10, 0));

    let (records, _) = with(Late::Shift(late - 1));
    let times: Vec<u64> = records.iter().map(|record| record.scheduled_ns).collect();
    assert_eq!(times.len(), 10);
    // The first shifts all later ones.
    assert!(times[1] >= times[0] + 60_000_000, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] >= pair[0] + 1_000_000), "{times:?}");

    let (records, metadata) = with(Late::Stop(late - 1));
    assert!(records.len() <= 10);
    assert!(metadata.stopped.expect("it stopped").contains("us late"));
}

/// Sends an I/O to the next filament.
struct Sender;

impl Automaton for Sender {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        if let Event::Started = event {
            for number in 0..100 {
                let io = Io { offset: number, ..Io::default() };
                let at = now + Duration::from_micros(100 * number);
                out.push(Request::Send { to: 1, at, envelope: Envelope(Box::new(io)) });
            }
            out.push(Request::Send { to: 99, at: now, envelope: Envelope(Box::new(())) });
        }
    }
}

/// Issues the I/Os that it receives.
struct Receives;

impl Automaton for Receives {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        if let Event::Message { from: 0, envelope } = event {
            let io = envelope.0.downcast::<Io>().expect("an I/O");
            out.push(Request::io(now, *io));
        }
    }
}

#[test]
fn messages_arrive_at_their_time_and_in_order() {
    let filaments: Vec<Box<dyn Filament>> = vec![Box::new(Sender), Box::new(Receives)];
    let (mut records, metadata) = played(&Null, filaments, &gently(2));
    assert_eq!((records.len(), metadata.abandoned), (100, 0));
    records.sort_by_key(|record| (record.scheduled_ns, record.io.offset));
    assert!(records.iter().map(|record| record.io.offset).eq(0..100));
    let late = |record: &&Record| record.scheduled_ns < record.io.offset * 100_000;
    assert_eq!(records.iter().filter(late).count(), 0, "none came before its time");
}

#[test]
fn the_end_comes_when_the_time_is_over_or_somebody_says_so() {
    let length = Duration::from_millis(100);
    let options = Options { length, ..gently(2) };
    let (records, metadata) = played(&Null, vec![stream(1000.0, u64::MAX)], &options);
    assert!((50..200).contains(&records.len()), "{}", records.len());
    assert!(records.iter().all(|record| record.scheduled_ns <= 100_000_000));
    assert_eq!((metadata.abandoned, metadata.stopped), (0, None));

    let options = gently(2);
    let stop = options.stop.clone();
    let (records, metadata) = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(600));
            stop.store(true, Ordering::Relaxed);
        });
        played(&Null, vec![stream(1000.0, u64::MAX)], &options)
    });
    assert!(!records.is_empty() && metadata.stopped.as_deref() == Some("interrupted"));
}

/// Blocks for each I/O, as `pread` does on a disk, and counts concurrent calls.
#[derive(Default)]
struct Waits {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Target for &'static Waits {
    fn driver(&self, _: usize, _: usize) -> io::Result<Box<dyn crate::driver::Driver>> {
        Ok(Box::new(OneByOne::new(*self)))
    }

    fn name(&self) -> String {
        "waits".to_string()
    }
}

impl Perform for &'static Waits {
    fn perform(&mut self, io: &Io) -> Outcome {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
        self.now.fetch_sub(1, Ordering::SeqCst);
        Outcome::Done(io.len)
    }
}

#[test]
fn where_calls_wait_as_many_are_under_way_as_there_are_workers() {
    let waits: &'static Waits = Box::leak(Box::default());
    let users = Users::new(8, Think::Not, Mix::default(), 1, Duration::ZERO, 200);
    let (records, metadata) = played(&waits, vec![Box::new(users)], &gently(4));
    assert_eq!((records.len(), metadata.abandoned), (200, 0));
    assert!(waits.most.load(Ordering::SeqCst) >= 3, "one worker must not keep what others can do");
}
