//! A 9P2000.L client that keeps a number of operations in flight on one connection.
//!
//! The benchmarks' own client, written from the protocol and not from our server's code, so that
//! errors of the two are independent. Messages that become ready together are sent together.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Fid of the root.
pub const ROOT: u32 = 0;
/// First fid available to operations.
pub const FIRST: u32 = 100;

const NOFID: u32 = !0;
const NOTAG: u16 = !0;
const RLERROR: u8 = 7;
/// Type of Tgetattr.
pub const TGETATTR: u8 = 24;

/// A request under construction: its length field is filled in at the end.
pub struct Message<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Message<'a> {
    /// Begins a message of a type with a tag.
    pub fn new(out: &'a mut Vec<u8>, kind: u8, tag: u16) -> Message<'a> {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, kind]);
        Message { out, start }.u16(tag)
    }

    /// Appends a number.
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number.
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number.
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a string with its length.
    pub fn text(self, value: &str) -> Self {
        let length = u16::try_from(value.len()).expect("names are short");
        self.u16(length).bytes(value.as_bytes())
    }

    /// Appends bytes, and updates the length of the message.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        let length = u32::try_from(self.out.len() - self.start).expect("below msize");
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
        self
    }
}

/// State of one operation in flight.
pub struct Slot {
    /// Its tag, also its index.
    pub tag: u16,
    /// Index of the operation's next message.
    pub step: usize,
    /// Parameter of the operation, if it has one.
    pub number: u64,
    random: u64,
}

impl Slot {
    /// Returns a fid reserved for this slot.
    pub fn fid(&self) -> u32 {
        FIRST + u32::from(self.tag)
    }

    /// Returns a number below `end`, from this slot's own reproducible sequence.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }
}

/// Repeated operation: `steps` messages, built one at a time.
pub struct Work<'a> {
    /// Number of messages of an operation.
    pub steps: usize,
    /// Appends the message of an operation's step.
    pub build: &'a dyn Fn(&mut Slot, &mut Vec<u8>),
}

