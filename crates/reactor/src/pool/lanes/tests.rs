//! Queues without threads.

use super::{Hung, Lane, Lanes, Length, Limits, Queued};
use base::Instant;
use base::op::OpId;
use base::rng;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
struct Job {
    id: u64,
    lanes: Vec<Lane>,
}

impl Queued for Job {
    fn id(&self) -> Option<OpId> {
        Some(OpId(self.id))
    }

    fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    fn length(&self) -> Length {
        match self.id {
            LONG.. => Length::Long,
            _ => Length::Short,
        }
    }
}

/// Jobs with numbers from here on are long.
const LONG: u64 = 1000;

const A: Lane = Lane::Device(1);
const B: Lane = Lane::Device(2);

fn lanes() -> Lanes<Job> {
    Lanes::new(Limits::new(8, 2))
}

fn job(id: u64, lanes: &[Lane]) -> Job {
    Job { id, lanes: lanes.to_vec() }
}

/// Begins all that can be begun; the numbers of the jobs, in order.
fn begun(lanes: &mut Lanes<Job>) -> Vec<u64> {
    let begun = std::iter::from_fn(|| lanes.begin(Instant(0))).map(|(job, _)| job.id).collect();
    lanes.check();
    begun
}

#[test]
fn a_lane_takes_a_few_threads_and_leaves_the_others_alone() {
    let mut lanes = lanes();
    for id in 0..10 {
        lanes.push(job(id, &[A]));
    }
    assert_eq!(lanes.ready(), 2);
    assert_eq!(begun(&mut lanes), [0, 1]);
    for id in 10..20 {
        lanes.push(job(id, &[]));
        lanes.push(job(id + 10, &[B]));
    }
    assert_eq!(begun(&mut lanes), [10, 11, 12, 13, 14, 15, 16, 17, 20, 21]);
    assert_eq!((lanes.len(), lanes.ready()), (18, 0));
}

#[test]
fn long_jobs_that_compute_leave_processors_to_others() {
    let mut lanes = lanes();
    (LONG..LONG + 5).for_each(|id| lanes.push(job(id, &[])));
    assert_eq!(lanes.ready(), 1);
    let (first, ticket) = lanes.begin(Instant(0)).expect("a place");
    assert_eq!((first.id, begun(&mut lanes)), (LONG, vec![]));
    lanes.push(job(0, &[]));
    assert_eq!(begun(&mut lanes), [0]);
    lanes.end(&ticket, false);
    assert_eq!(begun(&mut lanes), [LONG + 1]);
    // Half of the processors, and no more threads than a lane has.
    let computing = |threads, processors| Limits::new(threads, processors).computing;
    assert_eq!([computing(16, 1), computing(16, 6), computing(16, 64)], [1, 3, 4]);
}

#[test]
fn long_jobs_that_wait_for_the_disk_leave_threads_to_short_ones() {
    let mut lanes = lanes();
    (LONG..LONG + 10).for_each(|id| lanes.push(job(id, &[])));
    let (_, first) = lanes.begin(Instant(0)).expect("a place");
    lanes.end(&first, true);
    assert_eq!(lanes.ready(), 2);
    let tickets: Vec<_> = std::iter::from_fn(|| lanes.begin(Instant(0))).map(|(_, t)| t).collect();
    assert_eq!((tickets.len(), lanes.ready()), (2, 0));
    (0..10).for_each(|id| lanes.push(job(id, &[])));
    assert_eq!(lanes.ready(), 6);
    assert_eq!(begun(&mut lanes), [0, 1, 2, 3, 4, 5]);
    // The oldest job is next, if there is a place for it.
    lanes.end(&tickets[0], true);
    assert_eq!((lanes.ready(), begun(&mut lanes)), (1, vec![LONG + 3]));
    // One that has not waited takes the other places away; what runs there goes on.
    lanes.end(&tickets[1], false);
    assert_eq!((lanes.ready(), begun(&mut lanes)), (1, vec![6]));
    assert!(lanes.remove(OpId(LONG + 4)).is_some() && lanes.remove(OpId(LONG + 4)).is_none());
    assert_eq!((lanes.len(), lanes.drain().len(), lanes.len()), (8, 8, 0));
}

