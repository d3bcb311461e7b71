//! Replicated services: whole servers, each with a replica of one service, in one world.
//!
//! Servers lose power, crash, freeze and are partitioned from each other, one way or both; their
//! disks lose unflushed data, and fail. In every third run one more joins as a member meanwhile,
//! and in every fourth one leaves. Clients, which no replica trusts, write lines to
//! `/services/NAME/ops` and read replies; they move from one replica to another, and retransmit
//! unanswered operations. A ledger records all operations and replies. When all troubles are over
//! all replicas are inspected: they are equal, every acknowledged operation is there exactly once,
//! final replies are those of the resulting order, and no state is kept for any client.

mod administrator;
mod bystander;
pub mod canary;
mod cluster;
mod data;
pub mod hunt;
mod judge;
mod ledger;
mod op_client;
pub mod params;
mod site;
mod stream;
mod surveyor;
#[cfg(test)]
mod tests;
mod witness;

pub use params::Params;

use crate::run::Outcome;
use crate::trace::Show;

/// Runs a seed; panics on any failure.
pub fn run(params: &Params, show: Show) -> Outcome {
    cluster::run(params, show)
}
