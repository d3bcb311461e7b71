//! The servers of a run and their troubles.

use super::administrator::Administrator;
use super::bystander::Bystander;
use super::canary::{Mistake, spoil};
use super::judge::{SumCheck, judge};
use super::ledger::Ledger;
use super::op_client::{OpClient, Setup};
use super::params::Params;
use super::site::{Server, Site, id};
use super::surveyor::{Surveyor, TICK};
use super::witness::Witness;
use crate::disk::Sparse;
use crate::event_queue::EventQueue;
use crate::params::Faults;
use crate::run::Outcome;
use crate::trace::{Show, Trace};
use crate::world::{World, host_of};
use base::op::{Event, Listener, Op, OpId};
use base::rng::Rng;
use base::{Instant, Reactor};
use node::{HOME, REPLICAS};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Time after the last trouble from which on no error is excused, and time after the last reply
/// from which on nothing is in flight.
const REST: Duration = Duration::from_secs(60);

/// Time within which a frozen server is detected, and everything in flight from it has arrived.
const NOTICED: Duration = Duration::from_secs(services::SILENT.as_secs() + 6);

/// Maximum time between two turns of a running server.
const TURN: Duration = Duration::from_secs(2);

/// Time in which all servers reconnect after an outage, once the first ones have, milliseconds.
const RECONNECTED_MS: u64 = 4000;

/// A scheduled event.
#[derive(Clone, Debug)]
enum ScheduledEvent {
    /// The next trouble, of any kind.
    Next,
    /// The restart of a crashed server.
    Start(usize),
    /// The stop and restart of a server whose disk has failed.
    Renew(usize),
    /// The end of a partition at these listeners; whether the connections are reset.
    Heal(usize, Vec<Listener>, bool),
    /// The end of a server's freeze.
    Thaw(usize),
    /// The end of an outage of all links for the first of these pairs of servers.
    Reconnect(Vec<(usize, usize)>),
    /// The beginning of the calm, long after the last trouble.
    Calm,
    /// The time by which everything has arrived.
    Quiet,
}

#[derive(Debug)]
struct Cluster {
    world: World,
    rng: Rng,
    params: Params,
    sites: Vec<Site>,
    ledger: Rc<RefCell<Ledger>>,
    queue: EventQueue<ScheduledEvent>,
    /// Number of processes started so far.
    hosts_started: u16,
    /// Numbers of troubles in progress, and still to begin.
    troubles: (u32, u32),
    /// Partitioned listeners.
    cuts: BTreeSet<Listener>,
    /// Beginning of the last outage of all links, and time when the first ones healed.
    outage: Option<(Instant, Option<Instant>)>,
    is_ending: bool,
    /// Whether all clients have all replies.
    is_finished: bool,
    /// Initial contents of the disks, if a planted error needs them.
    copies: Vec<Sparse>,
    occasions: u32,
}

/// Runs a seed; panics on any failure.
pub(super) fn run(params: &Params, show: Show) -> Outcome {
    let mut world_params = params.world.clone();
    let faults = std::mem::take(&mut world_params.faults);
    let mut cluster = Cluster::new(World::new(world_params, show), params);
    cluster.world.env.params.faults = faults;
    cluster.invite();
    cluster.live();
    cluster.world.finish(&[]);
    cluster.judge();
    let world = &mut cluster.world;
    let took = world.now().since(Instant(0));
    let trace = std::mem::replace(&mut world.env.trace, Trace::new(Show::Hash));
    Outcome { took, totals: world.env.totals, hash: trace.hash(), trace: trace.into_text() }
}

