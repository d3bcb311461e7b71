//! The corpus of hostile modules beside this file: budgets, required outcomes, and their tree.
//!
//! `*.wat` files begin with a description. In the same comment follow: `with:`, budgets that differ
//! from the defaults, and `writes`; `pace: ticks`, to run it with time slices, too; `must:`, the
//! required outcome; and `served:`, the required outcome at a server of a directory, if different:
//! a server inspects modules before, and a directory of the host treats cookies and dangling links
//! differently. The tests of this crate run them in a process of their own; `cargo xtask hostile`
//! runs them against a server, and includes this file.

use std::path::Path;

/// A module with its annotations.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Text of the module.
    pub(crate) text: String,
    /// Required outcome: a word and its details.
    #[allow(dead_code, reason = "at a server another line counts")]
    pub(crate) must: String,
    /// Required outcome at a server of a directory.
    #[allow(dead_code, reason = "not every reader has a server")]
    pub(crate) served: String,
    pub(crate) limits: Limits,
    pub(crate) writes: bool,
    #[allow(dead_code, reason = "a server runs all of them by time")]
    pub(crate) by_ticks: bool,
}

/// Limits: times in ns, sizes in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) cpu_ns: u64,
    pub(crate) time_ns: u64,
    pub(crate) memory: u64,
    #[allow(dead_code, reason = "an order has no word for it")]
    pub(crate) table: u64,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) output: u64,
    pub(crate) files: u64,
}

/// Default limits.
pub(crate) const TIGHT: Limits = Limits {
    cpu_ns: 20_000_000,
    time_ns: 10_000_000_000,
    memory: 4 << 20,
    table: 1000,
    operations: 1000,
    bytes: 1 << 20,
    output: 64 << 10,
    files: 16,
};

/// Outcome of a run.
#[derive(Debug)]
pub(crate) enum End {
    /// Rejected.
    Refused,
    /// Exit with this code.
    Exit(u32),
    /// Trap, with its text.
    Trap(String),
    /// Killed for this limit: `cpu`, `time`, `memory`, `operations`, `bytes`, `output`.
    Killed(String),
}

/// Kind of a file in the tree of the modules.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    File,
    Link,
    Fifo,
}

impl Case {
    fn new(name: String, text: String) -> Case {
        let find = |label: &str| {
            let mut lines = text.lines().map_while(|line| line.strip_prefix(";;"));
            lines.find_map(|line| line.trim().strip_prefix(label).map(str::trim).map(str::to_owned))
        };
        let must = find("must:").unwrap_or_else(|| panic!("{name} does not say how it must end"));
        let (mut limits, mut writes) = (TIGHT, false);
        for word in find("with:").unwrap_or_default().split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => set(&mut limits, key, number(value)),
                None => writes |= word == "writes",
            }
        }
        let by_ticks = find("pace:").is_some_and(|pace| pace == "ticks");
        let served = find("served:").unwrap_or_else(|| must.clone());
        Case { name, text, must, served, limits, writes, by_ticks }
    }
}

impl End {
    /// Returns whether this is the required outcome, given the output.
    pub(crate) fn is(&self, must: &str, printed: &str) -> bool {
        let (word, rest) = must.split_once(' ').unwrap_or((must, ""));
        match (word, self) {
            ("refused", End::Refused) => true,
            ("killed", End::Killed(budget)) => budget == rest,
            ("trap", End::Trap(why)) => why.contains(rest),
            ("exit", End::Exit(code)) => code.to_string() == rest,
            ("output", End::Exit(0)) => printed == rest,
            (_, End::Refused | End::Killed(_) | End::Trap(_) | End::Exit(_)) => false,
        }
    }
}

fn set(limits: &mut Limits, key: &str, value: u64) {
    let field = match key {
        "cpu" => &mut limits.cpu_ns,
        "time" => &mut limits.time_ns,
        "memory" => &mut limits.memory,
        "table" => &mut limits.table,
        "operations" => &mut limits.operations,
        "bytes" => &mut limits.bytes,
        "output" => &mut limits.output,
        "files" => &mut limits.files,
        other => panic!("no budget {other}"),
    };
    *field = value;
}

fn number(text: &str) -> u64 {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        other => panic!("no unit {other}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

/// Tree of the modules: paths, kinds, and contents or targets.
pub(crate) fn tree() -> Vec<(String, What, String)> {
    let mut tree = Vec::new();
    let mut put =
        |path: &str, what, text: &str| tree.push((path.to_owned(), what, text.to_owned()));
    put("a/b/text", What::File, "some words that are read");
    put("a/dir", What::Link, "b");
    put("file", What::File, "0123456789");
    put("fifo", What::Fifo, "");
    put("out", What::Link, "../../etc/passwd");
    put("dir-out", What::Link, "..");
    put("host", What::Link, "/etc/passwd");
    put("round", What::Link, "round");
    put("bomb0", What::Link, "a");
    for n in 1..10 {
        let below = format!("bomb{}", n - 1);
        let target = format!("{below}/../{below}/../{below}/../{below}");
        put(&format!("bomb{n}"), What::Link, &target);
    }
    tree
}

/// Returns all modules by name.
pub(crate) fn cases(dir: &Path) -> Vec<Case> {
    let mut cases: Vec<_> = std::fs::read_dir(dir)
        .expect("they are there")
        .map(|entry| entry.expect("they can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "wat"))
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            Case::new(name, std::fs::read_to_string(&path).expect("it is text"))
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}
