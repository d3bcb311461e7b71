//! Paper 001 (*Implementing an Eventually-Serializable Data Service as a Distributed System*),
//! chapter 5: its three test series, with its algorithms as they are in `crates/esds`.
//!
//! *Virtual replicas*: more replicas than processors. *Performance*: throughput and response times
//! of 1 to 10 replicas with three patterns of submission, with and without gossip. *Trade-off*: the
//! cost of strict operations, and their effect on inconsistent answers. Then the paper's unmeasured
//! claims about its three implementations, and all of it again at full speed.
//!
//! The runs are made by `crates/series`: each part of a service is a process on a thread, and they
//! communicate over TCP. Properties that hold regardless of timing are checked in every run, and a
//! violation fails the page: all operations are answered, all replicas converge, strict answers and
//! blind additions are never inconsistent.

mod claims;
mod performance;
mod runs;
mod today;
mod tradeoff;
mod virtual_replicas;

use super::Plan;
use super::plot::{self, Axes, Figure};
use anyhow::Result;
use claims::Comparison;
use rig::sh;
use runs::{OPERATION, PAPER, Runs, Speed};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Runs all of it.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    sh::build_optimised()?;
    let size = if plan.quick { Size::QUICK } else { Size::FULL };
    let mut jobs = performance::jobs(&size);
    jobs.extend(virtual_replicas::jobs(&size));
    jobs.extend(tradeoff::jobs(&size));
    jobs.extend(today::jobs(&size));
    let kept = sh::scratch("paper")?.join("replica.json");
    let runs = match plan.part.as_deref() {
        Some("again") => Runs::load(jobs, &size, &kept)?,
        _ => Runs::make(&jobs, &size)?,
    };
    runs.save(&kept)?;
    let mut page = Page::new(plan)?;
    virtual_replicas::report(&mut page, &runs, &size)?;
    performance::report(&mut page, &runs, &size)?;
    tradeoff::report(&mut page, &runs, &size)?;
    today::report(&mut page, &runs.by_medians(), &size)?;
    page.end(&runs, &size)
}

/// Size of the measurements.
pub(super) struct Size {
    /// Runs of each job, which are averaged.
    rounds: u64,
    /// Maximum number of replicas with a processor each.
    replicas_max: u64,
    /// Maximum number of replicas that share processors.
    virtual_max: u64,
    /// Numbers of replicas in the trade-off.
    tradeoff: &'static [u64],
    /// Step of the percentage of strict operations, from 0 to 100.
    strict_step: usize,
    /// Speed relative to the paper's, of submission and processors.
    haste: u64,
    /// Operations of a run at full speed.
    today: u64,
}

impl Size {
    /// Returns the numbers of replicas in the trade-off, as a list.
    fn counts(&self) -> String {
        self.tradeoff.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    }

    const FULL: Size = Size {
        rounds: 10,
        replicas_max: 10,
        virtual_max: 20,
        tradeoff: &[2, 4, 6],
        strict_step: 10,
        haste: 1,
        today: 1000,
    };

    const QUICK: Size = Size {
        rounds: 1,
        replicas_max: 4,
        virtual_max: 12,
        tradeoff: &[2, 4],
        strict_step: 50,
        haste: 5,
        today: 300,
    };
}

/// The page, and the directory of its figures.
pub(super) struct Page {
    text: String,
    figures: PathBuf,
    record: bool,
}

impl Page {
    fn new(plan: &Plan) -> Result<Page> {
        let base = sh::empty("paper/replica")?;
        let figures = if plan.record { sh::root().join("docs/paper") } else { base };
        std::fs::create_dir_all(&figures)?;
        Ok(Page { text: String::new(), figures, record: plan.record })
    }

    /// Adds a section with a title and a text.
    fn section(&mut self, title: &str, text: &str) {
        let _ = write!(self.text, "\n## {title}\n");
        if !text.is_empty() {
            let _ = writeln!(self.text, "\n{text}");
        }
    }

    /// Adds a subsection.
    fn part(&mut self, title: &str, text: &str) {
        let _ = write!(self.text, "\n### {title}\n\n{text}\n");
    }

    /// Adds a table: headings of its columns, and its named rows.
    fn table(&mut self, corner: &str, columns: &[String], rows: &[(String, Vec<String>)]) {
        let _ = writeln!(self.text, "\n| {corner} | {} |", columns.join(" | "));
        let _ = writeln!(self.text, "|---|{}", "--:|".repeat(columns.len()));
        for (name, cells) in rows {
            let _ = writeln!(self.text, "| {name} | {} |", cells.join(" | "));
        }
        self.text.push('\n');
    }

    /// Adds a claim of the paper, whether ours agrees, and if not, why.
    fn claim(&mut self, shows: &str, ours: &str, agrees: bool, why_not: &str) {
        self.verdict(shows, ours, if agrees { "the same here" } else { "not so here" });
        self.why(agrees, why_not);
    }

