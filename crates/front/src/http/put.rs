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
use super::dav::ATTRIBUTE;
use super::exchange::{Context, Exchange, Stay};
use super::room::HANDLES;
use super::{BODY_TIME, CALL, CLEANUP, Session, State};
use crate::CallId;
use base::op::{ReceiveBuf, Replacement};
use base::{Access, Error, Expected, Instant, Kind, Name, Stat};
use sha2::{Digest as _, Sha256};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Conditions, Method, Refusal, Request, Verdict, refusal};

/// Maximum number of temporary names tried.
const ATTEMPTS_MAX: u32 = 16;
/// Permissions of a new file.
const MODE: u32 = 0o644;

/// Response to failed conditions.
pub(super) const UNEXPECTED: Refusal = refusal(412, "the file is not the one that was expected");

/// Response to a body with another digest.
const DIFFERENT: Refusal =
    refusal(400, "the body does not have the SHA-256 digest of the request; send it again");

const DIR_LOCKED: Refusal =
    refusal(423, "the directory is locked; send the token of the lock in the If field");

/// An upload.
#[derive(Debug)]
pub(super) struct Put {
    request: Request,
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
    /// Waiting for its dead properties (RFC 4918 §9.7.1: they stay).
    Reading(NodeId, NodeId, Stat),
    /// Waiting for an unnamed file.
    CreatingUnnamed(Target),
    /// Waiting for a file with a temporary name.
    Creating { place: Target, temporary: Name, attempt: u32 },
    /// Waiting for the dead properties to be set.
    SettingProperties(File),
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
struct Target {
    dir: NodeId,
    present: Option<Stat>,
    /// Its dead properties.
    properties: Option<Vec<u8>>,
}

/// The file being written.
#[derive(Debug)]
struct File {
    place: Target,
    node: NodeId,
    open: OpenId,
    temporary: Option<Name>,
    written: u64,
    /// Hash of what was written, if its digest is known.
    hash: Option<Sha256>,
}

impl File {
    /// Releases its resources except the directory; returns the request to remove the file if it
    /// has a name.
    fn remove(self, cx: &mut Context) -> (NodeId, Option<Ask>) {
        cx.close(self.open);
        cx.release(self.node);
        let dir = self.place.dir;
        let ask = |name| Ask::Remove { dir, name, directory: Some(false) };
        (dir, self.temporary.map(ask))
    }

