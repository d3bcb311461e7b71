//! A 9P2000.L client that exceeds quotas, with entries of its own in directories that it shares
//! with others.
//!
//! Each entry has at most one request in flight, so its contents are known, and the usage by all
//! entries is within known bounds ([`ledger`]). A refused request changes nothing. After a lost
//! connection or a power failure the client searches for its entries: each must be in a state that
//! its requests explain, and all together in the state of one moment, not before the last `fsync`
//! ([`usage::History`]).

pub mod administrator;
mod connection;
mod filling;
mod growth;
pub mod ledger;
pub mod uploader;
mod usage;

use super::{Client, Io};
use base::Instant;
use base::op::Listener;
use connection::{Connection, DIR, Replies, Reply, set_stat, walk};
use ledger::{Key, Ledger};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use usage::{BLOCK, Contents, Entry, History, Usages};
use wire::ninep::{Data, Tmessage};

/// Directories with quotas, in the root.
pub const DIRS: [&str; 2] = ["limited-0", "limited-1"];
/// Users with quotas. Each owns one of the directories, and files created there.
pub const USERS: [u32; 2] = [1001, 1002];

/// Error numbers: a missing file, an exceeded quota.
const NOT_FOUND: u32 = 2;
const QUOTA_EXCEEDED: u32 = 122;
/// Maximum size of a file, bytes: all of it is freed at once.
const SIZE_MAX: usize = 60 * BLOCK as usize;
/// Sizes of data, bytes.
const SIZES: [(usize, usize); 4] = [(1, 600), (1, 5_000), (4_000, 60_000), (66_000, 110_000)];
/// First tag, and first fid, of entries.
const TAGS: u16 = 10;
const FIDS: u32 = 10;
/// Flags of an open for reading and writing, and of the removal of a directory.
const READ_WRITE: u32 = 2;
const REMOVE_DIR: u32 = 0x200;

/// Returns a byte of data at an offset: neighbouring blocks are different.
fn pattern(at: usize) -> u8 {
    ((at >> 4) ^ (at / BLOCK as usize).wrapping_mul(31)) as u8
}

/// State of an entry's fid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fid {
    Free,
    /// At a directory, to create the entry in it.
    Directory(usize),
    /// Open, perhaps after the removal of the file.
    Open,
}

/// Next state of a fid, after a message without effect on the entry.
type NextFid = Fid;

/// State of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Activity {
    /// Waiting for its turn.
    Idle,
    /// Waiting to be searched.
    Unknown,
    /// Waiting for the reply to a change; it frees storage later.
    Changing(Key, bool),
    /// Waiting for the reply to a message that changes the state of the fid.
    Moving(NextFid),
    /// Waiting for a sync.
    Syncing,
    /// Waiting for a walk to the entry in this directory; found in the other one or not.
    Searching(usize, bool),
    /// Waiting for the attributes of the entry in this directory.
    Describing(usize),
    /// Waiting for a part of the contents; the number of blocks, and the contents so far.
    Reading(Entry, usize),
}

/// An entry of a client.
#[derive(Debug)]
struct Slot {
    name: String,
    history: History<Option<Entry>>,
    fid: Fid,
    activity: Activity,
    /// A request that was lost, the end of its connection, and whether it frees storage later.
    lost: Option<(Key, Instant, bool)>,
    /// Whether it was not found yet after a power failure.
    is_failed: bool,
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Listener to connect to.
    pub listener: Listener,
    /// Number of the client.
    pub number: usize,
    /// Number of entries.
    pub entries: usize,
    /// Number of requests.
    pub requests: u32,
    /// Whether each change is durable before its reply.
    pub write_through: bool,
    /// The ledger of all clients.
    pub ledger: Rc<RefCell<Ledger>>,
}

/// The client.
#[derive(Debug)]
pub struct QuotaClient {
    setup: Setup,
    connection: Connection,
    slots: Vec<Slot>,
    /// Number of power failures that it knows.
    failures: u32,
    left: u32,
    salt: u8,
    /// Whether all entries are compared for the last time, or have been.
    is_checked: bool,
    is_done: bool,
}

impl QuotaClient {
    /// Returns an unconnected client.
    pub fn new(setup: Setup) -> QuotaClient {
        let slot = |index| Slot {
            name: format!("c{}e{index}", setup.number),
            history: History::new(None),
            fid: Fid::Free,
            activity: Activity::Idle,
            lost: None,
            is_failed: false,
        };
        QuotaClient {
            connection: Connection::new(setup.listener),
            slots: (0..setup.entries).map(slot).collect(),
            failures: 0,
            left: setup.requests,
            salt: setup.number as u8 * 64,
            is_checked: false,
            is_done: false,
            setup,
        }
    }