impl Cluster {
    fn new(mut world: World, params: &Params) -> Cluster {
        let mut rng = base::rng::seeded(params.seed ^ 0xc1_0572);
        let skew = |rng: &mut Rng| rng.u64(..=params.skew_s);
        let sites: Vec<Site> = (0..params.members())
            .map(|number| Site::new(&mut world, params, number, skew(&mut rng)))
            .collect();
        if params.mistake == Some(Mistake::EarlyDurable) {
            world.env.let_volumes_lie();
        }
        let copies = sites.iter().map(|site| world.volume(site.file).clone()).collect();
        let ledger = Rc::new(RefCell::new(Ledger::new(params.kind)));
        let mut cluster = Cluster {
            world,
            rng,
            params: params.clone(),
            sites,
            ledger,
            queue: EventQueue::default(),
            hosts_started: 0,
            troubles: (0, if params.trouble.sum() > 0 { params.troubles } else { 0 }),
            cuts: BTreeSet::new(),
            outage: None,
            is_ending: false,
            is_finished: false,
            copies,
            occasions: 0,
        };
        (0..params.replicas).for_each(|number| cluster.start(number));
        for number in params.replicas..params.members() {
            cluster.sites[number].troubled = true;
            cluster.fail(&[number]);
            cluster.begin_trouble();
            cluster.plan(params.pause_ms, ScheduledEvent::Start(number));
        }
        cluster.plan(params.pause_ms, ScheduledEvent::Next);
        cluster
    }

    fn invite(&mut self) {
        let acceptors: Vec<Listener> = self.sites.iter().map(|site| site.acceptor).collect();
        for number in 0..self.params.op_clients {
            let (acceptors, ledger) = (acceptors.clone(), Rc::clone(&self.ledger));
            let setup = Setup { number, acceptors, ledger, params: self.params.clone() };
            let plain = self.rng.u32(..100) < self.params.plain;
            self.world.add(Box::new(OpClient::new(setup, plain, self.rng.u64(..))));
        }
        let leaver = self.params.leaver();
        for (number, acceptor) in acceptors.iter().copied().enumerate() {
            self.world.add(Box::new(Witness::new(acceptor, Rc::clone(&self.ledger))));
            let (net_us, ledger) = (self.params.world.net_us, Rc::clone(&self.ledger));
            self.world.add(Box::new(Bystander::new((number, acceptor), net_us, ledger)));
            if Some(number) != leaver {
                self.world.add(Box::new(Surveyor::new(acceptor, number, Rc::clone(&self.ledger))));
            }
        }
        self.ledger.borrow_mut().all_stay = leaver.is_none();
        if let Some(leaver) = leaver {
            let (params, ledger) = (self.params.clone(), Rc::clone(&self.ledger));
            self.world.add(Box::new(Administrator::new(
                params,
                acceptors[..leaver].to_vec(),
                ledger,
            )));
        }
    }

    /// Checks the completed run.
    fn judge(&mut self) {
        let (params, mut ledger) = (&self.params, self.ledger.borrow_mut());
        let mut left = params.members() - usize::from(params.leaves);
        if params.remove_after_ms.is_some() {
            let removed = ledger.excuse_removed();
            assert!(ledger.outside.is_subset(&removed), "a member says that it is none");
            left -= removed.len();
        }
        let checked = judge(&ledger, left);
        let totals = &mut self.world.env.totals;
        totals.bounded_sums += u64::from(checked.sum == Some(SumCheck::Bounds));
        totals.replayed += checked.replayed as u64;
    }

    /// Starts a server, for the first time or again.
    fn start(&mut self, number: usize) {
        self.hosts_started += 2;
        let others = self.sites.iter().enumerate();
        let ways = others.filter_map(|(other, site)| Some((other, *site.ways.get(&number)?)));
        let ways = ways.collect();
        self.sites[number].start(
            &mut self.world,
            &self.params,
            [self.hosts_started - 1, self.hosts_started],
            ways,
        );
    }

    /// Runs the event loop of all servers, until they have ended.
    fn live(&mut self) {
        loop {
            self.turns();
            self.look_after();
            let servers = || self.sites.iter().filter_map(|site| site.server.as_ref());
            if self.world.env.is_stopped() && servers().all(Server::is_over) {
                let quiet = servers().flat_map(Server::nodes).all(|host| host.node.is_quiet());
                assert!(quiet, "a server gave up waiting for something");
                return;
            }
            self.wait();
        }
    }

    /// Gives a turn to every node with work.
    fn turns(&mut self) {
        let now = self.world.now();
        for number in 0..self.sites.len() {
            for node in [HOME, REPLICAS] {
                let site = &self.sites[number];
                let server = site.server.as_ref().filter(|_| !site.frozen);
                if server.is_some_and(|server| server.is_due(node, now)) {
                    self.turn(number, node);
                }
            }
        }
    }