    /// Releases all its resources, and its open directory.
    fn release(self, cx: &mut Context, open: OpenId) {
        cx.close(open);
        cx.close(self.open);
        cx.release(self.node);
        cx.release(self.place.dir);
    }
}

impl Exchange for Put {
    fn name(&self) -> &'static str {
        "putting"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (self.take_step(), reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(dir)))) => {
                let names = vec![self.file_name()];
                cx.ask(Ask::Walk { from: dir, names });
                self.at(Step::Looking(dir))
            }
            (Step::Finding, Err(error)) if !is_missing(error) => cx.refuse(status(error)),
            (Step::Finding, _) => {
                let reason = "the directory does not exist; make it first";
                cx.refuse(refusal(409, reason))
            }
            (step @ (Step::Looking(_) | Step::Measuring(..) | Step::Reading(..)), reply) => {
                self.looked(cx, step, reply)
            }
            (Step::SettingProperties(file), Ok(_) | Err(Error::Unsupported)) => {
                self.begin_body(cx, file)
            }
            (Step::CreatingUnnamed(place), Ok(Reply::Created(node, open, _))) => {
                let file = self.new_file(place, node, open, None);
                self.created(cx, file)
            }
            (Step::Creating { place, temporary, .. }, Ok(Reply::Created(node, open, _))) => {
                let temporary = Some(temporary);
                let file = self.new_file(place, node, open, temporary);
                self.created(cx, file)
            }
            (Step::CreatingUnnamed(place), Err(Error::Unsupported)) => self.create(cx, place, 0),
            (Step::Creating { place, attempt, .. }, Err(Error::Exists))
                if attempt < ATTEMPTS_MAX =>
            {
                self.create(cx, place, attempt + 1)
            }
            (Step::Writing(mut file, count), Ok(Reply::Written(written)))
                if written as usize == count =>
            {
                file.written += count as u64;
                self.fill(cx, file)
            }
            (Step::Writing(file, _), Ok(_)) => self.remove(cx, file, status(Error::NoSpace)),
            (step, Ok(reply)) => self.publish(cx, step, reply),
            (step, Err(error)) => self.failed(cx, step, error),
        }
    }

    fn received(mut self: Box<Self>, cx: &mut Context) -> State {
        match self.take_filling(true) {
            Some(file) => self.fill(cx, file),
            None => self.stay(),
        }
    }

    fn ticked(mut self: Box<Self>, cx: &mut Context) -> State {
        let is_late = self.deadline().is_some_and(|until| until <= cx.now);
        match self.take_filling(is_late) {
            Some(file) => self.remove(cx, file, refusal(408, "the body took too long")),
            None => self.stay(),
        }
    }

    /// Handles the end of the stream: an incomplete body leaves nothing behind.
    fn finish(mut self: Box<Self>, cx: &mut Context) -> State {
        match self.take_filling(cx.session.last_byte_came) {
            Some(file) => self.torn(cx, file),
            None => self.stay(),
        }
    }

    /// Also removes the temporary file; a removal in progress completes.
    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        let (file, in_flight) = match self.step {
            Step::Finding => return cx.cancel(CALL, true),
            Step::Measuring(dir, node) | Step::Reading(dir, node, _) => {
                cx.release(node);
                cx.release(dir);
                return cx.cancel(CALL, true);
            }
            Step::Removing(dir, _) => {
                cx.release(dir);
                return 1;
            }
            Step::Looking(dir)
            | Step::CreatingUnnamed(Target { dir, .. })
            | Step::Creating { place: Target { dir, .. }, .. } => {
                cx.release(dir);
                return cx.cancel(CALL, true);
            }
            Step::SyncingDir { dir, open, .. } => {
                release_dir(cx, dir, open);
                return cx.cancel(CALL, true);
            }
            Step::Weighing(file, open) => {
                file.release(cx, open);
                return cx.cancel(CALL, true);
            }
            Step::Filling(file, _) => (file, false),
            Step::SettingProperties(file)
            | Step::Writing(file, _)
            | Step::Syncing(file)
            | Step::Opening(file) => (file, true),
            Step::Naming(file, open) => {
                cx.close(open);
                (file, true)
            }
        };
        let (dir, removal) = file.remove(cx);
        let removals = usize::from(removal.is_some());
        removal.into_iter().for_each(|ask| cx.ask_as(CLEANUP, ask));
        cx.release(dir);
        removals + cx.cancel(CALL, in_flight)
    }

    fn is_hungry(&self, buffered: usize) -> bool {
        let ready = matches!(self.step, Step::Filling(..) | Step::Writing(..));
        ready && self.left.exceeds(buffered) && buffered < PIECE
    }

    fn receive_into(&self) -> ReceiveBuf {
        match self.left {
            Remaining::Length(left) if left > (PIECE / 8) as u64 => {
                ReceiveBuf::UpTo(usize::try_from(left).unwrap_or(PIECE).min(PIECE))
            }
            Remaining::Length(_) | Remaining::Chunks(_) => ReceiveBuf::Default,
        }
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn is_upload(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        if let Step::Filling(_, until) = self.step { Some(until) } else { None }
    }

    /// With the file and its directory, both also opened.
    fn handles(&self) -> usize {
        HANDLES
    }

    fn check(&self, requested: usize) {
        let writing = if let Step::Writing(_, count) = self.step { count } else { 0 };
        assert_eq!(requested, writing, "bytes written are counted");
    }
}

