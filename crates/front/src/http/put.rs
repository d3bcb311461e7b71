//! `PUT`: the body is written to an unnamed file and made durable; the file is linked in one step
//! with the check of the conditions, and the name is made durable. The directory is opened for that
//! before, so that nothing has changed if it cannot be. Concurrent readers see the old file or the
//! new one, and a success means that the new one survives a crash. An incomplete body leaves
//! nothing behind, and neither does a crash.
//!
//! If unnamed files are unsupported (other servers, some file systems of the host) the file has
//! a temporary name that no other request of any server uses.
//!
//! Conditions are evaluated before the body is received, and once more at the change: it requires
//! the version that was evaluated, and if that is gone, they are evaluated again.

use super::answer::{Head, etag, is_never_synced, not_durable, not_opened, status};
use super::body::{PIECE, Remaining};
use super::{BODY_TIME, CALL, CLEANUP, Session, State};
use crate::Output;
use base::op::{ReceiveBuf, Replacement};
use base::{Access, Buf, Caller, Error, Expected, Instant, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply, Request as TreeRequest};
use wire::http::{Conditions, Method, Refusal, Request, Verdict, refusal};

/// Maximum number of temporary names tried.
const ATTEMPTS_MAX: u32 = 16;
/// Permissions of a new file.
const MODE: u32 = 0o644;

/// Response to failed conditions.
pub(super) const UNEXPECTED: Refusal = refusal(412, "the file is not the one that was expected");

/// An upload.
#[derive(Debug)]
pub(super) struct Put {
    request: Box<Request>,
    step: Step,
    left: Remaining,
}

/// State of an upload.
#[derive(Debug)]
enum Step {
    /// Waiting for the directory.
    Finding,
    /// Waiting for the existing entry, if any.
    Looking(NodeId),
    /// Waiting for its attributes.
    Measuring(NodeId, NodeId),
    /// Waiting for an unnamed file.
    CreatingUnnamed(Place),
    /// Waiting for a file with a temporary name.
    Creating { place: Place, temporary: Name, attempt: u32 },
    /// Waiting for more of the body, until the given time.
    Filling(File, Instant),
    /// Waiting for a write of this many bytes.
    Writing(File, usize),
    /// Waiting for the contents to be durable.
    Syncing(File),
    /// Waiting for the open of the directory.
    Opening(File),
    /// Waiting for the name, with the directory open.
    Naming(File, OpenId),
    /// Waiting for the attributes, from a tree that does not return them with the name.
    Weighing(File, OpenId),
    /// Waiting for the directory to be durable.
    SyncingDir { dir: NodeId, open: OpenId, replaces: bool, tag: String },
    /// Waiting for the removal of the temporary file; then this response is sent.
    Removing(NodeId, Refusal),
}

/// Directory of the new file, and the existing file.
#[derive(Debug)]
struct Place {
    dir: NodeId,
    present: Option<Stat>,
}

/// The file being written.
#[derive(Debug)]
struct File {
    place: Place,
    node: NodeId,
    open: OpenId,
    temporary: Option<Name>,
    written: u64,
}

impl File {
    /// Releases its resources except the directory; returns the request to remove the file if it
    /// has a name.
    fn remove(self, out: &mut Vec<Output>) -> (NodeId, Option<Ask>) {
        out.extend([Output::Close(self.open), Output::Release(self.node)]);
        let dir = self.place.dir;
        let ask = |name| Ask::Remove { dir, name, directory: Some(false) };
        (dir, self.temporary.map(ask))
    }
}

impl Put {
    /// Returns whether more of the body should be read, given the number of unwritten bytes.
    pub(super) fn is_hungry(&self, buffered: usize) -> bool {
        let ready = matches!(self.step, Step::Filling(..) | Step::Writing(..));
        ready && self.left.exceeds(buffered) && buffered < PIECE
    }

    /// Returns the number of bytes being written.
    pub(super) fn writing(&self) -> usize {
        if let Step::Writing(_, count) = self.step { count } else { 0 }
    }

