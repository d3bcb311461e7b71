//! Well-behaved clients: reads over 9P, gets over HTTP, and new connections.
//!
//! Each is a thread with real-time priority, where permitted: its times are those of the server,
//! without its own wait for a processor that the server and the attackers occupy.

use super::HANG;
use crate::Raw;
use anyhow::{Context, Result, bail, ensure};
use rig::client::{Client, Message};
use rig::server::Server;
use rig::sh;
use std::io;
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Size of the file `small`, bytes.
pub(super) const SIZE: usize = 4096;

/// Pause between two requests of one client, and between two newcomers.
const PACE: Duration = Duration::from_millis(20);
const NEWCOMERS: Duration = Duration::from_millis(100);

/// Subcommand of xtask that is this process.
pub(crate) const WORD: &str = "attack-healthy";

/// Labels of response times, ns: kept connections and new ones.
const KEPT: &str = "kept";
const NEW: &str = "new";

const TREAD: u8 = 116;
const FILE: u32 = 1;

/// Response times, sorted.
pub(super) struct Times {
    /// Reads and gets on kept connections.
    kept: Vec<Duration>,
    /// Gets on new connections, including the connect.
    new: Vec<Duration>,
}

impl Times {
    /// Parses the output of the process.
    fn read(printed: &str) -> Result<Times> {
        let of = |wanted: &str| {
            let all = printed.lines().filter_map(|line| line.split_once(' '));
            let times = all.filter(|(word, _)| *word == wanted).map(|(_, time)| time.parse());
            let times = times.map(|time| Ok(Duration::from_nanos(time?)));
            let mut times = times.collect::<Result<Vec<Duration>>>()?;
            ensure!(!times.is_empty(), "nothing was measured");
            times.sort_unstable();
            Ok(times)
        };
        Ok(Times { kept: of(KEPT)?, new: of(NEW)? })
    }

    /// Returns this quantile of the times on kept connections.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        quantile(&self.kept, share)
    }

    /// Returns this quantile of the times on new connections.
    pub(super) fn new_quantile(&self, share: f64) -> Duration {
        quantile(&self.new, share)
    }
}

fn quantile(times: &[Duration], share: f64) -> Duration {
    times[((times.len() - 1) as f64 * share) as usize]
}

/// Measures for this time, calling `look` periodically. The clients are a separate process, so they
/// share no lock with attackers, such as the allocator's.
pub(super) fn measure(server: &Server, time: Duration, mut look: impl FnMut()) -> Result<Times> {
    let mut command = Command::new(sh::own_path()?);
    let words = [server.ninep.into(), server.http.into(), time.as_millis()].map(|n| n.to_string());
    command.arg(WORD).args(words).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let printed = std::thread::scope(|scope| {
        let printed = scope.spawn(|| {
            io::read_to_string(stdout.context("its output")?).map_err(anyhow::Error::from)
        });
        let wrong = scope.spawn(|| {
            io::read_to_string(stderr.context("its errors")?).map_err(anyhow::Error::from)
        });
        while child.try_wait()?.is_none() {
            look();
            std::thread::sleep(Duration::from_millis(20));
        }
        let wrong = wrong.join().expect("no reader panics")?;
        ensure!(child.wait()?.success(), "{}", wrong.trim_end());
        printed.join().expect("no reader panics")
    })?;
    Times::read(&printed)
}

/// Runs the healthy clients and prints each response time.
pub(crate) fn main(args: &[String]) -> Result<()> {
    let [ninep, http, millis] = args else { bail!("{WORD}: two ports and a time, ms") };
    let (ninep, http) = (ninep.parse()?, http.parse()?);
    let end = Instant::now() + Duration::from_millis(millis.parse()?);
    let [kept, more, new] = std::thread::scope(|scope| {
        let nine = scope.spawn(|| paced(end, PACE, reader(ninep)?));
        let kept = scope.spawn(|| paced(end, PACE, kept_getter(http)?));
        let new = scope.spawn(|| paced(end, NEWCOMERS, || getter(http)?()));
        let ended = |client: ScopedJoinHandle<'_, Result<Vec<Duration>>>, name| {
            client.join().expect("no client panics").with_context(|| format!("the {name}"))
        };
        anyhow::Ok([
            ended(nine, "9P reader")?,
            ended(kept, "HTTP client")?,
            ended(new, "newcomer")?,
        ])
    })?;
    let mut printed = String::new();
    for (times, word) in [(kept, KEPT), (more, KEPT), (new, NEW)] {
        times.iter().for_each(|time| printed += &format!("{word} {}\n", time.as_nanos()));
    }
    print!("{printed}");
    Ok(())
}

/// Returns the response times of consecutive requests until the end.
fn paced(
    end: Instant,
    pause: Duration,
    mut request: impl FnMut() -> Result<()>,
) -> Result<Vec<Duration>> {
    super::set_class("--fifo", 1);
    let mut times = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        request()?;
        ensure!(begun.elapsed() < HANG, "a request took {:?}", begun.elapsed());
        times.push(begun.elapsed());
        std::thread::sleep(pause);
    }
    Ok(times)
}

fn reader(ninep: u16) -> Result<impl FnMut() -> Result<()> + use<>> {
    let mut client = Client::attach(ninep, "")?;
    client.open(FILE, &["small"], 0)?;
    Ok(move || {
        let body = client.call(|out| {
            Message::new(out, TREAD, 0).u32(FILE).u64(0).u32(SIZE as u32);
        })?;
        ensure!(body.len() == 4 + SIZE && body[4..].iter().all(|b| *b == 7), "wrong bytes");
        Ok(())
    })
}

/// Returns a getter on a connection that was already accepted, so its times exclude the accept.
fn kept_getter(http: u16) -> Result<impl FnMut() -> Result<()> + use<>> {
    let begun = Instant::now();
    let mut get = getter(http)?;
    get()?;
    ensure!(begun.elapsed() < HANG, "the first request took {:?}", begun.elapsed());
    Ok(get)
}

fn getter(http: u16) -> Result<impl FnMut() -> Result<()> + use<>> {
    let mut raw = Raw::connect(http)?;
    Ok(move || {
        raw.send(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let answer = raw.answer(false)?;
        ensure!(answer.status == 200 && answer.body.len() == SIZE, "{}", answer.head);
        Ok(())
    })
}
