//! A client's session on the file `ops` of a service.

use crate::remote::frame::Frame;
use crate::remote::{At, Outcome, Server, Trouble};
use client::{File, OpenOptions};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Timeout of a server beyond that of the operation.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum timeout accepted by servers.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Returns the server of a service, with a timeout of its replies in seconds.
pub(super) fn place(at: &At, service: &str, wait: f64) -> Server {
    let timeout = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
    let server = at.server(timeout.min(WAIT_MAX) + TIMEOUT);
    server.inside(&format!("/services/{service}")).or_say(no_service(service))
}

/// Returns the message for a missing service.
pub(super) fn no_service(name: &str) -> String {
    format!("the server has no service '{name}': 'upcall replica status' shows those that it has")
}

/// The open file.
pub(super) struct OpSession {
    file: File,
    written: u64,
    reply: Vec<u8>,
}

impl OpSession {
    /// Opens it.
    pub(super) fn open(frame: &Frame) -> Outcome<OpSession> {
        let options = OpenOptions::new().read(true).write(true);
        let file = frame.client.open_with(Path::new("/ops"), options)?;
        frame.if_interrupted("the request may still take effect".to_string());
        Ok(OpSession { file, written: 0, reply: Vec::new() })
    }

    /// Sends one operation; returns the reply as text, and parsed.
    pub(super) fn ask(&mut self, op_request: &Value) -> Outcome<(String, Value)> {
        let line = format!("{op_request}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let count = self.file.write_at(rest, self.written)?;
            self.written += count as u64;
            rest = &rest[count..];
        }
        let answer = self.answer()?;
        let parsed = serde_json::from_str(&answer).map_err(|error| {
            Trouble::Host(format!(
                "the server's answer is not JSON: {error}; is it an Upcall server?"
            ))
        })?;
        Ok((answer, parsed))
    }

    /// Returns the value of one operation.
    ///
    /// # Errors
    /// Includes errors reported by the service.
    pub(super) fn value(&mut self, op_request: &Value) -> Outcome<Value> {
        let (_, mut answer) = self.ask(op_request)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(Trouble::Host(error.to_string())),
            None => Ok(answer["value"].take()),
        }
    }

    /// Reads the next line.
    fn answer(&mut self) -> Outcome<String> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(end) = self.reply.iter().position(|byte| *byte == b'\n') {
                let rest = self.reply.split_off(end + 1);
                let line = std::mem::replace(&mut self.reply, rest);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            match self.file.read_at(&mut piece, 0)? {
                0 => {
                    let text = "done or not: the server ends, or is of another version of upcall; \
                                ask again, or another replica";
                    return Err(Trouble::Host(text.to_string()));
                }
                count => self.reply.extend_from_slice(&piece[..count]),
            }
        }
    }
}
