//! The file `peer` of a replica, as opened by the holder of the service's key.

use crate::clock;
use crate::remote::frame::Frame;
use crate::remote::{Outcome, Trouble};
use client::{File, OpenOptions};
use replica::service::ReplicaId;
use services::{CHALLENGE, Introduction, ProofReply, Seals, Settings, VERDICT};
use std::path::Path;

/// Error for a mutual authentication that fails because of another secret.
const NOT_OURS: &str = "the key does not belong to this service; use the one that 'upcall replica \
                        init' created";

/// Opens it, and performs mutual authentication by the secret; returns the keys that authenticate
/// later messages.
pub(super) fn enter(frame: &Frame, key: &Settings, to: ReplicaId) -> Outcome<(File, Seals)> {
    let options = OpenOptions::new().read(true).write(true);
    let peer = frame.client.open_with(Path::new("/peer"), options)?;
    let random = clock::random_bytes()
        .map_err(|error| Trouble::Host(format!("no random number: {error}")))?;
    let introduction = Introduction::new(key, to, &read(&peer, 0, CHALLENGE)?, random);
    peer.write_at(&introduction.proof, 0).map_err(|error| match error.is_denied() {
        true => Trouble::Host(NOT_OURS.to_string()),
        false => Trouble::Server(error),
    })?;
    match introduction.verdicts.judge(&read(&peer, 0, VERDICT)?) {
        Some(ProofReply::Welcome) => Ok((peer, introduction.seals)),
        Some(ProofReply::Farewell) | None => Err(Trouble::Host(NOT_OURS.to_string())),
    }
}

/// Reads up to `most` bytes.
pub(super) fn read(peer: &File, offset: usize, most: usize) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; most];
    let count = peer.read_at(&mut bytes, offset as u64)?;
    bytes.truncate(count);
    Ok(bytes)
}
