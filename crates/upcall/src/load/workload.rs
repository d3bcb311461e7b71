//! `upcall load`: one workload, described on the command line.

use super::flags::Flags;
use super::prepare::{Wants, prepare};
use super::run::{Job, perform};
use crate::size;
use crate::units::{counts, rate, time as span};
use clap::{Args, ValueEnum};
use load::workload::stream::Stream;
use load::workload::users::{Think, Users};
use load::workload::{Arrival, Mix, OffsetDistribution, Size};
use load::{Filament, Kind};
use std::process::ExitCode;
use std::time::Duration;

/// Default rate if neither a rate nor users are given.
const RATE: f64 = 1000.0;

/// Options of `upcall load`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadFlags {
    #[command(flatten)]
    flags: Flags,

    /// I/Os per second, independent of the target's responses (open loop) [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "users", value_parser = rate)]
    rate: Option<f64>,

    /// Arrival process of I/Os at a rate
    #[arg(long, value_enum, default_value_t = Coming::Poisson)]
    arrival: Coming,

    /// Number of users, instead of a rate, each with one I/O at a time (closed loop)
    #[arg(long, value_name = "N")]
    #[arg(value_parser = counts::<u32>(1, 1_000_000))]
    users: Option<u32>,

    /// Mean think time of a user between a reply and the next I/O
    #[arg(long, value_name = "TIME", requires = "users", value_parser = span)]
    think: Option<Duration>,

    /// Time during which I/Os are issued
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = span)]
    seconds: Duration,

    /// I/O kinds: read, write, sync, trim, or several with weights: read=70,write=30
    #[arg(long, value_name = "KINDS", default_value = "read", value_parser = kinds)]
    mix: Kinds,

    /// I/O size: 4K, or several with weights: 4K=60,64K=40
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = sizes)]
    size: Sizes,

    /// Distribution of offsets: uniform, zipf:THETA, sequential, stride:BYTES
    #[arg(long, value_name = "PLACE", default_value = "uniform", value_parser = place)]
    place: OffsetDistribution,

    /// Use only this many bytes of the target
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    span: Option<u64>,

    /// Number of files; `{}` in the target's path is the file's number
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = counts::<u32>(1, 10_000))]
    files: u32,
}

/// Arrival process of I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Coming {
    /// At equal intervals
    Uniform,
    /// Independently of each other
    Poisson,
    /// In bursts, as in storage traces (hyper-exponential)
    Bursts,
}

/// Kinds with their weights.
#[derive(Clone, Debug)]
struct Kinds(Vec<(Kind, f64)>);

/// Sizes with their weights.
#[derive(Clone, Debug)]
struct Sizes(Size);

/// Parses `a`, or `a=1,b=2`.
fn weighted(text: &str) -> Result<Vec<(&str, f64)>, String> {
    let mut parts = Vec::new();
    for part in text.split(',') {
        let (what, weight) = part.split_once('=').unwrap_or((part, "1"));
        let number: Option<f64> = weight.parse().ok();
        let number = number.filter(|number| *number >= 0.0 && number.is_finite());
        parts.push((what, number.ok_or_else(|| format!("'{weight}' in '{part}' is no weight"))?));
    }
    match parts.iter().any(|(_, weight)| *weight > 0.0) {
        true => Ok(parts),
        false => Err("one weight must be above zero".to_string()),
    }
}

fn kinds(text: &str) -> Result<Kinds, String> {
    let mut kinds = Vec::new();
    for (name, weight) in weighted(text)? {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or("write read, write, sync, trim, create or remove")?;
        kinds.push((kind, weight));
    }
    Ok(Kinds(kinds))
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for (text, weight) in weighted(text)? {
        let bytes = u32::try_from(size::parse(text)?).ok();
        let bytes = bytes.filter(|bytes| (1..=64 << 20).contains(bytes));
        sizes.push((bytes.ok_or("an I/O has from 1 byte to 64M")?, weight));
    }
    Ok(Sizes(match sizes.as_slice() {
        [(bytes, _)] => Size::Fixed(*bytes),
        _ => Size::Choice(sizes),
    }))
}

