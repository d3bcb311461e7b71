//! Small files that are created and removed, like those of PostMark (Katcher, *PostMark: a new file
//! system benchmark*, 1997): mail, news and web commerce.
//!
//! | phase | operations |
//! |---|---|
//! | making | a pool of files is created, with sizes drawn uniformly from a range |
//! | changing | transactions: a file is read or appended to, then one is created or removed |
//! | removing | the remaining files are removed |
//!
//! A phase starts after the previous one has ended. Within a phase, each of the users performs one
//! operation at a time (PostMark has one user). A file is held by the user that operates on it, and
//! no other user chooses it meanwhile: so no removed file is read, and no file is removed while it
//! is read, however many operations are in flight. If all files are held, one is created; if the
//! pool has grown to twice its size, one is removed.
//!
//! Differences from the original: a file is created by one I/O with its size; the default block
//! size for reads is 4 KiB instead of 512 bytes; there are no directories (a target may map numbers
//! to them).

mod books;

use super::pace::Lifetime;
use crate::{Ended, Event, Io, Kind, Outcome, Request};
use base::{Automaton, Instant};
use books::Books;

/// Parameters of files and transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Files of the pool.
    pub files: u32,
    /// Number of transactions.
    pub transactions: u64,
    /// Minimum file size, in bytes.
    pub min: u32,
    /// Maximum file size in bytes; a larger file is not appended to.
    pub max: u32,
    /// Bytes per read; 0 for the whole file at once.
    pub block: u32,
    /// Reads per ten transactions; the others append.
    pub reads: u32,
    /// Creates per ten transactions; the others remove.
    pub creates: u32,
    /// Number of concurrent users.
    pub users: u32,
}

impl Default for Setup {
    /// PostMark's own parameters, except for the block size.
    fn default() -> Setup {
        Setup {
            files: 500,
            transactions: 500,
            min: 500,
            max: 10_000,
            block: 4096,
            reads: 5,
            creates: 5,
            users: 1,
        }
    }
}

impl Setup {
    /// Returns the exclusive upper bound of the file numbers.
    pub fn numbers(&self) -> u32 {
        self.files.saturating_mul(2)
    }
}

/// Phase of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Creating the pool, with this many files left.
    Making(u32),
    /// Running transactions, with this many left to start.
    Changing(u64),
    Removing,
}

/// Current operation of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    /// Waiting for the next phase.
    Nothing,
    /// Waiting for the creation of a file with this size in bytes, in any phase.
    Creates { file: u32, size: u32 },
    /// Waiting for a read, the first half of a transaction; `asked` bytes were requested so far.
    Reads { file: u32, requested: u32 },
    /// Waiting for an append, the first half of a transaction, of `more` bytes.
    Appends { file: u32, more: u32 },
    /// Waiting for the removal of a file.
    Removes { file: u32 },
}

/// Workload of a pool's users.
#[derive(Clone, Debug)]
pub struct PostMark {
    setup: Setup,
    life: Lifetime,
    random: fastrand::Rng,
    phase: Phase,
    users: Vec<Current>,
    /// Number of active users.
    busy: usize,
    books: Books,
}

impl PostMark {
    /// Creates the workload. After the end of its life, it starts only removals.
    ///
    /// # Panics
    /// Without files or users, or if the minimum size exceeds the maximum.
    pub fn new(setup: Setup, seed: u64, life: Lifetime) -> PostMark {
        assert!(setup.files > 0 && setup.users > 0, "somebody has something to do");
        assert!(setup.min <= setup.max, "there are sizes between");
        PostMark {
            life,
            random: fastrand::Rng::with_seed(seed),
            phase: Phase::Making(setup.files),
            users: vec![Current::Nothing; setup.users as usize],
            busy: 0,
            books: Books::new(setup.numbers()),
            setup,
        }
    }

    /// Gives work to all idle users; without any left, starts the next phase.
    fn begin(&mut self, at: Instant, out: &mut Vec<Request>) {
        loop {
            for user in 0..self.users.len() {
                if self.users[user] == Current::Nothing && !self.go_on(user, at, out) {
                    break;
                }
            }
            if self.busy > 0 || self.phase == Phase::Removing {
                return;
            }
            self.phase = match self.phase {
                Phase::Making(_) => Phase::Changing(self.setup.transactions),
                Phase::Changing(_) | Phase::Removing => Phase::Removing,
            };
        }
    }

