//! fio: its replay as observed by the kernel, and its maximum rate.

use super::kernel::{Event, Seen, Trace};
use super::ours::Record;
use anyhow::{Result, ensure};
use rig::sh;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// Timeout of fio, seconds: some versions never exit.
const TIMEOUT: &str = "120";

/// Returns the issue error, ns, of each I/O by fio with one of its engines.
///
/// Unknowns are resolved in its favour. It gets the schedule as a log of its own version 3, in
/// microseconds. It drops the first pause of a log (3.33), so the log begins with one additional
/// I/O, at the same time, which does not count. Its notion of the log's beginning is unknown: its
/// clock is aligned so that the I/O with the smallest error is on time, and none is early.
pub(super) fn replay(
    schedule: &[Record],
    file: &Path,
    engine: &str,
    base: &Path,
) -> Result<Vec<u64>> {
    let log = base.join("fio.log");
    std::fs::write(&log, written(schedule, file))?;
    let trace = Trace::start()?;
    let words = [
        "-s",
        "KILL",
        TIMEOUT,
        "fio",
        "--name=replay",
        "--thread",
        "--invalidate=0",
        "--iodepth=256",
    ];
    let mut command = sh::cmd("timeout", &words);
    command.arg(format!("--ioengine={engine}")).arg(format!("--read_iolog={}", log.display()));
    sh::read(&mut command)?;
    let times = matched(schedule, &trace.end()?);
    ensure!(times.len() > schedule.len() / 2, "the kernel's trace does not show fio's I/Os");
    Ok(errors(schedule, &times))
}

/// Returns the log, with I/Os as scheduled.
fn written(schedule: &[Record], file: &Path) -> String {
    let file = file.display();
    let mut text = format!("fio version 3 iolog\n0 {file} add\n0 {file} open\n");
    for record in schedule.first().into_iter().chain(schedule) {
        let Seen { offset, len } = record.place;
        let _ = writeln!(text, "{} {file} read {offset} {len}", record.scheduled / 1000);
    }
    text
}

/// Returns the issue time of each I/O of the schedule. I/Os outside of the schedule, such as those
/// of the program loader, are ignored.
fn matched(schedule: &[Record], events: &[Event]) -> Vec<u64> {
    let mut expected = schedule.first().into_iter().chain(schedule).peekable();
    let mut times = Vec::with_capacity(schedule.len() + 1);
    for event in events {
        let Some(next) = expected.peek() else { break };
        if event.place.is_none_or(|place| place == next.place) {
            times.push(event.at);
            expected.next();
        }
    }
    times.drain(..1.min(times.len()));
    times
}

fn errors(schedule: &[Record], times: &[u64]) -> Vec<u64> {
    let since = |(record, at): (&Record, &u64)| *at as i64 - record.scheduled as i64;
    let relative = || schedule.iter().zip(times).map(since);
    let earliest = relative().min().unwrap_or(0);
    relative().map(|time| (time - earliest).unsigned_abs()).collect()
}

/// Returns the maximum rate of random 4 KiB reads, per second.
pub(super) fn most(engine: &str, depth: u32, file: Option<&Path>, seconds: f64) -> Result<f64> {
    let words = [
        "-s",
        "KILL",
        TIMEOUT,
        "fio",
        "--name=most",
        "--thread",
        "--rw=randread",
        "--bs=4k",
        "--norandommap",
        "--time_based",
        "--invalidate=0",
        "--output-format=json",
        "--gtod_reduce=1",
    ];
    let mut command = sh::cmd("timeout", &words);
    command.arg(format!("--ioengine={engine}")).arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={}ms", (seconds * 1000.0).round()));
    if depth > 1 {
        let batch = (depth / 2).max(1);
        command.arg(format!("--iodepth_batch_submit={batch}"));
        command.arg("--iodepth_batch_complete_min=1");
        command.arg(format!("--iodepth_batch_complete_max={batch}"));
    }
    if engine == "io_uring" {
        command.args(["--fixedbufs", "--registerfiles"]);
    }
    let size = file.and_then(|file| std::fs::metadata(file).ok()).map_or(0, |there| there.len());
    let size = if size == 0 { 1 << 30 } else { size };
    command.arg(format!("--size={size}"));
    if let Some(file) = file {
        command.arg(format!("--filename={}", file.display()));
    }
    let printed: Value = serde_json::from_str(&sh::read(&mut command)?)?;
    Ok(crate::instrument::number(&printed, "/jobs/0/read/iops"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scheduled: u64, offset: u64) -> Record {
        let place = Seen { offset, len: 512 };
        Record { scheduled, issued: 0, completed: 0, witnessed: None, place }
    }

    #[test]
    fn unscheduled_ios_are_left_out_and_the_earliest_is_on_time() {
        let schedule = [at(0, 0), at(1000, 512), at(2000, 0)];
        let event = |at, offset| Event { at, place: Some(Seen { offset, len: 512 }) };
        // The loader's I/O, the additional first one, and the three: 7, 5 and 6 µs late.
        let events =
            [event(1, 64), event(6000, 0), event(7000, 0), event(6000, 512), event(8000, 0)];
        let times = matched(&schedule, &events);
        assert_eq!(errors(&schedule, &times), [2000, 0, 1000]);
        assert!(
            written(&schedule, Path::new("/f"))
                .ends_with("0 /f read 0 512\n1 /f read 512 512\n2 /f read 0 512\n")
        );
    }
}
