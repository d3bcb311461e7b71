//! An administrator, who sets and removes quotas, compares their usage with that of all entries,
//! and grows the volume.
//!
//! The usage is compared while no request is in flight. It is exact, except that the storage of a
//! removed file that was open, or that was removed before a power failure, is freed some time
//! later: there it must become so.

use super::connection::{Connection, DIR, ROOT, Replies, Reply, walk};
use super::filling::Filling;
use super::growth::{self, Growth};
use super::ledger::Ledger;
use super::usage::{BLOCK, HOLDERS, History, Limits, Usage};
use super::{DIRS, USERS};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use store::Layout;
use wire::ninep::{Data, Tmessage};

/// Tag of all messages.
const TAG: u16 = 5;
/// Fid of an attribute.
const ATTRIBUTE: u32 = 40;
/// Error number: no such attribute.
const NO_ATTRIBUTE: u32 = 61;
/// Flag: the attribute must exist.
const REPLACE: u32 = 2;
/// Maximum size of a value, bytes.
const VALUE_MAX: u32 = 2000;
/// Number of free blocks of the volume that other clients may take between two requests.
const OTHERS: u64 = 4000;
/// Maximum pause between two actions, milliseconds.
const PAUSE_MS: u64 = 15;
/// Maximum numbers of turns of the node until a power failure.
const TURNS: [u32; 3] = [20, 300, 3000];
/// Time within which files are counted, and storage is freed, virtual time.
const SETTLED: Duration = Duration::from_secs(300);

/// Reason for reading quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To wait until new limits hold, or to find the size after a growth without a reply.
    Confirm,
    /// To find those kept at a power failure.
    Recover,
    /// To compare usage.
    Audit,
}

/// State of the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    /// Waiting for the time of the next action.
    Idle,
    /// Waiting for the reply to a change of limits.
    Limiting(usize),
    /// Waiting for the quota of this holder.
    Reading(Purpose, usize),
    /// Waiting for the space of the volume and of the directories.
    Measuring(Purpose),
    /// Waiting for a growth.
    Growing,
    /// Waiting for the cause of a refused growth.
    Complaining,
    /// Waiting for the end of the command.
    Closing,
    /// Waiting for a step of using all space.
    Filling,
}

/// A quota that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    limits: Limits,
    used: Usage,
    is_enforced: bool,
}

/// Configuration of an administrator.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to, of the owner of the server.
    pub listener: Listener,
    /// The ledger of all clients.
    pub ledger: Rc<RefCell<Ledger>>,
    /// Layout of the volume.
    pub layout: Layout,
    /// Number of growths.
    pub growths: u32,
    /// Number of power failures.
    pub failures: u32,
    /// Maximum number of blocks of a limit.
    pub blocks_max: u64,
    /// Whether all space is used after a growth.
    pub fills: bool,
}

/// The administrator.
#[derive(Debug)]
pub struct Administrator {
    setup: Setup,
    connection: Connection,
    task: Task,
    /// Limits of each quota; `None` for one that is not there.
    limits: [History<Option<Limits>>; HOLDERS],
    growth: Growth,
    /// File that takes all space, until its space is available again.
    filling: Option<Filling>,
    /// Whether that file must be removed.
    is_unclean: bool,
    /// Quotas read so far for the present purpose.
    found: Vec<Option<Found>>,
    /// A quota whose last change has an unknown outcome, or may not be enforced yet.
    unsure: Option<usize>,
    /// Whether that change was lost with its connection.
    is_lost: bool,
    /// Number of power failures that it knows.
    failures: u32,
    /// Whether quotas and size must be found again.
    is_failed: bool,
    /// Whether storage of files removed before a power failure may still count.
    is_freeing: bool,
    /// Beginning of the audit, if one is due.
    audit: Option<Instant>,
    /// Beginning of the last comparison.
    requested: Instant,
    /// Time of the next action.
    next: Instant,
    is_done: bool,
}

impl Administrator {
    /// Returns an unconnected administrator. Users have quotas without limits, directories none.
    pub fn new(setup: Setup) -> Administrator {
        let limits = std::array::from_fn(|holder| {
            History::new((holder >= DIRS.len()).then_some(Limits::NONE))
        });
        Administrator {
            connection: Connection::new(setup.listener),
            task: Task::Idle,
            limits,
            growth: Growth::new(setup.layout, setup.growths),
            filling: None,
            is_unclean: false,
            found: Vec::new(),
            unsure: None,
            is_lost: false,
            failures: 0,
            is_failed: false,
            is_freeing: false,
            audit: None,
            requested: Instant(0),
            next: Instant(0),
            is_done: false,
            setup,
        }
    }

