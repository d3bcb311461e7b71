//! A client of the service: it sends a batch of operations, waits for the replies, and continues,
//! perhaps at another replica.
//!
//! Most have a session and numbers, and retransmit until there is a reply; the others are *plain*,
//! and never learn the outcome of a lost operation. All pass on the token of everything they have
//! seen, so every later read includes it ([`super::data::Memory`]).

use super::canary::Mistake;
use super::data::{Fate, Memory, What, draw_change, draw_look, is_blind};
use super::ledger::{Answer, Ledger, OpRequest};
use super::params::Params;
use super::site::SERVICE;
use super::stream::{Access, Stream, StreamEvent};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Additional wait beyond the replica's timeout.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout given to a replica when all troubles are over.
const CALM_TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of a client.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) number: usize,
    /// Listeners of the replicas.
    pub(super) acceptors: Vec<Listener>,
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) params: Params,
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the time to connect.
    Away,
    /// Waiting for the file to open.
    Opening,
    /// Waiting for replies.
    Asking,
    /// Waiting for the time of the next request.
    Resting,
    /// Done.
    Done,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
struct Requested {
    /// Its index in the ledger.
    op_request: usize,
    /// Its number in the session.
    call: Option<u64>,
    /// Whether no further reply is expected.
    settled: bool,
}

/// The client.
#[derive(Debug)]
pub(super) struct OpClient {
    setup: Setup,
    phase: Phase,
    /// Deadline of the wait.
    due: Instant,
    /// Beginning of the wait.
    since: Instant,
    stream: Stream,
    /// The replica in use.
    at: usize,
    /// Whether that replica refuses operations.
    is_sent_away: bool,
    /// Name of its session, if it has one.
    session: Option<String>,
    calls: u64,
    /// Number of operations so far.
    count: u32,
    /// Its token: the service, and the last number seen of each replica.
    token: Option<(String, BTreeMap<u64, u64>)>,
    memory: Memory,
    batch: Vec<Requested>,
    /// Operations of the batch with outstanding replies, in order.
    waiting: VecDeque<usize>,
    /// Received bytes of an incomplete line.
    input: Vec<u8>,
}

impl OpClient {
    /// Returns an unconnected client; a `plain` one never retransmits.
    pub(super) fn new(setup: Setup, plain: bool, session: u64) -> OpClient {
        let (at, session) = (setup.number % setup.acceptors.len(), format!("{session:032x}"));
        OpClient {
            setup,
            phase: Phase::Away,
            due: Instant(0),
            since: Instant(0),
            stream: Stream::new(&["services", SERVICE, "ops"], Access::ReadWrite),
            at,
            is_sent_away: false,
            session: (!plain).then_some(session),
            calls: 0,
            count: 0,
            token: None,
            memory: Memory::default(),
            batch: Vec::new(),
            waiting: VecDeque::new(),
            input: Vec::new(),
        }
    }

    fn wait(&mut self, io: &mut Io<'_>, phase: Phase, most: Duration) {
        self.phase = phase;
        (self.since, self.due) = (io.now(), io.now() + most);
        io.wake_in(most);
    }

    /// Returns whether all troubles were over before the wait began.
    fn is_calm(&self) -> bool {
        self.setup.ledger.borrow().calm.is_some_and(|calm| calm <= self.since)
    }

    fn is_settled(&self) -> bool {
        self.batch.iter().all(|requested| requested.settled)
    }

    /// Moves to another replica, or returns to this one.
    fn wander(&mut self, io: &mut Io<'_>) {
        self.at = io.rng().usize(..self.setup.acceptors.len());
        if self.setup.params.mistake == Some(Mistake::LostToken) {
            self.token = None;
        }
    }

    /// Handles the loss of the connection, and of the outstanding replies.
    fn lose(&mut self, io: &mut Io<'_>) {
        io.abandon();
        self.stream.close();
        self.input.clear();
        for index in std::mem::take(&mut self.waiting) {
            self.miss(index, false);
        }
        self.wander(io);
        let pause = Duration::from_millis(io.rng().u64(1..300));
        self.wait(io, Phase::Away, pause);
    }

    /// Records that an operation of the batch has no reply, or one that says it was not done.
    fn miss(&mut self, index: usize, undone: bool) {
        let requested = &mut self.batch[index];
        let mut ledger = self.setup.ledger.borrow_mut();
        let op_request = &mut ledger.questions[requested.op_request];
        op_request.times.1 += u32::from(undone);
        if requested.call.is_none() {
            requested.settled = true;
            self.memory.learn(&op_request.what, op_request.fate(), &Value::Null);
        }
    }

