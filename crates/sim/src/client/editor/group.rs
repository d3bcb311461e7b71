//! The edits of one file that overlap in time, by all its editors, and the judge of them.

use super::{Call, Edit, Fate, Instant, Io, serial};
use std::fmt::{self, Write as _};
use std::time::Duration;

/// Most edits in one group: the oracle tries all orders.
const EDITS_MAX: usize = 7;
/// Most edits that one editor pipelines.
const BURST_MAX: usize = 3;
/// Above this size a group begins with the file being emptied, bytes; in messages.
const SIZE_MAX: usize = 6;
/// Sizes of data, bytes: from what fits the end of a block to what a volume does not write to its
/// journal (64 KiB).
const SIZES: [(usize, usize); 5] = [(1, 16), (1, 600), (1, 5_000), (1, 60_000), (66_000, 110_000)];
/// How long to wait for a server in trouble.
const SETTLING: Duration = Duration::from_secs(3);

/// Next step of an editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To pipeline so many edits.
    Edit(usize),
    /// To read the file back.
    Read,
    /// To wait until it is woken.
    Wait,
    /// To leave: there are no more groups.
    Over,
}

/// One group after the other.
#[derive(Debug)]
pub struct Group {
    /// The contents when the group began.
    before: Vec<u8>,
    calls: Vec<Call>,
    /// Edits without a reply.
    outstanding: usize,
    /// Edits that the group may still begin.
    to_begin: usize,
    /// Groups to come, this one included.
    left: u32,
    /// The editor that reads the file back.
    reader: Option<usize>,
    /// Editors, by their numbers as clients.
    members: Vec<usize>,
    /// Decides the bytes of the next write: neighbouring writes differ.
    salt: u8,
    /// The state of the server that has the file, if that is another one than the clients'.
    server: Option<Box<dyn Server>>,
}

/// The server that has the file, when the clients speak to another one.
pub trait Server: fmt::Debug {
    /// Whether clients may connect.
    fn is_open(&self) -> bool;
    /// Whether requests made since may have failed, or may still take effect.
    fn is_troubled(&self, since: Instant) -> bool;
}

impl Group {
    /// So many groups of edits of an empty file.
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

    /// The same for a file of a server that may be in trouble.
    pub fn on_server(left: u32, server: Box<dyn Server>) -> Group {
        Group { server: Some(server), ..Group::new(left) }
    }

    /// Whether clients may connect.
    pub fn is_open(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.is_open())
    }

    /// Whether an error is accepted for a request that was made at `since`.
    pub fn is_excused(&self, io: &Io<'_>, since: Instant) -> bool {
        let troubled = self.server.as_ref().is_some_and(|server| server.is_troubled(since));
        troubled || io.was_injected(since, None)
    }

    /// Whether requests of unknown fate may take effect later.
    fn is_unsettled(&self, now: Instant) -> bool {
        let unknown = self.calls.iter().any(|call| call.fate != Fate::Done);
        unknown && self.server.as_ref().is_some_and(|server| server.is_troubled(now))
    }

    /// Whether all groups are over.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// An editor that is woken when there is something to do.
    pub fn join(&mut self, member: usize) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// Gives an editor that has nothing outstanding its turn.
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

    /// Draws an edit with at most so many bytes of data.
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

    /// An edit has ended; `None`: it is of no interest, a read that has returned nothing.
    pub fn end(&mut self, io: &mut Io<'_>, call: Option<Call>) {
        self.outstanding -= 1;
        self.calls.extend(call);
        if self.outstanding == 0 && self.to_begin == 0 {
            self.wake_all(io);
        }
    }

    /// The editor that read the file back has lost its connection.
    pub fn stop_reading(&mut self, io: &mut Io<'_>) {
        self.reader = None;
        self.wake_all(io);
    }

    /// Compares what was read back with every order of the group, and begins the next one.
    ///
    /// # Panics
    /// If there is no order.
    pub fn judge(&mut self, io: &mut Io<'_>, after: Vec<u8>) {
        self.judge_last(&after);
        (self.before, self.reader) = (after, None);
        self.left -= 1;
        self.to_begin = io.rng().usize(2..=EDITS_MAX);
        self.wake_all(io);
    }

    /// Compares contents with every order of what was done since the last group.
    ///
    /// # Panics
    /// If there is no order.
    pub fn judge_last(&mut self, after: &[u8]) {
        let calls = std::mem::take(&mut self.calls);
        let found = serial::explain(&self.before, &calls, after);
        assert!(found.is_some(), "{}", complaint(&self.before, &calls, after));
        self.before = after.to_vec();
    }

    fn wake_all(&self, io: &mut Io<'_>) {
        for member in &self.members {
            let pause = Duration::from_nanos(io.rng().u64(..200_000));
            io.scene.wake_in(*member, pause);
        }
    }
}

/// Failure message of a group.
fn complaint(before: &[u8], calls: &[Call], after: &[u8]) -> String {
    let (from, to) = (before.len(), after.len());
    let mut text = format!("no serial order of edits leads from {from} to {to} bytes:");
    for call in calls {
        let _ = write!(text, " {call};");
    }
    text
}
