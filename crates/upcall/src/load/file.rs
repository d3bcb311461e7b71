//! `upcall load run`: a workload described by a file.

use super::flags::Flags;
use super::prepare::{Wants, prepare};
use super::run::{Job, perform};
use super::workload::comes_and_goes;
use crate::bounded;
use clap::Args;
use load::replay::{self, Feed};
use load::trace::adapt::{Files, Fold, Ratio};
use load::trace::{Options, Plan, Reader};
use load::workload::Workload;
use load::workload::file::{Replay, ReplayMode};
use load::{Filament, measure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `upcall load run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// Workload file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Factor for all rates in the file; workloads without a rate are unchanged
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    scale: f64,

    #[command(flatten)]
    flags: Flags,
}

/// Alignment of trace offsets folded into the target, bytes.
const BLOCK: u64 = 4096;

/// Maximum length of a trace's I/Os in a workload, bytes; longer ones are truncated, as the trace
/// is not scanned in advance.
const TRACED_MAX: u32 = 1 << 20;

/// Runs the command.
pub(crate) fn run(run: &Run) -> Result<ExitCode, String> {
    let shown = run.file.display();
    let text = bounded::read_text(&run.file).map_err(|error| format!("{shown}: {error}"))?;
    let workload = Workload::parse(&text).map_err(|error| format!("{shown}: {error}"))?;
    let workload = workload.scaled(run.scale);
    let mut flags = run.flags.clone();
    flags.complete(&workload.run).map_err(|error| format!("{shown}: {error}"))?;
    let (requested, replays) = (workload.wants(), workload.replays());
    let sizes: Vec<(u32, u32)> = workload.files().map(|file| (file.number, file.size)).collect();
    let wants = Wants {
        changes: requested.changes,
        io_max: requested.io_max.max(if replays.is_empty() { 1 } else { TRACED_MAX }),
        files: requested.files,
        plain: workload.shared_files(),
        sizes,
        comes_and_goes: requested.kinds.iter().any(|kind| comes_and_goes(*kind)),
    };
    let prepared = prepare(&flags, &wants)?;
    let filaments = workload.filaments(prepared.span).map_err(|error| format!("{shown}: {error}"));
    let (mut filaments, mut feeds) = (filaments?, Vec::new());
    for replay in replays {
        let (filament, feed) = trace(&run.file, &replay, prepared.span)?;
        filaments.push(filament);
        feeds.push(feed);
    }
    let length = workload.run.seconds.unwrap_or(Duration::MAX);
    let open = requested.rate.filter(|_| feeds.is_empty());
    let job = Job {
        workload: workload.describe(),
        // With a part that begins later or ends earlier the run has no overall rate.
        asked_rate: None,
        filaments,
        feeds,
        length,
        warm_up: workload.run.warm_up,
        open: open.is_some(),
        expected: open.map_or(measure::WITNESSED_MAX, |rate| {
            (rate * length.as_secs_f64().min(1e6) * 1.2) as u64 + 10_000
        }),
    };
    perform(&flags, prepared, job)
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1e-6..=1e6).contains(factor));
    factor.ok_or_else(|| "write a number between 0.000001 and 1000000".to_string())
}

/// Returns the filament and feed of a trace. Its path is relative to the workload's file.
fn trace(file: &Path, replay: &Replay, span: u64) -> Result<(Box<dyn Filament>, Feed), String> {
    let path = file.parent().unwrap_or(Path::new("")).join(&replay.trace);
    let reader = Reader::open(&path, None, Options::default());
    let reader = reader.map_err(|error| format!("{}: {error}", replay.name))?;
    let ratio = Ratio::new(1_000_000, (replay.speed * 1e6).round() as u64);
    let time = ratio.ok_or_else(|| format!("{}: this is no speed", replay.name))?;
    let plan = Plan {
        files: Files::One { file: 0, apart: 0 },
        fold: Some(Fold { size: span, block: BLOCK }),
        len_max: Some(TRACED_MAX),
        take: Some(replay.life.count),
        time,
        ..Plan::default()
    };
    let begin_ns = u64::try_from(replay.life.begin.as_nanos()).unwrap_or(u64::MAX);
    let records = plan.of(reader).map(move |record| {
        record.map(|traced| load::trace::Traced {
            at_ns: traced.at_ns.saturating_add(begin_ns),
            ..traced
        })
    });
    Ok(match replay.way {
        ReplayMode::Timed => replay::timed(records),
        ReplayMode::Fast => replay::fast(records, replay.depth),
        ReplayMode::Loaded => replay::loaded(records),
        ReplayMode::Dependent => replay::dependent(load::trace::Dependence::default().of(records)),
    })
}
