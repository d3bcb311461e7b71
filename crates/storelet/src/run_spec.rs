//! An order: the parameters of a storelet, as lines of text from its owner.
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
//! Bytes that have no place in a line are percent-encoded, as in a URL: `%0A`.
//!
//! In the place of `module`, `standing wc` or `standing wc@2` names an installed storelet: module,
//! arguments, environment and budget come from its installation, and the order can only add
//! arguments and reduce the budget. Several such lines are a chain: the output of one is the input
//! of the next. `stdin /logs/x` makes a file the input of the first.

mod label;
mod units;

use crate::maxima::Maxima;
use crate::schedule::{ShareSpec, WEIGHT_MAX};
use base::Name;
use base::units::count;
pub use label::{Label, Pick};
use percent_encoding::percent_decode;
use units::{duration, share, size};
use wasi::{Budget, Hash};

/// Maximum size of an order, bytes.
pub const ORDER_MAX: usize = 256 << 10;

/// Maximum processor reservation of one storelet, ns of each second.
const RESERVED_MAX: u64 = 100_000_000;

/// Maximum reservation of file requests of one storelet, per second.
const REQUESTS_MAX: u64 = 1000;

/// Maximum number of open files of a storelet.
const FILES_MAX: u64 = 1024;

/// Maximum size of a module, bytes.
pub const MODULE_MAX: u64 = 32 << 20;

/// Maximum number of storelets in a chain.
pub const STAGES_MAX: usize = 8;

/// Source of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Stored by the server, under this hash.
    Known(Hash),
    /// Sent after the order: number of bytes.
    Follows(u64),
    /// An installed storelet.
    Standing(Pick),
}

/// Parameters for running a storelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// The module.
    pub module: Wanted,
    /// Arguments, beginning with the program name.
    pub args: Vec<Vec<u8>>,
    /// Environment variables: `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Directory visible as `/`: names from the served root.
    pub root: Vec<Name>,
    /// Whether the storelet may change files.
    pub writes: bool,
    /// File that serves as standard input: path from the served root.
    pub stdin: Option<Vec<u8>>,
    /// Whether links on that path are refused, because the file was found there by a watch.
    pub stdin_straight: bool,
    /// Whether input follows in frames; otherwise standard input is empty.
    pub input: bool,
    /// Whether output is framed, with a report at the end; otherwise it is plain.
    pub frames: bool,
    /// Resource limits.
    pub budget: Budget,
    /// Processor share; its weight counts for file requests, too.
    pub share_spec: ShareSpec,
    /// Reserved file requests per second.
    pub io_reserve: u64,
    /// Maximum number of file requests per second.
    pub io_limit: u64,
    /// Whether to check only if it could run.
    pub check: bool,
    /// Subsequent storelets of the chain.
    pub then: Vec<RunSpec>,
}

/// Splits off an order at its terminating empty line, if that has arrived: the lines, and the rest.
pub(crate) fn parted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.windows(2).position(|two| two == b"\n\n")?;
    Some((&text[..=end], &text[end + 2..]))
}

impl RunSpec {
    /// Parses an order, without the empty line.
    ///
    /// # Errors
    /// The incorrect line, and a correction.
    pub fn parse(text: &[u8]) -> Result<RunSpec, String> {
        RunSpec::parse_within(text, &Maxima::NONE)
    }

