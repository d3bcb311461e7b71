//! The log of the server: messages on standard error, and the access log of HTTP.
//!
//! A thread of its own writes. Who reads a pipe may be slow, or not read at all: nobody waits for
//! that thread, and what it has no room for is counted and left out.

use crate::clock;
use crate::config::{AccessFormat, LogFormat, LogLevel, Serve};
use base::Time;
use base::op::Peer;
use node::log::{Access, Level, News};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Capacity of the queue of what waits to be written.
const LINES: usize = 4096;

/// Maximum time to wait for the writer at the end.
const FINISH_TIME: Duration = Duration::from_secs(1);

/// What the writer is given.
enum Line {
    News(News),
    Access(Box<Access>),
    /// Everything before is to be written; then somebody is told.
    Finish(SyncSender<()>),
}

/// The log of the process.
struct Logger {
    level: Level,
    lines: SyncSender<Line>,
    /// Messages and entries that there was no room for.
    lost: AtomicU64,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// The receiver of what nodes log.
pub(crate) struct ToLog;

impl node::log::Log for ToLog {
    fn news(&mut self, news: News) {
        send(news);
    }

    fn access(&mut self, access: Access) {
        put(Line::Access(Box::new(access)));
    }
}

/// Starts the writer.
pub(crate) fn start(serve: &Serve) -> Result<(), String> {
    let level = match serve.log_level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
    };
    let access: Box<dyn Write + Send> = match serve.access_log.as_deref() {
        None => Box::new(io::sink()),
        Some(path) if path.as_os_str() == "-" => Box::new(io::stdout()),
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            Box::new(file.map_err(|error| {
                format!("cannot open the access log {}: {error}", path.display())
            })?)
        }
    };
    let (lines, taken) = sync_channel(LINES);
    let writer = Writer {
        format: serve.log_format.unwrap_or(LogFormat::Text),
        access_format: serve.access_log_format.unwrap_or(AccessFormat::Combined),
        access: BufWriter::new(access),
    };
    let thread = std::thread::Builder::new().name("log".to_string());
    thread.spawn(move || writer.run(&taken)).map_err(|error| format!("no thread: {error}"))?;
    let logger = Logger { level, lines, lost: AtomicU64::new(0) };
    LOGGER.set(logger).map_err(|_| "the log is started once".to_string())
}

/// Logs that something may have to be looked after.
pub(crate) fn warn(target: &'static str, text: String) {
    send(News { level: Level::Warn, target, text });
}

/// Logs that something was lost.
pub(crate) fn error(target: &'static str, text: String) {
    send(News { level: Level::Error, target, text });
}

fn send(news: News) {
    if LOGGER.get().is_some_and(|logger| news.level <= logger.level) {
        put(Line::News(news));
    }
}

