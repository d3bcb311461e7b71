//! Paper 003 (*Buttress*, FAST 2004), §6 and Figure 2: issue error of I/Os, maximum rate of I/Os,
//! and the effect of errors on measurements.
//!
//! Issue times are measured on a file in the page cache, so that the disk does not matter, and
//! response times on the device (`--direct`). The naive replayers are built into `upcall load`; fio
//! is Debian's. The I/Os of fio are observed by the kernel's tracing, which requires root. Some
//! hundred megabytes are written below the target directory.

mod distorted;
mod fio;
mod issue;
mod itself;
mod kernel;
mod maximum;
mod neighbour;
mod ours;
mod rate;
mod spread;

use super::Plan;
use super::plot::{self, Figure};
use crate::bench::record;
use crate::bench::table::median;
use crate::instrument;
use anyhow::{Context, Result, bail};
use rig::{apt, server, sh};
use serde_json::Value;
use spread::percent;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Head of the page: the command that creates it, and the method.
const HEAD: &str = "\
`cargo xtask paper load --traces DIR --record` writes this page: the evaluation of *Buttress* \
(FAST 2004, §6, and Figure 2) with our instrument, beside the paper's own figures. The paper had \
eight processors of 440 MHz, HP-UX and a disk array with 340 volumes; what a table here says is \
how ours stands beside the others of the same run, on the same machine.\n";

/// Runs all of it.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    apt::need(&[apt::LOAD])?;
    server::build()?;
    let words = ["build", "--release", "--quiet", "-p", "upcall-reactor", "--example", "special"];
    sh::run(&mut sh::cargo(&words))?;
    let traces = plan.traces.clone().context("say where the traces are: --traces DIR")?;
    let mut lab = Lab::new(plan, traces)?;
    issue::measure(&mut lab)?;
    rate::measure(&mut lab)?;
    maximum::measure(&mut lab)?;
    distorted::measure(&mut lab)?;
    itself::measure(&mut lab)?;
    lab.end()
}

/// Environment of the measurements, and the page.
pub(super) struct Lab {
    quick: bool,
    record: bool,
    traces: PathBuf,
    base: PathBuf,
    /// File in the page cache.
    cached: PathBuf,
    /// File accessed by direct I/O.
    direct: PathBuf,
    text: String,
    figures: PathBuf,
    /// Share of time lost by a spin loop during each run without a neighbour of ours.
    bare: Vec<f64>,
    loads: [String; 2],
    started: Instant,
}

impl Lab {
    fn new(plan: &Plan, traces: PathBuf) -> Result<Lab> {
        if !traces.is_dir() {
            bail!("{} is no directory with traces", traces.display());
        }
        let traces = traces.canonicalize()?;
        let base = sh::empty("paper/load")?;
        let figures = if plan.record { sh::root().join("docs/paper") } else { base.clone() };
        std::fs::create_dir_all(&figures)?;
        let lab = Lab {
            quick: plan.quick,
            record: plan.record,
            traces,
            cached: base.join("cached"),
            direct: base.join("direct"),
            base,
            text: format!("# The instrument, measured as its paper measured its own\n\n{HEAD}\n"),
            figures,
            bare: Vec::new(),
            loads: [busy(), String::new()],
            started: Instant::now(),
        };
        let bytes = if plan.quick { 64 << 20 } else { 256 << 20 };
        make(&lab.cached, bytes)?;
        make(&lab.direct, bytes)?;
        Ok(lab)
    }

    /// Returns one of two, the second with `--quick`.
    fn of<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Returns the path of a file of its own, for records.
    fn scratch(&self, name: &str) -> String {
        self.base.join(name).display().to_string()
    }

    /// Runs `upcall load` and records the share lost by the spin loop.
    fn load(&mut self, words: &[&str]) -> Result<Value> {
        let printed = instrument::run(words, None)?;
        self.bare.extend(Some(ours::bare(&printed)).filter(|share| !share.is_nan()));
        Ok(printed)
    }

    /// Prints progress.
    fn tell(&self, what: &str) {
        eprintln!("   {:>4.0} s  {what}", self.started.elapsed().as_secs_f64());
    }

    /// Reads the whole file into the page cache.
    fn warm(&self) -> Result<()> {
        let mut file = std::fs::File::open(&self.cached)?;
        let mut piece = vec![0; 1 << 20];
        while file.read(&mut piece)? > 0 {}
        Ok(())
    }

    /// Adds a quotation of the paper, with its source.
    fn quote(&mut self, printed: &str, from: &str) {
        self.text += &format!("\nThe paper, of its own ({from}): “{printed}”\n");
    }

    fn figure(&mut self, name: &str, figure: &Figure<'_>) -> Result<()> {
        plot::draw(figure, &self.figures.join(format!("{name}.svg")))?;
        self.text += &format!("\n![{}]({name}.svg)\n", figure.title);
        Ok(())
    }

    /// Describes how quiet the machine was.
    fn quiet(&self) -> String {
        let worst = self.bare.iter().copied().fold(0.0, f64::max) * 100.0;
        let middle = median(self.bare.iter().copied()) * 100.0;
        format!(
            "How quiet the machine was: beside {} runs without a neighbour of ours, a bare loop \
             that only reads the clock lost {} % of its time (median; {} % at worst). Processes \
             that wanted a processor, of the last one, five and fifteen minutes: {} when it \
             began, {} when it ended (the runs themselves want up to two).\n",
            self.bare.len(),
            percent(middle),
            percent(worst),
            self.loads[0],
            self.loads[1],
        )
    }

    fn end(mut self) -> Result<()> {
        self.loads[1] = busy();
        let about = format!(
            "{}; {}. Took {:.0} s.\n\n{}",
            rig::machine::describe(),
            record::packages(&["fio"]),
            self.started.elapsed().as_secs_f64(),
            self.quiet()
        );
        let text = self.text.replacen(HEAD, &format!("{HEAD}\n{about}"), 1);
        println!("{text}");
        if self.record {
            std::fs::write(sh::root().join("docs/paper/load.md"), text)?;
        }
        for file in [&self.cached, &self.direct] {
            std::fs::remove_file(file)?;
        }
        Ok(())
    }
}

/// Returns the load averages of the machine.
pub(super) fn busy() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Creates a file of random bytes, which no device can compress or skip.
fn make(path: &Path, bytes: u64) -> Result<()> {
    let bytes = bytes.to_string();
    let mut head = sh::cmd("head", &["-c", &bytes, "/dev/urandom"]);
    head.stdout(std::fs::File::create(path)?);
    sh::run(&mut head)?;
    sh::run(&mut sh::cmd("sync", &[path]))
}
