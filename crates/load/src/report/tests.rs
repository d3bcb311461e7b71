use super::{Run, Title, fio, hdr, html, json, text};
use crate::io::{Cause, Io, Kind, Outcome, Record};
use crate::statistics::{Gap, Machine, Statistics};
use crate::verdict::{Thresholds, Verdict};
use expect_test::expect;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

/// Passes a run of 2 s with reads, writes and syncs; a few are late, one fails.
fn with_run(look: impl FnOnce(&Run<'_>)) {
    let one = |number: u64| {
        let scheduled_ns = number * 1_000_000;
        let late = if number % 100 == 9 { 50_000 } else { 900 };
        let cause = if late > 10_000 { Cause::Stolen } else { Cause::None };
        let kind = [Kind::Read, Kind::Write, Kind::Read, Kind::Sync][number as usize % 4];
        let outcome = if number == 77 { Outcome::Failed(5) } else { Outcome::Done(4096) };
        Record {
            scheduled_ns,
            issued_ns: scheduled_ns + late,
            completed_ns: scheduled_ns + late + 80_000 + number * 10,
            io: Io { kind, file: 0, offset: number * 8192, len: 4096 },
            outcome,
            cause,
            ..Record::default()
        }
    };
    let mut statistics = Statistics::default();
    statistics.add(&(0..2_000).map(one).collect::<Vec<_>>());
    let mut machine = Machine { watched_ns: 1_900_000_000, processors: 2, ..Machine::default() };
    machine.steal(Gap { start_ns: 9_000_000, len_ns: 50_000 });
    let title = Title {
        target: "<script>alert('&')</script>".to_owned(),
        workload: "uniform \u{1b}[2J".to_owned(),
        asked_rate: Some(1000.0),
        started: "2026-11-20 20:00:00 UTC".to_owned(),
        started_unix_ns: 1_795_204_800_000_000_000,
        host: "here".to_owned(),
        version: "0.1.0".to_owned(),
    };
    let verdict = Verdict::of(&statistics, &machine, title.asked_rate, &Thresholds::default());
    look(&Run { title: &title, statistics: &statistics, machine: &machine, verdict: &verdict });
}

#[test]
fn the_page_for_people() {
    with_run(|run| {
        let page = text::report(run);
        assert!(page.lines().count() <= 30, "{page}");
        expect![[r#"
            target    <script>alert('&')</script>  (2026-11-20 20:00:00 UTC, from here)
            workload  uniform ?[2J, 1,000/s asked for
            run       2 s · 2,000 I/Os · 1,000/s · 1.95 MiB/s read · 998 KiB/s written · 1 refused

                          I/Os      mean       p50       p90       p99     p99.9    p99.99       max
            lateness     2,000   1.39 µs    900 ns    900 ns    900 ns     50 µs     50 µs     50 µs
            service      1,999     90 µs     90 µs     98 µs   99.8 µs    100 µs    100 µs    100 µs
            response     1,999   91.4 µs   91.1 µs   99.1 µs    130 µs    148 µs    149 µs    149 µs
              read       1,000   90.9 µs   90.9 µs   98.9 µs    101 µs    101 µs    101 µs    101 µs
              write        499   92.9 µs   91.4 µs   99.7 µs    145 µs    149 µs    149 µs    149 µs
              sync         500   90.9 µs   90.9 µs   98.9 µs    101 µs    101 µs    101 µs    101 µs

            issued    99 % ≤ 1 µs · 99 % ≤ 10 µs · 100 % ≤ 100 µs · 100 % ≤ 1 ms
            drift     0 ns from first tenth to last · 0 ns a second · run longer by 0 ns
            queue     0.09 on average, at least 1 at most
            places    0 % sequential · half within 4.06 KiB of the one before
            machine   2 processors · clock - · waits by - · 1 gaps, < 0.01 % of the time

            INVALID
              ✗ the target refused 1 I/Os; 0 may be
              · 1 % of the I/Os were more than 10 µs late.
              · 100 % of these because the machine took the processor away → use a quieter
                machine, or allow real-time priority.
              · The machine took < 0.01 % of the watched time away, 50 µs at most at once.
              · Real-time priority is not permitted here.
        "#]]
        .assert_eq(&page);
    });
}

#[test]
fn the_line_of_a_second() {
    with_run(|run| {
        let line = text::progress(run.statistics, 1_000_000_000);
        expect![[r#"
                1 s     1,000/s     2.93 MiB/s
            response    86 µs p99   131 µs  late ≤    50 µs  queue 1  1 refused"#]]
        .assert_eq(&line.replace("  response", "\nresponse"));
        assert!(text::progress(&Statistics::default(), 0).contains("0/s"));
        assert!(!text::progress(run.statistics, u64::MAX).is_empty());
    });
}

#[test]
fn the_complete_form_is_json_with_every_part() {
    with_run(|run| {
        let form: Value = serde_json::from_str(&json::report(run)).unwrap();
        assert_eq!(form["upcall_load"], json::VERSION);
        assert_eq!(form["issued"], 2000);
        assert_eq!(form["errors"]["5"], 1);
        assert_eq!(form["causes"]["stolen"]["late"], 20);
        assert_eq!(form["times"]["sync"]["lateness"]["count"], 500);
        assert_eq!(form["verdict"]["valid"], false);
        let keys: Vec<&str> = form.as_object().unwrap().keys().map(String::as_str).collect();
        expect![[r#"
            causes distances drift errors failed issued machine
            queue rate run_ns scheduled scheduled_rate series skipped
            spans times title upcall_load verdict within witness"#]]
        .assert_eq(&keys.chunks(7).map(|keys| keys.join(" ")).collect::<Vec<_>>().join("\n"));
    });
}

/// Keys that fio 3.33 writes with `--output-format=json+`, as far as they are written here.
const FIO: [(&str, &str); 10] = [
    ("", "fio version timestamp timestamp_ms time jobs"),
    (
        "/jobs/0",
        "jobname groupid error eta elapsed job options read write trim sync job_runtime usr_cpu",
    ),
    ("/jobs/0/read", MOVED),
    ("/jobs/0/write", MOVED),
    ("/jobs/0/trim", MOVED),
    ("/jobs/0/sync", "total_ios lat_ns"),
    ("/jobs/0/read/slat_ns", "min max mean stddev N"),
    ("/jobs/0/read/clat_ns", "min max mean stddev N percentile bins"),
    ("/jobs/0/read/lat_ns", "min max mean stddev N"),
    ("/jobs/0/sync/lat_ns", "min max mean stddev N percentile bins"),
];
const MOVED: &str = "io_bytes io_kbytes bw_bytes bw iops runtime total_ios short_ios drop_ios \
                     slat_ns clat_ns lat_ns bw_min bw_max bw_agg bw_mean bw_dev";

#[test]
fn fio_s_form_has_only_keys_that_fio_has() {
    with_run(|run| {
        let form: Value = serde_json::from_str(&fio::report(run)).unwrap();
        for (place, known) in FIO {
            let object = form.pointer(place).and_then(Value::as_object).unwrap();
            for key in object.keys() {
                assert!(known.contains(key.as_str()), "{place}/{key} is none of fio's");
            }
        }
        let read = &form["jobs"][0]["read"];
        let keys: Vec<&str> = read.as_object().unwrap().keys().map(String::as_str).collect();
        expect![[r#"
            bw bw_bytes clat_ns drop_ios io_bytes io_kbytes iops
            lat_ns runtime short_ios slat_ns total_ios"#]]
        .assert_eq(&keys.chunks(7).map(|keys| keys.join(" ")).collect::<Vec<_>>().join("\n"));
        let percentiles = read["clat_ns"]["percentile"].as_object().unwrap();
        assert!(percentiles.contains_key("50.000000") && percentiles.contains_key("99.990000"));
        let bins = read["clat_ns"]["bins"].as_object().unwrap();
        let sum: u64 = bins.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!((sum, &read["total_ios"]), (1_000, &Value::from(1_000)));
    });
}

#[test]
fn the_histogram_log_is_read_by_its_own_library() {
    with_run(|run| {
        let mut log = Vec::new();
        hdr::write(run, &mut log).unwrap();
        let entries: Vec<LogEntry<'_>> =
            IntervalLogIterator::new(&log).map(|entry| entry.unwrap()).collect();
        let tags = entries.iter().filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval.tag().map(|tag| tag.as_str())),
            LogEntry::StartTime(_) | LogEntry::BaseTime(_) => None,
        });
        let tags: Vec<_> = tags.collect();
        assert_eq!(tags[tags.len() - 3..], [Some("lateness"), Some("service"), Some("response")]);
        assert!(tags.len() >= 23 && tags[0].is_none());
    });
}

#[test]
fn the_page_with_pictures_needs_nothing_and_runs_nothing() {
    with_run(|run| {
        let page = html::report(run);
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("url("));
        assert!(page.contains("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"));
        let links = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http"), "it refers to nothing outside");
        assert_eq!(page.matches("<svg ").count(), 6);
        assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    });
}

#[test]
fn a_run_without_io_has_every_form_too() {
    let (title, machine, statistics) = Default::default();
    let verdict = Verdict::of(&statistics, &machine, None, &Thresholds::default());
    let run = Run { title: &title, statistics: &statistics, machine: &machine, verdict: &verdict };
    assert!(text::report(&run).contains("INVALID"));
    assert!(html::report(&run).contains("INVALID"));
    assert!(serde_json::from_str::<Value>(&json::report(&run)).is_ok());
    assert!(serde_json::from_str::<Value>(&fio::report(&run)).is_ok());
    hdr::write(&run, &mut Vec::new()).unwrap();
}

#[test]
fn nonsense_has_every_form_too() {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut statistics = Statistics::default();
    for _ in 0..3_000 {
        let mut time = || rng.u64(..) >> rng.u32(..64);
        statistics.add(&[Record {
            scheduled_ns: time(),
            issued_ns: time(),
            completed_ns: time(),
            witnessed_ns: Some(time()),
            io: Io { offset: time(), len: u32::MAX, ..Io::default() },
            outcome: Outcome::Done(u32::MAX),
            ..Record::default()
        }]);
    }
    let (title, mut machine) = (Title::default(), Machine::default());
    machine.steal(Gap { start_ns: u64::MAX, len_ns: u64::MAX });
    let verdict = Verdict::of(&statistics, &machine, Some(0.0), &Thresholds::default());
    let run = Run { title: &title, statistics: &statistics, machine: &machine, verdict: &verdict };
    assert!(text::report(&run).contains("INVALID"));
    assert!(html::report(&run).contains("INVALID"));
    assert!(serde_json::from_str::<Value>(&json::report(&run)).is_ok());
    assert!(serde_json::from_str::<Value>(&fio::report(&run)).is_ok());
    hdr::write(&run, &mut Vec::new()).unwrap();
}
