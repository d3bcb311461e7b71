//! `PUT`: the body goes to a file that has no name, is made durable, takes the name in one step
//! with the check of the conditions, and the name is made durable; the directory is opened for
//! that before, so that nothing has changed if it cannot be. Who reads meanwhile sees the old file
//! or the new one, and a success means that the new one survives a crash. A body that ends early
//! leaves nothing behind, and neither does a crash.
//!
//! Where a file cannot do without a name (other servers, some file systems of the host) it has a
//! temporary one, which no other request of any server has.
//!
//! Conditions are judged before the body is taken, by what is there, and once more at the change:
//! it is asked for what was judged, and if that is not there any more, what is there is judged
//! anew.

use super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::{BODY_TIME, CALL, CLEANUP, Session, State};
use crate::Output;
use base::op::{ReceiveBuf, Replacement};
use base::{Access, Buf, Caller, Error, Expected, Instant, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply, Request as TreeRequest};
use wire::http::{Body, Chunks, Conditions, Method, Piece, Refusal, Request, Verdict, refusal};

/// How much of a body is received and written at once, bytes.
pub(super) const PIECE: usize = 128 << 10;
/// How often another temporary name is tried when one is taken.
const ATTEMPTS_MAX: u32 = 16;
/// Permissions of a new file.
const MODE: u32 = 0o644;

/// The answer to conditions that are not fulfilled.
pub(super) const UNEXPECTED: Refusal = refusal(412, "the file is not the one that was expected");

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
    /// For the directory.
    Finding,
    /// For the entry that is there, if any.
    Looking(NodeId),
    /// For its attributes.
    Measuring(NodeId, NodeId),
    /// For a file without a name.
    CreatingUnnamed(Place),
    /// For a file with a temporary name.
    Creating { place: Place, temporary: Name, attempt: u32 },
    /// For more of the body, until the given time.
    Filling(File, Instant),
    /// For so many bytes to be written.
    Writing(File, usize),
    /// For its contents to be durable.
    Syncing(File),
    /// For its directory to be opened.
    Opening(File),
    /// For its name, with the directory open.
    Naming(File, OpenId),
    /// For its attributes, from a tree that does not tell them with the name.
    Weighing(File, OpenId),
    /// For its directory to be durable.
    SyncingDir { dir: NodeId, open: OpenId, replaces: bool, tag: String },
    /// For the temporary file to be gone; then this is said.
    Removing(NodeId, Refusal),
}

/// Where the file will be, and what is there.
#[derive(Debug)]
struct Place {
    dir: NodeId,
    present: Option<Stat>,
}

/// The file that is being written.
#[derive(Debug)]
struct File {
    place: Place,
    node: NodeId,
    open: OpenId,
    temporary: Option<Name>,
    written: u64,
}

impl File {
    /// Gives it back but for its directory, and asks for its removal if it has a name.
    fn remove(self, out: &mut Vec<Output>) -> (NodeId, Option<Ask>) {
        out.extend([Output::Close(self.open), Output::Release(self.node)]);
        let dir = self.place.dir;
        let ask = |name| Ask::Remove { dir, name, directory: Some(false) };
        (dir, self.temporary.map(ask))
    }
}

impl Put {
    /// Whether more of the body is wanted, with so many bytes received and not yet written.
    pub(super) fn is_hungry(&self, buffered: usize) -> bool {
        let wanted = match self.left {
            Left::Length(left) => left > buffered as u64,
            Left::Chunks(place) => place != Chunks::Done,
        };
        let ready = matches!(self.step, Step::Filling(..) | Step::Writing(..));
        ready && wanted && buffered < PIECE
    }

    /// Bytes being written.
    pub(super) fn writing(&self) -> usize {
        if let Step::Writing(_, count) = self.step { count } else { 0 }
    }

