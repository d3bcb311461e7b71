//! Kinds of work over 9P2000.L.

use super::{Plan, Row, measure, start};
use anyhow::Result;
use rig::client::{Client, FIRST, Message, ROOT, Slot, TGETATTR, Work};
use rig::machine::{core, pin};
use rig::server::{Kind, Server};
use rig::sh;
use std::path::Path;

const FILE_BYTES: u64 = 64 << 20;
const SMALL_FILES: u64 = 1000;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

// Message types, from the protocol's header file (include/net/9p/9p.h of Linux).
pub(super) const TLOPEN: u8 = 12;
pub(super) const TLCREATE: u8 = 14;
pub(super) const TWALK: u8 = 110;
pub(super) const TREAD: u8 = 116;
pub(super) const TWRITE: u8 = 118;
pub(super) const TCLUNK: u8 = 120;
const TREMOVE: u8 = 122;

/// Fid of the large file.
const BIG: u32 = 1;

/// A measurement: name, number in flight, and messages.
struct Item {
    name: &'static str,
    depth: u16,
    steps: usize,
    build: fn(&mut Slot, &mut Vec<u8>),
}

const ITEMS: &[Item] = &[
    Item { name: "read 4 KiB, 1 outstanding", depth: 1, steps: 1, build: read },
    Item { name: "read 4 KiB, 32 outstanding", depth: 32, steps: 1, build: read },
    Item { name: "getattr, 1 outstanding", depth: 1, steps: 1, build: getattr },
    Item { name: "getattr, 32 outstanding", depth: 32, steps: 1, build: getattr },
    Item { name: "walk of 8 names + clunk, 1 outstanding", depth: 1, steps: 2, build: walk },
    Item { name: "walk of 8 names + clunk, 32 outstanding", depth: 32, steps: 2, build: walk },
    Item { name: "small file: walk, open, read, clunk, serial", depth: 1, steps: 4, build: small },
    Item { name: "create, write 4 KiB, remove, serial", depth: 1, steps: 4, build: create },
];

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Row>> {
    let dir = sh::empty("bench/9p")?;
    fill(&dir)?;
    let servers = start(plan, Kind::Diod, &dir, &["--trust-clients"])?;
    pin(core(1));
    let rows = ITEMS.iter().map(|item| {
        let work = Work { steps: item.steps, build: &item.build };
        measure(plan, item.name, &servers, |server, time| {
            connect(server)?.run(&work, item.depth, time)
        })
    });
    rows.collect()
}

fn fill(dir: &Path) -> Result<()> {
    let mut big = vec![0_u8; usize::try_from(FILE_BYTES)?];
    for (number, byte) in big.iter_mut().enumerate() {
        *byte = number.to_le_bytes()[1];
    }
    std::fs::write(dir.join("big"), &big)?;
    std::fs::create_dir_all(dir.join(NAMES.join("/")))?;
    std::fs::create_dir(dir.join("small"))?;
    for number in 0..SMALL_FILES {
        std::fs::write(dir.join(format!("small/{number}")), [b's'; 1024])?;
    }
    Ok(())
}

fn connect(server: &Server) -> Result<Client> {
    let mut client = Client::attach(server.ninep, &server.dir.display().to_string())?;
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(BIG).u16(1).text("big");
    })?;
    client.call(|out| {
        Message::new(out, TLOPEN, 0).u32(BIG).u32(0);
    })?;
    Ok(client)
}

fn read(slot: &mut Slot, out: &mut Vec<u8>) {
    let offset = slot.below(FILE_BYTES / 4096) * 4096;
    Message::new(out, TREAD, slot.tag).u32(BIG).u64(offset).u32(4096);
}

fn getattr(slot: &mut Slot, out: &mut Vec<u8>) {
    // 0x7ff: the basic attributes, those of stat(2).
    Message::new(out, TGETATTR, slot.tag).u32(BIG).u64(0x7ff);
}

fn walk(slot: &mut Slot, out: &mut Vec<u8>) {
    if slot.step == 1 {
        return clunk(slot, out);
    }
    let message = Message::new(out, TWALK, slot.tag).u32(ROOT).u32(slot.fid()).u16(8);
    NAMES.iter().fold(message, |message, name| message.text(name));
}

fn small(slot: &mut Slot, out: &mut Vec<u8>) {
    match slot.step {
        0 => {
            let name = slot.below(SMALL_FILES).to_string();
            let fid = slot.fid();
            let message = Message::new(out, TWALK, slot.tag).u32(ROOT).u32(fid).u16(2);
            message.text("small").text(&name);
        }
        1 => {
            Message::new(out, TLOPEN, slot.tag).u32(slot.fid()).u32(0);
        }
        2 => {
            Message::new(out, TREAD, slot.tag).u32(slot.fid()).u64(0).u32(4096);
        }
        _ => clunk(slot, out),
    }
}

fn create(slot: &mut Slot, out: &mut Vec<u8>) {
    let fid = slot.fid();
    match slot.step {
        0 => {
            Message::new(out, TWALK, slot.tag).u32(ROOT).u32(fid).u16(0);
        }
        1 => {
            let name = format!("new-{}", fid - FIRST);
            let read_write = 2;
            let message = Message::new(out, TLCREATE, slot.tag).u32(fid).text(&name);
            message.u32(read_write).u32(0o644).u32(rustix::process::getgid().as_raw());
        }
        2 => {
            let message = Message::new(out, TWRITE, slot.tag).u32(fid).u64(0).u32(4096);
            message.bytes(&[b'w'; 4096]);
        }
        _ => {
            Message::new(out, TREMOVE, slot.tag).u32(fid);
        }
    }
}

fn clunk(slot: &mut Slot, out: &mut Vec<u8>) {
    Message::new(out, TCLUNK, slot.tag).u32(slot.fid());
}
