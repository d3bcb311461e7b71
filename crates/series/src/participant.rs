//! Thread of a part: its messages and actions, their simulated cost and their measured times.
//!
//! A replica executes and answers requests first (paper 001, 5.5.2). Otherwise it loops over one
//! request, one gossip message from a peer, and one gossip message to a peer. An *eager* replica
//! instead receives requests before gossip, and after each message gossips to all peers with news.

use crate::actor::{Actor, Order, ReplicaHolder, Requested, Turn, TurnOutcome};
use crate::channels::Channels;
use crate::latch::Latch;
use crate::processor::Share;
use crate::spec::Spec;
use crate::wire::{About, Spoken};
use replica::binary;
use replica::data::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time after the submissions at which a run is aborted.
const TIMEOUT: Duration = Duration::from_secs(120);

/// State shared by the threads of a service.
pub(crate) struct Shared<'s> {
    spec: &'s Spec,
    /// Time of the first submission.
    began: Instant,
    /// Set when all operations are answered: measurements end.
    pub(crate) answered: Latch,
    /// Set when all replicas have everything.
    pub(crate) over: Latch,
    /// Number of replicas that have everything.
    settled: AtomicUsize,
    /// Times at which the latches were set.
    rang: [OnceLock<Instant>; 2],
}

impl<'s> Shared<'s> {
    /// Creates the state before a run.
    pub(crate) fn new(spec: &'s Spec, began: Instant) -> io::Result<Shared<'s>> {
        let (answered, over) = (Latch::new()?, Latch::new()?);
        let (settled, rang) = (AtomicUsize::new(0), Default::default());
        Ok(Shared { spec, began, answered, over, settled, rang })
    }

    /// Returns the time from the first submission until all operations were answered, and from then
    /// until all replicas had everything.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        let [answered, over] = self.rang.each_ref().map(|rang| *rang.get().unwrap_or(&self.began));
        (answered - self.began, over - answered)
    }

    fn end_answers(&self) -> io::Result<()> {
        self.rang[0].get_or_init(Instant::now);
        self.answered.ring()
    }

    /// Returns the time at which an operation is to be submitted.
    fn due(&self, number: u64) -> Instant {
        #[expect(clippy::cast_precision_loss, reason = "there are not as many")]
        let after = Duration::from_secs_f64(number as f64 / self.spec.rate);
        self.began + after
    }

    fn check_time(&self) -> io::Result<()> {
        if Instant::now() > self.due(self.spec.operations) + TIMEOUT {
            let message = format!("it does not end: {:?}", self.spec);
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        if self.settled.fetch_add(1, Ordering::AcqRel) + 1 == self.spec.replicas {
            self.rang[1].get_or_init(Instant::now);
            self.over.ring()?;
        }
        Ok(())
    }

    /// Returns the latch that is set next.
    fn next_bell(&self) -> &Latch {
        if self.answered.has_rung() { &self.over } else { &self.answered }
    }
}

/// Traffic until all operations were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) news: u64,
    pub(crate) bytes: u64,
}

/// Part in its thread.
pub(crate) struct Participant<'g, A> {
    pub(crate) actor: A,
    pub(crate) me: usize,
    pub(crate) channels: Channels,
    pub(crate) share: Share<'g>,
    pub(crate) ground: &'g Shared<'g>,
    pub(crate) talked: Traffic,
}