    pub(super) fn receive_into(&self) -> ReceiveBuf {
        match self.left {
            Left::Length(left) if left > (PIECE / 8) as u64 => {
                ReceiveBuf::UpTo(usize::try_from(left).unwrap_or(PIECE).min(PIECE))
            }
            Left::Length(_) | Left::Chunks(_) => ReceiveBuf::Default,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Filling(_, until) => Some(until),
            Step::Finding
            | Step::Looking(_)
            | Step::Measuring(..)
            | Step::CreatingUnnamed(_)
            | Step::Creating { .. }
            | Step::Writing(..)
            | Step::Syncing(_)
            | Step::Opening(_)
            | Step::Naming(..)
            | Step::Weighing(..)
            | Step::SyncingDir { .. }
            | Step::Removing(..) => None,
        }
    }

    /// Whether its temporary file is being removed.
    pub(super) fn is_removing(&self) -> bool {
        matches!(self.step, Step::Removing(..))
    }

    /// Gives back what it holds and removes the temporary file; how many answers are to come.
    pub(super) fn forget(self, caller: &Caller, out: &mut Vec<Output>) -> usize {
        let (file, asked) = match self.step {
            Step::Finding => return 1,
            Step::Measuring(dir, node) => {
                out.extend([Output::Release(node), Output::Release(dir)]);
                return 1;
            }
            Step::Looking(dir)
            | Step::CreatingUnnamed(Place { dir, .. })
            | Step::Creating { place: Place { dir, .. }, .. }
            | Step::Removing(dir, _) => {
                out.push(Output::Release(dir));
                return 1;
            }
            Step::SyncingDir { dir, open, .. } => {
                out.extend([Output::Close(open), Output::Release(dir)]);
                return 1;
            }
            Step::Weighing(file, open) => {
                out.extend([Output::Close(open), Output::Close(file.open)]);
                out.extend([Output::Release(file.node), Output::Release(file.place.dir)]);
                return 1;
            }
            Step::Filling(file, _) => (file, 0),
            Step::Writing(file, _) | Step::Syncing(file) | Step::Opening(file) => (file, 1),
            Step::Naming(file, open) => {
                out.push(Output::Close(open));
                (file, 1)
            }
        };
        let (dir, ask) = file.remove(out);
        let cleanup = ask.map(|ask| TreeRequest { caller: caller.clone(), ask });
        let more = usize::from(cleanup.is_some());
        out.extend(cleanup.map(|request| Output::Ask(CLEANUP, request)));
        out.push(Output::Release(dir));
        asked + more
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
        let mut names = request.target.path.clone();
        names.pop();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
        State::Putting(Put { request: Box::new(request), step: Step::Finding, left })
    }

