//! A 9P server in memory: one session at a time before a host tree on a simulated disk.

use crate::disk::Disk;
use crate::world::WALL;
use base::op::{Done, File, Op};
use base::rng::Rng;
use base::{Automaton, Buf, Caller, Instant, Kind, Stat, Time};
use front::ninep::Session;
use front::{CallId, Export, Identity, Limits, Nfs, Web};
use std::collections::VecDeque;
use tree::host::Host;
use tree::{Request, RequestId};
use wire::ninep::{DecodeError, Rmessage, Tmessage, frame_size};

/// A host tree on a disk of its own, with immediate completions.
#[derive(Debug)]
pub struct ImmediateHost {
    /// The disk.
    pub disk: Disk,
    /// The tree.
    pub host: Host,
    /// Seconds since the beginning, the timestamps of its files.
    pub clock: i64,
}

impl ImmediateHost {
    /// Returns an empty one.
    pub fn new() -> ImmediateHost {
        let mut disk = Disk::new(WALL);
        let root: File = disk.open_root();
        let stat = Stat { kind: Kind::Directory, ..disk.attributes(1).unwrap_or_default() };
        let host = Host::new(0, root, &stat, false);
        ImmediateHost { disk, host, clock: 0 }
    }

    /// Passes an input to the tree and performs its operations, until no more can complete.
    pub fn step(&mut self, input: tree::Input) -> Vec<tree::Output> {
        let mut inputs = VecDeque::from([input]);
        let mut replies = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.host.step(Instant(0), input, &mut out);
            self.host.check();
            for output in out {
                match output {
                    tree::Output::Do(op) => {
                        inputs
                            .extend(self.perform(op).map(|(id, done)| tree::Input::Done(id, done)));
                    }
                    reply => replies.push(reply),
                }
            }
        }
        replies
    }

    fn perform(&mut self, op: Op) -> Option<(base::op::OpId, Done)> {
        let now = Time { secs: WALL.secs + self.clock, nanos: 0 };
        match op {
            Op::Read { id, file, offset, count, headroom } => {
                let read = self.disk.read(file, offset, count).map(|bytes| {
                    let mut buf = Buf::with_room(headroom as usize, bytes.len());
                    buf.extend(&bytes);
                    buf
                });
                Some((id, Done::Read(read)))
            }
            Op::Write { id, file, offset, data, .. } => {
                Some((id, Done::Written(self.disk.write(now, file, offset, &data))))
            }
            Op::Sync { id, .. } => Some((id, Done::Synced(Ok(())))),
            Op::Path { id, op, .. } => Some((id, Done::Path(self.disk.perform(now, &op)))),
            Op::CloseFile { file, .. } => {
                self.disk.close(file);
                None
            }
            Op::Cancel { .. } => None,
            other => panic!("{other:?} of a host tree"),
        }
    }
}

impl Default for ImmediateHost {
    fn default() -> ImmediateHost {
        ImmediateHost::new()
    }
}

/// The server.
#[derive(Debug)]
pub struct RemoteServer {
    /// The served tree.
    pub ground: ImmediateHost,
    /// Its maximum message size, bytes.
    pub msize: u32,
    /// Whether it lacks 9P2000.L.
    pub plain: bool,
    session: Option<Session>,
    /// Source of corrupted replies.
    pub liar: Option<Rng>,
    /// The last messages both ways, for diagnostics.
    pub outputs: VecDeque<String>,
}

impl RemoteServer {
    /// Returns a server of an empty directory.
    pub fn new(msize: u32, plain: bool) -> RemoteServer {
        RemoteServer {
            ground: ImmediateHost::new(),
            msize,
            plain,
            session: None,
            liar: None,
            outputs: VecDeque::new(),
        }
    }

    /// Begins a session for a new connection.
    pub fn connected(&mut self) {
        let limits = Limits { msize: self.msize, ..Limits::default() };
        let root = self.ground.host.root();
        let export = Export {
            root,
            device: 1,
            path: Vec::new(),
            wall: WALL,
            limits,
            web: Web::default(),
            nfs: Nfs::default(),
            services: [].into(),
        };
        let export = Export { device: self.device(), ..export };
        self.session = Some(Session::new(export, Identity::Fixed(Caller::Server)));
    }

    fn device(&self) -> u64 {
        self.ground.disk.attributes(1).unwrap_or_default().device
    }