impl Put {
    pub(super) fn begin(cx: &mut Context, request: Request) -> State {
        if request.target.path.is_empty() || request.target.slash {
            return cx.refuse(refusal(409, "a directory cannot be put; name a file"));
        }
        let mut names = request.target.path.clone();
        names.pop();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        let left = Remaining::of(request.body);
        Box::new(Put { request, step: Step::Finding, left }).stay()
    }

    /// Takes the step out, to be followed by the next one.
    fn take_step(&mut self) -> Step {
        std::mem::replace(&mut self.step, Step::Finding)
    }

    /// Takes the file out, if it is wanted and waits for more of the body.
    fn take_filling(&mut self, wanted: bool) -> Option<File> {
        let step = self.take_step();
        if wanted && let Step::Filling(file, _) = step {
            return Some(file);
        }
        self.step = step;
        None
    }

    fn at(mut self: Box<Self>, step: Step) -> State {
        self.step = step;
        self.stay()
    }

    /// Returns the name of the new file.
    fn file_name(&self) -> Name {
        self.request.target.path.last().expect("not the root").clone()
    }

    /// Evaluates the conditions on the existing file. Links are not followed, and only files are
    /// replaced.
    fn looked(self: Box<Self>, cx: &mut Context, step: Step, reply: Result<Reply, Error>) -> State {
        let mut properties = None;
        let (dir, present) = match (step, reply) {
            (Step::Looking(dir), Ok(Reply::Walked(_, Some(node)))) => {
                cx.ask(Ask::Stat { node });
                return self.at(Step::Measuring(dir, node));
            }
            (Step::Measuring(dir, node), Ok(Reply::Stat(stat))) if stat.kind == Kind::File => {
                cx.ask(Ask::GetAttr { node, name: ATTRIBUTE.to_vec() });
                return self.at(Step::Reading(dir, node, stat));
            }
            (Step::Measuring(dir, node), reply) => {
                cx.release(node);
                match reply {
                    Ok(Reply::Stat(stat)) => (dir, Ok(Some(stat))),
                    Err(error) if is_missing(error) => (dir, Ok(None)),
                    other => (dir, Err(other.err().unwrap_or(Error::Io))),
                }
            }
            (Step::Reading(dir, node, stat), reply) => {
                cx.release(node);
                properties = if let Ok(Reply::Bytes(value)) = reply { Some(value) } else { None };
                (dir, Ok(Some(stat)))
            }
            (Step::Looking(dir), Err(error)) if !is_missing(error) => (dir, Err(error)),
            (Step::Looking(dir), _) => (dir, Ok(None)),
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        };
        let refused = match &present {
            Ok(None) if is_dir_locked(cx.session) => Some(DIR_LOCKED),
            Err(error) => Some(status(*error)),
            Ok(present) => refused(&self.request.conditions, Method::Put, present.as_ref()),
        };
        if let Some(refusal) = refused {
            cx.release(dir);
            return cx.refuse(refusal);
        }
        let place = Target { dir, present: present.unwrap_or_default(), properties };
        let access = Access { write: true, ..Access::default() };
        let (name, mode) = (self.file_name(), place.mode());
        cx.ask(Ask::CreateUnnamed { dir, name, access, mode });
        self.at(Step::CreatingUnnamed(place))
    }

    fn new_file(&self, place: Target, node: NodeId, open: OpenId, temporary: Option<Name>) -> File {
        let hash = self.request.digest.map(|_| Sha256::new());
        File { place, node, open, temporary, written: 0, hash }
    }

    /// Sets the dead properties of the new file, if there are any.
    fn created(self: Box<Self>, cx: &mut Context, mut file: File) -> State {
        let Some(value) = file.place.properties.take() else { return self.begin_body(cx, file) };
        let (node, name) = (file.node, ATTRIBUTE.to_vec());
        cx.ask(Ask::SetAttr { node, name, value, create: None });
        self.at(Step::SettingProperties(file))
    }

