//! A replica as seen by its server: requests on its files, and operations for the reactor.

mod members;
mod silence;

use super::*;
use crate::journal::lab::{NOW, formatted, formatted_as, kept, perform, settings};
use crate::proof::Seals;
use crate::unauthenticated::UNPROVEN_MAX;
use base::Buf;
use base::op::Op;
use base::rng::seeded;
use replica::data::kind::Operator as Plain;
use replica::data::{log, once};
use replica::service::{ChangeRequest, Entry, Label, Message, Vector};
use serde_json::json;
use std::sync::Arc;
use store::drive::Memory;
use tree::OpenId;

const OTHER: ReplicaId = ReplicaId(2);

/// Replica with a client.
struct Lab {
    hosted: Hosted,
    disk: Memory,
    /// Whether writes to the disk fail.
    is_broken: bool,
    requested: u64,
    /// Keys of authenticated open files, and the bytes written to each.
    seals: BTreeMap<OpenId, (Seals, u64)>,
    /// Replies by request number.
    answers: BTreeMap<u64, Result<Reply, Error>>,
}

impl Lab {
    fn new() -> Lab {
        Lab::on(formatted())
    }

    fn on(mut disk: Memory) -> Lab {
        let (store, kept) = kept(&mut disk);
        let nobody = vec![Address::Unix(b"/nowhere".to_vec())];
        let options = Options {
            wall: Time::default(),
            date: Time::default(),
            owner: 0,
            seed: [1; 32],
            addresses: BTreeMap::from([(OTHER, nobody)]),
            limits: Limits::shared_by(1),
        };
        let hosted = Hosted::new(3, File(0), store, kept, options);
        let (seals, answers) = (BTreeMap::new(), BTreeMap::new());
        Lab { hosted, disk, is_broken: false, requested: 0, seals, answers }
    }

    /// Runs one turn: an input, and all resulting disk operations.
    fn turn(&mut self, input: Input) {
        let mut out = Vec::new();
        self.hosted.step(NOW, input, &mut out);
        loop {
            self.hosted.tick(NOW, &mut out);
            if out.is_empty() {
                break;
            }
            for output in mem::take(&mut out) {
                match output {
                    // There is no network here, so connections stay pending.
                    Output::Do(Op::Connect { .. } | Op::Cancel { .. }) => {}
                    Output::Do(Op::WriteBlocks { id, .. }) if self.is_broken => {
                        let done = Done::Stored(Err(Error::Io));
                        self.hosted.step(NOW, Input::Done(id, done), &mut out);
                    }
                    Output::Do(op) => {
                        let (id, done) = perform(&mut self.disk, op);
                        self.hosted.step(NOW, Input::Done(id, done), &mut out);
                    }
                    Output::Reply(id, reply) => {
                        assert!(self.answers.insert(id.0, reply).is_none(), "answered twice");
                    }
                    other @ (Output::Render(..)
                    | Output::Command { .. }
                    | Output::CancelCommand(_)
                    | Output::AsClient(_)) => panic!("{other:?}"),
                }
            }
        }
        self.hosted.check();
    }

    /// Sends a request; returns its number.
    fn ask(&mut self, ask: Ask) -> u64 {
        self.requested += 1;
        let request = Request { caller: Caller::Server, ask };
        self.turn(Input::Ask(RequestId(self.requested), request));
        self.requested
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        let id = self.ask(ask);
        self.answers.remove(&id).expect("it is answered at once")
    }

    fn open(&mut self, name: &str) -> OpenId {
        let from = self.hosted.root();
        let names = vec![Name::new(name.as_bytes()).expect("a name")];
        let walked = self.answer(Ask::Walk { from, names });
        let Ok(Reply::Walked(_, Some(node))) = walked else { panic!("{walked:?}") };
        let write = ["ops", "peer"].contains(&name);
        let access = Access { read: true, write, ..Access::default() };
        let opened = self.answer(Ask::Open { node, access });
        let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
        open
    }

    fn write(&mut self, open: OpenId, offset: u64, bytes: &[u8]) -> Result<Reply, Error> {
        self.answer(Ask::Write { open, offset, data: Buf::from(bytes) })
    }

