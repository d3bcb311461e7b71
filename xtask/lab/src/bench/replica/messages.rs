//! Requests of the clients: operations on our map over HTTP, and Redis commands.

use super::requester::Exchange;
use anyhow::{Context as _, Result, bail, ensure};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of keys, and sizes of a key and of a value, bytes.
pub(super) const KEYS: u64 = 10_000;
pub(super) const KEY: usize = 8;
pub(super) const VALUE: usize = 256;

/// A client's sequence of keys and values: unique within a run, reproducible across runs.
pub(super) struct Draw {
    state: u64,
    letters: [u8; VALUE],
}

impl Draw {
    /// Returns the sequence of the next client.
    fn new() -> Draw {
        static DRAWN: AtomicU64 = AtomicU64::new(1);
        let number = DRAWN.fetch_add(1, Ordering::Relaxed);
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let letters = [(); VALUE].map(|()| b'a' + (next(&mut state) % 26) as u8);
        Draw { state, letters }
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        next(&mut self.state) % end
    }

    /// Returns a value whose first letters are unique: a put always changes something.
    fn value(&mut self) -> &[u8] {
        let first = format!("{:016x}", next(&mut self.state));
        self.letters[..first.len()].copy_from_slice(first.as_bytes());
        &self.letters
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns the text of a key.
fn key(number: u64) -> String {
    format!("k{number:07}")
}

/// Operation on the map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A put of a random key.
    Put,
    /// A put of the next key, from the first on.
    Load,
    /// A get of a random key.
    Get,
    /// A mix: half puts, and operations that do not commute.
    Any,
}

/// Parameters of a client's requests.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    pub(super) action: Operation,
    /// Percentage of strict operations.
    pub(super) strict: u64,
    /// Operations of one request.
    pub(super) lines: u64,
    /// Whether operations have session numbers, which makes them idempotent.
    pub(super) once: bool,
}

/// A client of our replicas.
pub(super) struct Ours {
    service: &'static str,
    way: Parameters,
    draw: Draw,
    session: String,
    /// Number of operations requested.
    requested: u64,
    body: Vec<u8>,
}

impl Ours {
    pub(super) fn new(service: &'static str, client: usize, way: Parameters) -> Ours {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let session = format!("{:016x}{client:016x}", now.as_nanos() & u128::from(u64::MAX));
        let draw = Draw::new();
        Ours { service, way, draw, session, requested: 0, body: Vec::new() }
    }

    /// Appends one operation as a line of JSON.
    fn line(&mut self) {
        let number = match self.way.action {
            Operation::Load => self.requested % KEYS,
            Operation::Put | Operation::Get | Operation::Any => self.draw.below(KEYS),
        };
        let key = key(number);
        let kind = if self.way.action == Operation::Any { self.draw.below(100) } else { 0 };
        let strict = self.draw.below(100) < self.way.strict;
        self.requested += 1;
        let body = &mut self.body;
        let value = str::from_utf8(self.draw.value()).expect("letters");
        let _ = match (self.way.action, kind) {
            (Operation::Get, _) => write!(body, "{{\"op\":{{\"get\":\"{key}\"}}"),
            (_, ..60) => write!(body, "{{\"op\":{{\"put\":[\"{key}\",\"{value}\"]}}"),
            (_, ..70) => write!(body, "{{\"op\":{{\"remove\":\"{key}\"}}"),
            (_, ..85) => write!(body, "{{\"op\":{{\"take\":\"{key}\"}}"),
            (..) => write!(
                body,
                "{{\"op\":{{\"compare-and-put\":{{\"key\":\"{key}\",\"expected\":null,\
                 \"new\":\"{value}\"}}}}"
            ),
        };
        if strict {
            body.extend_from_slice(b",\"strict\":true");
        }
        if self.way.once {
            let _ = write!(body, ",\"session\":\"{}\",\"number\":{}", self.session, self.requested);
        }
        body.extend_from_slice(b"}\n");
    }
}

impl Exchange for Ours {
    fn ask(&mut self, out: &mut Vec<u8>) {
        self.body.clear();
        for _ in 0..self.way.lines {
            self.line();
        }
        let (service, length) = (self.service, self.body.len());
        let _ = write!(
            out,
            "POST /services/{service}/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: \
             {length}\r\n\r\n"
        );
        out.extend_from_slice(&self.body);
    }

