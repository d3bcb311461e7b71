use super::*;
use crate::{FromHome, Shadow};
use base::op::{Done, Envelope, Event, OpId};
use base::{Access, Automaton, Buf, Caller, Time};
use std::collections::BTreeMap;
use store::drive::{self, Disk as _, Memory};
use store::{Durability, Geometry, Ticket};
use tree::{Ask, NodeId, OpenId, Request};

const NOW: Instant = Instant(1);

/// Number of the requesting front.
const FRONT: usize = REPLICAS + 1;

fn settings(kind: &str) -> services::Settings {
    let (version, secret) = (services::settings::VERSION, [1; 32]);
    let text = format!(
        r#"{{
            "version": {version}, "id": 1, "service": "hits", "kind": "{kind}",
            "me": 1, "members": {{ "1": "" }}, "joins": false, "secret": {secret:?}
        }}"#
    );
    serde_json::from_str(&text).expect("settings as they are kept")
}

/// Creates a new replica with its disk.
fn replicated(kind: &str) -> (Replicated, Memory) {
    let mut disk = Memory::formatted(&Geometry::for_bytes(16 << 20)).expect("a disk");
    let head = disk.head().expect("a head");
    let layout = store::Superblock::newest(&head).expect("a volume").layout;
    let (config, mut outputs) = (store::Config::for_memory(1 << 20, &layout), Vec::new());
    let mut store = Store::open(&head, config, NOW, &mut outputs).expect("a volume");
    while let Some(output) = outputs.pop() {
        if let store::Output::Io(io) = output {
            let (id, done) = drive::perform(&mut disk, &io);
            store.done(NOW, id, done, &mut outputs);
        }
    }
    let changes = services::format(&settings(kind));
    store.commit(NOW, Ticket(0), &changes, Durability::Soon, &mut outputs).expect("room");
    let mut fetch = |_: &mut Store, missing| panic!("{missing:?} in a new volume");
    let kept = services::read_all(&mut store, &mut fetch).expect("a replica");
    let options = Options {
        wall: Time::default(),
        date: Time::default(),
        owner: 0,
        seed: [0; 32],
        addresses: BTreeMap::new(),
        limits: services::Limits::shared_by(1),
    };
    (Replicated { file: File(1), store: Box::new(store), kept, options }, disk)
}

fn home() -> Node {
    Node::new(Config::of_tests(), Served::Skeleton { paths: Vec::new() }, Vec::new())
}

#[test]
fn one_client_leaves_some_files_of_a_replica_to_the_others() {
    let mut node = home();
    // An open fid counts as two handles.
    assert!(node.export().limits.fids / 2 >= services::OPENS_MAX);
    node.host(&["hits".to_string()]);
    let most = node.export().limits.fids / 2;
    assert!(most > 10_000 && most < services::OPENS_MAX / 2, "{most}");
}

/// Home, the node that has a replica, and a front; messages arrive when they are carried.
struct Lab {
    nodes: [Node; 2],
    node_messages: [Vec<Envelope>; 3],
    disk: Memory,
    front: Shadow,
    requested: u64,
    answers: BTreeMap<u64, Result<Reply, Error>>,
}

impl Lab {
    fn new(kind: &str) -> Lab {
        let ((replica, disk), mut node) = (replicated(kind), home());
        let trees = node.host(&["hits".to_string()]);
        let mut ops = Vec::new();
        node.set_fronts(FRONT..=FRONT, &mut ops);
        let other = Node::replicas(Config::of_tests(), vec![(trees[0], replica)]);
        let (node_messages, front) = (Default::default(), Shadow::new(FRONT));
        let nodes = [node, other];
        let mut lab =
            Lab { nodes, node_messages, disk, front, requested: 0, answers: BTreeMap::new() };
        lab.turn(HOME, Vec::new());
        lab.turn(REPLICAS, Vec::new());
        lab
    }

    /// Runs a turn of a node, and performs its operations.
    fn turn(&mut self, number: usize, mut events: Vec<Event>) {
        let mut ops = Vec::new();
        self.nodes[number].turn(NOW, &crate::ticking(NOW), &mut events, &mut ops);
        self.nodes[number].check();
        for op in ops {
            if let Op::Post { to, envelope } = op {
                self.node_messages[to].push(envelope);
                continue;
            }
            assert_eq!(number, REPLICAS, "home has no disk: {op:?}");
            let (id, done) = perform(&mut self.disk, op);
            self.turn(number, vec![Event { id, done }]);
        }
    }

