//! `PUT`: the body goes to a temporary file beside its place, is made durable, takes its name,
//! and the name is made durable; the directory is opened for that before, so that nothing has
//! changed if it cannot be. Who reads meanwhile sees the old file or the new one, and a
//! success means that the new one survives a crash. A body that ends early leaves nothing behind.

use super::answer::{Head, etag, status};
use super::{BODY_TIME, CALL, CLEANUP, Session, State};
use crate::Output;
use base::{Access, Buf, Caller, Error, Instant, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply, Request as TreeRequest};
use wire::http::{Body, Chunks, Piece, Refusal, Request, Verdict, refusal};

/// How much of a body is received and written at once, bytes.
const PIECE: usize = 256 << 10;
/// How often another temporary name is tried when one is taken.
const ATTEMPTS_MAX: u32 = 16;
/// Permissions of a new file.
const MODE: u32 = 0o644;

/// What conditions are not fulfilled.
const UNEXPECTED: Refusal = refusal(412, "the file is not the one that was expected");

/// An upload.
#[derive(Debug)]
pub(super) struct Put {
    request: Box<Request>,
    step: Step,
    left: Left,
}

/// How much of the body is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    Length(u64),
    Chunks(Chunks),
}

/// What an upload waits for.
#[derive(Debug)]
enum Step {
    /// For the file that is there, if any.
    Looking,
    /// For the directory; the permissions of what is replaced.
    Finding(Option<u32>),
    /// For the temporary file.
    Creating { dir: NodeId, replaced: Option<u32>, temporary: Name, attempt: u32 },
    /// For more of the body, until the given time.
    Filling(File, Instant),
    /// For so many bytes to be written.
    Writing(File, usize),
    /// For its contents to be durable.
    Syncing(File),
    /// For its final attributes.
    Measuring(File),
    /// For its directory to be opened.
    Opening(File, Stat),
    /// For its name, with the directory open.
    Naming(File, Stat, OpenId),
    /// For its directory to be durable.
    SyncingDir(NodeId, OpenId, bool, Stat),
    /// For the temporary file to be gone; then this is said.
    Removing(NodeId, Refusal),
}

/// The temporary file.
#[derive(Debug)]
struct File {
    dir: NodeId,
    node: NodeId,
    open: OpenId,
    temporary: Name,
    replaces: bool,
    written: u64,
}

impl File {
    /// Gives it back and asks for its removal, but for its directory.
    fn remove(self, out: &mut Vec<Output>) -> (NodeId, Ask) {
        out.extend([Output::Close(self.open), Output::Release(self.node)]);
        let (dir, name) = (self.dir, self.temporary);
        (dir, Ask::Remove { dir, name, directory: Some(false) })
    }
}

impl Put {
    /// Whether it waits for the client alone; what is received is written at once then.
    pub(super) fn is_filling(&self) -> bool {
        matches!(self.step, Step::Filling(..))
    }

    /// Whether more of the body is wanted, with so many bytes received and not yet written.
    pub(super) fn is_hungry(&self, buffered: usize) -> bool {
        let wanted = match self.left {
            Left::Length(left) => left > buffered as u64,
            Left::Chunks(place) => place != Chunks::Done,
        };
        let ready = matches!(self.step, Step::Filling(..) | Step::Writing(..));
        ready && wanted && buffered < PIECE
    }

    pub(super) fn receive_into(&self) -> Option<Buf> {
        match self.left {
            Left::Length(left) if left > (PIECE / 8) as u64 => {
                let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
                Some(Buf::with_room(0, length))
            }
            Left::Length(_) | Left::Chunks(_) => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Filling(_, until) => Some(until),
            Step::Looking
            | Step::Finding(_)
            | Step::Creating { .. }
            | Step::Writing(..)
            | Step::Syncing(_)
            | Step::Measuring(_)
            | Step::Opening(..)
            | Step::Naming(..)
            | Step::SyncingDir(..)
            | Step::Removing(..) => None,
        }
    }

