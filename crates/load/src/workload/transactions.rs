//! TPC-B-like transactions: small updates of three tables, a history row, and a sync.
//!
//! A bank has branches, each with 10 tellers and 100,000 accounts (TPC-B, clause 4.2, which
//! requires rows of at least 100 bytes). A transaction updates one account, its teller and the
//! teller's branch, and appends a row of at least 50 bytes to the history. Tellers are uniformly
//! distributed; the account is of the same branch in 85 of 100 cases (clause 5.3.5), so that
//! accounts are uniform over all transactions. Rows are in pages of 8 KiB:
//!
//! ```text
//!  begin                                                                            begin + span
//!  ├ branches ─┼ tellers ─┼ accounts (81 rows a page) ─┼ history (163 rows a page, round) ┤
//!
//!  read account ┐            ┌ write account ┐
//!  read teller  ┼─ all done ─┼ write teller  ┼─ all done ── sync ── done
//!  read branch  ┘            ┼ write branch  ┤
//!                            └ write history ┘
//! ```
//!
//! This approximates the storage load of a database, and is not the benchmark: there are no locks
//! (two transactions may use the same page at once), no cache and no separate log.

use super::pace::{Calendar, Due, Lifetime};
use super::{Pace, users::Think};
use crate::{Event, Io, Kind, Request};
use base::{Automaton, Instant};
use slab::Slab;

/// Page size, in bytes.
pub const PAGE: u32 = 8192;

/// I/Os of a transaction: three reads, four writes, a sync.
pub const IOS: u32 = 8;

const TELLERS: u64 = 10;
const ACCOUNTS: u64 = 100_000;
const ROW: u64 = 100;
const HISTORY_ROW: u64 = 50;
const ROWS: u64 = PAGE as u64 / ROW;
const HISTORY_ROWS: u64 = PAGE as u64 / HISTORY_ROW;

/// Maximum transactions started per call; at high rates the filament is called more often.
const ONCE_MAX: usize = 1024;

/// Layout of the bank's tables: the first page of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    begin: u64,
    branches: u64,
    tellers: u64,
    accounts: u64,
    history: u64,
    pages: u64,
}

impl Tables {
    /// Lays out the tables of `branches` branches in this part of the target; `None` if they do not
    /// fit.
    pub fn new(branches: u32, begin: u64, span: u64) -> Option<Tables> {
        let branches = u64::from(branches.max(1));
        let tellers = branches.div_ceil(ROWS);
        let accounts = tellers + (branches * TELLERS).div_ceil(ROWS);
        let history = accounts + (branches * ACCOUNTS).div_ceil(ROWS);
        let pages = span / u64::from(PAGE);
        let fits = pages > history && begin.checked_add(span).is_some();
        fits.then_some(Tables { begin, branches, tellers, accounts, history, pages })
    }

    /// Returns the minimum span of `branches` branches, in bytes.
    pub fn least(branches: u32) -> u64 {
        let history = Tables::new(branches, 0, u64::MAX).expect("the largest span").history;
        (history + 1) * u64::from(PAGE)
    }

    fn offset(&self, page: u64) -> u64 {
        self.begin + page * u64::from(PAGE)
    }

    /// Returns the offsets of the pages of a random account, its teller and its branch.
    fn draw(&self, random: &mut fastrand::Rng) -> [u64; 3] {
        let teller = random.u64(..self.branches * TELLERS);
        let branch = teller / TELLERS;
        let home = if self.branches == 1 || random.u32(..100) < 85 {
            branch
        } else {
            // One of the others, chosen uniformly.
            (branch + random.u64(1..self.branches)) % self.branches
        };
        let account = home * ACCOUNTS + random.u64(..ACCOUNTS);
        [self.accounts + account / ROWS, self.tellers + teller / ROWS, branch / ROWS]
            .map(|page| self.offset(page))
    }

    /// Returns the offset of the history page with this row.
    fn history(&self, row: u64) -> u64 {
        self.offset(self.history + row / HISTORY_ROWS % (self.pages - self.history))
    }
}

/// State of a transaction.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Waiting for this many page reads.
    Reading(u8),
    /// Waiting for this many page writes.
    Writing(u8),
    /// Waiting for the sync.
    Syncing,
}

