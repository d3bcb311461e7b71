//! Attacks by watches of changes.

use super::Target;
use super::kind::{Kind, PLAIN, TLCREATE, TREMOVE, TWALK, TWRITE};
use anyhow::Result;
use rig::client::{Client, Message, ROOT};

/// Maximum memory of one client's watches, KiB.
const WATCHES_KIB: u64 = 32 << 10;

/// Watches of each attacker; together they want more than one client may have.
const WATCHES: u32 = 4;

pub(super) const KINDS: &[Kind] = &[Kind {
    name: "watches",
    does: "clients watch everything 4 times each, read nothing, and create and remove files",
    memory_kib: WATCHES_KIB,
    attack: watches,
    ..PLAIN
}];

fn watches(target: &Target, number: usize) -> Result<()> {
    const O_RDWR: u32 = 2;
    const ALL: &[u8] = b"/**\n";
    let mut client = Client::attach(target.ninep, "")?;
    for fid in 1..=WATCHES {
        // The client's limit is reached.
        if client.open(fid, &[".upcall", "watch"], O_RDWR).is_err() {
            break;
        }
        client.call(|out| {
            let message = Message::new(out, TWRITE, 0).u32(fid).u64(0);
            message.u32(ALL.len() as u32).bytes(ALL);
        })?;
    }
    let (fid, gid) = (WATCHES + 1, rustix::process::getgid().as_raw());
    target.arm();
    let mut round = 0;
    while !target.over() {
        let name = format!("watched-{number}-{round}");
        client.call(|out| _ = Message::new(out, TWALK, 0).u32(ROOT).u32(fid).u16(0))?;
        client.call(|out| {
            Message::new(out, TLCREATE, 0).u32(fid).text(&name).u32(2).u32(0o644).u32(gid);
        })?;
        client.call(|out| _ = Message::new(out, TREMOVE, 0).u32(fid))?;
        target.note_effect();
        round += 1;
    }
    Ok(())
}
