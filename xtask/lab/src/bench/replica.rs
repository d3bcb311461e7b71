//! Three replicas of a map against three members of etcd, and Redis with two replicas.
//!
//! Nine servers on loopback, with their files in one file system; servers without clients are idle.
//! Processors are not partitioned: two of them run three servers and the clients at once, so a row
//! shows the total cost, and the columns show the users of the processors. Values of 256 bytes,
//! 10,000 keys of 8 bytes. The guarantee of a reply differs:
//!
//! | operation | guarantee at the time of the reply |
//! |---|---|
//! | upcall, put | on stable storage at its replica; propagated to the others later |
//! | upcall, strict put | acknowledged by all three replicas, with a final place in the order |
//! | etcd, put | on stable storage of two of three members |
//! | Redis, `SET` | on stable storage of the primary |
//! | Redis, `SET` and `WAIT 2` | acknowledged as received by both replicas |
//!
//! Goals are printed beside their rows, also missed ones.

mod etcd;
mod houses;
mod memory;
mod messages;
mod quiet;
mod requester;

pub(super) use memory::run as run_memory;

use super::table::median;
use super::{Plan, figures, record};
use anyhow::{Context as _, Result};
use etcd::{Etcd, What};
use houses::{House, RedisHouse, SERVERS};
use messages::{Operation, Parameters};
use requester::{Seen, Until};
use rig::server::{Kind, Server};
use rig::sh;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Number of clients in rows with many.
const MANY: usize = 64;

/// Number of clients that batch several operations.
const BATCHING: usize = 8;

/// Goal, relative to the first peer.
#[derive(Clone, Copy)]
enum Goal {
    /// Throughput of this many times the peer's.
    Rate(f64),
    /// A lower median latency.
    Sooner,
}

/// A competitor in a measurement.
struct Contestant<'a> {
    name: String,
    servers: &'a [Server],
    /// Replicas that must converge before the next contestant begins; the time for it is part of
    /// the work.
    settles: Option<&'a House>,
    run: Box<dyn Fn(Duration) -> Result<Seen> + 'a>,
}

/// Results of a contestant in one round.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seen: Seen,
    /// Time from the last reply until all operations were stable everywhere, milliseconds; ours
    /// only.
    settled: f64,
    /// CPU time of its servers per operation, microseconds, until then.
    cpu: f64,
    /// Share of one processor used by clients.
    client: f64,
    /// Share of all processors used by neither servers nor clients.
    others: f64,
}

/// One kind of work; the first contestant is compared with each of the others.
struct Row {
    work: String,
    goal: Option<Goal>,
    /// Load average before it.
    load: f64,
    samples: Vec<(String, Vec<Sample>)>,
}

/// All servers.
struct Houses {
    ours: House,
    etcd: Etcd,
    redis: RedisHouse,
}

/// Runs the benchmark.
pub(super) fn run(plan: &Plan) -> Result<String> {
    if plan.servers.contains(&Kind::Before) {
        return run_before(plan);
    }
    let dir = sh::empty("bench/replica")?;
    let houses = Houses {
        etcd: Etcd::start(&dir.join("etcd"))?,
        redis: RedisHouse::start(&dir.join("redis"))?,
        ours: House::start(Kind::Uring, &dir.join("ours"))?,
    };
    let mut rows = puts(plan, &houses)?;
    rows.extend(gets(plan, &houses)?);
    rows.extend(alone(plan, &houses.ours)?);
    houses.ours.settle()?;
    drop(houses);
    sh::empty("bench/replica")?;
    Ok(format!("{}\n{}", circumstances(plan), markdown(&rows)))
}

