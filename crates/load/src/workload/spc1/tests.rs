//! The eight streams in virtual time: shares, reads, sizes and offsets.

use super::*;
use crate::simulated::{Instantly, run};
use crate::{Io, Record};

const SPAN: u64 = 10 << 30;

fn records(bsus: u32, count: u64) -> Vec<Record> {
    let drawer = Drawer::new(bsus, 0, SPAN, 7);
    run(vec![Box::new(stream(drawer, Duration::ZERO, count))], &mut Instantly).records
}

/// Returns the ASU of an I/O, and the hundredth of it.
fn place(io: Io) -> (usize, u64) {
    let block = io.offset / BLOCK;
    let store = SPAN / BLOCK * 45 / 100;
    let rest = SPAN / BLOCK - 2 * store;
    match block / store {
        0 => (0, block * 100 / store),
        1 => (1, (block - store) * 100 / store),
        _ => (2, (block - 2 * store) * 100 / rest),
    }
}

fn share(records: &[Record], wanted: impl Fn(Io) -> bool) -> f64 {
    records.iter().filter(|r| wanted(r.io)).count() as f64 / records.len() as f64
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.006, "{found} instead of {expected}");
}

#[test]
fn a_bsu_is_fifty_a_second_and_streams_have_their_shares() {
    let records = records(20, 100_000);
    let seconds = records.last().map_or(0, |r| r.scheduled_ns) as f64 / 1e9;
    assert!((100_000.0 / seconds / 1000.0 - 1.0).abs() < 0.02, "{seconds}");
    near(share(&records, |io| place(io).0 == 0), 0.596);
    near(share(&records, |io| place(io).0 == 1), 0.123);
    near(share(&records, |io| place(io).0 == 2), 0.281);
    near(share(&records, |io| io.kind == Kind::Read), 0.394);
    // The walks, and the part of the other streams in their regions.
    near(share(&records, |io| matches!(place(io), (0, 15..20))), 0.281 + 0.035 / 20.0);
    near(share(&records, |io| matches!(place(io), (0, 70..75))), 0.210 + 0.035 / 20.0);
    let mixed = 0.07 + 0.035 + 0.281;
    near(share(&records, |io| io.len == 16384), mixed * 0.2);
    near(share(&records, |io| io.len == 65536), mixed * 0.08);
}

#[test]
fn the_log_is_written_only_and_one_behind_the_other() {
    let records = records(1, 20_000);
    let log: Vec<Io> = records.iter().map(|r| r.io).filter(|io| place(*io).0 == 2).collect();
    assert!(log.iter().all(|io| io.kind == Kind::Write));
    let follows = |pair: &[Io]| pair[0].offset + u64::from(pair[0].len) == pair[1].offset;
    let jumps = log.windows(2).filter(|pair| !follows(pair)).count();
    assert!(jumps < 5, "{jumps} of {}", log.len());
    let inside = |io: &Io| io.offset + u64::from(io.len) <= SPAN;
    assert!(records.iter().all(|r| inside(&r.io)));
}

#[test]
fn walks_use_again_what_they_used_lately() {
    let walks = |io: &Io| matches!(place(*io), (0, 15..20));
    let leaves: Vec<u64> =
        records(1, 50_000).iter().map(|r| r.io).filter(walks).map(|io| io.offset >> 15).collect();
    let near = leaves.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
    // 5 % of 4.5 GiB are 7200 leaves: at random, one of fifty would be this near.
    assert!(near * 3 > leaves.len(), "{near} of {}", leaves.len());
}

#[test]
fn the_least_span_is_enough() {
    let mut drawer = Drawer::new(3, 4096, SPAN_MIN, 1);
    for _ in 0..100_000 {
        let io = drawer.draw();
        assert!(io.offset >= 4096 && io.offset + u64::from(io.len) <= 4096 + SPAN_MIN, "{io:?}");
    }
}
