//! Small files that come and go, like those of PostMark (Katcher, *PostMark: a new file system
//! benchmark*, 1997): mail, news, and what shops on the web keep.
//!
//! | phase | what is done |
//! |---|---|
//! | making | a pool of files is made, with sizes drawn uniformly from a range |
//! | changing | so many transactions: a file is read or appended to, then one made or removed |
//! | removing | what is left is removed |
//!
//! A phase begins when the one before has ended; within a phase, each of so many users does one
//! thing after the other (PostMark has one). A file is held by the user who does something with
//! it, and nobody else chooses it until that has ended: so nothing is read that was removed, and
//! nothing is removed that is read, however many are under way. If all files are held, a file is
//! made; if the pool has grown to twice its size, one is removed.
//!
//! Differences from the original: a file is made by one I/O that carries its size; the block size
//! for reads is 4 KiB by default, not 512 bytes; there are no directories here (a target may map
//! numbers to them).

mod books;

use super::pace::Life;
use crate::{Ended, Event, Io, Kind, Outcome, Request};
use base::{Automaton, Instant};
use books::Books;

/// What the files and transactions are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Files of the pool.
    pub files: u32,
    /// How often something is read or appended to, and something made or removed.
    pub transactions: u64,
    /// The smallest file, bytes.
    pub min: u32,
    /// The largest file, bytes; nothing is appended to it.
    pub max: u32,
    /// Bytes of a read; 0: the whole file at once.
    pub block: u32,
    /// Of ten transactions, so many read; the others append.
    pub reads: u32,
    /// Of ten transactions, so many make a file; the others remove one.
    pub creates: u32,
    /// How many do something at once.
    pub users: u32,
}

impl Default for Setup {
    /// PostMark's own, but for the size of a block.
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
    /// How many numbers of files are used: from 0 to below this.
    pub fn numbers(&self) -> u32 {
        self.files.saturating_mul(2)
    }
}

/// Which phase it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// So many files are still to be made.
    Making(u32),
    /// So many transactions are still to be begun.
    Changing(u64),
    Removing,
}

/// What a user does, and waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// There is nothing to do until the phase is over.
    Nothing,
    /// A file is made, with so many bytes; whether that ends a transaction does not matter.
    Creates { file: u32, size: u32 },
    /// The first half of a transaction: bytes up to here were asked for.
    Reads { file: u32, asked: u32 },
    /// The first half of a transaction: a file gets so many bytes more.
    Appends { file: u32, more: u32 },
    /// A file is removed.
    Removes { file: u32 },
}

/// Everybody who uses the pool.
#[derive(Clone, Debug)]
pub struct PostMark {
    setup: Setup,
    life: Life,
    random: fastrand::Rng,
    phase: Phase,
    users: Vec<Does>,
    /// How many of the users do something.
    busy: usize,
    books: Books,
}

impl PostMark {
    /// A pool and its users. From the end of its life on, only removals are begun.
    ///
    /// # Panics
    /// Without files or users, or if the smallest file is larger than the largest.
    pub fn new(setup: Setup, seed: u64, life: Life) -> PostMark {
        assert!(setup.files > 0 && setup.users > 0, "somebody has something to do");
        assert!(setup.min <= setup.max, "there are sizes between");
        PostMark {
            life,
            random: fastrand::Rng::with_seed(seed),
            phase: Phase::Making(setup.files),
            users: vec![Does::Nothing; setup.users as usize],
            busy: 0,
            books: Books::new(setup.numbers()),
            setup,
        }
    }

    /// All users without work take the next piece; if there is none, the next phase begins.
    fn begin(&mut self, at: Instant, out: &mut Vec<Request>) {
        loop {
            for user in 0..self.users.len() {
                if self.users[user] == Does::Nothing && !self.go_on(user, at, out) {
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

    /// The next piece of work for a user; whether there is one.
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
            Phase::Removing => self.books.take_last().map(|file| Does::Removes { file }),
        };
        does.is_some_and(|does| {
            self.busy += 1;
            self.ask(user, does, at, out);
            true
        })
    }

    /// A read or an append; `None` if there is no file that nobody holds.
    fn first_half(&mut self) -> Option<Does> {
        let file = self.books.take(&mut self.random)?;
        let size = self.books.size(file);
        let room = self.setup.max.saturating_sub(size);
        if self.random.u32(..10) < self.setup.reads || room == 0 {
            return Some(Does::Reads { file, asked: 0 });
        }
        Some(Does::Appends { file, more: self.random.u32(1..=room) })
    }

    /// A new file, or one less; `None` if there is neither room nor a file that nobody holds.
    fn second_half(&mut self) -> Option<Does> {
        let creates = self.random.u32(..10) < self.setup.creates;
        if creates {
            return self.create().or_else(|| self.remove());
        }
        self.remove().or_else(|| self.create())
    }

    fn create(&mut self) -> Option<Does> {
        let file = self.books.number()?;
        Some(Does::Creates { file, size: self.random.u32(self.setup.min..=self.setup.max) })
    }

    fn remove(&mut self) -> Option<Does> {
        self.books.take(&mut self.random).map(|file| Does::Removes { file })
    }

    /// Issues what a user does next.
    fn ask(&mut self, user: usize, does: Does, at: Instant, out: &mut Vec<Request>) {
        let (does, io) = match does {
            Does::Nothing => unreachable!("somebody who does nothing asks for nothing"),
            Does::Creates { file, size } => {
                (does, Io { kind: Kind::Create, file, offset: 0, len: size })
            }
            Does::Reads { file, asked } => {
                let left = self.books.size(file) - asked;
                let len = if self.setup.block == 0 { left } else { left.min(self.setup.block) };
                let io = Io { kind: Kind::Read, file, offset: u64::from(asked), len };
                (Does::Reads { file, asked: asked + len }, io)
            }
            Does::Appends { file, more } => {
                let offset = u64::from(self.books.size(file));
                (does, Io { kind: Kind::Write, file, offset, len: more })
            }
            Does::Removes { file } => (does, Io { kind: Kind::Remove, file, offset: 0, len: 0 }),
        };
        self.users[user] = does;
        out.push(Request::asked(at, io, user as u64));
    }

    /// What a user did has ended, well or not: the books say so, and the user goes on.
    fn end(&mut self, now: Instant, ended: Ended, out: &mut Vec<Request>) {
        let user = ended.tag as usize;
        let done = matches!(ended.outcome, Outcome::Done(_));
        let next = match self.users[user] {
            Does::Nothing => unreachable!("nothing does not end"),
            Does::Creates { file, size } if done => {
                self.books.exists(file, size);
                None
            }
            Does::Reads { file, asked } if done && asked < self.books.size(file) => {
                Some(Does::Reads { file, asked })
            }
            Does::Reads { file, .. } => {
                self.books.give_back(file, 0);
                self.second_half()
            }
            Does::Appends { file, more } => {
                self.books.give_back(file, if done { more } else { 0 });
                self.second_half()
            }
            // What could not be removed at the end is not tried for ever.
            Does::Removes { file } if !done && self.phase != Phase::Removing => {
                self.books.give_back(file, 0);
                None
            }
            Does::Creates { file, .. } | Does::Removes { file } => {
                self.books.gone(file);
                None
            }
        };
        self.users[user] = Does::Nothing;
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
