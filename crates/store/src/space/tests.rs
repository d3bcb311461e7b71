use super::*;
use crate::Geometry;

fn layout() -> Layout {
    Geometry { block: 512, blocks: 1000, journal: 16, segment: 64 }.layout().unwrap()
}

#[test]
fn a_block_is_given_out_once_until_it_is_released() {
    let layout = layout();
    let mut space = Space::empty(&layout);
    let all = space.free_blocks();
    assert_eq!(all, layout.blocks - layout.data_at);
    let mut runs = Vec::new();
    while let Some(run) = space.allocate(Purpose::Data, 7) {
        space.set_live(run).unwrap();
        runs.push(run);
    }
    assert_eq!(space.free_blocks(), 0);
    let mut blocks: Vec<u64> =
        runs.iter().flat_map(|run| run.at..run.at + u64::from(run.count)).collect();
    blocks.sort_unstable();
    assert!(blocks.iter().copied().eq(layout.data_at..layout.blocks));
    assert_eq!(space.set_live(runs[0]), Err(Error::Damaged), "it is in use");
    space.retire(runs[0]).unwrap();
    assert_eq!((space.free_blocks(), space.allocate(Purpose::Pages, 1)), (0, None));
    assert_eq!(space.retire(runs[0]), Err(Error::Damaged), "it is not in use any more");
    space.release();
    assert_eq!(space.free_blocks(), u64::from(runs[0].count));
    assert!(space.allocate_at(runs[0].at) && !space.allocate_at(runs[0].at));
    space.check();
}

#[test]
fn runs_are_exact_and_within_a_segment() {
    let mut space = Space::empty(&layout());
    assert_eq!(space.allocate_exactly(65), None);
    let run = space.allocate_exactly(40).unwrap();
    let next = space.allocate_exactly(40).unwrap();
    assert_ne!(space.segment_of(run.at), space.segment_of(next.at));
    space.give_back(run);
    space.give_back(next);
    space.check();
}

#[test]
fn it_knows_which_runs_there_will_be() {
    let layout = layout();
    let mut space = Space::empty(&layout);
    let mut runs = Vec::new();
    while let Some(run) = space.allocate(Purpose::Pages, 1) {
        space.set_live(run).unwrap();
        runs.push(run);
    }
    runs.sort_unstable();
    let will = |space: &Space, more: &[Run], count| {
        let will = space.will_have_run(more.iter().copied(), count);
        // The same, by trying.
        let mut then = space.clone();
        more.iter().for_each(|run| then.retire(*run).unwrap());
        let before = space.clone().allocate_exactly(count).is_some();
        then.release();
        assert_eq!(will || before, then.allocate_exactly(count).is_some(), "{more:?} {count}");
        will
    };
    space.retire(runs[10]).unwrap();
    space.retire(runs[12]).unwrap();
    assert!(will(&space, &[], 1) && !will(&space, &[], 2));
    assert!(will(&space, &runs[11..12], 3) && !will(&space, &runs[11..12], 4));
    space.release();
    assert!(!will(&space, &[], 1), "it is free now");
    assert!(will(&space, &runs[11..12], 3) && !will(&space, &runs[11..12], 4));
    // Runs do not cross segments.
    assert!(will(&space, &runs[60..68], 4) && !will(&space, &runs[60..68], 5));
    let last = &runs[runs.len() - 3..];
    assert!(will(&space, last, 3) && !will(&space, last, 4));
}

#[test]
fn a_map_round_trips() {
    let layout = layout();
    let mut space = Space::empty(&layout);
    for _ in 0..9 {
        let run = space.allocate(Purpose::Pages, 5).unwrap();
        space.set_live(run).unwrap();
    }
    let (writes, _) = space.map_writes(1);
    let mut again = Space::empty(&layout);
    let first = layout.map(1) + layout.index;
    for (at, blocks) in writes.iter().filter(|(at, _)| *at >= first) {
        for (index, block) in blocks.iter().enumerate() {
            again.load((at - first) as usize + index, block).unwrap();
        }
    }
    assert_eq!((&again.live, &again.busy), (&space.live, &space.busy));
    assert_eq!(again.sums, space.sums);
    // Map 1 is up to date; map 0 still has to be written.
    assert_eq!(space.map_writes(1).0.len(), 1, "only the index");
    assert!(space.map_writes(0).0.len() > 1);
}