    /// Gives back what it holds and removes the temporary file; how many answers are to come.
    pub(super) fn forget(self, caller: &Caller, out: &mut Vec<Output>) -> usize {
        let (file, asked) = match self.step {
            Step::Looking | Step::Finding(_) => return 1,
            Step::Creating { dir, .. } | Step::Removing(dir, _) => {
                out.push(Output::Release(dir));
                return 1;
            }
            Step::SyncingDir(dir, open, ..) => {
                out.extend([Output::Close(open), Output::Release(dir)]);
                return 1;
            }
            Step::Filling(file, _) => (file, 0),
            Step::Writing(file, _)
            | Step::Syncing(file)
            | Step::Measuring(file)
            | Step::Opening(file, _) => (file, 1),
            Step::Naming(file, _, open) => {
                out.push(Output::Close(open));
                (file, 1)
            }
        };
        let (dir, ask) = file.remove(out);
        out.push(Output::Ask(CLEANUP, TreeRequest { caller: caller.clone(), ask }));
        out.push(Output::Release(dir));
        asked + 1
    }

    fn at(self, step: Step) -> State {
        State::Putting(Put { step, ..self })
    }
}

impl Session {
    pub(super) fn put(&mut self, now: Instant, request: Request, out: &mut Vec<Output>) -> State {
        let left = match request.body {
            Body::None => Left::Length(0),
            Body::Length(length) => Left::Length(length),
            Body::Chunked => Left::Chunks(Chunks::default()),
        };
        if request.target.path.is_empty() || request.target.slash {
            return self.refuse(now, refusal(409, "a directory cannot be put; name a file"), out);
        }
        let path = request.target.path.clone();
        self.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 }, out);
        State::Putting(Put { request: Box::new(request), step: Step::Looking, left })
    }

    pub(super) fn put_answered(
        &mut self,
        now: Instant,
        put: Put,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let Put { request, step, left } = put;
        let put = Put { request, step: Step::Looking, left };
        match (step, reply) {
            (Step::Looking, reply) => self.put_looked(now, put, reply, out),
            (Step::Finding(replaced), Ok(Reply::Walked(_, Some(dir)))) => {
                self.put_create(now, put, (dir, replaced), 0, out)
            }
            (Step::Finding(_), Err(error)) if error != Error::NotFound => {
                self.refuse(now, status(error), out)
            }
            (Step::Finding(_), _) => {
                let reason = "the directory does not exist; make it first";
                self.refuse(now, refusal(409, reason), out)
            }
            (
                Step::Creating { dir, replaced, temporary, .. },
                Ok(Reply::Created(node, open, _)),
            ) => {
                let (replaces, written) = (replaced.is_some(), 0);
                let file = File { dir, node, open, temporary, replaces, written };
                if put.request.expects_continue && self.input.is_empty() {
                    self.say(Buf::from(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]), out);
                }
                self.put_fill(now, put, file, out)
            }
            (Step::Creating { dir, replaced, attempt, .. }, Err(Error::Exists))
                if attempt < ATTEMPTS_MAX =>
            {
                self.put_create(now, put, (dir, replaced), attempt + 1, out)
            }
            (Step::Writing(mut file, count), Ok(Reply::Written(written)))
                if written as usize == count =>
            {
                file.written += count as u64;
                self.put_fill(now, put, file, out)
            }
            (Step::Writing(file, _), Ok(_)) => self.put_fail(put, file, Error::NoSpace, out),
            (step, Ok(reply)) => self.put_finish(now, put, step, reply, out),
            (step, Err(error)) => self.put_failed(now, put, step, error, out),
        }
    }

    /// Judges by what is there.
    fn put_looked(
        &mut self,
        now: Instant,
        put: Put,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let there = match reply {
            Ok(Reply::Fetched(stat, _, open)) => {
                out.extend(open.map(Output::Close));
                Some(stat)
            }
            Err(Error::NotFound) => None,
            Err(error) => return self.refuse(now, status(error), out),
            Ok(other) => unreachable!("{other:?} answers no fetch"),
        };
        if there.as_ref().is_some_and(|stat| stat.kind != Kind::File) {
            return self.refuse(now, status(Error::IsDirectory), out);
        }
        let tag = there.as_ref().map(etag);
        let facts = tag.as_deref().zip(there.as_ref().map(|stat| stat.modified));
        if put.request.conditions.judge(put.request.method, facts) != Verdict::Go {
            return self.refuse(now, UNEXPECTED, out);
        }
        let mut names = put.request.target.path.clone();
        names.pop();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
        put.at(Step::Finding(there.map(|stat| stat.mode)))
    }

    fn put_create(
        &mut self,
        now: Instant,
        put: Put,
        (dir, replaced): (NodeId, Option<u32>),
        attempt: u32,
        out: &mut Vec<Output>,
    ) -> State {
        let text = format!(".upcall-put-{:x}-{attempt}", now.0);
        let temporary = Name::new(text.as_bytes()).expect("a short name without slashes");
        let (name, mode) = (temporary.clone(), replaced.unwrap_or(MODE) & 0o777);
        let access = Access { write: true, ..Access::default() };
        self.ask(Ask::Create { dir, name, access, exclusive: true, mode, gid: None }, out);
        put.at(Step::Creating { dir, replaced, temporary, attempt })
    }

    /// More of the body came.
    pub(super) fn put_on(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, _), request, left } => {
                let put = Put { request, step: Step::Looking, left };
                self.put_fill(now, put, file, out)
            }
            put => State::Putting(put),
        }
    }

    /// Writes what has come of the body; or goes on, if that was all.
    fn put_fill(&mut self, now: Instant, put: Put, file: File, out: &mut Vec<Output>) -> State {
        let (data, left) = match take_body(&mut self.input, put.left) {
            Ok(taken) => taken,
            Err(refusal) => {
                self.last = true;
                return self.put_remove(put, file, refusal, out);
            }
        };
        let (open, offset) = (file.open, file.written);
        let put = Put { left, ..put };
        if !data.is_empty() {
            let count = data.len();
            self.asked = count;
            self.ask(Ask::Write { open, offset, data }, out);
            return put.at(Step::Writing(file, count));
        }
        if matches!(left, Left::Length(0) | Left::Chunks(Chunks::Done)) {
            self.ask(Ask::Sync { open, data_only: false }, out);
            return put.at(Step::Syncing(file));
        }
        if self.last_byte_came {
            return self.put_torn(put.filling(file, now), out);
        }
        put.at(Step::Filling(file, now + BODY_TIME))
    }

    /// The body is durable: the rest of the way.
    fn put_finish(
        &mut self,
        now: Instant,
        put: Put,
        step: Step,
        reply: Reply,
        out: &mut Vec<Output>,
    ) -> State {
        match (step, reply) {
            (Step::Syncing(file), Reply::Done) => {
                self.ask(Ask::Stat { node: file.node }, out);
                put.at(Step::Measuring(file))
            }
            (Step::Measuring(file), Reply::Stat(stat)) => {
                self.ask(Ask::Open { node: file.dir, access: Access::READ }, out);
                put.at(Step::Opening(file, stat))
            }
            (Step::Opening(file, stat), Reply::Opened(open, _)) => {
                let (from, name) = (file.dir, file.temporary.clone());
                let new_name = put.request.target.path.last().expect("not the root").clone();
                // Of two who each want to be the first, one is.
                let replace = file.replaces || !put.request.conditions.forbids_any();
                self.ask(Ask::Rename { from, name, to: from, new_name, replace }, out);
                put.at(Step::Naming(file, stat, open))
            }
            (Step::Naming(file, stat, open), Reply::Done) => {
                out.extend([Output::Close(file.open), Output::Release(file.node)]);
                self.ask(Ask::Sync { open, data_only: false }, out);
                put.at(Step::SyncingDir(file.dir, open, file.replaces, stat))
            }
            (Step::SyncingDir(dir, open, replaced, stat), Reply::Done) => {
                out.extend([Output::Close(open), Output::Release(dir)]);
                let head = match replaced {
                    true => Head::new(204),
                    false => Head::new(201)
                        .field("Location", put.request.target.encoded())
                        .field("Content-Length", 0),
                };
                let head = self.end(now, head.field("ETag", etag(&stat)));
                self.say(Buf::from(head), out);
                self.done(now, out)
            }
            (Step::Removing(dir, refusal), _) => {
                out.push(Output::Release(dir));
                self.refuse(now, refusal, out)
            }
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    fn put_failed(
        &mut self,
        now: Instant,
        put: Put,
        step: Step,
        error: Error,
        out: &mut Vec<Output>,
    ) -> State {
        match step {
            Step::Writing(file, _)
            | Step::Syncing(file)
            | Step::Measuring(file)
            | Step::Opening(file, _) => self.put_fail(put, file, error, out),
            Step::Naming(file, _, open) => {
                out.push(Output::Close(open));
                let taken = error == Error::Exists;
                let refusal = if taken { UNEXPECTED } else { status(error) };
                self.put_remove(put, file, refusal, out)
            }
            Step::Creating { dir, .. } => {
                out.push(Output::Release(dir));
                self.refuse(now, status(error), out)
            }
            Step::SyncingDir(dir, open, ..) => {
                out.extend([Output::Close(open), Output::Release(dir)]);
                self.refuse(now, status(error), out)
            }
            Step::Removing(dir, refusal) => {
                out.push(Output::Release(dir));
                self.refuse(now, refusal, out)
            }
            Step::Looking | Step::Finding(_) | Step::Filling(..) => {
                unreachable!("{error:?} in {step:?}")
            }
        }
    }

    fn put_fail(&mut self, put: Put, file: File, error: Error, out: &mut Vec<Output>) -> State {
        self.put_remove(put, file, status(error), out)
    }

    fn put_remove(
        &mut self,
        put: Put,
        file: File,
        refusal: Refusal,
        out: &mut Vec<Output>,
    ) -> State {
        let (dir, ask) = file.remove(out);
        self.ask(ask, out);
        put.at(Step::Removing(dir, refusal))
    }

    /// The client has paused for too long, or not yet.
    pub(super) fn put_late(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, until), request, left } if until <= now => {
                let put = Put { request, step: Step::Looking, left };
                self.put_remove(put, file, refusal(408, "the body took too long"), out)
            }
            put => State::Putting(put),
        }
    }

    /// The client will send no more: if that was not the whole body, nothing is left behind.
    pub(super) fn put_torn(&mut self, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, _), request, left } => {
                let put = Put { request, step: Step::Looking, left };
                self.put_remove(put, file, refusal(400, "the body ended early"), out)
            }
            put => State::Putting(put),
        }
    }
}

impl Put {
    fn filling(self, file: File, now: Instant) -> Put {
        Put { step: Step::Filling(file, now), ..self }
    }
}

/// Takes what there is of the body off the input, and says how much is still to come.
pub(super) fn take_body(input: &mut Buf, left: Left) -> Result<(Buf, Left), Refusal> {
    match left {
        Left::Length(left) => {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let data = if count == input.len() {
                std::mem::take(input)
            } else {
                let data = Buf::from(&input[..count]);
                input.consume(count);
                data
            };
            Ok((data, Left::Length(left - count as u64)))
        }
        Left::Chunks(mut place) => {
            let mut data = Vec::new();
            while data.len() < PIECE {
                let (piece, next) = place.next(input)?;
                place = next;
                match piece {
                    Piece::Framing(count) => input.consume(count),
                    Piece::Data(count) => {
                        data.extend_from_slice(&input[..count]);
                        input.consume(count);
                    }
                    Piece::Incomplete | Piece::End => break,
                }
            }
            input.shrink();
            Ok((Buf::from(data), Left::Chunks(place)))
        }
    }
}

const _: () = assert!(CALL.0 != CLEANUP.0);
