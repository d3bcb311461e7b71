//! An NFSv3 client that keeps a number of operations in flight on one connection.
//!
//! The benchmarks' own client, written from RFC 5531 and RFC 1813 and not from our server's code,
//! so that errors of the two are independent. Calls that become ready together are sent together.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const VERSION: u32 = 3;

pub(super) const GETATTR: u32 = 1;
pub(super) const LOOKUP: u32 = 3;
pub(super) const READ: u32 = 6;
pub(super) const WRITE: u32 = 7;
pub(super) const CREATE: u32 = 8;
pub(super) const REMOVE: u32 = 12;
const FSINFO: u32 = 19;

/// Flag of the last fragment of a record.
const LAST: u32 = 1 << 31;

/// Maximum size of a reply, bytes.
const RECORD_MAX: usize = 2 << 20;

/// Size of attributes, bytes.
const ATTRIBUTES: usize = 84;

/// A file handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(Vec<u8>);

/// Arguments under construction.
pub(super) struct Arguments<'a>(&'a mut Vec<u8>);

impl Arguments<'_> {
    pub(super) fn u32(self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn opaque(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("below 4 GiB");
        let padding = bytes.len().wrapping_neg() % 4;
        let built = self.u32(length);
        built.0.extend_from_slice(bytes);
        built.0.extend_from_slice(&[0; 3][..padding]);
        built
    }

    pub(super) fn handle(self, handle: &Handle) -> Self {
        self.opaque(&handle.0)
    }
}

/// State of one operation in flight.
pub(super) struct Slot {
    /// Its index.
    pub(super) index: usize,
    /// Index of the operation's next call.
    pub(super) step: usize,
    /// Handle that a LOOKUP or CREATE of this operation returned.
    pub(super) handle: Handle,
    /// Number of bytes that the next READ must return.
    pub(super) wanted: u32,
    random: u64,
}

impl Slot {
    /// Returns a number below `end`, from this slot's own reproducible sequence.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }
}

/// Repeated operation: `steps` calls; `build` appends the arguments of the next one and returns its
/// procedure.
pub(super) struct Work<'a> {
    pub(super) steps: usize,
    pub(super) build: &'a dyn Fn(&mut Slot, Arguments<'_>) -> u32,
}

/// A connection.
pub(super) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of a reply in several fragments.
    joined: Vec<u8>,
    /// Counter of calls: the upper bits of xids, which a server may answer from a cache of replies
    /// if they come again.
    count: u32,
    user: User,
}

/// User and group id of this process.
type User = (u32, u32);

/// Call in flight: its xid and procedure.
#[derive(Clone, Copy, Default)]
struct Requested {
    xid: u32,
    procedure: u32,
}

const INDEX_BITS: u32 = 10;