    /// Parses an order for a server with these maxima.
    ///
    /// # Errors
    /// The incorrect line, and a correction; or the resource that exceeds its maximum.
    pub fn parse_within(text: &[u8], maxima: &Maxima) -> Result<RunSpec, String> {
        let text = str::from_utf8(text).map_err(|_| "an order is UTF-8 text".to_string())?;
        let (mut run_spec, mut then) = (RunSpec::plain(), Vec::new());
        run_spec.budget = maxima.within(run_spec.budget);
        for line in text.lines() {
            let line = line.trim_end_matches('\r');
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let explain = |why| format!("'{word} {rest}': {why}");
            let value = decoded(rest);
            if word == "standing" {
                run_spec.next(&mut then, &value, maxima).map_err(explain)?;
                continue;
            }
            let stage = then.last_mut().filter(|_| !is_for_all(word)).unwrap_or(&mut run_spec);
            stage.take(word, value).map_err(explain)?;
        }
        if run_spec.module == Wanted::Follows(0) {
            let why = "an order needs a line 'module sha256:HASH', 'module LENGTH' or \
                       'standing NAME'";
            return Err(why.to_string());
        }
        if run_spec.input && run_spec.stdin.is_some() {
            return Err("'stdin' and 'input': it has one input only".to_string());
        }
        if !run_spec.is_standing() && run_spec.share_spec.reservation > run_spec.share_spec.limit {
            return Err("'reserve' and 'limit': no more can be certain than is ever given".into());
        }
        if !run_spec.is_standing() {
            maxima.check(&run_spec.budget)?;
        }
        if run_spec.args.is_empty() && !run_spec.is_standing() {
            run_spec.args.push(b"storelet".to_vec());
        }
        run_spec.then = then;
        Ok(run_spec)
    }

    /// Creates an order with the defaults.
    fn plain() -> RunSpec {
        RunSpec {
            module: Wanted::Follows(0),
            args: Vec::new(),
            env: Vec::new(),
            root: Vec::new(),
            writes: false,
            stdin: None,
            stdin_straight: false,
            input: false,
            frames: false,
            budget: Budget::default(),
            share_spec: ShareSpec::default(),
            io_reserve: 0,
            io_limit: u64::MAX,
            check: false,
            then: Vec::new(),
        }
    }

    /// Creates an order for an installed storelet, without limits of its own.
    fn standing(pick: Pick) -> RunSpec {
        let all = u64::MAX;
        let budget = Budget {
            cpu_ns: all,
            fuel: all,
            time_ns: all,
            memory: all,
            table: all,
            operations: all,
            bytes: all,
            output: all,
            files: all,
        };
        let share_spec = ShareSpec { weight: u32::MAX, reservation: all, limit: all };
        let module = Wanted::Standing(pick);
        RunSpec { module, writes: true, budget, share_spec, io_reserve: all, ..RunSpec::plain() }
    }

    fn is_standing(&self) -> bool {
        matches!(self.module, Wanted::Standing(_))
    }

    /// Adds an installed storelet: the first, or the next of a chain.
    fn next(
        &mut self,
        then: &mut Vec<RunSpec>,
        value: &[u8],
        maxima: &Maxima,
    ) -> Result<(), String> {
        let pick = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let stage = RunSpec::standing(pick.ok_or_else(|| label::SAY.to_string())?);
        if self.is_standing() {
            if then.len() + 2 > STAGES_MAX {
                return Err(format!("a chain has at most {STAGES_MAX} storelets"));
            }
            then.push(stage);
            return Ok(());
        }
        let all = RunSpec {
            stdin: self.stdin.clone(),
            input: self.input,
            frames: self.frames,
            check: self.check,
            budget: maxima.within(Budget::default()),
            ..RunSpec::plain()
        };
        if *self != all {
            return Err("it comes before the words that it is to be run with".to_string());
        }
        let RunSpec { stdin, stdin_straight, input, frames, check, .. } = all;
        *self = RunSpec { stdin, stdin_straight, input, frames, check, ..stage };
        Ok(())
    }

