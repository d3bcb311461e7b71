//! Unrelated clients: they read files all the time and verify every byte.

use super::ground::Ground;
use crate::Raw;
use anyhow::{Context, Result, anyhow, ensure};
use rig::files::Files;
use rig::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of 9P clients; one more uses HTTP.
const NINEP: usize = 2;

/// Pause between two files.
const PAUSE: Duration = Duration::from_millis(2);

/// Number of files after which a client reconnects.
const FILES_OF_ONE: usize = 100;

/// Results of a client.
#[derive(Default)]
struct Seen {
    files: u64,
    bytes: u64,
    worst: Duration,
}

/// The clients, which read until they are stopped.
pub(super) struct Others {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<Seen>>>,
}

type Expected = Arc<Vec<(String, Vec<u8>)>>;

impl Others {
    pub(super) fn begin(server: &Server, ground: &Ground) -> Others {
        let over = Arc::new(AtomicBool::new(false));
        let files: Expected = Arc::new(ground.files());
        let (ninep, http) = (server.ninep, server.http);
        let mut clients = Vec::new();
        for _ in 0..NINEP {
            let (over, files) = (Arc::clone(&over), Arc::clone(&files));
            clients.push(std::thread::spawn(move || {
                again(&over, &files, || {
                    let mut client = Files::at(ninep)?;
                    Ok(move |name: &str| client.read(name)?.context("it is gone"))
                })
            }));
        }
        let over_too = Arc::clone(&over);
        clients.push(std::thread::spawn(move || {
            again(&over_too, &files, || {
                let mut raw = Raw::connect(http)?;
                Ok(move |name: &str| {
                    let head = format!("GET /{name} HTTP/1.1\r\nHost: 127.0.0.1:{http}\r\n\r\n");
                    raw.send(head.as_bytes())?;
                    let answer = raw.answer(false)?;
                    ensure!(answer.status == 200, "the answer is {}", answer.status);
                    Ok(answer.body)
                })
            })
        }));
        Others { over, clients }
    }

    /// Stops them; returns a summary, or the first error.
    pub(super) fn end(self) -> Result<String> {
        self.over.store(true, Ordering::SeqCst);
        let mut sum = Seen::default();
        for client in self.clients {
            let seen = client.join().map_err(|_| anyhow!("a client panicked"))??;
            ensure!(seen.files > 0, "a client has read nothing");
            sum.files += seen.files;
            sum.bytes += seen.bytes;
            sum.worst = sum.worst.max(seen.worst);
        }
        Ok(format!(
            "{} files of {} MB were right; the slowest took {:.1} ms",
            sum.files,
            sum.bytes / 1_000_000,
            sum.worst.as_secs_f64() * 1e3
        ))
    }
}

/// Connects and reads, repeatedly.
fn again<R: FnMut(&str) -> Result<Vec<u8>>>(
    over: &AtomicBool,
    files: &[(String, Vec<u8>)],
    connect: impl Fn() -> Result<R>,
) -> Result<Seen> {
    let mut seen = Seen::default();
    while !over.load(Ordering::SeqCst) {
        let mut read = connect().context("a client that only reads cannot connect")?;
        for (name, expected) in files.iter().cycle().take(FILES_OF_ONE) {
            let begun = Instant::now();
            let bytes = read(name).with_context(|| format!("read {name}"))?;
            seen.worst = seen.worst.max(begun.elapsed());
            ensure!(bytes == *expected, "{name} came with other bytes");
            seen.files += 1;
            seen.bytes += bytes.len() as u64;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(seen)
}
