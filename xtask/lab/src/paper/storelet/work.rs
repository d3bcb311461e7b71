//! The jobs: each as a command on files, and as a storelet.

use super::wasm;
use anyhow::{Context, Result, bail, ensure};
use rig::{guests, sh};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Word to search: it occurs in a few places below `kernel/time`.
const WORD: &str = "do_setitimer";

/// Flag of ripgrep: a tree within a repository may be ignored, by its own `.gitignore` too.
const VISIBLE: &str = "--no-ignore-vcs";
/// Rows of the database.
const ROWS: u32 = 400_000;
const QUERY: &str = "pragma temp_store = memory; \
                     select kind, count(*), sum(size), min(name), max(name) from files \
                     where name like '%7%' group by kind order by kind";

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Finds a file by name.
    Find,
    /// Searches for a word.
    Grep,
    /// Counts lines, words and bytes of every file.
    Count,
    /// Computes SHA-256 of every file.
    Sums,
    /// Runs a query with a full table scan.
    Query,
}

pub(super) const JOBS: [Job; 5] = [Job::Find, Job::Grep, Job::Count, Job::Sums, Job::Query];

impl Job {
    pub(super) fn name(self) -> &'static str {
        match self {
            Job::Find => "find a name",
            Job::Grep => "search a word",
            Job::Count => "count words",
            Job::Sums => "checksums",
            Job::Query => "SQL query",
        }
    }

    /// Returns the local command, for a shell in the directory; `part` is a directory in it.
    fn local(self, part: &str) -> Result<String> {
        let program = |name| guests::native(name).map(|path| path.display().to_string());
        Ok(match self {
            Job::Find => format!("find {part} -name itimer.c"),
            Job::Grep => format!("{} {VISIBLE} -n {WORD} {part}", program("rg")?),
            Job::Count => format!("{} {part}", program("wc")?),
            Job::Sums => {
                format!("find {part} -type f -print0 | sed -z 's|^\\./||' | xargs -0 sha256sum")
            }
            Job::Query => format!("{} files.db \"{QUERY}\"", program("sql")?),
        })
    }

    /// Returns the storelet and its arguments.
    fn guest(self, part: &str) -> (&'static str, Vec<String>) {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Job::Find => ("find", words(&[part, "-name", "itimer.c"])),
            Job::Grep => ("rg", words(&[VISIBLE, "-n", WORD, part])),
            Job::Count => ("wc", words(&[part])),
            Job::Sums => ("sums", words(&[part])),
            Job::Query => ("sql", words(&["/files.db", QUERY])),
        }
    }

    /// Describes the local command.
    pub(super) fn locally(self) -> &'static str {
        match self {
            Job::Find => "GNU find",
            Job::Grep => "ripgrep 15.2.0, all processors",
            Job::Count => "`wc.c`, as the storelet",
            Job::Sums => "GNU sha256sum",
            Job::Query => "SQLite, as the storelet",
        }
    }
}

/// Duration of a command, seconds, and its output, with sorted lines.
pub(super) struct Done {
    pub(super) seconds: f64,
    pub(super) printed: Vec<u8>,
}