    /// Begins requests for all idle entries.
    fn work(&mut self, io: &mut Io<'_>) {
        for index in 0..self.slots.len() {
            if !self.connection.is_open() {
                return;
            }
            match self.slots[index].activity {
                Activity::Unknown => self.search(io, index, 0, false),
                Activity::Idle => self.begin(io, index),
                Activity::Changing(..)
                | Activity::Moving(_)
                | Activity::Syncing
                | Activity::Searching(..)
                | Activity::Describing(_)
                | Activity::Reading(..) => {}
            }
        }
        let is_idle = |slot: &Slot| slot.activity == Activity::Idle;
        if !self.connection.is_open() || self.left > 0 || !self.slots.iter().all(is_idle) {
            return;
        }
        // A new connection compares all entries.
        if std::mem::replace(&mut self.is_checked, true) && !self.is_done {
            self.is_done = true;
            self.setup.ledger.borrow_mut().complete(io);
        }
        self.connection.leave(io);
    }

    fn send(&mut self, io: &mut Io<'_>, index: usize, activity: Activity, message: &Tmessage<'_>) {
        io.trace(format_args!("{}: {activity:?}", self.slots[index].name));
        self.slots[index].activity = activity;
        self.connection.send(io, tag(index), std::slice::from_ref(message));
    }

    /// Begins a request that changes an entry.
    fn change(
        &mut self,
        io: &mut Io<'_>,
        index: usize,
        after: Option<Entry>,
        message: &Tmessage<'_>,
    ) {
        let slot = &mut self.slots[index];
        let before = slot.history.last();
        let usages = Usages::change((*before).as_ref(), after.as_ref());
        let frees_later = before.is_some() && after.is_none() && slot.fid == Fid::Open;
        slot.history.begin(io.now().0, after);
        let key = self.setup.ledger.borrow_mut().begin(io.now(), usages);
        self.send(io, index, Activity::Changing(key, frees_later), message);
    }

    /// Draws and begins a request.
    fn begin(&mut self, io: &mut Io<'_>, index: usize) {
        let (last, fid) = (self.slots[index].history.last(), self.slots[index].fid);
        if last.is_none() && fid == Fid::Open {
            // An audit waits until the storage of the removed file is freed.
            return self.clunk(io, index);
        }
        if self.left == 0 || !self.setup.ledger.borrow().is_open() {
            return;
        }
        self.left -= 1;
        match (&*last, fid) {
            (None, Fid::Directory(dir)) => self.create(io, index, dir),
            (None, Fid::Free) => {
                let dir = io.rng().usize(..DIRS.len());
                let message = walk(dir_fid(dir), fid_of(index), &[]);
                self.send(io, index, Activity::Moving(Fid::Directory(dir)), &message);
            }
            (None, Fid::Open) => unreachable!("closed above"),
            (Some(entry), fid) => match (&entry.file, fid) {
                (_, Fid::Directory(_)) => self.clunk(io, index),
                (Some(file), Fid::Open) => self.edit(io, index, entry, file),
                (None, _) if io.one_in(2) => self.rename(io, index, entry),
                (None, _) => self.remove(io, index, entry),
                (Some(_), Fid::Free) => match io.rng().u8(..8) {
                    0..5 => self.open(io, index, entry.dir),
                    5 => self.rename(io, index, entry),
                    _ => self.remove(io, index, entry),
                },
            },
        }
    }

    fn clunk(&mut self, io: &mut Io<'_>, index: usize) {
        let message = Tmessage::Clunk { fid: fid_of(index) };
        self.send(io, index, Activity::Moving(Fid::Free), &message);
    }

    /// Searches for an entry.
    fn search(&mut self, io: &mut Io<'_>, index: usize, dir: usize, found: bool) {
        let name = self.slots[index].name.clone();
        // An entry that was found in one directory must not be in the other one.
        let newfid = fid_of(index) + 20 * u32::from(found);
        let message = walk(dir_fid(dir), newfid, &[name.as_bytes()]);
        self.send(io, index, Activity::Searching(dir, found), &message);
    }

    fn open(&mut self, io: &mut Io<'_>, index: usize, dir: usize) {
        let name = self.slots[index].name.clone();
        let messages = [
            walk(dir_fid(dir), fid_of(index), &[name.as_bytes()]),
            Tmessage::Lopen { fid: fid_of(index), flags: READ_WRITE },
        ];
        self.slots[index].activity = Activity::Moving(Fid::Open);
        self.connection.send(io, tag(index), &messages);
    }