    /// Replaces the name of an installed storelet by its installation; limits are the minimum of
    /// both.
    ///
    /// # Panics
    /// If the order names no installed storelet.
    pub fn resolve(&mut self, installed: &RunSpec) {
        assert!(self.is_standing(), "what is requested by its name");
        self.module = installed.module.clone();
        self.args.splice(..0, installed.args.iter().cloned());
        self.env.clone_from(&installed.env);
        self.root.clone_from(&installed.root);
        self.writes &= installed.writes;
        self.budget = self.budget.least(&installed.budget);
        self.share_spec = least(self.share_spec, installed.share_spec);
        self.share_spec.reservation = self.share_spec.reservation.min(self.share_spec.limit);
        self.io_reserve = self.io_reserve.min(installed.io_reserve);
        self.io_limit = self.io_limit.min(installed.io_limit);
    }

    /// Returns whether a text, not necessarily a valid order, requests framed output: errors are
    /// framed then, too.
    pub fn wants_frames(text: &[u8]) -> bool {
        text.split(|byte| *byte == b'\n').any(|line| line.trim_ascii_end() == b"frames")
    }

    fn take(&mut self, word: &str, value: Vec<u8>) -> Result<(), String> {
        if self.is_standing() && FIXED.contains(&word) {
            return Err("this was set at installation".to_string());
        }
        match word {
            "arg" => self.args.push(value),
            "env" if value.contains(&b'=') => self.env.push(value),
            "env" => return Err("write NAME=VALUE".to_string()),
            "root" => self.root = path(&value)?,
            "stdin" => self.stdin = Some(file(&value)?),
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
            "read-only" => self.writes = false,
            "check" => self.check = true,
            "input" => self.input = true,
            "frames" => self.frames = true,
            "cpu" => self.budget.cpu_ns = duration(rest)?,
            // The maximum would mean unmetered.
            "fuel" => self.budget.fuel = count(rest)?.min(u64::MAX - 1),
            "time" => self.budget.time_ns = duration(rest)?,
            "memory" => self.budget.memory = size(rest)?,
            "io" => self.budget.operations = count(rest)?,
            "bytes" => self.budget.bytes = size(rest)?,
            "output" => self.budget.output = size(rest)?,
            "files" => self.budget.files = files(rest)?,
            "weight" => self.share_spec.weight = weight(rest)?,
            "reserve" => self.share_spec.reservation = reservation(rest)?,
            "limit" => self.share_spec.limit = share(rest)?,
            "io-reserve" => self.io_reserve = requests(rest)?,
            "io-limit" => self.io_limit = count(rest)?.max(1),
            _unknown => {
                let known = "module, standing, arg, env, root, write, read-only, stdin, input, \
                             frames, check, cpu, fuel, time, memory, io, bytes, output, files, \
                             weight, reserve, limit, io-reserve, io-limit";
                return Err(format!("no such word; there are {known}"));
            }
        }
        Ok(())
    }
}

/// Returns the minimum of both shares.
fn least(one: ShareSpec, other: ShareSpec) -> ShareSpec {
    ShareSpec {
        reservation: one.reservation.min(other.reservation),
        weight: one.weight.min(other.weight),
        limit: one.limit.min(other.limit),
    }
}

/// Words that are not allowed for installed storelets.
const FIXED: [&str; 4] = ["module", "env", "root", "write"];

/// Returns whether a word applies to a chain as a whole.
fn is_for_all(word: &str) -> bool {
    ["stdin", "input", "frames", "check"].contains(&word)
}

/// Parses the path of a directory, from the root, as it is written in a line.
pub(crate) fn dir(text: &str) -> Result<Vec<Name>, String> {
    path(&decoded(text))
}

/// Parses a duration, ns.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    duration(text)
}

/// Parses the path of a file, from the root.
fn file(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let names = path(bytes)?;
    let names: Vec<&[u8]> = names.iter().map(Name::as_bytes).collect();
    match names.is_empty() {
        true => Err("write the path of a file".to_string()),
        false => Ok(names.join(&b'/')),
    }
}

