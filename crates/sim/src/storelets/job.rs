//! One storelet as known to the client that began it, and its checks.

mod draw;

use super::environment::Environment;
use super::programs::{self, DONE, Kinds};
use base::{Error, Instant};
use serde_json::Value;
use std::collections::VecDeque;
use storelet::OVERHEAD;
use tree::{OpenId, Reply, RequestId};
use wire::storelet::Frame;

/// Maximum number of bytes of one file request, by which a budget of bytes may be exceeded.
const TRANSFER_MAX: u64 = 1 << 20;

/// Maximum time to look up a root, ns.
const ROOT_NS: u64 = 1_000_000_000;

/// Budget of a storelet, from its run request.
#[derive(Clone, Copy, Debug)]
struct Budget {
    cpu: u64,
    fuel: u64,
    time: u64,
    memory: u64,
    io: u64,
    bytes: u64,
    output: u64,
}

/// Plan of a storelet.
#[derive(Debug)]
struct Plan {
    kind: Kinds,
    budget: Budget,
    frames: bool,
    /// Whether the run request is invalid.
    wrong: bool,
    /// Whether the module is invalid.
    garbage: bool,
    /// Whether the server should have the module already.
    known: bool,
    /// Whether it may write, as far as its run request permits.
    writes: bool,
    /// Whether it waits for input that never comes.
    waits: bool,
    /// Whether it reserves no share of the processor or of requests.
    is_modest: bool,
    /// Whether it belongs to the client that takes as much memory as permitted, for as long as
    /// permitted.
    holds: bool,
    /// Output if it ends by itself.
    expected: Vec<u8>,
    path: String,
}

/// The storelet.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) open: OpenId,
    pub(super) id: u64,
    plan: Plan,
    pieces: VecDeque<Vec<u8>>,
    writing: bool,
    /// Time when it was begun, and time when all writes so far were accepted.
    begun: Instant,
    sent: Instant,
    pub(super) reading: Option<RequestId>,
    read_max: u32,
    count: u32,
    cancelled: bool,
    got: Vec<u8>,
    ended: bool,
    /// Whether an authorised client has ended it, or tried to.
    pub(super) killed: bool,
    kill_at: Option<Instant>,
    leave_at: Option<Instant>,
    /// Number of bytes after which the client stops reading.
    deaf: usize,
}

/// End of a storelet.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit,
    Trap,
    Killed,
    Refused,
    Unknown,
}

/// Received output, and the end if known.
struct ReceivedOutput {
    outputs: Vec<u8>,
    end: Option<(End, String)>,
    report: Option<Value>,
}

/// Next steps.
impl Job {
    /// Returns whether it has ended, and everything was received.
    pub(super) fn is_over(&self) -> bool {
        self.ended && !self.writing && self.reading.is_none()
    }

    pub(super) fn wants_to_leave(&self, now: Instant) -> bool {
        self.leave_at.is_some_and(|at| at <= now)
    }

    /// Returns the next piece to write.
    pub(super) fn next_piece(&mut self) -> Option<Vec<u8>> {
        if self.writing {
            return None;
        }
        let piece = self.pieces.pop_front()?;
        self.writing = true;
        Some(piece)
    }

    /// Returns the number of bytes to read, if any.
    pub(super) fn next_read(&mut self, env: &mut Environment) -> Option<u32> {
        if self.reading.is_some() || self.ended || self.got.len() >= self.deaf {
            return None;
        }
        let most = if self.got.len() > 20_000 { 100_000 } else { self.read_max };
        self.count = env.rng.u32(1..=most);
        Some(self.count)
    }

    /// Returns the read to cancel.
    pub(super) fn next_cancel(&mut self, env: &mut Environment) -> Option<RequestId> {
        let read = self.reading.filter(|_| !self.cancelled)?;
        self.cancelled = env.one_in(env.params.cancel);
        self.cancelled.then_some(read)
    }

    pub(super) fn next_kill(&mut self, now: Instant) -> bool {
        self.kill_at.take_if(|at| *at <= now).is_some()
    }

