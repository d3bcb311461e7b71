//! Validation of each table.

use super::{
    Checked, PostMarkTable, ReplayMode, ReplayTable, SessionsTable, Spc1Table, SpecWebTable,
    StreamTable, TransactionsTable, UsersTable, What,
};
use crate::workload::file::drawn::{Comes, Thinks};
use crate::workload::file::values::{Bytes, IO_MAX, Rate};
use crate::workload::specweb::{DIRECTORIES_MAX, FileSet, Year};
use crate::workload::{Arrival, Pace, postmark};

/// Maximum users, terminals or connections of a part.
const USERS_MAX: u32 = 1_000_000;

/// Maximum files of a mix.
const FILES_MAX: u32 = 1 << 24;

/// Maximum files of a pool, which are tracked in memory.
const POOL_MAX: u32 = 1 << 20;

/// Maximum branches: 10 TiB of accounts.
const BRANCHES_MAX: u32 = 1_000_000;

/// Maximum business scaling units: five million I/Os per second.
const BSUS_MAX: u32 = 100_000;

/// Maximum I/Os (or transactions, or sessions) per second.
const RATE_MAX: f64 = 1e9;

/// Returns the number of files of a mix.
pub(super) fn files(files: Option<u32>) -> Result<u32, String> {
    between("files", files.unwrap_or(1), 1, FILES_MAX)
}

/// Checks that a number is in a range.
fn between<T: PartialOrd + std::fmt::Display>(
    field: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, String> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(format!("`{field}` is {value}, and should be between {least} and {most}"))
}

/// Returns an arrival process with a valid rate.
fn arrival(rate: Rate, comes: Comes) -> Result<Arrival, String> {
    let rate = between("rate", rate.0, 1e-6, RATE_MAX)?;
    if let Comes::OnOff(on, off) = comes
        && rate * (on + off).as_secs_f64() < 1e-3
    {
        return Err("`on` and `off` are too short for so low a `rate`".to_string());
    }
    Ok(comes.at(rate))
}

/// Returns an open pace with a rate, or a closed one; `field` is the name of its count.
fn pace(
    field: &str,
    count: Option<u32>,
    think: Option<Thinks>,
    rate: Option<Rate>,
    comes: Option<Comes>,
) -> Result<Pace, String> {
    match (count, rate) {
        (Some(count), None) if comes.is_none() => {
            let think = think.unwrap_or_default().0;
            Ok(Pace::Closed { count: between(field, count, 1, USERS_MAX)?, think })
        }
        (None, Some(rate)) if think.is_none() => {
            arrival(rate, comes.unwrap_or_default()).map(Pace::Open)
        }
        (Some(_) | None, Some(_) | None) => {
            Err(format!("it has either `{field}` (and `think`), or a `rate` (and `arrival`)"))
        }
    }
}

impl Checked for StreamTable {
    fn checked(self) -> Result<What, String> {
        let mix = self.mix()?;
        Ok(What::Stream { arrival: arrival(self.rate, self.arrival)?, mix })
    }
}

impl Checked for UsersTable {
    fn checked(self) -> Result<What, String> {
        let users = between("users", self.users, 1, USERS_MAX)?;
        Ok(What::Users { users, think: self.think.0, mix: self.mix()? })
    }
}

impl Checked for SessionsTable {
    fn checked(self) -> Result<What, String> {
        let mix = self.mix()?;
        let each = between("each", self.each, 1, u32::MAX)?;
        let arrival = arrival(self.rate, self.arrival)?;
        Ok(What::Sessions { arrival, each, think: self.think.0, mix })
    }
}

impl Checked for TransactionsTable {
    fn checked(self) -> Result<What, String> {
        let pace = pace("terminals", self.terminals, self.think, self.rate, self.arrival)?;
        let branches = between("branches", self.branches, 1, BRANCHES_MAX)?;
        let span = self.span.map_or(0, |span| span.0);
        Ok(What::Transactions { branches, pace, from: self.from.0, span })
    }
}

impl Checked for Spc1Table {
    fn checked(self) -> Result<What, String> {
        let bsus = between("bsus", self.bsus, 1, BSUS_MAX)?;
        let span = self.span.map_or(0, |span| span.0);
        Ok(What::Spc1 { bsus, from: self.from.0, span })
    }
}

impl Checked for PostMarkTable {
    fn checked(self) -> Result<What, String> {
        let usual = postmark::Setup::default();
        let size = |field: &str, bytes: Option<Bytes>, usual: u32, least: u64| match bytes {
            None => Ok(usual),
            Some(Bytes(bytes)) => between(field, bytes, least, IO_MAX).map(|bytes| bytes as u32),
        };
        let files = between("files", self.files.unwrap_or(usual.files), 1, POOL_MAX)?;
        let max = size("max", self.max, usual.max, 1)?;
        let min = size("min", self.min, usual.min.min(max), 1)?;
        Ok(What::PostMark(postmark::Setup {
            files,
            transactions: self.transactions.map_or(usual.transactions, |count| count.0),
            min: between("min", min, 1, max)?,
            max,
            block: size("block", self.block, usual.block, 0)?,
            reads: between("reads", self.reads.unwrap_or(usual.reads), 0, 10)?,
            creates: between("creates", self.creates.unwrap_or(usual.creates), 0, 10)?,
            users: between("users", self.users.unwrap_or(1), 1, USERS_MAX.min(files))?,
        }))
    }
}

impl Checked for SpecWebTable {
    fn checked(self) -> Result<What, String> {
        let year = match self.year {
            1996 | 96 => Year::Y96,
            1999 | 99 => Year::Y99,
            other => return Err(format!("`year` is {other}, and should be 1996 or 1999")),
        };
        let set = match (self.load, self.directories) {
            (Some(load), None) => FileSet::of_load(year, between("load", load, 0.0, 1e9)?),
            (None, Some(count)) => {
                FileSet::new(year, between("directories", count, 1, DIRECTORIES_MAX)?)
            }
            (Some(_) | None, Some(_) | None) => {
                return Err("it has either a `load` or a number of `directories`".to_string());
            }
        };
        let pace = pace("connections", self.connections, self.think, self.rate, self.arrival)?;
        Ok(What::SpecWeb { year, set, pace })
    }
}

impl Checked for ReplayTable {
    fn checked(self) -> Result<What, String> {
        let fast = self.way == ReplayMode::Fast;
        if self.depth.is_some() && !fast {
            return Err("`depth` is for the way `fast` only".to_string());
        }
        Ok(What::Replay {
            trace: self.trace,
            speed: between("speed", self.speed, 1e-6, 1e6)?,
            way: self.way,
            depth: between("depth", self.depth.unwrap_or(32), 1, USERS_MAX)?,
        })
    }
}