    fn check(&mut self, input: &[u8]) -> Result<Option<usize>> {
        let Some(head) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = str::from_utf8(&input[..head])?;
        let code = text.split(' ').nth(1).unwrap_or_default();
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let whole = head + 4 + length.context("an answer has a length")?.parse::<usize>()?;
        let Some(body) = input.get(head + 4..whole) else { return Ok(None) };
        let body = str::from_utf8(body)?;
        ensure!(code == "200", "{code}: {body}");
        let mut lines = 0;
        for line in body.lines() {
            ensure!(line.starts_with("{\"value\":"), "{line}");
            let nothing = line.starts_with("{\"value\":null");
            ensure!(!nothing || self.way.action != Operation::Get, "a key is not there");
            let is_final = self.way.strict < 100 || line.contains("\"final\":true");
            ensure!(is_final, "a strict answer is not final: {line}");
            lines += 1;
        }
        ensure!(lines == self.way.lines, "{lines} answers to {} operations", self.way.lines);
        Ok(Some(whole))
    }

    fn operations(&self) -> u64 {
        self.way.lines
    }
}

/// A client of Redis that sets random keys.
pub(super) struct Redis {
    draw: Draw,
    /// Number of replicas to wait for, if any.
    wait: Option<u8>,
}

impl Redis {
    pub(super) fn new(wait: Option<u8>) -> Redis {
        Redis { draw: Draw::new(), wait }
    }

    /// Returns the expected reply.
    fn answer(&self) -> String {
        let waited = self.wait.map(|replicas| format!(":{replicas}\r\n"));
        format!("+OK\r\n{}", waited.unwrap_or_default())
    }
}

impl Exchange for Redis {
    fn ask(&mut self, out: &mut Vec<u8>) {
        let key = key(self.draw.below(KEYS));
        let _ = write!(out, "*3\r\n$3\r\nSET\r\n${KEY}\r\n{key}\r\n${VALUE}\r\n");
        out.extend_from_slice(self.draw.value());
        out.extend_from_slice(b"\r\n");
        if let Some(replicas) = self.wait {
            let _ = write!(out, "*3\r\n$4\r\nWAIT\r\n$1\r\n{replicas}\r\n$1\r\n0\r\n");
        }
    }

    fn check(&mut self, input: &[u8]) -> Result<Option<usize>> {
        let expected = self.answer();
        if expected.as_bytes() == input {
            return Ok(Some(input.len()));
        }
        if expected.as_bytes().starts_with(input) {
            return Ok(None);
        }
        bail!("unexpected reply of Redis: {}", String::from_utf8_lossy(input))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_ours_is_as_long_as_it_says() {
        let way = Parameters { action: Operation::Any, strict: 50, lines: 40, once: true };
        let mut out = Vec::new();
        Ours::new("m", 3, way).ask(&mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
        for (number, line) in (1..).zip(body.lines()) {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["number"], number);
        }
        for word in ["put", "remove", "take", "compare-and-put", "strict"] {
            assert!(body.contains(word), "{word}");
        }
    }

    #[test]
    fn answers_are_looked_at() {
        let way = Parameters { action: Operation::Get, strict: 100, lines: 1, once: false };
        let mut ours = Ours::new("m", 0, way);
        let mut check = |body: &str, code: u16| {
            let length = body.len();
            let text = format!("HTTP/1.1 {code} X\r\nContent-Length: {length}\r\n\r\n{body}");
            for end in 0..text.len() {
                assert_eq!(ours.check(&text.as_bytes()[..end]).ok().flatten(), None);
            }
            ours.check(text.as_bytes()).ok().flatten() == Some(text.len())
        };
        assert!(check("{\"value\":\"x\",\"final\":true}\n", 200));
        assert!(!check("{\"value\":\"x\",\"final\":false}\n", 200));
        assert!(!check("{\"value\":null,\"final\":true}\n", 200));
        assert!(!check("{\"error\":\"x\"}\n", 503));
        let mut redis = Redis::new(Some(2));
        assert_eq!(redis.check(b"+OK\r\n").ok(), Some(None));
        assert_eq!(redis.check(b"+OK\r\n:2\r\n").ok(), Some(Some(9)));
        assert!(redis.check(b"-ERR").is_err() && redis.check(b"+OK\r\n:1\r\n").is_err());
    }
}
