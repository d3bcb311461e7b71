//! Canaries of the joined name space: mistakes planted on purpose, which its judges must find.

use super::params::Params;
use super::town;
use crate::run::attempt;
use crate::trace::Show;
use base::Buf;
use base::op::Op;
use wire::ninep::READ_HEADER_SIZE;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The mux leaves an entry out of what it lists.
    ForgetEntry,
    /// A file that has taken another's place counts as that one when a server is back.
    SameNumber,
    /// A server that is cut off delays what is asked of the others.
    DelayAll,
    /// New files are made in the wrong member of a union.
    OtherMember,
    /// A walk ends one directory too high after a server was away.
    OtherFile,
    /// An answer of the mux's is lost.
    LoseAnswer,
    /// The last byte of what the mux reads is another.
    OtherByte,
    /// The mux leaves a file open.
    LeakFile,
    /// What happened to a server is logged twice.
    SayTwice,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Mistake; 9] = [
        Mistake::ForgetEntry,
        Mistake::SameNumber,
        Mistake::DelayAll,
        Mistake::OtherMember,
        Mistake::OtherFile,
        Mistake::LoseAnswer,
        Mistake::OtherByte,
        Mistake::LeakFile,
        Mistake::SayTwice,
    ];
}

/// A mistake of the mux's, on some of its occasions. `None`: it leaves the operation undone.
pub(super) fn spoil(mistake: Option<Mistake>, occasions: &mut u32, mut op: Op) -> Option<Op> {
    let (code, rarity) = match (mistake, &op) {
        (Some(Mistake::ForgetEntry), _) => (41, 3),
        (Some(Mistake::OtherFile), _) => (111, 30),
        (Some(Mistake::OtherByte), _) => (117, 30),
        // What is sent alone cannot be left out.
        (Some(Mistake::LoseAnswer), Op::Send { data, .. }) if data.len() > 1 => (111, 50),
        (Some(Mistake::LeakFile), Op::CloseFile { .. }) => {
            *occasions += 1;
            return (!occasions.is_multiple_of(50)).then_some(op);
        }
        _ => return Some(op),
    };
    let Op::Send { data, .. } = &mut op else { return Some(op) };
    for buf in data.iter_mut().filter(|buf| buf.get(4) == Some(&code) && buf.len() > 40) {
        *occasions += 1;
        if occasions.is_multiple_of(rarity) {
            let mut bytes = buf.to_vec();
            spoil_message(mistake, &mut bytes);
            *buf = Buf::from(bytes);
        }
    }
    Some(op)
}

fn spoil_message(mistake: Option<Mistake>, bytes: &mut Vec<u8>) {
    match mistake {
        Some(Mistake::ForgetEntry) => {
            let header = READ_HEADER_SIZE;
            let name = usize::from(u16::from_le_bytes([bytes[header + 22], bytes[header + 23]]));
            bytes.drain(header..header + 24 + name);
            let size = bytes.len() as u32;
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            bytes[7..11].copy_from_slice(&(size - header as u32).to_le_bytes());
        }
        Some(Mistake::OtherFile) => {
            let last = bytes.len() - 8;
            bytes.copy_within(last - 13..last - 5, last);
        }
        Some(Mistake::LoseAnswer) => bytes.clear(),
        Some(Mistake::OtherByte) => *bytes.last_mut().expect("it is long") ^= 1,
        _ => {}
    }
}

/// Looks for a mistake; gives the number of seeds it took and what was found.
pub fn hunt(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    for seed in 1..=seeds {
        let params = Params::light(seed);
        if let Err(found) = attempt(|| town::run(&params, Show::Hash, Some(mistake))) {
            return Some((seed, found));
        }
    }
    None
}
