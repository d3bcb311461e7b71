use super::*;
use crate::compile::Fresh;
use crate::run_spec::RunSpec;
use base::Caller;
use wasi::{Engine, Hash, Pace};

/// A message to run a module with this start function and these order lines.
fn begin(body: &str, lines: &str) -> Box<Begin> {
    let engine = Engine::new(Pace::Fuel(10_000)).expect("an engine");
    let wat = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "fd_write"
            (func $write (param i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "fd_filestat_get"
            (func $stat (param i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\10\00\00\00\05\00\00\00")
          (data (i32.const 16) "hello")
          (func (export "_start") {body}))"#
    );
    let program = engine.compile(&wat::parse_str(wat).expect("it is text")).expect("a program");
    let program =
        Fresh { hash: Hash([0; 32]), code: wasi::Code::Plain, program, was_there: true, cpu_ns: 0 };
    let run_spec = RunSpec::parse(format!("module 1\n{lines}").as_bytes()).expect("an order");
    let account = Account { user: 1, client: 1 };
    Box::new(Begin { program, run_spec, caller: Caller::Server, account, seed: [0; 32] })
}

/// A worker with a home that replies to walks only.
struct Rig {
    worker: Worker,
    now: Instant,
    out: Vec<Output>,
    ran: BTreeMap<DomainId, u64>,
    /// Duration of a slice, ns.
    slice: u64,
}

impl Rig {
    fn new() -> Rig {
        let worker = Worker::new(NodeId(1), Time::default());
        let (out, ran) = (Vec::new(), BTreeMap::new());
        Rig { worker, now: Instant(0), out, ran, slice: 1_000_000 }
    }

    fn step(&mut self, input: Input) {
        self.worker.step(self.now, input, &mut self.out);
        self.worker.check();
        let walks = |output: &Output| match output {
            Output::Ask(id, Request { ask: Ask::Walk { .. }, .. }) => Some(*id),
            Output::Ask(..)
            | Output::Cancel(_)
            | Output::Release(_)
            | Output::Close(_)
            | Output::Tell(_) => None,
        };
        if let Some(place) = self.out.iter().position(|output| walks(output).is_some()) {
            let id = walks(&self.out.remove(place)).expect("it was found there");
            let reply = Ok(Reply::Walked(Vec::new(), Some(NodeId(9))));
            self.step(Input::Answered(id, reply, 0));
        }
    }

    /// Runs slices until this time, ns.
    fn run_until(&mut self, until: u64) {
        while self.now.0 < until {
            if self.worker.deadline().is_some_and(|at| at <= self.now) {
                self.step(Input::Tick);
            }
            let Some(slice) = self.worker.take_slice(self.now, &mut self.out) else {
                let next = self.worker.deadline().map_or(until, |at| at.0.max(self.now.0 + 1));
                self.now = Instant(next.min(until));
                continue;
            };
            let ran = slice.run();
            *self.ran.entry(ran.id).or_insert(0) += self.slice;
            self.now = self.now + Duration::from_nanos(self.slice);
            self.worker.ran(self.now, ran, self.slice, &mut self.out);
            self.worker.check();
        }
    }

    fn notified(&self) -> Vec<String> {
        let notified = self.out.iter().filter_map(|output| {
            let Output::Tell(notified) = output else { return None };
            Some(match notified {
                ToHome::Emitted(id, _, bytes) => format!("{id} said {}", bytes.len()),
                ToHome::Eaten(id, count) => format!("{id} ate {count}"),
                ToHome::Ended(id, report) => {
                    format!("{id} {}", report.reason.as_deref().unwrap_or(report.end))
                }
            })
        });
        notified.collect()
    }
}

const FOREVER: &str = "(loop $on (br $on))";

#[test]
fn weights_are_met_within_two_percent() {
    let mut rig = Rig::new();
    for (number, weight) in [(1, 1), (2, 2), (3, 5)] {
        let lines = format!("weight {weight}\ncpu 1h\ntime 1h");
        rig.step(Input::Message(ToWorker::Begin(DomainId(number), begin(FOREVER, &lines))));
    }
    rig.run_until(8_000_000_000);
    let shares = rig.ran.values().map(|ns| *ns as f64 / 8e9).collect::<Vec<f64>>();
    for (share, wanted) in shares.iter().zip([0.125, 0.25, 0.625]) {
        assert!((share - wanted).abs() < 0.02 * wanted, "{shares:?}");
    }
}

/// A guest that yields in a loop, beside one that computes: the thread's work is charged to the
/// guest that it is for, to the nanosecond, and counts in scheduling.
#[test]
fn all_that_the_thread_does_is_charged_to_whoever_it_was_for() {
    let mut rig = Rig::new();
    let yields = "(loop $on (drop (call $yield)) (br $on))";
    for (number, body) in [(1, yields), (2, FOREVER)] {
        let mut begin = begin(body, "cpu 1h\ntime 1h");
        begin.account.client = number;
        rig.step(Input::Message(ToWorker::Begin(DomainId(number.into()), begin)));
    }
    // Both are charged for their start.
    let mut spent = rig.worker.charge(rig.now, 1001);
    assert_eq!(spent, 1001);
    let mut of = BTreeMap::new();
    while rig.now.0 < 1_000_000_000 {
        if rig.worker.deadline().is_some_and(|at| at <= rig.now) {
            rig.step(Input::Tick);
            assert_eq!(rig.worker.charge(rig.now, 0), 0);
        }
        let Some(slice) = rig.worker.take_slice(rig.now, &mut rig.out) else {
            rig.now = rig.now + Duration::from_nanos(100);
            continue;
        };
        let id = slice.id();
        let (own, around) = if id == DomainId(1) { (4_000, 6_000) } else { (1_000_000, 3_000) };
        let ran = slice.run();
        rig.now = rig.now + Duration::from_nanos(own);
        rig.worker.ran(rig.now, ran, own, &mut rig.out);
        rig.now = rig.now + Duration::from_nanos(around);
        assert_eq!(rig.worker.charge(rig.now, around), around);
        *of.entry(id).or_insert((0, 0)) = {
            let (mine, its) = of.get(&id).copied().unwrap_or((0, 0));
            (mine + own, its + around)
        };
        spent += own + around;
    }
    let used_of = |rig: &Rig, number: u64| {
        let domain = &rig.worker.domains[&DomainId(number)];
        domain.guest.as_ref().expect("it runs").used()
    };
    let used = |number: u64| used_of(&rig, number);
    for number in [1, 2] {
        let (own, around) = of[&DomainId(number)];
        let begun = if number == 1 { 500 } else { 501 };
        assert_eq!((used(number).cpu_ns, used(number).served_ns), (own, around + begun));
    }
    let all: u64 = [1, 2].iter().map(|it| used(*it).cpu_ns + used(*it).served_ns).sum();
    assert_eq!(all, spent);
    let (one, two) = (used(1).cpu_ns + used(1).served_ns, used(2).cpu_ns + used(2).served_ns);
    let share = one as f64 / (one + two) as f64;
    assert!((0.48..0.52).contains(&share), "{share}");
    // Work for an ended storelet appears in no report, neither its own nor another.
    rig.step(Input::Message(ToWorker::Kill(DomainId(1), Reason::Cancelled)));
    let before = used_of(&rig, 2).served_ns;
    assert_eq!(rig.worker.charge(rig.now, 700), 0);
    assert_eq!(used_of(&rig, 2).served_ns, before);
}

/// A connection with many storelets takes no turns from another connection of the same user.
#[test]
fn a_client_with_many_storelets_has_no_more_turns_than_one_with_one() {
    let mut rig = Rig::new();
    for number in 1..=10 {
        let mut begin = begin(FOREVER, "cpu 1h\ntime 1h");
        begin.account.client = if number == 10 { 2 } else { 1 };
        rig.step(Input::Message(ToWorker::Begin(DomainId(number), begin)));
    }
    rig.run_until(4_000_000_000);
    let share = rig.ran[&DomainId(10)] as f64 / 4e9;
    assert!((0.49..0.51).contains(&share), "{share}");
}

/// One request per millisecond is served; many more are queued.
#[test]
fn requests_that_are_certain_are_made_and_no_more_than_may_be() {
    let mut rig = Rig { slice: 1000, ..Rig::new() };
    let stats = "(loop $on (drop (call $stat (i32.const 3) (i32.const 64))) (br $on))";
    for number in 1..=120 {
        let share_spec = match number {
            1 => "io-reserve 25\n",
            2 => "io-limit 2\n",
            _other => "",
        };
        let lines = format!("{share_spec}cpu 1h\ntime 1h");
        rig.step(Input::Message(ToWorker::Begin(DomainId(number), begin(stats, &lines))));
    }
    let mut made = BTreeMap::new();
    for ms in 1..=4000 {
        rig.run_until(ms * 1_000_000);
        let requested =
            |it: &Output| matches!(it, Output::Ask(_, Request { ask: Ask::Stat { .. }, .. }));
        let Some(place) = rig.out.iter().position(requested) else { continue };
        let Output::Ask(id, _) = rig.out.remove(place) else { unreachable!("it was found there") };
        *made.entry(id.domain).or_insert(0) += 1;
        rig.step(Input::Answered(id, Ok(Reply::Stat(base::Stat::default())), 0));
    }
    let of = |number: u64| made[&DomainId(number)];
    assert!((97..=103).contains(&of(1)), "{}", of(1));
    assert!((7..=9).contains(&of(2)), "{}", of(2));
    assert!((3..=120).all(|number| (30..=36).contains(&of(number))), "{made:?}");
}

#[test]
fn output_is_limited_by_backpressure() {
    let mut rig = Rig::new();
    let shows = "(loop $on (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1)
        (i32.const 8))) (br $on))";
    rig.step(Input::Message(ToWorker::Begin(DomainId(1), begin(shows, "cpu 1h"))));
    rig.run_until(1_000_000_000);
    let emitted = |rig: &Rig| -> usize {
        let notified = rig.notified();
        notified.iter().filter_map(|it| it.strip_prefix("1 said ")?.parse::<usize>().ok()).sum()
    };
    assert!(emitted(&rig) <= OUTPUT_MAX && emitted(&rig) > OUTPUT_MAX - 5, "{}", emitted(&rig));
    assert_eq!(rig.worker.states(), ["waiting for its reader"]);
    rig.step(Input::Message(ToWorker::Taken(DomainId(1), 1000)));
    rig.run_until(2_000_000_000);
    assert!(emitted(&rig) > OUTPUT_MAX + 990, "{}", emitted(&rig));
}