/// Runs the benchmark of two builds of ours.
fn run_before(plan: &Plan) -> Result<String> {
    let dir = sh::empty("bench/replica")?;
    let house = |kind: Kind| House::start(kind, &dir.join(kind.name()));
    let houses = [house(Kind::Uring)?, house(Kind::Before)?];
    let mut rows = Vec::new();
    for (action, strict, name) in [
        (Operation::Put, 0, "put"),
        (Operation::Put, 100, "strict put"),
        (Operation::Get, 0, "get"),
        (Operation::Get, 100, "strict get"),
    ] {
        for (clients, lines) in [(1, 1), (MANY, 1), (BATCHING, 100)] {
            let way = Parameters { action, strict, lines, once: false };
            let of = |name: &str, at: usize| {
                contestant(name.to_owned(), &houses[at], SERVERS, clients, way)
            };
            let work = format!("{name}, {}, {lines} in a request", words(clients));
            rows.push(measure(plan, work, None, &[of("now", 0), of("before", 1)])?);
        }
    }
    houses.iter().try_for_each(House::settle)?;
    drop(houses);
    sh::empty("bench/replica")?;
    let (machine, seconds) = (rig::machine::describe(), plan.time.as_secs_f64());
    let rounds = plan.rounds;
    let method = format!("{machine}; {rounds} rounds of about {seconds:.1} s, in turn.\n");
    Ok(format!("{method}\n{}", markdown(&rows)))
}

fn circumstances(plan: &Plan) -> String {
    format!(
        "{}; etcd {}, {}; {} rounds of about {:.1} s, in turn, order alternating. Three servers \
         of each on loopback, not bound to processors, and the clients on the same processors, \
         one connection each (etcd's own `benchmark` shares 8 among 64); values of 256 bytes, \
         10,000 keys. With 64 clients those of ours are spread over the three replicas; with one \
         it asks the first. *Final after*: how long after the last answer everything was final \
         everywhere; what it takes is in *CPU*, which is that of the three servers together, for \
         each operation. *Client*: \
         the share of one processor that clients had. *Others*: the share of all processors that \
         neither had, the kernel's own threads included. *Load*: of the last minute, before the \
         row. The first line of a row to each other one: median and range over the rounds; of \
         p50, below 1 is faster.\n",
        rig::machine::describe(),
        etcd::VERSION,
        record::packages(&["redis-server"]),
        plan.rounds,
        plan.time.as_secs_f64(),
    )
}

impl Houses {
    fn ours(&self, name: &str, clients: usize, action: Operation, strict: bool) -> Contestant<'_> {
        let way =
            Parameters { action, strict: if strict { 100 } else { 0 }, lines: 1, once: false };
        let name = format!("upcall, {name}");
        contestant(name, &self.ours, SERVERS, clients, way)
    }

    fn etcd(&self, name: &str, clients: usize, what: What) -> Result<Contestant<'_>> {
        self.etcd.warm(clients, what)?;
        let name = format!("etcd, {name}");
        let run = Box::new(move |time| self.etcd.ask(clients, time, what));
        Ok(Contestant { name, servers: &self.etcd.servers, settles: None, run })
    }

    fn redis(&self, name: &str, clients: usize, wait: Option<u8>) -> Contestant<'_> {
        let name = format!("Redis, {name}");
        let run = Box::new(move |time| self.redis.ask(clients, Until::Time(time), wait));
        Contestant { name, servers: &self.redis.servers, settles: None, run }
    }
}

/// Returns a contestant with this number of our replicas serving clients.
fn contestant(
    name: String,
    house: &House,
    replicas: usize,
    clients: usize,
    way: Parameters,
) -> Contestant<'_> {
    let run = Box::new(move |time| house.ask(replicas, clients, Until::Time(time), way));
    Contestant { name, servers: &house.servers, settles: Some(house), run }
}

fn words(clients: usize) -> String {
    if clients == 1 { "1 client".into() } else { format!("{clients} clients") }
}