fn place(text: &str) -> Result<OffsetDistribution, String> {
    let wrong = || "write uniform, zipf:0.99, sequential or stride:1M".to_string();
    match text.split_once(':') {
        None if text == "uniform" => Ok(OffsetDistribution::Uniform),
        None if text == "sequential" => Ok(OffsetDistribution::Sequential),
        Some(("zipf", theta)) => {
            let theta: Option<f64> =
                theta.parse().ok().filter(|theta| (0.0..=10.0).contains(theta));
            Ok(OffsetDistribution::Zipf { theta: theta.ok_or_else(wrong)? })
        }
        Some(("stride", bytes)) => {
            Ok(OffsetDistribution::Strided { stride: size::parse(bytes)?.max(1) })
        }
        None | Some(_) => Err(wrong()),
    }
}

/// Runs the command.
pub(crate) fn run(load: &WorkloadFlags) -> Result<ExitCode, String> {
    let wants = Wants {
        changes: load.mix.0.iter().any(|(kind, _)| kind.changes()),
        io_max: load.size.0.max(),
        files: load.files,
        plain: load.files,
        sizes: Vec::new(),
        comes_and_goes: load.mix.0.iter().any(|(kind, _)| comes_and_goes(*kind)),
    };
    let prepared = prepare(&load.flags, &wants)?;
    let span = load.span.unwrap_or(prepared.span).min(prepared.span);
    let mix = Mix {
        kinds: load.mix.0.clone(),
        place: load.place.clone(),
        size: load.size.0.clone(),
        span,
        files: load.files,
        ..Mix::default()
    };
    let job = match load.users {
        Some(users) => closed(load, users, mix),
        None => open(load, load.rate.unwrap_or(RATE), mix),
    };
    perform(&load.flags, prepared, job)
}

/// Returns whether it creates or removes files.
pub(crate) fn comes_and_goes(kind: Kind) -> bool {
    matches!(kind, Kind::Create | Kind::Remove)
}

fn open(load: &WorkloadFlags, rate: f64, mix: Mix) -> Job {
    let (arrival, how) = match load.arrival {
        Coming::Uniform => (Arrival::Uniform { rate }, "at equal times"),
        Coming::Poisson => (Arrival::Poisson { rate }, "Poisson"),
        Coming::Bursts => {
            (Arrival::Hyperexponential { rate, share: 0.9, factor: 20.0 }, "in bursts")
        }
    };
    let stream = Stream::new(arrival, mix, load.flags.seed, Duration::ZERO, u64::MAX);
    let workload = format!("{}, {rate} a second, {how}, for {}", what(load), seconds(load.seconds));
    Job {
        workload,
        asked_rate: Some(rate),
        filaments: vec![Box::new(stream)],
        feeds: Vec::new(),
        length: load.seconds,
        warm_up: Duration::ZERO,
        open: true,
        expected: (rate * load.seconds.as_secs_f64() * 1.2) as u64 + 10_000,
    }
}

fn closed(load: &WorkloadFlags, users: u32, mix: Mix) -> Job {
    let think = load.think.map_or(Think::Not, Think::Exponential);
    let (seed, users) = (load.flags.seed, u64::from(users));
    // A filament is called by one worker at a time: several filaments let workers share the work.
    let count = users.min(4);
    let filament = |place: u64| -> Box<dyn Filament> {
        let share = users / count + u64::from(place < users % count);
        let seed = seed.wrapping_add(place);
        Box::new(Users::new(share, think, mix.clone(), seed, Duration::ZERO, u64::MAX))
    };
    let thinking = load.think.map_or(String::new(), |think| format!(" thinking {think:?}"));
    let length = seconds(load.seconds);
    let workload = format!("{}, {users} at a time{thinking}, for {length}", what(load));
    Job {
        workload,
        asked_rate: None,
        filaments: (0..count).map(filament).collect(),
        feeds: Vec::new(),
        length: load.seconds,
        warm_up: Duration::ZERO,
        open: false,
        expected: load::measure::WITNESSED_MAX,
    }
}

fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

/// Describes the workload.
fn what(load: &WorkloadFlags) -> String {
    let total: f64 = load.mix.0.iter().map(|(_, weight)| weight).sum();
    let part = |(kind, weight): &(Kind, f64)| match load.mix.0.len() {
        1 => format!("{kind}s"),
        _ => format!("{:.0} % {kind}s", weight / total * 100.0),
    };
    let kinds: Vec<String> = load.mix.0.iter().map(part).collect();
    let size = match &load.size.0 {
        Size::Fixed(bytes) => size::show((*bytes).into()),
        several @ (Size::Choice(_) | Size::Range { .. }) => {
            format!("up to {}", size::show(several.max().into()))
        }
    };
    format!("{} of {size}", kinds.join(", "))
}
