//! Run of a service: setup, load and evaluation.

use crate::actor::{Actor, Order, ReplicaHolder, Requested};
use crate::channels::Channels;
use crate::counted::{Counted, Workload};
use crate::paper::{self, Negotiating, Plainly};
use crate::participant::{Participant, Service, Shared, Timing, Traffic};
use crate::processor::{Processor, Share};
use crate::production::{ClientFrontEnd, Site};
use crate::spec::{Data, Kind, Outcome, Spec, cost};
use esds::{Optimised, Plain, Station};
use replica::data::{Counter, Text, Value};
use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Time for the start of the threads.
const START: Duration = Duration::from_millis(30);

/// Minimum mean rest after a refusal, on an unslowed processor.
const REST_MIN: Duration = Duration::from_micros(100);

/// Performs a run.
pub(crate) fn run(spec: &Spec) -> io::Result<Outcome> {
    match spec.data {
        Data::Add | Data::Blind => run_of::<Counter>(spec),
        Data::Append => run_of::<Text>(spec),
    }
}

fn run_of<D: Workload>(spec: &Spec) -> io::Result<Outcome> {
    let (n, rules) = (spec.replicas, paper::rules(spec.gossip));
    // The mean rest is about the duration of a negotiation.
    let rest = cost(4 * spec.speed.message).max(REST_MIN);
    let counted = Counted::<D>::default;
    let plain = |me, counted: &Counted<D>| Plain::new(counted.clone(), me, n, rules);
    let optimised = |me, counted: &Counted<D>| Optimised::new(counted.clone(), me, n, rules);
    let seed = |me: usize| spec.seed.wrapping_mul(64).wrapping_add(me as u64);
    match spec.kind {
        Kind::Optimised => {
            let make = |me| {
                let counted = counted();
                Plainly::new(Station::Replica(optimised(me, &counted)), me, counted)
            };
            play::<D, _, _>(spec, &make, &|| {
                Plainly::<D, Optimised<Counted<D>>>::new(paper::front_end(n, rules), n, counted())
            })
        }
        Kind::Plain => {
            let make = |me| {
                let counted = counted();
                Plainly::new(Station::Replica(plain(me, &counted)), me, counted)
            };
            play::<D, _, _>(spec, &make, &|| {
                Plainly::<D, Plain<Counted<D>>>::new(paper::front_end(n, rules), n, counted())
            })
        }
        Kind::Simple => {
            let make = |me| {
                let counted = counted();
                let station = Station::Replica(plain(me, &counted));
                Negotiating::new(station, me, counted, rest, seed(me))
            };
            play::<D, _, _>(spec, &make, &|| {
                let station = paper::front_end::<D, Plain<Counted<D>>>(n, rules);
                Negotiating::new(station, n, counted(), rest, seed(n))
            })
        }
        Kind::Service => {
            play::<D, _, _>(spec, &|me| Site::<D>::new(me, n, cost(spec.gather)), &|| {
                ClientFrontEnd::new(n)
            })
        }
    }
}

/// Returns the operations of the clients, with exactly the specified share of strict ones.
fn orders<D: Workload>(spec: &Spec) -> Vec<Order<D::Operator>> {
    let mut rng = base::rng::seeded(spec.seed);
    let strict = spec.operations * spec.strict / 100;
    let mut marks: Vec<bool> = (0..spec.operations).map(|number| number < strict).collect();
    rng.shuffle(&mut marks);
    let order =
        |(number, strict)| Order { number, strict, operator: D::operator(spec.data, number) };
    (0..).zip(marks).map(order).collect()
}

/// Result of a thread.
struct Left<T> {
    result: io::Result<T>,
    talked: Traffic,
    late: (Duration, u32, Duration),
    /// Kept open until all threads have ended: others may still receive.
    _post: Channels,
}

/// Results of all threads of a service.
struct Played {
    stories: BTreeMap<u64, Timing>,
    services: Vec<Service>,
    talked: Vec<Traffic>,
    late: Vec<(Duration, u32, Duration)>,
    /// Time from the first submission to the last answer.
    total: Duration,
    /// Time from then until all replicas had everything.
    settling: Duration,
}

