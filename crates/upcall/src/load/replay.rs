//! `upcall load replay`: the I/Os of a trace on a target.

use super::flags::{Engine, Flags};
use super::prepare::{Prepared, Wants, prepare};
use super::run::{Job, perform, perform_naive};
use super::trace::Source;
use crate::size;
use crate::units::{count, counts, time as span};
use clap::{Args, ValueEnum};
use load::baseline::Scheme;
use load::replay;
use load::trace::adapt::{Files, Fold, Ratio, Sample};
use load::trace::{Adapted, Dependence, Distortion, Error, Plan, Reader, Summary, Traced};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `upcall load replay`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    flags: Flags,

    /// Issue time of each I/O
    #[arg(long, value_enum, default_value_t = ReplayMode::Timed)]
    way: ReplayMode,

    /// Number of I/Os in flight with --way fast
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = counts::<u32>(1, 65_536))]
    depth: u32,

    /// Speed-up factor, like 4 or 0.5
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: Speed,

    /// Fold offsets beyond the target into it, at multiples of this size
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size::parse)]
    block: u64,

    /// Number of I/Os to skip at the beginning
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count)]
    skip: u64,

    /// Maximum number of I/Os
    #[arg(long, value_name = "N", value_parser = count)]
    take: Option<u64>,

    /// Start at this time of the trace
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = span)]
    from: Duration,

    /// End at this time of the trace
    #[arg(long, value_name = "TIME", value_parser = span)]
    until: Option<Duration>,

    /// Sample one in N I/Os at random
    #[arg(long, value_name = "N")]
    #[arg(value_parser = counts::<u64>(1, u64::MAX))]
    one_in: Option<u64>,

    /// Read where the trace writes, so that nothing is changed
    #[arg(long)]
    read_only: bool,

    /// Maximum time between the end of an I/O and the issue of an I/O that waits for it, with --way
    /// dependent
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span)]
    window: Duration,

    /// Distort issue times: round each down to a multiple of this, with --way timed. Lateness and
    /// response time are measured from the distorted times
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true)]
    #[arg(value_parser = span)]
    quantize: Duration,

    /// Distort issue times: delay each by a random time with this mean, from none to twice as much
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true)]
    #[arg(value_parser = span)]
    delay: Duration,

    /// Replay like a naive program, for comparison: with threads that wait for each I/O
    #[arg(long, value_enum, conflicts_with_all = ["witness", "engine", "policy", "late"])]
    scheme: Option<Naive>,
}

/// Waiting method of a naive program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Naive {
    /// 64 threads, each waiting in select(2)
    Select,
    /// 64 threads, each waiting in nanosleep(2)
    Sleep,
    /// 8 threads, woken by a thread that spins on the clock
    Clock,
}

impl Naive {
    fn scheme(self) -> Scheme {
        match self {
            Naive::Select => Scheme::Select,
            Naive::Sleep => Scheme::Sleep,
            Naive::Clock => Scheme::Clock,
        }
    }
}

/// Issue time of each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplayMode {
    /// At its time in the trace
    Timed,
    /// As soon as fewer than --depth are in flight
    Fast,
    /// As soon as no more are in flight than were in the trace
    Loaded,
    /// After the I/Os it depends on, with the same delay as in the trace
    Dependent,
}

/// Factor of the times, and the corresponding speed-up.
#[derive(Clone, Copy, Debug)]
struct Speed(Ratio, f64);

fn speed(text: &str) -> Result<Speed, String> {
    let number: Option<f64> = text.parse().ok().filter(|speed| (1e-6..=1e6).contains(speed));
    let scaled = number.map(|speed| (speed * 1e6).round() as u64).filter(|speed| *speed > 0);
    let ratio = scaled.and_then(|speed| Ratio::new(1_000_000, speed));
    ratio
        .zip(number)
        .map(|(ratio, number)| Speed(ratio, number))
        .ok_or_else(|| "write a factor from 0.000001 to 1000000, like 4".to_string())
}

/// Maximum I/O size of a replay, bytes: there is a buffer of this size for each outstanding I/O.
const IO_MAX: u32 = 64 << 20;

/// Runs the command.
pub(crate) fn run(replay: &Replay) -> Result<ExitCode, String> {
    let text = |error: load::trace::Error| error.to_string();
    replay.flags.target()?;
    replay.agrees()?;
    err_line!("load: looking through {}", replay.source.path.display());
    let summary = Summary::of(replay.subset(replay.source.open()?)).map_err(text)?;
    if summary.count() == 0 {
        return Err("nothing is left of the trace: choose a larger part of it".to_string());
    }
    if summary.len_max > IO_MAX {
        let (len, max) = (summary.len_max, IO_MAX);
        let next = "check the format of the trace, or leave that part out with --skip and --take";
        return Err(format!("cannot replay an I/O of {len} bytes: at most {max} fit; {next}"));
    }
    let wants = Wants {
        changes: !replay.read_only && summary.changes(),
        io_max: summary.len_max.max(1),
        files: 1,
        plain: 1,
        sizes: Vec::new(),
        comes_and_goes: false,
    };
    let Some(naive) = replay.scheme else {
        let prepared = prepare(&replay.flags, &wants)?;
        let job = replay.job(&summary, &prepared)?;
        return perform(&replay.flags, prepared, job);
    };
    let mut flags = replay.flags.clone();
    flags.engine = Some(Engine::Threads);
    let prepared = prepare(&flags, &wants)?;
    let ios = replay.timed(&summary, &prepared)?.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let job = Job { filaments: Vec::new(), feeds: Vec::new(), ..replay.job(&summary, &prepared)? };
    perform_naive(&flags, prepared, job, &ios, naive.scheme())
}