/// Outstanding transaction, 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    pages: [u64; 3],
    state: State,
}

/// Trigger of transactions.
#[derive(Clone, Debug)]
enum Begins {
    Open(Calendar),
    Closed { terminals: u32, think: Think },
}

/// Transactions of all terminals.
#[derive(Clone, Debug)]
pub struct Transactions {
    tables: Tables,
    begins: Begins,
    life: Lifetime,
    random: fastrand::Rng,
    under_way: Slab<Transaction>,
    /// Rows of the history.
    rows: u64,
    left: u64,
}

impl Transactions {
    /// Creates the transactions on these tables.
    pub fn new(tables: Tables, pace: Pace, seed: u64, life: Lifetime) -> Transactions {
        let begins = match pace {
            Pace::Open(arrival) => Begins::Open(Calendar::new(arrival, life.begin)),
            Pace::Closed { count, think } => Begins::Closed { terminals: count, think },
        };
        Transactions {
            tables,
            begins,
            life,
            random: fastrand::Rng::with_seed(seed),
            under_way: Slab::new(),
            rows: 0,
            left: life.count,
        }
    }

    fn end(&self) -> Instant {
        Instant::default() + self.life.end
    }

    fn begin(&mut self, at: Instant, out: &mut Vec<Request>) {
        if self.left == 0 || at >= self.end() {
            return;
        }
        self.left -= 1;
        let pages = self.tables.draw(&mut self.random);
        let tag = self.under_way.insert(Transaction { pages, state: State::Reading(3) });
        out.extend(pages.map(|offset| page(Kind::Read, at, offset, tag)));
    }

    /// Starts open-loop transactions, ahead of their times.
    fn come(&mut self, now: Instant, out: &mut Vec<Request>) {
        let end = self.end();
        for _ in 0..ONCE_MAX {
            if self.left == 0 {
                return;
            }
            let Begins::Open(calendar) = &mut self.begins else {
                return;
            };
            match calendar.due(now, end, &mut self.random) {
                Due::At(at) => self.begin(at, out),
                Due::Later(at) => return out.push(Request::Timer { at, tag: 0 }),
                Due::Over => return,
            }
        }
        // Half of the requested ones are past by then.
        let last = out.last().map_or(now, Request::at);
        let at = Instant(now.0 + last.0.saturating_sub(now.0) / 2);
        out.push(Request::Timer { at, tag: 0 });
    }

    /// Processes the end of an I/O of a transaction, successful or not.
    fn go_on(&mut self, now: Instant, tag: usize, out: &mut Vec<Request>) {
        let Transaction { pages, state } = self.under_way[tag];
        self.under_way[tag].state = match state {
            State::Reading(left @ 2..) => State::Reading(left - 1),
            State::Reading(_) => {
                let history = self.tables.history(self.rows);
                self.rows += 1;
                out.extend(pages.map(|offset| page(Kind::Write, now, offset, tag)));
                out.push(page(Kind::Write, now, history, tag));
                State::Writing(4)
            }
            State::Writing(left @ 2..) => State::Writing(left - 1),
            State::Writing(_) => {
                let sync = Io { kind: Kind::Sync, ..Io::default() };
                out.push(Request::with_completion(now, sync, tag as u64));
                State::Syncing
            }
            State::Syncing => {
                self.under_way.remove(tag);
                if let Begins::Closed { think, .. } = self.begins {
                    let at = now + think.draw(&mut self.random);
                    self.begin(at, out);
                }
                return;
            }
        };
    }
}

fn page(kind: Kind, at: Instant, offset: u64, tag: usize) -> Request {
    Request::with_completion(at, Io { kind, file: 0, offset, len: PAGE }, tag as u64)
}

impl Automaton for Transactions {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match (event, &self.begins) {
            (Event::Started, Begins::Closed { terminals, .. }) => {
                let first = now + self.life.begin;
                (0..*terminals).for_each(|_| self.begin(first, out));
            }
            (Event::Started | Event::Timer(_), Begins::Open(_)) => self.come(now, out),
            (Event::Ended(ended), _) => self.go_on(now, ended.tag as usize, out),
            (Event::Timer(_), Begins::Closed { .. }) | (Event::Message { .. }, _) => {}
        }
    }
}

#[cfg(test)]
mod tests;