    fn read(&mut self, open: OpenId) -> Result<Reply, Error> {
        self.answer(Ask::Read { open, offset: 0, count: 1 << 20, headroom: 0 })
    }

    fn text(&mut self, open: OpenId) -> String {
        let answer = self.read(open);
        let Ok(Reply::Data(data)) = answer else { panic!("{answer:?}") };
        String::from_utf8_lossy(&data).into_owned()
    }

    /// Returns the current contents of a file.
    fn file(&mut self, name: &str) -> String {
        let open = self.open(name);
        let text = self.text(open);
        self.turn(Input::Close(open));
        text
    }

    /// Opens and authenticates a file `peer` as the other replica.
    fn enter(&mut self) -> OpenId {
        let open = self.open("peer");
        let Ok(Reply::Data(challenge)) = self.read(open) else { panic!("a challenge") };
        let theirs = Settings { me: OTHER, ..settings() };
        let introduction = Introduction::new(&theirs, settings().me, &challenge, [1; CHALLENGE]);
        assert!(self.write(open, 0, &introduction.proof).is_ok());
        self.seals.insert(open, (introduction.seals, 0));
        open
    }

    /// Writes these bytes as a message of the other replica.
    fn write_bytes(&mut self, open: OpenId, bytes: &[u8]) -> Result<Reply, Error> {
        let (seals, at) = self.seals.get_mut(&open).expect("it has come in");
        let (frame, offset) = (seals.ours.frame(bytes), *at);
        *at += frame.len() as u64;
        self.write(open, offset, &frame)
    }

    fn tell(&mut self, open: OpenId, message: &Message<Operator>) -> Result<Reply, Error> {
        self.write_bytes(open, &peer_message(message))
    }
}

/// Returns an operation of the other replica.
fn entry(number: u64, record: &str) -> Arc<Entry<Operator>> {
    let operator = Plain::Log(log::Operator::Append(record.into()));
    let operator = once::Operator { stamp: 0, once: None, forgets: false, operator };
    let label = Label { counter: number, origin: OTHER };
    Arc::new(Entry { number, label, after: Vector::new(), strict: false, operator })
}

fn peer_message(message: &Message<Operator>) -> Vec<u8> {
    PeerMessage::Gossip(message.clone()).bytes()
}

/// Returns a message of the other replica with these operations.
fn message(entries: Vec<Arc<Entry<Operator>>>) -> Message<Operator> {
    let has = [(OTHER, entries.len() as u64)].into_iter().collect();
    let epoch = Membership::first(BTreeMap::new()).epoch;
    Message { entries, has, asks: true, epoch, change: None, reached: None }
}

#[test]
fn a_client_asks_and_reads_and_may_leave() {
    let mut lab = Lab::new();
    let ops = lab.open("ops");
    assert_eq!(lab.text(ops), "", "nothing was requested");
    lab.write(ops, 0, b"append a\n{\"op\": \"size\"}\nfly\n").expect("taken");
    let outputs = lab.text(ops);
    let lines: Vec<&str> = outputs.lines().collect();
    assert_eq!(lines[0], "{\"value\":0,\"final\":false,\"token\":\"00000007-1:1\"}");
    assert_eq!(lines[1], "{\"value\":1,\"final\":false,\"token\":\"00000007-1:1\"}");
    assert!(lines[2].starts_with("{\"error\":") && lines[2].contains("malformed"), "{outputs}");
    assert_eq!((lab.file("value").as_str(), lab.file("stable").as_str()), ("\"a\"\n", ""));
    lab.write(ops, 0, b"after 8-1:1\nsize\nafter 7-1:1\nsize\n").expect("taken");
    let outputs = lab.text(ops);
    let lines: Vec<&str> = outputs.lines().collect();
    assert!(lines[0].contains("token of another service; omit it"), "{outputs}");
    assert!(lines[0].ends_with("\"reason\":\"token\"}") && lines[1].contains("\"value\":1"));
    // A strict operation waits for the other replica; its read is pending, and can be cancelled.
    lab.write(ops, 0, b"strict size\n").expect("taken");
    let waiting = lab.ask(Ask::Read { open: ops, offset: 0, count: 100, headroom: 0 });
    assert!(!lab.answers.contains_key(&waiting));
    lab.turn(Input::Cancel(RequestId(waiting)));
    assert_eq!(
        lab.answers.remove(&waiting).map(|answer| answer.err()),
        Some(Some(Error::Cancelled))
    );
    let waiting = lab.ask(Ask::Read { open: ops, offset: 0, count: 100, headroom: 0 });
    lab.turn(Input::Close(ops));
    assert_eq!(
        lab.answers.remove(&waiting).map(|answer| answer.err()),
        Some(Some(Error::Cancelled))
    );
    assert!(lab.hosted.tickets.is_empty());
    assert_eq!(lab.hosted.opens(), 0);
}