    pub(super) fn put_answered(
        &mut self,
        now: Instant,
        put: Put,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let Put { request, step, left } = put;
        let put = Put { request, step: Step::Finding, left };
        match (step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(dir)))) => {
                let names = vec![put.name()];
                self.ask(Ask::Walk { from: dir, names }, out);
                put.at(Step::Looking(dir))
            }
            (Step::Finding, Err(error)) if !is_missing(error) => {
                self.refuse(now, status(error), out)
            }
            (Step::Finding, _) => {
                let reason = "the directory does not exist; make it first";
                self.refuse(now, refusal(409, reason), out)
            }
            (step @ (Step::Looking(_) | Step::Measuring(..)), reply) => {
                self.put_looked(now, put, step, reply, out)
            }
            (Step::CreatingUnnamed(place), Ok(Reply::Created(node, open, _))) => self.put_begin(
                now,
                put,
                File { place, node, open, temporary: None, written: 0 },
                out,
            ),
            (Step::Creating { place, temporary, .. }, Ok(Reply::Created(node, open, _))) => {
                let temporary = Some(temporary);
                self.put_begin(now, put, File { place, node, open, temporary, written: 0 }, out)
            }
            (Step::CreatingUnnamed(place), Err(Error::Unsupported)) => {
                self.put_create(put, place, 0, out)
            }
            (Step::Creating { place, attempt, .. }, Err(Error::Exists))
                if attempt < ATTEMPTS_MAX =>
            {
                self.put_create(put, place, attempt + 1, out)
            }
            (Step::Writing(mut file, count), Ok(Reply::Written(written)))
                if written as usize == count =>
            {
                file.written += count as u64;
                self.put_fill(now, put, file, out)
            }
            (Step::Writing(file, _), Ok(_)) => self.put_fail(now, put, file, Error::NoSpace, out),
            (step, Ok(reply)) => self.put_finish(now, put, step, reply, out),
            (step, Err(error)) => self.put_failed(now, put, step, error, out),
        }
    }

    /// Judges by what is there. A link is not followed, and nothing but a file is replaced.
    fn put_looked(
        &mut self,
        now: Instant,
        put: Put,
        step: Step,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let (dir, present) = match (step, reply) {
            (Step::Looking(dir), Ok(Reply::Walked(_, Some(node)))) => {
                self.ask(Ask::Stat { node }, out);
                return put.at(Step::Measuring(dir, node));
            }
            (Step::Measuring(dir, node), reply) => {
                out.push(Output::Release(node));
                match reply {
                    Ok(Reply::Stat(stat)) => (dir, Ok(Some(stat))),
                    Err(error) if is_missing(error) => (dir, Ok(None)),
                    other => (dir, Err(other.err().unwrap_or(Error::Io))),
                }
            }
            (Step::Looking(dir), Err(error)) if !is_missing(error) => (dir, Err(error)),
            (Step::Looking(dir), _) => (dir, Ok(None)),
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        };
        let refused = match &present {
            Err(error) => Some(status(*error)),
            Ok(present) => refused(&put.request.conditions, Method::Put, present.as_ref()),
        };
        if let Some(refusal) = refused {
            out.push(Output::Release(dir));
            return self.refuse(now, refusal, out);
        }
        let place = Place { dir, present: present.unwrap_or_default() };
        let access = Access { write: true, ..Access::default() };
        let (name, mode) = (put.name(), place.mode());
        self.ask(Ask::CreateUnnamed { dir, name, access, mode }, out);
        put.at(Step::CreatingUnnamed(place))
    }

    /// The file is there: the body may come.
    fn put_begin(&mut self, now: Instant, put: Put, file: File, out: &mut Vec<Output>) -> State {
        if put.request.expects_continue && self.input.is_empty() {
            self.say_continue(out);
        }
        self.put_fill(now, put, file, out)
    }

    fn put_create(&mut self, put: Put, place: Place, attempt: u32, out: &mut Vec<Output>) -> State {
        assert!(attempt <= ATTEMPTS_MAX, "it is not tried for ever");
        let mut temporary = self.next_temporary();
        if temporary == put.name() {
            temporary = self.next_temporary();
        }
        let (dir, name, mode) = (place.dir, temporary.clone(), place.mode());
        let access = Access { write: true, ..Access::default() };
        self.ask(Ask::Create { dir, name, access, exclusive: true, mode, gid: None }, out);
        put.at(Step::Creating { place, temporary, attempt })
    }

    /// A name that no other request of any server has, unless a client has chosen it.
    fn next_temporary(&mut self) -> Name {
        self.temporaries += 1;
        let start = self.export.wall;
        let (session, count) = (self.number, self.temporaries);
        let text = format!(".upcall-put-{:x}-{:x}-{session:x}-{count:x}", start.secs, start.nanos);
        Name::new(text.as_bytes()).expect("a short name without slashes")
    }

    /// Gives the file its name, if the name is as it was when it was judged.
    fn put_name(&mut self, put: Put, file: File, open: OpenId, out: &mut Vec<Output>) -> State {
        assert!(file.temporary.as_ref().is_none_or(|name| *name != put.name()), "it is another");
        let (dir, name) = (file.place.dir, put.name());
        let by = match &file.temporary {
            Some(temporary) => Replacement::Entry(dir, temporary.clone()),
            None => Replacement::Unnamed(file.node),
        };
        let expected = expected(&put.request.conditions, file.place.present.as_ref());
        self.ask(Ask::Replace { dir, name, by, expected }, out);
        put.at(Step::Naming(file, open))
    }

    /// More of the body came.
    pub(super) fn put_on(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, _), request, left } => {
                let put = Put { request, step: Step::Finding, left };
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
                return self.put_remove(now, put, file, refusal, out);
            }
        };
        let (open, offset) = (file.open, file.written);
        let put = Put { left, ..put };
        if !data.is_empty() {
            let count = data.len();
            assert!(offset.checked_add(count as u64).is_some(), "no body is that long");
            self.asked = count;
            self.ask(Ask::Write { open, offset, data }, out);
            return put.at(Step::Writing(file, count));
        }
        if matches!(left, Left::Length(0) | Left::Chunks(Chunks::Done)) {
            self.ask(Ask::Sync { open, data_only: false }, out);
            return put.at(Step::Syncing(file));
        }
        if self.last_byte_came {
            return self.put_torn(now, put.filling(file, now), out);
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
                self.ask(Ask::Open { node: file.place.dir, access: Access::READ }, out);
                put.at(Step::Opening(file))
            }
            (Step::Opening(file), Reply::Opened(open, _)) => self.put_name(put, file, open, out),
            (Step::Naming(mut file, open), Reply::Unexpected(present)) => {
                match refused(&put.request.conditions, Method::Put, present.as_ref()) {
                    None => {
                        file.place.present = present;
                        self.put_name(put, file, open, out)
                    }
                    Some(refusal) => {
                        out.push(Output::Close(open));
                        self.put_remove(now, put, file, refusal, out)
                    }
                }
            }
            (Step::Naming(file, open), Reply::Done) => {
                self.ask(Ask::Stat { node: file.node }, out);
                put.at(Step::Weighing(file, open))
            }
            (Step::Naming(file, open) | Step::Weighing(file, open), Reply::Stat(stat)) => {
                out.extend([Output::Close(file.open), Output::Release(file.node)]);
                self.ask(Ask::Sync { open, data_only: false }, out);
                let Place { dir, present } = file.place;
                let (replaces, tag) = (present.is_some(), etag(&stat));
                put.at(Step::SyncingDir { dir, open, replaces, tag })
            }
            (Step::SyncingDir { dir, open, replaces, tag }, Reply::Done) => {
                self.put_done(now, &put, (dir, open), (replaces, tag), out)
            }
            (Step::Removing(dir, refusal), _) => {
                out.push(Output::Release(dir));
                self.refuse(now, refusal, out)
            }
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    /// The file has its name.
    fn put_done(
        &mut self,
        now: Instant,
        put: &Put,
        (dir, open): (NodeId, OpenId),
        (replaces, tag): (bool, String),
        out: &mut Vec<Output>,
    ) -> State {
        out.extend([Output::Close(open), Output::Release(dir)]);
        let head = match replaces {
            true => Head::new(204),
            false => Head::new(201)
                .field("Location", put.request.target.encoded())
                .field("Content-Length", 0),
        };
        let head = self.end(now, head.field("ETag", tag));
        self.say(Buf::from(head), out);
        self.done(now, out)
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
            Step::Writing(file, _) | Step::Syncing(file) => {
                self.put_fail(now, put, file, error, out)
            }
            Step::Opening(file) => self.put_remove(now, put, file, not_opened(error), out),
            Step::Naming(file, open) => {
                out.push(Output::Close(open));
                self.put_fail(now, put, file, error, out)
            }
            Step::CreatingUnnamed(Place { dir, .. })
            | Step::Creating { place: Place { dir, .. }, .. } => {
                out.push(Output::Release(dir));
                self.refuse(now, status(error), out)
            }
            Step::Weighing(file, open) => {
                out.extend([Output::Close(open), Output::Close(file.open)]);
                out.extend([Output::Release(file.node), Output::Release(file.place.dir)]);
                self.refuse(now, not_durable(error), out)
            }
            Step::SyncingDir { dir, open, replaces, tag } if is_never_synced(error) => {
                self.put_done(now, &put, (dir, open), (replaces, tag), out)
            }
            Step::SyncingDir { dir, open, .. } => {
                out.extend([Output::Close(open), Output::Release(dir)]);
                self.refuse(now, not_durable(error), out)
            }
            Step::Removing(dir, refusal) => {
                out.push(Output::Release(dir));
                self.refuse(now, refusal, out)
            }
            Step::Finding | Step::Looking(_) | Step::Measuring(..) | Step::Filling(..) => {
                unreachable!("{error:?} in {step:?}")
            }
        }
    }

    fn put_fail(
        &mut self,
        now: Instant,
        put: Put,
        file: File,
        error: Error,
        out: &mut Vec<Output>,
    ) -> State {
        self.put_remove(now, put, file, status(error), out)
    }

    fn put_remove(
        &mut self,
        now: Instant,
        put: Put,
        file: File,
        refusal: Refusal,
        out: &mut Vec<Output>,
    ) -> State {
        match file.remove(out) {
            (dir, Some(ask)) => {
                self.ask(ask, out);
                put.at(Step::Removing(dir, refusal))
            }
            (dir, None) => {
                out.push(Output::Release(dir));
                self.refuse(now, refusal, out)
            }
        }
    }

    /// The client has paused for too long, or not yet.
    pub(super) fn put_late(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, until), request, left } if until <= now => {
                let put = Put { request, step: Step::Finding, left };
                self.put_remove(now, put, file, refusal(408, "the body took too long"), out)
            }
            put => State::Putting(put),
        }
    }

    /// The client will send no more: if that was not the whole body, nothing is left behind.
    pub(super) fn put_torn(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, _), request, left } => {
                let put = Put { request, step: Step::Finding, left };
                self.put_remove(now, put, file, refusal(400, "the body ended early"), out)
            }
            put => State::Putting(put),
        }
    }
}