fn module(text: &str) -> Result<Wanted, String> {
    if let Some(hash) = text.strip_prefix("sha256:") {
        let hash = hash.parse().map_err(|_| "write 64 hexadecimal digits".to_string())?;
        return Ok(Wanted::Known(hash));
    }
    match count(text)? {
        0 => Err("an empty module cannot be run".to_string()),
        length if length > MODULE_MAX => {
            Err(format!("a module has at most {MODULE_MAX} bytes; strip its debug information"))
        }
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

/// Parses a reservation of at most a tenth of a processor: it is taken from all others.
fn reservation(text: &str) -> Result<u64, String> {
    let ns = share(text)?;
    match ns <= RESERVED_MAX {
        true => Ok(ns),
        false => Err("at most 10% can be certain".to_string()),
    }
}

/// Parses a reservation of file requests per second.
fn requests(text: &str) -> Result<u64, String> {
    let count = count(text).ok().filter(|count| *count <= REQUESTS_MAX);
    count.ok_or_else(|| format!("at most {REQUESTS_MAX} requests a second can be certain"))
}

fn files(text: &str) -> Result<u64, String> {
    let files = count(text).ok().filter(|files| (1..=FILES_MAX).contains(files));
    files.ok_or_else(|| format!("write a number from 1 to {FILES_MAX}"))
}

fn weight(text: &str) -> Result<u32, String> {
    let weight = count(text).ok().and_then(|weight| u32::try_from(weight).ok());
    let weight = weight.filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| format!("write a number from 1 to {WEIGHT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_says_everything() {
        let text = "module 12\narg rg\narg a%0Ab\nenv X=1\nroot /src/./lib\nwrite\ninput\nframes\n\
                    cpu 1.5s\nfuel 9000\ntime 2m\nmemory 64M\nio 100\nbytes 1G\noutput 10k\n\
                    files 3\nweight 7\nreserve 10%\nlimit 150%\nio-reserve 20\nio-limit 50";
        let run_spec = RunSpec::parse(text.as_bytes()).expect("it is one");
        assert_eq!(run_spec.module, Wanted::Follows(12));
        assert_eq!(run_spec.args, [b"rg".to_vec(), b"a\nb".to_vec()]);
        assert_eq!(run_spec.root.len(), 2);
        assert!(run_spec.writes && run_spec.input && run_spec.frames);
        let budget = Budget {
            cpu_ns: 1_500_000_000,
            fuel: 9000,
            time_ns: 120_000_000_000,
            memory: 64 << 20,
            operations: 100,
            bytes: 1 << 30,
            output: 10 << 10,
            files: 3,
            ..Budget::default()
        };
        assert_eq!(run_spec.budget, budget);
        let share_spec = ShareSpec { weight: 7, reservation: 100_000_000, limit: 1_500_000_000 };
        assert_eq!(
            (run_spec.share_spec, run_spec.io_reserve, run_spec.io_limit),
            (share_spec, 20, 50)
        );
    }

    #[test]
    fn an_order_beyond_the_maxima_is_refused_and_one_that_says_nothing_is_within() {
        let maxima = Maxima { time_ns: 50_000_000_000, cpu_ns: 2_000_000_000, memory: 64 << 20 };
        let run_spec = RunSpec::parse_within(b"module 1", &maxima).expect("it is one");
        let Budget { time_ns, cpu_ns, memory, .. } = run_spec.budget;
        assert_eq!(Maxima { time_ns, cpu_ns, memory }, maxima);
        for (line, why) in [
            ("time 99999h", "time exceeds this server's maximum of 50s; reduce it"),
            ("cpu 2001ms", "exceeds this server's maximum of 2s; reduce it"),
            ("memory 750M", "exceeds this server's maximum of 64M; reduce it"),
            ("memory 65M", "a larger --storelet-memory-max"),
        ] {
            let text = format!("module 1\n{line}");
            let refused = RunSpec::parse_within(text.as_bytes(), &maxima).expect_err("it is more");
            assert!(refused.contains(why), "{line}: {refused}");
            RunSpec::parse(text.as_bytes()).expect("there are no maxima");
        }
        let most = b"module 1\ntime 50s\ncpu 2s\nmemory 64M";
        RunSpec::parse_within(most, &maxima).expect("it is no more");
        // A limit on an installed storelet only reduces it.
        let named = RunSpec::parse_within(b"standing a\ntime 99h", &maxima).expect("it is one");
        assert_eq!(named.budget.memory, u64::MAX);
    }

    #[test]
    fn a_chain_is_what_is_installed_with_less_than_that_may() {
        let text = "frames\nstanding a\narg x\ncpu 1s\nstanding b@2\nread-only\nstdin /d/./f";
        let mut run_spec = RunSpec::parse(text.as_bytes()).expect("it is one");
        assert_eq!(run_spec.stdin, Some(b"d/f".to_vec()));
        let [second] = &run_spec.then[..] else { panic!("{run_spec:?}") };
        assert!(run_spec.frames && !second.writes && second.args.is_empty());
        assert_eq!(second.module, Wanted::Standing("b@2".parse().expect("a name")));
        let installed = format!("module sha256:{}\narg wc\nwrite\ncpu 9s\ntime 3s", "7".repeat(64));
        let installed = RunSpec::parse(installed.as_bytes()).expect("it is one");
        let mut limited = RunSpec::parse(b"standing a\nlimit 5%").expect("it is one");
        limited.resolve(&RunSpec::parse(b"module 1\nreserve 10%").expect("it is one"));
        assert_eq!(
            (limited.share_spec.reservation, limited.share_spec.limit),
            (50_000_000, 50_000_000)
        );
        run_spec.resolve(&installed);
        assert_eq!(run_spec.module, installed.module);
        assert_eq!(run_spec.args, [b"wc".to_vec(), b"x".to_vec()]);
        let (second, third) = (1_000_000_000, 3_000_000_000);
        assert_eq!((run_spec.budget.cpu_ns, run_spec.budget.time_ns), (second, third));
        assert_eq!(run_spec.budget.memory, Budget::default().memory);
        assert!(
            run_spec.writes
                && run_spec.share_spec == ShareSpec::default()
                && run_spec.io_reserve == 0
        );
    }

    #[test]
    fn syntax_errors_name_the_expected_form() {
        let fails = |text: &str| RunSpec::parse(text.as_bytes()).expect_err("it is wrong");
        assert!(fails("arg x").contains("needs a line 'module"));
        assert!(fails("module 0").contains("empty"));
        assert!(fails("module 99999999999").contains("at most"));
        assert!(fails("module sha256:12").contains("64 hexadecimal"));
        assert!(fails("colour red").contains("there are module"));
        assert!(fails("module 1\nroot /a/../b").contains("without '..'"));
        assert!(fails("standing a\nroot /a").contains("at installation"));
        assert!(fails("standing a\nmodule 1").contains("at installation"));
        assert!(fails("module 1\nstanding a").contains("comes before"));
        assert!(fails("arg x\nstanding a").contains("comes before"));
        assert!(fails("standing a@0").contains("NAME@VERSION"));
        assert!(fails("standing ../a").contains("NAME@VERSION"));
        assert!(fails(&"standing a\n".repeat(9)).contains("at most 8"));
        assert!(fails("standing a\nstdin /").contains("path of a file"));
        assert!(fails("standing a\nstdin /../a").contains("without '..'"));
        assert!(fails("standing a\nstdin /a\ninput").contains("one input only"));
        assert!(fails("module 1\ncpu 10q").contains("500ms"));
        assert!(fails("module 1\nweight 0").contains("1 to"));
        assert!(fails("module 1\nlimit x").contains("50%"));
        assert!(fails("module 1\nreserve 10%\nlimit 5%").contains("no more can be certain"));
        assert!(fails("module 1\nio-reserve 1001").contains("at most 1000"));
        assert!(RunSpec::parse(b"module \xff").is_err());
    }
}
