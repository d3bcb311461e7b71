//! `upcall replica status`: progress of the replicas of a service.

use super::op_session::no_service;
use crate::remote::frame;
use crate::remote::{At, Trouble};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

/// Timeout of a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `upcall replica status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    at: At,

    /// Name of the service [default: all services of the server]
    #[arg(value_name = "SERVICE")]
    service: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Shows the status.
pub(crate) fn run(status: &Status) -> ExitCode {
    let server = status.at.server(TIMEOUT).inside("/services");
    frame::run(&server, false, |frame| {
        let names = match &status.service {
            Some(service) => vec![service.clone()],
            None => {
                let entries = frame.client.read_dir("/")?;
                let names = entries.map(|entry| Ok(entry?.name.to_string_lossy().into_owned()));
                names.collect::<Result<Vec<_>, client::Error>>()?
            }
        };
        let file = if status.json { "status.json" } else { "status" };
        for (place, name) in names.iter().enumerate() {
            let text = frame.client.read_file(format!("/{name}/{file}"));
            let text = text.map_err(|error| match error.is_not_found() {
                true => Trouble::Host(no_service(name)),
                false => Trouble::Server(error),
            })?;
            frame::emit(if place > 0 && !status.json { "\n" } else { "" })?;
            frame::say_bytes(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
