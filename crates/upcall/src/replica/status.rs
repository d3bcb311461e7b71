//! `upcall replica status`: progress of the replicas of a service.

use super::op_session::no_service;
use crate::remote::frame::{self, Frame};
use crate::remote::{At, Outcome, Trouble};
use clap::Args;
use serde_json::value::RawValue;
use std::process::ExitCode;
use std::time::Duration;

/// Timeout of a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Error of a server without replicas.
const NONE: &str = "the server has no services; serve a replica of one with 'upcall serve \
                    --replica FILE', or name another server with --at";

/// Options of `upcall replica status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    at: At,

    /// Name of the service [default: all services of the server]
    #[arg(value_name = "SERVICE")]
    service: Option<String>,

    /// Print a JSON array with an object for each service
    #[arg(long)]
    json: bool,
}

/// Shows the status.
pub(crate) fn run(status: &Status) -> ExitCode {
    let server = status.at.server(TIMEOUT).inside("/services").or_say(NONE.to_string());
    frame::run(&server, false, |frame| {
        let names = match &status.service {
            Some(service) => vec![service.clone()],
            None => {
                let entries = frame.client.read_dir("/")?;
                let names = entries.map(|entry| Ok(entry?.name.to_string_lossy().into_owned()));
                names.collect::<Result<Vec<_>, client::Error>>()?
            }
        };
        if names.is_empty() {
            return Err(Trouble::Host(NONE.to_string()));
        }
        let file = if status.json { "status.json" } else { "status" };
        let texts =
            names.iter().map(|name| read(frame, name, file)).collect::<Outcome<Vec<_>>>()?;
        match status.json {
            true => frame::say_bytes(&array(&texts)?)?,
            false => frame::say_bytes(&texts.join(&b'\n'))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn read(frame: &Frame, name: &str, file: &str) -> Outcome<Vec<u8>> {
    let text = frame.client.read_file(format!("/{name}/{file}"));
    text.map_err(|error| match error.is_not_found() {
        true => Trouble::Host(no_service(name)),
        false => Trouble::Server(error),
    })
}

/// Returns one JSON array of several values, which are as the server wrote them.
fn array(texts: &[Vec<u8>]) -> Outcome<Vec<u8>> {
    let all: Result<Vec<Box<RawValue>>, serde_json::Error> =
        texts.iter().map(|text| serde_json::from_slice(text)).collect();
    let printed = all.and_then(|all| serde_json::to_vec(&all)).map_err(|error| {
        Trouble::Host(format!("the server's status is not JSON: {error}; is it an Upcall server?"))
    })?;
    Ok([printed, b"\n".to_vec()].concat())
}
