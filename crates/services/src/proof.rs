//! Mutual proof of both ends of a link that they know the secret of the service.
//!
//! Each end sends random bytes. Each proof covers the random bytes of both, its own meaning, its
//! sender and its receiver: it is valid for nothing else and never again.

use crate::seal::Seal;
use crate::settings::Settings;
use hmac::{Hmac, Mac};
use replica::service::ReplicaId;
use sha2::Sha256;

/// Length of a challenge, in bytes.
pub const CHALLENGE: usize = 32;

/// Length of a verdict, in bytes.
pub const VERDICT: usize = 32;

/// Random bytes of one end.
pub(crate) type Random = [u8; CHALLENGE];

/// Reply of the server side to a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofReply {
    /// The peer is admitted.
    Welcome,
    /// The peer is no longer a member.
    Farewell,
}

/// Client side of the proof.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// Bytes to write.
    pub proof: Vec<u8>,
    /// Possible replies.
    pub verdicts: ProofReplies,
    /// Keys for the messages that follow.
    pub seals: Seals,
}

/// Message authentication keys of a connection, at one end.
#[derive(Clone, Debug)]
pub struct Seals {
    /// Key for messages sent by this end.
    pub ours: Seal,
    /// Key for messages sent by the other end.
    pub theirs: Seal,
}

impl Seals {
    /// Returns the keys of `me` on a connection with `to`, after both have sent their random bytes.
    fn new(settings: &Settings, both: Nonces<'_>, (me, to): (ReplicaId, ReplicaId)) -> Seals {
        let seal = |from, to| {
            Seal::new(
                code(settings, ProofPurpose::Key, both, (from, to)).finalize().into_bytes().into(),
            )
        };
        Seals { ours: seal(me, to), theirs: seal(to, me) }
    }
}

/// Authentic replies of the server side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofReplies {
    welcome: [u8; VERDICT],
    farewell: [u8; VERDICT],
}

/// Meaning of an authentication code. The secret is used for nothing else.
#[derive(Clone, Copy)]
enum ProofPurpose {
    IAm,
    ProofReply(ProofReply),
    /// Key for messages from the first replica to the second.
    Key,
}

impl ProofPurpose {
    fn text(self) -> &'static [u8] {
        match self {
            ProofPurpose::IAm => b"upcall replica 4: I am",
            ProofPurpose::ProofReply(ProofReply::Welcome) => b"upcall replica 4: welcome",
            ProofPurpose::Key => b"upcall replica 4: key",
            ProofPurpose::ProofReply(ProofReply::Farewell) => b"upcall replica 4: farewell",
        }
    }
}

/// Random bytes of both ends.
#[derive(Clone, Copy)]
struct Nonces<'a> {
    challenge: &'a [u8],
    random: &'a Random,
}

impl Introduction {
    /// Creates the introduction of the replica with these settings to `to`, which has sent this
    /// challenge. `random` must not be reused.
    pub fn new(
        settings: &Settings,
        to: ReplicaId,
        challenge: &[u8],
        random: [u8; CHALLENGE],
    ) -> Introduction {
        let both = Nonces { challenge, random: &random };
        let me = settings.me;
        let verdict = |it| code(settings, ProofPurpose::ProofReply(it), both, (to, me)).finalize();
        let mac = code(settings, ProofPurpose::IAm, both, (me, to)).finalize().into_bytes();
        let verdicts = ProofReplies {
            welcome: verdict(ProofReply::Welcome).into_bytes().into(),
            farewell: verdict(ProofReply::Farewell).into_bytes().into(),
        };
        let seals = Seals::new(settings, both, (me, to));
        Introduction { proof: [&me.0.to_le_bytes()[..], &random, &mac].concat(), verdicts, seals }
    }
}

impl ProofReplies {
    /// Identifies a received verdict: `None` if its sender does not know the secret. (A timing
    /// attack gains nothing, as no verdict is valid twice.)
    pub fn judge(&self, reply: &[u8]) -> Option<ProofReply> {
        let is = |verdict: &[u8; VERDICT]| reply == verdict;
        match (is(&self.welcome), is(&self.farewell)) {
            (true, _) => Some(ProofReply::Welcome),
            (false, true) => Some(ProofReply::Farewell),
            (false, false) => None,
        }
    }
}

/// Verifies a proof against our challenge. Returns the proven identity, and the peer's random
/// bytes. The role of that identity depends on the membership.
pub(crate) fn check(
    settings: &Settings,
    challenge: &Random,
    proof: &[u8],
) -> Option<(ReplicaId, Random)> {
    let (from, rest) = proof.split_first_chunk::<2>()?;
    let (random, mac) = rest.split_first_chunk::<CHALLENGE>()?;
    let from = ReplicaId(u16::from_le_bytes(*from));
    let both = Nonces { challenge, random };
    let expected = code(settings, ProofPurpose::IAm, both, (from, settings.me));
    let is_right = expected.verify_slice(mac).is_ok() && from != settings.me;
    is_right.then_some((from, *random))
}

/// Returns the keys for messages on a connection with the authenticated replica `to`.
pub(crate) fn seals(
    settings: &Settings,
    challenge: &Random,
    (to, random): (ReplicaId, &Random),
) -> Seals {
    Seals::new(settings, Nonces { challenge, random }, (settings.me, to))
}