/// Runs a part in its thread.
fn sit<A: Actor, T>(
    ground: &Shared<'_>,
    (me, channels, processor): (usize, Channels, &Processor),
    actor: A,
    does: impl FnOnce(&mut Participant<'_, A>) -> io::Result<T>,
) -> Left<T> {
    let (share, talked) = (Share::new(processor, me), Traffic::default());
    let mut participant = Participant { actor, me, channels, share, ground, talked };
    let mut result = does(&mut participant);
    if result.is_err() {
        // Releases the others, which need not wait for this one.
        result = ground.answered.ring().and(ground.over.ring()).and(result);
    }
    Left {
        result,
        talked: participant.talked,
        late: participant.share.lateness(),
        _post: participant.channels,
    }
}

fn play<D, K, F>(
    spec: &Spec,
    replica: &(dyn Fn(usize) -> K + Sync),
    front_end: &(dyn Fn() -> F + Sync),
) -> io::Result<Outcome>
where
    D: Workload,
    K: ReplicaHolder,
    F: Requested<D::Operator>,
{
    // Desynchronizes the submissions of concurrent runs.
    let phase = base::rng::seeded(spec.seed).f64() / spec.rate;
    let began = Instant::now() + START + Duration::from_secs_f64(spec.delay + phase);
    let ground = &Shared::new(spec, began)?;
    let count = spec.replicas.min(spec.processors) + 1;
    let own = |_| Processor::new(began, spec.speed.switch);
    let processors: Vec<Processor> = (0..count).map(own).collect();
    let (client_front_end, machines) = processors.split_last().expect("the front end has one");
    let mut posts = Channels::mesh(spec.replicas + 1)?;
    let channels = posts.pop().expect("the front end has one");
    let (requested, served) = thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let does = |participant: &mut Participant<'_, F>| participant.ask(orders::<D>(spec));
            sit(ground, (spec.replicas, channels, client_front_end), front_end(), does)
        });
        let serving = posts.into_iter().enumerate().map(|(me, channels)| {
            let processor = &machines[me % machines.len()];
            scope.spawn(move || {
                sit(ground, (me, channels, processor), replica(me), |participant| {
                    participant.serve()
                })
            })
        });
        let serving: Vec<_> = serving.collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        let requested = asking.join().expect("the front end does not panic");
        (requested, serving.into_iter().map(join).collect::<Vec<Left<Service>>>())
    });
    let (total, settling) = ground.times();
    let (mut talked, mut late) = (vec![requested.talked], vec![requested.late]);
    talked.extend(served.iter().map(|left| left.talked));
    late.extend(served.iter().map(|left| left.late));
    let services = served.into_iter().map(|left| left.result).collect::<io::Result<_>>()?;
    let stories = requested.result?;
    Ok(judge(spec, &Played { stories, services, talked, late, total, settling }))
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Converts to milliseconds.
fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Mean in milliseconds; `None` without values.
fn mean(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let (sum, count) =
        times.fold((Duration::ZERO, 0), |(sum, count), time| (sum + time, count + 1));
    (count > 0).then(|| ms(sum) / share(count, 1))
}

/// Compares the answers with the eventual order (paper 001, 5.2, definition 3), and computes the
/// statistics.
fn judge(spec: &Spec, played: &Played) -> Outcome {
    let stories = || played.stories.values();
    let of = |strict: bool| stories().filter(move |story| story.strict == strict);
    let eventual: BTreeMap<u64, &Value> = match &played.services[..] {
        [first, ..] => first.finals.iter().map(|(number, value)| (*number, value)).collect(),
        [] => BTreeMap::new(),
    };
    let differs = |strict: Option<bool>| {
        let all = played.stories.iter();
        let wrong = all.filter(|(number, story)| {
            strict.is_none_or(|strict| story.strict == strict)
                && eventual.get(number) != Some(&&story.value)
        });
        spec.gossip.then(|| wrong.count() as u64)
    };
    let mut same = played.services.iter().map(|service| &service.finals);
    let complete = eventual.len() as u64 == spec.operations;
    let equal = same.all(|finals| *finals == played.services[0].finals) && complete;
    let answered = played.stories.len() as u64;
    let services = || played.services.iter();
    let each = |of: fn(&Traffic) -> u64| share(played.talked.iter().map(of).sum(), answered);
    let times = services().flat_map(|service| service.times.values().copied());
    let (late, sleeps) = played.late.iter().fold((Duration::ZERO, 0), |sum, (late, sleeps, _)| {
        (sum.0 + *late, sum.1 + u64::from(*sleeps))
    });
    Outcome {
        answered,
        total: ms(played.total),
        front_end: mean(stories().map(|story| story.front_end)).unwrap_or_default(),
        replica: mean(times).unwrap_or_default(),
        client: mean(stories().map(|story| story.client)).unwrap_or_default(),
        client_strict: mean(of(true).map(|story| story.client)),
        client_other: mean(of(false).map(|story| story.client)),
        inconsistent: differs(None),
        inconsistent_strict: differs(Some(true)),
        equal: spec.gossip.then_some(equal),
        again: share(services().map(|service| service.again).sum(), answered),
        messages: each(|talked| talked.messages),
        news: each(|talked| talked.news),
        bytes: each(|talked| talked.bytes),
        settling: ms(played.settling),
        late: ms(late) / share(sleeps.max(1), 1),
        late_max: played.late.iter().map(|late| ms(late.2)).fold(0.0, f64::max),
    }
}
