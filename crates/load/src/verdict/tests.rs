use super::*;
use crate::io::{Outcome, Record};
use crate::statistics::{Gap, Spin};
use expect_test::{Expect, expect};

/// Returns a good run of 2 s at 5,000 I/Os per second, each 1 µs late.
fn good() -> Vec<Record> {
    let one = |number: u64| Record {
        scheduled_ns: number * 200_000,
        issued_ns: number * 200_000 + 1_000,
        completed_ns: number * 200_000 + 90_000,
        outcome: Outcome::Done(4096),
        ..Record::default()
    };
    (0..10_000).map(one).collect()
}

fn judge(records: &[Record], asked_rate: Option<f64>) -> Verdict {
    let mut statistics = Statistics::default();
    statistics.add(records);
    Verdict::of(&statistics, &Machine::default(), asked_rate, &Thresholds::default())
}

/// Changes one of `each` I/Os.
fn change(each: usize, how: impl Fn(&mut Record)) -> Vec<Record> {
    let mut records = good();
    records.iter_mut().step_by(each).for_each(how);
    records
}

/// Checks that exactly this rule is broken.
fn breaks(rule: Rule, verdict: &Verdict, words: Expect) {
    let broken: Vec<Rule> = verdict.broken().map(|reason| reason.rule).collect();
    assert_eq!(broken, [rule], "{:?}", verdict.reasons);
    assert_eq!((verdict.word(), verdict.exit_status()), ("INVALID", 3));
    words.assert_eq(&verdict.broken().next().unwrap().sentence);
}

fn late(by_ns: u64, cause: Cause) -> impl Fn(&mut Record) {
    move |record| {
        record.issued_ns = record.scheduled_ns + by_ns;
        record.completed_ns = record.issued_ns + 89_000;
        record.cause = cause;
    }
}

