//! What a storelet and its owner say to each other, and how much of it may wait.

use super::Output;
use crate::door::Stream;
use crate::order::STAGES_MAX;
use crate::report::Report;
use crate::worker::SAID_MAX;
use base::{Buf, Error};
use std::collections::VecDeque;
use std::mem;
use tree::{Reply, RequestId};
use wire::storelet::Frame;

/// How much input may wait before its writer has to, bytes.
const INPUT_MAX: usize = 256 << 10;

/// How much more several writers at once may bring, bytes.
const PIPELINED_MAX: usize = 4 << 20;

/// How much a storelet's output is read before it hears of that, bytes.
const TAKEN: usize = SAID_MAX / 4;

/// Something that was said and not read yet.
#[derive(Debug)]
struct Said {
    bytes: Vec<u8>,
    /// So much of it was read.
    read: usize,
    /// So much of it is the storelet's own, which is the one at this place of its chain.
    own: usize,
    stage: usize,
}

/// How much of an input frame is still to come.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Head([u8; 4], usize),
    Body(usize),
    /// The last frame has come.
    End,
}

/// What is on its way either way.
#[derive(Debug)]
pub(crate) struct Talk {
    frames: bool,
    input: bool,
    gap: Gap,
    /// Input that came before the storelet ran.
    held: Vec<Vec<u8>>,
    /// Input that the storelet has not taken.
    uneaten: usize,
    /// Writers that wait for it to take some.
    writes: VecDeque<(RequestId, u32)>,
    said: VecDeque<Said>,
    /// What was read and the storelets of the chain have not heard of.
    taken: [usize; STAGES_MAX],
    /// Readers that wait for something to be said.
    reads: VecDeque<(RequestId, u32, u32)>,
    closed: bool,
    /// Nobody hears it: what is said goes nowhere.
    mute: bool,
}

impl Default for Talk {
    fn default() -> Talk {
        Talk {
            frames: false,
            input: false,
            gap: Gap::Head([0; 4], 0),
            held: Vec::new(),
            uneaten: 0,
            writes: VecDeque::new(),
            said: VecDeque::new(),
            taken: [0; STAGES_MAX],
            reads: VecDeque::new(),
            closed: false,
            mute: false,
        }
    }
}

impl Talk {
    /// How it is talked from now on.
    pub(crate) fn begin(&mut self, frames: bool, input: bool) {
        (self.frames, self.input) = (frames, input);
    }

    /// Nobody hears what is said from now on.
    pub(crate) fn mute(&mut self) {
        self.mute = true;
    }

    /// Input in frames: their contents; an empty one is the end. What comes behind the end, or
    /// where no input is taken, goes nowhere.
    pub(crate) fn take_input(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut fed: Vec<Vec<u8>> = Vec::new();
        while self.input && !bytes.is_empty() {
            self.gap = match self.gap {
                Gap::Head(mut head, had) => {
                    assert!(had < 4, "the head is not whole yet");
                    let now = bytes.len().min(4 - had);
                    head[had..had + now].copy_from_slice(&bytes[..now]);
                    bytes = &bytes[now..];
                    match (had + now, u32::from_le_bytes(head)) {
                        (4, 0) => {
                            fed.push(Vec::new());
                            Gap::End
                        }
                        (4, length) => Gap::Body(length as usize),
                        (had, _) => Gap::Head(head, had),
                    }
                }
                Gap::Body(left) => {
                    let now = bytes.len().min(left);
                    add(&mut fed, &bytes[..now]);
                    bytes = &bytes[now..];
                    self.uneaten += now;
                    if now == left { Gap::Head([0; 4], 0) } else { Gap::Body(left - now) }
                }
                Gap::End => break,
            };
        }
        fed
    }

    /// Keeps input for a storelet that does not run yet.
    pub(crate) fn hold(&mut self, fed: Vec<Vec<u8>>) {
        for bytes in fed {
            match bytes.is_empty() {
                true => self.held.push(bytes),
                false => add(&mut self.held, &bytes),
            }
        }
    }

    /// Whether so much input waits that more is not taken: whoever writes has not waited.
    pub(crate) fn is_full(&self) -> bool {
        self.uneaten > INPUT_MAX + PIPELINED_MAX
    }

