//! Buffers between a storelet and its owner, with flow control.

use super::Output;
use crate::report::Report;
use crate::run_spec::STAGES_MAX;
use crate::worker::OUTPUT_MAX;
use base::{Buf, Error};
use std::collections::VecDeque;
use std::mem;
use tree::{Reply, RequestId};
use wasi::Stream;
use wire::storelet::Frame;

/// Buffered input above which writers wait, bytes.
const INPUT_MAX: usize = 256 << 10;

/// Additional input that pipelined writes may bring, bytes.
const PIPELINED_MAX: usize = 4 << 20;

/// Consumed output after which the storelet is notified, bytes.
const TAKEN: usize = OUTPUT_MAX / 4;

/// A piece of output that was not read completely.
#[derive(Debug)]
struct Emitted {
    bytes: Vec<u8>,
    /// Number of bytes read.
    read: usize,
    /// Number of bytes that count for the storelet, whose position in the chain is `stage`; framing
    /// is excluded.
    own: usize,
    stage: usize,
}

/// State of the parser of input frames.
#[derive(Clone, Copy, Debug)]
enum FrameState {
    Head([u8; 4], usize),
    Body(usize),
    /// The last frame was received.
    End,
}

/// Buffered data and pending requests of both directions.
#[derive(Debug)]
pub(crate) struct StreamBuffers {
    frames: bool,
    input: bool,
    gap: FrameState,
    /// Input received before the storelet ran.
    held: Vec<Vec<u8>>,
    /// Input not yet consumed by the storelet, bytes.
    uneaten: usize,
    /// Pending writes, waiting for the storelet to consume input.
    writes: VecDeque<(RequestId, u32)>,
    emitted: VecDeque<Emitted>,
    /// Output consumed by the reader and not yet reported to the storelets of the chain, bytes.
    taken: [usize; STAGES_MAX],
    /// Pending reads, waiting for output.
    reads: VecDeque<(RequestId, u32, u32)>,
    closed: bool,
    /// Whether output is discarded, for lack of a reader.
    mute: bool,
}

impl Default for StreamBuffers {
    fn default() -> StreamBuffers {
        StreamBuffers {
            frames: false,
            input: false,
            gap: FrameState::Head([0; 4], 0),
            held: Vec::new(),
            uneaten: 0,
            writes: VecDeque::new(),
            emitted: VecDeque::new(),
            taken: [0; STAGES_MAX],
            reads: VecDeque::new(),
            closed: false,
            mute: false,
        }
    }
}

impl StreamBuffers {
    /// Sets the modes of output (with frames or without) and input (accepted or not).
    pub(crate) fn begin(&mut self, frames: bool, input: bool) {
        (self.frames, self.input) = (frames, input);
    }

    /// Discards all further output.
    pub(crate) fn mute(&mut self) {
        self.mute = true;
    }

    /// Decodes input frames and returns their contents; an empty one is the end of the stream. Data
    /// after the end is discarded, as is everything if the storelet has no input.
    pub(crate) fn take_input(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut fed: Vec<Vec<u8>> = Vec::new();
        while self.input && !bytes.is_empty() {
            self.gap = match self.gap {
                FrameState::Head(mut head, had) => {
                    assert!(had < 4, "the head is not whole yet");
                    let now = bytes.len().min(4 - had);
                    head[had..had + now].copy_from_slice(&bytes[..now]);
                    bytes = &bytes[now..];
                    match (had + now, u32::from_le_bytes(head)) {
                        (4, 0) => {
                            fed.push(Vec::new());
                            FrameState::End
                        }
                        (4, length) => FrameState::Body(length as usize),
                        (had, _) => FrameState::Head(head, had),
                    }
                }
                FrameState::Body(left) => {
                    let now = bytes.len().min(left);
                    add(&mut fed, &bytes[..now]);
                    bytes = &bytes[now..];
                    self.uneaten += now;
                    if now == left {
                        FrameState::Head([0; 4], 0)
                    } else {
                        FrameState::Body(left - now)
                    }
                }
                FrameState::End => break,
            };
        }
        fed
    }

    /// Buffers input of a storelet that does not run yet.
    pub(crate) fn hold(&mut self, fed: Vec<Vec<u8>>) {
        for bytes in fed {
            match bytes.is_empty() {
                true => self.held.push(bytes),
                false => add(&mut self.held, &bytes),
            }
        }
    }

    /// Returns whether the buffered input is at its limit: the writer has ignored flow control.
    pub(crate) fn is_full(&self) -> bool {
        self.uneaten > INPUT_MAX + PIPELINED_MAX
    }

