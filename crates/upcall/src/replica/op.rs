//! `upcall op`: operations on a replicated service.

use super::talk::{Talk, WAIT_MAX, place};
use crate::remote::frame::{self, Frame, Input};
use crate::remote::{At, Outcome, Trouble};
use clap::Args;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;

/// What is to be done.
#[derive(Args, Clone, Debug)]
pub(crate) struct Operation {
    #[command(flatten)]
    at: At,

    /// The service
    #[arg(value_name = "SERVICE")]
    service: String,

    /// The operation, in words: 'add 5', 'put KEY VALUE', or in JSON; none: one a line from
    /// standard input. The first wrong one shows all that there are
    #[arg(value_name = "OP", allow_negative_numbers = true)]
    words: Vec<String>,

    /// Wait for an answer that agrees with the order which all replicas will have in the end
    #[arg(long)]
    strict: bool,

    /// Do it behind all that this token has seen: it is in the answers with --json
    #[arg(long, value_name = "TOKEN")]
    after: Option<String>,

    /// How long to wait for an answer, seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    wait: f64,

    /// Do it once, however often and at whichever replica it is asked for with this session (up to
    /// 32 of the digits 0 to f, drawn at random) and number (from 1 on; of several operations, that
    /// of the first)
    #[arg(long, value_names = ["SESSION", "NUMBER"], num_args = 2)]
    once: Vec<String>,

    /// Write answers as JSON, a line each: value, final, token
    #[arg(long)]
    json: bool,
}

/// Seconds that a server may be given.
fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || "write seconds, from 0 to 3600".to_string();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=WAIT_MAX.as_secs_f64()).contains(&seconds) { Ok(seconds) } else { Err(wrong()) }
}

/// Does it.
pub(crate) fn run(operation: &Operation) -> ExitCode {
    let server = place(&operation.at, &operation.service, operation.wait);
    frame::run(&server, false, |frame| {
        let mut talk = Talk::open(frame)?;
        if operation.words.is_empty() {
            return every_line(frame, operation, &mut talk);
        }
        one(operation, &mut talk, &operation.words, 0)
    })
}

/// Does what each line of standard input says.
fn every_line(frame: &Frame, operation: &Operation, talk: &mut Talk) -> Outcome<ExitCode> {
    let (mut code, mut place) = (ExitCode::SUCCESS, 0);
    for line in BufReader::new(Input(frame)).lines() {
        let text = line.map_err(|error| {
            Trouble::Host(format!("cannot read standard input: {error}; send lines of text"))
        })?;
        let words: Vec<String> = match text.trim_start().starts_with('{') {
            true => vec![text],
            false => text.split_whitespace().map(str::to_string).collect(),
        };
        if words.is_empty() {
            continue;
        }
        if one(operation, talk, &words, place)? != ExitCode::SUCCESS {
            code = ExitCode::from(1);
        }
        place += 1;
    }
    Ok(code)
}

/// Asks for one operation, the one at this place, and shows its answer; the exit code says whether
/// there was one.
fn one(operation: &Operation, talk: &mut Talk, words: &[String], place: u64) -> Outcome<ExitCode> {
    let (line, answer) = talk.ask(&question(operation, words, place)?)?;
    let error = answer.get("error").and_then(Value::as_str);
    if operation.json {
        frame::say(&line)?;
    } else if let Some(error) = error {
        frame::note(&Trouble::Host(error.to_string()));
    } else {
        frame::say(&show(&answer))?;
    }
    Ok(if error.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// An operation as the server wants to hear it.
fn question(operation: &Operation, words: &[String], place: u64) -> Outcome<Value> {
    let op = match serde_json::from_str::<Value>(&words.join(" ")) {
        Ok(op @ (Value::Object(_) | Value::String(_))) => op,
        Ok(_) | Err(_) => Value::from(words.to_vec()),
    };
    let mut asked = json!({ "op": op, "timeout": operation.wait });
    if operation.strict {
        asked["strict"] = Value::from(true);
    }
    if let Some(token) = &operation.after {
        asked["after"] = Value::from(token.as_str());
    }
    if let [session, number] = &operation.once[..] {
        let first = number.parse::<u64>().map_err(|_| {
            Trouble::Host(format!("--once: '{number}' is no number; count from 1 on"))
        })?;
        asked["session"] = Value::from(session.as_str());
        asked["number"] = Value::from(first.saturating_add(place));
    }
    Ok(asked)
}

/// An answer for people: the value, and whether it may yet change.
fn show(answer: &Value) -> String {
    let value = match &answer["value"] {
        Value::String(text) => text.clone(),
        Value::Null => "(nothing)".to_string(),
        Value::Object(object) if object.contains_key("done") => "done".to_string(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    let note = if answer["final"] == true { "" } else { "  (not final yet)" };
    format!("{value}{note}\n")
}
