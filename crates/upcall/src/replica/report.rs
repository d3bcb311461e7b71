//! Status of a replica, for programs.

use crate::remote::frame::Frame;
use crate::remote::{Outcome, Trouble};
use replica::data::Kind;
use replica::service::ReplicaId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The required fields of `status.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) kind: Kind,
    pub(super) replica: ReplicaId,
    pub(super) epoch: u64,
    pub(super) settled: bool,
    pub(super) change: Option<Change>,
    pub(super) next_replica: u16,
    pub(super) members: Vec<Member>,
}

/// A membership change in progress.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    pub(super) waits_for: Vec<ReplicaId>,
    pub(super) clash: Option<String>,
}

/// A member.
#[derive(Debug, Deserialize)]
pub(super) struct Member {
    pub(super) replica: ReplicaId,
    pub(super) address: String,
}

impl Report {
    /// Reads the status.
    pub(super) fn read(frame: &Frame) -> Outcome<Report> {
        let text = frame.client.read_file("/status.json")?;
        serde_json::from_slice(&text).map_err(|error| {
            Trouble::Host(format!("the server's status makes no sense: {error}; is it Upcall?"))
        })
    }

    /// Returns the members and their addresses.
    pub(super) fn places(&self) -> BTreeMap<ReplicaId, String> {
        self.members.iter().map(|member| (member.replica, member.address.clone())).collect()
    }
}
