//! A worker in a simulated world where all costs of processor time are known.

use super::*;
use crate::messages::NodeMessage;
use crate::{Config, Export, Limits, Nfs, Web};
use base::op::{Done, Envelope, Event, OpId};
use base::{Caller, Time};
use std::cell::Cell;
use std::collections::VecDeque;
use storelet::compile::Fresh;
use storelet::run_spec::RunSpec;
use storelet::{Account, Begin, Crossing, DomainId, Report, ToHome, ToWorker};
use tree::{Ask, NodeId, Reply};
use wasi::{Code, Engine, Hash, Pace};

/// Cost of each reading of the clock, each operation and each wait, ns.
const COST: u64 = 700;

struct World {
    spent: Cell<u64>,
    /// Time that the reactor polled before it slept, which is not charged, ns.
    looked: u64,
    events: VecDeque<Event>,
    report: Option<Report>,
}

impl World {
    fn cost(&self, ns: u64) {
        self.spent.set(self.spent.get() + ns);
    }

    fn send(&mut self, crossing: Crossing) {
        self.events
            .push_back(Event { id: OpId::UNREQUESTED, done: Done::Envelope(crossing.envelope()) });
    }
}

impl Reactor for World {
    fn now(&self) -> Instant {
        self.cost(COST);
        Instant(self.spent.get())
    }

    fn wall(&self) -> Time {
        Time::from_secs(0)
    }

    fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.get())
    }

    fn submit(&mut self, op: Op) {
        self.cost(COST);
        let Op::Post { envelope, .. } = op else { unreachable!("a worker only sends messages") };
        match envelope.0.downcast::<NodeMessage>() {
            Ok(node_message) => {
                if let NodeMessage::Names(_, names::Input::Ask(id, request)) = *node_message {
                    assert!(matches!(request.ask, Ask::Walk { .. }), "{request:?}");
                    let reply = Ok(Reply::Walked(Vec::new(), Some(NodeId(9))));
                    let envelope = Envelope(Box::new(NodeMessage::Reply(id, reply, 0)));
                    let done = Done::Envelope(envelope);
                    self.events.push_back(Event { id: OpId::UNREQUESTED, done });
                }
            }
            Err(other) => {
                let crossing = other.downcast::<Crossing>().expect("it is one");
                if let Crossing::Home(ToHome::Ended(_, report)) = *crossing {
                    self.report = Some(*report);
                    self.events.push_back(Event { id: OpId::UNREQUESTED, done: Done::Stop });
                }
            }
        }
    }

    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        self.cost(COST);
        if deadline.is_none_or(|at| at.0 > self.spent.get()) {
            let long = 200_000;
            self.cost(long);
            self.looked += long + COST - u64::try_from(WAIT_MAX.as_nanos()).expect("it is short");
            assert!(!self.events.is_empty(), "it waits for ever");
        }
        events.extend(self.events.pop_front());
    }
}

/// A storelet that executes this body a thousand times, and then exits.
fn begin(body: &str) -> Begin {
    let engine = Engine::new(Pace::Fuel(1_000_000)).expect("an engine");
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
          (memory (export "memory") 1)
          (func (export "_start") (local $left i32)
            (local.set $left (i32.const 1000))
            (loop $on {body}
              (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#
    );
    let program = engine.compile(&wat::parse_str(text).expect("it is text")).expect("a program");
    let (hash, code) = (Hash([0; 32]), Code::Plain);
    let program = Fresh { hash, code, program, was_there: true, cpu_ns: 0 };
    let run_spec = RunSpec::parse(b"module 1\ncpu 1h\ntime 1h").expect("an order");
    let account = Account { user: 1, client: 1 };
    Begin { program, run_spec, caller: Caller::Server, account, seed: [0; 32] }
}

fn worker() -> Node {
    let export = Export {
        root: NodeId(0),
        device: 1,
        path: Vec::new(),
        wall: Time::from_secs(0),
        limits: Limits::default(),
        web: Web::default(),
        nfs: Nfs::default(),
        services: [].into(),
    };
    Node::worker(1, Config::of_tests(), export)
}

/// Runs a storelet; returns its report, and the time of the thread without polling.
fn run(body: &str) -> (Report, u64) {
    let (mut node, events) = (worker(), VecDeque::new());
    let mut world = World { spent: Cell::new(0), looked: 0, events, report: None };
    world.send(Crossing::Worker(ToWorker::Begin(DomainId(1), Box::new(begin(body)))));
    work(&mut node, &mut world, &mut || {});
    let report = world.report.take().expect("it has ended");
    (report, world.spent.get() - world.looked)
}

/// The cost of a storelet that yields continuously equals its charge, except for the end of the
/// thread itself; overhead is most of it, as its slices do next to nothing.
#[test]
fn one_that_gives_way_all_the_time_bears_what_it_costs() {
    let (report, spent) = run("(drop (call $yield))");
    assert_eq!(report.exit, Some(0), "{report:?}");
    let charged = report.used.cpu_ns + report.used.served_ns;
    assert!(report.used.slices > 1000 && spent > 1000 * 3 * COST, "{report:?}");
    let missing = spent.checked_sub(charged).expect("nobody is charged twice");
    assert!(missing < spent / 50, "{charged} of {spent} ns: {report:?}");
    // Polling of the reactor before it slept is not charged, except for a part.
    let (calm, _) = run("");
    let charged = calm.used.cpu_ns + calm.used.served_ns;
    assert!(charged < 4 * 20_000 + 60 * COST, "{calm:?}");
}
