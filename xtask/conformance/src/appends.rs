//! Groups of concurrent appends, overlapping writes, truncations and flushes of one file, over 9P
//! on several connections: the resulting file must follow from one serial order of the group. On a
//! directory, a volume and a volume of a mounted server.
//!
//! Each request is one message, which a server must not split: a client that writes more than fits
//! a message sends several requests. On volumes the groups include reads; the host's own file
//! systems do not guarantee atomic reads.

use super::TRUST;
use anyhow::{Context, Result, bail, ensure};
use base::rng::{Rng, seeded};
use base::serial::{self, Call, Edit, Fate};
use rig::client::{Client, Message};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::collections::BTreeMap;
use std::time::Instant;

/// Groups on each server: by default, and with `--long`.
const GROUPS: usize = 2000;
const GROUPS_LONG: usize = 100_000;

/// Connections that edit the file.
const EDITORS: usize = 3;
/// Maximum number of edits in a group: all orders are tried.
const EDITS_MAX: usize = 6;
/// Size above which a group begins by truncating the file, bytes.
const SIZE_MAX: usize = 300_000;
/// Sizes of data, bytes: from the remainder of a block to more than a volume writes to its journal
/// (64 KiB).
const SIZES: [(usize, usize); 5] = [(1, 16), (1, 600), (1, 5_000), (1, 60_000), (66_000, 110_000)];
/// Size of messages, bytes.
const MSIZE: u32 = 1 << 20;

const TLCREATE: u8 = 14;
const TSETATTR: u8 = 26;
const TFLUSH: u8 = 108;
const RFLUSH: u8 = 109;
const TREAD: u8 = 116;
const TWRITE: u8 = 118;
const RLERROR: u8 = 7;

/// Fids of the file: one for appends, one for reads and writes.
const APPEND: u32 = 1;
const WRITE: u32 = 2;
/// Offset from a tag to that of its flush.
const FLUSHES: u16 = 100;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Nginx) {
        report.skip("appends", "it speaks no 9P");
        return Ok(());
    }
    let groups = if report.long { GROUPS_LONG } else { GROUPS };
    let base = sh::empty("served/appends")?;
    let dir = base.join("dir");
    std::fs::create_dir(&dir)?;
    let server = Server::start(kind, &dir, if kind == Kind::Diod { &[] } else { TRUST })?;
    let aname = if kind == Kind::Diod { super::aname(&server) } else { String::new() };
    report.case("appends/directory", || play(server.ninep, &aname, &[], groups, false));
    drop(server);
    if kind == Kind::Diod {
        return Ok(());
    }
    let file = base.join("appends.volume");
    volume::create(&file, "256M")?;
    let extra = ["--trust-clients", "--threads", "2"];
    let server = Server::start(kind, &file, &extra)?;
    report.case("appends/volume", || play(server.ninep, "", &[], groups, true));
    let names = base.join("names");
    std::fs::create_dir(dir.join("far"))?;
    let (root, port) = (dir.display(), server.ninep);
    std::fs::write(&names, format!("mount / host:{root}\nmount -c /far 9p://127.0.0.1:{port}\n"))?;
    let mux = Server::start_space(kind, &names, TRUST)?;
    report.case("appends/mounted", || play(mux.ninep, "", &["far"], groups, true));
    drop((mux, server));
    report.case("appends/volume_is_clean", || volume::check(&file));
    Ok(())
}

/// A connection with the file open twice, and its outstanding requests.
struct Editor {
    client: Client,
    pending: BTreeMap<u16, (Edit, u64)>,
    /// Outstanding flushes.
    flushes: usize,
}

/// The file and its editors.
struct Bench {
    editors: Vec<Editor>,
    rng: Rng,
    started: Instant,
    contents: Vec<u8>,
    calls: Vec<Call>,
    /// Seed of the next write's bytes: consecutive writes differ.
    salt: u8,
    reads: bool,
    /// Requests with an unknown outcome.
    unknown: usize,
}

