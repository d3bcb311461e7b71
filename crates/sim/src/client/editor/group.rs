//! Concurrent edits of one file by all its editors, and their checker.

use super::{Call, Edit, Fate, Instant, Io, serial};
use std::fmt::{self, Write as _};
use std::time::Duration;

/// Maximum number of edits in one group: the oracle tries all orders.
const EDITS_MAX: usize = 7;
/// Maximum number of edits that one editor pipelines.
const BURST_MAX: usize = 3;
/// Size in messages above which a group begins by truncating the file.
const SIZE_MAX: usize = 6;
/// Sizes of data, bytes: from the remainder of a block to more than a volume writes to its journal
/// (64 KiB).
const SIZES: [(usize, usize); 5] = [(1, 16), (1, 600), (1, 5_000), (1, 60_000), (66_000, 110_000)];
/// Delay before using a server in trouble again.
const SETTLING: Duration = Duration::from_secs(3);

/// Next step of an editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Pipeline this number of edits.
    Edit(usize),
    /// Read the file back.
    Read,
    /// Wait for a wake-up.
    Wait,
    /// Leave: there are no more groups.
    Over,
}

/// Consecutive groups of edits.
#[derive(Debug)]
pub struct Group {
    /// Contents at the beginning of the group.
    before: Vec<u8>,
    calls: Vec<Call>,
    /// Outstanding edits.
    outstanding: usize,
    /// Edits that the group may still begin.
    to_begin: usize,
    /// Remaining groups, including this one.
    left: u32,
    /// The editor that reads the file back.
    reader: Option<usize>,
    /// Editors, by client number.
    members: Vec<usize>,
    /// Seed of the next write's bytes: consecutive writes differ.
    salt: u8,
    /// State of the file's server, if it is not the clients' own.
    server: Option<Box<dyn Server>>,
}

/// The file's server, when the clients are connected to another one.
pub trait Server: fmt::Debug {
    /// Returns whether clients may connect.
    fn is_open(&self) -> bool;
    /// Returns whether requests made since may have failed, or may still take effect.
    fn is_troubled(&self, since: Instant) -> bool;
}

impl Group {
    /// Returns this number of groups of edits of an empty file.
    pub fn new(left: u32) -> Group {
        Group {
            before: Vec::new(),
            calls: Vec::new(),
            outstanding: 0,
            to_begin: 2,
            left,
            reader: None,
            members: Vec::new(),
            salt: 0,
            server: None,
        }
    }

    /// Returns groups for a file of a server that may be in trouble.
    pub fn on_server(left: u32, server: Box<dyn Server>) -> Group {
        Group { server: Some(server), ..Group::new(left) }
    }

    /// Returns whether clients may connect.
    pub fn is_open(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.is_open())
    }

    /// Returns whether an error is accepted for a request made at `since`.
    pub fn is_excused(&self, io: &Io<'_>, since: Instant) -> bool {
        let troubled = self.server.as_ref().is_some_and(|server| server.is_troubled(since));
        troubled || io.was_injected(since, None)
    }

    /// Returns whether requests with an unknown outcome may still take effect.
    fn is_unsettled(&self, now: Instant) -> bool {
        let unknown = self.calls.iter().any(|call| call.fate != Fate::Done);
        unknown && self.server.as_ref().is_some_and(|server| server.is_troubled(now))
    }

    /// Returns whether all groups are done.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Adds an editor to wake up when there is work.
    pub fn join(&mut self, member: usize) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// Gives an editor without outstanding requests its turn.
    pub fn take_turn(&mut self, io: &mut Io<'_>) -> Turn {
        if self.left == 0 {
            return Turn::Over;
        }
        if self.to_begin > 0 {
            let count = io.rng().usize(1..=self.to_begin.min(BURST_MAX));
            self.to_begin -= count;
            self.outstanding += count;
            return Turn::Edit(count);
        }
        if self.outstanding > 0 || self.reader.is_some() {
            return Turn::Wait;
        }
        if self.is_unsettled(io.now()) {
            io.wake_in(SETTLING);
            return Turn::Wait;
        }
        self.reader = Some(io.index);
        Turn::Read
    }

    /// Draws an edit with at most this many bytes of data.
    pub fn draw(&mut self, io: &mut Io<'_>, payload_max: usize) -> Edit {
        if self.before.len() > SIZE_MAX * payload_max && self.calls.is_empty() {
            return Edit::Resize(0);
        }
        let span = (self.before.len() + payload_max / 2) as u64;
        match io.rng().u8(..12) {
            0..5 => Edit::Append(self.data(io, payload_max)),
            5..8 => Edit::Write(io.rng().u64(..=span), self.data(io, payload_max)),
            8 => Edit::Resize(io.rng().u64(..=span)),
            9 => Edit::Resize(0),
            _ => {
                let count = io.rng().usize(..=payload_max);
                Edit::ReadAt(io.rng().u64(..=span), count, Vec::new())
            }
        }
    }

    fn data(&mut self, io: &mut Io<'_>, payload_max: usize) -> Vec<u8> {
        let (least, most) = SIZES[io.rng().usize(..SIZES.len())];
        let count = io.rng().usize(least..=most).min(payload_max);
        self.salt = self.salt.wrapping_add(1);
        (0..count).map(|at| self.salt ^ (at >> 4) as u8).collect()
    }

    /// Records the end of an edit; `None` for a read without a result, which is not checked.
    pub fn end(&mut self, io: &mut Io<'_>, call: Option<Call>) {
        self.outstanding -= 1;
        self.calls.extend(call);
        if self.outstanding == 0 && self.to_begin == 0 {
            self.wake_all(io);
        }
    }

    /// Records that the reading editor has lost its connection.
    pub fn stop_reading(&mut self, io: &mut Io<'_>) {
        self.reader = None;
        self.wake_all(io);
    }

    /// Compares the file as read back with every order of the group, and begins the next one.
    ///
    /// # Panics
    /// If no order explains it.
    pub fn judge(&mut self, io: &mut Io<'_>, after: Vec<u8>) {
        self.judge_last(&after);
        (self.before, self.reader) = (after, None);
        self.left -= 1;
        self.to_begin = io.rng().usize(2..=EDITS_MAX);
        self.wake_all(io);
    }

    /// Compares contents with every order of the edits since the last group.
    ///
    /// # Panics
    /// If no order explains it.
    pub fn judge_last(&mut self, after: &[u8]) {
        let calls = std::mem::take(&mut self.calls);
        let found = serial::explain(&self.before, &calls, after);
        assert!(found.is_some(), "{}", complaint(&self.before, &calls, after));
        self.before = after.to_vec();
    }

    fn wake_all(&self, io: &mut Io<'_>) {
        for member in &self.members {
            let pause = Duration::from_nanos(io.rng().u64(..200_000));
            io.env.wake_in(*member, pause);
        }
    }
}

/// Returns the failure message of a group.
fn complaint(before: &[u8], calls: &[Call], after: &[u8]) -> String {
    let (from, to) = (before.len(), after.len());
    let mut text = format!("no serial order of edits leads from {from} to {to} bytes:");
    for call in calls {
        let _ = write!(text, " {call};");
    }
    text
}