impl<A: Actor> Participant<'_, A> {
    fn cost(&self, about: About, arrived: bool) -> u64 {
        let speed = &self.ground.spec.speed;
        match about {
            About::Request(_) if arrived => speed.message + speed.request,
            About::Gossip(news) => speed.gossip + speed.news * news,
            About::Request(_) | About::Response(_) | About::Agreement => speed.message,
        }
    }

    /// Processes a message of another part. Returns its subject, and the time of receipt.
    fn receive(&mut self, from: usize) -> Option<(About, Instant)> {
        let bytes = self.channels.next(from)?;
        let at = Instant::now();
        let message: A::Message = binary::read(bytes).expect("one of us wrote it");
        let about = message.about();
        let before = self.actor.applied();
        self.actor.receive(from, message);
        let applied = self.actor.applied() - before;
        let work = self.cost(about, true) + self.ground.spec.speed.apply * applied;
        self.share.work(work, &self.ground.answered);
        Some((about, at))
    }

    /// Performs a turn.
    fn act(&mut self, turn: Turn) -> io::Result<Done<A::Message>> {
        let before = self.actor.applied();
        let outcome = self.actor.act(turn);
        let applied = self.actor.applied() - before;
        let work = self.ground.spec.speed.apply * applied;
        self.share.work(work, &self.ground.answered);
        let mut at = Instant::now();
        if let TurnOutcome::Sent(others, message) = &outcome {
            let (about, bytes) = (message.about(), binary::write(message));
            for to in others {
                self.share.work(self.cost(about, false), &self.ground.answered);
                at = Instant::now();
                // Counted first: the last reply may end the run.
                self.count(about, bytes.len());
                self.channels.send(*to, &bytes)?;
            }
        }
        Ok(Done { outcome, applied, at })
    }

    fn count(&mut self, about: About, bytes: usize) {
        if self.ground.answered.has_rung() {
            return;
        }
        self.talked.messages += 1;
        self.talked.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        if let About::Gossip(news) = about {
            self.talked.news += news;
        }
    }

    /// Waits for a message or a deadline.
    fn wait(&mut self, due: Option<Instant>) -> io::Result<()> {
        self.share.rest();
        let until = due.into_iter().chain(self.actor.deadline()).min();
        self.channels.wait(self.ground.next_bell(), until)
    }
}

/// Outcome of a turn.
struct Done<M> {
    outcome: TurnOutcome<M>,
    /// Number of operator applications in it.
    applied: u64,
    /// Time at which the message was sent.
    at: Instant,
}

/// Measurements of a replica.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Time from receiving each operation to sending its answer.
    pub(crate) times: BTreeMap<u64, Duration>,
    /// Operator applications for its answers.
    pub(crate) again: u64,
    /// Final operations at the end.
    pub(crate) finals: Vec<(u64, Value)>,
}

impl<A: ReplicaHolder> Participant<'_, A> {
    /// Runs a replica until the end.
    pub(crate) fn serve(&mut self) -> io::Result<Service> {
        let (mut service, mut received) = (Service::default(), BTreeMap::new());
        let (front_end, eager) = (self.ground.spec.replicas, self.ground.spec.eager);
        let (mut last, mut has_settled) = (self.me, false);
        while !self.ground.over.has_rung() {
            self.ground.check_time()?;
            self.channels.collect()?;
            let request = self.receive(front_end);
            if let Some((About::Request(number), at)) = request {
                received.insert(number, at);
            }
            let mut busy = request.is_some() | self.answer(&received, &mut service)?;
            // An eager replica processes other messages only when there is no request.
            if request.is_none() || !eager {
                busy |= self.receive_peer(&mut last) && {
                    self.answer(&received, &mut service)?;
                    true
                };
            }
            busy |= self.gossip(eager)?;
            if !busy {
                if self.ground.answered.has_rung() && !has_settled && self.has_everything() {
                    has_settled = true;
                    self.ground.settle()?;
                }
                self.wait(None)?;
            }
        }
        service.finals = self.actor.finals();
        Ok(service)
    }

    /// Processes one message of a peer, round robin. Returns whether there was one.
    fn receive_peer(&mut self, last: &mut usize) -> bool {
        let replicas = self.ground.spec.replicas;
        let mut peers = (1..=replicas).map(|turn| (*last + turn) % replicas);
        let me = self.me;
        let arrived = peers.find(|peer| *peer != me && self.receive(*peer).is_some());
        *last = arrived.unwrap_or(*last);
        arrived.is_some()
    }

    /// Gossips to one peer, or to all. Returns whether there was news.
    fn gossip(&mut self, all: bool) -> io::Result<bool> {
        let mut reported = false;
        while !matches!(self.act(Turn::Gossip)?.outcome, TurnOutcome::Nothing) {
            reported = true;
            if !all {
                break;
            }
        }
        Ok(reported)
    }

    /// Executes and answers everything possible. Returns whether there was anything.
    fn answer(
        &mut self,
        received: &BTreeMap<u64, Instant>,
        service: &mut Service,
    ) -> io::Result<bool> {
        let mut busy = false;
        loop {
            let Done { outcome, applied, at } = self.act(Turn::Answer)?;
            match outcome {
                TurnOutcome::Nothing => return Ok(busy),
                TurnOutcome::Sent(_, message) => {
                    if let About::Response(number) = message.about() {
                        service.times.insert(number, at - received[&number]);
                        service.again += applied;
                    }
                }
                TurnOutcome::Silent | TurnOutcome::Answered(..) => {}
            }
            busy = true;
        }
    }

    /// Reports whether it has all operations; without gossip the question does not arise.
    fn has_everything(&self) -> bool {
        let spec = self.ground.spec;
        !spec.gossip || u64::try_from(self.actor.final_count()).ok() == Some(spec.operations)
    }
}