    /// Starts to receive the body into the new file.
    fn begin_body(self: Box<Self>, cx: &mut Context, file: File) -> State {
        if self.request.expects_continue && cx.session.input.is_empty() {
            cx.send_continue();
        }
        self.fill(cx, file)
    }

    fn create(self: Box<Self>, cx: &mut Context, place: Target, attempt: u32) -> State {
        assert!(attempt <= ATTEMPTS_MAX, "it is not tried for ever");
        let mut temporary = next_temporary(cx.session);
        if temporary == self.file_name() {
            temporary = next_temporary(cx.session);
        }
        let (dir, name, mode) = (place.dir, temporary.clone(), place.mode());
        let access = Access { write: true, ..Access::default() };
        cx.ask(Ask::Create { dir, name, access, exclusive: true, mode, gid: None });
        self.at(Step::Creating { place, temporary, attempt })
    }

    /// Links the file under its name, if the existing file is the one that was evaluated.
    fn link(self: Box<Self>, cx: &mut Context, file: File, open: OpenId) -> State {
        assert!(
            file.temporary.as_ref().is_none_or(|name| *name != self.file_name()),
            "it is another"
        );
        let (dir, name) = (file.place.dir, self.file_name());
        let by = match &file.temporary {
            Some(temporary) => Replacement::Entry(dir, temporary.clone()),
            None => Replacement::Unnamed(file.node),
        };
        let expected = expected(&self.request.conditions, file.place.present.as_ref());
        cx.ask(Ask::Replace { dir, name, by, expected });
        self.at(Step::Naming(file, open))
    }

    /// Writes the received part of the body; continues after the last one.
    fn fill(mut self: Box<Self>, cx: &mut Context, mut file: File) -> State {
        let data = match self.left.take(&mut cx.session.input) {
            Ok(data) => data,
            Err(refusal) => {
                cx.session.last = true;
                return self.remove(cx, file, refusal);
            }
        };
        let (open, offset) = (file.open, file.written);
        if let Some(hash) = &mut file.hash {
            hash.update(&*data);
        }
        if !data.is_empty() {
            let count = data.len();
            assert!(offset.checked_add(count as u64).is_some(), "no body is that long");
            cx.session.outstanding = count;
            cx.ask(Ask::Write { open, offset, data });
            return self.at(Step::Writing(file, count));
        }
        if self.left.is_empty() {
            let hash = file.hash.take().map(|hash| <[u8; 32]>::from(hash.finalize()));
            if hash != self.request.digest {
                return self.remove(cx, file, DIFFERENT);
            }
            cx.ask(Ask::Sync { open, data_only: false });
            return self.at(Step::Syncing(file));
        }
        if cx.session.last_byte_came {
            return self.torn(cx, file);
        }
        self.at(Step::Filling(file, cx.now + BODY_TIME))
    }