    /// Performs one turn of a node of a server.
    fn turn(&mut self, number: usize, node: usize) {
        let (now, mut posts) = (self.world.now(), Vec::new());
        let (mistake, occasions) = (self.params.mistake, &mut self.occasions);
        let forges = if self.is_ending { 0 } else { self.params.forges };
        let mut change = |_: &mut World, op| match op {
            Op::Post { to, envelope } => {
                posts.push((to, envelope));
                None
            }
            op => Some(spoil(mistake, forges, occasions, op)),
        };
        let server = self.sites[number].server.as_mut().expect("it runs");
        let host = server.node(node);
        let before = host.node.worked();
        host.turn(&mut self.world, &mut change);
        let (from, worked) = (host.number, host.node.worked() - before);
        let mut news = Vec::new();
        while let Some(one) = host.node.next_log_message() {
            news.push(one.text);
        }
        let until = now + Duration::from_nanos(worked * self.params.unit_ns);
        match node {
            HOME => assert_eq!(worked, 0, "home does no work of replicas"),
            _replicas => server.until = until,
        }
        for (to, envelope) in posts {
            let pair = (from, server.node(to).number);
            self.world.env.post(pair, until, self.params.letters_us, envelope);
        }
        news.iter().for_each(|news| self.receive(number, news));
    }

    /// Handles a message of a server about itself.
    fn receive(&mut self, number: usize, news: &str) {
        let now = self.world.now();
        self.world.env.trace.line(format_args!("{} news of {number}: {news}", now.0));
        if news.ends_with("asking the others to remove it") {
            self.expect_removal(news);
        }
        assert!(!news.contains(services::OLDER_COPY), "{number}: {news}");
        if news.contains("nothing more can be kept") {
            assert!(!self.is_ending || self.troubles.0 > 0 || self.ledger.borrow().calm.is_none());
            self.begin_trouble();
            self.plan(self.params.pause_ms, ScheduledEvent::Renew(number));
        }
    }

    fn wait(&mut self) {
        let sites = self.sites.iter().filter(|site| !site.frozen);
        let deadlines = sites.filter_map(|site| site.server.as_ref()?.deadline());
        let scheduled = self.queue.next_time();
        // Clients are checked even if no server has work.
        let look = self.world.now() + TICK;
        let mut events = Vec::new();
        self.world.wait(deadlines.chain(scheduled).chain([look]).min(), &mut events);
        for event in events {
            self.hand_out(event);
        }
    }

    fn hand_out(&mut self, event: Event) {
        let number = host_of(event.id);
        let servers = self.sites.iter_mut().filter_map(|site| site.server.as_mut());
        if event.id == OpId::UNREQUESTED {
            return servers.for_each(|server| {
                server.home.take(Event { id: event.id, done: base::op::Done::Stop });
            });
        }
        let mut hosts = servers.flat_map(|server| [&mut server.home, &mut server.replicas]);
        let host = hosts.find(|host| host.number == number);
        host.expect("completions of dead hosts are dropped").take(event);
    }

    /// Performs due work outside of the servers.
    fn look_after(&mut self) {
        let finished = self.ledger.borrow().finished == self.params.op_clients;
        if !self.is_ending && (finished || self.troubles.1 == 0) {
            self.is_ending = true;
            self.world.env.params.faults = Faults::default();
            self.plan_calm();
        }
        let all_stay = self.ledger.borrow().all_stay;
        let is_over = finished && all_stay && self.ledger.borrow().calm.is_some();
        if is_over && !self.is_finished {
            self.is_finished = true;
            self.put_down(REST, ScheduledEvent::Quiet);
        }
        if self.world.is_done() {
            self.world.stop();
        }
        let now = self.world.now();
        while let Some(scheduled) = self.queue.pop_due(now) {
            self.world.env.trace.line(format_args!("{} cluster: {scheduled:?}", now.0));
            self.perform(scheduled);
        }
    }

    fn put_down(&mut self, span: Duration, scheduled: ScheduledEvent) {
        self.queue.schedule(self.world.now() + span, scheduled);
    }

