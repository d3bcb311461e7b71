//! `upcall load trace`: summaries and conversions of traces.

use crate::size;
use clap::{Args, Subcommand};
use load::trace::{self, Converted, Format, Issue, Options, Reader, Summary, Wait};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Commands for traces.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a summary of a trace
    Info(Info),
    /// Convert a trace to another format
    Convert(Convert),
    /// Write a copy of a trace without its original names
    Anonymize(Anonymize),
}

/// A trace and its format.
#[derive(Args, Clone, Debug)]
pub(crate) struct Source {
    /// Trace file; for blktrace the name before `.blktrace.`
    #[arg(value_name = "TRACE")]
    pub(crate) path: PathBuf,

    /// Format of the trace [default: detected]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Use the driver's time (D) as the issue time of an I/O, not the queue time (Q); for blktrace
    #[arg(long)]
    driver: bool,

    /// Read `wait` as milliseconds from the start, as fio 3.33 does; for fio's log, version 2
    #[arg(long)]
    wait_millis: bool,
}

impl Source {
    /// Opens the trace.
    pub(crate) fn open(&self) -> Result<Reader, String> {
        let options = Options {
            issue: if self.driver { Issue::Driver } else { Issue::Any },
            wait: if self.wait_millis { Wait::Millis } else { Wait::Micros },
            ..Options::default()
        };
        Reader::open(&self.path, self.format, options).map_err(|error| error.to_string())
    }
}

/// Options of `upcall load trace info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Info {
    #[command(flatten)]
    source: Source,
}

/// Options of `upcall load trace convert`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Convert {
    #[command(flatten)]
    source: Source,

    /// File to write
    #[arg(value_name = "FILE")]
    to: PathBuf,

    /// Output format: recording, msr, iolog3
    #[arg(long, value_name = "FORMAT", default_value = "recording")]
    into: Format,
}

/// Options of `upcall load trace anonymize`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Anonymize {
    #[command(flatten)]
    source: Source,

    /// Recording to write
    #[arg(value_name = "FILE")]
    to: PathBuf,

    /// Key for the replacement names: traces with the same key can be compared
    #[arg(long, value_name = "N", value_parser = crate::units::seed)]
    key: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Info(info) => {
            let mut reader = info.source.open()?;
            let summary = Summary::of(&mut reader).map_err(|error| error.to_string())?;
            out_line!("format    {}\n{summary}", reader.format());
        }
        Command::Convert(convert) => {
            let mut reader = convert.source.open()?;
            let mut writer = trace::writer(convert.into).map_err(|error| error.to_string())?;
            let done = into_file(&convert.to, |out| {
                trace::convert(&mut reader, &mut *writer, out).map_err(|error| error.to_string())
            })?;
            inform(&convert.to, done)?;
        }
        Command::Anonymize(anonymize) => {
            let mut reader = anonymize.source.open()?;
            let key = anonymize.key.map_or_else(crate::clock::random, Ok);
            let key = key.map_err(|error| format!("cannot draw a number: {error}"))?;
            let done = into_file(&anonymize.to, |out| {
                trace::anonymize(&mut reader, out, key).map_err(|error| error.to_string())
            })?;
            inform(&anonymize.to, done)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn inform(to: &Path, done: Converted) -> Result<(), String> {
    let left_out = match done.left_out {
        0 => String::new(),
        count => format!(", {} left out that the format cannot express", size::count(count)),
    };
    let written = size::counted(done.written, "I/O", "I/Os");
    out_line!("{written} written to {}{left_out}", to.display());
    Ok(())
}

/// Creates a file that is complete or does not exist.
fn into_file<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, String>,
) -> Result<T, String> {
    let failed = |error: std::io::Error| format!("cannot make {}: {error}", path.display());
    let file = File::create_new(path).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let done = write(&mut out).and_then(|done| {
        out.flush().map_err(failed)?;
        out.get_ref().sync_all().map_err(failed)?;
        Ok(done)
    });
    if done.is_err() {
        // A partial file is useless.
        let _ = std::fs::remove_file(path);
    }
    done
}