    /// Delivers all pending messages of a node.
    fn carry(&mut self, to: usize) {
        let node_messages = std::mem::take(&mut self.node_messages[to]);
        let event = |envelope| Event { id: OpId::UNREQUESTED, done: Done::Envelope(envelope) };
        match to {
            FRONT => {
                for node_message in node_messages {
                    if let FromHome::Reply(id, reply) = self.front.handle(node_message) {
                        assert!(self.answers.insert(id.0, reply).is_none(), "answered twice");
                    }
                }
            }
            node => self.turn(node, node_messages.into_iter().map(event).collect()),
        }
    }

    /// Delivers messages until none is left.
    fn settle(&mut self) {
        while self.node_messages.iter().any(|node_messages| !node_messages.is_empty()) {
            (HOME..=FRONT).for_each(|to| self.carry(to));
        }
        while self.nodes[REPLICAS].deadline().is_some_and(|at| at <= NOW) {
            self.turn(REPLICAS, Vec::new());
        }
        if self.node_messages.iter().any(|node_messages| !node_messages.is_empty()) {
            self.settle();
        }
    }

    fn send_home(&mut self, input: names::Input) {
        let Op::Post { envelope, .. } = self.front.send_home(input) else {
            panic!("it is a message")
        };
        self.node_messages[HOME].push(envelope);
    }

    fn ask(&mut self, ask: Ask) -> u64 {
        self.requested += 1;
        let id = RequestId(self.requested);
        self.send_home(names::Input::Ask(id, Request { caller: Caller::Server, ask }));
        self.requested
    }

    fn answer(&mut self, ask: Ask) -> Reply {
        let id = self.ask(ask);
        self.settle();
        self.answers.remove(&id).expect("an answer").expect("a requested entry exists")
    }

    fn find(&mut self, path: [&str; 3]) -> NodeId {
        let names = path.into_iter().map(plain).collect();
        let from = self.nodes[HOME].export().root;
        let Reply::Walked(_, Some(node)) = self.answer(Ask::Walk { from, names }) else {
            panic!("{path:?} is not there")
        };
        node
    }

    fn open(&mut self, path: [&str; 3]) -> OpenId {
        let (node, access) = (self.find(path), Access { write: true, ..Access::READ });
        let access = if path[2] == "ops" { access } else { Access::READ };
        let reply = self.answer(Ask::Open { node, access });
        self.send_home(names::Input::Release(node));
        let Reply::Opened(open, _) = reply else { panic!("{reply:?}") };
        open
    }

    fn write(open: OpenId, text: &str) -> Ask {
        Ask::Write { open, offset: 0, data: Buf::from(text.as_bytes()) }
    }
}

const READ: u32 = 1 << 16;

fn read(open: OpenId) -> Ask {
    Ask::Read { open, offset: 0, count: READ, headroom: 0 }
}

const BLOCK: u64 = 4096;

/// Performs a reactor operation on a disk in memory.
fn perform(disk: &mut Memory, op: Op) -> (OpId, Done) {
    #[allow(clippy::wildcard_enum_match_arm, reason = "a store asks for nothing else")]
    match op {
        Op::ReadBlocks { id, offset, count, .. } => {
            (id, Done::Blocks(disk.read(offset / BLOCK, count)))
        }
        Op::WriteBlocks { id, offset, blocks, durable, .. } => {
            (id, Done::Stored(disk.write(offset / BLOCK, &blocks, durable)))
        }
        Op::Sync { id, .. } => (id, Done::Synced(disk.flush())),
        other => panic!("{other:?}"),
    }
}