    /// Handles the reply to a write.
    pub(super) fn wrote(&mut self, env: &Environment, count: usize, reply: Result<Reply, Error>) {
        assert!(std::mem::replace(&mut self.writing, false), "it wrote");
        self.sent = env.now;
        match reply {
            Ok(Reply::Written(written)) => assert_eq!(written as usize, count, "all is taken"),
            Err(Error::Invalid) => {
                let is_wrong = self.plan.wrong || self.is_beyond(env);
                assert!(is_wrong, "the order is right: {:?}", self.plan);
            }
            Err(Error::Disconnected) => {}
            reply => panic!("a write is answered by {reply:?}"),
        }
        if !matches!(reply, Ok(Reply::Written(_))) {
            self.pieces.clear();
        }
    }

    /// Handles the reply to a read.
    pub(super) fn received(&mut self, reply: Result<Reply, Error>) -> Option<Vec<u8>> {
        assert!(self.reading.take().is_some(), "it read");
        let cancelled = std::mem::replace(&mut self.cancelled, false);
        match reply {
            Ok(Reply::Data(data)) => {
                assert!(data.len() <= self.count as usize, "more than was requested");
                self.ended = data.is_empty();
                self.got.extend_from_slice(&data);
                Some(data.to_vec())
            }
            Err(Error::Cancelled) if cancelled => None,
            reply => panic!("a read is answered by {reply:?}"),
        }
    }
}

/// Checks.
impl Job {
    /// Checks the received output after the client has left.
    pub(super) fn judge(&self, env: &Environment, stopping: bool) {
        let received = self.understand();
        self.judge_output(&received, env.faults > 0);
        assert!(
            !self.ended || !self.is_framed() || received.report.is_some(),
            "no report: {self:?}"
        );
        if let Some((end, reason)) = &received.end {
            let at = (end, reason.as_str());
            match end {
                End::Exit => self.judge_exit(&received, env),
                End::Trap => self.judge_trap(reason),
                End::Killed => self.judge_killed(reason, &received, stopping),
                End::Refused => self.judge_refused(reason, env),
                End::Unknown => assert!(self.plan.known, "it was sent: {at:?} {:?}", self.plan),
            }
        }
        let is_beyond = self.is_beyond(env) && !self.plan.wrong && !self.plan.known;
        if let Some((end, reason)) = received.end.as_ref().filter(|_| is_beyond) {
            let early = ["it was cancelled", "the server ends", "its time is over"];
            let fits = match end {
                End::Refused => true,
                End::Killed => early.contains(&reason.as_str()),
                End::Exit => !self.is_framed(),
                End::Trap | End::Unknown => false,
            };
            assert!(fits, "it ran beyond the maxima: {end:?} {reason} {:?}", self.plan);
        }
        if let Some(report) = &received.report {
            self.judge_waited(report, env);
            self.judge_used(report, received.outputs.len() as u64, env);
        }
    }

    /// Parses the received bytes, with or without frames.
    fn understand(&self) -> ReceivedOutput {
        if !self.is_framed() {
            return self.understand_plain();
        }
        let mut received = ReceivedOutput { outputs: Vec::new(), end: None, report: None };
        let mut rest = &self.got[..];
        while let Some((frame, body)) = Frame::decode(rest).expect("frames") {
            assert!(received.report.is_none(), "something comes behind the report");
            match frame {
                Frame::Output | Frame::Error => {
                    let error = self.plan.kind == Kinds::Sleeper;
                    assert_eq!(frame == Frame::Error, error, "another stream");
                    received.outputs.extend_from_slice(body);
                }
                Frame::State => {}
                Frame::Report => {
                    let report: Value = serde_json::from_slice(body).expect("a report is JSON");
                    let reason = report["reason"].as_str().unwrap_or_default().to_string();
                    let end = report["end"].as_str().expect("it says how it ended");
                    received.end = Some((end_of(end), reason));
                    received.report = Some(report);
                }
            }
            rest = &rest[wire::storelet::FRAME_HEAD + body.len()..];
        }
        assert!(rest.is_empty() || !self.ended, "half a frame is the last");
        received
    }

