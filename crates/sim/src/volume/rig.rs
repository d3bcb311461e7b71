//! Runs a store on the disk and compares it with the model.

use super::disk::Disk;
use super::model::{Model, OBJECTS, RAW, TREE};
use super::{Outcome, Params};
use base::{Automaton, Block, Instant, Time, rng};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use store::check::{self, Content, Watcher};
use store::rollback;
use store::{
    Change, Config, Durability, Error, Extent, Io, Missing, Output, Refusal, Store, Table, Ticket,
    View,
};

/// Maximum number of disk operations without an output; beyond it the store has lost a request.
const TIMEOUT: usize = 200_000;

/// Everything of one run.
pub(super) struct Rig {
    params: Params,
    rng: rng::Rng,
    disk: Disk,
    store: Option<Store>,
    out: Vec<Output>,
    under_way: Vec<Io>,
    outputs: Vec<Output>,
    now: u64,
    next: u64,
    model: Model,
    /// State after each transaction since the volume was opened; the first is that found then.
    history: Vec<Model>,
    /// States before that, for disks that lose data: the contents found must be one of them.
    ages: Vec<Model>,
    /// Index of the last state known to be durable.
    durable: usize,
    /// Outstanding requests for durability, with the index of their state.
    waiting: BTreeMap<Ticket, usize>,
    snapshots: BTreeMap<Vec<u8>, Model>,
    /// Snapshots whose creation or removal was interrupted by a power failure: either outcome is
    /// possible.
    unsure: BTreeMap<Vec<u8>, Model>,
    /// Whether the store receives ticks.
    ticks: bool,
    /// Blocks of the volume: acknowledged, and requested.
    size: (u64, u64),
    outcome: Outcome,
}

/// Reason for an early end of a life.
enum End {
    /// The store has stopped writing, because the disk failed.
    Broken,
    /// Some data cannot be read.
    Damaged,
}