    /// Begins the next action.
    fn work(&mut self, io: &mut Io<'_>) {
        if !self.connection.is_open() || self.task != Task::Idle || io.now() < self.next {
            return;
        }
        if self.is_failed {
            return self.read(io, Purpose::Recover, 0);
        }
        if let Some(holder) = self.unsure {
            return self.read(io, Purpose::Confirm, holder);
        }
        if self.is_unclean {
            return self.clean(io);
        }
        if self.growth.is_pending() {
            let line = self.growth.command();
            return self.send(io, Task::Growing, &growth::command(&line));
        }
        if self.audit.is_some() {
            if self.setup.ledger.borrow().is_quiet() {
                self.requested = io.now();
                self.read(io, Purpose::Audit, 0);
            }
            return;
        }
        let is_complete = self.setup.ledger.borrow().is_complete();
        match io.rng().u8(..10) {
            _ if is_complete && self.growth.left > 0 => self.grow(io),
            0 | 1 if self.growth.left > 0 => self.grow(io),
            2 if self.setup.failures > 0 => self.fail_power(io),
            _ if is_complete && self.setup.failures > 0 => self.fail_power(io),
            3 => self.begin_audit(io),
            _ if is_complete => self.begin_audit(io),
            _ => self.limit(io),
        }
    }

    /// Waits before the next action.
    fn rest(&mut self, io: &mut Io<'_>, most_ms: u64) {
        self.task = Task::Idle;
        let pause = Duration::from_micros(io.rng().u64(..most_ms * 1000));
        self.next = io.now() + pause;
        io.wake_in(pause);
    }

    fn fail_power(&mut self, io: &mut Io<'_>) {
        self.setup.failures -= 1;
        let most = TURNS[io.rng().usize(..TURNS.len())];
        let turns = io.rng().u32(..most);
        io.env.fail_power_in(turns);
        self.rest(io, PAUSE_MS);
    }

    fn begin_audit(&mut self, io: &mut Io<'_>) {
        self.audit = Some(io.now());
        self.setup.ledger.borrow_mut().pause();
        self.work(io);
    }

