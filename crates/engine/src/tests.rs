use super::*;
use base::rng::{Rng, seeded};
use std::cell::Cell;
use store::drive::{Memory, perform};
use store::{Geometry, HEAD_BYTES};

mod access;
mod contention;

pub(crate) const TABLE: Table = Table(300);

/// An engine on a disk in memory, with its replies.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    disk: Memory,
    io: VecDeque<Io>,
    replies: BTreeMap<Ticket, Result<Reply, Failure>>,
    next: Cell<u64>,
    pub(crate) now: Instant,
    config: Config,
    /// Source of the order in which the disk completes operations.
    rng: Rng,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let geometry = Geometry { block: 512, blocks: 16_384, journal: 512, segment: 256 };
        let memory = 200 * geometry.block;
        let config = Config::for_memory(memory, &geometry.layout().unwrap());
        Bench::open(Memory::formatted(&geometry).unwrap(), config)
    }

    fn open(mut disk: Memory, config: Config) -> Bench {
        use store::drive::Disk;
        let head = disk.head().unwrap();
        assert_eq!(head.len(), HEAD_BYTES);
        let (now, mut out) = (Instant(1), Vec::new());
        let engine = Engine::open(&head, config, now, &mut out).unwrap();
        let (io, replies) = (VecDeque::new(), BTreeMap::new());
        let (next, rng) = (Cell::new(0), seeded(1));
        let mut bench = Bench { engine, disk, io, replies, next, now, config, rng };
        bench.take(out);
        bench.run();
        bench
    }

    /// Simulates a power failure, and opens the volume again.
    pub(crate) fn crash(mut self) -> Bench {
        self.disk.lose_power();
        Bench::open(self.disk, self.config)
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Io(io) => self.io.push_back(io),
                Output::Opened(result) => assert_eq!(result, Ok(())),
                Output::Reply(ticket, reply) => {
                    assert!(self.replies.insert(ticket, reply).is_none(), "answered once");
                }
            }
        }
    }

    pub(crate) fn submit(&mut self, request: Request) -> Ticket {
        let ticket = Ticket(self.next.get());
        self.next.set(ticket.0 + 1);
        let mut out = Vec::new();
        self.engine.request(self.now, ticket, request, &mut out);
        self.take(out);
        self.engine.check();
        ticket
    }

    /// Performs one operation on the disk, or the end of a turn; returns whether there was work to
    /// do.
    pub(crate) fn step(&mut self) -> bool {
        let mut out = Vec::new();
        let which = self.rng.usize(0..self.io.len().max(1));
        let worked = match self.io.swap_remove_front(which) {
            Some(io) => {
                let (id, done) = perform(&mut self.disk, &io);
                self.engine.done(self.now, id, done, &mut out);
                true
            }
            None => {
                self.engine.tick(self.now, &mut out);
                !out.is_empty()
            }
        };
        self.take(out);
        self.engine.check();
        worked
    }

    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Failure>> {
        self.replies.remove(&ticket)
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        let ticket = self.submit(request);
        self.run();
        self.answer(ticket).expect("it waits for nothing")
    }

    pub(crate) fn begin(&mut self) -> TransactionId {
        match self.ask(Request::Begin { view: View::Present, writable: true }) {
            Ok(Reply::Begun(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit(&mut self, transaction: TransactionId) -> Result<Reply, Failure> {
        self.ask(Request::Commit { transaction, durability: Durability::Durable })
    }
}

pub(crate) fn alone(call: Call) -> Request {
    Request::Call(On::Once(View::Present, Durability::Durable), call)
}

pub(crate) fn within(transaction: TransactionId, call: Call) -> Request {
    Request::Call(On::Transaction(transaction), call)
}

pub(crate) fn get(key: &[u8]) -> Call {
    Call::Get { table: TABLE, key: key.to_vec() }
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> Call {
    Call::Put { table: TABLE, key: key.to_vec(), value: value.to_vec() }
}

pub(crate) fn value(bytes: &[u8]) -> Result<Reply, Failure> {
    Ok(Reply::Value(Some(bytes.to_vec())))
}

const NONE: Result<Reply, Failure> = Ok(Reply::Value(None));
const DONE: Result<Reply, Failure> = Ok(Reply::Done);

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_when_it_commits() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(alone(put(b"a", b"old"))), DONE);
    let tx = bench.begin();
    assert_eq!(bench.ask(within(tx, put(b"a", b"new"))), DONE);
    assert_eq!(bench.ask(within(tx, get(b"a"))), value(b"new"));
    assert_eq!(bench.ask(alone(get(b"a"))), value(b"old"));
    assert_eq!(bench.commit(tx), DONE);
    assert_eq!(bench.ask(alone(get(b"a"))), value(b"new"));
    assert_eq!(bench.ask(within(tx, get(b"a"))), Err(Failure::Over));
    let mut bench = bench.crash();
    assert_eq!(bench.ask(alone(get(b"a"))), value(b"new"));
}

#[test]
fn uncommitted_changes_leave_no_trace() {
    let mut bench = Bench::new();
    let (one, two) = (bench.begin(), bench.begin());
    assert_eq!(bench.ask(within(one, put(b"a", b"1"))), DONE);
    assert_eq!(bench.ask(within(two, put(b"b", b"2"))), DONE);
    assert_eq!(bench.ask(Request::Rollback { transaction: one }), DONE);
    assert_eq!(bench.ask(alone(get(b"a"))), NONE);
    let mut bench = bench.crash();
    assert_eq!(bench.ask(alone(get(b"b"))), NONE);
    assert_eq!(bench.ask(within(two, get(b"b"))), Err(Failure::Over));
}

#[test]
fn idle_transactions_are_rolled_back_and_release_their_locks() {
    let mut bench = Bench::new();
    let tx = bench.begin();
    assert_eq!(bench.ask(within(tx, put(b"a", b"1"))), DONE);
    let waits = bench.submit(alone(put(b"a", b"2")));
    bench.run();
    assert_eq!(bench.answer(waits), None);
    assert_eq!(bench.engine.counts().1, 1);
    bench.now = bench.engine.deadline().unwrap().max(bench.now + IDLE_MAX);
    bench.run();
    assert_eq!(bench.answer(waits), Some(DONE));
    assert_eq!(bench.ask(within(tx, get(b"a"))), Err(Failure::Over));
    assert_eq!(bench.ask(alone(get(b"a"))), value(b"2"));
    assert_eq!(bench.engine.counts(), (0, 0, BTreeMap::new()));
}

#[test]
fn a_snapshot_is_read_as_it_was_and_never_written() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(alone(put(b"a", b"old"))), DONE);
    let date = base::Time::from_secs(7);
    assert_eq!(bench.ask(Request::Snapshot { name: b"s".to_vec(), date }), DONE);
    assert_eq!(bench.ask(alone(put(b"a", b"new"))), DONE);
    let Ok(Reply::Snapshots(all)) = bench.ask(Request::Snapshots) else { panic!() };
    assert_eq!((all[0].0.as_slice(), all[0].2), (&b"s"[..], date));
    let view = View::Snapshot(all[0].1);
    let once = Request::Call(On::Once(view, Durability::Soon), get(b"a"));
    assert_eq!(bench.ask(once.clone()), value(b"old"));
    let write = Request::Call(On::Once(view, Durability::Soon), put(b"a", b"x"));
    assert_eq!(bench.ask(write), Err(Error::ReadOnly.into()));
    let begin = Request::Begin { view, writable: true };
    assert_eq!(bench.ask(begin), Err(Error::ReadOnly.into()));
    assert_eq!(bench.ask(Request::DropSnapshot { name: b"s".to_vec() }), DONE);
    assert_eq!(bench.ask(once), Err(Error::NotFound.into()));
}