    /// What was kept.
    pub(crate) fn held(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.held)
    }

    /// Answers a writer, or lets it wait until the storelet has taken what there is.
    pub(crate) fn written(&mut self, id: RequestId, count: u32, out: &mut Vec<Output>) {
        self.writes.push_back((id, count));
        self.let_write(out);
    }

    fn let_write(&mut self, out: &mut Vec<Output>) {
        if self.uneaten <= INPUT_MAX || self.closed {
            let writes = self.writes.drain(..);
            out.extend(writes.map(|(id, count)| Output::Reply(id, Ok(Reply::Written(count)))));
        }
    }

    /// The storelet has taken so much.
    pub(crate) fn eaten(&mut self, count: usize, out: &mut Vec<Output>) {
        assert!(count <= self.uneaten, "no more is taken than was given");
        self.uneaten -= count;
        self.let_write(out);
    }

    /// The storelet says something.
    pub(crate) fn say(
        &mut self,
        stage: usize,
        stream: Stream,
        bytes: Vec<u8>,
        out: &mut Vec<Output>,
    ) {
        let own = bytes.len();
        if self.mute {
            return out.push(Output::Taken(stage, own));
        }
        let frame = match stream {
            Stream::Output => Frame::Output,
            Stream::Error => Frame::Error,
        };
        self.push(frame, bytes, (own, stage));
        self.let_read(out);
    }

    /// Tells what the storelet waits for, to those who can tell that from its output.
    pub(crate) fn tell_state(&mut self, state: &str, out: &mut Vec<Output>) {
        if self.frames {
            self.push(Frame::State, state.as_bytes().to_vec(), (0, 0));
            self.let_read(out);
        }
    }

    /// Says the last: how the storelet ended.
    pub(crate) fn close(&mut self, report: &Report, out: &mut Vec<Output>) {
        let stage = report.stage.iter().map(|stage| format!("{stage}: ")).collect::<String>();
        let reason = report.reason.as_ref();
        let text = reason.map(|reason| format!("upcall: {}: {stage}{reason}\n", report.end));
        self.close_with(report.to_json(), &text.unwrap_or_default(), out);
    }

    /// Says the last, as JSON to those who take frames, as text to others.
    pub(crate) fn close_with(&mut self, json: Vec<u8>, text: &str, out: &mut Vec<Output>) {
        if self.frames {
            self.push(Frame::Report, json, (0, 0));
        } else if !text.is_empty() {
            self.push(Frame::Error, text.as_bytes().to_vec(), (0, 0));
        }
        self.closed = true;
        self.let_write(out);
        self.let_read(out);
    }

    fn push(&mut self, frame: Frame, bytes: Vec<u8>, (own, stage): (usize, usize)) {
        let bytes = if self.frames { frame.encode(&bytes) } else { bytes };
        self.said.push_back(Said { bytes, read: 0, own, stage });
    }

    /// Somebody reads.
    pub(crate) fn read(&mut self, id: RequestId, count: u32, room: u32, out: &mut Vec<Output>) {
        self.reads.push_back((id, count, room));
        self.let_read(out);
    }

    fn let_read(&mut self, out: &mut Vec<Output>) {
        while !self.said.is_empty() || self.closed {
            let Some((id, count, room)) = self.reads.pop_front() else { break };
            let data = self.take(count as usize, room as usize);
            out.push(Output::Reply(id, Ok(Reply::Data(data))));
        }
        let all = self.said.is_empty();
        for (stage, taken) in self.taken.iter_mut().enumerate() {
            if *taken > TAKEN || (*taken > 0 && all) {
                out.push(Output::Taken(stage, mem::take(taken)));
            }
        }
    }

    fn take(&mut self, count: usize, room: usize) -> Buf {
        let there: usize = self.said.iter().map(|said| said.bytes.len() - said.read).sum();
        let mut data = Buf::with_room(room, count.min(there));
        while data.len() < count
            && let Some(said) = self.said.front_mut()
        {
            let now = (said.bytes.len() - said.read).min(count - data.len());
            data.extend(&said.bytes[said.read..said.read + now]);
            said.read += now;
            if said.read == said.bytes.len() {
                self.taken[said.stage] += said.own;
                self.said.pop_front();
            }
        }
        data
    }

    /// Whether this request waits.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        let reads = self.reads.iter().map(|(read, ..)| *read);
        reads.chain(self.writes.iter().map(|(write, _)| *write)).any(|other| other == id)
    }

    /// A request is not waited for any more.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        let count = self.reads.len() + self.writes.len();
        self.reads.retain(|(read, ..)| *read != id);
        self.writes.retain(|(write, _)| *write != id);
        if self.reads.len() + self.writes.len() < count {
            out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
    }

    /// Nobody waits for anything any more.
    pub(crate) fn cancel_all(&mut self, out: &mut Vec<Output>) {
        let reads = self.reads.drain(..).map(|(id, ..)| id);
        let writes = self.writes.drain(..).map(|(id, _)| id);
        out.extend(reads.chain(writes).map(|id| Output::Reply(id, Err(Error::Cancelled))));
    }

    pub(crate) fn check(&self) {
        assert!(self.reads.is_empty() || (self.said.is_empty() && !self.closed));
        assert!(self.writes.is_empty() || self.uneaten > INPUT_MAX);
        assert!(self.said.iter().all(|said| said.read < said.bytes.len()), "what was read is gone");
        assert!(self.said.iter().all(|said| said.stage < STAGES_MAX), "a chain is limited");
    }
}

/// Adds input behind what there is; many small frames become one.
fn add(fed: &mut Vec<Vec<u8>>, bytes: &[u8]) {
    match fed.last_mut() {
        Some(last) if !last.is_empty() && last.len() < INPUT_MAX => last.extend_from_slice(bytes),
        Some(_) | None => fed.push(bytes.to_vec()),
    }
}