/// Measures puts, non-strict and strict, against those of the peers.
fn puts(plan: &Plan, houses: &Houses) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for clients in [1, MANY] {
        let work = format!("put, {}", words(clients));
        let all = [
            houses.ours("put", clients, Operation::Put, false),
            houses.etcd("put", clients, What::Put)?,
            houses.redis("`SET`, `WAIT 2`", clients, Some(2)),
            houses.redis("`SET`", clients, None),
        ];
        rows.push(measure(plan, work, Some(Goal::Rate(4.0)), &all)?);
    }
    for (clients, goal) in [(1, Goal::Sooner), (MANY, Goal::Rate(2.0))] {
        let work = format!("strict put, {}", words(clients));
        let all = [
            houses.ours("strict put", clients, Operation::Put, true),
            houses.etcd("put", clients, What::Put)?,
            houses.redis("`SET`, `WAIT 2`", clients, Some(2)),
        ];
        rows.push(measure(plan, work, Some(goal), &all)?);
    }
    Ok(rows)
}

/// Measures gets against those of etcd.
fn gets(plan: &Plan, houses: &Houses) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (ours, strict, theirs, what) in [
        ("get", false, "serializable get", What::Serializable),
        ("strict get", true, "linearizable get", What::Linearizable),
    ] {
        for clients in [1, MANY] {
            let all = [
                houses.ours(ours, clients, Operation::Get, strict),
                houses.etcd(theirs, clients, what)?,
            ];
            rows.push(measure(plan, format!("{ours}, {}", words(clients)), None, &all)?);
        }
    }
    Ok(rows)
}

/// Measures features without a counterpart: more replicas, batched operations, operations with
/// session numbers.
fn alone(plan: &Plan, house: &House) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let way = Parameters { action: Operation::Put, strict: 0, lines: 1, once: false };
    let replicas = |count| {
        let name = format!("{count} of the three replicas asked");
        contestant(name, house, count, MANY, way)
    };
    let work = format!("put, {}", words(MANY));
    rows.push(measure(plan, work.clone(), None, &[replicas(3), replicas(2), replicas(1)])?);
    let once = |name: &str, once| {
        contestant(name.to_owned(), house, SERVERS, MANY, Parameters { once, ..way })
    };
    let all = [once("with a number of a session: done once", true), once("without", false)];
    rows.push(measure(plan, work, None, &all)?);
    for (name, strict) in [("put", 0), ("strict put", 100)] {
        let lines = |lines| {
            let name = format!("operations in a request: {lines}");
            contestant(name, house, SERVERS, BATCHING, Parameters { strict, lines, ..way })
        };
        let work = format!("{name}, {}", words(BATCHING));
        rows.push(measure(plan, work, None, &[lines(100), lines(10), lines(1)])?);
    }
    Ok(rows)
}