    /// Adds the goal that our time is shorter than another one, and if it is longer, why.
    fn shorter(&mut self, goal: &str, ours: &str, comparison: Comparison, why_not: &str) {
        let word = match comparison {
            Comparison::Shorter => "reached",
            Comparison::Equal => "no difference",
            Comparison::Longer => "not reached",
        };
        self.verdict(goal, ours, word);
        self.why(comparison != Comparison::Longer, why_not);
    }

    fn verdict(&mut self, shows: &str, ours: &str, word: &str) {
        let _ = write!(self.text, "- {shows}: **{word}**: {ours}.");
    }

    fn why(&mut self, is_so: bool, why_not: &str) {
        if !is_so && !why_not.is_empty() {
            let _ = write!(self.text, " {why_not}");
        }
        self.text.push('\n');
    }

    fn figure(&mut self, name: &str, figure: &Figure<'_>) -> Result<()> {
        plot::draw(figure, &self.figures.join(format!("replica-{name}.svg")))?;
        let _ = write!(self.text, "\n![{}](replica-{name}.svg)\n\n", figure.title);
        Ok(())
    }

    /// Adds a plot whose axes begin at zero.
    fn plot(
        &mut self,
        name: &str,
        title: &str,
        (x, y): (&str, &str),
        lines: Vec<(&str, Vec<(f64, f64)>)>,
    ) -> Result<()> {
        self.figure(name, &Figure { title, x, y, lines, axes: Axes::Linear })
    }

    fn end(self, runs: &Runs, size: &Size) -> Result<()> {
        let title = "# Replicas, measured as their paper measured its own";
        let text = format!("{title}\n\n{}{}{FOOT}", head(runs, size), self.text);
        println!("{text}");
        if self.record {
            std::fs::write(sh::root().join("docs/paper/replica.md"), text)?;
        }
        Ok(())
    }
}

/// Describes the method and its differences from the paper's.
fn head(runs: &Runs, size: &Size) -> String {
    let (late, late_max) = runs.lateness();
    let haste = match size.haste {
        1 => String::new(),
        times => format!(" Here all that is {times} times as fast, also what is submitted."),
    };
    let Speed { message, gossip, news, apply, switch } = PAPER;
    let costs = [message, gossip, news, apply, switch, OPERATION].map(ms);
    let [message, gossip, news, apply, switch, operation] = costs;
    let cores = rig::machine::cores();
    format!(
        "`cargo xtask paper replica --record` writes this page: the three test series of the \
         paper (001, chapter 5), with its algorithms as they are in `crates/esds`. {}\n\n\
         What the paper did, and so do we: a front end gives 300 operations at a constant rate to \
         the replicas in a balanced fashion; each run is made {} times, all in turn, and averaged; \
         *response time at the front end* is from its sending an operation to a replica to its \
         receiving the answer, *at the replica* from receiving the operation to sending the \
         answer, *throughput* is the operations of a run by the time from the first submission to \
         the last answer, and an answer is *inconsistent* if it is not the operation's value in \
         the eventual order of all (5.2). It is *ESDSOptImpl* where nothing else is said, with \
         strict answers after three hops, as there. The paper's plots are pictures: what can be \
         compared is what its text says of them.\n\n\
         What is different: the paper had twelve workstations, SunOS 4.1.4, MPI and Ethernet of \
         10 Mbit/s; here every replica and the front end is a thread of one process on {cores} \
         processors, and they talk through TCP on loopback. Threads of today are a thousand times \
         too fast for operations that come every 30 ms, so there are two speeds. At **paper \
         speed** a part sleeps as long as its workstation would have worked: {message} ms to send \
         or to receive a message, {gossip} ms if it is gossip, {news} ms more for each operation \
         in that, {apply} ms to apply an operation, every time anew, {switch} ms to go over to \
         another replica on the same processor, and for the rest of a request so much that one \
         replica does one operation in {operation} ms, so that it keeps up with one every 30 ms, \
         as the paper says of its own (5.3). The \
         other costs are ours: the paper has none. How often each is due is counted in the run, \
         nothing of it is assumed.{haste} Those who sleep hardly disturb each other, so many \
         services run at once; sleeps ended {late:.2} ms late in the mean, {late_max:.0} ms at \
         worst, and what is late is taken off the next. At **today's speed** nobody sleeps, and \
         services run one after the other.\n\n{WAYS}",
        runs.about(),
        runs.rounds(),
    )
}

const WAYS: &str = "\
A replica of the paper does and answers a request before anything else (5.5.2), and apart \
from that takes its actions in turn (4.2); how it mixes messages with them is not said. So \
it is measured in two ways. *In turn*: one request, one message of gossip in, one message of \
gossip out, to each peer in turn; what has changed gathers meanwhile. *Eager*: requests \
first, then gossip, and after each message everything that the automaton can do, so that \
every change is told to all at once. Each explains some of the paper's figures, and none all \
of them.
";

#[expect(clippy::cast_precision_loss, reason = "a short time")]
fn ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

const FOOT: &str = "
## What this is not

No network, no crash, no loss: channels are TCP within one machine, as the paper's were MPI's. The \
paper's replica keeps every operation for ever, and so does this one. Its *prev* sets are empty \
here, since the paper does not say that its tests had any.
";