/// Returns the encoded verdict for the authenticated replica `to`.
pub(crate) fn verdict(
    settings: &Settings,
    challenge: &Random,
    (to, random): (ReplicaId, &Random),
    verdict: ProofReply,
) -> [u8; VERDICT] {
    let both = Nonces { challenge, random };
    let code = code(settings, ProofPurpose::ProofReply(verdict), both, (settings.me, to));
    code.finalize().into_bytes().into()
}

fn code(
    settings: &Settings,
    mac: ProofPurpose,
    both: Nonces<'_>,
    (from, to): (ReplicaId, ReplicaId),
) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(&settings.secret.0).expect("any length is a key");
    for part in [mac.text(), both.challenge, both.random, settings.service.as_bytes()] {
        code.update(&(part.len() as u64).to_le_bytes());
        code.update(part);
    }
    code.update(&from.0.to_le_bytes());
    code.update(&to.0.to_le_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::lab;
    use crate::settings::Secret;

    const OURS: Random = [7; CHALLENGE];
    const THEIRS: Random = [9; CHALLENGE];

    fn settings(me: u16, secret: u8) -> Settings {
        Settings { me: ReplicaId(me), secret: Secret([secret; 32]), ..lab::settings() }
    }

    #[test]
    fn only_holders_of_the_secret_are_authenticated() {
        let to = settings(1, 5);
        let prove = |me, secret, to, challenge: &[u8]| {
            let introduction =
                Introduction::new(&settings(me, secret), ReplicaId(to), challenge, THEIRS);
            introduction.proof.clone()
        };
        let right = prove(2, 5, 1, &OURS);
        assert_eq!(check(&to, &OURS, &right), Some((ReplicaId(2), THEIRS)));
        let mut other_random = right.clone();
        other_random[2] ^= 1;
        let mut other_name = right.clone();
        other_name[0] = 3;
        // Another secret, another challenge, another receiver, our own number, no proof.
        for wrong in [
            prove(2, 6, 1, &OURS),
            prove(2, 5, 1, &[8; CHALLENGE]),
            prove(2, 5, 2, &OURS),
            prove(1, 5, 1, &OURS),
            other_random,
            other_name,
            right[..right.len() - 1].to_vec(),
            [&right[..], &[0]].concat(),
            Vec::new(),
        ] {
            assert_eq!(check(&to, &OURS, &wrong), None, "{wrong:?}");
        }
        let elsewhere = Settings { service: "other".to_string(), ..settings(1, 5) };
        assert_eq!(check(&elsewhere, &OURS, &right), None);
    }

    /// Each direction of each connection has its own key, known to both ends.
    #[test]
    fn both_ends_have_the_same_seals() {
        let introduction = Introduction::new(&settings(2, 5), ReplicaId(1), &OURS, THEIRS);
        let mut ours = seals(&settings(1, 5), &OURS, (ReplicaId(2), &THEIRS));
        let mut theirs = introduction.seals;
        let (requested, answered) = (theirs.ours.frame(b"a"), ours.ours.frame(b"a"));
        assert_ne!(requested, answered);
        let read = |seal: &mut Seal, frame: &[u8]| seal.open(frame, 9).map(|it| it.is_some());
        assert_eq!(read(&mut ours.theirs.clone(), &answered), Err(crate::seal::Forged));
        assert_eq!(read(&mut ours.theirs, &requested), Ok(true));
        assert_eq!(read(&mut theirs.theirs, &answered), Ok(true));
        let others = [
            seals(&settings(1, 5), &[8; CHALLENGE], (ReplicaId(2), &THEIRS)),
            seals(&settings(1, 5), &OURS, (ReplicaId(2), &OURS)),
            seals(&settings(1, 5), &OURS, (ReplicaId(3), &THEIRS)),
            seals(&settings(1, 6), &OURS, (ReplicaId(2), &THEIRS)),
        ];
        for mut other in others {
            assert_eq!(read(&mut other.theirs, &requested), Err(crate::seal::Forged));
        }
    }

    #[test]
    fn the_server_side_proves_the_secret_too() {
        let caller = ReplicaId(2);
        let introduction = Introduction::new(&settings(2, 5), ReplicaId(1), &OURS, THEIRS);
        for it in [ProofReply::Welcome, ProofReply::Farewell] {
            let reply = verdict(&settings(1, 5), &OURS, (caller, &THEIRS), it);
            assert_eq!(introduction.verdicts.judge(&reply), Some(it));
            // Of another secret, of another replica, for another receiver, for another connection.
            for wrong in [
                verdict(&settings(1, 6), &OURS, (caller, &THEIRS), it).to_vec(),
                verdict(&settings(3, 5), &OURS, (caller, &THEIRS), it).to_vec(),
                verdict(&settings(1, 5), &OURS, (ReplicaId(3), &THEIRS), it).to_vec(),
                verdict(&settings(1, 5), &OURS, (caller, &OURS), it).to_vec(),
                reply[..VERDICT - 1].to_vec(),
                introduction.proof.clone(),
                Vec::new(),
            ] {
                assert_eq!(introduction.verdicts.judge(&wrong), None, "{wrong:?}");
            }
        }
    }
}