/// Creates the file, and runs groups.
fn play(port: u16, aname: &str, dir: &[&str], groups: usize, reads: bool) -> Result<String> {
    let mut client = Client::attach(port, aname)?;
    let name = if dir.is_empty() { "edited" } else { "edited-there" };
    make(&mut client, dir, name)?;
    let path: Vec<&str> = dir.iter().copied().chain([name]).collect();
    let editor = |_| {
        let mut client = Client::attach_with(port, aname, MSIZE)?;
        client.open(APPEND, &path, 0o2001)?;
        client.open(WRITE, &path, 2)?;
        Ok(Editor { client, pending: BTreeMap::new(), flushes: 0 })
    };
    let editors = (0..EDITORS).map(editor).collect::<Result<_>>()?;
    let (rng, started) = (seeded(1), Instant::now());
    let (contents, calls) = (Vec::new(), Vec::new());
    let mut bench = Bench { editors, rng, started, contents, calls, salt: 0, reads, unknown: 0 };
    let mut edits = 0;
    for group in 0..groups {
        edits += bench.group().with_context(|| format!("group {group}"))?;
    }
    let unknown = bench.unknown;
    Ok(format!("{groups} groups, {edits} edits, {unknown} cancelled with unknown effect"))
}

/// Creates an empty file.
fn make(client: &mut Client, dir: &[&str], name: &str) -> Result<()> {
    client.call(|out| {
        let count = u16::try_from(dir.len()).expect("a few");
        let message = Message::new(out, 110, 0).u32(0).u32(9).u16(count);
        dir.iter().fold(message, |message, name| message.text(name));
    })?;
    let group = rustix::process::getgid().as_raw();
    client.call(|out| {
        Message::new(out, TLCREATE, 0).u32(9).text(name).u32(2).u32(0o644).u32(group);
    })?;
    client.call(|out| {
        Message::new(out, 120, 0).u32(9);
    })?;
    Ok(())
}