/// Each turn processes a few lines, and none while answers are unread.
#[test]
fn a_client_may_ask_very_much_at_once() {
    let mut lab = Lab::new();
    lab.hosted.limits.work = 100;
    lab.hosted.end_turn();
    let ops = lab.open("ops");
    let count = 50_000;
    lab.write(ops, 0, &b"size\n".repeat(count)).expect("taken");
    assert_eq!(lab.write(ops, 0, b"size\n").err(), Some(Error::Busy));
    // A read in the same turn waits for the next lines instead of returning the end.
    let mut out = Vec::new();
    for number in 0..3 {
        let ask = Ask::Read { open: ops, offset: 0, count: 1 << 20, headroom: 0 };
        let request = Request { caller: Caller::Server, ask };
        lab.hosted.step(NOW, Input::Ask(RequestId(1_000_000 + number), request), &mut out);
    }
    assert_eq!(out.len(), 1, "{out:?}");
    let Output::Reply(_, Ok(Reply::Data(first))) = &out[0] else { panic!("{out:?}") };
    let mut lines = first.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lab.hosted.deadline(), Some(Instant(0)));
    lab.turn(Input::Release(lab.hosted.root()));
    for id in [1_000_001, 1_000_002] {
        let answer = lab.answers.remove(&id);
        let Some(Ok(Reply::Data(data))) = answer else { panic!("{answer:?}") };
        lines += data.iter().filter(|byte| **byte == b'\n').count();
    }
    while lines < count {
        lines += lab.text(ops).lines().count();
    }
    assert_eq!((lines, lab.text(ops).as_str()), (count, ""));
}

#[test]
fn another_replica_tells_and_what_is_final_is_shown() {
    let mut lab = Lab::new();
    let (events, peer) = (lab.open("events"), lab.enter());
    let message = message(vec![entry(1, "x"), entry(2, "y")]);
    lab.tell(peer, &message).expect("taken");
    // Both are final as soon as they are in this journal: the other replica has them.
    assert_eq!(lab.file("stable"), "\"x\"\n\"y\"\n");
    let reported = lab.text(events);
    assert_eq!(reported.lines().count(), 2, "{reported}");
    assert!(
        reported.starts_with("{\"replica\":2,\"number\":1,\"op\":{\"append\":\"x\"},\"value\":0}")
    );
    assert!(lab.file("status").contains("\ndone     2:2\n"), "{}", lab.file("status"));
    // A new connection of a replica replaces its old one.
    let later = lab.enter();
    assert_eq!(lab.tell(peer, &message).err(), Some(Error::Denied));
    lab.tell(later, &message).expect("taken");
    let again = Lab::on(lab.disk).file("value");
    assert_eq!(again, "\"x\"\n\"y\"\n", "it is in the journal");
}