/// A request that hangs delays neither the end of its storelet nor the worker.
#[test]
fn a_request_that_hangs_is_left_behind() {
    let mut rig = Rig::new();
    let stats = "(drop (call $stat (i32.const 3) (i32.const 64)))";
    rig.step(Input::Message(ToWorker::Begin(DomainId(1), begin(stats, "time 1s"))));
    rig.run_until(500_000_000);
    assert!(matches!(rig.out.last(), Some(Output::Ask(_, Request { ask: Ask::Stat { .. }, .. }))));
    rig.run_until(3_000_000_000);
    assert_eq!(rig.notified(), ["1 its time is over"]);
    assert_eq!((rig.worker.states(), rig.worker.deadline()), (vec!["leaving"], None));
    rig.step(Input::Answered(
        AskId { domain: DomainId(1), prefetch: false },
        Err(Error::Cancelled),
        0,
    ));
    assert!(rig.worker.is_idle());
    let given = rig.out.iter().filter(|output| matches!(output, Output::Release(NodeId(9))));
    assert_eq!(given.count(), 1);
}

#[test]
fn the_ceiling_is_kept() {
    let mut rig = Rig::new();
    rig.step(Input::Message(ToWorker::Ceiling(250_000_000)));
    rig.step(Input::Message(ToWorker::Begin(DomainId(1), begin(FOREVER, "cpu 1h"))));
    rig.run_until(4_000_000_000);
    let share = rig.ran[&DomainId(1)] as f64 / 4e9;
    assert!((0.245..0.255).contains(&share), "{share}");
}