    /// Schedules an event after a random delay of at most `most_ms` milliseconds.
    fn plan(&mut self, most_ms: u64, scheduled: ScheduledEvent) {
        let span = Duration::from_micros(self.rng.u64(1000..=most_ms * 1000));
        self.put_down(span, scheduled);
    }

    /// Schedules the calm once no trouble is in progress.
    fn plan_calm(&mut self) {
        if self.is_ending && self.troubles.0 == 0 {
            self.put_down(REST, ScheduledEvent::Calm);
        }
    }

    fn begin_trouble(&mut self) {
        self.troubles.0 += 1;
        self.ledger.borrow_mut().calm = None;
        self.world.env.totals.faults += 1;
    }

    fn end_trouble(&mut self) {
        self.troubles.0 -= 1;
        self.plan_calm();
    }

    fn perform(&mut self, scheduled: ScheduledEvent) {
        match scheduled {
            ScheduledEvent::Next if self.is_ending => {}
            ScheduledEvent::Next => {
                let number = self.rng.usize(..self.sites.len());
                if !self.sites[number].troubled {
                    self.troubles.1 -= 1;
                    self.trouble(number);
                }
                self.plan(self.params.pause_ms, ScheduledEvent::Next);
            }
            ScheduledEvent::Start(number) => {
                self.start(number);
                self.recover(&[number]);
                self.release(number);
            }
            ScheduledEvent::Renew(number) => {
                if self.sites[number].server.is_some() {
                    let power = self.rng.bool();
                    self.kill(number, power);
                    self.start(number);
                }
                self.end_trouble();
            }
            ScheduledEvent::Heal(number, listeners, reset) => {
                self.expect_unreached(number, &listeners);
                let ends = self.ends_of(&listeners);
                self.recover(&ends);
                for listener in listeners {
                    if self.params.mistake == Some(Mistake::StaysCut) {
                        continue;
                    }
                    if reset {
                        self.world.env.reset_all(listener);
                    }
                    self.world.heal(listener);
                    self.cuts.remove(&listener);
                }
                self.release(number);
            }
            ScheduledEvent::Thaw(number) => {
                self.expect_silent(number);
                self.sites[number].frozen = false;
                self.recover(&[number]);
                self.ledger.borrow_mut().still.insert(number, self.world.now());
                self.release(number);
            }
            ScheduledEvent::Reconnect(pairs) => self.reconnect(pairs),
            ScheduledEvent::Calm if self.troubles.0 == 0 => {
                let now = self.world.now();
                self.ledger.borrow_mut().calm.get_or_insert(now);
            }
            ScheduledEvent::Quiet if self.ledger.borrow().calm.is_some() => {
                self.ledger.borrow_mut().is_quiet = true;
            }
            // Something has happened meanwhile.
            ScheduledEvent::Calm => {}
            ScheduledEvent::Quiet => self.is_finished = false,
        }
    }

    fn release(&mut self, number: usize) {
        (self.sites[number].troubled, self.sites[number].since) = (false, self.world.now());
        self.end_trouble();
    }

    /// Asserts that every healthy server has detected this frozen one.
    fn expect_silent(&mut self, number: usize) {
        for other in 0..self.sites.len() {
            self.expect_no_reply(other, number, self.sites[number].since);
        }
    }

    /// Asserts that servers that could not reach others through these listeners have detected it,
    /// whether or not the others reach them.
    fn expect_unreached(&mut self, number: usize, listeners: &[Listener]) {
        let since = self.sites[number].since;
        for (to, from) in self.pairs_of(listeners) {
            self.expect_no_reply(from, to, since);
        }
    }

    /// Asserts that a server has detected that another one has not replied since then, if that is
    /// long enough, and if it was healthy itself all the time.
    fn expect_no_reply(&mut self, at: usize, from: usize, since: Instant) {
        let site = &self.sites[at];
        let well = !site.frozen && site.since <= since && at != from;
        let Some(server) = site.server.as_ref().filter(|_| well) else { return };
        if self.world.now().since(since) < NOTICED {
            return;
        }
        for member in server.replicas.node.replica_counts().iter().flat_map(|of| &of.members) {
            let is_it = member.replica == id(from).0;
            assert!(!is_it || !member.is_connected, "{at} takes {from} for well");
            self.world.env.totals.silences += u64::from(is_it);
        }
    }