fn put(line: Line) {
    let Some(logger) = LOGGER.get() else { return };
    if logger.lines.try_send(line).is_err() {
        logger.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until everything is written, but not for a reader that does not read.
pub(crate) fn finish() {
    let Some(logger) = LOGGER.get() else { return };
    let (told, tells) = sync_channel(1);
    if logger.lines.try_send(Line::Finish(told)).is_ok() {
        let _ = tells.recv_timeout(FINISH_TIME);
    }
}

/// Writes lines in the formats that were asked for.
struct Writer {
    format: LogFormat,
    access_format: AccessFormat,
    access: BufWriter<Box<dyn Write + Send>>,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Line>) {
        while let Ok(line) = lines.recv() {
            self.write(line);
            while let Ok(line) = lines.try_recv() {
                self.write(line);
            }
            self.flush();
        }
    }

    fn write(&mut self, line: Line) {
        match line {
            Line::News(news) => self.report(&news),
            Line::Access(access) => {
                let text = access_text(&access, self.access_format, clock::wall());
                // The disk may be full: the server goes on without its access log.
                let _ = writeln!(self.access, "{text}");
            }
            Line::Finish(told) => {
                self.flush();
                let _ = told.send(());
            }
        }
    }

    fn flush(&mut self) {
        let _ = self.access.flush();
        let lost = LOGGER.get().map_or(0, |logger| logger.lost.swap(0, Ordering::Relaxed));
        if lost > 0 {
            let text = format!(
                "{lost} messages and access log entries are missing: \
                 they came faster than they could be written"
            );
            self.report(&News { level: Level::Warn, target: "log", text });
        }
    }

    fn report(&self, news: &News) {
        let _ = writeln!(io::stderr(), "{}", news_text(news, self.format, clock::wall()));
    }
}

fn news_text(news: &News, format: LogFormat, wall: Time) -> String {
    #[derive(Serialize)]
    struct Message<'a> {
        time: &'a str,
        level: &'a str,
        target: &'a str,
        message: &'a str,
    }
    let (time, News { target, text, .. }) = (rfc3339(wall), news);
    let (level, padded) = match news.level {
        Level::Error => ("error", "ERROR"),
        Level::Warn => ("warn", "WARN "),
        Level::Info => ("info", "INFO "),
    };
    match format {
        LogFormat::Text => format!("{time} {padded} {target}: {}", text.replace('\n', " ")),
        LogFormat::Json => json(&Message { time: &time, level, target, message: text }),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("words and numbers are JSON")
}

/// An entry of the access log: the Common or Combined Log Format of Apache's `mod_log_config`, or
/// JSON.
fn access_text(access: &Access, format: AccessFormat, wall: Time) -> String {
    let (account, entry) = (&access.account, access.account.entry.as_deref());
    let line = entry.and_then(|entry| entry.line.as_ref());
    let (client, user) = match &access.peer {
        Peer::Network(address) => (host(address), None),
        Peer::Local(user) => ("unix".to_string(), Some(user.uid)),
    };
    let referer = line.and_then(|line| line.referer.as_deref());
    let agent = line.and_then(|line| line.agent.as_deref());
    if format == AccessFormat::Json {
        let took = entry.map_or(Duration::ZERO, |entry| entry.ended.since(entry.begun));
        return json(&serde_json::json!({
            "time": rfc3339(wall),
            "client": client,
            "uid": user,
            "method": line.map(|line| &line.method),
            "target": line.map(|line| &line.target),
            "protocol": line.map(|line| format!("HTTP/1.{}", line.minor)),
            "status": account.status,
            "bytes": account.bytes,
            "duration_us": took.as_micros() as u64,
            "referer": referer,
            "user_agent": agent,
        }));
    }
    let user = user.map_or("-".to_string(), |uid| uid.to_string());
    let request = line.map_or("-".to_string(), |line| {
        format!("{} {} HTTP/1.{}", line.method, escaped(&line.target), line.minor)
    });
    let bytes = if account.bytes == 0 { "-".to_string() } else { account.bytes.to_string() };
    let (status, time) = (account.status, common_date(wall));
    let mut text = format!("{client} - {user} [{time}] \"{request}\" {status} {bytes}");
    if format == AccessFormat::Combined {
        let [referer, agent] = [referer, agent].map(|it| it.map_or("-".to_string(), escaped));
        write!(text, " \"{referer}\" \"{agent}\"").expect("a string");
    }
    text
}

/// The host of an address with its port.
fn host(address: &str) -> String {
    address.parse::<SocketAddr>().map_or(address.to_string(), |it| it.ip().to_string())
}

/// Text between quotes, as Apache writes it: nothing in it ends the quotes or the line.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => safe.extend(['\\', character]),
            control if control.is_control() => {
                let mut bytes = [0; 4];
                for byte in control.encode_utf8(&mut bytes).bytes() {
                    write!(safe, "\\x{byte:02x}").expect("a string");
                }
            }
            plain => safe.push(plain),
        }
    }
    safe
}

/// A date like `2001-09-09T01:46:40.123Z` (RFC 3339).
fn rfc3339(wall: Time) -> String {
    let (date, months) = parts(wall);
    let [day, month, year, time] = &date;
    let number = months.iter().position(|name| name == month).unwrap_or(0) + 1;
    format!("{year}-{number:02}-{day}T{time}.{:03}Z", wall.nanos / 1_000_000)
}

/// A date like `09/Sep/2001:01:46:40 +0000`.
fn common_date(wall: Time) -> String {
    let ([day, month, year, time], _) = parts(wall);
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Day, month, year and time of a date, and the names of months: from a date of HTTP, which has
/// fixed places (RFC 9110 §5.6.7).
fn parts(wall: Time) -> ([String; 4], [&'static str; 12]) {
    let date = wire::http::date(wall).to_string();
    let part = |span: std::ops::Range<usize>| date[span].to_string();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    ([part(5..7), part(8..11), part(12..16), part(17..25)], months)
}
