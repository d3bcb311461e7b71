//! Plans.

use super::super::adapt::{Files, Fold, Ratio, Sample};
use super::super::{Adapted, Plan};
use super::*;

fn adapted(plan: Plan, records: &[Traced]) -> Vec<Traced> {
    let records: Vec<Result<Traced, Error>> = records.iter().copied().map(Ok).collect();
    let adapted: Adapted<_> = plan.of(records.into_iter());
    adapted.map(|record| record.expect("there are no errors")).collect()
}

fn times(plan: Plan) -> Vec<u64> {
    let records: Vec<_> = (0..10).map(|number| traced(number * 100, 5, 0)).collect();
    adapted(plan, &records).iter().map(|record| record.at_ns).collect()
}

#[test]
fn a_plan_without_changes_changes_nothing() {
    let all = records(MSR.as_bytes());
    assert_eq!(adapted(Plan::default(), &all), all);
}

#[test]
fn counts_then_times_choose_and_the_first_is_at_0() {
    let plan = Plan { skip: 2, take: Some(3), ..Plan::default() };
    assert_eq!(times(plan), [0, 100, 200]);
    let plan = Plan { from_ns: 650, until_ns: Some(900), ..Plan::default() };
    assert_eq!(times(plan), [0, 100]);
    assert!(times(Plan { take: Some(0), ..Plan::default() }).is_empty());
}

#[test]
fn time_is_scaled_exactly_and_does_not_overflow() {
    let third = Ratio::new(1, 3).expect("3 is not 0");
    assert_eq!(times(Plan { time: third, take: Some(4), ..Plan::default() }), [0, 33, 66, 100]);
    let much = Ratio::new(u64::MAX, 1).expect("1 is not 0");
    assert_eq!(much.of(u64::MAX), u64::MAX);
    assert_eq!(Ratio::new(u64::MAX, u64::MAX).map(|one| one.of(u64::MAX)), Some(u64::MAX));
    assert_eq!(Ratio::new(1, 0), None);
}

#[test]
fn a_sample_keeps_streams_whole_and_is_the_same_again() {
    let records: Vec<_> = (0..4000_u32)
        .map(|number| Traced { stream: number % 100, ..traced(number.into(), 0, 0) })
        .collect();
    let sample = |sample| adapted(Plan { sample: Some(sample), ..Plan::default() }, &records);
    let streams = sample(Sample::Streams { one_in: 4, seed: 1 });
    let kept: std::collections::BTreeSet<_> = streams.iter().map(|record| record.stream).collect();
    assert_eq!(streams.len(), kept.len() * 40);
    assert!((10..40).contains(&kept.len()), "{}", kept.len());
    let some = sample(Sample::Records { one_in: 4, seed: 1 });
    assert!((900..1100).contains(&some.len()), "{}", some.len());
    assert_eq!(some, sample(Sample::Records { one_in: 4, seed: 1 }));
    assert_ne!(some, sample(Sample::Records { one_in: 4, seed: 2 }));
}

#[test]
fn read_only_changes_nothing_in_the_target() {
    let plan = Plan { read_only: true, ..Plan::default() };
    let kinds = adapted(plan, &records(IOLOG2.as_bytes()));
    let kinds: Vec<_> = kinds.iter().map(|record| record.io.kind).collect();
    assert_eq!(kinds, [Kind::Read, Kind::Read, Kind::Sync]);
    let plan = Plan { only_reads: true, ..Plan::default() };
    assert_eq!(adapted(plan, &records(IOLOG2.as_bytes())).len(), 1);
}

#[test]
fn files_can_become_one_and_lengths_less() {
    let files = Files::One { file: 5, apart: 1 << 30 };
    let plan = Plan { files, len_max: Some(1024), ..Plan::default() };
    let places: Vec<_> = adapted(plan, &records(MSR.as_bytes()))
        .iter()
        .map(|record| (record.io.file, record.io.offset, record.io.len))
        .collect();
    let third = (2 << 30) + 8192;
    assert_eq!(places, [(5, 383_496_192, 1024), (5, 1 << 30, 512), (5, third, 1024)]);
}

#[test]
fn folded_offsets_keep_their_position_within_a_block() {
    let fold = Fold { size: 10 * 4096, block: 4096 };
    assert_eq!(fold.apply(0, 4096), (0, 4096));
    assert_eq!(fold.apply(10 * 4096 + 512, 512), (512, 512));
    assert_eq!(fold.apply(9 * 4096, 8192), (8 * 4096, 8192));
    assert_eq!(fold.apply(5, u32::MAX), (0, 40_960));
    let mut rng = base::rng::seeded(3);
    for _ in 0..10_000 {
        let fold = Fold { size: rng.u64(..1 << 20), block: rng.u64(..70_000) };
        let (offset, len) = (rng.u64(..), rng.u32(..1 << 17));
        let (folded, less) = fold.apply(offset, len);
        assert!(folded + u64::from(less) <= fold.size, "{fold:?} {offset} {len}");
        let block = fold.block.max(1);
        if u64::from(len) + block <= fold.size && len > 0 {
            assert_eq!(folded % block, offset % block, "{fold:?} {offset} {len}");
        }
    }
}