impl Bench {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).expect("less than centuries")
    }

    /// Sends a group over all connections, receives the replies, and compares; returns the number
    /// of edits.
    fn group(&mut self) -> Result<usize> {
        let count = self.rng.usize(2..=EDITS_MAX);
        for number in 0..count {
            let first = number == 0 && self.contents.len() > SIZE_MAX;
            let edit = if first { Edit::Resize(0) } else { self.draw() };
            let editor = self.rng.usize(..EDITORS);
            self.send(editor, u16::try_from(number)?, edit)?;
            // Sometimes waits for a reply first: an edit sent afterwards comes later in every
            // order.
            if self.rng.u8(..6) == 0 {
                self.receive(editor)?;
            }
        }
        for editor in 0..EDITORS {
            while !self.editors[editor].pending.is_empty() || self.editors[editor].flushes > 0 {
                self.receive(editor)?;
            }
        }
        let after = self.read_back()?;
        let calls = std::mem::take(&mut self.calls);
        if serial::explain(&self.contents, &calls, &after).is_none() {
            let calls: Vec<String> = calls.iter().map(Call::to_string).collect();
            let (from, to) = (self.contents.len(), after.len());
            bail!("no serial order leads from {from} to {to} bytes: {}", calls.join("; "));
        }
        self.contents = after;
        Ok(count)
    }

    fn draw(&mut self) -> Edit {
        let span = self.contents.len() as u64 + 20_000;
        match self.rng.u8(..12) {
            0..5 => Edit::Append(self.data()),
            5..8 => Edit::Write(self.rng.u64(..span), self.data()),
            8 => Edit::Resize(self.rng.u64(..span)),
            9 => Edit::Resize(0),
            _ if self.reads => Edit::ReadAt(self.rng.u64(..span), 100_000, Vec::new()),
            _ => Edit::Append(self.data()),
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let (least, most) = SIZES[self.rng.usize(..SIZES.len())];
        let count = self.rng.usize(least..=most);
        self.salt = self.salt.wrapping_add(1);
        (0..count).map(|at| self.salt ^ (at >> 4) as u8).collect()
    }

    /// Sends an edit, and sometimes a flush of it.
    fn send(&mut self, editor: usize, tag: u16, edit: Edit) -> Result<()> {
        let (flush, begun) = (self.rng.u8(..12) == 0, self.now());
        let editor = &mut self.editors[editor];
        editor.client.send(|out| {
            encode(out, tag, &edit);
            if flush {
                Message::new(out, TFLUSH, tag + FLUSHES).u16(tag);
            }
        })?;
        editor.flushes += usize::from(flush);
        editor.pending.insert(tag, (edit, begun));
        Ok(())
    }

    /// Receives one reply of a connection.
    fn receive(&mut self, editor: usize) -> Result<()> {
        let (kind, tag, body) = self.editors[editor].client.reply()?;
        let ended = self.now();
        let editor = &mut self.editors[editor];
        let flushed = kind == RFLUSH;
        editor.flushes -= usize::from(flushed);
        let found = editor.pending.remove(&if flushed { tag - FLUSHES } else { tag });
        let Some((mut edit, begun)) = found else {
            ensure!(flushed, "reply {kind} to no request: tag {tag}");
            return Ok(());
        };
        let fate = if flushed { Fate::Unknown } else { Fate::Done };
        match (&mut edit, kind) {
            (Edit::ReadAt(..), RFLUSH) => return Ok(()),
            (_, RFLUSH) => self.unknown += 1,
            (Edit::Append(data) | Edit::Write(_, data), 119) => {
                let count = number(&body)?;
                ensure!(count == data.len(), "{count} of {} bytes were written", data.len());
            }
            (Edit::Resize(_), 27) => {}
            (Edit::ReadAt(.., seen), 117) => *seen = body.get(4..).context("a read")?.to_vec(),
            (edit, RLERROR) => bail!("errno {} for {edit:.60?}", number(&body)?),
            (edit, kind) => bail!("reply {kind} to {edit:.60?}"),
        }
        self.calls.push(Call { edit, fate, span: (begun, ended) });
        Ok(())
    }

    fn read_back(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let offset = bytes.len() as u64;
            let body = self.editors[0].client.call(|out| {
                Message::new(out, TREAD, 0).u32(WRITE).u64(offset).u32(MSIZE - 24);
            })?;
            let piece = body.get(4..).context("Rread is too short")?;
            if piece.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(piece);
        }
    }
}

/// Returns the number at the beginning of a body.
fn number(body: &[u8]) -> Result<usize> {
    let bytes = body.first_chunk::<4>().context("the reply is too short")?;
    Ok(usize::try_from(u32::from_le_bytes(*bytes))?)
}

fn encode(out: &mut Vec<u8>, tag: u16, edit: &Edit) {
    let write = |out, fid, offset, data: &[u8]| {
        let count = u32::try_from(data.len()).expect("less than a message");
        Message::new(out, TWRITE, tag).u32(fid).u64(offset).u32(count).bytes(data);
    };
    match edit {
        Edit::Append(data) => write(out, APPEND, 0, data),
        Edit::Write(offset, data) => write(out, WRITE, *offset, data),
        Edit::Resize(size) => {
            let message = Message::new(out, TSETATTR, tag).u32(WRITE).u32(8);
            let message = message.u32(0).u32(0).u32(0).u64(*size);
            (0..4).fold(message, |message, _| message.u64(0));
        }
        Edit::ReadAt(offset, count, _) => {
            let count = u32::try_from(*count).expect("less than a message");
            Message::new(out, TREAD, tag).u32(WRITE).u64(*offset).u32(count);
        }
        Edit::Read(_) => unreachable!("reads of all are not drawn"),
    }
}