    fn create(&mut self, io: &mut Io<'_>, index: usize, dir: usize) {
        let name = self.slots[index].name.clone();
        let (name, mode, gid, fid) = (name.as_bytes(), 0o755, 0, fid_of(index));
        if io.one_in(4) {
            let after = Entry { dir, owner: dir, file: None };
            let message = Tmessage::Mkdir { dfid: fid, name, mode, gid };
            return self.change(io, index, Some(after), &message);
        }
        let after = Entry { dir, owner: dir, file: Some(Contents::default()) };
        let message = Tmessage::Lcreate { fid, name, flags: READ_WRITE, mode, gid };
        self.change(io, index, Some(after), &message);
    }

    fn rename(&mut self, io: &mut Io<'_>, index: usize, entry: &Entry) {
        let name = self.slots[index].name.clone();
        let (oldname, newname) = (name.as_bytes(), name.as_bytes());
        let to = 1 - entry.dir;
        let (olddirfid, newdirfid) = (dir_fid(entry.dir), dir_fid(to));
        let after = Entry { dir: to, ..entry.clone() };
        let message = Tmessage::Renameat { olddirfid, oldname, newdirfid, newname };
        self.change(io, index, Some(after), &message);
    }

    fn remove(&mut self, io: &mut Io<'_>, index: usize, entry: &Entry) {
        let name = self.slots[index].name.clone();
        let flags = if entry.file.is_none() { REMOVE_DIR } else { 0 };
        let message = Tmessage::Unlinkat { dfid: dir_fid(entry.dir), name: name.as_bytes(), flags };
        self.change(io, index, None, &message);
    }

    /// Draws and begins a request for an open file.
    fn edit(&mut self, io: &mut Io<'_>, index: usize, entry: &Entry, file: &Contents) {
        let fid = fid_of(index);
        let with = |file: Contents| Entry { file: Some(file), ..entry.clone() };
        match io.rng().u8(..20) {
            0..11 => {
                let data = self.data(io);
                let last = (file.data.len() + 9000).min(SIZE_MAX - data.len());
                let offset = io.rng().usize(..=last);
                let after = with(file.written(offset, &data));
                let message = Tmessage::Write { fid, offset: offset as u64, data: Data(&data) };
                self.change(io, index, Some(after), &message);
            }
            11..13 => {
                let size = io.rng().usize(..=(file.data.len() + 9000).min(SIZE_MAX));
                let after = with(file.resized(size));
                let message = set_stat(fid, None, Some(size as u64));
                self.change(io, index, Some(after), &message);
            }
            13 => {
                let owner = 1 - entry.owner;
                let message = set_stat(fid, Some(USERS[owner]), None);
                self.change(io, index, Some(Entry { owner, ..entry.clone() }), &message);
            }
            14 | 15 => {
                let message = Tmessage::Fsync { fid, data_only: Some(0) };
                self.send(io, index, Activity::Syncing, &message);
            }
            16 => self.rename(io, index, entry),
            17 => self.remove(io, index, entry),
            18 => self.clunk(io, index),
            _ => self.describe(io, index, entry.dir),
        }
    }

    fn data(&mut self, io: &mut Io<'_>) -> Vec<u8> {
        let most = io.env.params.payload_max().min(self.connection.payload_max());
        let (least, longest) = SIZES[io.rng().usize(..SIZES.len())];
        let count = io.rng().usize(least..=longest).min(most).max(1);
        self.salt = self.salt.wrapping_add(1);
        (0..count).map(|at| (self.salt ^ pattern(at)).max(1)).collect()
    }

    fn describe(&mut self, io: &mut Io<'_>, index: usize, dir: usize) {
        let message = Tmessage::Getattr { fid: fid_of(index), mask: 0x7ff };
        self.send(io, index, Activity::Describing(dir), &message);
    }

    /// Reads the next part of an entry's contents.
    fn read(&mut self, io: &mut Io<'_>, index: usize, found: Entry, blocks: usize) {
        let length = found.file.as_ref().map_or(0, |file| file.data.len());
        let count = self.connection.payload_max().min(SIZE_MAX + 1) as u32;
        let message = Tmessage::Read { fid: fid_of(index), offset: length as u64, count };
        let reading = Activity::Reading(found, blocks);
        self.slots[index].activity = reading;
        self.connection.send(io, tag(index), std::slice::from_ref(&message));
    }