impl Client {
    /// Connects.
    pub(super) fn connect(port: u16) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let count = std::process::id() ^ u32::from(stream.local_addr()?.port()) << 8;
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Ok(Client { stream, input: Vec::new(), joined: Vec::new(), count, user })
    }

    /// Returns the handle of a directory, from the MOUNT protocol on this connection.
    pub(super) fn mount(&mut self, dir: &str) -> Result<Handle> {
        let mount = |arguments: Arguments<'_>| {
            arguments.opaque(dir.as_bytes());
        };
        let reply = self.call_program(MOUNT, 1, mount)?;
        ensure!(number(&reply, 0)? == 0, "MOUNT of {dir} failed: {}", number(&reply, 0)?);
        handle(&reply, 4)
    }

    /// Returns the handle of a file.
    pub(super) fn lookup(&mut self, dir: &Handle, name: &str) -> Result<Handle> {
        let lookup = |arguments: Arguments<'_>| {
            arguments.handle(dir).opaque(name.as_bytes());
        };
        let reply = self.call_program(NFS, LOOKUP, lookup)?;
        ensure!(number(&reply, 0)? == 0, "LOOKUP of {name} failed: {}", number(&reply, 0)?);
        handle(&reply, 4)
    }

    /// Returns the maximum size of a READ, bytes.
    pub(super) fn read_max(&mut self, root: &Handle) -> Result<u32> {
        let info = |arguments: Arguments<'_>| {
            arguments.handle(root);
        };
        let reply = self.call_program(NFS, FSINFO, info)?;
        ensure!(number(&reply, 0)? == 0, "FSINFO failed: {}", number(&reply, 0)?);
        number(&reply, 8 + attributes(&reply)?)
    }

    /// Reads a file from its start to its end, in pieces of at most a MiB.
    pub(super) fn read_whole(&mut self, file: &Handle, size: u64, read_max: u32) -> Result<()> {
        let piece = read_max.min(1 << 20);
        for offset in (0..size).step_by(piece as usize) {
            let read = |arguments: Arguments<'_>| {
                arguments.handle(file).u64(offset).u32(piece);
            };
            let reply = self.call_program(NFS, READ, read)?;
            ensure!(number(&reply, 0)? == 0, "READ at {offset} failed: {}", number(&reply, 0)?);
        }
        Ok(())
    }

    fn call_program(
        &mut self,
        program: u32,
        procedure: u32,
        build: impl FnOnce(Arguments<'_>),
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let xid = self.next_xid(0);
        begin(&mut out, self.user, xid, [program, procedure]);
        build(Arguments(&mut out));
        seal(&mut out, 0);
        self.stream.write_all(&out)?;
        loop {
            if let Some(size) = record_size(&self.input)? {
                let record = record(&self.input[..size], &mut self.joined);
                ensure!(number(record, 0)? == xid, "a reply to another call");
                let results = results(record)?.to_vec();
                self.input.drain(..size);
                return Ok(results);
            }
            self.more()?;
        }
    }

    fn next_xid(&mut self, index: usize) -> u32 {
        self.count = self.count.wrapping_add(1);
        self.count << INDEX_BITS | u32::try_from(index).expect("there are few")
    }

    /// Keeps `depth` operations in flight for `time`; returns the number completed.
    pub(super) fn run(&mut self, work: &Work<'_>, depth: usize, time: Duration) -> Result<u64> {
        assert!(depth < 1 << INDEX_BITS, "an index fits an xid");
        let end = Instant::now() + time;
        let mut slots: Vec<_> = (0..depth)
            .map(|index| Slot {
                index,
                step: 0,
                handle: Handle::default(),
                wanted: 0,
                random: 0x9e37_79b9 + index as u64 * 7919,
            })
            .collect();
        let mut requested = vec![Requested::default(); depth];
        let (mut done, mut busy, mut out) = (0, depth, Vec::new());
        for slot in &mut slots {
            requested[slot.index] = self.ask(work, slot, &mut out);
        }
        while busy > 0 {
            self.stream.write_all(&out)?;
            out.clear();
            self.more()?;
            let more = Instant::now() < end;
            let input = std::mem::take(&mut self.input);
            let mut at = 0;
            while let Some(size) = record_size(&input[at..])? {
                let slot = self.receive(&input[at..at + size], &mut slots, &requested)?;
                at += size;
                slot.step = (slot.step + 1) % work.steps;
                done += u64::from(slot.step == 0);
                if slot.step > 0 || more {
                    requested[slot.index] = self.ask(work, slot, &mut out);
                } else {
                    busy -= 1;
                }
            }
            self.input = input;
            self.input.drain(..at);
        }
        Ok(done)
    }

    fn ask(&mut self, work: &Work<'_>, slot: &mut Slot, out: &mut Vec<u8>) -> Requested {
        let start = out.len();
        let xid = self.next_xid(slot.index);
        begin(out, self.user, xid, [NFS, 0]);
        let procedure = (work.build)(slot, Arguments(out));
        out[start + 24..start + 28].copy_from_slice(&procedure.to_be_bytes());
        seal(out, start);
        Requested { xid, procedure }
    }

    /// Checks a reply, and takes the handle from one of LOOKUP or CREATE.
    fn receive<'a>(
        &mut self,
        bytes: &[u8],
        slots: &'a mut [Slot],
        requested: &[Requested],
    ) -> Result<&'a mut Slot> {
        let record = record(bytes, &mut self.joined);
        let xid = number(record, 0)?;
        let index = xid as usize & ((1 << INDEX_BITS) - 1);
        let slot = slots.get_mut(index).context("a reply nobody asked for")?;
        ensure!(requested[index].xid == xid, "a reply to another call");
        let results = results(record)?;
        let (procedure, status) = (requested[index].procedure, number(results, 0)?);
        ensure!(status == 0, "procedure {procedure}, step {} failed: {status}", slot.step);
        match procedure {
            LOOKUP => slot.handle = handle(results, 4)?,
            CREATE => {
                ensure!(number(results, 4)? == 1, "CREATE returned no handle");
                slot.handle = handle(results, 8)?;
            }
            READ => {
                let count = number(results, 8 + attributes(results)?)?;
                ensure!(count == slot.wanted, "READ returned {count} bytes, not {}", slot.wanted);
            }
            _ => {}
        }
        Ok(slot)
    }

    fn more(&mut self) -> Result<()> {
        let at = self.input.len();
        self.input.resize(at + (1 << 18), 0);
        let count = self.stream.read(&mut self.input[at..]).context("no answer")?;
        self.input.truncate(at + count);
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }
}

