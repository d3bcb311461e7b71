//! Runs: their jobs, their order, and their results.

use super::super::load::busy;
use super::Size;
use crate::bench::table::median;
use crate::instrument::number;
use anyhow::{Context, Result, bail, ensure};
use rig::sh;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Costs of a processor, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Speed {
    pub(super) message: u64,
    pub(super) gossip: u64,
    pub(super) news: u64,
    pub(super) apply: u64,
    pub(super) switch: u64,
}

/// A processor at the speed of the paper's.
pub(super) const PAPER: Speed =
    Speed { message: 1000, gossip: 3000, news: 100, apply: 300, switch: 200 };

/// Processor time of one operation at a single replica, microseconds: it keeps up with one every 30
/// ms (paper 001, 5.3).
pub(super) const OPERATION: u64 = 28_000;

/// The paper's "33 operations a second", operations a second.
pub(super) const RATE: f64 = 33.0;

/// Operations of a run, as in the paper.
pub(super) const OPERATIONS: u64 = 300;

/// Processors with replicas in the paper.
pub(super) const PROCESSORS: u64 = 10;

/// Its multiples are spread evenly between whole numbers.
const GOLDEN: f64 = 0.618_034;

/// Position of a run: a line of a figure, and a point on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) line: &'static str,
    pub(super) replicas: u64,
    /// Strict operations, percent.
    pub(super) strict: u64,
}

impl Point {
    /// Returns its key in saved runs.
    fn key(&self) -> String {
        format!("{}, {} replicas, {} % strict", self.line, self.replicas, self.strict)
    }
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) point: Point,
    pub(super) spec: Value,
}

impl Job {
    /// Returns a job of optimised replicas of a counter at paper speed, round robin, each with its
    /// own processor.
    pub(super) fn new(line: &'static str, replicas: u64, rate: f64, size: &Size) -> Job {
        let haste = size.haste;
        let Speed { message, gossip, news, apply, switch } = PAPER;
        let request = OPERATION - 2 * message - apply;
        let speed = json!({
            "message": message / haste, "gossip": gossip / haste, "news": news / haste,
            "request": request / haste, "apply": apply / haste, "switch": switch / haste,
        });
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let rate = rate * haste as f64;
        let spec = json!({
            "kind": "optimised", "data": "add", "replicas": replicas, "operations": OPERATIONS,
            "rate": rate, "strict": 0, "gossip": true, "eager": false, "speed": speed,
            "processors": PROCESSORS, "gather": 0, "seed": 0,
            "delay": 0.0,
        });
        Job { point: Point { line, replicas, strict: 0 }, spec }
    }

    /// Returns the same job at full speed.
    pub(super) fn today(line: &'static str, replicas: u64, rate: f64, size: &Size) -> Job {
        let none = json!({
            "message": 0, "gossip": 0, "news": 0, "request": 0, "apply": 0, "switch": 0,
        });
        Job::new(line, replicas, 0.0, size).with("speed", none).with("rate", json!(rate))
    }

    /// Returns the job with one parameter changed.
    pub(super) fn with(mut self, what: &str, value: Value) -> Job {
        self.spec[what] = value;
        self
    }

    /// Returns the job with this percentage of strict operations.
    pub(super) fn strict(mut self, strict: u64) -> Job {
        self.point.strict = strict;
        self.with("strict", json!(strict))
    }
}

/// Related jobs.
pub(super) struct Batch {
    /// Description, for progress output.
    pub(super) name: String,
    pub(super) jobs: Vec<Job>,
    /// Whether they run concurrently.
    pub(super) at_once: bool,
    /// Whether they run in every round, or only in the first.
    pub(super) again: bool,
}

/// Results of all runs.
#[derive(Clone)]
pub(super) struct Runs {
    rounds: u64,
    /// Rate that saturates one replica, operations per second.
    rate: f64,
    /// Time, machine and load of the runs.
    about: String,
    outcomes: BTreeMap<Point, Vec<Value>>,
    /// Whether several runs count by their median instead of their mean.
    middle: bool,
}

impl Runs {
    /// Runs all batches, each job once per round.
    pub(super) fn make(batches: &[Batch], size: &Size) -> Result<Runs> {
        let mut runs = Runs::none(size);
        let about = runs.add(batches, size)?;
        runs.about = format!("{}. {about}", rig::machine::describe());
        Ok(runs)
    }

    fn none(size: &Size) -> Runs {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let rate = RATE * size.haste as f64;
        let (about, outcomes) = (String::new(), BTreeMap::new());
        Runs { rounds: size.rounds, rate, about, outcomes, middle: false }
    }