    fn replied(&mut self, io: &mut Io<'_>, replies: &Replies) {
        io.judged();
        let index = usize::from(replies.tag - TAGS);
        let last = replies.replies.last().expect("each message has a reply");
        let slot = &mut self.slots[index];
        match (std::mem::replace(&mut slot.activity, Activity::Idle), last) {
            (Activity::Changing(key, frees_later), reply) => {
                self.changed(io, index, (key, frees_later), reply);
            }
            (Activity::Moving(fid), Reply::Done) => slot.fid = fid,
            (Activity::Syncing, Reply::Done) => {
                self.setup.ledger.borrow_mut().synced(replies.begin);
            }
            (Activity::Searching(dir, found), reply) => {
                self.searched(io, index, (dir, found), reply);
            }
            (Activity::Describing(dir), Reply::Stat { is_directory, uid, size, blocks }) => {
                let owner = USERS.iter().position(|known| known == uid);
                let owner = owner.unwrap_or_else(|| panic!("{} belongs to {uid}", slot.name));
                let file = (!is_directory).then(Contents::default);
                let blocks = usize::try_from(*blocks).expect("a small file") * 512 / BLOCK as usize;
                let found = Entry { dir, owner, file };
                assert!(*size <= SIZE_MAX as u64 || *is_directory, "it has {size} bytes");
                match is_directory {
                    true => self.found(io, index, Some(found), 0),
                    false => self.opened(io, index, found, blocks),
                }
            }
            (Activity::Reading(found, blocks), Reply::Data(data)) => {
                self.take(io, index, (found, blocks), data);
            }
            (activity, reply) => panic!("{}: {activity:?} got {reply:?}", slot.name),
        }
    }

    fn changed(&mut self, io: &mut Io<'_>, index: usize, change: (Key, bool), reply: &Reply) {
        let (slot, mut ledger) = (&mut self.slots[index], self.setup.ledger.borrow_mut());
        let (key, frees_later) = change;
        if *reply == Reply::Error(QUOTA_EXCEEDED) {
            io.trace(format_args!("{}: refused", slot.name));
            slot.history.undo();
            ledger.refuse(io, key);
            drop(ledger);
            return self.expect_unchanged(io, index);
        }
        let now = io.now().0;
        slot.history.end(now, ledger.durable());
        if self.setup.write_through {
            slot.history.forget();
        }
        let last = slot.history.last();
        match (&*last, reply) {
            (_, Reply::Done) => {}
            (Some(Entry { file: Some(_), .. }), Reply::Written(_)) => {}
            (_, reply) => panic!("{}: {last:?} is not had by {reply:?}", slot.name),
        }
        if matches!(&*last, Some(Entry { file: Some(_), .. }))
            && matches!(slot.fid, Fid::Directory(_))
        {
            slot.fid = Fid::Open;
        }
        ledger.succeed(io, key, frees_later);
    }

    /// Looks whether a refused request has changed the entry.
    fn expect_unchanged(&mut self, io: &mut Io<'_>, index: usize) {
        let slot = &self.slots[index];
        let last = slot.history.last();
        match (&*last, slot.fid) {
            (Some(entry), Fid::Open) => self.describe(io, index, entry.dir),
            (Some(_), Fid::Free) => self.slots[index].activity = Activity::Unknown,
            (Some(_), Fid::Directory(_)) | (None, _) => {}
        }
    }

    fn searched(
        &mut self,
        io: &mut Io<'_>,
        index: usize,
        (dir, found): (usize, bool),
        reply: &Reply,
    ) {
        let is_here = *reply == Reply::Done;
        assert!(is_here || *reply == Reply::Error(NOT_FOUND), "a walk gets {reply:?}");
        assert!(!(is_here && found), "{} is in both directories", self.slots[index].name);
        match (dir, is_here || found) {
            (0, found) => self.search(io, index, 1, found),
            (_last, false) => self.found(io, index, None, 0),
            (_last, true) => self.describe(io, index, usize::from(is_here)),
        }
    }

    /// Opens a file that was found, to read it; it is read at once if it is open.
    fn opened(&mut self, io: &mut Io<'_>, index: usize, found: Entry, blocks: usize) {
        if self.slots[index].fid == Fid::Open {
            return self.read(io, index, found, blocks);
        }
        self.slots[index].fid = Fid::Open;
        let count = self.connection.payload_max().min(SIZE_MAX + 1) as u32;
        let fid = fid_of(index);
        let messages =
            [Tmessage::Lopen { fid, flags: READ_WRITE }, Tmessage::Read { fid, offset: 0, count }];
        self.slots[index].activity = Activity::Reading(found, blocks);
        self.connection.send(io, tag(index), &messages);
    }

