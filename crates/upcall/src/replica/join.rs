//! `upcall replica join`: adds a replica to an existing service.

use super::op_session::place;
use super::report::Report;
use super::{gate, key};
use crate::remote::frame;
use crate::remote::{At, Trouble};
use crate::size;
use crate::volume::create::Create;
use clap::Args;
use replica::service::ReplicaId;
use services::Settings;
use std::path::PathBuf;
use std::process::ExitCode;

/// Timeout of the server, seconds.
const TIMEOUT: f64 = 30.0;

/// Options of `upcall replica join`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Join {
    /// Key file of the service, created by 'upcall replica init'
    #[arg(value_name = "KEY")]
    key: PathBuf,

    /// 9P address of the server of the new replica, numeric, like 192.0.2.4:5640
    #[arg(value_name = "ADDR")]
    address: String,

    #[command(flatten)]
    at: At,

    /// Directory for the new file NAME.ID.replica
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Maximum size of the file, like 8G or 512M; about a hundredth is allocated at once, and more
    /// as it is filled [default: 16G, or half of the free space if that is less]
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
}

/// Creates it, and prints how to use it.
pub(crate) fn run(join: &Join) -> Result<ExitCode, String> {
    let key = key::read(&join.key)?;
    if services::address(&join.address).is_none() || join.address.ends_with(":0") {
        return Err(format!(
            "'{}' is not a numeric address with a port; use the form 192.0.2.4:5640, or unix:PATH",
            join.address
        ));
    }
    let server = place(&join.at, &key.service, TIMEOUT);
    Ok(frame::run(&server, false, |frame| {
        let report = Report::read(frame)?;
        // A file with another secret could never become a member.
        gate::enter(frame, &key, report.replica)?;
        let mut members = report.places();
        if let Some((id, _)) = members.iter().find(|(_, place)| **place == join.address) {
            let text = format!("{} is where replica {} is: take another one", join.address, id.0);
            return Err(Trouble::Host(text));
        }
        let me = ReplicaId(report.next_replica);
        members.insert(me, join.address.clone());
        let file = join.dir.join(format!("{}.{}.replica", key.service, me.0));
        let settings = Settings { me, members, joins: true, ..key.clone() };
        Create::of_replica(&file, join.size, settings).make().map_err(Trouble::Host)?;
        frame::emit(&super::created(&file, &join.address, ", and it becomes a member"))?;
        Ok(ExitCode::SUCCESS)
    }))
}