    /// Returns whether the output is framed: an invalid or incomplete run request gets plain text.
    fn is_framed(&self) -> bool {
        self.plan.frames && self.got.first() != Some(&b'u')
    }

    fn understand_plain(&self) -> ReceivedOutput {
        let (mut outputs, mut end) = (self.got.clone(), None);
        let mark = b"upcall: ";
        let place = outputs.windows(mark.len()).rposition(|bytes| bytes == mark);
        let line = place.map(|at| outputs.split_off(at));
        if self.ended {
            let line = line.map(|line| String::from_utf8(line).expect("it is text"));
            end = Some(match &line {
                Some(line) => {
                    let text = line.trim_end().strip_prefix("upcall: ").expect("it was found");
                    let (end, reason) = text.split_once(": ").expect("an end and a reason");
                    (end_of(end), reason.to_string())
                }
                None => (End::Exit, String::new()),
            });
        }
        if let Some(part) = (1..mark.len()).rev().find(|part| outputs.ends_with(&mark[..*part])) {
            // The reason may be incomplete, unless it is the program's own.
            if !self.ended && !self.plan.expected.starts_with(&outputs) {
                outputs.truncate(outputs.len() - part);
            }
        }
        ReceivedOutput { outputs, end, report: None }
    }

    /// Checks that the output is a prefix of the program's.
    fn judge_output(&self, received: &ReceivedOutput, faults: bool) {
        let Plan { kind, expected, .. } = &self.plan;
        let fits = match kind {
            Kinds::Flood => received.outputs.iter().all(|byte| *byte == 0),
            // Directories that cannot be listed are skipped.
            Kinds::List | Kinds::Search if faults => true,
            _ => expected.starts_with(&received.outputs),
        };
        let end = &received.end;
        assert!(
            fits,
            "{kind:?} {} says {} bytes, other ones: {end:?}",
            self.id,
            received.outputs.len()
        );
    }

    fn judge_exit(&self, received: &ReceivedOutput, env: &Environment) {
        let Plan { kind, expected, writes, waits, budget, .. } = &self.plan;
        let code = received.report.as_ref().map(|report| report["exit"].as_u64());
        let code = code.map(|code| code.expect("an exit has a code"));
        let all = code.is_none_or(|code| code == DONE);
        let ends = !kind.is_endless() && !waits && *kind != Kinds::Trap;
        if all && env.faults == 0 && self.may_write(env) {
            assert!(ends, "it never ends by itself: {:?}", self.plan);
            assert!(received.outputs == *expected, "{kind:?} {} has no complete output", self.id);
        } else if code == Some(DONE) {
            let listed = matches!(kind, Kinds::List | Kinds::Search);
            assert!(
                ends && (listed || received.outputs == *expected),
                "its output is incomplete: {:?}",
                self.plan
            );
        } else if code.is_some() {
            let forbidden = !self.may_write(env);
            assert!(env.faults > 0 || forbidden, "exit {code:?} {writes}: {:?}", self.plan);
        }
        if let Some(report) = received.report.as_ref().filter(|_| *kind == Kinds::Hog) {
            let used = report["memory"].as_u64().expect("a number of bytes");
            assert!(used + (4 << 16) > budget.memory, "it got {used} only: {budget:?}");
        }
    }

    fn may_write(&self, env: &Environment) -> bool {
        self.plan.kind != Kinds::Writer || (self.plan.writes && env.params.writes)
    }

    fn judge_trap(&self, reason: &str) {
        let mistake = reason.contains("unreachable") && self.plan.kind == Kinds::Trap;
        assert!(mistake, "{reason}: {:?}", self.plan);
    }

