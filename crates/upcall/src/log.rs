//! The log of the server: messages on standard error, and the access log of HTTP.
//!
//! Each has a writer thread, so that a slow reader of one delays neither the server nor the other.
//! Lines are dropped and counted when the queue is full.

use crate::clock;
use crate::config::{AccessFormat, LogFormat, LogLevel, Serve};
use base::Time;
use base::op::Peer;
use node::log::{Access, Level, LogMessage};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum number of queued messages, and of queued access log entries.
const MESSAGES: usize = 1024;
const ENTRIES: usize = 8192;

/// Maximum size of the text in queued access log entries, bytes.
const ENTRIES_BYTES: usize = 4 << 20;

/// Maximum length of the text of a message, bytes.
const TEXT_MAX: usize = 4096;

/// Timeout of each writer at the end.
const FINISH_TIME: Duration = Duration::from_secs(1);

/// Input of a writer, with the time of its event.
enum Line<T> {
    Event(Time, T),
    /// Notifies the sender when everything before is written.
    Finish(SyncSender<()>),
}

/// Queue of a writer.
struct Queue<T> {
    lines: SyncSender<Line<T>>,
    /// Number of dropped lines.
    lost: AtomicU64,
}

impl<T: Send + 'static> Queue<T> {
    fn new(capacity: usize) -> (Queue<T>, Receiver<Line<T>>) {
        let (lines, taken) = sync_channel(capacity);
        (Queue { lines, lost: AtomicU64::new(0) }, taken)
    }

    /// Adds a line; returns whether there was room.
    fn put(&self, time: Time, event: T) -> bool {
        let is_taken = self.lines.try_send(Line::Event(time, event)).is_ok();
        self.lost.fetch_add(u64::from(!is_taken), Ordering::Relaxed);
        is_taken
    }

    /// Waits until all lines are written, up to a timeout.
    fn finish(&self) {
        let ((informed, reports), lines) = (sync_channel(1), self.lines.clone());
        // The queue may be full, and stay full.
        let put = spawn("log-end", move || drop(lines.send(Line::Finish(informed))));
        if put.is_ok() {
            let _ = reports.recv_timeout(FINISH_TIME);
        }
    }
}

/// The log of the process.
struct Logger {
    level: Level,
    messages: Queue<LogMessage>,
    entries: Queue<Box<Access>>,
    /// Text of queued entries, bytes.
    entries_bytes: AtomicUsize,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Receiver of the nodes' log.
pub(crate) struct ToLog;

impl node::log::Log for ToLog {
    fn message(&mut self, message: LogMessage) {
        send(message);
    }

