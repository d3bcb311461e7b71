//! Options common to all runs.

use super::limits::Limit;
use super::place::LoadTarget;
use crate::size;
use crate::units::{self, counts, time as span};
use clap::{Args, ValueEnum};
use load::core::{Choice, Late, Policy};
use std::path::PathBuf;

/// Options common to all runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// Target of the load: null, file:PATH, dir:PATH, volume:PATH, 9p://HOST:PORT/PATH,
    /// nfs://HOST:PORT/PATH, http://HOST/PATH
    #[arg(long, value_name = "TARGET")]
    target: Option<LoadTarget>,

    /// Size of a newly created target
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    pub(crate) file_size: u64,

    /// Create a missing target, also for a read-only run
    #[arg(long)]
    pub(crate) create: bool,

    /// Write to an existing target, whose contents are lost
    #[arg(long)]
    pub(crate) destroy: bool,

    /// Bypass the page cache of the host (O_DIRECT); for files and devices
    #[arg(long)]
    pub(crate) direct: bool,

    /// I/O engine; for files and devices [default: uring; threads where io_uring would make the
    /// kernel start threads: writes through the page cache, tmpfs]
    #[arg(long, value_enum)]
    pub(crate) engine: Option<Engine>,

    /// Number of connections; for servers [default: 16 over HTTP, with one request at a time on
    /// each; 2 over 9P and NFS]
    #[arg(long, value_name = "N", hide_default_value = true)]
    #[arg(value_parser = counts::<u32>(1, 100_000))]
    pub(crate) connections: Option<u32>,

    /// Attach name, the tree of the server (for diod, the exported directory); for 9P. Directory to
    /// mount, to which the path is relative; for NFS [default: that of the file]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) aname: String,

    /// Port of the MOUNT protocol; for NFS [default: that of NFS]
    #[arg(long, value_name = "PORT", value_parser = counts::<u16>(1, 65_535))]
    pub(crate) mount_port: Option<u16>,

    /// Complete writes only when they are durable (safe from power loss); for volumes
    #[arg(long)]
    pub(crate) durable: bool,

    /// Number of threads that issue I/Os [default: 2, or 16 with --engine threads --direct]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = counts::<usize>(0, 1 << 20))]
    pub(crate) workers: usize,

    /// Method of waiting for an issue time: auto (measure, then choose), spin, nap (real-time
    /// priority), sleep
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = choice)]
    pub(crate) policy: Choice,

    /// Handling of late I/Os: catch-up, skip:TIME, shift:TIME, stop:TIME
    #[arg(long, value_name = "WHAT", default_value = "catch-up", value_parser = late)]
    pub(crate) late: Late,

    /// Also obtain the time of each I/O from the kernel (root; files and devices)
    #[arg(long)]
    pub(crate) witness: bool,

    /// Limit for the verdict of the run: near=SHARE (issued within 10 µs), tail=TIME (99 %),
    /// drift=TIME, rate=SHARE, skipped=N, errors=N, witness=TIME
    #[arg(long = "limit", value_name = "RULE=LIMIT", value_parser = Limit::parse)]
    pub(crate) limits: Vec<Limit>,

    /// Seed for random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = units::seed)]
    pub(crate) seed: u64,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write an HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the result to this file, in the format of fio's --output-format=json+
    #[arg(long, value_name = "FILE")]
    pub(crate) fio: Option<PathBuf>,

    /// Write histograms to this file, as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,

    /// Write a record of every I/O to this file, for `upcall load compare`
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
}

impl Flags {
    /// Completes the command line from a workload file.
    ///
    /// # Errors
    /// If a value of the file is invalid.
    pub(crate) fn complete(&mut self, run: &load::workload::file::Run) -> Result<(), String> {
        if let (None, Some(text)) = (&self.target, &run.target) {
            self.target = Some(text.parse().map_err(|error| format!("target: {error}"))?);
        }
        if let (Choice::Auto, Some(text)) = (self.policy, &run.policy) {
            self.policy = choice(text).map_err(|error| format!("policy: {error}"))?;
        }
        if let (Late::CatchUp, Some(text)) = (self.late, &run.late) {
            self.late = late(text).map_err(|error| format!("late: {error}"))?;
        }
        Ok(())
    }

    /// Returns the target of the load.
    ///
    /// # Errors
    /// If there is none: commands with subcommands cannot require it earlier.
    pub(crate) fn target(&self) -> Result<&LoadTarget, String> {
        self.target.as_ref().ok_or_else(|| {
            "the target is missing; use --target null to measure the load generator itself, or \
             --target file:PATH; see --help"
                .to_string()
        })
    }
}

/// I/O engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// io_uring
    Uring,
    /// Blocking calls, by as many threads as there are workers
    Threads,
}

fn choice(text: &str) -> Result<Choice, String> {
    Ok(match text {
        "auto" => Choice::Auto,
        "spin" => Choice::Fixed(Policy::Spin),
        "nap" => Choice::Fixed(Policy::Nap),
        "sleep" => Choice::Fixed(Policy::Sleep),
        _ => return Err("write auto, spin, nap or sleep".to_string()),
    })
}

fn late(text: &str) -> Result<Late, String> {
    let wrong = || "write catch-up, or skip, shift or stop with a time: skip:1ms".to_string();
    let Some((what, limit)) = text.split_once(':') else {
        return if text == "catch-up" { Ok(Late::CatchUp) } else { Err(wrong()) };
    };
    let limit_ns = u64::try_from(span(limit)?.as_nanos()).map_err(|_| wrong())?;
    match what {
        "skip" => Ok(Late::Skip(limit_ns)),
        "shift" => Ok(Late::Shift(limit_ns)),
        "stop" => Ok(Late::Stop(limit_ns)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_policy_is_shown_with_its_limit() {
        assert_eq!(late("catch-up"), Ok(Late::CatchUp));
        assert_eq!(late("skip:1ms"), Ok(Late::Skip(1_000_000)));
        assert!(late("skip").is_err() && late("never:1s").is_err());
    }
}
