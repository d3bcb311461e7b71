//! A client of a replicated service that survives the failure of a server.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Timeout of an operation over all its attempts.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of an operation at the server, and additional time for the transfer.
const TIMEOUT: Duration = Duration::from_secs(2);
const WAY: Duration = Duration::from_secs(5);

/// An acknowledged operation, as known to the client.
pub(super) struct Acked {
    pub(super) record: String,
    pub(super) answer: u64,
    pub(super) strict: bool,
    pub(super) is_final: bool,
    /// Number of attempts.
    pub(super) tries: u64,
}

/// Progress of all clients.
#[derive(Default)]
pub(super) struct Progress {
    done: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    /// Waits until this number of operations is done.
    pub(super) fn wait(&self, count: u64) -> Result<()> {
        let mut seen = (Instant::now(), 0);
        loop {
            let done = self.done.load(Ordering::SeqCst);
            if done >= count {
                return Ok(());
            }
            if done > seen.1 {
                seen = (Instant::now(), done);
            }
            ensure!(seen.0.elapsed() < PATIENCE, "nothing was done for a minute, after {done}");
            ensure!(!self.over.load(Ordering::SeqCst), "a client gave up after {done}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes all clients end.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The client.
pub(super) struct Client {
    service: &'static str,
    number: usize,
    /// HTTP ports of all servers.
    ports: Vec<u16>,
    /// Index of the server in use.
    at: usize,
    connection: Option<BufReader<TcpStream>>,
    session: String,
    token: Option<String>,
}

impl Client {
    pub(super) fn new(service: &'static str, number: usize, ports: Vec<u16>) -> Client {
        let session = format!("{:x}{number:04x}", std::process::id());
        let at = number % ports.len();
        Client { service, number, ports, at, connection: None, session, token: None }
    }

    /// Appends this number of records, retransmitting each until it is acknowledged.
    pub(super) fn go_on(
        &mut self,
        count: u64,
        strict_of: u64,
        progress: &Progress,
    ) -> Result<Vec<Acked>> {
        let mut acked = Vec::new();
        for number in 1..=count {
            let strict = number.is_multiple_of(strict_of);
            match self.append(number, strict, progress) {
                Ok(ack) => acked.push(ack),
                Err(error) => {
                    progress.give_up();
                    return Err(error);
                }
            }
            progress.done.fetch_add(1, Ordering::SeqCst);
        }
        Ok(acked)
    }

    fn append(&mut self, number: u64, strict: bool, progress: &Progress) -> Result<Acked> {
        let record = format!("{}-{number}", self.number);
        let start = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut requested = json!({
                "op": { "append": record },
                "strict": strict,
                "session": self.session,
                "number": number,
                "timeout": TIMEOUT.as_secs_f64(),
            });
            if let Some(token) = &self.token {
                requested["after"] = Value::from(token.as_str());
            }
            let why = match self.ask(&requested.to_string()) {
                Ok((200, answer)) => {
                    let token = answer["token"].as_str().context("a token")?;
                    self.token = Some(token.to_string());
                    let is_final = answer["final"].as_bool().context("final or not")?;
                    let answer = answer["value"].as_u64().with_context(|| format!("{answer}"))?;
                    return Ok(Acked { record, answer, strict, is_final, tries });
                }
                Ok((503, answer)) => answer["error"].to_string(),
                Ok((code, answer)) => bail!("{code}: {answer}"),
                Err(error) => format!("{error:#}"),
            };
            ensure!(start.elapsed() < PATIENCE, "{record} for a minute: {why}");
            ensure!(!progress.over.load(Ordering::SeqCst), "{record}: others gave up");
            self.connection = None;
            self.at = (self.at + 1) % self.ports.len();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&mut self, body: &str) -> Result<(u16, Value)> {
        let stream = match self.connection.take() {
            Some(stream) => stream,
            None => connect(self.ports[self.at])?,
        };
        let path = format!("/services/{}/ops", self.service);
        let (code, answer, stream) = exchange(stream, "POST", &path, body)?;
        self.connection = Some(stream);
        Ok((code, serde_json::from_slice(&answer)?))
    }
}

/// Reads a file of a server.
pub(super) fn get(port: u16, path: &str) -> Result<Vec<u8>> {
    let (code, body, _) = exchange(connect(port)?, "GET", path, "")?;
    ensure!(code == 200, "GET {path}: {code}");
    Ok(body)
}

fn connect(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT + WAY))?;
    Ok(BufReader::new(stream))
}

/// Performs one request: returns status, body, and the connection for the next one.
fn exchange(
    mut stream: BufReader<TcpStream>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, Vec<u8>, BufReader<TcpStream>)> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    let length = if length > 0 { format!("Content-Length: {length}\r\n") } else { String::new() };
    stream.get_mut().write_all(format!("{head}{length}\r\n{body}").as_bytes())?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let code = line.split(' ').nth(1).context("no answer")?.parse()?;
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((code, body, stream))
}