    pub(super) fn receive_into(&self) -> ReceiveBuf {
        match self.left {
            Remaining::Length(left) if left > (PIECE / 8) as u64 => {
                ReceiveBuf::UpTo(usize::try_from(left).unwrap_or(PIECE).min(PIECE))
            }
            Remaining::Length(_) | Remaining::Chunks(_) => ReceiveBuf::Default,
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

    /// Returns whether its temporary file is being removed.
    pub(super) fn is_removing(&self) -> bool {
        matches!(self.step, Step::Removing(..))
    }

    /// Releases its resources and removes the temporary file; returns the number of outstanding
    /// replies.
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
        let left = Remaining::of(request.body);
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

    /// Evaluates the conditions on the existing file. Links are not followed, and only files are
    /// replaced.
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

    /// Starts to receive the body into the new file.
    fn put_begin(&mut self, now: Instant, put: Put, file: File, out: &mut Vec<Output>) -> State {
        if put.request.expects_continue && self.input.is_empty() {
            self.send_continue(out);
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

    /// Returns a name that no other request of any server uses, unless a client has chosen it.
    fn next_temporary(&mut self) -> Name {
        self.temporaries += 1;
        let start = self.export.wall;
        let (session, count) = (self.number, self.temporaries);
        let text = format!(".upcall-put-{:x}-{:x}-{session:x}-{count:x}", start.secs, start.nanos);
        Name::new(text.as_bytes()).expect("a short name without slashes")
    }

    /// Links the file under its name, if the existing file is the one that was evaluated.
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

    /// Handles more of the body.
    pub(super) fn put_on(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, _), request, left } => {
                let put = Put { request, step: Step::Finding, left };
                self.put_fill(now, put, file, out)
            }
            put => State::Putting(put),
        }
    }

    /// Writes the received part of the body; continues after the last one.
    fn put_fill(&mut self, now: Instant, put: Put, file: File, out: &mut Vec<Output>) -> State {
        let mut left = put.left;
        let data = match left.take(&mut self.input) {
            Ok(data) => data,
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
        if left.is_empty() {
            self.ask(Ask::Sync { open, data_only: false }, out);
            return put.at(Step::Syncing(file));
        }
        if self.last_byte_came {
            return self.put_torn(now, put.filling(file, now), out);
        }
        put.at(Step::Filling(file, now + BODY_TIME))
    }

    /// Handles the steps after the contents are durable.
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

    /// Responds after the change.
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

    /// Handles the timeout of the client, if it has passed.
    pub(super) fn put_late(&mut self, now: Instant, put: Put, out: &mut Vec<Output>) -> State {
        match put {
            Put { step: Step::Filling(file, until), request, left } if until <= now => {
                let put = Put { request, step: Step::Finding, left };
                self.put_remove(now, put, file, refusal(408, "the body took too long"), out)
            }
            put => State::Putting(put),
        }
    }

    /// Handles the end of the stream: an incomplete body leaves nothing behind.
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

    /// Returns the name of the new file.
    fn name(&self) -> Name {
        self.request.target.path.last().expect("not the root").clone()
    }
}

impl Place {
    /// Returns the permissions of the new file: those of the file that it replaces.
    fn mode(&self) -> u32 {
        self.present.as_ref().map_or(MODE, |stat| stat.mode) & 0o777
    }
}

/// Returns whether an error means that there is no such file.
pub(super) fn is_missing(error: Error) -> bool {
    matches!(error, Error::NotFound | Error::NotDirectory | Error::Stale)
}

/// Returns the reason why the existing file, or its absence, forbids the change.
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

/// Returns the precondition of a change, given the file that was evaluated.
pub(super) fn expected(conditions: &Conditions, present: Option<&Stat>) -> Expected {
    match present {
        _ if conditions.is_empty() => Expected::PlainFile,
        None => Expected::Absent,
        Some(stat) => Expected::Version(stat.file_version()),
    }
}

const _: () = assert!(CALL.0 != CLEANUP.0);
