//! The clients that want nothing special: reads by 9P, gets by HTTP, and newcomers.
//!
//! Each is a thread that runs before all others, where that is allowed: its times are those of the
//! server, not of its own wait for a processor that the server and the attackers keep busy.

use super::{HANG, Target};
use crate::bench::{Client, Message};
use crate::conformance::Raw;
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Size of the file `small`, bytes.
pub(super) const SIZE: usize = 4096;

/// Pause between two requests of one client, and between two newcomers.
const PACE: Duration = Duration::from_millis(2);
const NEWCOMERS: Duration = Duration::from_millis(100);

const TREAD: u8 = 116;
const FILE: u32 = 1;

/// Response times of all three.
pub(super) struct Times(Vec<Duration>);

impl Times {
    /// The time that this share of all requests was not above.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let last = self.0.len() - 1;
        self.0[(last as f64 * share) as usize]
    }
}

/// Measures for so long; `look` is called now and then.
pub(super) fn measure(target: &Target, time: Duration, mut look: impl FnMut()) -> Result<Times> {
    let all = Mutex::new(Vec::new());
    let end = Instant::now() + time;
    let add = |times: Vec<Duration>| all.lock().expect("no client panics").extend(times);
    std::thread::scope(|scope| {
        let nine = scope.spawn(|| paced(end, PACE, reader(target)?).map(add));
        let http = scope.spawn(|| paced(end, PACE, getter(target)?).map(add));
        let new = scope.spawn(|| paced(end, NEWCOMERS, || newcomer(target)).map(add));
        while Instant::now() < end {
            look();
            std::thread::sleep(Duration::from_millis(20));
        }
        for (client, name) in [(nine, "9P reader"), (http, "HTTP client"), (new, "newcomer")] {
            client.join().expect("no client panics").with_context(|| format!("the {name}"))?;
        }
        anyhow::Ok(())
    })?;
    let mut times = all.into_inner().expect("no client panics");
    ensure!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    Ok(Times(times))
}

/// Response times of requests until the end, one after the other.
fn paced(
    end: Instant,
    pause: Duration,
    mut request: impl FnMut() -> Result<()>,
) -> Result<Vec<Duration>> {
    run_first();
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

/// Lets the calling thread run before all that are not urgent, if the process may ask for that: a
/// client that waits for a processor beside 100 attackers would count that against the server.
fn run_first() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut change = Command::new("chrt");
    change.args(["--fifo", "--pid", "1", &thread]).stdout(Stdio::null()).stderr(Stdio::null());
    // Where it may not, the client measures the wait for a processor as well.
    drop(change.status());
}

fn reader(target: &Target) -> Result<impl FnMut() -> Result<()> + use<>> {
    let mut client = Client::attach(target.ninep, "")?;
    client.open(FILE, &["small"], 0)?;
    Ok(move || {
        let body = client.call(|out| {
            Message::new(out, TREAD, 0).u32(FILE).u64(0).u32(SIZE as u32);
        })?;
        ensure!(body.len() == 4 + SIZE && body[4..].iter().all(|b| *b == 7), "wrong bytes");
        Ok(())
    })
}

fn getter(target: &Target) -> Result<impl FnMut() -> Result<()> + use<>> {
    let mut raw = Raw::connect(target.http)?;
    Ok(move || {
        raw.send(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let answer = raw.answer(false)?;
        ensure!(answer.status == 200 && answer.body.len() == SIZE, "{}", answer.head);
        Ok(())
    })
}

/// Connects, and gets the file.
fn newcomer(target: &Target) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", target.http))?;
    drop(stream);
    getter(target)?()
}