impl Done {
    /// Checks that both printed the same.
    pub(super) fn same(&self, other: &Done, what: &str) -> Result<()> {
        if self.printed == other.printed {
            return Ok(());
        }
        let lines = |done: &Done| {
            String::from_utf8_lossy(&done.printed).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (own, others) = (lines(self), lines(other));
        let at = own.iter().zip(&others).position(|(own, other)| own != other);
        let at = at.unwrap_or(own.len().min(others.len()));
        bail!(
            "{what}: {} lines and {}, the first that differ: {:?} and {:?}",
            own.len(),
            others.len(),
            own.get(at),
            others.get(at)
        )
    }
}

/// Runs the local command in a directory; `None` if it took longer than `most`.
pub(super) fn locally(job: Job, dir: &Path, part: &str, most: Duration) -> Result<Option<Done>> {
    let most = format!("{}", most.as_secs_f64());
    let mut command = Command::new("timeout");
    command.args([&most, "sh", "-c", &job.local(part)?]).current_dir(dir);
    let (done, code) = timed(&mut command)?;
    match code {
        Some(0) => Ok(Some(done)),
        Some(124) => Ok(None),
        code => bail!("{} in {} ended with {code:?}", job.name(), dir.display()),
    }
}

/// Runs the storelet.
pub(super) fn beside(job: Job, port: u16, part: &str) -> Result<Done> {
    let (name, args) = job.guest(part);
    let mut command = Command::new(rig::server::binary());
    command.args(["run", &format!("127.0.0.1:{port}"), "--cpu", "10m", "--time", "20m"]);
    command.arg(wasm(name)).arg("--").args(args);
    let (done, code) = timed(&mut command)?;
    ensure!(code == Some(0), "{} as a storelet ended with {code:?}", job.name());
    Ok(done)
}

/// Runs a command to its end, captures its output, and passes errors to the terminal.
fn timed(command: &mut Command) -> Result<(Done, Option<i32>)> {
    command.env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::inherit());
    let begun = Instant::now();
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut lines: Vec<&[u8]> = output.stdout.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    Ok((Done { seconds, printed: lines.concat() }, output.status.code()))
}

/// Compares `rg -n WORD /` as a storelet with the native run on `.` in the directory: the same
/// lines, except for the dot in front of each path.
pub(super) fn search_from_the_root(dir: &Path, port: u16) -> Result<usize> {
    let mut command = Command::new(rig::server::binary());
    command.args(["run", &format!("127.0.0.1:{port}"), "--cpu", "10m", "--time", "20m"]);
    command.arg(wasm("rg")).args(["--", VISIBLE, "-n", WORD, "/"]).stdin(Stdio::null());
    let beside = sh::read(&mut command)?;
    let rg = guests::native("rg")?.display().to_string();
    let local = sh::read(sh::cmd(&rg, &[VISIBLE, "-n", "-j1", WORD, "."]).current_dir(dir))?;
    let mut local: Vec<&str> = local.lines().map(|line| line.trim_start_matches('.')).collect();
    let mut beside: Vec<&str> = beside.lines().collect();
    if local != beside {
        // The order of files is that of directory listings.
        local.sort_unstable();
        beside.sort_unstable();
    }
    ensure!(local == beside, "rg says {beside:?} beside the data and {local:?} locally");
    Ok(beside.len())
}

/// Creates the database in a directory of its own.
pub(super) fn database(base: &Path) -> Result<PathBuf> {
    let dir = base.join("database");
    std::fs::create_dir_all(&dir)?;
    let make = format!(
        "begin; create table files(id integer primary key, name text, kind text, size integer); \
         with recursive n(i) as (select 0 union all select i + 1 from n where i < {}) \
         insert into files select i, 'directory-' || (i % 977) || '/file-' || i, \
         substr('chmdoSrst', 1 + i % 9, 1), (i * 7919) % 100003 from n; commit;",
        ROWS - 1
    );
    let sql = guests::native("sql")?.display().to_string();
    sh::read(sh::cmd(&sql, &["files.db", &make]).current_dir(&dir))?;
    Ok(dir)
}

/// Returns the number of entries below each part, including directories.
pub(super) fn entries(dir: &Path, parts: &[&'static str]) -> Result<BTreeMap<&'static str, f64>> {
    let count = |part: &&'static str| {
        let text = sh::read(sh::cmd("find", &[*part, "-printf", "x"]).current_dir(dir))?;
        #[expect(clippy::cast_precision_loss, reason = "a count of files")]
        Ok((*part, text.len() as f64))
    };
    parts.iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::super::GUESTS;
    use super::*;

    #[test]
    fn every_job_has_a_program_that_is_built() {
        for job in JOBS {
            assert!(GUESTS.contains(&job.guest(".").0), "{}", job.name());
        }
    }
}
