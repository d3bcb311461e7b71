//! What another replica writes to this one: the file `peer`.
//!
//! Who opens it reads a challenge, and writes a proof that it knows the secret of the service and
//! which of its replicas it is. What it writes then is a stream of [letters](crate::Letter), each
//! behind its length; what it reads is what they came to, if that is anything. Neither is
//! encrypted: replicas belong on a network of their own, or in a tunnel.
//!
//! ```text
//!   peer: read ──▶ challenge (32 bytes)
//!   peer: write ◀── replica (2 bytes), HMAC-SHA256(secret, challenge, service, from, to)
//!   peer: write ◀── length (4 bytes), message, length, message …
//! ```

use crate::settings::{Secret, Settings};
use base::Buf;
use hmac::{Hmac, Mac};
use replica::service::ReplicaId;
use sha2::Sha256;

/// How long a challenge is, bytes.
pub const CHALLENGE: usize = 32;

/// How long a message can be, bytes. One operation always fits.
pub(crate) const MESSAGE_MAX: usize = 4 << 20;

/// The length in front of each message, bytes.
pub(crate) const HEAD: usize = 4;

/// Names what the code is for: no other use of the secret says this.
const PURPOSE: &[u8] = b"upcall replica 2";

/// One open file `peer`.
#[derive(Debug)]
pub(crate) struct Door {
    state: State,
    /// What came and is not a whole message yet.
    input: Buf,
    /// How much of the stream came.
    taken: u64,
    /// What is to be read.
    said: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Waits for the proof.
    Challenged([u8; CHALLENGE]),
    /// Takes messages of this replica.
    Open(ReplicaId),
    /// What came made no sense: takes no more.
    Shut,
}

/// Why something is not taken; the file is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Door {
    pub(crate) fn new(challenge: [u8; CHALLENGE]) -> Door {
        Door {
            state: State::Challenged(challenge),
            input: Buf::default(),
            taken: 0,
            said: Vec::new(),
        }
    }

    /// What is to be read, once it is known who writes.
    pub(crate) fn said(&self) -> &[u8] {
        &self.said
    }

    /// This is to be read.
    pub(crate) fn say(&mut self, said: Vec<u8>) {
        self.said = said;
    }

    /// What is to be proved, as long as nothing is.
    pub(crate) fn challenge(&self) -> Option<&[u8; CHALLENGE]> {
        match &self.state {
            State::Challenged(challenge) => Some(challenge),
            State::Open(_) | State::Shut => None,
        }
    }

    /// Who writes, if it has proved that.
    pub(crate) fn peer(&self) -> Option<ReplicaId> {
        match &self.state {
            State::Open(peer) => Some(*peer),
            State::Challenged(_) | State::Shut => None,
        }
    }

    /// Takes no more.
    pub(crate) fn shut(&mut self) {
        (self.state, self.input, self.said) = (State::Shut, Buf::default(), Vec::new());
    }

    /// Takes what is written; then, who has come in, if somebody did.
    ///
    /// # Errors
    /// If that is no proof, or is not the next of the stream.
    pub(crate) fn write(
        &mut self,
        settings: &Settings,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<ReplicaId>, Refused> {
        let came = match &self.state {
            State::Challenged(challenge) => match check(settings, challenge, data) {
                Some(peer) => {
                    self.state = State::Open(peer);
                    return Ok(Some(peer));
                }
                None => false,
            },
            // A stream begins anew at each door.
            State::Open(_) if offset == self.taken => {
                self.input.extend(data);
                self.taken += data.len() as u64;
                true
            }
            State::Open(_) | State::Shut => false,
        };
        if came {
            return Ok(None);
        }
        self.shut();
        Err(Refused)
    }

    /// The next whole message that came.
    ///
    /// # Errors
    /// If it is longer than messages are.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        let Some((head, rest)) = self.input.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MESSAGE_MAX {
            self.shut();
            return Err(Refused);
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.input.consume(HEAD + length);
        self.input.shrink();
        Ok(Some(message))
    }
}

/// Proves to `to` that we are who we are.
pub fn proof(settings: &Settings, to: ReplicaId, challenge: &[u8]) -> Vec<u8> {
    let code = mac(&settings.secret, challenge, &settings.service, settings.me, to);
    let mut proof = settings.me.0.to_le_bytes().to_vec();
    proof.extend_from_slice(&code.finalize().into_bytes());
    proof
}