    /// Takes the buffered input.
    pub(crate) fn held(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.held)
    }

    /// Replies to a write, at once or when the storelet has consumed enough.
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

    /// Accounts for input that the storelet has consumed.
    pub(crate) fn eaten(&mut self, count: usize, out: &mut Vec<Output>) {
        assert!(count <= self.uneaten, "no more is taken than was given");
        self.uneaten -= count;
        self.let_write(out);
    }

    /// Appends output of a storelet.
    pub(crate) fn append(
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

    /// Appends a state frame, if output is framed.
    pub(crate) fn tell_state(&mut self, state: &str, out: &mut Vec<Output>) {
        if self.frames {
            self.push(Frame::State, state.as_bytes().to_vec(), (0, 0));
            self.let_read(out);
        }
    }

    /// Appends the report and closes the output.
    pub(crate) fn close(&mut self, report: &Report, out: &mut Vec<Output>) {
        let stage = report.stage.iter().map(|stage| format!("{stage}: ")).collect::<String>();
        let reason = report.reason.as_ref();
        let text = reason.map(|reason| format!("upcall: {}: {stage}{reason}\n", report.end));
        self.close_with(report.to_json(), &text.unwrap_or_default(), out);
    }

    /// Closes the output with a report: as JSON where output is framed, else as text.
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
        self.emitted.push_back(Emitted { bytes, read: 0, own, stage });
    }

    /// Enqueues a read.
    pub(crate) fn read(&mut self, id: RequestId, count: u32, room: u32, out: &mut Vec<Output>) {
        self.reads.push_back((id, count, room));
        self.let_read(out);
    }

    fn let_read(&mut self, out: &mut Vec<Output>) {
        while !self.emitted.is_empty() || self.closed {
            let Some((id, count, room)) = self.reads.pop_front() else { break };
            let data = self.take(count as usize, room as usize);
            out.push(Output::Reply(id, Ok(Reply::Data(data))));
        }
        let all = self.emitted.is_empty();
        for (stage, taken) in self.taken.iter_mut().enumerate() {
            if *taken > TAKEN || (*taken > 0 && all) {
                out.push(Output::Taken(stage, mem::take(taken)));
            }
        }
    }

    fn take(&mut self, count: usize, room: usize) -> Buf {
        let there: usize =
            self.emitted.iter().map(|emitted| emitted.bytes.len() - emitted.read).sum();
        let mut data = Buf::with_room(room, count.min(there));
        while data.len() < count
            && let Some(emitted) = self.emitted.front_mut()
        {
            let now = (emitted.bytes.len() - emitted.read).min(count - data.len());
            data.extend(&emitted.bytes[emitted.read..emitted.read + now]);
            emitted.read += now;
            if emitted.read == emitted.bytes.len() {
                self.taken[emitted.stage] += emitted.own;
                self.emitted.pop_front();
            }
        }
        data
    }

    /// Returns whether this request is pending.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        let reads = self.reads.iter().map(|(read, ..)| *read);
        reads.chain(self.writes.iter().map(|(write, _)| *write)).any(|other| other == id)
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        let count = self.reads.len() + self.writes.len();
        self.reads.retain(|(read, ..)| *read != id);
        self.writes.retain(|(write, _)| *write != id);
        if self.reads.len() + self.writes.len() < count {
            out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
    }

    /// Cancels all pending requests.
    pub(crate) fn cancel_all(&mut self, out: &mut Vec<Output>) {
        let reads = self.reads.drain(..).map(|(id, ..)| id);
        let writes = self.writes.drain(..).map(|(id, _)| id);
        out.extend(reads.chain(writes).map(|id| Output::Reply(id, Err(Error::Cancelled))));
    }

    pub(crate) fn check(&self) {
        assert!(self.reads.is_empty() || (self.emitted.is_empty() && !self.closed));
        assert!(self.writes.is_empty() || self.uneaten > INPUT_MAX);
        assert!(
            self.emitted.iter().all(|emitted| emitted.read < emitted.bytes.len()),
            "read lines are gone"
        );
        assert!(
            self.emitted.iter().all(|emitted| emitted.stage < STAGES_MAX),
            "a chain is limited"
        );
    }
}

/// Appends input, merging small frames.
fn add(fed: &mut Vec<Vec<u8>>, bytes: &[u8]) {
    match fed.last_mut() {
        Some(last) if !last.is_empty() && last.len() < INPUT_MAX => last.extend_from_slice(bytes),
        Some(_) | None => fed.push(bytes.to_vec()),
    }
}