    /// Draws the next batch: a few changes, or one read.
    fn draw(&mut self, io: &mut Io<'_>) {
        let params = &self.setup.params;
        let (kind, now, padding) = (params.kind, io.now(), params.padding);
        let left = params.operations - self.count;
        let looks = io.rng().u32(..100) < params.looks;
        let most = if looks || padding > 0 { 1 } else { params.batch };
        let name = format!("c{}", self.setup.number);
        self.batch.clear();
        for _ in 0..io.rng().usize(1..=most.min(left as usize)) {
            self.count += 1;
            let strict = io.rng().u32(..100) < params.strict;
            let (what, op) = match looks {
                true => draw_look(io.rng(), kind, padding > 0),
                false => {
                    let named = (&*name, self.count);
                    draw_change(io.rng(), kind, named, padding, &mut self.memory)
                }
            };
            let numbered = self.session.is_some() && !looks;
            self.calls += u64::from(numbered);
            let call = numbered.then_some(self.calls);
            let mut ledger = self.setup.ledger.borrow_mut();
            self.batch.push(Requested { op_request: ledger.questions.len(), call, settled: false });
            let (requested, times, answer) = (now, (0, 0), None);
            ledger.questions.push(OpRequest { what, op, strict, requested, times, answer });
        }
    }

    /// Sends the unsettled operations of the batch, or the next batch; or ends.
    fn go_on(&mut self, io: &mut Io<'_>) {
        if !self.is_settled() {
            return self.ask(io);
        }
        if self.count < self.setup.params.operations {
            self.draw(io);
            return self.ask(io);
        }
        io.abandon();
        self.stream.close();
        self.phase = Phase::Done;
        self.setup.ledger.borrow_mut().finished += 1;
    }

    fn ask(&mut self, io: &mut Io<'_>) {
        let calm = self.setup.ledger.borrow().calm.is_some();
        let given = Duration::from_millis(self.setup.params.timeout_ms);
        let given = if calm { CALM_TIMEOUT } else { given };
        let token = self.token.as_ref().map(show_token);
        // Lines of one file are ordered after the token of an earlier line.
        let in_front = io.rng().bool();
        let mut lines = Vec::new();
        if let Some(token) = token.as_ref().filter(|_| in_front) {
            lines.extend_from_slice(format!("after {token}\n").as_bytes());
        }
        for index in 0..self.batch.len() {
            if self.batch[index].settled {
                continue;
            }
            let mut line = self.op_request(index, given);
            if let Some(token) = token.as_ref().filter(|_| !in_front) {
                line["after"] = json!(token);
            }
            lines.extend_from_slice(format!("{line}\n").as_bytes());
            self.waiting.push_back(index);
        }
        io.trace(format_args!("asks {}: {} of {:?}", self.at, lines.len(), self.batch));
        self.stream.write(io, &lines);
        self.stream.read(io);
        self.wait(io, Phase::Asking, given + TIMEOUT);
    }

    /// Returns an operation as JSON.
    fn op_request(&mut self, index: usize, given: Duration) -> Value {
        let requested = &mut self.batch[index];
        let mut ledger = self.setup.ledger.borrow_mut();
        let op_request = &mut ledger.questions[requested.op_request];
        if op_request.times.0 > 0 && self.setup.params.mistake == Some(Mistake::SentAsNew) {
            self.calls += 1;
            requested.call = Some(self.calls);
        }
        op_request.times.0 += 1;
        let mut line = json!({"op": op_request.op, "timeout": given.as_secs_f64()});
        let forgets = self.setup.params.mistake == Some(Mistake::EarlyFinal);
        if op_request.strict && !forgets {
            line["strict"] = json!(true);
        }
        if let (Some(session), Some(call)) = (&self.session, requested.call) {
            line["session"] = json!(session);
            line["number"] = json!(call);
        }
        line
    }