    /// Checks that the reason is an exceeded budget, or an authorised kill.
    fn judge_killed(&self, reason: &str, received: &ReceivedOutput, stopping: bool) {
        let budget = &self.plan.budget;
        let used = |what: &str| {
            let number = |report: &Value| report[what].as_u64().expect("a number");
            received.report.as_ref().map_or(u64::MAX / 4, number)
        };
        let fits = match reason {
            "its processor time is used up" => used("cpu_ns") + used("served_ns") > budget.cpu,
            "its fuel is used up" => used("fuel") >= budget.fuel,
            "its time is over" => used("time_ns") + ROOT_NS >= budget.time,
            "it needs more memory than it may have" => budget.memory < 2 << 16,
            "request budget exceeded" => used("operations") > budget.io,
            "it has read and written as many bytes as it may" => {
                used("read") + used("written") > budget.bytes
            }
            "output budget exceeded" => used("output") > budget.output,
            "it was cancelled" => self.killed,
            "the server ends" => stopping,
            _ => false,
        };
        assert!(fits, "killed: {reason}: {:?} {:?}", received.report, self.plan);
    }

    fn judge_refused(&self, reason: &str, env: &Environment) {
        let Plan { wrong, garbage, budget, .. } = &self.plan;
        let maxima = env.params.maxima();
        let fits = match reason {
            reason if reason.starts_with("memory exceeds") => budget.memory > maxima.memory,
            reason if reason.starts_with("time exceeds") => budget.time > maxima.time_ns,
            reason if reason.starts_with("processor time exceeds") => budget.cpu > maxima.cpu_ns,
            reason if reason.starts_with("the module is too expensive") => env.params.refuse > 0,
            reason if reason.starts_with("the module cannot be run") => *garbage,
            reason if reason.starts_with("cannot enter its root") => env.faults > 0,
            _ => *wrong,
        };
        assert!(fits, "refused: {reason}: {:?}", self.plan);
    }

    /// Returns whether its run request exceeds the server's maximum.
    fn is_beyond(&self, env: &Environment) -> bool {
        let (budget, maxima) = (&self.plan.budget, env.params.maxima());
        budget.memory > maxima.memory || budget.time > maxima.time_ns || budget.cpu > maxima.cpu_ns
    }

    /// Checks that a client that takes as much memory as permitted, and waits, does not delay small
    /// storelets, even of the same user.
    fn judge_waited(&self, report: &Value, env: &Environment) {
        let little = self.plan.budget.memory + OVERHEAD <= env.params.memory / 16;
        if !env.params.holds || !little || !self.plan.is_modest {
            return;
        }
        let waited = report["waited_ns"].as_u64().expect("a number");
        let most = (env.params.compile_us + 20 * env.params.post_us) * 1000 + 1_000_000_000;
        let begun = self.begun.0 + waited;
        let late = begun.saturating_sub(self.sent.0);
        assert!(late <= most, "it had to wait for {late} ns, of {most}: {:?}", self.plan);
    }

    /// Checks that no budget is exceeded by more than a slice and one request in flight.
    fn judge_used(&self, report: &Value, output_bytes: u64, env: &Environment) {
        let budget = &self.plan.budget;
        let used = |what: &str| report[what].as_u64().expect("a number");
        let slice = env.params.slice_ns;
        // Work done for it while it waited counts at its next turn.
        let beyond = slice + crate::disk::JOB_NS + 1000 * env.params.around_ns;
        let fits = used("cpu_ns") + used("served_ns") <= budget.cpu + beyond
            && used("time_ns") <= budget.time.saturating_add(2 * slice * 10)
            && used("fuel") <= budget.fuel
            && used("memory") <= budget.memory
            && used("operations") <= budget.io.saturating_add(1)
            && used("read") + used("written") <= budget.bytes.saturating_add(TRANSFER_MAX)
            && output_bytes <= budget.output
            && output_bytes <= used("output");
        assert!(fits, "{output_bytes} bytes of output: {report}: {:?}", self.plan);
    }

    /// Returns the file that must exist at the end, and its contents.
    pub(super) fn written(&self) -> Option<(String, Vec<u8>)> {
        let report = self.understand().report?;
        let all = self.plan.kind == Kinds::Writer && report["exit"].as_u64() == Some(DONE);
        all.then(|| (self.plan.path.clone(), vec![b'w'; programs::WRITTEN]))
    }
}

fn end_of(text: &str) -> End {
    match text {
        "exit" => End::Exit,
        "trap" => End::Trap,
        "killed" => End::Killed,
        "refused" => End::Refused,
        "unknown" => End::Unknown,
        other => panic!("nothing ends like this: {other}"),
    }
}
