//! Latency at a given rate: the workload files of `benches/load`, run by `upcall load`, which
//! issues each request at its time regardless of outstanding replies (open loop). Response time
//! counts from the time when a request was due.

use super::files::forget;
use super::table::median;
use super::{Plan, cold, figures, record};
use crate::instrument;
use anyhow::{Context, Result, ensure};
use rig::machine::core;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Sizes of the file read from memory and of the file read from disk, bytes.
const WARM: u64 = 64 << 20;
const COLD: u64 = 2 << 30;

/// Protocol of the server, or none: the generator opens the volume in its own process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    NineP,
    Http,
    Itself,
}

/// Storage behind a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Directory,
    Volume,
}

/// One workload for several servers in turn, ours first.
struct Case {
    file: &'static str,
    by: By,
    object: &'static str,
    connections: u32,
    /// Factors applied to the rate of the workload file.
    scales: &'static [f64],
    cold: bool,
    contestants: [(&'static str, Kind, On); 2],
}

const DIOD: [(&str, Kind, On); 2] =
    [("upcall", Kind::Uring, On::Directory), ("diod", Kind::Diod, On::Directory)];
const NGINX: [(&str, Kind, On); 2] =
    [("upcall", Kind::Uring, On::Directory), ("nginx", Kind::Nginx, On::Directory)];
const EXT4: [(&str, Kind, On); 2] =
    [("volume", Kind::Uring, On::Volume), ("ext4", Kind::Uring, On::Directory)];

const CASES: [Case; 8] = [
    Case {
        file: "ninep-read",
        by: By::NineP,
        object: "big",
        connections: 8,
        scales: &[1.0, 4.0, 8.0],
        cold: false,
        contestants: DIOD,
    },
    Case {
        file: "ninep-mixed",
        by: By::NineP,
        object: "big",
        connections: 8,
        scales: &[1.0, 4.0],
        cold: false,
        contestants: DIOD,
    },
    Case {
        file: "http-get",
        by: By::Http,
        object: "page",
        connections: 64,
        scales: &[1.0, 4.0, 8.0],
        cold: false,
        contestants: NGINX,
    },
    Case {
        file: "cold-read",
        by: By::NineP,
        object: "cold",
        connections: 8,
        scales: &[1.0, 4.0],
        cold: true,
        contestants: [("volume", Kind::Uring, On::Volume), ("diod", Kind::Diod, On::Directory)],
    },
    Case {
        file: "cold-read",
        by: By::Http,
        object: "cold",
        connections: 64,
        scales: &[1.0, 4.0],
        cold: true,
        contestants: [("volume", Kind::Uring, On::Volume), ("nginx", Kind::Nginx, On::Directory)],
    },
    Case {
        file: "ninep-read",
        by: By::NineP,
        object: "big",
        connections: 8,
        scales: &[1.0, 4.0],
        cold: false,
        contestants: EXT4,
    },
    Case {
        file: "durable",
        by: By::NineP,
        object: "big",
        connections: 8,
        scales: &[1.0, 4.0],
        cold: false,
        contestants: EXT4,
    },
    Case {
        file: "durable",
        by: By::Itself,
        object: "big",
        connections: 1,
        scales: &[1.0, 4.0],
        cold: false,
        contestants: [
            ("volume, in process", Kind::Uring, On::Volume),
            ("file on ext4, in process", Kind::Uring, On::Directory),
        ],
    },
];

/// Results of one server in one round; times are microseconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    response: [f64; 3],
    cpu: f64,
    failed: f64,
    valid: bool,
    /// Share of requests sent within 10 µs of their time.
    sent: f64,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<String> {
    let (dir, file) = made()?;
    let mut text = format!(
        "{}; {}; {} rounds, in turn, order alternating; servers on processor 0, the generator on \
         processor 1; where nobody serves, it has both. INVALID: how often it was not itself in \
         time, or I/Os failed. Poisson arrivals at the rate that stands there. Response times \
         are from when a request was due: median over the rounds. The ratio is that of the 99th \
         percentiles of a round, we to the other: median and range; below 1, we are faster.\n\n\
         | work | a second | server | answered | p50 µs | p99 µs | p99.9 µs | p99, ratio | CPU \
         µs | sent within 10 µs |\n\
         |---|--:|---|--:|--:|--:|--:|--:|--:|--:|\n",
        rig::machine::describe(),
        record::packages(&["diod", "nginx"]),
        plan.rounds,
    );
    for case in &CASES {
        for scale in case.scales {
            text += &rows(plan, case, *scale, &dir, &file)?;
        }
    }
    sh::empty("bench/cold")?;
    Ok(text)
}

/// Creates a directory with the requested files, and a volume with the same files.
fn made() -> Result<(PathBuf, PathBuf)> {
    let dir = cold::directory("cold", COLD)?;
    std::fs::write(dir.join("page"), vec![b'h'; 10_000])?;
    std::fs::write(dir.join("big"), vec![b'b'; usize::try_from(WARM)?])?;
    let file = dir.with_extension("volume");
    volume::create_whole(&file, "4G")?;
    volume::copy_in(&dir, &file)?;
    Ok((dir, file))
}

fn rows(plan: &Plan, case: &Case, scale: f64, dir: &Path, file: &Path) -> Result<String> {
    let mut samples = [Vec::new(), Vec::new()];
    let mut order = [0, 1];
    let mut title = (String::new(), 0.0);
    for _ in 0..plan.rounds {
        for at in order {
            let (name, kind, on) = case.contestants[at];
            eprintln!("   {} × {scale} on {name}", case.file);
            let place = if on == On::Volume { file } else { dir };
            if case.cold {
                forget()?;
            }
            let server = || Server::start_on(kind, place, &["--trust-clients"], core(0));
            let server = (case.by != By::Itself).then(server).transpose()?;
            if let (Some(server), false) = (&server, case.cold) {
                warm(server, case.object)?;
            }
            let before = server.as_ref().map(Server::cpu_ticks);
            let printed = ask(case, scale, place, server.as_ref());
            let printed = printed.with_context(|| format!("{name} is asked"))?;
            let after = server.as_ref().map(Server::cpu_ticks);
            let ticks = after.zip(before).map(|(after, before)| after - before);
            samples[at].push(sample(&printed, ticks));
            title = (workload_name(&printed), instrument::number(&printed, "/scheduled_rate"));
        }
        order.reverse();
    }
    let mut text = String::new();
    for (at, (name, ..)) in case.contestants.iter().enumerate() {
        line(&mut text, &title, name, &samples[at], (at > 0).then_some(&samples[0]));
    }
    Ok(text)
}

/// Reads an object once, so that the server caches it; a server without HTTP has no cache of its
/// own and relies on the page cache.
fn warm(server: &Server, object: &str) -> Result<()> {
    if server.http == 0 {
        return Ok(());
    }
    let mut stream = TcpStream::connect(("127.0.0.1", server.http))?;
    write!(stream, "GET /{object} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut first = [0; 12];
    stream.read_exact(&mut first)?;
    ensure!(first.ends_with(b"200"), "GET /{object}: {}", String::from_utf8_lossy(&first));
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(())
}

fn ask(case: &Case, scale: f64, place: &Path, server: Option<&Server>) -> Result<Value> {
    let file = sh::root().join("benches/load").join(case.file).with_extension("toml");
    let (file, scale) = (file.display().to_string(), scale.to_string());
    let connections = case.connections.to_string();
    let object = case.object;
    let mut words = vec!["run", &file, "--scale", &scale, "--create", "--destroy"];
    let (target, aname, size) = match (case.by, server) {
        (By::NineP, Some(server)) => {
            let aname = server.dir.display().to_string();
            (format!("9p://127.0.0.1:{}/{object}", server.ninep), Some(aname), None)
        }
        (By::Http, Some(server)) => {
            (format!("http://127.0.0.1:{}/{object}", server.http), None, None)
        }
        (_, _) if place.is_dir() => (format!("file:{}/{object}", place.display()), None, None),
        (_, _) => {
            // A volume of the generator's own: raw objects, no files.
            let own = place.with_extension("own");
            (format!("volume:{}", own.display()), None, Some(WARM.to_string()))
        }
    };
    words.extend(["--target", &target, "--connections", &connections]);
    if let Some(aname) = &aname {
        words.extend(["--aname", aname]);
    }
    if let Some(size) = &size {
        words.extend(["--file-size", size]);
    }
    // Without a server, the volume's thread uses the other processor.
    instrument::run(&words, server.and_then(|_| core(1)))
}

/// Returns the workload file's title of the work.
fn workload_name(printed: &Value) -> String {
    let text = printed.pointer("/title/workload").and_then(Value::as_str).unwrap_or_default();
    text.split(": for").next().unwrap_or_default().to_owned()
}

fn sample(printed: &Value, ticks: Option<u64>) -> Sample {
    let number = |path: &str| instrument::number(printed, path);
    let response = ["p50", "p99", "p99_9"]
        .map(|which| number(&format!("/times/together/response/{which}")) / 1000.0);
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    let cpu = ticks.map_or(f64::NAN, |ticks| ticks as f64 * 10_000.0 / number("/issued"));
    Sample {
        rate: number("/rate"),
        response,
        cpu,
        failed: number("/failed"),
        valid: printed.pointer("/verdict/valid") == Some(&Value::Bool(true)),
        sent: instrument::within(printed, 10_000),
    }
}

fn line(
    text: &mut String,
    (work, rate): &(String, f64),
    name: &str,
    samples: &[Sample],
    ours: Option<&Vec<Sample>>,
) {
    let of = |what: &dyn Fn(&Sample) -> f64| median(samples.iter().map(what));
    let ratio = ours.map_or_else(String::new, |ours| {
        let p99 = |samples: &[Sample]| samples.iter().map(|it| it.response[1]).collect::<Vec<_>>();
        figures::ratio(&p99(ours), &p99(samples))
    });
    let failed: f64 = samples.iter().map(|sample| sample.failed).sum();
    let failed = if failed > 0.0 { format!(" ({failed:.0} failed)") } else { String::new() };
    let invalid = samples.iter().filter(|sample| !sample.valid).count();
    let invalid = if invalid > 0 { format!(" ({invalid} INVALID)") } else { String::new() };
    let _ = writeln!(
        text,
        "| {work} | {rate:.0} | {name}{invalid} | {:.0}{failed} | {:.0} | {:.0} | {:.0} | {ratio} \
         | {} | {:.1} % |",
        of(&|sample| sample.rate),
        of(&|sample| sample.response[0]),
        of(&|sample| sample.response[1]),
        of(&|sample| sample.response[2]),
        Some(of(&|sample| sample.cpu))
            .filter(|cpu| !cpu.is_nan())
            .map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.1}")),
        of(&|sample| sample.sent * 100.0),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_compares_each_round_and_tells_failures() {
        let sample = |p99: f64, failed: f64| Sample {
            rate: 1000.0,
            response: [10.0, p99, 3.0 * p99],
            cpu: 4.0,
            failed,
            valid: failed == 0.0,
            sent: 0.5,
        };
        let ours = vec![sample(20.0, 0.0), sample(40.0, 0.0), sample(50.0, 0.0)];
        let theirs = [sample(40.0, 0.0), sample(40.0, 2.0), sample(100.0, 0.0)];
        let mut text = String::new();
        line(&mut text, &("reads".to_owned(), 1000.2), "diod", &theirs, Some(&ours));
        let expected = "| reads | 1000 | diod (1 INVALID) | 1000 (2 failed) | 10 | 40 | 120 \
             | 0.50 (0.50..1.00) | 4.0 | 50.0 % |\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_workload_file_is_there() {
        for case in CASES {
            let path = sh::root().join("benches/load").join(case.file).with_extension("toml");
            assert!(path.exists(), "{}", path.display());
        }
    }
}
