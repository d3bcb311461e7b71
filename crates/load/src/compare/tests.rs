use super::*;
use crate::io::{Io, Kind, Outcome};
use std::convert::Infallible;

/// Returns a seeded run of 1.6 s with bursts, in completion order.
fn original() -> Vec<Record> {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut now_ns = 0;
    let one = |_| {
        now_ns += if rng.u8(..20) == 0 { rng.u64(..2_000_000) } else { rng.u64(..60_000) };
        let kind = if rng.bool() { Kind::Read } else { Kind::Write };
        let offset = rng.u64(..1 << 30) / 4096 * 4096;
        Record {
            scheduled_ns: now_ns,
            issued_ns: now_ns,
            completed_ns: now_ns + rng.u64(50_000..900_000),
            io: Io { kind, file: 0, offset, len: 4096 },
            outcome: Outcome::Done(4096),
            ..Record::default()
        }
    };
    let mut records: Vec<Record> = (0..20_000).map(one).collect();
    records.sort_by_key(|record| record.completed_ns);
    records
}

/// Returns the run with each issue delayed by `delay`.
fn delayed(mut delay: impl FnMut(&Record) -> u64) -> Vec<Record> {
    let mut records = original();
    for record in &mut records {
        let delay_ns = delay(record);
        record.issued_ns += delay_ns;
        record.completed_ns += delay_ns;
    }
    records.sort_by_key(|record| record.completed_ns);
    records
}

fn compared(a: &[Record], b: &[Record]) -> Comparison {
    let stream = |record: &Record| Ok::<_, Infallible>(*record);
    compare(a.iter().map(stream), b.iter().map(stream), &Tolerance::default()).unwrap()
}

#[test]
fn a_run_is_faithful_to_itself() {
    let run = original();
    let comparison = compared(&run, &run);
    assert!(comparison.faithful, "{}", report::text(&comparison));
    assert_eq!(comparison.issue.matched_share, 1.0);
    assert_eq!((comparison.issue.apart.max, comparison.issue.by_place), (0, true));
    assert_eq!((comparison.response.distance, comparison.queue_distance), (0.0, 0.0));
    assert_eq!((comparison.service.mean_ratio, comparison.queue_mean_ratio), (1.0, 1.0));
    assert!(comparison.bursts.iter().all(|burst| burst.correlation > Some(0.999_999)));
}

#[test]
fn a_small_delay_is_measured_and_tolerated() {
    let mut rng = fastrand::Rng::with_seed(1);
    let comparison = compared(&original(), &delayed(|_| rng.u64(..30_000)));
    assert!(comparison.faithful, "{}", report::text(&comparison));
    assert!(comparison.issue.matched_share > 0.9999);
    assert!((14_000..16_000).contains(&comparison.issue.apart.p99), "{:?}", comparison.issue);
}