/// Who has proved to be that: that it knows the secret. Who that is now, the members say.
fn check(settings: &Settings, challenge: &[u8], proof: &[u8]) -> Option<ReplicaId> {
    let (from, code) = proof.split_first_chunk::<2>()?;
    let from = ReplicaId(u16::from_le_bytes(*from));
    let expected = mac(&settings.secret, challenge, &settings.service, from, settings.me);
    (expected.verify_slice(code).is_ok() && from != settings.me).then_some(from)
}

fn mac(
    secret: &Secret,
    challenge: &[u8],
    service: &str,
    from: ReplicaId,
    to: ReplicaId,
) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("any length is a key");
    for part in [PURPOSE, challenge, service.as_bytes()] {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.update(&from.0.to_le_bytes());
    mac.update(&to.0.to_le_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn settings(me: u16, secret: u8) -> Settings {
        let members = [1, 2].map(|id| (ReplicaId(id), String::new()));
        Settings {
            version: crate::settings::VERSION,
            id: 1,
            service: "hits".to_string(),
            kind: replica::data::Kind::Counter,
            me: ReplicaId(me),
            members: BTreeMap::from(members),
            joins: false,
            secret: Secret([secret; 32]),
        }
    }

    #[test]
    fn who_knows_the_secret_comes_in_and_nobody_else() {
        let challenge = [7; CHALLENGE];
        let to = settings(1, 5);
        let right = proof(&settings(2, 5), ReplicaId(1), &challenge);
        let enter = |proof: &[u8]| Door::new(challenge).write(&to, 0, proof);
        assert_eq!(enter(&right), Ok(Some(ReplicaId(2))));
        // Another secret, another challenge, another receiver, our own number, no proof.
        for wrong in [
            proof(&settings(2, 6), ReplicaId(1), &challenge),
            proof(&settings(2, 5), ReplicaId(1), &[8; CHALLENGE]),
            proof(&settings(2, 5), ReplicaId(2), &challenge),
            proof(&settings(1, 5), ReplicaId(1), &challenge),
            right[..right.len() - 1].to_vec(),
            Vec::new(),
        ] {
            assert_eq!(enter(&wrong), Err(Refused), "{wrong:?}");
        }
    }

    #[test]
    fn a_stream_comes_apart_anywhere_and_has_no_gaps() {
        let (challenge, to) = ([7; CHALLENGE], settings(1, 5));
        let open = || {
            let mut door = Door::new(challenge);
            let proof = proof(&settings(2, 5), ReplicaId(1), &challenge);
            assert_eq!(door.write(&to, 0, &proof), Ok(Some(ReplicaId(2))));
            door
        };
        let stream: Vec<u8> = [&b"ab"[..], b"", b"cde"]
            .iter()
            .flat_map(|it| [&(it.len() as u32).to_le_bytes()[..], it].concat())
            .collect();
        for cut in 0..stream.len() {
            let (mut door, mut came) = (open(), Vec::new());
            for (offset, part) in [(0, &stream[..cut]), (cut, &stream[cut..])] {
                assert_eq!(door.write(&to, offset as u64, part), Ok(None));
                while let Ok(Some(message)) = door.next() {
                    came.push(message);
                }
            }
            assert_eq!(came, [&b"ab"[..], b"", b"cde"]);
        }
        // However much comes, only what is not taken is kept.
        let (mut door, mut offset) = (open(), 0);
        let some = stream.repeat(20);
        for _ in 0..1000 {
            // The last byte of one write comes with the next: the buffer is never empty.
            let cut = some.len() - 1;
            for part in [&some[..cut], &some[cut..]] {
                assert_eq!(door.write(&to, offset, part), Ok(None));
                offset += part.len() as u64;
                while let Ok(Some(_)) = door.next() {}
            }
        }
        assert!(door.input.capacity() < 4 * some.len(), "{} bytes", door.input.capacity());
        let mut door = open();
        assert_eq!(door.write(&to, 1, b"x"), Err(Refused));
        assert_eq!(door.write(&to, 0, b"x"), Err(Refused), "it was shut");
        let mut door = open();
        assert_eq!(door.write(&to, 0, &u32::MAX.to_le_bytes()), Ok(None));
        assert_eq!(door.next(), Err(Refused));
    }
}