#[test]
fn nobody_waits_for_what_does_not_come_when_the_server_ends() {
    let mut lab = Lab::new();
    let (ops, events) = (lab.open("ops"), lab.open("events"));
    lab.write(ops, 0, b"strict size\nsize\n").expect("taken");
    let ask = |open| Ask::Read { open, offset: 0, count: 1000, headroom: 0 };
    let (answers, news) = (lab.ask(ask(ops)), lab.ask(ask(events)));
    assert!(lab.answers.is_empty());
    let mut out = Vec::new();
    lab.hosted.drain(NOW, &mut out);
    let is_end = |output: &Output, of: u64| {
        let Output::Reply(id, Ok(Reply::Data(data))) = output else { return false };
        id.0 == of && data.is_empty()
    };
    assert!(out.len() == 1 && is_end(&out[0], news), "{out:?}");
    // Answers may still come for a second; after that the reads end, too.
    let until = lab.hosted.deadline().expect("it is looked at in time");
    assert!(until <= NOW + Duration::from_secs(1));
    out.clear();
    lab.hosted.tick(NOW + Duration::from_secs(1), &mut out);
    assert!(out.iter().any(|output| is_end(output, answers)), "{out:?}");
    assert_eq!((lab.text(ops), lab.text(events)), (String::new(), String::new()));
}

#[test]
fn few_who_have_proved_nothing_are_waited_for() {
    let mut lab = Lab::new();
    let known = lab.enter();
    let unauthenticated: Vec<OpenId> = (0..UNPROVEN_MAX + 2).map(|_| lab.open("peer")).collect();
    let waited = |lab: &mut Lab, open: &OpenId| lab.read(*open).is_ok();
    let received: Vec<bool> = unauthenticated.iter().map(|open| waited(&mut lab, open)).collect();
    assert_eq!(received.iter().position(|received| *received), Some(2), "the oldest went first");
    assert!(received[2..].iter().all(|received| *received));
    lab.tell(known, &message(vec![entry(1, "x")])).expect("an authenticated peer stays");
    for open in unauthenticated {
        lab.turn(Input::Close(open));
    }
    assert!(lab.hosted.unauthenticated.is_empty());
}

/// Memory for incomplete requests and unread answers is bounded; other clients are not affected.
#[test]
fn memory_of_open_files_is_bounded() {
    let mut lab = Lab::new();
    lab.hosted.limits.held = 10 << 20;
    let half = vec![b'x'; 1 << 20];
    let opens: Vec<OpenId> = (0..30).map(|_| lab.open("ops")).collect();
    let taken = opens.iter().filter(|open| lab.write(**open, 0, &half).is_ok()).count();
    assert_eq!((taken, lab.hosted.held()), (10, 10 << 20));
    assert_eq!(lab.write(opens[20], 0, &half).err(), Some(Error::NoMemory));
    // The largest file is evicted in favour of smaller ones.
    let other = lab.open("ops");
    lab.write(other, 0, b"size\n").expect("taken");
    assert!(lab.text(other).starts_with("{\"value\":0,"));
    assert!(lab.hosted.held() <= 9 << 20);
    let given_up = opens.iter().filter(|open| lab.read(**open).err() == Some(Error::NoMemory));
    assert_eq!(given_up.count(), 1);
    // The same applies to unread answers and texts; the evicted file's requests fail with out of
    // memory.
    let line = format!("append {}\n", "x".repeat(900_000));
    for part in line.as_bytes().chunks(200_000) {
        lab.write(other, 0, part).expect("taken");
    }
    assert!(lab.text(other).starts_with("{\"value\":0,"));
    lab.write(other, 0, &b"read 0 1\n".repeat(20)).expect("taken");
    assert!(lab.hosted.held() <= 10 << 20);
    let outputs: String =
        std::iter::from_fn(|| Some(lab.text(other)).filter(|it| !it.is_empty())).collect();
    assert_eq!(outputs.lines().count(), 20);
    lab.open("value");
    assert!(lab.hosted.held() <= 10 << 20);
    let node = lab.hosted.root();
    lab.turn(Input::Release(node));
    for open in opens {
        lab.turn(Input::Close(open));
    }
    lab.turn(Input::Close(other));
    assert!(lab.hosted.held() < 1 << 20, "the text is left: {}", lab.hosted.held());
}

