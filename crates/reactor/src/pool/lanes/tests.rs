//! Queues without threads.

use super::{Hung, Lane, Lanes, Limits, Queued, TIMEOUT, Ticket};
use crate::job::{self, Work};
use base::Instant;
use base::op::{ClientKey, File, NOBODY, OpId};
use base::rng;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
struct Job {
    id: u64,
    requester: u32,
    lanes: Vec<Lane>,
}

impl Queued for Job {
    fn id(&self) -> Option<OpId> {
        Some(OpId(self.id))
    }

    fn client(&self) -> ClientKey {
        ClientKey::of_requester(self.requester)
    }

    fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    fn is_long(&self) -> bool {
        self.id >= LONG
    }
}

/// Number from which on jobs are long.
const LONG: u64 = 1000;

const A: Lane = Lane::Device(1);
const B: Lane = Lane::Device(2);

fn lanes() -> Lanes<Job> {
    Lanes::new(Limits::new(8, 2))
}

fn job(id: u64, lanes: &[Lane]) -> Job {
    Job { id, requester: 0, lanes: lanes.to_vec() }
}

/// Starts all jobs that can start; returns their numbers, in order.
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
    assert_eq!(lanes.ready(Instant(0)), 2);
    assert_eq!(begun(&mut lanes), [0, 1]);
    for id in 10..20 {
        lanes.push(job(id, &[]));
        lanes.push(job(id + 10, &[B]));
    }
    assert_eq!(begun(&mut lanes), [10, 11, 12, 13, 14, 15, 16, 17, 20, 21]);
    assert_eq!((lanes.len(), lanes.ready(Instant(0))), (18, 0));
}

#[test]
fn long_jobs_that_compute_leave_processors_to_others() {
    let mut lanes = lanes();
    (LONG..LONG + 5).for_each(|id| lanes.push(job(id, &[])));
    assert_eq!(lanes.ready(Instant(0)), 1);
    let (first, ticket) = lanes.begin(Instant(0)).expect("a place");
    assert_eq!((first.id, begun(&mut lanes)), (LONG, vec![]));
    lanes.push(job(0, &[]));
    assert_eq!(begun(&mut lanes), [0]);
    lanes.end(&ticket);
    assert_eq!(begun(&mut lanes), [LONG + 1]);
    // Half of the processors, and no more threads than a lane has.
    let computing = |threads, processors| Limits::new(threads, processors).computing;
    assert_eq!([computing(16, 1), computing(16, 6), computing(16, 64)], [1, 3, 4]);
}

#[test]
fn long_jobs_that_wait_for_the_disk_keep_nobody_from_beginning() {
    let mut lanes = lanes();
    (LONG..LONG + 10).for_each(|id| lanes.push(job(id, &[])));
    let begin = |lanes: &mut Lanes<Job>, now: Instant| {
        let begun = lanes.begin(now);
        lanes.check();
        begun.map(|(job, ticket)| (job.id, ticket))
    };
    let later = Instant(0) + TIMEOUT;
    let (id, first) = begin(&mut lanes, Instant(0)).expect("a place");
    assert_eq!((id, lanes.ready(Instant(later.0 - 1)), lanes.ready(later)), (LONG, 0, 1));
    assert!(lanes.any_long_waits());
    let (id, _) = begin(&mut lanes, later).expect("the first one waits");
    // A quarter of the threads, whatever they do.
    let much_later = later + TIMEOUT * 9;
    assert_eq!((id, lanes.ready(much_later)), (LONG + 1, 0));
    (0..10).for_each(|id| lanes.push(job(id, &[])));
    assert_eq!(lanes.ready(much_later), 6);
    assert_eq!(begun(&mut lanes), [0, 1, 2, 3, 4, 5]);
    // The oldest job is next, if there is a slot for it.
    lanes.end(&first);
    assert_eq!(lanes.ready(much_later), 1);
    assert_eq!(begin(&mut lanes, much_later).map(|begun| begun.0), Some(LONG + 2));
    assert!(lanes.remove(OpId(LONG + 3)).is_some() && lanes.remove(OpId(LONG + 3)).is_none());
    assert_eq!((lanes.len(), lanes.drain().len(), lanes.len()), (10, 10, 0));
    assert!(!lanes.any_long_waits());
}

#[test]
fn all_lanes_together_have_an_end() {
    let mut lanes = lanes();
    for id in 0..100 {
        lanes.push(job(id, &[Lane::Device(id)]));
    }
    assert_eq!(lanes.ready(Instant(0)), 32);
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
    lanes.end(&tickets[0]);
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
    lanes.end(&b);
    lanes.end(&a);
    assert_eq!(lanes.hung(Instant(15), limit), []);
    assert_eq!(lanes.oldest(), None);
}