impl Rig {
    pub(super) fn new(params: Params) -> Rig {
        let mut disk = Disk::new(&params);
        let volume = store::format(&params.geometry, params.seed, Time::default());
        for (at, blocks) in volume.expect("the geometry was drawn with care") {
            disk.plant(at, blocks);
        }
        Rig {
            rng: rng::seeded(params.seed ^ 0x766f_6c75_6d65),
            disk,
            store: None,
            out: Vec::new(),
            under_way: Vec::new(),
            outputs: Vec::new(),
            now: 0,
            next: 1,
            model: Model::default(),
            history: vec![Model::default()],
            ages: Vec::new(),
            durable: 0,
            waiting: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            unsure: BTreeMap::new(),
            ticks: true,
            size: (params.geometry.blocks, params.geometry.blocks),
            outcome: Outcome::default(),
            params,
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        for _ in 0..self.params.lives {
            if !self.open() || !self.compare() {
                self.outcome.lost += 1;
                break;
            }
            let commits = self.rng.u64(1..=self.params.commits);
            for _ in 0..commits {
                if self.act().is_err() {
                    break;
                }
            }
            self.crash();
        }
        self.end();
        self.outcome.faults = self.disk.count;
        self.outcome
    }

    /// Closes the volume at the end, and checks the disk.
    fn end(&mut self) {
        self.disk.calm();
        if self.disk.spoilt || !self.open() || !self.compare() {
            return;
        }
        assert!(self.close(), "a good disk can be closed");
        let checked = self.check();
        assert_eq!(checked.journaled, 0, "a closed volume has nothing to replay");
        assert_eq!(checked.findings, [], "a good disk is in order");
        assert_eq!(checked.snapshots as usize, self.snapshots.len());
    }

    // Opening and closing.

    /// Opens the volume. Returns false if that is impossible because the disk is corrupted.
    fn open(&mut self) -> bool {
        let config = Config {
            cache: self.params.cache.0,
            dirty: self.params.cache.1,
            interval: Duration::from_secs(3),
            read_only: false,
            accept_loss: false,
        };
        loop {
            self.forget();
            let opened = Store::open(&self.disk.head(), config, Instant(self.now), &mut self.out);
            let result = match opened {
                Ok(store) => {
                    self.store = Some(store);
                    self.sort_out();
                    self.wait_for(|output| match output {
                        Output::Opened(result) => Some(*result),
                        _ => None,
                    })
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(()) => return true,
                // The same read may succeed the next time.
                Err(Error::DiskFailed) => self.disk.revive(),
                Err(Error::Damaged | Error::NotAVolume) if self.disk.spoilt => return false,
                // A misdirected read looks like damage, until it is repeated.
                Err(Error::Damaged) if self.params.faults.misdirect > 0 => {}
                Err(error) => panic!("a good volume cannot be opened: {error}"),
            }
        }
    }

    fn crash(&mut self) {
        self.outcome.crashes += 1;
        let under_way = mem::take(&mut self.under_way);
        self.disk.crash(&mut self.rng, under_way);
        self.forget();
    }

    fn forget(&mut self) {
        self.store = None;
        self.under_way.clear();
        self.out.clear();
        self.outputs.clear();
        self.waiting.clear();
    }

    /// Compares the contents with the possible states, at the beginning of a life. Returns false if
    /// some data cannot be read because the disk is corrupted.
    fn compare(&mut self) -> bool {
        let found = match self.look(View::Present) {
            Ok(found) => found,
            Err(error) => return self.excuse(error),
        };
        let whole = self.history.iter().rposition(|model| *model == found);
        let old = self.disk.spoilt && self.ages.contains(&found);
        let whole = whole.or(old.then_some(0));
        let whole = whole.expect("the state after some transaction, and none half");
        assert!(
            whole >= self.durable || self.disk.spoilt,
            "{} was acknowledged as durable, {whole} is there",
            self.durable
        );
        self.compare_size();
        self.model = found;
        self.ages.append(&mut self.history);
        self.history = vec![self.model.clone()];
        self.durable = 0;
        self.outcome.hash = self.outcome.hash.rotate_left(5) ^ whole as u64 ^ self.now;
        self.compare_snapshots()
    }

    /// Checks the size: after an interrupted growth, the old size or the new one.
    fn compare_size(&mut self) {
        let blocks = self.store.as_ref().expect("it is open").layout().blocks;
        let (known, requested) = self.size;
        assert!(blocks == known || blocks == requested || self.disk.spoilt, "{blocks} blocks");
        self.size = (blocks, blocks);
    }

    fn compare_snapshots(&mut self) -> bool {
        let store = self.store.as_ref().expect("it is open");
        let found: Vec<_> = store.snapshots().map(|(name, id, _)| (name.to_vec(), id)).collect();
        for name in self.snapshots.keys().filter(|name| !self.unsure.contains_key(*name)) {
            let there = found.iter().any(|(found, _)| found == name);
            assert!(there || self.disk.spoilt, "a snapshot is lost");
        }
        let mut kept = BTreeMap::new();
        for (name, id) in found {
            let known = self.snapshots.get(&name).or(self.unsure.get(&name)).cloned();
            assert!(known.is_some() || self.disk.spoilt, "a snapshot that nobody made");
            let Some(model) = known else { continue };
            match self.look(View::Snapshot(id)) {
                Ok(found) => assert!(found == model || self.disk.spoilt, "a snapshot has changed"),
                Err(error) => return self.excuse(error),
            }
            kept.insert(name, model);
        }
        (self.snapshots, self.unsure) = (kept, BTreeMap::new());
        true
    }

    fn excuse(&self, error: Error) -> bool {
        let faults = self.params.faults;
        let excused = self.disk.spoilt || faults.read + faults.misdirect > 0;
        assert!(excused, "a good disk cannot be read: {error}");
        false
    }

    fn close(&mut self) -> bool {
        let ticket = self.ticket();
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        store.close(now, ticket, &mut self.out);
        self.sort_out();
        self.wait_for(|output| match output {
            Output::Closed(found, result) if *found == ticket => Some(*result),
            _ => None,
        })
        .is_ok()
    }

    fn check(&self) -> check::Checked {
        struct Nobody;
        impl Watcher for Nobody {
            fn entry(&mut self, _: Table, _: &[u8], _: Content<'_>) {}
            fn wants(&self, table: Table) -> bool {
                table == TREE
            }
            fn progress(&mut self, _: u64, _: u64) {}
        }
        let mut read = |at: u64, count: u32| {
            Some((at..at + u64::from(count)).map(|at| self.disk.look(at)).collect::<Vec<_>>())
        };
        check::check(&mut read, &self.disk.head(), &mut Nobody).expect("it has a superblock")
    }

    // Completions of the disk.

    fn sort_out(&mut self) {
        for output in mem::take(&mut self.out) {
            match output {
                Output::Io(io) => self.under_way.push(io),
                Output::Committed(ticket, Ok(())) if self.waiting.contains_key(&ticket) => {
                    let state = self.waiting.remove(&ticket).expect("just found");
                    self.durable = self.durable.max(state);
                }
                other => self.outputs.push(other),
            }
        }
    }

    /// Completes a random disk operation, or advances time.
    fn progress(&mut self) {
        self.now += self.rng.u64(0..100_000_000);
        let now = Instant(self.now);
        let store = self.store.as_mut().expect("it is open");
        if !self.under_way.is_empty() {
            let io = self.under_way.swap_remove(self.rng.usize(0..self.under_way.len()));
            let (id, done) = self.disk.perform(&mut self.rng, io);
            store.done(now, id, done, &mut self.out);
        }
        if self.ticks && store.deadline().is_some_and(|at| at <= now) {
            store.tick(now, &mut self.out);
        }
        if self.rng.u8(0..16) == 0 {
            Automaton::check(self.store.as_ref().expect("it is open"));
        }
        self.sort_out();
    }

    fn wait_for<T>(&mut self, wanted: impl Fn(&Output) -> Option<T>) -> T {
        for _ in 0..TIMEOUT {
            if let Some(index) = self.outputs.iter().position(|output| wanted(output).is_some()) {
                let outputs = self.outputs.remove(index);
                return wanted(&outputs).expect("just found");
            }
            self.progress();
        }
        let counts = self.store.as_ref().map(Store::counts);
        panic!("somebody waits for ever: {counts:?}");
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    /// Fetches missing pages. Repeated fetches for one plan use one ticket, so that all pages stay
    /// cached.
    fn fetch(&mut self, ticket: Ticket, missing: Missing) -> Result<(), Error> {
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        store.fetch(now, ticket, missing, &mut self.out);
        self.sort_out();
        self.wait_for(|output| match output {
            Output::Fetched(found, result) if *found == ticket => Some(*result),
            _ => None,
        })
    }

    fn look(&mut self, view: View) -> Result<Model, Error> {
        let ticket = self.ticket();
        loop {
            let reader = self.store.as_ref().expect("it is open").reader(view)?;
            let (reach, base) = self.params.raw;
            let longest = 24 * self.params.geometry.block as u64 + 4096;
            match Model::read(&reader, reach + longest, base) {
                Ok(model) => return Ok(model),
                Err(missing) => self.fetch(ticket, missing)?,
            }
        }
    }

    // Actions of users.

    /// Performs one random action.
    fn act(&mut self) -> Result<(), End> {
        if self.params.grows && self.rng.u8(0..30) == 0 {
            self.grow()?;
        }
        if self.params.rolls && !self.snapshots.is_empty() && self.rng.u8(0..30) == 0 {
            self.roll_back()?;
        }
        match self.rng.u8(0..40) {
            0 if self.params.snapshots && self.snapshots.len() < 4 => self.snapshot()?,
            1 if !self.snapshots.is_empty() => self.drop_snapshot()?,
            2 => {
                let found = self.look(View::Present).map_err(|error| self.end_of(error))?;
                assert!(found == self.model, "committed changes are visible");
            }
            3 | 4 => self.place()?,
            _ => self.commit_some()?,
        }
        for _ in 0..self.rng.usize(0..5) {
            self.progress();
        }
        let broken = self.store.as_ref().is_some_and(Store::is_broken);
        if broken { Err(End::Broken) } else { Ok(()) }
    }

    fn end_of(&self, error: Error) -> End {
        match error {
            Error::DiskFailed if self.params.faults.write > 0 => End::Broken,
            error => {
                self.excuse(error);
                End::Damaged
            }
        }
    }

    fn commit_some(&mut self) -> Result<(), End> {
        let count = [1, 1, 2, 3, 8][self.rng.usize(0..5)];
        let changes: Vec<Change> = (0..count).map(|_| self.change()).collect();
        self.commit(&changes, &changes)
    }

    fn change(&mut self) -> Change {
        let (rng, params) = (&mut self.rng, &self.params);
        let key = vec![rng.u8(0..params.keys), rng.u8(0..3)];
        let (object, (reach, base)) = (rng.u64(0..OBJECTS), params.raw);
        match rng.u8(0..10) {
            0..4 => {
                let large = rng.u8(0..8) == 0;
                let length = rng.usize(0..if large { params.value } else { 80 });
                Change::Put { table: TREE, key, value: vec![rng.u8(..); length] }
            }
            4 | 5 => Change::Delete { table: TREE, key },
            6..9 => {
                let most = if rng.bool() { 60 } else { 2500 };
                let length = rng.usize(1..most);
                let offset = base + rng.u64(0..reach);
                Change::Write { table: RAW, object, offset, data: vec![rng.u8(1..); length] }
            }
            _ => {
                let from = base + rng.u64(0..reach);
                let to = if rng.bool() { u64::MAX } else { from + rng.u64(0..3000) };
                Change::Cut { table: RAW, object, from, to }
            }
        }
    }

    /// Commits `changes`; `told` are the equivalent changes of the model.
    fn commit(&mut self, changes: &[Change], notified: &[Change]) -> Result<(), End> {
        let ticket = self.ticket();
        let soon = self.rng.u8(0..3) > 0;
        let durability = if soon { Durability::Soon } else { Durability::Durable };
        loop {
            let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
            match store.commit(now, ticket, changes, durability, &mut self.out) {
                Ok(()) => break,
                Err(Refusal::Missing(missing)) => {
                    self.fetch(ticket, missing).map_err(|error| self.end_of(error))?;
                }
                Err(Refusal::Failed(Error::NoSpace | Error::TooLarge)) => {
                    self.sort_out();
                    return Ok(());
                }
                Err(Refusal::Failed(error)) => return Err(self.end_of(error)),
            }
        }
        self.outcome.commits += 1;
        self.model.apply(notified, self.params.raw.1);
        self.history.push(self.model.clone());
        if !soon {
            self.waiting.insert(ticket, self.history.len() - 1);
        }
        self.sort_out();
        Ok(())
    }

    /// Writes large data directly to the disk and attaches it.
    fn place(&mut self) -> Result<(), End> {
        let block = self.params.geometry.block;
        let count = self.rng.usize(1..20);
        let byte = self.rng.u8(1..);
        let blocks = vec![Block::from_bytes(&vec![byte; block], block); count];
        let ticket = self.ticket();
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        match store.place(now, ticket, blocks, &mut self.out) {
            Ok(()) => {}
            Err(Refusal::Missing(missing)) => {
                return self.fetch(ticket, missing).map_err(|error| self.end_of(error));
            }
            Err(Refusal::Failed(Error::NoSpace)) => return Ok(()),
            Err(Refusal::Failed(error)) => return Err(self.end_of(error)),
        }
        self.sort_out();
        let placed: Result<Vec<Extent>, Error> = self.wait_for(|output| match output {
            Output::Placed(found, result) if *found == ticket => Some(result.clone()),
            _ => None,
        });
        let extents = placed.map_err(|error| self.end_of(error))?;
        if self.rng.u8(0..4) == 0 {
            self.store.as_mut().expect("it is open").abandon(extents);
            return Ok(());
        }
        let (reach, base) = self.params.raw;
        let (object, first) = (self.rng.u64(0..OBJECTS), self.rng.u64(0..reach / block as u64 + 1));
        let start = base + first * block as u64;
        let notified =
            [Change::Write { table: RAW, object, offset: start, data: vec![byte; count * block] }];
        let mut offset = start;
        let mut changes = Vec::new();
        for extent in extents.clone() {
            let length = (extent.sums.len() * block) as u64;
            changes.push(Change::Attach { table: RAW, object, offset, extent });
            offset += length;
        }
        let before = self.outcome.commits;
        self.commit(&changes, &notified)?;
        if self.outcome.commits == before {
            self.store.as_mut().expect("it is open").abandon(extents);
        }
        Ok(())
    }

    /// Enlarges the disk, and then the volume; sometimes without waiting for the result.
    fn grow(&mut self) -> Result<(), End> {
        let (ticket, more) = (self.ticket(), [40, 200, 3000][self.rng.usize(0..3)]);
        let (known, requested) = self.size;
        let blocks = known + self.rng.u64(1..more);
        let store = self.store.as_mut().expect("it is open");
        if known != requested || store.layout().grown(blocks).is_err() {
            return Ok(());
        }
        self.size.1 = blocks;
        self.disk.grow(blocks);
        store.grow(ticket, blocks, &mut self.out);
        self.sort_out();
        if self.rng.bool() {
            return Ok(());
        }
        let result = self.wait_for(|output| match output {
            Output::Committed(found, result) if *found == ticket => Some(*result),
            _ => None,
        });
        if result == Err(Error::TooShort) && self.params.faults.read > 0 {
            self.size.1 = known;
            return Ok(());
        }
        result.map_err(|error| self.end_of(error))?;
        self.size.0 = blocks;
        self.outcome.growths += 1;
        Ok(())
    }

    /// Closes the volume, and makes the state of a snapshot the present one; sometimes power fails
    /// meanwhile.
    fn roll_back(&mut self) -> Result<(), End> {
        let nth = self.rng.usize(0..self.snapshots.len());
        let (name, target) = self.snapshots.iter().nth(nth).expect("there are so many");
        let (name, target) = (name.clone(), target.clone());
        if !self.close() {
            return Err(self.end_of(Error::DiskFailed));
        }
        self.durable = self.history.len() - 1;
        let disk = &self.disk;
        let mut read = |at: u64, count: u32| {
            Some((at..at + u64::from(count)).map(|at| disk.look(at)).collect::<Vec<_>>())
        };
        let plan = rollback::plan(&mut read, &disk.head(), &name);
        let plan = plan.map_err(|error| self.end_of(error))?;
        // As in the command: space of dropped snapshots is not freed before, which would change the
        // planned volume.
        self.ticks = false;
        let is_open = self.open();
        self.ticks = true;
        if !is_open {
            return Err(self.end_of(Error::Damaged));
        }
        self.compare_size();
        let ticket = self.ticket();
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        store.roll_back(now, ticket, plan, &mut self.out);
        self.sort_out();
        self.history.push(target.clone());
        if self.rng.u8(0..3) == 0 {
            (0..self.rng.usize(0..40)).for_each(|_| self.progress());
            return Err(End::Broken);
        }
        let result = self.wait_for(|output| match output {
            Output::Committed(found, result) if *found == ticket => Some(*result),
            _ => None,
        });
        match result {
            Ok(()) => {
                (self.model, self.durable) = (target, self.history.len() - 1);
                self.outcome.rollbacks += 1;
                Ok(())
            }
            // Nothing was changed.
            Err(Error::NoSpace) => {
                self.history.pop();
                Ok(())
            }
            Err(error) => Err(self.end_of(error)),
        }
    }

    fn snapshot(&mut self) -> Result<(), End> {
        let (ticket, name) = (self.ticket(), self.next.to_be_bytes().to_vec());
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        store.snapshot(now, ticket, &name, Time::default(), &mut self.out);
        self.sort_out();
        self.unsure.insert(name.clone(), self.model.clone());
        let result = self.wait_for(|output| match output {
            Output::Committed(found, result) if *found == ticket => Some(*result),
            _ => None,
        });
        match result {
            Ok(()) => {
                // A snapshot is durable, and so is everything before it.
                self.durable = self.durable.max(self.history.len() - 1);
                let model = self.unsure.remove(&name).expect("just put there");
                self.snapshots.insert(name, model);
                Ok(())
            }
            Err(Error::NoSpace) => {
                self.unsure.remove(&name);
                Ok(())
            }
            Err(error) => Err(self.end_of(error)),
        }
    }

    fn drop_snapshot(&mut self) -> Result<(), End> {
        let nth = self.rng.usize(0..self.snapshots.len());
        let name = self.snapshots.keys().nth(nth).expect("there are so many").clone();
        let ticket = self.ticket();
        let (store, now) = (self.store.as_mut().expect("it is open"), Instant(self.now));
        store.drop_snapshot(now, ticket, &name, &mut self.out);
        self.sort_out();
        let model = self.snapshots[&name].clone();
        self.unsure.insert(name.clone(), model);
        let result = self.wait_for(|output| match output {
            Output::Committed(found, result) if *found == ticket => Some(*result),
            _ => None,
        });
        match result {
            Ok(()) => {
                self.unsure.remove(&name);
                self.snapshots.remove(&name);
                Ok(())
            }
            Err(Error::NoSpace) => {
                self.unsure.remove(&name);
                Ok(())
            }
            Err(error) => Err(self.end_of(error)),
        }
    }
}