/// Unread answers of any kind are bounded: values and rejections.
#[test]
fn unread_answers_have_an_end() {
    let long = format!("{}\n", "x".repeat(240));
    for line in ["x\n", &long, "size\n", "{\"op\": \"size\", \"after\": \"x\"}\n"] {
        let mut lab = Lab::new();
        lab.hosted.limits.held = 1 << 20;
        let opens: Vec<OpenId> = (0..20).map(|_| lab.open("ops")).collect();
        for round in 0..20 {
            for open in &opens {
                // With lines pending or after an eviction, writes fail.
                let _ = lab.write(*open, 0, line.repeat(200).as_bytes());
                let held = lab.hosted.held();
                assert!(held <= 1 << 20, "{held} bytes in round {round} of {line:?}");
            }
        }
        let is_given_up = |open: &&OpenId| lab.hosted.opens[open.local()].held() == 0;
        let given_up = opens.iter().filter(is_given_up).count();
        assert!(given_up > 0, "{line:?}: {} bytes", lab.hosted.held());
        // Other files have room, and what is left can be read.
        let other = lab.open("ops");
        lab.write(other, 0, b"size\n").expect("taken");
        assert!(lab.text(other).starts_with("{\"value\":0,"));
        for open in opens {
            lab.turn(Input::Close(open));
        }
        assert_eq!(lab.hosted.held(), 0);
    }
}

/// A client that holds all the memory, in however many files, does not keep others out, and peers
/// keep theirs.
#[test]
fn memory_is_taken_from_the_client_that_holds_most() {
    let mut lab = Lab::new();
    lab.hosted.limits.held = 1 << 20;
    let peer = lab.enter();
    let opens: Vec<OpenId> = (0..256).map(|_| lab.open("ops")).collect();
    for open in &opens {
        let _ = lab.write(*open, 0, &[b'x'; 4096]);
    }
    let before = lab.hosted.held();
    assert!(before > (1 << 20) - 8192, "{before}");
    // Another client: the ids of its requests have its number.
    lab.requested = RequestId::new(5, 0).0;
    let other = lab.open("ops");
    lab.write(other, 0, format!("append {}\n", "y".repeat(300_000)).as_bytes()).expect("taken");
    assert!(lab.text(other).starts_with("{\"value\":0,"));
    assert!(lab.file("value").contains("yyy"));
    lab.tell(peer, &message(vec![entry(1, "x")])).expect("a peer stays");
    // It holds most then, and gives way.
    for _ in 0..3 {
        let _ = lab.write(other, 0, &[b'x'; 300_000]);
    }
    lab.requested = RequestId::new(6, 0).0;
    let third = lab.open("ops");
    lab.write(third, 0, b"size\n").expect("taken");
    assert!(lab.text(third).starts_with("{\"value\":"));
}

/// A final operation reaches many listeners in several turns.
#[test]
fn listeners_are_answered_a_few_at_a_time() {
    let mut lab = Lab::new();
    let many = 2 * super::super::files::LISTENERS + 1;
    let waiting: Vec<u64> = (0..many)
        .map(|_| {
            let open = lab.open("events");
            lab.ask(Ask::Read { open, offset: 0, count: 1000, headroom: 0 })
        })
        .collect();
    lab.hosted.has_events = true;
    let (mut out, mut turns) = (Vec::new(), 0);
    while lab.hosted.deadline() == Some(Instant(0)) {
        lab.hosted.tick(NOW, &mut out);
        lab.hosted.check();
        turns += 1;
    }
    assert_eq!(turns, 3);
    assert!(waiting.iter().all(|id| !lab.answers.contains_key(id)), "there was nothing to read");
}

/// A listener that does not read costs only its position.
#[test]
fn listeners_share_what_they_listen_to() {
    let mut lab = Lab::new();
    let listeners: Vec<OpenId> = (0..200).map(|_| lab.open("events")).collect();
    let peer = lab.enter();
    let record = "x".repeat(20_000);
    lab.tell(peer, &message((1..=20).map(|number| entry(number, &record)).collect())).expect("ok");
    assert!(lab.hosted.held() < 1 << 20, "{}", lab.hosted.held());
    for open in &listeners {
        assert_eq!(lab.text(*open).lines().count(), 20);
    }
    for open in listeners {
        lab.turn(Input::Close(open));
    }
    assert_eq!((lab.hosted.events.bytes(), lab.hosted.listeners), (0, 0));
}