#[test]
fn a_transaction_may_be_only_for_reading() {
    let mut bench = Bench::new();
    let begin = Request::Begin { view: View::Present, writable: false };
    let Ok(Reply::Begun(tx)) = bench.ask(begin) else { panic!() };
    assert_eq!(bench.ask(within(tx, get(b"a"))), NONE);
    assert_eq!(bench.ask(within(tx, put(b"a", b"1"))), Err(Error::ReadOnly.into()));
    // The keys that it has read do not change until it ends.
    let waits = bench.submit(alone(put(b"a", b"1")));
    bench.run();
    assert_eq!(bench.answer(waits), None);
    assert_eq!(bench.commit(tx), DONE);
    bench.run();
    assert_eq!(bench.answer(waits), Some(DONE));
}

#[test]
fn closing_answers_everybody_and_keeps_what_was_committed() {
    let mut bench = Bench::new();
    let tx = bench.begin();
    assert_eq!(bench.ask(within(tx, put(b"a", b"1"))), DONE);
    let waits = bench.submit(alone(put(b"a", b"2")));
    let soon = Request::Call(On::Once(View::Present, Durability::Soon), put(b"b", b"3"));
    assert_eq!(bench.ask(soon), DONE);
    assert_eq!(bench.ask(Request::Close), DONE);
    assert!(bench.answer(waits).is_some());
    assert_eq!(bench.ask(alone(get(b"b"))), Err(Error::ReadOnly.into()));
    let mut bench = bench.crash();
    assert_eq!(bench.ask(alone(get(b"b"))), value(b"3"));
}

#[test]
fn an_oversized_change_is_refused_and_the_transaction_continues() {
    let mut bench = Bench::new();
    let tx = bench.begin();
    let layout = *bench.engine.store().layout();
    let too_large = Err(Error::TooLarge.into());
    let long = vec![0; layout.value_max() + 1];
    assert_eq!(bench.ask(within(tx, put(b"a", &long))), too_large);
    assert_eq!(bench.ask(within(tx, put(&long[..=layout.key_max()], b""))), too_large);
    let large = vec![1; layout.value_max()];
    let mut fitted = 0;
    while bench.ask(within(tx, put(&[fitted], &large))) == DONE {
        fitted += 1;
    }
    assert!(usize::from(fitted) * large.len() <= layout.transaction_max());
    assert_eq!(bench.commit(tx), DONE);
    assert_eq!(bench.ask(alone(get(&[fitted - 1]))), value(&large));
}
