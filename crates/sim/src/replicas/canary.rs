//! Canaries of replicated services: errors planted on purpose, which the checks must detect.

use super::cluster;
use super::params::{Params, Trouble};
use crate::run::attempt;
use crate::trace::Show;
use base::Buf;
use base::op::Op;
use replica::data::Kind;

/// A planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Disks acknowledge durability too early.
    EarlyDurable,
    /// A machine restarts with an older copy of its disk.
    OlderCopy,
    /// A client forgets its token when it moves to another replica.
    LostToken,
    /// A client retransmits with a new number.
    SentAsNew,
    /// A strict operation gets its reply before it is final.
    EarlyFinal,
    /// A partition never heals.
    StaysCut,
    /// Home is blocked while the replica works.
    OneThread,
}

impl Mistake {
    /// All planted errors.
    pub const ALL: [Mistake; 7] = [
        Mistake::EarlyDurable,
        Mistake::OlderCopy,
        Mistake::LostToken,
        Mistake::SentAsNew,
        Mistake::EarlyFinal,
        Mistake::StaysCut,
        Mistake::OneThread,
    ];

    /// Returns the parameters of a run in which it can show.
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
            Mistake::StaysCut => params.trouble.cut = 10,
            Mistake::OneThread => {
                (params.unit_ns, params.work, params.world.net_us) = (300_000, 1 << 16, 50);
            }
        }
        if matches!(self, Mistake::SentAsNew | Mistake::EarlyFinal) {
            (params.trouble.power, params.trouble.cut) = (5, 5);
            (params.op_clients, params.operations) = (5, 20);
        }
        params
    }
}

/// Type of the messages from one replica to another.
const TWRITE: u8 = 118;

/// Changes messages sent by a server: for a planted error, or as an attacker between replicas that
/// changes one of `forges` writes.
pub(super) fn spoil(mistake: Option<Mistake>, forges: u32, occasions: &mut u32, mut op: Op) -> Op {
    let Op::Send { data, .. } = &mut op else { return op };
    let first = data.first().map(|first| first.to_vec()).unwrap_or_default();
    let writes = first.get(4) == Some(&TWRITE);
    if forges > 0 && writes {
        *occasions += 1;
        let length: usize = data.iter().map(|buf| buf.len()).sum();
        let size = first.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
        if size == Some(length)
            && occasions.is_multiple_of(forges)
            && let Some(buf) = data.last_mut()
            && let Some(last) = buf.last_mut()
        {
            *last ^= 1;
        }
    }
    if mistake != Some(Mistake::EarlyFinal) || writes {
        return op;
    }
    let (from, to) = (b"\"final\":false", b"\"final\":true ");
    for buf in data.iter_mut() {
        let mut bytes = buf.to_vec();
        let mut start = 0;
        while let Some(at) = find(&bytes[start..], from).map(|at| start + at) {
            start = at + from.len();
            bytes[at..start].copy_from_slice(to);
        }
        *buf = Buf::from(bytes);
    }
    op
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Searches for a planted error; returns the number of seeds it took and the failure found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = mistake.params(seed);
        if let Err(found) = attempt(|| cluster::run(&params, Show::Hash)) {
            return Some((seed, found));
        }
    }
    None
}
