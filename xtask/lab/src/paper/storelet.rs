//! Paper 002 (*ActiveStorage*): programs beside the data against a network file system, and their
//! effect on the file service.
//!
//! *jobs* is its abstract, `find` over NFS and locally, with four more jobs and longer delays
//! between client and server. *crowd* is its figure 4, the rate of the file service beside
//! competitors: processes for other servers, storelets for ours. *start* is the start-up time of a
//! storelet, and the cost of its code relative to native code of the same source.

mod competitors;
mod crowd;
mod jobs;
mod mount;
mod start;
mod work;

use super::Plan;
use super::plot::{self, Figure};
use crate::bench::record;
use crate::bench::table::median;
use anyhow::{Result, bail};
use rig::server::{Kind, Server};
use rig::{apt, guests, server, sh};
use std::path::{Path, PathBuf};
use std::time::Instant;

const HEAD: &str = "\
`cargo xtask paper storelet --record` writes this page: the evaluation of *ActiveStorage* with our \
storelets. The paper had a Pentium III of 500 MHz, 100 Mbit/s and NFSv2; what a table here says is \
how one way stands beside the others of the same run, on the same machine.\n";

/// Programs that run as storelets.
const GUESTS: &[&str] = &["find", "wc", "sums", "sql", "rg", "compete"];

/// Runs all of it, or one part.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    apt::need(&[apt::STORELET, apt::GO])?;
    server::build()?;
    let missing = guests::make(GUESTS)?;
    if !missing.is_empty() {
        bail!("these programs could not be built: {}", missing.join(", "));
    }
    let mut lab = Lab::new(plan)?;
    let is_wanted = |part: &str| plan.part.as_deref().is_none_or(|only| only == part);
    if is_wanted("jobs") {
        jobs::measure(&mut lab)?;
    }
    if is_wanted("crowd") {
        crowd::measure(&mut lab)?;
    }
    if is_wanted("start") {
        start::measure(&mut lab)?;
    }
    lab.end()
}

/// Environment of the measurements, and the page.
pub(super) struct Lab {
    quick: bool,
    record: bool,
    /// Whether the kernel's client is measured, too.
    kernel: bool,
    base: PathBuf,
    text: String,
    figures: PathBuf,
    started: Instant,
}

impl Lab {
    fn new(plan: &Plan) -> Result<Lab> {
        // A single part does not make a page.
        let record = plan.record && plan.part.is_none();
        let base = sh::empty("paper/storelet")?;
        let figures = if record { sh::root().join("docs/paper") } else { base.clone() };
        std::fs::create_dir_all(&figures)?;
        let text = format!("# Storelets, measured as their paper measured its own\n\n{HEAD}\n");
        Ok(Lab {
            quick: plan.quick,
            record,
            kernel: plan.kernel,
            base,
            text,
            figures,
            started: Instant::now(),
        })
    }

    /// Returns one of two, the second with `--quick`.
    fn of<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Prints progress.
    fn tell(&self, what: &str) {
        eprintln!("   {:>4.0} s  {what}", self.started.elapsed().as_secs_f64());
    }

    /// Serves a directory read-only, as this process's user.
    fn serve(&self, dir: &Path, core: Option<usize>) -> Result<Server> {
        self.serve_with("cache", dir, core)
    }

    /// Like `serve`, with a cache of compiled modules of this name.
    fn serve_with(&self, cache: &str, dir: &Path, core: Option<usize>) -> Result<Server> {
        let (cache, user) = (self.base.join(cache), user());
        let cache = cache.display().to_string();
        let mut flags = vec!["--read-only", "--storelet-cache", &cache];
        if rustix::process::geteuid().is_root() {
            flags.extend(["--as", &user]);
        }
        Server::start_on(Kind::Uring, dir, &flags, core)
    }

    fn figure(&mut self, name: &str, figure: &Figure<'_>) -> Result<()> {
        plot::draw(figure, &self.figures.join(format!("{name}.svg")))?;
        self.text += &format!("\n![{}]({name}.svg)\n", figure.title);
        Ok(())
    }

    /// Adds a line with a goal and whether it was reached.
    fn goal(&mut self, goal: &str, got: &str, is_reached: bool) {
        let word = if is_reached { "reached" } else { "**not reached**" };
        self.text += &format!("- {goal}: {got}, {word}.\n");
    }

    fn end(self) -> Result<()> {
        let about = format!(
            "{}; {}. Took {:.0} s.\n",
            rig::machine::describe(),
            record::packages(&["rclone", "diod", "nfs-ganesha"]),
            self.started.elapsed().as_secs_f64(),
        );
        let text = self.text.replacen(HEAD, &format!("{HEAD}\n{about}"), 1);
        println!("{text}");
        if self.record {
            std::fs::write(sh::root().join("docs/paper/storelet.md"), text)?;
        }
        Ok(())
    }
}

fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// Returns the path of a storelet program.
fn wasm(name: &str) -> String {
    sh::target().join("guests").join(format!("{name}.wasm")).display().to_string()
}

/// Formats seconds with three digits.
fn seconds(value: f64) -> String {
    match value {
        none if none.is_nan() => "–".into(),
        small if small < 0.1 => format!("{small:.4}"),
        small if small < 1.0 => format!("{small:.3}"),
        small if small < 10.0 => format!("{small:.2}"),
        small if small < 100.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Formats median and range.
fn spread(values: &[f64], show: &dyn Fn(f64) -> String) -> String {
    if values.is_empty() {
        return "–".into();
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{} ({}..{})", show(median(values.iter().copied())), show(low), show(high))
}
