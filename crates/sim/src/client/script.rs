//! A client that sends the messages of a scenario, one after the other, and records the replies.
//! For regression tests: a script stays readable when seeds have long changed their meaning.
//!
//! A line is a command with its fids and names: `version NAME`, `attach FID`, `walk FID NEW [NAME
//! …]`, `open FID FLAGS`, `open9 FID MODE`, `create FID NAME`, `mkdir FID NAME`, `mkdir9 FID NAME`,
//! `list FID COUNT`, `lock FID OWNER`, `flush TAG`, `stat9 FID`, `clunk FID`. Its tag is its
//! number, from 1 on. Each follows a second after the previous one.

use super::{Client, Io};
use base::op::Listener;
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, Names, Rmessage, Tmessage, frame_size};

/// The client.
#[derive(Debug)]
pub struct Script {
    listener: Listener,
    lines: Vec<String>,
    next: usize,
    input: Vec<u8>,
    connected: bool,
    done: bool,
}

impl Script {
    /// Returns a client that sends these lines.
    pub fn new(listener: Listener, text: &str) -> Script {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(str::to_string).collect();
        Script { listener, lines, next: 0, input: Vec::new(), connected: false, done: false }
    }

    fn send(&mut self, io: &mut Io<'_>) {
        let line = self.lines[self.next].clone();
        self.next += 1;
        io.trace(format_args!("{line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u32>().expect("a number");
        let text = |index: usize| words[index].as_bytes();
        let tag = if words[0] == "version" { NO_TAG } else { self.next as u16 };
        let names: Vec<&[u8]> = words.iter().skip(3).map(|word| word.as_bytes()).collect();
        let message = match words[0] {
            "version" => Tmessage::Version { msize: 8192, version: text(1) },
            "attach" => {
                let (uname, aname): (&[u8], &[u8]) = (b"", b"");
                Tmessage::Attach { fid: number(1), afid: NO_FID, uname, aname, uid: None }
            }
            "walk" => {
                let names = Names::new(&names).expect("few");
                Tmessage::Walk { fid: number(1), newfid: number(2), names }
            }
            "open" => Tmessage::Lopen { fid: number(1), flags: number(2) },
            "open9" => Tmessage::Open { fid: number(1), mode: number(2) as u8 },
            "create" => {
                Tmessage::Lcreate { fid: number(1), name: text(2), flags: 2, mode: 0o644, gid: 0 }
            }
            "mkdir" => Tmessage::Mkdir { dfid: number(1), name: text(2), mode: 0o755, gid: 0 },
            "mkdir9" => {
                Tmessage::Create { fid: number(1), name: text(2), perm: 0x8000_01ed, mode: 0 }
            }
            "list" => Tmessage::Readdir { fid: number(1), offset: 0, count: number(2) },
            "lock" => Tmessage::Lock {
                fid: number(1),
                kind: 1,
                flags: 1,
                start: 0,
                length: 0,
                proc_id: number(2),
                client_id: b"script",
            },
            "flush" => Tmessage::Flush { oldtag: number(1) as u16 },
            "stat9" => Tmessage::Stat { fid: number(1) },
            "clunk" => Tmessage::Clunk { fid: number(1) },
            other => panic!("{other} is no command"),
        };
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        io.send(&bytes);
    }
}

impl Client for Script {
    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.connected {
            self.connected = io.connect(self.listener);
        } else if self.next < self.lines.len() {
            self.send(io);
        } else {
            return io.finish();
        }
        io.wake_in(Duration::from_secs(1));
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(size) = frame_size(&self.input).filter(|size| *size <= self.input.len()) {
            let message: Vec<u8> = self.input.drain(..size).collect();
            let (tag, reply) = Rmessage::decode(&message).expect("answers can be decoded");
            let text = format!("{reply:?}");
            let brief = match reply {
                Rmessage::Lerror { .. } | Rmessage::Lock { .. } => &text,
                _ => text.split(' ').next().unwrap_or_default(),
            };
            let tag = if tag == NO_TAG { 1 } else { tag };
            io.trace(format_args!("    {tag}: {brief}"));
        }
    }

    fn ended(&mut self, _io: &mut Io<'_>) {}

    fn closed(&mut self, _io: &mut Io<'_>) {
        self.done = true;
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert!(self.done, "the connection was never given up");
    }

    fn is_done(&self) -> bool {
        self.done
    }
}