/// Runs all contestants in turn.
fn measure(
    plan: &Plan,
    work: String,
    goal: Option<Goal>,
    contestants: &[Contestant<'_>],
) -> Result<Row> {
    let load = quiet::wait(&work);
    let mut samples: Vec<_> = contestants.iter().map(|it| (it.name.clone(), Vec::new())).collect();
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    for _ in 0..plan.rounds {
        for at in &order {
            let sample = once(&contestants[*at], plan.time);
            let sample = sample.with_context(|| format!("{work}: {}", contestants[*at].name))?;
            eprintln!("      {}: {:.0}/s", contestants[*at].name, sample.seen.rate);
            samples[*at].1.push(sample);
        }
        order.reverse();
    }
    Ok(Row { work, goal, load, samples })
}

#[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
fn once(contestant: &Contestant<'_>, time: Duration) -> Result<Sample> {
    let servers = || contestant.servers.iter().map(Server::cpu_ticks).sum::<u64>();
    let before = (servers(), quiet::own_ticks(), quiet::Ticks::now(), Instant::now());
    let seen = (contestant.run)(time)?;
    let requested = Instant::now();
    contestant.settles.map_or(Ok(()), House::settle)?;
    let settled = contestant.settles.map_or(f64::NAN, |_| requested.elapsed().as_secs_f64() * 1e3);
    let (seconds, machine) = (before.3.elapsed().as_secs_f64(), quiet::Ticks::now());
    let (server, client) = (servers() - before.0, quiet::own_ticks() - before.1);
    Ok(Sample {
        seen,
        settled,
        cpu: server as f64 * 10_000.0 / seen.operations as f64,
        client: client as f64 / 100.0 / seconds,
        others: machine.share_since(before.2, server + client),
    })
}

/// Renders a line for each contestant of each row.
fn markdown(rows: &[Row]) -> String {
    let mut text =
        "| work | load | who | operations/s | first to it | p50 µs | p99 µs | p50, first \
                    to it | final after, ms | CPU µs | client | others | goal |\n\
                    |---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
            .to_owned();
    for row in rows {
        for at in 0..row.samples.len() {
            line(&mut text, row, at);
        }
    }
    text
}

fn line(text: &mut String, row: &Row, at: usize) {
    let (name, samples) = &row.samples[at];
    let of = |what: &dyn Fn(&Sample) -> f64| median(samples.iter().map(what));
    let ratio = |what: &dyn Fn(&Sample) -> f64| {
        let all = |samples: &[Sample]| samples.iter().map(what).collect::<Vec<_>>();
        figures::ratio(&all(&row.samples[0].1), &all(samples))
    };
    let (rates, medians) = match at {
        0 => (String::new(), String::new()),
        _ => (ratio(&|it| it.seen.rate), ratio(&|it| it.seen.p50)),
    };
    let goal = row.goal.filter(|_| at == 1).map_or_else(String::new, |goal| judged(goal, row));
    let settled = Some(of(&|it| it.settled)).filter(|settled| !settled.is_nan());
    let settled = settled.map_or_else(String::new, |settled| format!("{settled:.0}"));
    let (work, load) = match at {
        0 => (row.work.as_str(), format!("{:.1}", row.load)),
        _ => ("", String::new()),
    };
    let _ = writeln!(
        text,
        "| {work} | {load} | {name} | {:.0} | {rates} | {:.0} | {:.0} | {medians} | {settled} | \
         {:.1} | {:.0} % | {:.0} % | {goal} |",
        of(&|it| it.seen.rate),
        of(&|it| it.seen.p50),
        of(&|it| it.seen.p99),
        of(&|it| it.cpu),
        of(&|it| it.client * 100.0),
        of(&|it| it.others * 100.0),
    );
}

/// Returns the goal and whether it was met, compared round by round.
fn judged(goal: Goal, row: &Row) -> String {
    let pairs = || row.samples[0].1.iter().zip(&row.samples[1].1);
    let (words, met) = match goal {
        Goal::Rate(times) => {
            let ratio = median(pairs().map(|(own, peer)| own.seen.rate / peer.seen.rate));
            (format!("≥ {times:.0} times as many"), ratio >= times)
        }
        Goal::Sooner => {
            let ratio = median(pairs().map(|(own, peer)| own.seen.p50 / peer.seen.p50));
            ("a lower p50".to_owned(), ratio < 1.0)
        }
    };
    format!("{words}: {}", if met { "met" } else { "**missed**" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_where_they_stand() {
        let sample = |rate: f64, p50: f64| Sample {
            seen: Seen { operations: 10, rate, p50, p99: 2.0 * p50 },
            settled: f64::NAN,
            cpu: 12.0,
            client: 0.5,
            others: 0.01,
        };
        let ours = vec![sample(400.0, 10.0), sample(300.0, 9.0), sample(500.0, 11.0)];
        let theirs = vec![sample(100.0, 10.0), sample(100.0, 10.0), sample(100.0, 10.0)];
        let samples = vec![("upcall".to_owned(), ours), ("etcd".to_owned(), theirs)];
        let mut row = Row { work: "put".into(), goal: Some(Goal::Rate(4.0)), load: 0.26, samples };
        let text = markdown(std::slice::from_ref(&row));
        let last = text.lines().last().expect("a table has rows");
        let expected = "|  |  | etcd | 100 | 4.00 (3.00..5.00) | 10 | 20 | 1.00 (0.90..1.10) \
                        |  | 12.0 | 50 % | 1 % | ≥ 4 times as many: met |";
        assert_eq!(last, expected);
        row.goal = Some(Goal::Sooner);
        assert!(markdown(&[row]).ends_with("| a lower p50: **missed** |\n"));
    }
}