/// Late messages for a storelet that has ended and remains only for its prefetch.
#[test]
fn nothing_reaches_one_that_has_ended_and_waits_for_what_it_asked_ahead() {
    let shows = "(loop $on (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1)
        (i32.const 8))) (br $on))";
    for (body, state) in [(shows, "waiting for its reader"), (FOREVER, "ready")] {
        let mut rig = Rig::new();
        rig.step(Input::Message(ToWorker::Begin(DomainId(1), begin(body, "cpu 1h\ninput"))));
        rig.run_until(1_000_000_000);
        assert_eq!(rig.worker.states(), [state]);
        let ask = Ask::ListAll { from: NodeId(9), paths: vec![Vec::new()], bytes_max: 1 };
        let foreseen = prefetch::Input::Foreseen(ask);
        rig.worker.foresee(rig.now, DomainId(1), foreseen, &mut rig.out);
        rig.worker.settle(rig.now, DomainId(1));
        rig.step(Input::Tick);
        let id = AskId { domain: DomainId(1), prefetch: true };
        assert!(matches!(rig.out.last(), Some(Output::Ask(requested, _)) if *requested == id));
        rig.step(Input::Message(ToWorker::Kill(DomainId(1), Reason::Cancelled)));
        let cancelled = rig.out.iter().position(|it| matches!(it, Output::Cancel(it) if *it == id));
        let ended = |it: &Output| matches!(it, Output::Tell(ToHome::Ended(..)));
        let ended = rig.out.iter().position(ended).expect("it is told");
        assert!(cancelled.expect("it is not wanted") < ended, "nobody bears it");
        rig.step(Input::Message(ToWorker::Taken(DomainId(1), 1000)));
        rig.step(Input::Message(ToWorker::Input(DomainId(1), b"late".to_vec())));
        rig.step(Input::Message(ToWorker::Kill(DomainId(1), Reason::Cancelled)));
        rig.step(Input::Tick);
        assert!(!rig.worker.is_idle());
        rig.step(Input::Answered(id, Ok(Reply::Listings(Vec::new(), 0)), 0));
        assert!(rig.worker.is_idle());
    }
}

/// The first request of a storelet is sent however many other requests are queued.
#[test]
fn more_storelets_may_begin_than_requests_are_made_at_once() {
    let mut rig = Rig::new();
    for number in 1..=40 {
        let notified = ToWorker::Begin(DomainId(number), begin(FOREVER, "time 1s"));
        // No request is answered.
        rig.worker.step(rig.now, Input::Message(notified), &mut rig.out);
        rig.worker.check();
    }
    let requested = rig.out.iter().filter(|it| matches!(it, Output::Ask(..))).count();
    assert_eq!(requested, 40);
}
