//! Canaries of the joined namespace: errors planted on purpose, which its checks must detect.

use base::Buf;
use base::op::Op;
use wire::ninep::READ_HEADER_SIZE;

/// A planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The mux omits an entry of a listing.
    ForgetEntry,
    /// A file that replaced another has its number when a server returns.
    SameNumber,
    /// A partitioned server delays requests to the others.
    DelayAll,
    /// New files are created in the wrong member of a union.
    OtherMember,
    /// A walk ends one directory too high after a server was down.
    OtherFile,
    /// A reply of the mux is lost.
    LoseAnswer,
    /// The last byte read by the mux is wrong.
    OtherByte,
    /// The mux leaves a file open.
    LeakFile,
    /// An event of a server is logged twice.
    SayTwice,
}

impl Mistake {
    /// All planted errors.
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

/// Applies an error to some operations of the mux. `None` drops the operation.
pub(super) fn spoil(mistake: Option<Mistake>, occasions: &mut u32, mut op: Op) -> Option<Op> {
    let (code, rarity) = match (mistake, &op) {
        (Some(Mistake::ForgetEntry), _) => (41, 3),
        (Some(Mistake::OtherFile), _) => (111, 30),
        (Some(Mistake::OtherByte), _) => (117, 30),
        // A piece sent alone cannot be dropped.
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