    fn receive(&mut self, io: &mut Io<'_>, data: &[u8]) {
        assert!(!data.is_empty(), "the end of what never ends: {:?}", self.batch);
        self.input.extend_from_slice(data);
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let answer: Value = serde_json::from_slice(&line).expect("a line is JSON");
            let index = self.waiting.pop_front().expect("an answer to nothing");
            match answer["reason"].as_str() {
                Some(reason) => self.refused(index, reason, &answer),
                None => self.answered(io, index, &answer),
            }
        }
        if !self.waiting.is_empty() {
            return self.stream.read(io);
        }
        let pause = Duration::from_millis(io.rng().u64(..=self.setup.params.pace_ms));
        let sent_away = std::mem::take(&mut self.is_sent_away);
        let leaves = io.rng().u32(..100) < self.setup.params.wander || sent_away;
        if leaves || !self.is_settled() && io.rng().bool() {
            io.abandon();
            self.stream.close();
            self.wander(io);
        }
        self.wait(io, Phase::Resting, pause);
    }

    fn refused(&mut self, index: usize, reason: &str, answer: &Value) {
        // It is not yet a member, or is leaving.
        let number = self.at;
        let comes = number >= self.setup.params.replicas && !self.is_calm();
        let removes = self.setup.params.remove_after_ms.is_some();
        if reason == "outside" && (comes || removes || Some(number) == self.setup.params.leaver()) {
            self.is_sent_away = true;
            self.setup.ledger.borrow_mut().outside.insert(number);
            return self.miss(index, true);
        }
        if reason == "lost" && removes {
            // It starts over, without any knowledge.
            self.token = None;
            self.memory.forget();
            return self.miss(index, true);
        }
        assert!(!self.is_calm(), "though all is well: {answer}");
        let named = answer["replicas"].as_array().map_or(0, Vec::len);
        let undone = match reason {
            "behind" | "full" if named > 0 => true,
            "busy" => true,
            "not-final" if named > 0 => false,
            "unwritten" => false,
            _ => panic!("a refusal that makes no sense: {answer}"),
        };
        self.miss(index, undone);
    }

    fn answered(&mut self, io: &mut Io<'_>, index: usize, answer: &Value) {
        let requested = &mut self.batch[index];
        requested.settled = true;
        let mut ledger = self.setup.ledger.borrow_mut();
        let kind = ledger.kind;
        let op_request = &mut ledger.questions[requested.op_request];
        let is_final = answer["final"].as_bool().expect("it says whether it is final");
        let known = op_request.strict || is_blind(&op_request.op);
        assert_eq!(is_final, known, "{answer}: {op_request:?}");
        let value = &answer["value"];
        let repeated = value.get("repeated").is_some();
        assert!(!repeated || op_request.times.0 > 1, "{answer}: it was sent once");
        let done = value.get("done").is_some();
        let fits = repeated || done || !is_blind(&op_request.op);
        assert!(fits && value.get("wrong").is_none(), "{answer}: {op_request:?}");
        if let What::Insert(item) = &op_request.what {
            assert!(done || repeated || *value == json!(true), "{item} was there: {op_request:?}");
        }
        op_request.answer =
            Some(Answer { value: value.clone(), is_final, at: io.now(), by: self.at });
        match op_request.what.looks() {
            true => self.memory.look(kind, &op_request.what, value),
            false => self.memory.learn(&op_request.what, Fate::Done, value),
        }
        io.judged();
        let token = answer["token"].as_str().expect("every answer has a token");
        join_token(&mut self.token, token);
    }
}

/// Formats a token: the service, then replicas and numbers.
fn show_token((service, parts): &(String, BTreeMap<u64, u64>)) -> String {
    let parts: Vec<String> = parts.iter().map(|(id, number)| format!("{id}:{number}")).collect();
    format!("{service}-{}", parts.join("."))
}

/// Merges a token into another.
fn join_token(token: &mut Option<(String, BTreeMap<u64, u64>)>, text: &str) {
    let (service, parts) = text.split_once('-').expect("it names the service");
    let token = token.get_or_insert_with(|| (service.to_string(), BTreeMap::new()));
    assert_eq!(token.0, service, "a token of another service");
    for part in parts.split('.').filter(|part| !part.is_empty()) {
        let (id, number) = part.split_once(':').expect("a replica and a number");
        let read = |text: &str| text.parse::<u64>().expect("a number");
        let known = token.1.entry(read(id)).or_default();
        *known = (*known).max(read(number));
    }
}

impl Client for OpClient {
    fn wake(&mut self, io: &mut Io<'_>) {
        if io.now() < self.due {
            return;
        }
        match self.phase {
            Phase::Away => {
                self.wait(io, Phase::Opening, TIMEOUT);
                self.stream.open(io, self.setup.acceptors[self.at]);
            }
            Phase::Opening | Phase::Asking => {
                assert!(!self.is_calm(), "no answer though all is well: {:?}", self.batch);
                self.lose(io);
            }
            Phase::Resting if self.stream.is_open() => self.go_on(io),
            Phase::Resting => self.wait(io, Phase::Away, Duration::ZERO),
            Phase::Done => {}
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for arrived in self.stream.received(io, bytes) {
            match arrived {
                StreamEvent::Opened => self.go_on(io),
                StreamEvent::Data(data) => self.receive(io, &data),
                StreamEvent::Written => {}
                StreamEvent::Refused => panic!("operations are taken, and answers can be read"),
            }
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Done {
            assert!(!self.is_calm(), "a server hangs up though all is well");
            self.lose(io);
        }
    }

    fn closed(&mut self, _io: &mut Io<'_>) {}

    fn finish(&mut self, _io: &mut Io<'_>) {}

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
