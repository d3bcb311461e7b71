//! An order: what whoever starts a storelet says about it, in lines of text.
//!
//! ```text
//! module sha256:9f86d081884c7d65…      or: module 48213, whose bytes follow the order
//! arg rg
//! arg -n
//! root /src
//! cpu 10s
//! memory 64M
//!                                      an empty line ends it
//! ```
//!
//! Bytes that have no place in a line are written as in a URL, `%0A`.

mod units;

use crate::budget::Budget;
use crate::compile::Hash;
use crate::schedule::{Terms, WEIGHT_MAX};
use base::Name;
use percent_encoding::percent_decode;
use units::{duration, number, share, size};

/// The longest order, bytes.
pub const ORDER_MAX: usize = 256 << 10;

/// The largest reservation of one storelet, ns of each second.
const RESERVED_MAX: u64 = 100_000_000;

/// Most files that a storelet may have open.
const FILES_MAX: u64 = 1024;

/// The largest module, bytes.
pub const MODULE_MAX: u64 = 32 << 20;

/// Where a module's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// With the server, under this name.
    Known(Hash),
    /// They follow the order: so many.
    Follows(u64),
}

/// What is to be run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What.
    pub module: Wanted,
    /// Its arguments; the first is its name.
    pub args: Vec<Vec<u8>>,
    /// Its environment: `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The directory that it sees as `/`: names from the root of what is served.
    pub root: Vec<Name>,
    /// Whether it may change files.
    pub writes: bool,
    /// Whether its input follows, in frames; else it has none.
    pub input: bool,
    /// Whether what it says is told in frames, with a report at the end; else it is what is read.
    pub frames: bool,
    /// What it may use.
    pub budget: Budget,
    /// Its part of the processor, and of file requests.
    pub terms: Terms,
    /// File requests per second it may make at most.
    pub io_limit: u64,
}

impl Order {
    /// Understands an order, without the empty line.
    ///
    /// # Errors
    /// Which line is wrong, and what to write instead.
    pub fn parse(text: &[u8]) -> Result<Order, String> {
        let text = str::from_utf8(text).map_err(|_| "an order is UTF-8 text".to_string())?;
        let mut order = Order {
            module: Wanted::Follows(0),
            args: Vec::new(),
            env: Vec::new(),
            root: Vec::new(),
            writes: false,
            input: false,
            frames: false,
            budget: Budget::default(),
            terms: Terms::default(),
            io_limit: u64::MAX,
        };
        for line in text.lines() {
            let line = line.trim_end_matches('\r');
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let value = decoded(rest);
            order.take(word, value).map_err(|why| format!("'{word} {rest}': {why}"))?;
        }
        if order.module == Wanted::Follows(0) {
            return Err("an order needs a line 'module sha256:HASH' or 'module LENGTH'".to_string());
        }
        if order.args.is_empty() {
            order.args.push(b"storelet".to_vec());
        }
        Ok(order)
    }