    /// Starts the next operation of a user. Returns whether there was one.
    fn go_on(&mut self, user: usize, at: Instant, out: &mut Vec<Request>) -> bool {
        let over = at >= Instant::default() + self.life.end;
        let does = match self.phase {
            Phase::Making(_) | Phase::Changing(_) if over => None,
            Phase::Making(0) | Phase::Changing(0) => None,
            Phase::Making(left) => {
                self.phase = Phase::Making(left - 1);
                self.create()
            }
            Phase::Changing(left) => {
                self.phase = Phase::Changing(left - 1);
                self.first_half().or_else(|| self.second_half())
            }
            Phase::Removing => self.books.take_last().map(|file| Current::Removes { file }),
        };
        does.is_some_and(|does| {
            self.busy += 1;
            self.ask(user, does, at, out);
            true
        })
    }

    /// Returns a read or an append; `None` if all files are held.
    fn first_half(&mut self) -> Option<Current> {
        let file = self.books.take(&mut self.random)?;
        let size = self.books.size(file);
        let room = self.setup.max.saturating_sub(size);
        if self.random.u32(..10) < self.setup.reads || room == 0 {
            return Some(Current::Reads { file, requested: 0 });
        }
        Some(Current::Appends { file, more: self.random.u32(1..=room) })
    }

    /// Returns a create or a remove; `None` if there is neither room nor a free file.
    fn second_half(&mut self) -> Option<Current> {
        let creates = self.random.u32(..10) < self.setup.creates;
        if creates {
            return self.create().or_else(|| self.remove());
        }
        self.remove().or_else(|| self.create())
    }

    fn create(&mut self) -> Option<Current> {
        let file = self.books.number()?;
        Some(Current::Creates { file, size: self.random.u32(self.setup.min..=self.setup.max) })
    }

    fn remove(&mut self) -> Option<Current> {
        self.books.take(&mut self.random).map(|file| Current::Removes { file })
    }

    /// Issues a user's next I/O.
    fn ask(&mut self, user: usize, does: Current, at: Instant, out: &mut Vec<Request>) {
        let (does, io) = match does {
            Current::Nothing => unreachable!("somebody who does nothing asks for nothing"),
            Current::Creates { file, size } => {
                (does, Io { kind: Kind::Create, file, offset: 0, len: size })
            }
            Current::Reads { file, requested } => {
                let left = self.books.size(file) - requested;
                let len = if self.setup.block == 0 { left } else { left.min(self.setup.block) };
                let io = Io { kind: Kind::Read, file, offset: u64::from(requested), len };
                (Current::Reads { file, requested: requested + len }, io)
            }
            Current::Appends { file, more } => {
                let offset = u64::from(self.books.size(file));
                (does, Io { kind: Kind::Write, file, offset, len: more })
            }
            Current::Removes { file } => (does, Io { kind: Kind::Remove, file, offset: 0, len: 0 }),
        };
        self.users[user] = does;
        out.push(Request::with_completion(at, io, user as u64));
    }

    /// Processes the end of a user's operation, successful or not, and continues.
    fn end(&mut self, now: Instant, ended: Ended, out: &mut Vec<Request>) {
        let user = ended.tag as usize;
        let done = matches!(ended.outcome, Outcome::Done(_));
        let next = match self.users[user] {
            Current::Nothing => unreachable!("nothing does not end"),
            Current::Creates { file, size } if done => {
                self.books.exists(file, size);
                None
            }
            Current::Reads { file, requested } if done && requested < self.books.size(file) => {
                Some(Current::Reads { file, requested })
            }
            Current::Reads { file, .. } => {
                self.books.give_back(file, 0);
                self.second_half()
            }
            Current::Appends { file, more } => {
                self.books.give_back(file, if done { more } else { 0 });
                self.second_half()
            }
            // A failed removal in the last phase is not retried.
            Current::Removes { file } if !done && self.phase != Phase::Removing => {
                self.books.give_back(file, 0);
                None
            }
            Current::Creates { file, .. } | Current::Removes { file } => {
                self.books.gone(file);
                None
            }
        };
        self.users[user] = Current::Nothing;
        match next {
            Some(does) => self.ask(user, does, now, out),
            None => {
                self.busy -= 1;
                if !self.go_on(user, now, out) && self.busy == 0 {
                    self.begin(now, out);
                }
            }
        }
    }
}

impl Automaton for PostMark {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            Event::Started => self.begin(now + self.life.begin, out),
            Event::Ended(ended) => self.end(now, ended, out),
            Event::Timer(_) | Event::Message { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
