//! `upcall op`: operations on a replicated service.

use crate::remote::frame::{self, Frame, Input};
use crate::remote::{At, Outcome, Trouble};
use clap::Args;
use client::{File, OpenOptions};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long a server may say nothing, beside the time that it was given.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time that servers give.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// What is to be done.
#[derive(Args, Clone, Debug)]
pub(crate) struct Operation {
    #[command(flatten)]
    at: At,

    /// The service
    #[arg(value_name = "SERVICE")]
    service: String,

    /// The operation, in words: 'add 5', 'put KEY VALUE', or in JSON; none: one a line from
    /// standard input. A wrong one shows all that there are
    #[arg(value_name = "OP", allow_negative_numbers = true)]
    words: Vec<String>,

    /// Wait for an answer that agrees with the order which all replicas will have in the end
    #[arg(long)]
    strict: bool,

    /// Do it behind all that this token has seen: it is in the answers with --json
    #[arg(long, value_name = "TOKEN")]
    after: Option<String>,

    /// How long to wait for an answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    wait: f64,

    /// Write answers as JSON, a line each: value, final, token
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) fn run(operation: &Operation) -> ExitCode {
    let patience = Duration::try_from_secs_f64(operation.wait).unwrap_or(Duration::MAX);
    let patience = patience.min(WAIT_MAX) + PATIENCE;
    let server = operation.at.server(patience).inside(&format!("/services/{}", operation.service));
    frame::run(&server, false, |frame| {
        let options = OpenOptions::new().read(true).write(true);
        let file = frame.client.open_with(Path::new("/ops"), options)?;
        let mut talk = Talk { file, written: 0, said: Vec::new() };
        frame.if_interrupted("what was asked for may be done all the same".to_string());
        if !operation.words.is_empty() {
            let line = line(operation, &operation.words);
            return talk.ask(operation, &line);
        }
        every_line(frame, operation, &mut talk)
    })
}

/// Does what each line of standard input says.
fn every_line(frame: &Frame, operation: &Operation, talk: &mut Talk) -> Outcome<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for line in BufReader::new(Input(frame)).lines() {
        let text = line.map_err(|error| {
            Trouble::Host(format!("cannot read standard input: {error}; send lines of text"))
        })?;
        let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        if !words.is_empty() && talk.ask(operation, &self::line(operation, &words))? != code {
            code = ExitCode::from(1);
        }
    }
    Ok(code)
}

/// An operation as the server wants to hear it.
fn line(operation: &Operation, words: &[String]) -> String {
    let text = words.join(" ");
    let op = match serde_json::from_str::<Value>(&text) {
        Ok(op @ Value::Object(_)) => op,
        Ok(_) | Err(_) => Value::from(words.to_vec()),
    };
    let mut asked = serde_json::json!({ "op": op, "timeout": operation.wait });
    if operation.strict {
        asked["strict"] = Value::from(true);
    }
    if let Some(token) = &operation.after {
        asked["after"] = Value::from(token.as_str());
    }
    format!("{asked}\n")
}

/// The open file.
struct Talk {
    file: File,
    written: u64,
    said: Vec<u8>,
}

impl Talk {
    /// Asks for one operation and shows its answer; the exit code says whether there was one.
    fn ask(&mut self, operation: &Operation, line: &str) -> Outcome<ExitCode> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let count = self.file.write_at(rest, self.written)?;
            self.written += count as u64;
            rest = &rest[count..];
        }
        let answer = self.answer()?;
        let parsed: Value = serde_json::from_str(&answer).map_err(|error| {
            Trouble::Host(format!("the server answers what is no JSON: {error}; is it Upcall?"))
        })?;
        let error = parsed.get("error").and_then(Value::as_str);
        if operation.json {
            frame::say(&answer)?;
        } else if let Some(error) = error {
            frame::note(&Trouble::Host(error.to_string()));
        } else {
            frame::say(&show(&parsed))?;
        }
        Ok(if error.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
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
                    let text = "the server gave no answer; is it another version of upcall?";
                    return Err(Trouble::Host(text.to_string()));
                }
                count => self.said.extend_from_slice(&piece[..count]),
            }
        }
    }
}

/// An answer for people: the value, and whether it may yet change.
fn show(answer: &Value) -> String {
    let value = match &answer["value"] {
        Value::String(text) => text.clone(),
        Value::Null => "(nothing)".to_string(),
        Value::Object(object) if object.contains_key("done") => "done".to_string(),
        other => other.to_string(),
    };
    let note = if answer["final"] == Value::from(true) { "" } else { "  (not final yet)" };
    format!("{value}{note}\n")
}
