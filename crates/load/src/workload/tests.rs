//! Drawn I/Os are within bounds, cheap, and reproducible by seed.

use super::*;
use crate::simulated::{Instantly, run};
use crate::{Filament, Record};
use std::time::Duration;

/// Returns varied mixes.
fn mixes() -> Vec<Mix> {
    let sizes = [
        Size::Fixed(4096),
        Size::Choice(vec![(4096, 60.0), (65536, 40.0)]),
        Size::Range { min: 1000, max: 9000, step: 500 },
    ];
    let places = [
        OffsetDistribution::Uniform,
        OffsetDistribution::Zipf { theta: 0.99 },
        OffsetDistribution::Sequential,
        OffsetDistribution::Strided { stride: 1 << 20 },
        OffsetDistribution::Mixed(vec![
            (OffsetDistribution::Sequential, 80.0),
            (OffsetDistribution::Uniform, 20.0),
        ]),
    ];
    let kinds = vec![(Kind::Read, 70.0), (Kind::Write, 29.0), (Kind::Sync, 1.0)];
    let mut mixes = Vec::new();
    for size in &sizes {
        for place in &places {
            for (align, span) in [(0, 10_000_000), (512, 1 << 30), (4096, 70_000)] {
                let (size, place, kinds) = (size.clone(), place.clone(), kinds.clone());
                mixes.push(Mix { kinds, place, size, begin: 12_345, span, align, files: 3 });
            }
        }
    }
    mixes
}

#[test]
fn everything_drawn_lies_within_the_span() {
    for mix in mixes() {
        let (begin, end) = (mix.begin, mix.begin + mix.span);
        let mut drawer = Drawer::new(mix.clone(), 9);
        for _ in 0..5000 {
            let io = drawer.draw();
            let inside = io.offset >= begin && io.offset + u64::from(io.len) <= end;
            assert!(inside || io.kind == Kind::Sync, "{io:?} of {mix:?}");
        }
    }
}

#[test]
fn a_span_that_is_too_small_cuts() {
    let mix = Mix { span: 1000, place: OffsetDistribution::Sequential, ..Mix::default() };
    let io = Drawer::new(mix, 1).draw();
    assert_eq!((io.offset, io.len), (0, 1000));
}

#[test]
fn a_mix_has_the_shares_that_it_says() {
    let kinds = vec![(Kind::Read, 70.0), (Kind::Write, 30.0)];
    let size = Size::Choice(vec![(4096, 60.0), (65536, 40.0)]);
    let mut drawer = Drawer::new(Mix { kinds, size, files: 4, ..Mix::default() }, 3);
    let drawn: Vec<Io> = (0..100_000).map(|_| drawer.draw()).collect();
    let count = |wanted: fn(&&Io) -> bool| drawn.iter().filter(wanted).count();
    assert!((69_300..70_700).contains(&count(|io| io.kind == Kind::Read)));
    assert!((59_300..60_700).contains(&count(|io| io.len == 4096)));
    assert!((24_300..25_700).contains(&count(|io| io.file == 2)));
}

#[test]
fn sequential_streams_of_several_sizes_leave_nothing_out() {
    let size = Size::Choice(vec![(4096, 60.0), (65536, 40.0)]);
    let mix =
        Mix { place: OffsetDistribution::Sequential, size, span: 10_000_000, ..Mix::default() };
    let mut drawer = Drawer::new(mix, 3);
    let mut expected = 0;
    for _ in 0..10_000 {
        let io = drawer.draw();
        assert!(io.offset == expected || (io.offset == 0 && expected > 9_900_000));
        expected = io.offset + u64::from(io.len);
    }
}

/// Runs every workload of the library once, on a device without latency.
fn library(seed: u64) -> Vec<Record> {
    let life = pace::Lifetime { count: 300, ..pace::Lifetime::default() };
    let open = Pace::Open(Arrival::Poisson { rate: 1000.0 });
    let tables = transactions::Tables::new(1, 0, 1 << 30).expect("it fits");
    let files = specweb::FileSet::of_load(specweb::Year::Y99, 100.0);
    let bsus = spc1::Drawer::new(2, 0, 1 << 30, seed);
    let pool = postmark::Setup { users: 3, ..postmark::Setup::default() };
    let filaments: Vec<Box<dyn Filament>> = vec![
        Box::new(transactions::Transactions::new(tables, open.clone(), seed, life)),
        Box::new(spc1::stream(bsus, Duration::ZERO, 1000)),
        Box::new(postmark::PostMark::new(pool, seed, life)),
        files.filament(open, seed, life),
    ];
    run(filaments, &mut Instantly).records
}

#[test]
fn the_same_seed_gives_the_same_records() {
    let first = library(5);
    assert_eq!(first, library(5));
    assert_ne!(first, library(6));
    for filament in 0..4 {
        assert!(first.iter().any(|record| record.filament == filament));
    }
}

#[test]
fn parts_have_seeds_of_their_own() {
    let seeds: std::collections::BTreeSet<u64> = (0..1000).map(|part| seed(7, part)).collect();
    assert_eq!(seeds.len(), 1000);
}