impl Replay {
    /// Returns the part of the trace to play, unmodified.
    fn subset(&self, reader: Reader) -> Adapted<Reader> {
        self.plan().of(reader)
    }

    fn plan(&self) -> Plan {
        Plan {
            skip: self.skip,
            take: self.take,
            from_ns: nanos(self.from),
            until_ns: self.until.map(nanos),
            sample: self.one_in.map(|one_in| Sample::Records { one_in, seed: self.flags.seed }),
            read_only: self.read_only,
            ..Plan::default()
        }
    }

    /// Checks that the options are compatible.
    fn agrees(&self) -> Result<(), String> {
        let spoilt = !self.quantize.is_zero() || !self.delay.is_zero();
        let requested = if spoilt { "--quantize and --delay" } else { "--scheme" };
        match (spoilt || self.scheme.is_some()) && self.way != ReplayMode::Timed {
            true => Err(format!("{requested} need times; omit --way, or use --way timed")),
            false => Ok(()),
        }
    }

    /// Returns the mapping of the trace's I/Os to the target.
    fn place(&self, summary: &Summary, prepared: &Prepared) -> Plan {
        // The files of a trace with several devices are mapped side by side.
        let files = summary.files.len().max(1) as u64;
        let apart = prepared.span / files / self.block.max(1) * self.block.max(1);
        Plan {
            files: Files::One { file: 0, apart },
            fold: Some(Fold { size: prepared.span, block: self.block }),
            len_max: Some(summary.len_max),
            ..Plan::default()
        }
    }

    /// Returns the I/Os with their issue times.
    fn timed(
        &self,
        summary: &Summary,
        prepared: &Prepared,
    ) -> Result<impl Iterator<Item = Result<Traced, Error>> + Send + 'static, String> {
        let plan = Plan { time: self.speed.0, ..self.plan() };
        let distortion = Distortion {
            quantum_ns: nanos(self.quantize),
            delay_ns_mean: nanos(self.delay),
            seed: self.flags.seed,
        };
        let place = self.place(summary, prepared);
        Ok(distortion.of(place.of(plan.of(self.source.open()?))))
    }

    fn job(&self, summary: &Summary, prepared: &Prepared) -> Result<Job, String> {
        let place = self.place(summary, prepared);
        let reader = self.source.open()?;
        let (filament, feed, open) = match self.way {
            ReplayMode::Timed => {
                let (filament, feed) = replay::timed(self.timed(summary, prepared)?);
                (filament, feed, true)
            }
            ReplayMode::Fast => {
                let (filament, feed) = replay::fast(place.of(self.subset(reader)), self.depth);
                (filament, feed, false)
            }
            ReplayMode::Loaded if summary.completed == 0 => {
                return Err(
                    "the trace has no completion times, so the number of outstanding I/Os is \
                     unknown; use --way timed or fast"
                        .to_string(),
                );
            }
            ReplayMode::Loaded => {
                let (filament, feed) = replay::loaded(place.of(self.subset(reader)));
                (filament, feed, false)
            }
            ReplayMode::Dependent => {
                let rule = Dependence { window_ns: nanos(self.window), ..Dependence::default() };
                let records = rule.of(place.of(self.subset(reader)));
                let time = self.speed.0;
                let records = records.map(move |record| record.map(|record| record.scaled(time)));
                let (filament, feed) = replay::dependent(records);
                (filament, feed, false)
            }
        };
        let seconds = self.speed.0.of(summary.duration_ns) as f64 / 1e9;
        let rate = summary.count() as f64 / seconds.max(1e-9);
        Ok(Job {
            workload: self.describe(summary),
            asked_rate: (open && summary.count() > 1).then_some(rate),
            filaments: vec![filament],
            feeds: vec![feed],
            length: Duration::MAX,
            warm_up: Duration::ZERO,
            open,
            expected: summary.count(),
        })
    }

    fn describe(&self, summary: &Summary) -> String {
        let how = match self.way {
            ReplayMode::Timed => self.spoilt().unwrap_or("at its times".to_string()),
            ReplayMode::Fast => format!("{} at a time", self.depth),
            ReplayMode::Loaded => "with its queue length".to_string(),
            ReplayMode::Dependent => "with its dependencies".to_string(),
        };
        let timed = matches!(self.way, ReplayMode::Timed | ReplayMode::Dependent)
            && self.speed.0 != Ratio::ONE;
        let faster =
            if timed { format!(", {} times as fast", self.speed.1) } else { String::new() };
        let name = self.source.path.file_name().unwrap_or_default().to_string_lossy();
        let naive = self.scheme.map(|naive| format!(" by {}", naive.scheme().name()));
        let naive = naive.unwrap_or_default();
        format!("trace {name}, {} I/Os {how}{faster}{naive}", size::count(summary.count()))
    }

    /// Describes the distortion of its times.
    fn spoilt(&self) -> Option<String> {
        let delay = (!self.delay.is_zero()).then(|| format!("delayed by {:?}", self.delay));
        let quanta = (!self.quantize.is_zero()).then(|| format!("every {:?}", self.quantize));
        match (delay, quanta) {
            (Some(delay), Some(quanta)) => Some(format!("{delay}, {quanta}")),
            (delay, quanta) => delay.or(quanta),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