/// The quantization of section 6.3 of the paper changes bursts and queue lengths.
#[test]
fn a_replay_that_wakes_up_each_ten_milliseconds_is_not_faithful() {
    const QUANTUM_NS: u64 = 10_000_000;
    let quantized = delayed(|record| QUANTUM_NS - record.issued_ns % QUANTUM_NS);
    let comparison = compared(&original(), &quantized);
    assert!(!comparison.faithful);
    let fine = comparison.bursts[0].dispersion;
    assert!(fine.b > fine.a.map(|a| a * 2.0), "{fine:?}");
    assert!(comparison.queue_distance > 0.2, "{}", comparison.queue_distance);
    assert!(comparison.runs.b.queue_max > 2 * comparison.runs.a.queue_max);
    expect_test::expect![[r#"
                                      A            B       B/A
        I/Os                     20,000       20,000
        skipped                       0            0
        refused                       0            0
        out of order                  0            0
        length                   1.55 s       1.54 s
        response, mean           476 µs      5.44 ms
        response, max            900 µs      10.9 ms
        service, mean            476 µs       476 µs
        service, p99             892 µs       892 µs
        queue, mean                6.16         6.18
        queue, max                   27          223
        sequential                  0 %          0 %
        service, p10             135 µs       135 µs     1.000
        service, p25             261 µs       261 µs     1.000
        service, p50             478 µs       478 µs     1.000
        service, p75             691 µs       691 µs     1.000
        service, p90             818 µs       818 µs     1.000
        service, p95             859 µs       859 µs     1.000
        service, p99             892 µs       892 µs     1.000
        service, p99.5           896 µs       896 µs     1.000
        service, p99.9           899 µs       899 µs     1.000
        bursts in 1 ms             9.11          125      0.05
        bursts in 10 ms            9.20         9.13         1
        bursts in 100 ms           43.9         43.7         1
        bursts in 1 s              1967         1967         1

        NOT FAITHFUL
          ✓ 100 % of the I/Os are in both; at least 99.90 %
          ✗ 99 % are issued within 5.21 ms of each other; at most 100 µs
          ✓ the counts of each 100 ms go together by 1.0000; at least 0.98
          ✓ the distributions of seek distances are 0.0000 apart; at most 0.02
          · B has another load than A: 1.98 % of the I/Os within 100 µs. Service times are
            0.000 apart (mean × 1.000, p99 × 1.000), response times 0.955 (mean × 11.416),
            queues 0.644 (mean × 1.003).
    "#]]
    .assert_eq(&report::text(&comparison));
}

#[test]
fn other_places_are_matched_by_number_and_told() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut other = original();
    other.iter_mut().for_each(|record| record.io.offset = rng.u64(..1 << 20));
    let comparison = compared(&original(), &other);
    assert!(!comparison.issue.by_place);
    let reported = &comparison.findings[0];
    assert!(
        reported.holds && reported.sentence.contains("at other places"),
        "{}",
        reported.sentence
    );
    assert!(comparison.issue.matched_share < 0.01);
    assert!(comparison.distances_distance > 0.5);
    assert_eq!(comparison.issue.apart.max, 0, "the k-th were issued at the same time");
}

#[test]
fn half_a_run_and_none_at_all() {
    let run = original();
    let half = compared(&run, &run[..10_000]);
    assert!(!half.faithful && (half.issue.matched_share - 0.5).abs() < 0.01);
    let none = compared(&run, &[]);
    assert!(!none.faithful && none.issue.apart.count == 0);
    assert!(!compared(&[], &[]).faithful);
    for comparison in [half, none] {
        assert!(report::html(&comparison, ["<a>", "b"]).contains("A is &lt;a&gt;, B is b."));
        assert!(serde_json::from_str::<serde_json::Value>(&report::json(&comparison)).is_ok());
    }
}

#[test]
fn nonsense_times_are_survived() {
    for seed in 0..2 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut time = || rng.u64(..) >> rng.u32(..64);
        let one = |_| Record {
            scheduled_ns: time(),
            issued_ns: time(),
            completed_ns: time(),
            io: Io { offset: time(), ..Io::default() },
            outcome: Outcome::Done(1),
            ..Record::default()
        };
        let records: Vec<Record> = (0..3_000).map(one).collect();
        let comparison = compared(&records[..2_000], &records[1_000..]);
        assert!(!comparison.faithful);
        assert!(!report::text(&comparison).is_empty());
        assert!(!report::html(&comparison, ["a", "b"]).is_empty());
    }
}

#[test]
fn an_error_of_a_stream_ends_the_comparison() {
    let bad = [Ok(original()[0]), Err("damaged")];
    let result = compare(bad.into_iter(), std::iter::empty(), &Tolerance::default());
    assert_eq!(result.err(), Some("damaged"));
}

#[test]
fn the_queue_over_time_is_that_of_the_sum_of_service_times() {
    let run = original();
    let comparison = compared(&run, &run);
    let area: u64 = run.iter().map(|record| record.service_ns()).sum();
    let first = run.iter().map(|record| record.issued_ns).min().unwrap();
    let last = run.iter().map(|record| record.completed_ns).max().unwrap();
    let mean = area as f64 / (last - first) as f64;
    assert!((comparison.runs.a.queue_mean / mean - 1.0).abs() < 1e-9);
}

#[test]
fn distances_of_distributions_are_between_none_and_all() {
    let (low, high) = ([(1.0, 0.5), (2.0, 1.0)], [(3.0, 0.5), (4.0, 1.0)]);
    assert_eq!(kolmogorov_smirnov(&low, &low), 0.0);
    assert_eq!(kolmogorov_smirnov(&low, &high), 1.0);
    assert_eq!(kolmogorov_smirnov(&low, &[(1.0, 0.2), (2.0, 1.0)]), 0.3);
    assert_eq!(dispersion(&[5.0, 5.0, 5.0]), Some(0.0));
    assert_eq!(correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), Some(1.0));
}
