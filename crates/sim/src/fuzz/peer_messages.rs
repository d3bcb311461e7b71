//! Fuzzers of messages between replicas: sealing, and contents.
//!
//! The sender knows the secret of the service: it is a faulty member, not a stranger.

use super::streams;
use base::rng::Rng;
use base::{Automaton as _, Instant};
use replica::binary;
use replica::data::kind::Operator;
use replica::data::{Kind, Once, once};
use replica::service::{
    Config, Input, Limits, Message, Output, Replica, ReplicaId, Ticket, Vector,
};
use services::{Answer, CHALLENGE, Introduction, PeerMessage, Reader, Secret, Settings};
use std::collections::BTreeMap;
use std::time::Duration;

const A: ReplicaId = ReplicaId(0);
const B: ReplicaId = ReplicaId(1);

type Data = Once<Kind>;
type OpMessage = Message<once::Operator<Operator>>;

/// Tests two replicas, one of which sends corrupted messages: the other one keeps its promises to
/// its own clients, or stops listening.
pub(super) fn gossip(rng: &mut Rng) {
    let config = Config { gossip: Duration::from_millis(5), limits: Limits::default() };
    let new = |me| Replica::new(Once(Kind::Counter), me, &[A, B], config);
    let mut pair = Pair { now: Instant(1), two: [new(A), new(B)], distrusted: false, ticket: 0 };
    pair.step(0, Input::Connected(B), rng);
    pair.step(1, Input::Connected(A), rng);
    for _ in 0..rng.usize(1..30) {
        pair.now = pair.now + Duration::from_millis(rng.u64(..20));
        let who = rng.usize(..2);
        match rng.u8(..3) {
            0 => pair.step(who, Input::Tick, rng),
            _ => pair.request(who, rng),
        }
    }
}

struct Pair {
    now: Instant,
    two: [Replica<Data>; 2],
    /// Whether B has received an impossible message of A.
    distrusted: bool,
    ticket: u64,
}

impl Pair {
    fn request(&mut self, who: usize, rng: &mut Rng) {
        let words = ["add".to_owned(), rng.i64(..100).to_string()];
        let operator = Kind::Counter.read_words(&words).expect("an addition");
        let operator = once::Operator { stamp: 1, once: None, forgets: false, operator };
        self.ticket += 1;
        let (ticket, strict) = (Ticket(self.ticket), rng.bool());
        let (after, until) = (Vector::new(), self.now + Duration::from_secs(1));
        self.step(who, Input::Request { ticket, after, strict, operator, until }, rng);
    }

    /// Performs a step of one of them and everything that follows from it.
    fn step(&mut self, who: usize, input: Input<once::Operator<Operator>>, rng: &mut Rng) {
        let mut inputs = vec![(who, input)];
        while let Some((who, input)) = inputs.pop() {
            let mut out = Vec::new();
            self.two[who].step(self.now, input, &mut out);
            self.two[who].check();
            for output in out {
                match output {
                    Output::Send(to, message) if !self.distrusted => {
                        let to = usize::from(to.0);
                        let from = ReplicaId(u16::from(to == 0));
                        if let Some(message) = self.carried(to, message, rng) {
                            inputs.push((to, Input::Received(from, message)));
                        }
                    }
                    Output::Persist(number, _) => inputs.push((who, Input::Persisted(number))),
                    Output::Distrust(of) => {
                        assert_eq!((who, of), (1, A), "A says wrong things, and nobody else");
                        self.distrusted = true;
                    }
                    Output::Outdated(_) => self.distrusted = true,
                    Output::Send(..)
                    | Output::Answer { .. }
                    | Output::Refuse(..)
                    | Output::Final(..)
                    | Output::Vote(..)
                    | Output::Removes(_)
                    | Output::Members(_) => {}
                }
            }
        }
    }

    /// Returns the message that arrives: A's are sometimes corrupted.
    fn carried(&self, to: usize, message: OpMessage, rng: &mut Rng) -> Option<OpMessage> {
        let mut bytes = PeerMessage::Gossip(message).bytes();
        if to == 1 && rng.u8(..3) == 0 {
            streams::spoil(rng, &mut bytes);
        }
        let peer_message: PeerMessage = binary::read(&bytes).ok()?;
        let again: PeerMessage = binary::read(&peer_message.bytes()).expect("it was written");
        assert_eq!(again, peer_message);
        let PeerMessage::Gossip(message) = peer_message else { return None };
        let admitted = |operator| Kind::Counter.admits(operator).is_ok();
        message.entries.iter().all(|entry| admitted(&entry.operator.operator)).then_some(message)
    }
}

/// Tests replies in sealed messages with changed bytes: only unchanged messages are accepted.
pub(super) fn seals(rng: &mut Rng) {
    let settings = settings();
    let (challenge, random) = ([1; CHALLENGE], [2; CHALLENGE]);
    let mut challenged = challenge.to_vec();
    if rng.u8(..20) == 0 {
        streams::spoil(rng, &mut challenged);
    }
    let mut seals = Introduction::new(&settings, B, &challenge, random).seals;
    let theirs = Introduction::new(&settings, B, &challenged, random).seals;
    let mut sent = Vec::new();
    let mut stream = Vec::new();
    for index in 0..rng.usize(1..5) {
        let part = vec![b'p'; rng.usize(..300)];
        let last = u8::from(rng.bool());
        stream.extend(seals.ours.frame(&[&[last], &part[..]].concat()));
        if index == 0 || sent.last().is_some_and(|(_, ended)| *ended) {
            sent.push((Vec::new(), false));
        }
        let answer = sent.last_mut().expect("just added");
        answer.0.extend(part);
        answer.1 = last == 0;
    }
    let honest = stream.clone();
    if rng.bool() {
        streams::spoil(rng, &mut stream);
    }
    let mut reader = Reader::new(theirs.ours);
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let (some, more) = rest.split_at(rng.usize(1..=rest.len()));
        rest = more;
        match reader.take(some) {
            Ok(Some(answer)) => {
                assert_eq!(challenged, challenge, "another key");
                assert_eq!(answer, sent[0].0);
                let _ = Answer::read(&answer);
                return;
            }
            Ok(None) => {}
            Err(_) => {
                assert!(stream != honest || challenged != challenge, "an honest one is refused");
                return;
            }
        }
    }
}

fn settings() -> Settings {
    Settings {
        version: services::settings::version(None),
        id: 7,
        service: "log".to_owned(),
        kind: Kind::Log,
        me: A,
        members: BTreeMap::from([A, B].map(|id| (id, "127.0.0.1:1".to_owned()))),
        joins: false,
        remove_after: None,
        secret: Secret([3; 32]),
    }
}