#[test]
fn a_good_run_is_valid() {
    let verdict = judge(&good(), Some(5_000.0));
    assert!(verdict.valid, "{:?}", verdict.reasons);
    assert_eq!((verdict.word(), verdict.exit_status()), ("VALID", 0));
    let sentences: Vec<&str> = verdict.reasons.iter().map(|r| r.sentence.as_str()).collect();
    expect![[r#"
        10,000 I/Os were issued
        100 % were issued within 10 µs of their time; at least 95 % have to be
        99 % were issued within 1 µs of their time; the limit is 100 µs
        lateness grew by 0 ns from the start to the end; the limit is 100 µs
        the rate deviated by 0 % from the requested one; at most 4 % is allowed
        the rate was 0 % off that of the schedule; the limit is 1 %
        0 I/Os were skipped; 0 may be
        the target refused 0 I/Os; 0 may be"#]]
    .assert_eq(&sentences.join("\n"));
}

#[test]
fn nothing_issued_is_nothing_measured() {
    breaks(Rule::Measured, &judge(&[], Some(5_000.0)), expect!["0 I/Os were issued"]);
}

#[test]
fn many_small_delays() {
    let records = change(10, late(20_000, Cause::Generator));
    breaks(
        Rule::Near,
        &judge(&records, None),
        expect!["90 % were issued within 10 µs of their time; at least 95 % have to be"],
    );
}

#[test]
fn a_few_long_delays() {
    let records = change(50, late(900_000, Cause::Stolen));
    breaks(
        Rule::Tail,
        &judge(&records, None),
        expect!["99 % were issued within 900 µs of their time; the limit is 100 µs"],
    );
}

#[test]
fn falling_behind() {
    // The last tenth has few I/Os, so late ones are less than 1 % of all.
    let mut records = good();
    let mut last = records.split_off(9_000).into_iter().step_by(12).collect::<Vec<_>>();
    last.iter_mut().for_each(late(400_000, Cause::Generator));
    records.extend(last);
    breaks(
        Rule::Drift,
        &judge(&records, None),
        expect!["lateness grew by 399 µs from the start to the end; the limit is 100 µs"],
    );
}

#[test]
fn another_rate_than_asked() {
    breaks(
        Rule::AskedRate,
        &judge(&good(), Some(5_500.0)),
        expect!["the rate deviated by 9.09 % from the requested one; at most 4 % is allowed"],
    );
}

#[test]
fn another_rate_than_scheduled() {
    let mut records = good();
    // The I/Os are issued increasingly early.
    records.iter_mut().for_each(|record| {
        record.issued_ns = record.scheduled_ns - record.scheduled_ns / 50;
        record.completed_ns = record.issued_ns + 89_000;
    });
    breaks(
        Rule::KeptRate,
        &judge(&records, None),
        expect!["the rate was 2.04 % off that of the schedule; the limit is 1 %"],
    );
}

#[test]
fn skipped_io() {
    let records = change(2_000, |record| record.outcome = Outcome::Skipped);
    breaks(Rule::Skipped, &judge(&records, None), expect!["5 I/Os were skipped; 0 may be"]);
}

#[test]
fn refused_io() {
    let records = change(2_000, |record| record.outcome = Outcome::Failed(28));
    breaks(Rule::Errors, &judge(&records, None), expect!["the target refused 5 I/Os; 0 may be"]);
}

#[test]
fn a_witness_that_disagrees() {
    let records = change(1, |record| record.witnessed_ns = Some(record.issued_ns + 80_000));
    breaks(
        Rule::Witness,
        &judge(&records, None),
        expect!["99 % were seen by the kernel within 80.1 µs of their issue; the limit is 50 µs"],
    );
}

#[test]
fn a_witness_with_another_clock() {
    let records = change(100, |record| record.witnessed_ns = Some(record.issued_ns - 400));
    breaks(
        Rule::WitnessOrder,
        &judge(&records, None),
        expect!["100 % were seen by the kernel before their issue, 0.10 % may be: clocks differ"],
    );
}

#[test]
fn it_says_whose_fault_it_is() {
    let mut records = change(50, late(900_000, Cause::Stolen));
    records[1..].iter_mut().step_by(1_000).for_each(late(30_000, Cause::Generator));
    records[2..].iter_mut().step_by(5_000).for_each(late(30_000, Cause::Full));
    let mut statistics = Statistics::default();
    statistics.add(&records);
    let spin = |lost_ns| Some(Spin { watched_ns: 1_000_000, lost_ns, gap_ns_max: lost_ns });
    let mut machine = Machine {
        watched_ns: 2_000_000_000,
        spin_before: spin(20_000),
        spin_after: spin(24_000),
        policies: vec![(0, "spin".to_owned()), (9, "real-time, naps".to_owned())],
        ..Machine::default()
    };
    machine.steal(Gap { start_ns: 5_000_000, len_ns: 40_000_000 });
    machine.steal(Gap { start_ns: 900_000_000, len_ns: 1_500_000 });
    let verdict = Verdict::of(&statistics, &machine, None, &Thresholds::default());
    assert!(!verdict.valid);
    expect![[r#"
        INVALID
          ✗ 99 % were issued within 900 µs of their time; the limit is 100 µs
          · 2.12 % of the I/Os were more than 10 µs late.
          · 94.33 % of these because the machine took the processor away → use a quieter
            machine, or allow real-time priority.
          · 4.72 % of these because the generator was busy → lower the rate, or use more
            workers.
          · 0.94 % of these because every connection or place in the target's queue was taken
            → allow more of them: the target does not keep up with this rate.
          · The machine took 2.08 % of the watched time away, 40 ms at most at once. A bare
            loop lost 2 % just before the run and 2.40 % just after the run.
          · Real-time priority is not permitted here.
          · The way of waiting changed in the run (1), at last to real-time, naps."#]]
    .assert_eq(&crate::report::text::verdict(&verdict).join("\n"));
}