    /// Receives bytes from the client; returns the reply bytes.
    pub fn received(&mut self, bytes: &[u8]) -> Vec<u8> {
        let bytes = if self.plain { without_linux(bytes) } else { bytes.to_vec() };
        self.note(&bytes, |message| Tmessage::decode(message).map(|m| format!("{m:?}")));
        let mut outputs = self.pump(front::Input::Received(Buf::from(bytes)));
        if let Some(rng) = &mut self.liar
            && rng.u8(..4) == 0
        {
            lie(rng, &mut outputs);
        }
        self.note(&outputs, |message| Rmessage::decode(message).map(|m| format!("{m:?}")));
        outputs
    }

    fn note(&mut self, mut bytes: &[u8], show: fn(&[u8]) -> Result<String, DecodeError>) {
        while let Some(size) = frame_size(bytes).filter(|size| (7..=bytes.len()).contains(size)) {
            let text = show(&bytes[..size]).unwrap_or_else(|error| error.to_string());
            self.outputs.push_back(text.chars().take(160).collect());
            bytes = &bytes[size..];
        }
        let excess = self.outputs.len().saturating_sub(30);
        self.outputs.drain(..excess);
    }

    /// Ends the session after the loss of the connection.
    pub fn lost(&mut self) {
        self.pump(front::Input::Lost);
        if let Some(session) = self.session.take() {
            assert!(session.is_over(), "a session that is lost has nothing left");
        }
    }

    fn pump(&mut self, input: front::Input) -> Vec<u8> {
        let mut outputs = Vec::new();
        let mut inputs = VecDeque::from([input]);
        while let (Some(session), Some(input)) = (&mut self.session, inputs.pop_front()) {
            let mut out = Vec::new();
            session.step(Instant(0), input, &mut out);
            for output in out {
                let input = match output {
                    front::Output::Ask(CallId(id), Request { caller, ask }) => {
                        let id = RequestId(id.into());
                        tree::Input::Ask(id, Request { caller, ask })
                    }
                    front::Output::Cancel(CallId(id)) => tree::Input::Cancel(RequestId(id.into())),
                    front::Output::Release(node) => tree::Input::Release(node),
                    front::Output::Close(open) => tree::Input::Close(open),
                    front::Output::Abandon(open) => tree::Input::Abandon(open),
                    front::Output::Send(bytes) => {
                        outputs.extend_from_slice(&bytes);
                        inputs.push_back(front::Input::Sent(bytes.len()));
                        continue;
                    }
                    front::Output::Finish
                    | front::Output::Replied(_)
                    | front::Output::Called(..)
                    | front::Output::Claim(..)
                    | front::Output::Locks(..)
                    | front::Output::Settle(..)
                    | front::Output::Account(_) => continue,
                    front::Output::Hangup(why) => {
                        let expected = why == "the client left" || self.liar.is_some();
                        assert!(expected, "the server hangs up: {why}");
                        continue;
                    }
                };
                for output in self.ground.step(input) {
                    let tree::Output::Reply(id, reply) = output else { continue };
                    let id = CallId(u32::try_from(id.0).expect("it was one"));
                    inputs.push_back(front::Input::Answered(id, reply));
                }
            }
        }
        outputs
    }
}

/// Corrupts replies: changes one byte or many, truncates, extends, or duplicates.
fn lie(rng: &mut Rng, outputs: &mut Vec<u8>) {
    match rng.u8(..8) {
        0 => outputs.truncate(rng.usize(..=outputs.len())),
        1 => outputs.extend_from_within(..),
        2 => outputs.extend((0..rng.usize(..60)).map(|_| rng.u8(..))),
        _ if outputs.is_empty() => {}
        3 | 4 => {
            // The type, or a byte near it.
            let at = rng.usize(..outputs.len().min(12));
            outputs[at] = rng.u8(..130);
        }
        _ => {
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..outputs.len());
                outputs[at] = if rng.bool() { rng.u8(..) } else { [0, 1, 0xff][rng.usize(..3)] };
            }
        }
    }
}

/// Replaces an offer of 9P2000.L by an unknown version, so that the server rejects it.
fn without_linux(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let offer = b"9P2000.L";
    let found = bytes.windows(offer.len()).position(|window| window == offer);
    if let (Some(at), 100) = (found, bytes.get(4).copied().unwrap_or_default()) {
        bytes[at..at + offer.len()].copy_from_slice(b"8P2000.L");
    }
    bytes
}