#[test]
fn all_lanes_together_have_an_end() {
    let mut lanes = lanes();
    for id in 0..100 {
        lanes.push(job(id, &[Lane::Device(id)]));
    }
    assert_eq!(lanes.ready(), 32);
    assert_eq!(begun(&mut lanes).len(), 32);
    lanes.push(job(100, &[]));
    assert_eq!(begun(&mut lanes), [100]);
}

#[test]
fn a_job_in_two_lanes_needs_a_place_in_each() {
    let mut lanes = lanes();
    lanes.push(job(0, &[A]));
    lanes.push(job(1, &[A]));
    let tickets: Vec<_> = std::iter::from_fn(|| lanes.begin(Instant(0))).map(|(_, t)| t).collect();
    lanes.push(job(2, &[B, A]));
    lanes.push(job(3, &[B]));
    assert_eq!(begun(&mut lanes), [3]);
    lanes.end(&tickets[0], false);
    assert_eq!(begun(&mut lanes), [2]);
    lanes.push(job(4, &[B]));
    assert_eq!(begun(&mut lanes), []);
}

#[test]
fn lanes_take_turns() {
    let mut lanes = lanes();
    for id in 0..4 {
        lanes.push(job(id, &[A]));
        lanes.push(job(id + 10, &[B]));
    }
    assert_eq!(begun(&mut lanes), [0, 10, 1, 11]);
}

#[test]
fn a_hung_lane_is_named_until_its_jobs_end() {
    let mut lanes = lanes();
    lanes.push(job(0, &[A]));
    lanes.push(job(1, &[B]));
    let (_, a) = lanes.begin(Instant(5)).expect("there is a job");
    let (_, b) = lanes.begin(Instant(7)).expect("there is another");
    lanes.push(job(2, &[A]));
    let limit = Duration::from_nanos(10);
    assert_eq!(lanes.hung(Instant(14), limit), []);
    assert_eq!(lanes.oldest(), Some(Instant(5)));
    let hung = Hung { lane: A, since: Instant(5), running: 1, waiting: 1 };
    assert_eq!(lanes.hung(Instant(15), limit), [hung]);
    lanes.end(&b, false);
    lanes.end(&a, false);
    assert_eq!(lanes.hung(Instant(15), limit), []);
    assert_eq!(lanes.oldest(), None);
}

/// Each job is begun or removed once, never beyond a limit, and nothing is left in the end.
#[test]
fn random_schedules_keep_the_limits() {
    for seed in 0..300 {
        let mut rng = rng::seeded(seed);
        let limits = Limits::new(8, 2);
        let mut lanes = Lanes::new(limits);
        let (mut waiting, mut running) = (BTreeMap::new(), Vec::new());
        // Later ones are long.
        let mut next = LONG - 80;
        for time in 0..400 {
            match rng.u64(..4) {
                0 | 1 => {
                    let all = [A, B, Lane::Hosts];
                    let some: Vec<_> = all.into_iter().filter(|_| rng.u64(..3) == 0).collect();
                    waiting.insert(next, some.clone());
                    lanes.push(job(next, &some));
                    next += 1;
                }
                2 => {
                    let id = rng.u64(LONG - 80..=next);
                    let removed = lanes.remove(OpId(id)).map(|job| job.id);
                    assert_eq!(removed, waiting.remove(&id).map(|_| id), "seed {seed}");
                }
                _ if running.is_empty() => {}
                _ => {
                    let at = rng.usize(..running.len());
                    let (_, ticket) = running.swap_remove(at);
                    lanes.end(&ticket, rng.bool());
                }
            }
            while let Some((job, ticket)) = lanes.begin(Instant(time)) {
                assert_eq!(waiting.remove(&job.id), Some(job.lanes.clone()), "seed {seed}");
                running.push((job.lanes, ticket));
            }
            lanes.check();
            assert_eq!((lanes.ready(), lanes.len()), (0, waiting.len()), "seed {seed}");
            let local = running.iter().filter(|(lanes, _)| lanes.is_empty()).count();
            assert!(local <= limits.local, "seed {seed}");
            for lane in [A, B] {
                let count = running.iter().filter(|(lanes, _)| lanes.contains(&lane)).count();
                assert!(count <= limits.lane, "seed {seed}");
            }
        }
        assert_eq!(lanes.drain().len(), waiting.len(), "seed {seed}");
    }
}
