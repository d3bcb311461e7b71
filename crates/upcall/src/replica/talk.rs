//! A service's file `ops`, as a client uses it.

use crate::remote::frame::Frame;
use crate::remote::{At, Outcome, Server, Trouble};
use client::{File, OpenOptions};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How long a server may say nothing, beside the time that it was given.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time that servers give.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Where a service is, for who waits so many seconds for its answers.
pub(super) fn place(at: &At, service: &str, wait: f64) -> Server {
    let patience = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
    let server = at.server(patience.min(WAIT_MAX) + PATIENCE);
    server.inside(&format!("/services/{service}")).or_say(no_service(service))
}

/// What is said if a server does not have a service.
pub(super) fn no_service(name: &str) -> String {
    format!("the server has no service '{name}': 'upcall replica status' shows those that it has")
}

/// The open file.
pub(super) struct Talk {
    file: File,
    written: u64,
    said: Vec<u8>,
}

impl Talk {
    /// Opens it.
    pub(super) fn open(frame: &Frame) -> Outcome<Talk> {
        let options = OpenOptions::new().read(true).write(true);
        let file = frame.client.open_with(Path::new("/ops"), options)?;
        frame.if_interrupted("what was asked for may be done all the same".to_string());
        Ok(Talk { file, written: 0, said: Vec::new() })
    }

    /// Asks one thing; the answer as it was said, and what it says.
    pub(super) fn ask(&mut self, question: &Value) -> Outcome<(String, Value)> {
        let line = format!("{question}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let count = self.file.write_at(rest, self.written)?;
            self.written += count as u64;
            rest = &rest[count..];
        }
        let answer = self.answer()?;
        let parsed = serde_json::from_str(&answer).map_err(|error| {
            Trouble::Host(format!("the server answers what is no JSON: {error}; is it Upcall?"))
        })?;
        Ok((answer, parsed))
    }

    /// The value that is the answer to one operation.
    ///
    /// # Errors
    /// Also what the service says that is wrong.
    pub(super) fn value(&mut self, question: &Value) -> Outcome<Value> {
        let (_, mut answer) = self.ask(question)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(Trouble::Host(error.to_string())),
            None => Ok(answer["value"].take()),
        }
    }

    /// The next line.
    fn answer(&mut self) -> Outcome<String> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
                let rest = self.said.split_off(end + 1);
                let line = std::mem::replace(&mut self.said, rest);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            match self.file.read_at(&mut piece, 0)? {
                0 => {
                    let text = "done or not: the server ends, or is of another version of upcall; \
                                ask again, or another replica";
                    return Err(Trouble::Host(text.to_string()));
                }
                count => self.said.extend_from_slice(&piece[..count]),
            }
        }
    }
}
