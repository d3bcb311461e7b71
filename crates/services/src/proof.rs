//! Proofs of the two ends of a link that they know the secret of the service.
//!
//! Each end sends the other one random bytes, and each proof is made over both, over what it says,
//! and over who says it to whom: it serves for nothing else, and for no other time.

use crate::seal::Seal;
use crate::settings::Settings;
use hmac::{Hmac, Mac};
use replica::service::ReplicaId;
use sha2::Sha256;

/// How long a challenge is, bytes.
pub const CHALLENGE: usize = 32;

/// How long a verdict is, bytes.
pub const VERDICT: usize = 32;

/// Random bytes of one end.
pub(crate) type Random = [u8; CHALLENGE];

/// What the one who is called says to the one who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Come in.
    Welcome,
    /// You were a member, and are none any more.
    Farewell,
}

/// What proves who calls.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// What is to be written.
    pub proof: Vec<u8>,
    /// What may be read then.
    pub verdicts: Verdicts,
    /// For what is sent behind that.
    pub seals: Seals,
}

/// Keys that authenticate the messages of a connection, at one of its ends.
#[derive(Clone, Debug)]
pub struct Seals {
    /// For those that this end sends.
    pub ours: Seal,
    /// For those that the other end sends.
    pub theirs: Seal,
}

impl Seals {
    /// Those of `me` on a connection with `to` on which both have sent these.
    fn new(settings: &Settings, both: Both<'_>, (me, to): (ReplicaId, ReplicaId)) -> Seals {
        let seal = |from, to| {
            Seal::new(code(settings, Says::Key, both, (from, to)).finalize().into_bytes().into())
        };
        Seals { ours: seal(me, to), theirs: seal(to, me) }
    }
}

/// What the one who is called can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdicts {
    welcome: [u8; VERDICT],
    farewell: [u8; VERDICT],
}

/// What a proof says. No other use of the secret says any of this.
#[derive(Clone, Copy)]
enum Says {
    IAm,
    Verdict(Verdict),
    /// The key of what is sent from the first to the second.
    Key,
}

impl Says {
    fn text(self) -> &'static [u8] {
        match self {
            Says::IAm => b"upcall replica 4: I am",
            Says::Verdict(Verdict::Welcome) => b"upcall replica 4: welcome",
            Says::Key => b"upcall replica 4: key",
            Says::Verdict(Verdict::Farewell) => b"upcall replica 4: farewell",
        }
    }
}

/// What both ends have sent.
#[derive(Clone, Copy)]
struct Both<'a> {
    challenge: &'a [u8],
    random: &'a Random,
}

impl Introduction {
    /// Of the one who has these settings, to `to`, who has sent this challenge. `random` is used
    /// for nothing else.
    pub fn new(
        settings: &Settings,
        to: ReplicaId,
        challenge: &[u8],
        random: [u8; CHALLENGE],
    ) -> Introduction {
        let both = Both { challenge, random: &random };
        let me = settings.me;
        let verdict = |it| code(settings, Says::Verdict(it), both, (to, me)).finalize();
        let says = code(settings, Says::IAm, both, (me, to)).finalize().into_bytes();
        let verdicts = Verdicts {
            welcome: verdict(Verdict::Welcome).into_bytes().into(),
            farewell: verdict(Verdict::Farewell).into_bytes().into(),
        };
        let seals = Seals::new(settings, both, (me, to));
        Introduction { proof: [&me.0.to_le_bytes()[..], &random, &says].concat(), verdicts, seals }
    }
}

impl Verdicts {
    /// Which of them was read: none, if whoever wrote it does not know the secret. (How long a
    /// comparison takes tells nothing: no verdict is of use twice.)
    pub fn judge(&self, said: &[u8]) -> Option<Verdict> {
        let is = |verdict: &[u8; VERDICT]| said == verdict;
        match (is(&self.welcome), is(&self.farewell)) {
            (true, _) => Some(Verdict::Welcome),
            (false, true) => Some(Verdict::Farewell),
            (false, false) => None,
        }
    }
}

