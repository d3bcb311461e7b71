//! The clients that want nothing special: reads by 9P, gets by HTTP, and newcomers.
//!
//! Each is a thread that runs before all others, where that is allowed: its times are those of the
//! server, not of its own wait for a processor that the server and the attackers keep busy.

use super::{HANG, Target};
use crate::bench::{Client, Message};
use crate::conformance::Raw;
use anyhow::{Context, Result, ensure};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Size of the file `small`, bytes.
pub(super) const SIZE: usize = 4096;

/// Pause between two requests of one client, and between two newcomers.
const PACE: Duration = Duration::from_millis(2);
const NEWCOMERS: Duration = Duration::from_millis(100);

const TREAD: u8 = 116;
const FILE: u32 = 1;

/// Response times, in order.
pub(super) struct Times {
    /// Those of reads and gets on connections that are kept.
    kept: Vec<Duration>,
    /// Those of newcomers, from the beginning of their connection on.
    new: Vec<Duration>,
}

impl Times {
    /// The time that this share of requests on kept connections was not above.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        quantile(&self.kept, share)
    }

    /// The same of newcomers.
    pub(super) fn new_quantile(&self, share: f64) -> Duration {
        quantile(&self.new, share)
    }
}

fn quantile(times: &[Duration], share: f64) -> Duration {
    times[((times.len() - 1) as f64 * share) as usize]
}

/// Measures for so long; `look` is called now and then.
pub(super) fn measure(target: &Target, time: Duration, mut look: impl FnMut()) -> Result<Times> {
    let end = Instant::now() + time;
    let [mut kept, more, mut new] = std::thread::scope(|scope| {
        let nine = scope.spawn(|| paced(end, PACE, reader(target)?));
        let http = scope.spawn(|| paced(end, PACE, kept_getter(target)?));
        let new = scope.spawn(|| paced(end, NEWCOMERS, || getter(target)?()));
        while Instant::now() < end {
            look();
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = |client: ScopedJoinHandle<'_, Result<Vec<Duration>>>, name| {
            client.join().expect("no client panics").with_context(|| format!("the {name}"))
        };
        anyhow::Ok([
            ended(nine, "9P reader")?,
            ended(http, "HTTP client")?,
            ended(new, "newcomer")?,
        ])
    })?;
    kept.extend(more);
    ensure!(!kept.is_empty() && !new.is_empty(), "nothing was measured");
    kept.sort_unstable();
    new.sort_unstable();
    Ok(Times { kept, new })
}

/// Response times of requests until the end, one after the other.
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

/// A getter whose connection was accepted: the wait for that is a newcomer's.
fn kept_getter(target: &Target) -> Result<impl FnMut() -> Result<()> + use<>> {
    let begun = Instant::now();
    let mut get = getter(target)?;
    get()?;
    ensure!(begun.elapsed() < HANG, "the first request took {:?}", begun.elapsed());
    Ok(get)
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