    fn access(&mut self, access: Access) {
        let Some(logger) = LOGGER.get() else { return };
        let bytes = weight(&access);
        if logger.entries_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > ENTRIES_BYTES {
            logger.entries_bytes.fetch_sub(bytes, Ordering::Relaxed);
            logger.entries.lost.fetch_add(1, Ordering::Relaxed);
        } else if !logger.entries.put(begun(&access), Box::new(access)) {
            logger.entries_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Returns the size of the text of an entry.
fn weight(access: &Access) -> usize {
    let line = access.account.entry.as_ref().and_then(|entry| entry.line.as_ref());
    line.map_or(0, |line| {
        let fields =
            [&line.referer, &line.agent].map(|field| field.as_ref().map_or(0, String::len));
        line.method.len() + line.target.len() + fields.iter().sum::<usize>()
    })
}

/// Returns the arrival time of a request that has just ended.
fn begun(access: &Access) -> Time {
    let took = access.account.entry.as_ref().map(|entry| entry.ended.since(entry.begun));
    let took = took.map_or(0, |took| i64::try_from(took.as_nanos()).unwrap_or(0));
    Time::from_nanos(clock::wall().as_nanos() - took)
}

/// Starts the writers.
pub(crate) fn start(serve: &Serve) -> Result<(), String> {
    let level = match serve.log_level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
    };
    let access: Box<dyn Write + Send> =
        match serve.access_log.as_deref() {
            None => Box::new(io::sink()),
            Some(path) if path.as_os_str() == "-" => Box::new(io::stdout()),
            Some(path) => Box::new(open_access_log(path).map_err(|error| {
                format!("cannot open the access log {}: {error}", path.display())
            })?),
        };
    let (messages, message) = Queue::new(MESSAGES);
    let (entries, accesses) = Queue::new(ENTRIES);
    let logger = Logger { level, messages, entries, entries_bytes: AtomicUsize::new(0) };
    LOGGER.set(logger).map_err(|_| "the log is started once".to_string())?;
    let format = serve.log_format.unwrap_or(LogFormat::Text);
    spawn("log", move || write_messages(&message, format))?;
    let format = serve.access_log_format.unwrap_or(AccessFormat::Combined);
    spawn("access-log", move || write_entries(&accesses, format, access))
}

/// Opens the access log. A FIFO that no program reads is an error: its open would wait for one,
/// and no signal would end the server meanwhile.
fn open_access_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).create(true).custom_flags(flags).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Logs a condition that may need attention.
pub(crate) fn warn(target: &'static str, text: String) {
    send(LogMessage { level: Level::Warn, target, text });
}

/// Logs a loss.
pub(crate) fn error(target: &'static str, text: String) {
    send(LogMessage { level: Level::Error, target, text });
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = thread::Builder::new().name(name.to_string()).spawn(run);
    thread.map(|_| ()).map_err(|error| format!("no thread: {error}"))
}

fn send(message: LogMessage) {
    if let Some(logger) = LOGGER.get().filter(|logger| message.level <= logger.level) {
        logger.messages.put(clock::wall(), message);
    }
}

/// Waits until everything is written, but not for a reader that does not read.
pub(crate) fn finish() {
    let Some(logger) = LOGGER.get() else { return };
    logger.entries.finish();
    logger.messages.finish();
}

/// Returns the number of lines dropped since the last call, if any.
fn lost<T>(queue: impl Fn(&Logger) -> &Queue<T>) -> Option<u64> {
    let lost = LOGGER.get().map_or(0, |logger| queue(logger).lost.swap(0, Ordering::Relaxed));
    (lost > 0).then_some(lost)
}

/// Writes messages to standard error.
fn write_messages(lines: &Receiver<Line<LogMessage>>, format: LogFormat) {
    let write = |time, message: &LogMessage| {
        let _ = writeln!(io::stderr(), "{}", message_text(message, format, time));
    };
    while let Ok(line) = lines.recv() {
        match line {
            Line::Event(time, message) => write(time, &message),
            Line::Finish(informed) => drop(informed.send(())),
        }
        if let Some(lost) = lost(|logger| &logger.messages) {
            let text = format!("{lost} messages are missing: they came too fast");
            write(clock::wall(), &LogMessage { level: Level::Warn, target: "log", text });
        }
    }
}

/// Writes the access log. If its disk is full, the server continues without it.
fn write_entries(
    lines: &Receiver<Line<Box<Access>>>,
    format: AccessFormat,
    mut file: Box<dyn Write + Send>,
) {
    let mut gap = Gap::default();
    while let Ok(first) = lines.recv() {
        let (mut text, mut entries, mut informed) = (String::new(), 0, Vec::new());
        for line in std::iter::once(first).chain(lines.try_iter()).take(1000) {
            match line {
                Line::Event(time, access) => {
                    text.push_str(&access_text(&access, format, time));
                    text.push('\n');
                    entries += 1;
                    let bytes = weight(&access);
                    LOGGER.get().map(|it| it.entries_bytes.fetch_sub(bytes, Ordering::Relaxed));
                }
                Line::Finish(waiting) => informed.push(waiting),
            }
            if text.len() >= PIECE {
                break;
            }
        }
        let written = write_lines(&mut file, &text, gap.entries > 0);
        if let Some(message) = gap.note(clock::wall(), entries, written.err()) {
            warn("log", message);
        }
        if let Some(lost) = lost(|logger| &logger.entries) {
            warn("log", format!("{lost} access log entries are missing: they came too fast"));
        }
        for waiting in informed {
            let _ = waiting.send(());
        }
    }
}

/// Writes lines; `after_gap`: the last write may have ended within a line.
fn write_lines(file: &mut impl Write, text: &str, after_gap: bool) -> io::Result<()> {
    if after_gap && !text.is_empty() {
        file.write_all(b"\n")?;
    }
    file.write_all(text.as_bytes())?;
    file.flush()
}

/// Entries of the access log that could not be written.
#[derive(Debug, Default)]
struct Gap {
    entries: u64,
    reported: Option<Time>,
}

/// Size of the text of entries that are written at once, bytes.
const PIECE: usize = 64 << 10;

/// Minimum interval between messages about a failing access log, seconds.
const GAP_SECS: i64 = 60;

impl Gap {
    /// Records a write of entries and its failure; returns a message, if one is due.
    fn note(&mut self, now: Time, entries: u64, failure: Option<io::Error>) -> Option<String> {
        let Some(error) = failure else {
            let lost = std::mem::take(&mut self.entries);
            self.reported = None;
            return (lost > 0 && entries > 0)
                .then(|| format!("the access log is written again: {lost} entries are missing"));
        };
        self.entries += entries;
        if self.reported.is_some_and(|at| now.secs < at.secs + GAP_SECS) {
            return None;
        }
        self.reported = Some(now);
        let lost = self.entries;
        Some(format!("cannot write the access log: {error}; {lost} entries are missing so far"))
    }
}

fn message_text(message: &LogMessage, format: LogFormat, wall: Time) -> String {
    #[derive(Serialize)]
    struct Message<'a> {
        time: &'a str,
        level: &'a str,
        target: &'a str,
        message: &'a str,
    }
    let (time, target) = (rfc3339(wall), message.target);
    let text = &message.text[..message.text.floor_char_boundary(TEXT_MAX)];
    let (level, padded) = match message.level {
        Level::Error => ("error", "ERROR"),
        Level::Warn => ("warn", "WARN "),
        Level::Info => ("info", "INFO "),
    };
    match format {
        LogFormat::Text => format!("{time} {padded} {target}: {}", one_line(text)),
        LogFormat::Json => json(&Message { time: &time, level, target, message: text }),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("words and numbers are JSON")
}

/// Formats an entry of the access log: in the Common or Combined Log Format of Apache's
/// `mod_log_config`, or as JSON.
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

/// Returns the host of an address with its port.
fn host(address: &str) -> String {
    address.parse::<SocketAddr>().map_or(address.to_string(), |it| it.ip().to_string())
}

/// Escapes text between quotes, as Apache does: nothing in it ends the quotes or the line.
fn escaped(text: &str) -> String {
    one_line(&text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Escapes control characters, which could forge lines or hide them on a terminal.
fn one_line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
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

/// Formats a date like `2001-09-09T01:46:40.123Z` (RFC 3339).
fn rfc3339(wall: Time) -> String {
    let (date, months) = parts(wall);
    let [day, month, year, time] = &date;
    let number = months.iter().position(|name| name == month).unwrap_or(0) + 1;
    format!("{year}-{number:02}-{day}T{time}.{:03}Z", wall.nanos / 1_000_000)
}

/// Formats a date like `09/Sep/2001:01:46:40 +0000`.
fn common_date(wall: Time) -> String {
    let ([day, month, year, time], _) = parts(wall);
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Returns day, month, year and time of a date, and the names of months: from a date of HTTP, which
/// has fixed positions (RFC 9110 §5.6.7).
fn parts(wall: Time) -> ([String; 4], [&'static str; 12]) {
    let date = wire::http::date(wall).to_string();
    let part = |span: std::ops::Range<usize>| date[span].to_string();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    ([part(5..7), part(8..11), part(12..16), part(17..25)], months)
}
