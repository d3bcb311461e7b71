//! Attacks on a server that has a volume and mounts another server.

use super::Target;
use super::kind::{Kind, PLAIN, TCLUNK, TLCREATE, TLOPEN, TREAD, TREMOVE, TWALK, TWRITE};
use anyhow::{Context, Result, ensure};
use rig::client::{Client, Message, ROOT};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory for the blocks of the volume, MiB.
pub(super) const CACHE_MIB: u64 = 16;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "volume-changes",
        does: "clients create files of a volume, write 64 KiB and remove them, over and over",
        has_space: true,
        memory_kib: CACHE_MIB << 10,
        attack: volume_changes,
        ..PLAIN
    },
    Kind {
        name: "mounted-server",
        does: "clients have 200 reads of a file of a mounted server at once, over and over",
        has_space: true,
        memory_kib: CACHE_MIB << 10,
        attack: mounted_server,
        ..PLAIN
    },
];

/// Writes the names file of a server of `dir`, with a volume at `vol` and the server at this port
/// at `far`.
pub(super) fn names_file(base: &Path, dir: &Path, port: u16) -> Result<PathBuf> {
    let (names, volume) = (base.join("space"), base.join("attacked.volume"));
    for point in ["vol", "far"] {
        std::fs::create_dir_all(dir.join(point))?;
    }
    if !volume.exists() {
        let mut create = Command::new(rig::server::binary());
        create.args(["volume", "create"]).arg(&volume).args(["--size", "1G"]);
        rig::sh::read(&mut create)?;
    }
    let text = format!(
        "mount -c / host:{}\nmount -c /vol volume:{}\nmount /far 9p://127.0.0.1:{port}\n",
        dir.display(),
        volume.display()
    );
    std::fs::write(&names, text).context("the names file")?;
    Ok(names)
}

fn volume_changes(target: &Target, number: usize) -> Result<()> {
    const HALF: u32 = 32 << 10;
    let (mut client, name) = (Client::attach(target.ninep, "")?, format!("file-{number}"));
    let (block, gid) = (vec![7; HALF as usize], rustix::process::getgid().as_raw());
    client.call(|out| _ = Message::new(out, TWALK, 0).u32(ROOT).u32(1).u16(1).text("vol"))?;
    target.arm();
    while !target.over() {
        client.call(|out| _ = Message::new(out, TWALK, 0).u32(1).u32(2).u16(0))?;
        client.call(|out| {
            Message::new(out, TLCREATE, 0).u32(2).text(&name).u32(2).u32(0o644).u32(gid);
        })?;
        for at in 0..2 {
            client.call(|out| {
                let message = Message::new(out, TWRITE, 0).u32(2).u64(at * u64::from(HALF));
                message.u32(HALF).bytes(&block);
            })?;
        }
        client.call(|out| _ = Message::new(out, TREMOVE, 0).u32(2))?;
        target.note_effect();
    }
    Ok(())
}

fn mounted_server(target: &Target, _number: usize) -> Result<()> {
    const READS: u16 = 200;
    let mut client = Client::attach(target.ninep, "")?;
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(1).u16(2).text("far").text("small");
    })?;
    client.call(|out| _ = Message::new(out, TLOPEN, 0).u32(1).u32(0))?;
    target.arm();
    while !target.over() {
        client.send(|out| {
            for tag in 0..READS {
                Message::new(out, TREAD, tag).u32(1).u64(0).u32(4096);
            }
        })?;
        for _ in 0..READS {
            ensure!(client.reply()?.0 == TREAD + 1, "a read is refused");
            target.note_effect();
        }
    }
    client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(1))?;
    Ok(())
}