/// A connection after Tversion and Tattach.
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects and attaches as this process's user.
    pub fn attach(port: u16, aname: &str) -> Result<Client> {
        Client::attach_with(port, aname, 65536)
    }

    /// Like [`Client::attach`], with messages of at most `msize` bytes, up to a MiB.
    pub fn attach_with(port: u16, aname: &str, msize: u32) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut client = Client { stream, input: Vec::new() };
        let version = |out: &mut Vec<u8>| {
            Message::new(out, 100, NOTAG).u32(msize).text("9P2000.L");
        };
        client.call(version)?;
        let user = rustix::process::getuid().as_raw();
        client.call(|out| {
            Message::new(out, 104, 0).u32(ROOT).u32(NOFID).text("").text(aname).u32(user);
        })?;
        Ok(client)
    }

    /// Sends one request and returns the body of its reply.
    pub fn call(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>> {
        let mut kind = 0;
        let answer = self.ask(|out| {
            build(out);
            kind = out[4];
        })?;
        answer.map_err(|errno| anyhow!("request {kind} failed: errno {errno}"))
    }

    /// Like [`Client::call`]; an error reply is returned as its errno.
    pub fn ask(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Result<Result<Vec<u8>, u32>> {
        let mut out = Vec::new();
        build(&mut out);
        self.stream.write_all(&out)?;
        let message = self.whole_message()?;
        Ok(match message[4] {
            RLERROR => Err(errno(&message)),
            _ => Ok(message[7..].to_vec()),
        })
    }

    /// Walks from the root to a file and opens it, with the flags of Linux's `open(2)`.
    pub fn open(&mut self, fid: u32, names: &[&str], flags: u32) -> Result<()> {
        self.call(|out| {
            let count = u16::try_from(names.len()).expect("a few");
            let message = Message::new(out, 110, 0).u32(ROOT).u32(fid).u16(count);
            names.iter().fold(message, |message, name| message.text(name));
        })?;
        self.call(|out| {
            Message::new(out, 12, 0).u32(fid).u32(flags);
        })?;
        Ok(())
    }

    /// Receives the next reply: its type, its tag, and its body.
    pub fn reply(&mut self) -> Result<(u8, u16, Vec<u8>)> {
        let message = self.whole_message()?;
        let tag = u16::from_le_bytes([message[5], message[6]]);
        Ok((message[4], tag, message[7..].to_vec()))
    }

    fn whole_message(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(length) = whole(&self.input)? {
                return Ok(self.input.drain(..length).collect());
            }
            self.more()?;
        }
    }

    /// Sends requests whose replies are never read, or are read by [`Client::reply`].
    pub fn send(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut out = Vec::new();
        build(&mut out);
        Ok(self.stream.write_all(&out)?)
    }

    /// Returns whether the server has not closed the connection. Received bytes stay in the socket.
    pub fn lives(&self) -> bool {
        let mut byte = [0];
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut byte));
        let back = self.stream.set_nonblocking(false);
        match looked {
            Ok(count) => count > 0 && back.is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock && back.is_ok(),
        }
    }

    /// Keeps `depth` operations in flight for `time`; returns the number completed.
    pub fn run(&mut self, work: &Work<'_>, depth: u16, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        self.run_while(work, depth, || Instant::now() < end)
    }

    /// Keeps `depth` operations in flight as long as `another` returns true; returns the number
    /// completed.
    pub fn run_while(
        &mut self,
        work: &Work<'_>,
        depth: u16,
        mut another: impl FnMut() -> bool,
    ) -> Result<u64> {
        let mut slots: Vec<_> = (0..depth)
            .map(|tag| Slot {
                tag,
                step: 0,
                number: 0,
                random: 0x9e37_79b9 + u64::from(tag) * 7919,
            })
            .collect();
        let (mut done, mut busy) = (0, 0);
        let mut out = Vec::new();
        for slot in &mut slots {
            if another() {
                (work.build)(slot, &mut out);
                busy += 1;
            }
        }
        while busy > 0 {
            self.stream.write_all(&out)?;
            out.clear();
            self.more()?;
            let mut at = 0;
            while let Some(length) = whole(&self.input[at..])? {
                let message = &self.input[at..at + length];
                let tag = u16::from_le_bytes([message[5], message[6]]);
                let slot = slots.get_mut(usize::from(tag)).context("an answer nobody asked for")?;
                if message[4] == RLERROR {
                    bail!("step {} failed: errno {}", slot.step, errno(message));
                }
                at += length;
                slot.step = (slot.step + 1) % work.steps;
                done += u64::from(slot.step == 0);
                if slot.step > 0 || another() {
                    (work.build)(slot, &mut out);
                } else {
                    busy -= 1;
                }
            }
            self.input.drain(..at);
        }
        Ok(done)
    }

    /// Gets the attributes of the root, as a liveness check.
    pub fn stat_root(&mut self) -> Result<()> {
        self.call(|out| {
            Message::new(out, TGETATTR, 0).u32(ROOT).u64(0x7ff);
        })
        .map(|_| ())
    }

    /// Sends requests and disconnects without reading a reply.
    pub fn ask_and_leave(mut self, requests: u16) -> Result<()> {
        let mut out = Vec::new();
        for tag in 0..requests {
            Message::new(&mut out, TGETATTR, tag).u32(ROOT).u64(0x7ff);
        }
        Ok(self.stream.write_all(&out)?)
    }

    fn more(&mut self) -> Result<()> {
        let mut chunk = [0; 1 << 18];
        let count = self.stream.read(&mut chunk).context("no answer")?;
        ensure!(count > 0, "the server closed the connection");
        self.input.extend_from_slice(&chunk[..count]);
        Ok(())
    }
}

/// Returns the length of the first message, if it is complete.
fn whole(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*head))?;
    ensure!((7..=1 << 20).contains(&length), "a message of {length} bytes");
    Ok((bytes.len() >= length).then_some(length))
}

fn errno(message: &[u8]) -> u32 {
    message.get(7..11).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
