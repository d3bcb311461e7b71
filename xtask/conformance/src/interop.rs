//! Every server with every client, each directly and through a namespace: which pairs can read, and
//! which can write.
//!
//! Each pair gets a server of its own, so that a crash affects one pair only. A cell of the table
//! states the last step that worked; `docs/interop.md` holds the table, and the suite fails where a
//! cell is worse than on the page. `cargo xtask conformance interop --record` writes the page.
//! Peers that cannot be installed are skipped, but not when the page is written.

mod clients;
mod guest;
mod page;
mod peers;
mod tools;

use super::{give_away, served};
use anyhow::{Result, bail};
use clients::Client;
use peers::{Peer, Running};
use rig::report::Report;
use rig::server::Kind;
use std::path::{Path, PathBuf};
use tools::Tools;

/// Number of entries of the listed directory.
const ENTRIES: usize = 200;

/// Size of the file to read and of the file to write, bytes.
const BIG: usize = 3_000_000;
const WRITTEN: usize = 1_000_000;

/// Path of the deeply nested file.
const NESTED: &str = "a/b/c/d/e/deep";

/// Protocol dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialect {
    Linux,
    Plan9,
}

/// A server, or the namespace that mounts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    peer: Peer,
    /// Whether a client reaches it through `upcall serve --names`.
    joined: bool,
}

impl Row {
    fn all() -> impl Iterator<Item = Row> {
        let rows = |joined| Peer::ALL.into_iter().map(move |peer| Row { peer, joined });
        rows(false).chain(rows(true))
    }

    /// Returns its name in a list of cases.
    fn name(self) -> String {
        let behind = if self.joined { "names/" } else { "" };
        format!("{behind}{}", self.peer.name())
    }

    fn speaks(self, dialect: Dialect) -> bool {
        self.joined || self.peer.speaks(dialect)
    }
}

/// One step of a client, and the reason of a failure.
struct Step {
    name: String,
    outcome: Result<(), String>,
}

impl Step {
    /// Parses a line of a client: `@ok STEP` or `@no STEP WHY`.
    fn parse(line: &str) -> Option<Step> {
        let mut words = line.splitn(3, ' ');
        let (verdict, name) = (words.next()?, words.next()?.to_owned());
        let why = words.next().unwrap_or("it does not say why").trim().to_owned();
        match verdict {
            "@ok" => Some(Step { name, outcome: Ok(()) }),
            "@no" => Some(Step { name, outcome: Err(why) }),
            _ => None,
        }
    }
}

/// A cell of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cell {
    words: String,
    /// Error text, for a footnote.
    why: Option<String>,
}

impl Cell {
    /// Summarises the steps of a client.
    fn of(row: Row, client: Client, steps: &[Step]) -> Cell {
        let printed = |failed: &[&Step]| {
            let texts = failed.iter().map(|step| {
                let why = step.outcome.as_ref().err().map_or("", String::as_str);
                format!("{}: {why}", step.name)
            });
            Some(texts.collect::<Vec<_>>().join("; "))
        };
        let failed: Vec<_> = steps.iter().filter(|step| step.outcome.is_err()).collect();
        let missing = client.steps().iter().find(|name| steps.iter().all(|s| s.name != **name));
        let Some(first) = failed.first() else {
            let words = match (missing, client.writes()) {
                (Some(name), _) => format!("{name} hangs"),
                (None, true) => "rw".to_owned(),
                (None, false) => "r".to_owned(),
            };
            let why = missing.map(|_| "no answer".to_owned());
            return Cell { words, why };
        };
        let words = match first.name.as_str() {
            "attach" if !row.speaks(client.dialect()) => "no common dialect".to_owned(),
            "create" => "r".to_owned(),
            name => format!("{name} fails"),
        };
        Cell { words, why: printed(&failed) }
    }

    /// Returns the rank of a cell: more is better.
    fn rank(words: &str) -> u8 {
        match words {
            "rw" => 3,
            "r" => 2,
            words if words.ends_with("fails") => 1,
            _ => 0,
        }
    }
}

/// A row, a client, and their result.
type Entry = (Row, Client, Cell);

/// The served directory and its files.
struct Ground {
    dir: PathBuf,
    /// An empty root with one directory, the mount point of the server.
    root: PathBuf,
    /// Directory of names files and of written files.
    aside: PathBuf,
}

