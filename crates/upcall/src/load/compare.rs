//! `upcall load compare`: fidelity of one run to another.

use super::printing;
use clap::Args;
use load::compare::{Tolerance, compare, report};
use load::records;
use load::trace::{self, Reader, Traced};
use load::{Outcome, Record};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall load compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// Original: a file written by --records, or a trace
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Run to compare with the original
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Write an HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the command. Exits with 0 if the load is the same, else with 3.
pub(crate) fn run(args: &Compare) -> Result<ExitCode, String> {
    let comparison = compare(open(&args.a)?, open(&args.b)?, &Tolerance::default())?;
    let printed = if args.json { report::json(&comparison) } else { report::text(&comparison) };
    crate::output::out(format_args!("{printed}"));
    if let Some(path) = &args.html {
        let names = [args.a.display().to_string(), args.b.display().to_string()];
        printing::write(path, report::html(&comparison, [&names[0], &names[1]]).as_bytes())?;
    }
    Ok(ExitCode::from(if comparison.faithful { 0 } else { 3 }))
}

type Records = Box<dyn Iterator<Item = Result<Record, String>>>;

/// Opens a file of records, or a trace.
fn open(path: &Path) -> Result<Records, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let shown = path.display().to_string();
    match records::Reader::new(BufReader::with_capacity(1 << 18, file)) {
        Ok(reader) => Ok(Box::new(
            reader.map(move |record| record.map_err(|error| format!("{shown}: {error}"))),
        )),
        Err(records::Error::NotRecords) => {
            let reader = Reader::open(path, None, trace::Options::default());
            let reader = reader.map_err(|error| error.to_string())?;
            Ok(Box::new(reader.map(|traced| traced.map(of_trace).map_err(|e| e.to_string()))))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Converts an I/O of a trace: its issue time also counts as its scheduled time.
fn of_trace(traced: Traced) -> Record {
    Record {
        scheduled_ns: traced.at_ns,
        issued_ns: traced.at_ns,
        completed_ns: traced.completed_ns().unwrap_or(traced.at_ns),
        io: traced.io,
        outcome: Outcome::Done(traced.io.len),
        ..Record::default()
    }
}