/// Measurements of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) strict: bool,
    /// Time from the planned submission to the answer.
    pub(crate) client: Duration,
    /// Time from sending it to a replica to receiving the answer.
    pub(crate) front_end: Duration,
    pub(crate) value: Value,
}

/// Timestamps of operations at the front end.
#[derive(Debug, Default)]
struct Times {
    sent: BTreeMap<u64, Instant>,
    received: BTreeMap<u64, Instant>,
    stories: BTreeMap<u64, Timing>,
}

impl<A: Actor> Participant<'_, A> {
    /// Runs the front end, which submits these operations at their times, and receives until the
    /// end.
    pub(crate) fn ask<O>(&mut self, orders: Vec<Order<O>>) -> io::Result<BTreeMap<u64, Timing>>
    where
        A: Requested<O>,
    {
        let strict: Vec<bool> = orders.iter().map(|order| order.strict).collect();
        let mut orders = orders.into_iter().peekable();
        let mut times = Times::default();
        let (mut last, replicas) = (0, self.ground.spec.replicas);
        while !self.ground.over.has_rung() {
            self.ground.check_time()?;
            let next = |order: &Order<O>| self.ground.due(order.number);
            let mut busy = false;
            if orders.peek().is_some_and(|order| next(order) <= Instant::now()) {
                orders.next().into_iter().for_each(|order| self.actor.submit(order));
                busy = true;
            }
            busy |= self.pass_on(&mut times, &strict)?;
            self.channels.collect()?;
            for replica in (1..=replicas).map(|turn| (last + turn) % replicas) {
                if let Some((about, at)) = self.receive(replica) {
                    if let About::Response(number) = about {
                        times.received.entry(number).or_insert(at);
                    }
                    (busy, last) = (true, replica);
                    break;
                }
            }
            busy |= self.pass_on(&mut times, &strict)?;
            if !busy {
                let due = orders.peek().map(|order| self.ground.due(order.number));
                self.wait(due)?;
            }
        }
        Ok(times.stories)
    }

    /// Forwards operations and answers. Returns whether there were any.
    fn pass_on(&mut self, times: &mut Times, strict: &[bool]) -> io::Result<bool> {
        let mut busy = false;
        loop {
            let Done { outcome, at, .. } = self.act(Turn::Answer)?;
            match outcome {
                TurnOutcome::Nothing => return Ok(busy),
                TurnOutcome::Sent(_, message) => {
                    if let About::Request(number) = message.about() {
                        times.sent.insert(number, at);
                    }
                }
                TurnOutcome::Answered(number, value) => {
                    let nth = usize::try_from(number).unwrap_or(usize::MAX);
                    let client = self.ground.due(number).elapsed();
                    let front_end = times.received[&number] - times.sent[&number];
                    let story = Timing { strict: strict[nth], client, front_end, value };
                    times.stories.insert(number, story);
                    if times.stories.len() == strict.len() {
                        self.ground.end_answers()?;
                    }
                }
                TurnOutcome::Silent => {}
            }
            busy = true;
        }
    }
}