/// The work of a turn is bounded, whatever is requested; and one file's lines do not starve
/// another's.
#[test]
fn a_turn_does_no_more_work_than_it_may() {
    let settings = Settings { kind: replica::data::Kind::Sheet, ..settings() };
    let mut lab = Lab::on(crate::journal::lab::formatted_of(&settings));
    lab.hosted.limits.work = 1000;
    lab.hosted.end_turn();
    let first = lab.open("ops");
    let cells: Vec<String> = (1..=9000).map(|row| format!("\"B{row}\":\"1\"")).collect();
    let load = format!("{{\"op\": {{\"load\": {{{}}}}}}}\n", cells.join(","));
    lab.write(first, 0, load.as_bytes()).expect("taken");
    assert!(lab.text(first).contains("done"));
    let formula = format!("set A1 ={}\n", ["SUM(B1:B9000)"; 10].join("+"));
    lab.write(first, 0, formula.as_bytes()).expect("taken");
    assert!(lab.text(first).contains("done"));
    // Twenty files request expensive operations again and again; then one requests a cheap one.
    let mut out = Vec::new();
    let mut write = |lab: &mut Lab, open: OpenId, line: &[u8]| {
        lab.requested += 1;
        let ask = Ask::Write { open, offset: 0, data: Buf::from(line) };
        let request = Request { caller: Caller::Server, ask };
        lab.hosted.step(NOW, Input::Ask(RequestId(lab.requested), request), &mut out);
    };
    let opens: Vec<OpenId> = (0..20).map(|_| lab.open("ops")).collect();
    let other = lab.open("ops");
    for open in &opens {
        write(&mut lab, *open, &b"get A1\n".repeat(10));
    }
    write(&mut lab, other, b"size\n");
    let (mut turns, mut answered) = (0, None);
    while lab.hosted.deadline() == Some(Instant(0)) {
        turns += 1;
        lab.hosted.tick(NOW, &mut Vec::new());
        lab.hosted.check();
        if answered.is_none() && lab.hosted.account.of(other.local()).1 > 0 {
            let Opened::Ops(op_session, _) = &mut lab.hosted.opens[other.local()] else {
                panic!("ops")
            };
            answered = op_session.read(1000).filter(|outputs| !outputs.is_empty()).map(|_| turns);
            lab.hosted.count(other.local());
        }
        assert!(turns < 100_000);
    }
    // At most one line of each file was processed before.
    let before = answered.expect("it is answered");
    assert!(before <= 40 && turns >= 200, "{before} of {turns} turns");
}

/// A skipped number is not reported as done; listeners can identify retries.
#[test]
fn numbers_that_are_passed_over_are_refused() {
    let mut lab = Lab::new();
    let (ops, events) = (lab.open("ops"), lab.open("events"));
    let ask = |lab: &mut Lab, number| {
        let op = json!({"op": {"append-blind": "x"}, "session": "f00d", "number": number});
        lab.write(ops, 0, format!("{op}\n").as_bytes()).expect("taken");
        lab.text(ops)
    };
    for number in [1, 40] {
        assert!(ask(&mut lab, number).starts_with("{\"value\":{\"done\":true}"));
    }
    let (peer, has) = (lab.enter(), [(settings().me, 2)].into_iter().collect());
    let news = Message { has, asks: false, ..message(Vec::new()) };
    lab.tell(peer, &news).expect("taken");
    let outputs = lab.text(events);
    assert!(outputs.ends_with(",\"number\":40}}\n"), "{outputs}");
    let outputs = ask(&mut lab, 2);
    assert!(outputs.contains("\"reason\":\"stale\"") && outputs.contains("behind 40"), "{outputs}");
    // The number is within the window, and has not executed.
    assert!(ask(&mut lab, 25).starts_with("{\"value\":{\"done\":true}"));
}

