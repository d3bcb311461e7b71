//! Canaries of replicated services: mistakes planted on purpose, which the judges must find.

use super::cluster;
use super::params::{Params, Trouble};
use crate::run::attempt;
use crate::trace::Show;
use base::Buf;
use base::op::Op;
use replica::data::Kind;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Disks say that something is durable before it is.
    EarlyDurable,
    /// A machine comes back with an older copy of its disk.
    OlderCopy,
    /// A client forgets its token when it goes to another replica.
    LostToken,
    /// A client gives what it sends again another number.
    SentAsNew,
    /// What is strict is answered before it is final.
    EarlyFinal,
    /// A letter changes on the way from one replica to another.
    OtherLetter,
    /// A way that was cut stays cut for ever.
    StaysCut,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Mistake; 7] = [
        Mistake::EarlyDurable,
        Mistake::OlderCopy,
        Mistake::LostToken,
        Mistake::SentAsNew,
        Mistake::EarlyFinal,
        Mistake::OtherLetter,
        Mistake::StaysCut,
    ];

    /// A run in which it can show.
    fn params(self, seed: u64) -> Params {
        let mut params = Params { mistake: Some(self), ..Params::light(seed) };
        let only = |trouble: &mut Trouble| {
            (trouble.power, trouble.cut) = (5, 2);
            (trouble.kill, trouble.freeze, trouble.reset) = (0, 0, 0);
        };
        match self {
            Mistake::EarlyDurable | Mistake::OlderCopy => only(&mut params.trouble),
            Mistake::LostToken => (params.wander, params.looks) = (100, 40),
            Mistake::SentAsNew => {
                (params.kind, params.plain, params.timeout_ms) = (Kind::Log, 0, 300)
            }
            Mistake::EarlyFinal => (params.kind, params.strict) = (Kind::Log, 100),
            Mistake::OtherLetter => params.kind = [Kind::Log, Kind::Set][seed as usize % 2],
            Mistake::StaysCut => params.trouble.cut = 10,
        }
        if matches!(self, Mistake::SentAsNew | Mistake::EarlyFinal) {
            (params.trouble.power, params.trouble.cut) = (5, 5);
            (params.askers, params.operations) = (5, 20);
        }
        params
    }
}

/// The type of the messages by which one replica tells another something.
const TWRITE: u8 = 118;

/// A mistake on its way out of a server, on some of its occasions.
pub(super) fn spoil(mistake: Option<Mistake>, occasions: &mut u32, mut op: Op) -> Op {
    let (from, to): (&[u8], &[u8]) = match mistake {
        Some(Mistake::EarlyFinal) => (b"\"final\":false", b"\"final\":true "),
        Some(Mistake::OtherLetter) => (b".", b"!"),
        _ => return op,
    };
    let Op::Send { data, .. } = &mut op else { return op };
    let writes = data.first().is_some_and(|first| first.get(4) == Some(&TWRITE));
    if writes != (mistake == Some(Mistake::OtherLetter)) {
        return op;
    }
    for buf in data.iter_mut() {
        let mut bytes = buf.to_vec();
        let mut start = 0;
        while let Some(at) = find(&bytes[start..], from).map(|at| start + at) {
            start = at + from.len();
            if mistake == Some(Mistake::OtherLetter) {
                *occasions += u32::from(is_item(&bytes, at));
                if !is_item(&bytes, at) || !occasions.is_multiple_of(7) {
                    continue;
                }
            }
            bytes[at..start].copy_from_slice(to);
        }
        *buf = Buf::from(bytes);
    }
    op
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Whether this letter is the last of an item in the binary form, which has no quote behind it.
fn is_item(bytes: &[u8], at: usize) -> bool {
    bytes[..at].last().is_some_and(u8::is_ascii_digit) && bytes.get(at + 1) != Some(&b'"')
}

/// Looks for a mistake; gives the number of seeds it took and what was found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = mistake.params(seed);
        if let Err(found) = attempt(|| cluster::run(&params, Show::Hash)) {
            return Some((seed, found));
        }
    }
    None
}