    /// Runs these batches; describes their number, duration and the machine's load.
    fn add(&mut self, batches: &[Batch], size: &Size) -> Result<String> {
        let (before, started, count) = (busy(), Instant::now(), self.count());
        for round in 1..=size.rounds {
            for Batch { name, jobs, at_once, .. } in
                batches.iter().filter(|batch| batch.again || round == 1)
            {
                let since = started.elapsed().as_secs_f64();
                eprintln!("   {since:>4.0} s  round {round} of {}: {name}", size.rounds);
                let size = if *at_once { jobs.len() } else { 1 };
                for jobs in jobs.chunks(size) {
                    self.run(jobs, round)?;
                }
            }
        }
        Ok(format!(
            "{} runs in {:.0} s; processes that wanted a processor, of the last one, five and \
             fifteen minutes: {before} when it began, {} when it ended (the threads of the runs \
             count).",
            self.count() - count,
            started.elapsed().as_secs_f64(),
            busy(),
        ))
    }

    fn count(&self) -> usize {
        self.outcomes.values().map(Vec::len).sum()
    }

    /// Saves the results, so that the page can be written again.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let point = |(at, runs): (&Point, &Vec<Value>)| json!([at.key(), runs]);
        let all: Vec<Value> = self.outcomes.iter().map(point).collect();
        let text = json!({ "rounds": self.rounds, "about": self.about, "outcomes": all });
        std::fs::write(path, text.to_string()).with_context(|| path.display().to_string())
    }

    /// Loads the saved results of these batches, and runs those missing.
    pub(super) fn load(batches: Vec<Batch>, size: &Size, path: &Path) -> Result<Runs> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let kept: Value = serde_json::from_str(&text)?;
        let list = kept["outcomes"].as_array().context("there are outcomes")?;
        let mut runs = Runs::none(size);
        runs.about = kept["about"].as_str().unwrap_or_default().to_owned();
        ensure!(kept["rounds"] == size.rounds, "{} is of another size", path.display());
        let mut missing = Vec::new();
        for mut batch in batches {
            batch.jobs.retain(|job| {
                let found = list.iter().find(|entry| entry[0] == job.point.key());
                let found = found.and_then(|entry| entry[1].as_array());
                found.map(|each| runs.outcomes.insert(job.point, each.clone())).is_none()
            });
            missing.extend((!batch.jobs.is_empty()).then_some(batch));
        }
        if !missing.is_empty() {
            let later = runs.add(&missing, size)?;
            runs.about += &format!(" Then {later}");
        }
        Ok(runs)
    }

    fn run(&mut self, jobs: &[Job], round: u64) -> Result<()> {
        let mut specs = String::new();
        for (nth, job) in (0..).zip(jobs) {
            let seed: u64 = round * 1000 + nth;
            let job = job.clone().with("seed", json!(seed));
            let delay = if jobs.len() > 1 { spare(&job, nth, self.rate) } else { 0.0 };
            specs += &format!("{}\n", job.with("delay", json!(delay)).spec);
        }
        let binary = sh::target().join("release/series").display().to_string();
        let mut command = sh::cmd::<&str>(&binary, &[]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start series")?;
        child.stdin.take().context("it reads")?.write_all(specs.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("series: {}", sh::tail(&String::from_utf8_lossy(&output.stderr), 600));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let outcomes: Vec<Value> =
            printed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(outcomes.len() == jobs.len(), "series did not say what came of all");
        for (job, outcome) in jobs.iter().zip(outcomes) {
            demand(&job.spec, &outcome).with_context(|| format!("{outcome} of {}", job.spec))?;
            self.outcomes.entry(job.point).or_default().push(outcome);
        }
        Ok(())
    }

    /// Returns the number of runs of each job.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns time, machine and load of the runs.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// Returns the lateness of the processors' sleeps, milliseconds: mean and maximum.
    pub(super) fn lateness(&self) -> (f64, f64) {
        let slow = || self.outcomes.values().flatten().filter(|run| number(run, "/late") > 0.0);
        let late = mean(slow().map(|run| number(run, "/late")));
        (late, slow().map(|run| number(run, "/late_max")).fold(0.0, f64::max))
    }

    /// Returns a figure of each run of a point.
    pub(super) fn each(&self, point: Point, figure: &dyn Fn(&Value) -> f64) -> Vec<f64> {
        self.outcomes.get(&point).into_iter().flatten().map(figure).collect()
    }

    /// Returns the results with medians instead of means, which outliers distort.
    pub(super) fn by_medians(&self) -> Runs {
        Runs { middle: true, ..self.clone() }
    }

    /// Returns the mean, or the median.
    pub(super) fn mean(&self, point: Point, figure: &dyn Fn(&Value) -> f64) -> f64 {
        let each = self.each(point, figure).into_iter();
        if self.middle { median(each) } else { mean(each) }
    }

    /// Returns the means of a line, by replicas.
    pub(super) fn line(&self, line: &str, figure: &dyn Fn(&Value) -> f64) -> Vec<(f64, f64)> {
        let points = self.outcomes.keys().filter(|point| point.line == line && point.strict == 0);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        points.map(|point| (point.replicas as f64, self.mean(*point, figure))).collect()
    }

    /// Returns the means of a line, by percentage of strict operations.
    pub(super) fn by_strict(
        &self,
        line: &str,
        replicas: u64,
        figure: &dyn Fn(&Value) -> f64,
    ) -> Vec<(f64, f64)> {
        let of = |point: &&Point| point.line == line && point.replicas == replicas;
        #[expect(clippy::cast_precision_loss, reason = "percent")]
        let mean = |point: &Point| (point.strict as f64, self.mean(*point, figure));
        self.outcomes.keys().filter(of).map(mean).collect()
    }

    /// Returns the maximum deviation of the runs of a line from their mean, as a share.
    pub(super) fn spread(&self, line: &str, figure: &dyn Fn(&Value) -> f64) -> f64 {
        let points = self.outcomes.keys().filter(|point| point.line == line);
        let worst = |point: &Point| {
            let (mean, each) = (self.mean(*point, figure), self.each(*point, figure));
            each.into_iter().map(|one| (one - mean).abs() / mean).fold(0.0, f64::max)
        };
        points.map(worst).fold(0.0, f64::max)
    }
}

/// Returns the delay, seconds, of the `nth` of concurrent jobs: short jobs are spread out instead
/// of all being busy at the beginning. `rate` saturates one replica.
fn spare(job: &Job, nth: u64, rate: f64) -> f64 {
    let number = |path| number(&job.spec, path);
    if number("/rate") <= 2.0 * rate {
        return 0.0;
    }
    let alone = number("/operations") / rate;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let phase = (nth as f64 * GOLDEN).fract();
    alone * (1.0 - 2.0 / number("/replicas")).max(0.0) * phase
}

/// Checks properties of every run that do not depend on timing.
fn demand(spec: &Value, outcome: &Value) -> Result<()> {
    ensure!(outcome["answered"] == spec["operations"], "not everything was answered");
    if spec["gossip"] == true {
        ensure!(outcome["equal"] == true, "replicas did not end equal");
        ensure!(outcome["inconsistent_strict"] == 0, "a strict answer was inconsistent");
        let safe = spec["data"] == "blind" || spec["replicas"] == 1;
        ensure!(!safe || outcome["inconsistent"] == 0, "what cannot be inconsistent was");
    }
    Ok(())
}

/// Returns the mean; NaN for no values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Returns the operations per second.
pub(super) fn throughput(run: &Value) -> f64 {
    number(run, "/answered") * 1e3 / number(run, "/total")
}

/// Returns the response time at the front end, ms.
pub(super) fn at_front_end(run: &Value) -> f64 {
    number(run, "/front_end")
}

/// Returns the response time at the replica, ms.
pub(super) fn at_replica(run: &Value) -> f64 {
    number(run, "/replica")
}

/// Returns the percentage of inconsistent answers.
pub(super) fn inconsistency(run: &Value) -> f64 {
    number(run, "/inconsistent") * 100.0 / number(run, "/answered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_checked_for_its_claims() {
        let size = Size::QUICK;
        let spec = Job::new("line", 2, RATE, &size).spec;
        let good = json!({
            "answered": 300, "equal": true, "inconsistent": 7, "inconsistent_strict": 0,
        });
        assert!(demand(&spec, &good).is_ok());
        for (what, wrong) in [("answered", json!(299)), ("inconsistent_strict", json!(1))] {
            let mut bad = good.clone();
            bad[what] = wrong;
            assert!(demand(&spec, &bad).is_err());
        }
        let blind = Job::new("line", 2, RATE, &size).with("data", json!("blind")).spec;
        assert!(demand(&blind, &good).is_err());
    }

    #[test]
    fn one_replica_needs_as_long_for_an_operation_as_the_papers() {
        let speed = Job::new("line", 1, RATE, &Size::FULL).spec["speed"].clone();
        let micros = |what: &str| speed[what].as_u64().unwrap();
        assert_eq!(2 * micros("message") + micros("request") + micros("apply"), OPERATION);
    }
}