    fn send(&mut self, io: &mut Io<'_>, task: Task, messages: &[Tmessage<'_>]) {
        io.trace(format_args!("{task:?}"));
        self.task = task;
        self.connection.send(io, TAG, messages);
    }

    /// Draws and sets the limits of a quota, or removes it.
    fn limit(&mut self, io: &mut Io<'_>) {
        let holder = io.rng().usize(..HOLDERS);
        let is_there = self.limits[holder].last().is_some();
        let removes = holder < DIRS.len() && is_there && io.one_in(6);
        let after = (!removes).then(|| self.draw(io));
        let limits = after.unwrap_or(Limits::NONE);
        let (fid, name) = (fid_of(holder), attribute(holder));
        let (name, value) = (name.as_bytes(), after.map_or_else(String::new, |it| value(&it)));
        let (size, flags) = (value.len() as u64, if removes { REPLACE } else { 0 });
        let mut messages = vec![
            walk(fid, ATTRIBUTE, &[]),
            Tmessage::Xattrcreate { fid: ATTRIBUTE, name, size, flags },
            Tmessage::Write { fid: ATTRIBUTE, offset: 0, data: Data(value.as_bytes()) },
            Tmessage::Clunk { fid: ATTRIBUTE },
        ];
        if removes {
            messages.remove(2);
        }
        self.limits[holder].begin(io.now().0, after);
        self.setup.ledger.borrow_mut().begin_limit(io.now(), holder, limits);
        io.trace(format_args!("{} {value}", attribute(holder)));
        self.send(io, Task::Limiting(holder), &messages);
    }

    fn draw(&mut self, io: &mut Io<'_>) -> Limits {
        let blocks = io.rng().u64(..=self.setup.blocks_max);
        let odd = if io.one_in(3) { io.rng().u64(..BLOCK) } else { 0 };
        let bytes = if io.one_in(4) { u64::MAX } else { blocks * BLOCK + odd };
        let inodes = if io.one_in(2) { u64::MAX } else { io.rng().u64(..12) };
        Limits { bytes, inodes }
    }

    fn grow(&mut self, io: &mut Io<'_>) {
        let line = self.growth.draw(io.rng());
        if io.one_in(2) {
            self.growth.extend(io);
        }
        if self.setup.failures > 0 && io.one_in(2) {
            self.setup.failures -= 1;
            let turns = io.rng().u32(..TURNS[0] * 3);
            io.env.fail_power_in(turns);
        }
        io.trace(format_args!("{line}"));
        self.send(io, Task::Growing, &growth::command(&line));
    }

    /// Reads the quota of a holder.
    fn read(&mut self, io: &mut Io<'_>, purpose: Purpose, holder: usize) {
        let (fid, name) = (fid_of(holder), attribute(holder));
        let messages = [
            Tmessage::Xattrwalk { fid, newfid: ATTRIBUTE, name: name.as_bytes() },
            Tmessage::Read { fid: ATTRIBUTE, offset: 0, count: VALUE_MAX },
            Tmessage::Clunk { fid: ATTRIBUTE },
        ];
        self.send(io, Task::Reading(purpose, holder), &messages);
    }

    fn measure(&mut self, io: &mut Io<'_>, purpose: Purpose) {
        let dirs = (DIR..).take(DIRS.len());
        let of = |fid| Tmessage::Statfs { fid };
        let messages: Vec<Tmessage<'_>> = [ROOT].into_iter().chain(dirs).map(of).collect();
        self.send(io, Task::Measuring(purpose), &messages);
    }

    fn replied(&mut self, io: &mut Io<'_>, replies: Replies) {
        io.judged();
        let last = replies.replies.last().cloned().expect("each message has a reply");
        match (self.task.clone(), last) {
            (Task::Limiting(holder), Reply::Done) => {
                let durable = self.setup.ledger.borrow().durable();
                self.limits[holder].end(io.now().0, durable);
                self.unsure = Some(holder);
                self.rest(io, 1);
            }
            (Task::Reading(purpose, holder), last) => {
                let found = match (&replies.replies[..], last) {
                    ([Reply::Attribute(_), Reply::Data(value), _], Reply::Done) => parse(value),
                    ([_], Reply::Error(NO_ATTRIBUTE)) => None,
                    (other, _) => panic!("a quota is {other:?}"),
                };
                self.took(io, purpose, holder, found);
            }
            (Task::Measuring(purpose), _) => self.measured(io, purpose, &replies.replies),
            (Task::Growing, Reply::Written(_)) => {
                self.growth.succeed(io);
                self.send(io, Task::Closing, &growth::close());
            }
            (Task::Growing, Reply::Error(_)) => {
                self.send(io, Task::Complaining, &growth::complaint());
            }
            (Task::Complaining, Reply::Done) => {
                let Some(Reply::Data(text)) = replies.replies.first() else {
                    panic!("no cause: {replies:?}")
                };
                if !self.growth.is_too_short(text) {
                    return self.measure(io, Purpose::Confirm);
                }
                self.growth.extend(io);
                let line = self.growth.command();
                self.send(io, Task::Growing, &growth::command(&line));
            }
            (Task::Closing, Reply::Done) => {
                self.begin_audit_or_rest(io);
            }
            (Task::Filling, last) => self.filled(io, &last),
            (task, _) => panic!("{task:?} got {:?}", replies.replies),
        }
    }

    /// Compares the space after a growth, often at once.
    fn begin_audit_or_rest(&mut self, io: &mut Io<'_>) {
        self.task = Task::Idle;
        if io.one_in(2) {
            return self.begin_audit(io);
        }
        self.rest(io, PAUSE_MS);
    }

    /// Handles a quota that was read.
    fn took(&mut self, io: &mut Io<'_>, purpose: Purpose, holder: usize, found: Option<Found>) {
        if purpose == Purpose::Confirm {
            return self.confirm(io, holder, found);
        }
        self.found.truncate(holder);
        self.found.push(found);
        match holder + 1 < HOLDERS {
            true => self.read(io, purpose, holder + 1),
            false => self.measure(io, purpose),
        }
    }

    /// Handles the quota whose limits were changed last.
    fn confirm(&mut self, io: &mut Io<'_>, holder: usize, found: Option<Found>) {
        let mut ledger = self.setup.ledger.borrow_mut();
        let limits = found.map(|found| found.limits);
        if std::mem::take(&mut self.is_lost) {
            if limits == *self.limits[holder].last() {
                self.limits[holder].end(io.now().0, ledger.durable());
            } else {
                self.limits[holder].undo();
                ledger.undo_limit(holder);
            }
        }
        assert_eq!(limits, *self.limits[holder].last(), "limits of {}", attribute(holder));
        if found.is_none_or(|found| found.is_enforced) {
            ledger.enforce(io.now(), holder);
            self.unsure = None;
        }
        drop(ledger);
        self.rest(io, if self.unsure.is_some() { 20 } else { PAUSE_MS });
    }

    fn measured(&mut self, io: &mut Io<'_>, purpose: Purpose, replies: &[Reply]) {
        let space = |reply: &Reply| match reply {
            Reply::Space { blocks, free, available } => (*blocks, *free, *available),
            other => panic!("space is {other:?}"),
        };
        let spaces: Vec<(u64, u64, u64)> = replies.iter().map(space).collect();
        self.task = Task::Idle;
        match purpose {
            Purpose::Recover => self.recover(io, spaces[0].0),
            Purpose::Audit => self.judge(io, &spaces),
            Purpose::Confirm => {
                self.growth.recover(io, spaces[0].0);
                self.rest(io, 200);
            }
        }
    }

    /// Handles the limits and the size found after a power failure.
    fn recover(&mut self, io: &mut Io<'_>, blocks: u64) {
        self.is_failed = false;
        for (holder, found) in self.found.iter().enumerate() {
            let limits = found.map(|found| found.limits);
            let (spans, _): (Vec<_>, Vec<_>) =
                self.limits[holder].admissible(|known| *known == limits).into_iter().unzip();
            let name = attribute(holder);
            assert!(!spans.is_empty(), "{name} has {limits:?} after a power failure");
            self.limits[holder] = History::new(limits);
            let is_enforced = found.is_none_or(|found| found.is_enforced);
            let mut ledger = self.setup.ledger.borrow_mut();
            let now = io.now();
            ledger.found_limits(now, holder, (limits.unwrap_or(Limits::NONE), is_enforced));
            ledger.found(io, spans, None);
        }
        self.growth.recover(io, blocks);
        self.begin_audit(io);
    }

    /// Compares usage and space with those expected.
    fn judge(&mut self, io: &mut Io<'_>, spaces: &[(u64, u64, u64)]) {
        let mut ledger = self.setup.ledger.borrow_mut();
        assert!(ledger.is_quiet(), "requests are in flight");
        let usage = ledger.usage();
        let may_lag = self.is_freeing || ledger.is_freeing();
        let mut is_exact = true;
        for (holder, found) in self.found.iter().enumerate() {
            let (name, expected) = (attribute(holder), usage.0[holder]);
            let limits = found.map(|found| found.limits);
            assert_eq!(limits, *self.limits[holder].last(), "limits of {name}");
            let Some(found) = found else { continue };
            let is_same = found.used == expected;
            let may_differ = !found.is_enforced
                || may_lag
                    && found.used.blocks >= expected.blocks
                    && found.used.inodes >= expected.inodes;
            assert!(is_same || may_differ, "{name} counts {found:?}, and has {expected:?}");
            is_exact &= is_same && found.is_enforced;
        }
        let (blocks, free, available) = spaces[0];
        assert_eq!(blocks, self.growth.data_blocks(), "blocks of the volume");
        for (holder, (blocks, left, _)) in spaces[1..].iter().enumerate() {
            let Some(found) = self.found[holder].filter(|_| is_exact) else { continue };
            let most = (found.limits.bytes / BLOCK).min(spaces[0].0);
            let unused = most.saturating_sub(found.used.blocks.cast_unsigned());
            let name = DIRS[holder];
            assert_eq!(*blocks, most, "the size of {name}");
            // Other clients may take free blocks of the volume, but not as many.
            assert!(unused + OTHERS > free || *left == unused, "{name}: {left} of {unused} free");
            assert!(*left <= unused, "{name}: {left} of {unused} free");
        }
        if let Some(filling) = &self.filling {
            is_exact &= filling.is_freed(available);
        } else if is_exact && self.setup.fills && self.growth.has_grown {
            drop(ledger);
            return self.fill(io, available);
        }
        if is_exact {
            ledger.freed(io.now());
            (0..HOLDERS).for_each(|holder| ledger.enforce(io.now(), holder));
            (self.audit, self.is_freeing, self.filling) = (None, false, None);
            io.env.totals.audits += 1;
            self.is_done = ledger.is_complete() && self.growth.left == 0;
            if self.is_done {
                io.env.keep_power();
            }
            ledger.resume(io);
        }
        drop(ledger);
        self.wait_for_audit(io);
    }

    /// Uses all space of the volume while no request is in flight.
    fn fill(&mut self, io: &mut Io<'_>, available: u64) {
        self.growth.has_grown = false;
        let payload_max = self.connection.payload_max();
        let connection = &mut self.connection;
        let send = |messages: &[Tmessage<'_>]| connection.send(io, TAG, messages);
        self.filling = Some(Filling::new(available, payload_max, send));
        self.task = Task::Filling;
    }

    /// Removes the file that takes all space after a lost connection or a power failure.
    fn clean(&mut self, io: &mut Io<'_>) {
        let (connection, filling) = (&mut self.connection, self.filling.as_mut());
        let filling = filling.expect("it was being filled");
        filling.clean(|messages| connection.send(io, TAG, messages));
        (self.task, self.is_unclean) = (Task::Filling, false);
    }

    fn filled(&mut self, io: &mut Io<'_>, reply: &Reply) {
        let filling = self.filling.as_mut().expect("it is being filled");
        let connection = &mut self.connection;
        if filling.step(reply, |messages| connection.send(io, TAG, messages)) {
            self.audit = Some(io.now());
            self.rest(io, PAUSE_MS);
        }
    }

    fn wait_for_audit(&mut self, io: &mut Io<'_>) {
        // A reply may have taken long to arrive: it shows the state of the time of its request.
        let requested = self.requested;
        let waited =
            self.audit.map_or(Duration::ZERO, |since| requested.since(since.min(requested)));
        let (found, ledger) = (&self.found, self.setup.ledger.borrow());
        assert!(waited < SETTLED, "usage is still {found:?}, and not {:?}", ledger.usage());
        drop(ledger);
        if self.is_done {
            return self.connection.leave(io);
        }
        self.rest(io, PAUSE_MS);
    }

    /// Notes power failures: quotas and size must be found again.
    fn note_failures(&mut self, io: &mut Io<'_>) {
        if self.failures == io.env.power_failures() {
            return;
        }
        self.failures = io.env.power_failures();
        self.setup.ledger.borrow_mut().note_failures(io);
        self.connection.give_up();
        (self.task, self.unsure, self.is_lost) = (Task::Idle, None, false);
        (self.is_failed, self.is_freeing, self.audit) = (true, true, None);
        (self.is_done, self.is_unclean) = (false, self.filling.is_some());
    }
}