#[test]
fn a_full_replica_refuses_with_a_next_step() {
    let mut lab = Lab::on(formatted_as(10 << 20));
    let (ops, events) = (lab.open("ops"), lab.open("events"));
    let line = format!("append {}\n", "x".repeat(50_000));
    let mut taken = 0;
    let outputs = loop {
        lab.write(ops, 0, line.as_bytes()).expect("taken");
        let outputs = lab.text(ops);
        if !outputs.starts_with("{\"value\"") {
            break outputs;
        }
        taken += 1;
    };
    assert!(
        outputs.contains("upcall replica grow") && outputs.contains("\"no-room\""),
        "{outputs}"
    );
    assert!(taken > 10, "{taken}");
    assert!(lab.hosted.next_report().expect("news").contains("upcall replica grow"));
    assert!(lab.file("status").contains("\nfailed   the volume of this replica is full"));
    // Reads succeed, operations of others are deferred, and their acknowledgements are processed.
    lab.write(ops, 0, b"size\n").expect("taken");
    assert!(lab.text(ops).starts_with(&format!("{{\"value\":{taken},")));
    let (peer, has) = (lab.enter(), [(settings().me, taken)].into_iter().collect());
    let news = Message { has, asks: false, ..message(Vec::new()) };
    lab.tell(peer, &news).expect("taken");
    assert!(lab.text(events).starts_with("{\"replica\":1,\"number\":1,"));
    // It may leave, and that agreement is durable.
    let change_request =
        ChangeRequest { remove: [settings().me].into(), ..ChangeRequest::default() };
    let first = Membership::clone(lab.hosted.replica.membership());
    let theirs = service::Snapshot::empty(&lab.hosted.data, first);
    let other = Replica::recover(lab.hosted.data, OTHER, Hosted::config(), theirs, []);
    let change = Some(Arc::new(other.plan(&change_request).expect("it can")));
    let leave = Message { change, ..message(vec![entry(1, "x")]) };
    lab.tell(peer, &leave).expect("taken");
    assert!(lab.file("status").contains(&format!("\ndone     1:{taken}\n")));
    assert!(lab.file("status").contains("\nchange   to 2; "));
    let mut again = Lab::on(lab.disk);
    let done = format!("\ndone     1:{taken}\n");
    assert!(again.file("status").contains(&done), "acknowledged operations are present");
    assert!(again.file("status").contains("\nchange   to 2; "));
}

/// The sender may repeat it on each connection.
#[test]
fn impossible_peer_messages_are_logged_once() {
    let mut lab = Lab::new();
    let has = [(ReplicaId(9), 1)].into_iter().collect();
    let wrong = Message { has, ..message(Vec::new()) };
    for reported in [1, 0, 0] {
        let peer = lab.enter();
        assert_eq!(lab.tell(peer, &wrong).err(), Some(Error::Denied));
        let news = std::iter::from_fn(|| lab.hosted.next_report());
        assert_eq!(news.filter(|it| it.contains("sent an invalid message")).count(), reported);
    }
}

#[test]
fn a_replica_with_a_failed_disk_accepts_nothing_from_peers() {
    let mut lab = Lab::new();
    lab.is_broken = true;
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\n").expect("taken");
    let waiting = lab.ask(Ask::Read { open: ops, offset: 0, count: 1000, headroom: 0 });
    assert!(!lab.answers.contains_key(&waiting), "it is not kept");
    assert!(lab.hosted.next_report().expect("news").contains("nothing more can be kept"));
    let peer = lab.enter();
    let reported = lab.tell(peer, &message(vec![entry(1, "x")]));
    assert_eq!(reported.err(), Some(Error::Io));
}