/// Who has proved to be that, by this answer to our challenge, and the random bytes in it. Who that
/// is now, the members say.
pub(crate) fn check(
    settings: &Settings,
    challenge: &Random,
    proof: &[u8],
) -> Option<(ReplicaId, Random)> {
    let (from, rest) = proof.split_first_chunk::<2>()?;
    let (random, says) = rest.split_first_chunk::<CHALLENGE>()?;
    let from = ReplicaId(u16::from_le_bytes(*from));
    let both = Both { challenge, random };
    let expected = code(settings, Says::IAm, both, (from, settings.me));
    let is_right = expected.verify_slice(says).is_ok() && from != settings.me;
    is_right.then_some((from, *random))
}

/// Keys for the messages of a connection with the replica that has proved to be `to`.
pub(crate) fn seals(
    settings: &Settings,
    challenge: &Random,
    (to, random): (ReplicaId, &Random),
) -> Seals {
    Seals::new(settings, Both { challenge, random }, (settings.me, to))
}

/// What we answer to who has proved to be `to`.
pub(crate) fn verdict(
    settings: &Settings,
    challenge: &Random,
    (to, random): (ReplicaId, &Random),
    verdict: Verdict,
) -> [u8; VERDICT] {
    let both = Both { challenge, random };
    let code = code(settings, Says::Verdict(verdict), both, (settings.me, to));
    code.finalize().into_bytes().into()
}

fn code(
    settings: &Settings,
    says: Says,
    both: Both<'_>,
    (from, to): (ReplicaId, ReplicaId),
) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(&settings.secret.0).expect("any length is a key");
    for part in [says.text(), both.challenge, both.random, settings.service.as_bytes()] {
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
    fn who_knows_the_secret_is_believed_and_nobody_else() {
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

    /// Each connection and each direction has a key of its own, which both ends know.
    #[test]
    fn both_ends_have_the_same_seals() {
        let introduction = Introduction::new(&settings(2, 5), ReplicaId(1), &OURS, THEIRS);
        let mut ours = seals(&settings(1, 5), &OURS, (ReplicaId(2), &THEIRS));
        let mut theirs = introduction.seals;
        let (asked, answered) = (theirs.ours.frame(b"a"), ours.ours.frame(b"a"));
        assert_ne!(asked, answered);
        let read = |seal: &mut Seal, frame: &[u8]| seal.open(frame, 9).map(|it| it.is_some());
        assert_eq!(read(&mut ours.theirs.clone(), &answered), Err(crate::seal::Forged));
        assert_eq!(read(&mut ours.theirs, &asked), Ok(true));
        assert_eq!(read(&mut theirs.theirs, &answered), Ok(true));
        let others = [
            seals(&settings(1, 5), &[8; CHALLENGE], (ReplicaId(2), &THEIRS)),
            seals(&settings(1, 5), &OURS, (ReplicaId(2), &OURS)),
            seals(&settings(1, 5), &OURS, (ReplicaId(3), &THEIRS)),
            seals(&settings(1, 6), &OURS, (ReplicaId(2), &THEIRS)),
        ];
        for mut other in others {
            assert_eq!(read(&mut other.theirs, &asked), Err(crate::seal::Forged));
        }
    }

    #[test]
    fn who_is_called_proves_the_same() {
        let caller = ReplicaId(2);
        let introduction = Introduction::new(&settings(2, 5), ReplicaId(1), &OURS, THEIRS);
        for it in [Verdict::Welcome, Verdict::Farewell] {
            let said = verdict(&settings(1, 5), &OURS, (caller, &THEIRS), it);
            assert_eq!(introduction.verdicts.judge(&said), Some(it));
            // Of another secret, another replica, for somebody else, for another call.
            for wrong in [
                verdict(&settings(1, 6), &OURS, (caller, &THEIRS), it).to_vec(),
                verdict(&settings(3, 5), &OURS, (caller, &THEIRS), it).to_vec(),
                verdict(&settings(1, 5), &OURS, (ReplicaId(3), &THEIRS), it).to_vec(),
                verdict(&settings(1, 5), &OURS, (caller, &OURS), it).to_vec(),
                said[..VERDICT - 1].to_vec(),
                introduction.proof.clone(),
                Vec::new(),
            ] {
                assert_eq!(introduction.verdicts.judge(&wrong), None, "{wrong:?}");
            }
        }
    }
}