    fn take(
        &mut self,
        io: &mut Io<'_>,
        index: usize,
        (mut found, blocks): (Entry, usize),
        data: &[u8],
    ) {
        let file = found.file.as_mut().expect("directories are not read");
        file.data.extend_from_slice(data);
        match data.is_empty() {
            true => self.found(io, index, Some(found), blocks),
            false => self.read(io, index, found, blocks),
        }
    }

    /// Compares an entry that was found with those that its requests may have left.
    fn found(&mut self, io: &mut Io<'_>, index: usize, found: Option<Entry>, blocks: usize) {
        let (slot, mut ledger) = (&mut self.slots[index], self.setup.ledger.borrow_mut());
        slot.activity = Activity::Idle;
        let is_like = |known: &Option<Entry>| match (known, &found) {
            (None, None) => true,
            (Some(known), Some(found)) => known.is_like(found, blocks),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if found.as_ref().is_some_and(|found| found.file.is_none()) {
            // The fid of a directory that was found.
            slot.fid = Fid::Directory(0);
        }
        if std::mem::take(&mut slot.is_failed) {
            let (spans, mut states): (Vec<_>, Vec<_>) =
                slot.history.admissible(is_like).into_iter().unzip();
            let state = states.pop();
            let state = state.unwrap_or_else(|| panic!("{}", slot.complaint(&found, blocks)));
            let usages = state.as_ref().as_ref().map(Entry::usage);
            slot.history = History::new((*state).clone());
            return ledger.found(io, spans, usages);
        }
        let is_last = is_like(&slot.history.last());
        match slot.lost.take() {
            Some((key, closed, frees_later)) if is_last => {
                slot.history.end(closed.0, ledger.durable());
                ledger.resolve(io, key, Some(closed), frees_later);
            }
            Some((key, ..)) => {
                slot.history.undo();
                ledger.resolve(io, key, None, false);
            }
            None => {}
        }
        assert!(is_like(&slot.history.last()), "{}", slot.complaint(&found, blocks));
    }

    /// Notes power failures: all entries must be found again.
    fn note_failures(&mut self, io: &mut Io<'_>) {
        if self.failures == io.env.power_failures() {
            return;
        }
        self.failures = io.env.power_failures();
        self.setup.ledger.borrow_mut().note_failures(io);
        self.connection.give_up();
        for slot in &mut self.slots {
            (slot.lost, slot.is_failed) = (None, true);
            (slot.activity, slot.fid) = (Activity::Unknown, Fid::Free);
        }
    }
}

impl Slot {
    fn complaint(&self, found: &Option<Entry>, blocks: usize) -> String {
        let brief = |entry: &Entry| {
            let file = entry.file.as_ref();
            let length = file.map(|file| (file.data.len(), file.blocks.len()));
            format!("{length:?} bytes and blocks of {} in {}", USERS[entry.owner], DIRS[entry.dir])
        };
        let (name, found) = (&self.name, found.as_ref().map(brief));
        let known = self.history.admissible(|_| true);
        let known = known.iter().map(|(_, state)| state.as_ref().as_ref().map(brief));
        let known: Vec<Option<String>> = known.collect();
        format!("{name} is {found:?} with {blocks} blocks, and should be one of {known:?}")
    }
}

fn tag(index: usize) -> u16 {
    TAGS + u16::try_from(index).expect("few entries")
}

fn fid_of(index: usize) -> u32 {
    FIDS + u32::try_from(index).expect("few entries")
}

fn dir_fid(dir: usize) -> u32 {
    DIR + u32::try_from(dir).expect("few directories")
}

impl Client for QuotaClient {
    fn wake(&mut self, io: &mut Io<'_>) {
        self.setup.ledger.borrow_mut().join(io.index);
        self.note_failures(io);
        self.connection.keep(io, !self.is_done());
        self.work(io);
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.note_failures(io);
        for replies in self.connection.received(io, bytes) {
            self.replied(io, &replies);
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
        for slot in &mut self.slots {
            if let Activity::Changing(key, frees_later) = slot.activity {
                self.setup.ledger.borrow_mut().lose(key);
                slot.lost = Some((key, io.now(), frees_later));
            }
            if !self.is_done || slot.activity != Activity::Idle {
                slot.activity = Activity::Unknown;
            }
            slot.fid = Fid::Free;
        }
        let pause = io.rng().u64(1..200);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(self.is_done(), "never came to rest: {self:?}");
    }

    fn is_done(&self) -> bool {
        self.is_done && self.slots.iter().all(|slot| slot.activity == Activity::Idle)
    }
}