impl Put {
    fn filling(self, file: File, now: Instant) -> Put {
        Put { step: Step::Filling(file, now), ..self }
    }

    /// The name that the file will have.
    fn name(&self) -> Name {
        self.request.target.path.last().expect("not the root").clone()
    }
}

impl Place {
    /// Permissions of the new file: those of the file that it replaces.
    fn mode(&self) -> u32 {
        self.present.as_ref().map_or(MODE, |stat| stat.mode) & 0o777
    }
}

/// Whether an error says that there is no such file.
pub(super) fn is_missing(error: Error) -> bool {
    matches!(error, Error::NotFound | Error::NotDirectory | Error::Stale)
}

/// Why a file may not be changed that is, or is not, there.
pub(super) fn refused(
    conditions: &Conditions,
    method: Method,
    present: Option<&Stat>,
) -> Option<Refusal> {
    match present.map(|stat| stat.kind) {
        None | Some(Kind::File) => {}
        Some(Kind::Symlink) => {
            return Some(refusal(409, "that is a symbolic link; name the file it leads to"));
        }
        Some(Kind::Directory) => return Some(status(Error::IsDirectory)),
        Some(Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice) => {
            return Some(refusal(409, "that is no plain file"));
        }
    }
    let tag = present.map(etag);
    let facts = tag.as_deref().zip(present.map(|stat| stat.modified));
    (conditions.judge(method, facts) != Verdict::Go).then_some(UNEXPECTED)
}

/// The precondition of a change that was judged by what was there.
pub(super) fn expected(conditions: &Conditions, present: Option<&Stat>) -> Expected {
    match present {
        _ if conditions.is_empty() => Expected::PlainFile,
        None => Expected::Absent,
        Some(stat) => Expected::Version(stat.file_version()),
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