    /// Whether a text, perhaps not an order, wants what is said told in frames: so is what is wrong
    /// with it.
    pub fn wants_frames(text: &[u8]) -> bool {
        text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii_end() == b"frames")
    }

    fn take(&mut self, word: &str, value: Vec<u8>) -> Result<(), String> {
        match word {
            "arg" => self.args.push(value),
            "env" if value.contains(&b'=') => self.env.push(value),
            "env" => return Err("write NAME=VALUE".to_string()),
            "root" => self.root = path(&value)?,
            _plain => {
                let text = str::from_utf8(&value).map_err(|_| "write plain text".to_string())?;
                self.set(word, text)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, word: &str, rest: &str) -> Result<(), String> {
        match word {
            "module" => self.module = module(rest)?,
            "write" => self.writes = true,
            "input" => self.input = true,
            "frames" => self.frames = true,
            "cpu" => self.budget.cpu_ns = duration(rest)?,
            "time" => self.budget.time_ns = duration(rest)?,
            "memory" => self.budget.memory = size(rest)?,
            "io" => self.budget.operations = number(rest)?,
            "bytes" => self.budget.bytes = size(rest)?,
            "output" => self.budget.output = size(rest)?,
            "files" => self.budget.files = files(rest)?,
            "weight" => self.terms.weight = weight(rest)?,
            "reserve" => self.terms.reservation = reservation(rest)?,
            "limit" => self.terms.limit = share(rest)?,
            "io-limit" => self.io_limit = number(rest)?.max(1),
            _unknown => {
                let known = "module, arg, env, root, write, input, frames, cpu, time, memory, io, \
                             bytes, output, files, weight, reserve, limit, io-limit";
                return Err(format!("no such word; there are {known}"));
            }
        }
        Ok(())
    }
}

fn module(text: &str) -> Result<Wanted, String> {
    if let Some(hash) = text.strip_prefix("sha256:") {
        let hash = hash.parse().map_err(|_| "write 64 hexadecimal digits".to_string())?;
        return Ok(Wanted::Known(hash));
    }
    match number(text)? {
        0 => Err("an empty module cannot be run".to_string()),
        length if length > MODULE_MAX => Err(format!(
            "a module has at most {MODULE_MAX} bytes: strip what is there for debuggers"
        )),
        length => Ok(Wanted::Follows(length)),
    }
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

fn path(bytes: &[u8]) -> Result<Vec<Name>, String> {
    let parts = bytes.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let name = |part: &[u8]| {
        let name = Name::new(part).ok().filter(Name::plain);
        name.ok_or_else(|| "write a path from the root, without '..'".to_string())
    };
    parts.map(name).collect()
}

/// At most a tenth of a processor: what is certain to one is taken from all others.
fn reservation(text: &str) -> Result<u64, String> {
    let ns = share(text)?;
    match ns <= RESERVED_MAX {
        true => Ok(ns),
        false => Err("at most 10% can be certain".to_string()),
    }
}

fn files(text: &str) -> Result<u64, String> {
    let files = number(text).ok().filter(|files| (1..=FILES_MAX).contains(files));
    files.ok_or_else(|| format!("write a number from 1 to {FILES_MAX}"))
}

fn weight(text: &str) -> Result<u32, String> {
    let weight = number(text).ok().and_then(|weight| u32::try_from(weight).ok());
    let weight = weight.filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| format!("write a number from 1 to {WEIGHT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_says_everything() {
        let text = "module 12\narg rg\narg a%0Ab\nenv X=1\nroot /src/./lib\nwrite\ninput\nframes\n\
                    cpu 1.5s\ntime 2m\nmemory 64M\nio 100\nbytes 1G\noutput 10k\nfiles 3\n\
                    weight 7\nreserve 10%\nlimit 150%\nio-limit 50";
        let order = Order::parse(text.as_bytes()).expect("it is one");
        assert_eq!(order.module, Wanted::Follows(12));
        assert_eq!(order.args, [b"rg".to_vec(), b"a\nb".to_vec()]);
        assert_eq!(order.root.len(), 2);
        assert!(order.writes && order.input && order.frames);
        let budget = Budget {
            cpu_ns: 1_500_000_000,
            time_ns: 120_000_000_000,
            memory: 64 << 20,
            operations: 100,
            bytes: 1 << 30,
            output: 10 << 10,
            files: 3,
            ..Budget::default()
        };
        assert_eq!(order.budget, budget);
        let terms = Terms { weight: 7, reservation: 100_000_000, limit: 1_500_000_000 };
        assert_eq!((order.terms, order.io_limit), (terms, 50));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        let fails = |text: &str| Order::parse(text.as_bytes()).expect_err("it is wrong");
        assert!(fails("arg x").contains("needs a line 'module"));
        assert!(fails("module 0").contains("empty"));
        assert!(fails("module 99999999999").contains("at most"));
        assert!(fails("module sha256:12").contains("64 hexadecimal"));
        assert!(fails("colour red").contains("there are module"));
        assert!(fails("module 1\nroot /a/../b").contains("without '..'"));
        assert!(fails("module 1\ncpu 10q").contains("10s"));
        assert!(fails("module 1\nweight 0").contains("1 to"));
        assert!(fails("module 1\nlimit x").contains("50%"));
        assert!(Order::parse(b"module \xff").is_err());
    }
}