#[test]
fn nobody_else_gets_in_and_nothing_from_outside_ends_the_server() {
    let mut rng = seeded(5);
    let whole = peer_message(&message(vec![entry(1, "x"), entry(2, "y")]));
    for round in 0..400 {
        let mut lab = Lab::new();
        let stranger = lab.open("peer");
        let garbage: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
        assert_eq!(lab.write(stranger, 0, &garbage).err(), Some(Error::Denied));
        assert_eq!(lab.write(stranger, 0, &whole).err(), Some(Error::Denied));
        // A peer that knows the secret and sends garbage.
        let peer = lab.enter();
        let mut spoilt = whole.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..spoilt.len());
            match rng.u32(0..3) {
                0 => spoilt[at] = rng.u8(..),
                1 => spoilt[at] ^= 1 << rng.u32(0..8),
                2.. => spoilt[at] = 0xff,
            }
        }
        let _ = lab.write_bytes(peer, &spoilt);
        let ops = lab.open("ops");
        let line: Vec<u8> = match round % 2 {
            0 => (0..rng.usize(0..200)).map(|_| rng.u8(..)).chain([b'\n']).collect(),
            _ => {
                let mut line =
                    b"{\"op\":{\"append\":\"abc\"},\"after\":\"7-2:1\",\"timeout\":0.1}".to_vec();
                let at = rng.usize(0..line.len());
                line[at] = rng.u8(b' '..b'~');
                line.push(b'\n');
                line
            }
        };
        let _ = lab.write(ops, 0, &line);
        lab.turn(Input::Close(ops));
        let disk = lab.disk;
        Lab::on(disk).file("value");
    }
}

/// Returns a replica with a text of many turns' work and its many requests.
fn asked_for_texts(lab: &mut Lab) -> (Vec<RequestId>, Vec<Output>) {
    let ops = lab.open("ops");
    for _ in 0..4 {
        lab.write(ops, 0, format!("append {}\n", "x".repeat(250_000)).as_bytes()).expect("taken");
    }
    lab.turn(Input::Close(ops));
    lab.hosted.limits.work = 1000;
    lab.hosted.end_turn();
    let (names, mut out) = (vec![Name::new(b"value").expect("a name")], Vec::new());
    let ids: Vec<RequestId> = (1..=20).map(|number| RequestId(1_000_000 + number)).collect();
    for id in &ids {
        let ask = Ask::Fetch { root: None, path: names.clone(), read_max: 100, headroom: 0 };
        let request = Request { caller: Caller::Server, ask };
        lab.hosted.step(NOW, Input::Ask(*id, request), &mut out);
    }
    assert!(out.is_empty(), "each waits for its turn");
    (ids, out)
}

#[test]
fn letters_of_others_do_not_wait_for_texts_of_clients() {
    let mut lab = Lab::new();
    let peer = lab.enter();
    let (texts, mut out) = asked_for_texts(&mut lab);
    let (seals, _) = lab.seals.get_mut(&peer).expect("it has come in");
    let data = Buf::from(&seals.ours.frame(&peer_message(&message(vec![entry(1, "y")])))[..]);
    let request =
        Request { caller: Caller::Server, ask: Ask::Write { open: peer, offset: 0, data } };
    lab.hosted.step(NOW, Input::Ask(RequestId(7), request), &mut out);
    let (mut turns, mut shown) = (0, 0);
    while !out.iter().any(|it| matches!(it, Output::Reply(RequestId(7), Ok(_)))) {
        turns += 1;
        lab.hosted.tick(NOW, &mut out);
        assert!(turns <= texts.len(), "the peer message is taken last");
    }
    shown += out.iter().filter(|it| matches!(it, Output::Reply(_, Ok(Reply::Fetched(..))))).count();
    assert!(turns <= 5 && shown < 5, "{turns} turns, {shown} texts");
}

#[test]
fn a_text_that_nobody_wants_any_more_is_not_made() {
    let mut lab = Lab::new();
    let (texts, mut out) = asked_for_texts(&mut lab);
    for id in &texts {
        lab.hosted.step(NOW, Input::Cancel(*id), &mut out);
    }
    let is_cancelled =
        |it: &Output| matches!(it, Output::Reply(id, Err(Error::Cancelled)) if texts.contains(id));
    assert_eq!(out.iter().filter(|it| is_cancelled(it)).count(), texts.len());
    let before = lab.hosted.worked_ever();
    (0..10).for_each(|_| lab.hosted.tick(NOW, &mut out));
    assert!(lab.hosted.worked_ever() - before < 1000, "{}", lab.hosted.worked_ever() - before);
    assert_eq!(lab.hosted.deadline().filter(|at| *at <= NOW), None, "nothing is left to be done");
}