/// Appends a record's mark and the header of a call, with the credential of a user.
fn begin(out: &mut Vec<u8>, (uid, gid): User, xid: u32, [program, procedure]: [u32; 2]) {
    let (call, rpc, sys, none) = (0, 2, 1, 0);
    // The credential: stamp, host name, uid, gid, no groups.
    let header = [0, xid, call, rpc, program, VERSION, procedure, sys, 24, 0];
    header.iter().for_each(|item: &u32| out.extend(item.to_be_bytes()));
    Arguments(out).opaque(b"host").u32(uid).u32(gid).u32(0).u32(none).u32(0);
}

/// Sets the mark of the record that starts there.
fn seal(out: &mut [u8], start: usize) {
    let size = u32::try_from(out.len() - start - 4).expect("below 2 GiB");
    out[start..start + 4].copy_from_slice(&(size | LAST).to_be_bytes());
}

/// Returns the size of the first record with its marks, if it is complete.
fn record_size(bytes: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    loop {
        let Some(mark) = bytes.get(at..at + 4) else { return Ok(None) };
        let mark = number(mark, 0)?;
        at += 4 + (mark & !LAST) as usize;
        ensure!(at <= RECORD_MAX, "a reply of {at} bytes");
        if at > bytes.len() {
            return Ok(None);
        }
        if mark & LAST != 0 {
            return Ok(Some(at));
        }
    }
}

/// Returns a complete record without its marks.
fn record<'a>(bytes: &'a [u8], joined: &'a mut Vec<u8>) -> &'a [u8] {
    if bytes[0] & 0x80 != 0 {
        return &bytes[4..];
    }
    joined.clear();
    let mut rest = bytes;
    while let Some((mark, after)) = rest.split_first_chunk::<4>() {
        let (fragment, next) = after.split_at((u32::from_be_bytes(*mark) & !LAST) as usize);
        joined.extend_from_slice(fragment);
        rest = next;
    }
    joined
}

/// Returns the results in a reply: behind xid, type, status, verifier and the accept status.
fn results(record: &[u8]) -> Result<&[u8]> {
    ensure!(number(record, 4)? == 1 && number(record, 8)? == 0, "the call was denied");
    let verifier = number(record, 16)? as usize;
    let at = 20 + verifier.next_multiple_of(4);
    match number(record, at)? {
        0 => Ok(&record[at + 4..]),
        status => bail!("the call was not accepted: {status}"),
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map(|four| u32::from_be_bytes(*four)).ok_or_else(|| anyhow!("a reply is too short"))
}

/// Returns the size of the optional attributes behind the status, bytes.
fn attributes(results: &[u8]) -> Result<usize> {
    Ok(if number(results, 4)? == 1 { ATTRIBUTES } else { 0 })
}

fn handle(bytes: &[u8], at: usize) -> Result<Handle> {
    let length = number(bytes, at)? as usize;
    let handle = bytes.get(at + 4..at + 4 + length).context("a reply is too short")?;
    Ok(Handle(handle.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_bytes_of_the_rfc() {
        let mut out = Vec::new();
        begin(&mut out, (5, 6), 9, [NFS, GETATTR]);
        Arguments(&mut out).handle(&Handle(vec![1, 2, 3]));
        seal(&mut out, 0);
        assert_eq!(out.len(), 4 + 64 + 8);
        assert_eq!(number(&out, 0).expect("a mark"), LAST | 72);
        let header = [9, 0, 2, NFS, 3, GETATTR, 1, 24, 0, 4];
        for (at, item) in header.into_iter().enumerate() {
            assert_eq!(number(&out, 4 + 4 * at).expect("it is there"), item, "item {at}");
        }
        assert_eq!(out[68..], [0, 0, 0, 3, 1, 2, 3, 0]);
    }

    #[test]
    fn a_reply_in_fragments_is_joined() {
        let bytes = [[0, 0, 0, 4], [1, 1, 1, 1], [0x80, 0, 0, 4], [2, 2, 2, 2], [9; 4]].concat();
        let size = record_size(&bytes).expect("it is small").expect("it is complete");
        assert_eq!(size, 16);
        assert_eq!(record(&bytes[..size], &mut Vec::new()), [1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(record_size(&bytes[..15]).expect("it is small"), None);
    }
}