#[test]
fn one_asker_with_many_jobs_lets_others_wait_for_one() {
    for (first, lane) in [(0, &[][..]), (0, &[A]), (LONG, &[])] {
        let mut lanes = Lanes::new(Limits::new(4, 2));
        let push = |lanes: &mut Lanes<Job>, requester, id| {
            lanes.push(Job { requester, ..job(first + id, lane) });
            lanes.check();
        };
        // One job at a time runs in a lane, and one long one.
        let next = |lanes: &mut Lanes<Job>| {
            let (job, ticket) = lanes.begin(Instant(0)).unwrap();
            lanes.end(&ticket);
            job.id - first
        };
        (0..10).for_each(|id| push(&mut lanes, 1, id));
        assert_eq!(next(&mut lanes), 0);
        (10..13).for_each(|id| push(&mut lanes, 2, id));
        push(&mut lanes, 3, 20);
        assert_eq!([(); 4].map(|()| next(&mut lanes)), [1, 10, 20, 2]);
        // A connection that submits again as soon as its job ends has one a round, too.
        push(&mut lanes, 3, 21);
        assert_eq!([(); 3].map(|()| next(&mut lanes)), [11, 3, 21]);
        push(&mut lanes, 3, 22);
        assert_eq!([(); 3].map(|()| next(&mut lanes)), [12, 4, 22]);
        // A connection with a reused number owes nothing.
        (5..10).for_each(|id| assert!(lanes.remove(OpId(first + id)).is_some()));
        push(&mut lanes, 4, 30);
        push(&mut lanes, 1, 31);
        assert_eq!([(); 2].map(|()| next(&mut lanes)), [30, 31]);
        // Each job without a connection has a turn.
        (40..43).for_each(|id| push(&mut lanes, 1, id));
        (50..53).for_each(|id| push(&mut lanes, NOBODY, id));
        assert_eq!([(); 6].map(|()| next(&mut lanes)), [40, 50, 51, 52, 41, 42]);
        assert!(lanes.begin(Instant(0)).is_none());
    }
}

#[test]
fn short_and_long_jobs_are_begun_in_turn() {
    let mut lanes = Lanes::new(Limits { local: 1, ..Limits::new(4, 2) });
    (0..10).for_each(|id| lanes.push(job(id, &[])));
    (0..2).for_each(|id| lanes.push(job(LONG + id, &[])));
    let mut next = || {
        let (job, ticket) = lanes.begin(Instant(0)).unwrap();
        lanes.end(&ticket);
        job.id
    };
    assert_eq!([(); 5].map(|()| next()), [LONG, 0, LONG + 1, 1, 2]);
}

/// Each job is started or removed once, never beyond a limit, and nothing is left at the end.
#[test]
fn random_schedules_keep_the_limits() {
    for seed in 0..300 {
        let mut rng = rng::seeded(seed);
        let limits = Limits::new(8, 2);
        let mut lanes = Lanes::new(limits);
        let (mut waiting, mut running, mut long) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        // Later ones are long.
        let mut next = LONG - 80;
        for time in 0..400_u32 {
            match rng.u64(..4) {
                0 | 1 => {
                    let all = [A, B, Lane::Hosts];
                    let some: Vec<_> = all.into_iter().filter(|_| rng.u64(..3) == 0).collect();
                    waiting.insert(next, some.clone());
                    lanes.push(Job { requester: rng.u32(..4), ..job(next, &some) });
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
                    lanes.end(&ticket);
                    if let Ticket::Long(number) = ticket {
                        assert!(long.remove(&number).is_some(), "seed {seed}");
                    }
                }
            }
            let now = Instant(0) + TIMEOUT / 50 * time;
            while let Some((job, ticket)) = lanes.begin(now) {
                assert_eq!(waiting.remove(&job.id), Some(job.lanes.clone()), "seed {seed}");
                running.push((job.lanes, ticket));
                if let Ticket::Long(number) = &running[running.len() - 1].1 {
                    long.insert(*number, now);
                    let recent = long.values().filter(|since| now.since(**since) < TIMEOUT);
                    assert!(recent.count() <= limits.computing, "seed {seed}");
                }
            }
            lanes.check();
            assert_eq!((lanes.ready(now), lanes.len()), (0, waiting.len()), "seed {seed}");
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

/// Removed files of a client do not wait for all that another one has removed before.
#[test]
fn closes_of_removed_files_take_turns_by_client() {
    let mut lanes = Lanes::new(Limits::new(4, 2));
    let close = |lanes: &mut Lanes<job::Job>, file, client| {
        let work = Work::Close { file: File(file), client: ClientKey(client) };
        let (lane, submitted) = (vec![Lane::Freeing], Instant(0));
        lanes.push(job::Job { id: None, work, lanes: lane, is_long: false, submitted });
        lanes.check();
    };
    (0..10).for_each(|file| close(&mut lanes, file, 1));
    close(&mut lanes, 10, 2);
    let order = [(); 4].map(|()| {
        let (job, ticket) = lanes.begin(Instant(0)).unwrap();
        lanes.end(&ticket);
        let Work::Close { file, .. } = job.work else { panic!("it is a close") };
        file.0
    });
    assert_eq!(order, [0, 10, 1, 2]);
}
