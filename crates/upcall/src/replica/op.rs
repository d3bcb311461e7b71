//! `upcall op`: operations on a replicated service.

use super::op_session::{OpSession, WAIT_MAX, place};
use crate::remote::frame::{self, Frame, Input};
use crate::remote::{At, Outcome, Trouble};
use crate::units;
use clap::Args;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;

/// Options of `upcall op`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Operation {
    #[command(flatten)]
    at: At,

    /// Name of the service
    #[arg(value_name = "SERVICE")]
    service: String,

    /// Operation, in words: 'add 5', 'put KEY VALUE', or in JSON [default: read standard input, one
    /// operation per line]. The first invalid operation lists all valid ones
    #[arg(value_name = "OP", allow_negative_numbers = true)]
    words: Vec<String>,

    /// Wait for a reply consistent with the final order of operations on all replicas
    #[arg(long)]
    strict: bool,

    /// Order the operation after all those covered by this token, from a reply with --json
    #[arg(long, value_name = "TOKEN")]
    after: Option<String>,

    /// Maximum time to wait for a reply: 5s, 500ms, 2m, or seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    wait: f64,

    /// Apply the operation exactly once, even if it is repeated at any replica with this session
    /// (up to 32 random hexadecimal digits, 0 to f) and number (from 1; for several operations,
    /// that of the first)
    #[arg(long, value_names = ["SESSION", "NUMBER"], num_args = 2)]
    once: Vec<String>,

    /// Print replies as JSON, one per line: value, final, token
    #[arg(long)]
    json: bool,
}

/// Parses a timeout for a server, s.
fn seconds(text: &str) -> Result<f64, String> {
    let long = units::time(text)?;
    match long <= WAIT_MAX {
        true => Ok(long.as_secs_f64()),
        false => Err(format!("write a time of at most {} seconds", WAIT_MAX.as_secs())),
    }
}

/// Runs the command.
pub(crate) fn run(operation: &Operation) -> ExitCode {
    let server = place(&operation.at, &operation.service, operation.wait);
    frame::run(&server, false, |frame| {
        let mut op_session = OpSession::open(frame)?;
        if operation.words.is_empty() {
            return every_line(frame, operation, &mut op_session);
        }
        one(operation, &mut op_session, &operation.words, (0, None))
    })
}

/// Performs the operation of each line of standard input.
fn every_line(
    frame: &Frame,
    operation: &Operation,
    op_session: &mut OpSession,
) -> Outcome<ExitCode> {
    let (mut code, mut place) = (ExitCode::SUCCESS, 0);
    for (number, line) in (1..).zip(BufReader::new(Input(frame)).lines()) {
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
        if one(operation, op_session, &words, (place, Some(number)))? != ExitCode::SUCCESS {
            code = ExitCode::from(1);
        }
        place += 1;
    }
    Ok(code)
}

/// Performs one operation, the `place`-th, of this line of standard input, and shows its reply;
/// returns whether there was one as the exit code.
fn one(
    operation: &Operation,
    op_session: &mut OpSession,
    words: &[String],
    (place, line_number): (u64, Option<u64>),
) -> Outcome<ExitCode> {
    let (line, answer) = op_session.ask(&op_request(operation, words, place)?)?;
    let error = answer.get("error").and_then(Value::as_str);
    if operation.json {
        frame::emit(&line)?;
    } else if let Some(error) = error {
        let at = line_number.map_or(String::new(), |number| format!("line {number}: "));
        // It may have several lines, and is no name of others.
        err_line!("upcall: {at}{error}");
    } else {
        if let Some(value) = value(&answer) {
            frame::emit(&format!("{value}\n"))?;
        }
        if let Some(status) = status(&answer) {
            err_line!("{status}");
        }
    }
    Ok(if error.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Returns an operation in the server's format.
fn op_request(operation: &Operation, words: &[String], place: u64) -> Outcome<Value> {
    let op = match serde_json::from_str::<Value>(&words.join(" ")) {
        Ok(op @ (Value::Object(_) | Value::String(_))) => op,
        Ok(_) | Err(_) => Value::from(words.to_vec()),
    };
    let mut requested = json!({ "op": op, "timeout": operation.wait });
    if operation.strict {
        requested["strict"] = Value::from(true);
    }
    if let Some(token) = &operation.after {
        requested["after"] = Value::from(token.as_str());
    }
    if let [session, number] = &operation.once[..] {
        let first = number.parse::<u64>().map_err(|_| {
            Trouble::Host(format!("--once: '{number}' is no number; count from 1 on"))
        })?;
        requested["session"] = Value::from(session.as_str());
        requested["number"] = Value::from(first.saturating_add(place));
    }
    Ok(requested)
}

/// Returns the value of a reply, for standard output; `None` if the operation has none.
fn value(answer: &Value) -> Option<String> {
    match &answer["value"] {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        Value::Object(object) if object.contains_key("done") => None,
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        }
    }
}

/// Returns the status of a reply, for standard error; `None` for a final value.
fn status(answer: &Value) -> Option<&'static str> {
    let is_final = answer["final"] == true;
    match (&answer["value"], is_final) {
        (Value::Null, true) => Some("(nothing)"),
        (Value::Null, false) => Some("(nothing, not final yet)"),
        (Value::Object(object), true) if object.contains_key("done") => Some("done"),
        (Value::Object(object), false) if object.contains_key("done") => {
            Some("done (not final yet)")
        }
        (_, true) => None,
        (_, false) => Some("(not final yet)"),
    }
}

#[cfg(test)]
mod tests {
    use super::{seconds, status, value};
    use serde_json::json;

    #[test]
    fn values_and_status_are_apart() {
        for (answer, bare, note) in [
            (json!({"value": 5, "final": true}), Some("5"), None),
            (json!({"value": 5, "final": false}), Some("5"), Some("(not final yet)")),
            (json!({"value": "a b", "final": true}), Some("a b"), None),
            (json!({"value": null, "final": true}), None, Some("(nothing)")),
            (json!({"value": {"done": true}, "final": true}), None, Some("done")),
            (json!({"value": {"done": true}}), None, Some("done (not final yet)")),
            (json!({"value": [1, 2], "final": true}), Some("[1,2]"), None),
        ] {
            assert_eq!((value(&answer).as_deref(), status(&answer)), (bare, note), "{answer}");
        }
    }

    #[test]
    fn the_longest_wait_is_an_hour() {
        assert_eq!((seconds("500ms"), seconds("2"), seconds("1h")), (Ok(0.5), Ok(2.0), Ok(3600.0)));
        assert!(seconds("61m").is_err_and(|error| error.contains("3600 seconds")));
    }
}