/// Returns the fid of the file with a holder's attribute.
fn fid_of(holder: usize) -> u32 {
    let dirs = DIR..DIR + u32::try_from(DIRS.len()).expect("few directories");
    dirs.chain([ROOT; USERS.len()]).nth(holder).expect("one of the holders")
}

fn attribute(holder: usize) -> String {
    match holder.checked_sub(DIRS.len()) {
        None => "trusted.upcall.quota".to_string(),
        Some(user) => format!("trusted.upcall.quota.user.{}", USERS[user]),
    }
}

fn value(limits: &Limits) -> String {
    let limit = |most: u64| if most == u64::MAX { "none".to_string() } else { most.to_string() };
    format!("max_bytes={} max_inodes={}", limit(limits.bytes), limit(limits.inodes))
}

/// Parses the value of a quota.
fn parse(value: &[u8]) -> Option<Found> {
    let text = str::from_utf8(value).expect("values are text");
    let word = |name: &str| {
        let mut words = text.split(' ').filter_map(|word| word.strip_prefix(name));
        words.next().unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let number = |name: &str| -> u64 {
        let word = word(name);
        if word == "none" { u64::MAX } else { word.parse().expect("a number") }
    };
    let bytes = number("used_bytes=");
    assert!(bytes.is_multiple_of(BLOCK), "{text}");
    let (blocks, inodes) = ((bytes / BLOCK).cast_signed(), number("used_inodes=").cast_signed());
    Some(Found {
        limits: Limits { bytes: number("max_bytes="), inodes: number("max_inodes=") },
        used: Usage { blocks, inodes },
        is_enforced: word("state=") == "enforced",
    })
}

impl Client for Administrator {
    fn wake(&mut self, io: &mut Io<'_>) {
        self.setup.ledger.borrow_mut().join(io.index);
        self.note_failures(io);
        self.connection.keep(io, !self.is_done);
        self.work(io);
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.note_failures(io);
        for replies in self.connection.received(io, bytes) {
            self.replied(io, replies);
        }
        self.work(io);
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        self.note_failures(io);
        self.connection.ended(io);
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        self.note_failures(io);
        self.connection.closed();
        self.growth.lose();
        match std::mem::replace(&mut self.task, Task::Idle) {
            Task::Limiting(holder) => (self.unsure, self.is_lost) = (Some(holder), true),
            Task::Idle
            | Task::Reading(..)
            | Task::Measuring(_)
            | Task::Growing
            | Task::Complaining
            | Task::Closing => {}
            Task::Filling => self.is_unclean = true,
        }
        if !self.is_done {
            self.rest(io, 200);
        }
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(self.is_done, "never came to rest: {self:?}");
    }

    fn is_done(&self) -> bool {
        self.is_done
    }
}