    /// Returns the servers at these listeners, and those that connect there.
    fn pairs_of(&self, listeners: &[Listener]) -> Vec<(usize, usize)> {
        let ways = self.sites.iter().enumerate();
        let ways = ways.flat_map(|(to, site)| site.ways.iter().map(move |way| (to, way)));
        let cut = ways.filter(|(_, (_, listener))| listeners.contains(listener));
        cut.map(|(to, (from, _))| (to, *from)).collect()
    }

    /// Returns both ends of the links through these listeners.
    fn ends_of(&self, listeners: &[Listener]) -> Vec<usize> {
        let pairs = self.pairs_of(listeners);
        pairs.into_iter().flat_map(|(to, from)| [to, from]).collect()
    }

    /// Records that others may not hear these servers from now on.
    fn fail(&mut self, numbers: &[usize]) {
        let now = self.world.now();
        for number in numbers {
            self.sites[*number].health.fail(now);
            self.sites[*number].audience.fail(now);
        }
        self.note_alone(now);
    }

    /// Records that one cause of that has ended.
    fn recover(&mut self, numbers: &[usize]) {
        let now = self.world.now();
        for number in numbers {
            self.sites[*number].health.recover(now);
            self.sites[*number].audience.recover(now);
        }
        self.note_alone(now);
    }

    /// Partitions all servers from each other, for longer than a member may be silent.
    fn begin_outage(&mut self) {
        let ways: BTreeSet<Listener> =
            self.sites.iter().flat_map(|site| site.ways.values().copied()).collect();
        ways.iter().for_each(|listener| self.world.env.cut(*listener));
        self.cuts.extend(&ways);
        let (now, all) = (self.world.now(), 0..self.sites.len());
        self.fail(&all.clone().collect::<Vec<_>>());
        for site in &mut self.sites {
            (site.troubled, site.since) = (true, now);
        }
        self.outage = Some((now, None));
        let mut pairs: Vec<(usize, usize)> =
            all.flat_map(|one| (0..one).map(move |other| (one, other))).collect();
        self.rng.shuffle(&mut pairs);
        self.begin_trouble();
        let span = Duration::from_millis(self.rng.u64(12_000..=30_000));
        self.put_down(span, ScheduledEvent::Reconnect(pairs));
    }

    /// Ends the outage for one of these pairs, and soon for the others.
    fn reconnect(&mut self, mut pairs: Vec<(usize, usize)>) {
        let now = self.world.now();
        if let Some((_, healed)) = &mut self.outage {
            healed.get_or_insert(now);
        }
        let Some((one, other)) = pairs.pop() else { return };
        for listener in [self.sites[one].ways[&other], self.sites[other].ways[&one]] {
            self.world.heal(listener);
            self.cuts.remove(&listener);
        }
        if !pairs.is_empty() {
            let count = self.sites.len() * (self.sites.len() - 1) / 2;
            return self.plan(RECONNECTED_MS / count as u64, ScheduledEvent::Reconnect(pairs));
        }
        self.recover(&(0..self.sites.len()).collect::<Vec<_>>());
        for site in &mut self.sites {
            (site.troubled, site.since) = (false, now);
        }
        self.end_trouble();
    }

    /// Records which servers have no other one to tell what they acknowledge.
    fn note_alone(&mut self, now: Instant) {
        let failing: Vec<bool> = self.sites.iter().map(|site| site.health.is_failing()).collect();
        for (number, site) in self.sites.iter_mut().enumerate() {
            let mut others = (0..failing.len()).filter(|other| *other != number);
            let is_alone = others.all(|other| failing[other]);
            match (std::mem::replace(&mut site.is_alone, is_alone), is_alone) {
                (false, true) => site.audience.fail(now),
                (true, false) => site.audience.recover(now),
                (false, false) | (true, true) => {}
            }
        }
    }