impl Ground {
    fn new() -> Result<Ground> {
        let base = served("interop")?;
        let [dir, root, aside] = ["served", "root", "aside"].map(|name| base.join(name));
        std::fs::create_dir_all(dir.join("list"))?;
        std::fs::create_dir_all(root.join("far"))?;
        std::fs::create_dir_all(&aside)?;
        for number in 0..ENTRIES {
            std::fs::write(dir.join(format!("list/entry-{number:03}")), format!("{number}\n"))?;
        }
        let nested = dir.join(NESTED);
        std::fs::create_dir_all(nested.parent().unwrap_or(&dir))?;
        std::fs::write(nested, "deep down\n")?;
        std::fs::write(dir.join("big"), noise(BIG))?;
        std::fs::write(aside.join("written"), noise(WRITTEN))?;
        give_away(&base)?;
        Ok(Ground { dir, root, aside })
    }

    fn written(&self) -> PathBuf {
        self.aside.join("written")
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("interop", "diod is one of its servers already");
        return Ok(());
    }
    let tools = Tools::install();
    for (what, why) in &tools.missing {
        report.skip(&format!("interop/{what}"), why);
    }
    if report.record && !tools.missing.is_empty() {
        bail!("a page without {} is not written", tools.missing[0].0);
    }
    let ground = Ground::new()?;
    let setup = Setup { kind, tools: &tools, ground: &ground };
    let (entries, linux) = std::thread::scope(|scope| {
        let linux = scope.spawn(|| guest::run(&setup));
        let entries = setup.here();
        (entries, linux.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the guest's thread died"))))
    });
    let (more, kernel) = linux?;
    let entries: Vec<Entry> = entries?.into_iter().chain(more).collect();
    if report.record {
        page::write(&entries, &tools, &kernel)?;
    }
    judge(report, &entries)
}

/// Common context of all pairs.
struct Setup<'a> {
    kind: Kind,
    tools: &'a Tools,
    ground: &'a Ground,
}

impl Setup<'_> {
    fn rows(&self) -> impl Iterator<Item = Row> {
        Row::all().filter(|row| row.peer.there(self.tools))
    }

    /// Runs the pairs whose client runs on this host.
    fn here(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for row in self.rows() {
            let clients = Client::ALL.into_iter().filter(|c| !c.in_guest() && c.there(self.tools));
            for client in clients {
                let mut running = self.start(row, client)?;
                let id = format!("{}-{}", row.name().replace('/', "-"), client.name());
                let steps = client.run(self, &running, &id);
                let cell = self.cell((row, client), &id, &steps, &mut running);
                entries.push((row, client, cell));
            }
        }
        Ok(entries)
    }

    /// Returns the cell of a pair; `id` is in the names of the files it created.
    fn cell(&self, pair: (Row, Client), id: &str, steps: &[Step], running: &mut Running) -> Cell {
        let mut cell = Cell::of(pair.0, pair.1, steps);
        if let Some(who) = running.dead() {
            let printed = cell.why.take().unwrap_or_default();
            cell =
                Cell { words: format!("{who} dies"), why: Some(format!("{who} died; {printed}")) };
        }
        let dir = self.ground.dir.display().to_string();
        let base = self.ground.dir.parent().unwrap_or(Path::new("/")).display().to_string();
        cell.why = cell.why.map(|why| {
            let why = why.replace(&dir, "DIR").replace(&base, "DIR").replace(&format!("-{id}"), "");
            running.ports().iter().fold(why, |why, port| why.replace(&port.to_string(), "PORT"))
        });
        cell
    }

    /// Starts a server of a row, a new one for each client.
    fn start(&self, row: Row, client: Client) -> Result<Running> {
        let far = Running::start(row.peer, self)?;
        let mut running = if row.joined { far.joined(self)? } else { far };
        if !row.speaks(client.dialect()) {
            running.timeout = peers::TIMEOUT_IN_VAIN;
        }
        Ok(running)
    }
}

/// Compares the results with the page.
fn judge(report: &mut Report, entries: &[Entry]) -> Result<()> {
    let page = page::read()?;
    for (row, client, cell) in entries {
        let name = format!("interop/{}/{}", row.name(), client.name());
        let expected = page.get(&(row.name(), client.name().to_owned()));
        let expected = expected.map_or("nothing", String::as_str);
        let printed = cell.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let outcome = if cell.words == expected {
            Ok(cell.words.clone())
        } else if Cell::rank(&cell.words) > Cell::rank(expected) {
            Ok(format!("{}{printed}; the page says {expected}: record it", cell.words))
        } else {
            Err(format!("{}{printed}; docs/interop.md says {expected}", cell.words))
        };
        report.line(&name, outcome, 0.0);
    }
    Ok(())
}