    /// Handles the steps after the contents are durable.
    fn publish(self: Box<Self>, cx: &mut Context, step: Step, reply: Reply) -> State {
        match (step, reply) {
            (Step::Syncing(file), Reply::Done) => {
                cx.ask(Ask::Open { node: file.place.dir, access: Access::READ });
                self.at(Step::Opening(file))
            }
            (Step::Opening(file), Reply::Opened(open, _)) => self.link(cx, file, open),
            (Step::Naming(mut file, open), Reply::Unexpected(present)) => {
                match refused(&self.request.conditions, Method::Put, present.as_ref()) {
                    None => {
                        file.place.present = present;
                        self.link(cx, file, open)
                    }
                    Some(refusal) => {
                        cx.close(open);
                        self.remove(cx, file, refusal)
                    }
                }
            }
            (Step::Naming(file, open), Reply::Done) => {
                cx.ask(Ask::Stat { node: file.node });
                self.at(Step::Weighing(file, open))
            }
            (Step::Naming(file, open) | Step::Weighing(file, open), Reply::Stat(stat)) => {
                cx.close(file.open);
                cx.release(file.node);
                cx.ask(Ask::Sync { open, data_only: false });
                let Target { dir, present, .. } = file.place;
                let (replaces, tag) = (present.is_some(), etag(&stat));
                self.at(Step::SyncingDir { dir, open, replaces, tag })
            }
            (Step::SyncingDir { dir, open, replaces, tag }, Reply::Done) => {
                self.done(cx, dir, open, (replaces, &tag))
            }
            (Step::Removing(dir, refusal), _) => {
                cx.release(dir);
                cx.refuse(refusal)
            }
            (step, reply) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    /// Responds after the change.
    fn done(
        &self,
        cx: &mut Context,
        dir: NodeId,
        open: OpenId,
        (replaces, tag): (bool, &str),
    ) -> State {
        release_dir(cx, dir, open);
        let head = match replaces {
            true => Head::new(204),
            false => Head::new(201)
                .field("Location", self.request.target.encoded())
                .field("Content-Length", 0),
        };
        cx.respond(head.field("ETag", tag))
    }

    fn failed(self: Box<Self>, cx: &mut Context, step: Step, error: Error) -> State {
        let refused = match step {
            Step::SettingProperties(file) | Step::Writing(file, _) | Step::Syncing(file) => {
                return self.remove(cx, file, status(error));
            }
            Step::Opening(file) => return self.remove(cx, file, not_opened(error)),
            Step::Naming(file, open) => {
                cx.close(open);
                return self.remove(cx, file, status(error));
            }
            Step::CreatingUnnamed(Target { dir, .. })
            | Step::Creating { place: Target { dir, .. }, .. } => {
                cx.release(dir);
                status(error)
            }
            Step::Weighing(file, open) => {
                file.release(cx, open);
                not_durable(error)
            }
            Step::SyncingDir { dir, open, replaces, tag } if is_never_synced(error) => {
                return self.done(cx, dir, open, (replaces, &tag));
            }
            Step::SyncingDir { dir, open, .. } => {
                release_dir(cx, dir, open);
                not_durable(error)
            }
            Step::Removing(dir, refusal) => {
                cx.release(dir);
                refusal
            }
            Step::Finding
            | Step::Looking(_)
            | Step::Measuring(..)
            | Step::Reading(..)
            | Step::Filling(..) => {
                unreachable!("{error:?} in {step:?}")
            }
        };
        cx.refuse(refused)
    }

    fn torn(self: Box<Self>, cx: &mut Context, file: File) -> State {
        self.remove(cx, file, refusal(400, "the body ended early"))
    }

    /// Removes an incomplete file, then responds with the reason.
    fn remove(self: Box<Self>, cx: &mut Context, file: File, refusal: Refusal) -> State {
        match file.remove(cx) {
            (dir, Some(ask)) => {
                cx.ask(ask);
                self.at(Step::Removing(dir, refusal))
            }
            (dir, None) => {
                cx.release(dir);
                cx.refuse(refusal)
            }
        }
    }
}

/// Returns whether no entry may be added to the directory, which others have locked.
fn is_dir_locked(session: &Session) -> bool {
    session.change.as_ref().is_some_and(|change| change.is_dir_locked)
}

/// Returns a name that no other request of any server uses, unless a client has chosen it.
pub(super) fn next_temporary(session: &mut Session) -> Name {
    next_name(session, "put")
}

/// Returns such a name with this word for its use.
pub(super) fn next_name(session: &mut Session, word: &str) -> Name {
    session.temporaries += 1;
    let start = session.export.wall;
    let (number, count) = (session.number, session.temporaries);
    let text = format!(".upcall-{word}-{:x}-{:x}-{number:x}-{count:x}", start.secs, start.nanos);
    Name::new(text.as_bytes()).expect("a short name without slashes")
}

fn release_dir(cx: &mut Context, dir: NodeId, open: OpenId) {
    cx.close(open);
    cx.release(dir);
}

impl Target {
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
