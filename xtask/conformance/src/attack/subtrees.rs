//! Attacks by streams of subtrees.

use super::Target;
use super::kind::{Kind, PLAIN, TCLUNK, TREAD, TWRITE};
use anyhow::Result;
use rig::client::{Client, Message};

/// Maximum memory of one client's streams, KiB.
const STREAMS_KIB: u64 = 9 << 10;

/// Size of a read, bytes, and number of reads of each stream.
const READ: u32 = 64 << 10;
const READS: usize = 50;

pub(super) const KINDS: &[Kind] = &[Kind {
    name: "subtrees",
    does: "clients read the whole tree with contents, again and again, in all streams",
    memory_kib: STREAMS_KIB,
    attack: subtrees,
    ..PLAIN
}];

fn subtrees(target: &Target, _number: usize) -> Result<()> {
    const O_RDWR: u32 = 2;
    const REQUEST: &[u8] = b"contents /";
    let mut client = Client::attach(target.ninep, "")?;
    target.arm();
    while !target.over() {
        // Others may have all streams of this client.
        if client.open(1, &[".upcall", "subtree"], O_RDWR).is_ok() {
            client.call(|out| {
                let message = Message::new(out, TWRITE, 0).u32(1).u64(0);
                message.u32(REQUEST.len() as u32).bytes(REQUEST);
            })?;
            for _ in 0..READS {
                client.call(|out| _ = Message::new(out, TREAD, 0).u32(1).u64(0).u32(READ))?;
            }
            target.note_effect();
        }
        client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(1))?;
    }
    Ok(())
}
