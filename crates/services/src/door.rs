//! What another replica writes to this one: the file `peer`.
//!
//! Who opens it reads a challenge, and writes a proof that it knows the secret of the service and
//! which of its replicas it is. What it writes then is a stream of [letters](crate::Letter), each
//! behind its length; what it reads is what they came to, if that is anything. Neither is
//! encrypted: replicas belong on a network of their own, or in a tunnel.
//!
//! ```text
//!   peer: read ──▶ challenge (32 bytes)
//!   peer: write ◀── replica (2 bytes), random (32 bytes), proof (32 bytes)
//!   peer: read ──▶ verdict: come in, or you are no member any more (32 bytes)
//!   peer: write ◀── length (4 bytes), letter, length, letter …
//!   peer: read, behind the verdict ──▶ length (8 bytes), answer
//! ```
//!
//! Proofs and verdicts are codes that only who knows the secret can make (`proof.rs`).

use crate::proof::{self, Random, VERDICT, Verdict};
use crate::settings::Settings;
use base::Buf;
use replica::service::ReplicaId;

/// How long a letter can be, bytes. One operation always fits.
pub(crate) const MESSAGE_MAX: usize = 4 << 20;

/// The length in front of each letter, bytes.
pub(crate) const HEAD: usize = 4;

/// One open file `peer`.
#[derive(Debug)]
pub(crate) struct Door {
    state: State,
    /// What came and is not a whole message yet.
    input: Buf,
    /// How much of the stream came.
    taken: u64,
    /// What is to be read: a verdict, and behind it an answer.
    said: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Waits for the proof.
    Challenged(Random),
    /// Takes messages of this replica.
    Open(ReplicaId),
    /// What came made no sense: takes no more.
    Shut,
}

/// Why something is not taken; the file is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Door {
    pub(crate) fn new(challenge: Random) -> Door {
        Door {
            state: State::Challenged(challenge),
            input: Buf::default(),
            taken: 0,
            said: Vec::new(),
        }
    }

    /// What is to be read now: a challenge, or else the verdict and the answer; nothing any more
    /// when it is shut.
    pub(crate) fn said(&self) -> Option<&[u8]> {
        match &self.state {
            State::Challenged(challenge) => Some(challenge),
            State::Open(_) => Some(&self.said),
            State::Shut => None,
        }
    }

    /// Whether there is an answer to what was written.
    pub(crate) fn is_answered(&self) -> bool {
        self.said.len() > VERDICT
    }

    /// This is the answer to what was written.
    pub(crate) fn answer(&mut self, answer: &[u8]) {
        self.said.extend_from_slice(&(answer.len() as u64).to_le_bytes());
        self.said.extend_from_slice(answer);
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

    /// Takes what is written; then, who has come in, if somebody did. What that one is told is the
    /// verdict of `judge`.
    ///
    /// # Errors
    /// If that is no proof, or is not the next of the stream.
    pub(crate) fn write(
        &mut self,
        settings: &Settings,
        (offset, data): (u64, &[u8]),
        judge: impl FnOnce(ReplicaId) -> Verdict,
    ) -> Result<Option<ReplicaId>, Refused> {
        let came = match &self.state {
            State::Challenged(challenge) => match proof::check(settings, challenge, data) {
                Some((peer, random)) => {
                    let to = (peer, &random);
                    self.said = proof::verdict(settings, challenge, to, judge(peer)).to_vec();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::lab::settings;
    use crate::proof::{CHALLENGE, Introduction};

    const CHALLENGED: Random = [7; CHALLENGE];

    /// A door, and what was proved there.
    fn open(verdict: Verdict) -> (Door, Introduction) {
        let theirs = Settings { me: ReplicaId(2), ..settings() };
        let introduction = Introduction::new(&theirs, settings().me, &CHALLENGED, [1; CHALLENGE]);
        let mut door = Door::new(CHALLENGED);
        assert_eq!(door.said(), Some(&CHALLENGED[..]));
        let entered = door.write(&settings(), (0, &introduction.proof), |_| verdict);
        assert_eq!(entered, Ok(Some(ReplicaId(2))));
        (door, introduction)
    }

    fn write(door: &mut Door, offset: u64, data: &[u8]) -> Result<Option<ReplicaId>, Refused> {
        door.write(&settings(), (offset, data), |peer| panic!("{peer:?} is in"))
    }

    #[test]
    fn who_proves_nothing_is_shut_out() {
        let mut door = Door::new(CHALLENGED);
        assert_eq!(write(&mut door, 0, b"let me in"), Err(Refused));
        assert_eq!((door.peer(), door.said()), (None, None));
    }

    #[test]
    fn behind_the_verdict_is_one_answer() {
        for verdict in [Verdict::Welcome, Verdict::Farewell] {
            let (mut door, introduction) = open(verdict);
            assert_eq!(introduction.verdicts.judge(door.said().expect("open")), Some(verdict));
            assert!(!door.is_answered());
            door.answer(b"yes");
            assert!(door.is_answered());
            assert_eq!(door.said().expect("open")[VERDICT..], *b"\x03\0\0\0\0\0\0\0yes");
        }
    }

    #[test]
    fn a_stream_comes_apart_anywhere_and_has_no_gaps() {
        let open = || open(Verdict::Welcome).0;
        let stream: Vec<u8> = [&b"ab"[..], b"", b"cde"]
            .iter()
            .flat_map(|it| [&(it.len() as u32).to_le_bytes()[..], it].concat())
            .collect();
        for cut in 0..stream.len() {
            let (mut door, mut came) = (open(), Vec::new());
            for (offset, part) in [(0, &stream[..cut]), (cut, &stream[cut..])] {
                assert_eq!(write(&mut door, offset as u64, part), Ok(None));
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
                assert_eq!(write(&mut door, offset, part), Ok(None));
                offset += part.len() as u64;
                while let Ok(Some(_)) = door.next() {}
            }
        }
        assert!(door.input.capacity() < 4 * some.len(), "{} bytes", door.input.capacity());
        let mut door = open();
        assert_eq!(write(&mut door, 1, b"x"), Err(Refused));
        assert_eq!(write(&mut door, 0, b"x"), Err(Refused), "it was shut");
        let mut door = open();
        assert_eq!(write(&mut door, 0, &u32::MAX.to_le_bytes()), Ok(None));
        assert_eq!(door.next(), Err(Refused));
    }
}