    /// Asserts that a member that others want to remove is one that they may not have heard, and
    /// not because of an outage that has just ended.
    fn expect_removal(&mut self, news: &str) {
        let number = (0..self.sites.len())
            .find(|number| news.contains(&format!("replica {}:", id(*number).0)))
            .expect("it says which");
        let now = self.world.now();
        let since = self.sites[number].health.since(now);
        assert!(since.is_some(), "{number} is well, and to be removed");
        let silent_from = self.sites[number].audience.since(now).expect("it is not well");
        self.ledger.borrow_mut().removals.entry(number).or_insert(silent_from);
        if let Some((begun, healed)) = self.outage {
            let most = Duration::from_millis(self.params.remove_after_ms.unwrap_or_default());
            // Each detects by its next turn that it hears another one again.
            let early = healed.map_or(Instant(u64::MAX), |healed| healed + (most - TURN));
            let late = begun + services::SILENT + TURN;
            assert!(now < late || now >= early, "{number} is removed as an outage ends");
        }
    }

    /// Begins a trouble of a server.
    fn trouble(&mut self, number: usize) {
        let weights = &self.params.trouble;
        let mut drawn = self.rng.u32(..weights.sum());
        let mut is = |weight: u32| {
            let it = drawn < weight;
            drawn = if it { u32::MAX } else { drawn.saturating_sub(weight) };
            it
        };
        let (power, kill) = (is(weights.power), is(weights.kill));
        let (cut, freeze) = (is(weights.cut), is(weights.freeze));
        if is(weights.outage) && self.sites.iter().all(|site| !site.troubled) {
            return self.begin_outage();
        }
        let scheduled = if power || kill {
            self.kill(number, power);
            self.fail(&[number]);
            ScheduledEvent::Start(number)
        } else if cut {
            let listeners = self.draw_cut(number);
            let ends = self.ends_of(&listeners);
            self.fail(&ends);
            listeners.iter().for_each(|listener| self.world.env.cut(*listener));
            self.cuts.extend(&listeners);
            ScheduledEvent::Heal(number, listeners, self.rng.bool())
        } else if freeze {
            self.sites[number].frozen = true;
            self.fail(&[number]);
            self.ledger.borrow_mut().still.insert(number, Instant(u64::MAX));
            ScheduledEvent::Thaw(number)
        } else {
            self.world.env.totals.faults += 1;
            let ways: Vec<Listener> = self.sites[number].ways.values().copied().collect();
            return ways.into_iter().for_each(|way| self.world.env.reset_all(way));
        };
        (self.sites[number].troubled, self.sites[number].since) = (true, self.world.now());
        self.begin_trouble();
        self.plan(self.params.lasts_ms, scheduled);
    }

    /// Draws the links to partition together: to a server, from it, or both; of all others, or of
    /// one.
    fn draw_cut(&mut self, number: usize) -> Vec<Listener> {
        let nth = self.rng.usize(..self.sites.len());
        let (one, to, from) = (self.rng.bool(), self.rng.u8(..3), self.rng.u8(..3));
        let others = (0..self.sites.len()).filter(|other| *other != number);
        let others = others.filter(|other| !one || *other == nth);
        let mut cut = Vec::new();
        for other in others {
            if to < 2 {
                cut.push(self.sites[number].ways[&other]);
            }
            if from < 2 {
                cut.push(self.sites[other].ways[&number]);
            }
        }
        cut.retain(|listener| !self.cuts.contains(listener));
        cut.sort_unstable();
        cut.dedup();
        cut
    }

    /// Crashes a server, or its machine by a power failure.
    fn kill(&mut self, number: usize, power: bool) {
        let site = &mut self.sites[number];
        let Server { mut home, mut replicas, .. } = site.server.take().expect("it runs");
        for event in home.unreported().into_iter().chain(replicas.unreported()) {
            self.world.env.drop_done(event.done);
        }
        self.world.env.kill(home.number, &[], &home.listeners);
        match power {
            true => self.world.env.fail_power(replicas.number, &[], site.file),
            false => self.world.env.kill(replicas.number, &[], &[]),
        }
        if power && self.params.mistake == Some(Mistake::OlderCopy) {
            self.world.replace_volume(site.file, self.copies[number].clone());
        }
    }
}
