//! Canaries of replicated services: errors planted on purpose, which the checks must detect.

use base::Buf;
use base::op::Op;

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