/// Formulas that take a turn each, while home serves other requests.
#[test]
fn home_answers_while_a_replica_works() {
    let mut lab = Lab::new("sheet");
    let ops = lab.open(["services", "hits", "ops"]);
    let cells: Vec<String> = (1..=200).map(|row| format!("\"A{row}\": \"{row}\"")).collect();
    let load = format!("{{\"op\": {{\"load\": {{{}}}}}}}\n", cells.join(", "));
    lab.answer(Lab::write(ops, &load));
    let formula = "{\"op\": {\"set\": [\"B1\", \"=SUM(A1:A200)\"]}}\n";
    let write = lab.ask(Lab::write(ops, &formula.repeat(100)));
    lab.carry(HOME);
    assert!(!lab.node_messages[REPLICAS].is_empty(), "the lines are on their way");
    // The other node is stopped; home is not.
    let from = lab.nodes[HOME].export().root;
    let walk = lab.ask(Ask::Walk { from, names: vec![plain("services")] });
    lab.carry(HOME);
    lab.carry(FRONT);
    assert!(matches!(lab.answers.remove(&walk), Some(Ok(Reply::Walked(_, Some(_))))));
    assert!(!lab.answers.contains_key(&write));
    lab.settle();
    assert!(matches!(lab.answers.remove(&write), Some(Ok(Reply::Written(_)))));
    let mut outputs = String::new();
    while outputs.lines().count() < 101 {
        let Reply::Data(data) = lab.answer(read(ops)) else { panic!("it is a read") };
        outputs.push_str(std::str::from_utf8(&data).expect("JSON"));
    }
    assert!(outputs.lines().all(|line| line.starts_with("{\"value\":")), "{:.200}", outputs);
}

/// A read of `events` waits until an operation is stable.
#[test]
fn a_request_is_cancelled_in_both_nodes() {
    let mut lab = Lab::new("counter");
    let (events, ops) =
        (lab.open(["services", "hits", "events"]), lab.open(["services", "hits", "ops"]));
    let first = lab.ask(read(events));
    lab.settle();
    assert!(lab.answers.is_empty(), "it waits");
    lab.send_home(names::Input::Cancel(RequestId(first)));
    lab.settle();
    assert!(matches!(lab.answers.remove(&first), Some(Err(Error::Cancelled))));
    // An event and the cancellation cross.
    let second = lab.ask(read(events));
    lab.settle();
    let write = lab.ask(Lab::write(ops, "add 1\n"));
    lab.carry(HOME);
    lab.carry(REPLICAS);
    lab.send_home(names::Input::Cancel(RequestId(second)));
    lab.carry(HOME);
    lab.settle();
    assert!(matches!(lab.answers.remove(&second), Some(Ok(Reply::Data(_)))));
    assert!(lab.answers.remove(&write).is_some() && lab.answers.is_empty());
    assert_eq!(lab.nodes[HOME].held().iter().map(|(_, opens)| opens).sum::<usize>(), 2);
}

#[test]
fn home_closes_replicas_last() {
    let mut lab = Lab::new("counter");
    let (events, ops) =
        (lab.open(["services", "hits", "events"]), lab.open(["services", "hits", "ops"]));
    lab.answer(Lab::write(ops, "add 1\n"));
    let waits = lab.ask(read(events));
    lab.settle();
    // The event of the operation.
    assert!(lab.answers.remove(&waits).is_some());
    let waits = lab.ask(read(events));
    lab.settle();
    assert!(!lab.answers.contains_key(&waits));
    lab.turn(HOME, vec![Event { id: OpId::UNREQUESTED, done: Done::Stop }]);
    lab.settle();
    let end = lab.answers.remove(&waits).expect("nobody waits for events at the end");
    assert!(matches!(end, Ok(Reply::Data(data)) if data.is_empty()));
    assert!(lab.nodes.iter().all(|node| !node.is_over()), "a front is there");
    let late = lab.ask(read(ops));
    lab.settle();
    assert!(matches!(lab.answers.remove(&late), Some(Ok(Reply::Data(_)))));
    [events, ops].into_iter().for_each(|open| lab.send_home(names::Input::Close(open)));
    let Op::Post { envelope, .. } = lab.front.leave() else { panic!("it is a message") };
    lab.node_messages[HOME].push(envelope);
    lab.carry(HOME);
    assert!(!lab.nodes[HOME].is_over() && !lab.nodes[REPLICAS].is_over());
    lab.settle();
    assert!(lab.nodes.iter().all(|node| node.is_over() && node.is_quiet()));
}
