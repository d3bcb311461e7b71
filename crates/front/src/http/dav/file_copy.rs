//! Copy of one file into a directory, a part of a `COPY`: like an upload, with a file of the server
//! as the body. The copy gets its name when it is complete and durable.
//!
//! Holes are skipped. Permissions and dead properties are copied; times and owner are those of a
//! new file.

use super::super::exchange::Context;
use super::super::put::next_temporary;
use super::properties::ATTRIBUTE;
use base::op::Replacement;
use base::{Access, Buf, Error, Expected, Kind, Name, SetStat, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

/// Maximum number of bytes read and written at once.
const PIECE: u32 = 128 << 10;

/// Maximum number of changes of the destination that are waited for.
const ATTEMPTS_MAX: u32 = 16;

/// A copy in progress.
#[derive(Debug)]
pub(super) struct FileCopy {
    /// The copied file, which belongs to the copy, and its permissions.
    source: NodeId,
    mode: u32,
    /// The directory, which belongs to the caller, and the name of the copy.
    dir: NodeId,
    name: Name,
    /// Whether a file of that name is replaced.
    replace: bool,
    /// The file being read, and the one being written.
    open: Option<OpenId>,
    copy: Option<Copy>,
    offset: u64,
    attempts: u32,
    step: Step,
}

/// The file being written.
#[derive(Debug)]
struct Copy {
    node: NodeId,
    open: OpenId,
    /// Its name until it is complete, if files without names are unsupported.
    temporary: Option<Name>,
}

/// State of a copy.
#[derive(Clone, Debug)]
enum Step {
    /// Waiting for the open of the source.
    Opening,
    /// Waiting for the new file.
    CreatingUnnamed,
    /// Waiting for a new file of this temporary name.
    Creating(Name),
    /// Waiting for the dead properties.
    ReadingAttribute,
    /// Waiting for them to be set.
    SettingAttribute,
    /// Waiting for the offset of the next data.
    Seeking,
    /// Waiting for data.
    Reading,
    /// Waiting for this many bytes to be written; whether they are all zeros.
    Writing(usize, bool),
    /// Waiting for the size of the source, which ends in a hole.
    Measuring,
    /// Waiting for the size to be set.
    Resizing,
    /// Waiting for the copy to be durable.
    Syncing,
    /// Waiting for its name.
    Naming,
    /// Waiting for the removal of the temporary file; then this error is reported.
    Removing(Error),
}

/// Result of a copy.
#[derive(Debug)]
pub(super) enum Copied {
    /// It has its name.
    Done,
    /// Something else than a plain file has the name, or something at all if nothing is replaced.
    Occupied,
    /// It failed.
    Failed(Error),
}

impl FileCopy {
    /// Begins to copy a file of these attributes.
    pub(super) fn begin(
        cx: &mut Context,
        (source, stat): (NodeId, &Stat),
        (dir, name): (NodeId, Name),
        replace: bool,
    ) -> FileCopy {
        assert_eq!(stat.kind, Kind::File, "only plain files have content to copy");
        cx.ask(Ask::Open { node: source, access: Access::READ });
        FileCopy {
            source,
            mode: stat.mode & 0o777,
            dir,
            name,
            replace,
            open: None,
            copy: None,
            offset: 0,
            attempts: 0,
            step: Step::Opening,
        }
    }

    /// Handles a reply; returns the result at the end.
    pub(super) fn answered(
        &mut self,
        cx: &mut Context,
        reply: Result<Reply, Error>,
    ) -> Option<Copied> {
        match (self.step.clone(), reply) {
            (Step::Opening, Ok(Reply::Opened(open, _))) => {
                self.open = Some(open);
                let (dir, name, mode) = (self.dir, self.name.clone(), self.mode);
                let access = Access { write: true, ..Access::default() };
                self.ask(cx, Step::CreatingUnnamed, Ask::CreateUnnamed { dir, name, access, mode })
            }
            (Step::CreatingUnnamed, Err(Error::Unsupported)) => self.create(cx),
            (Step::Creating(_), Err(Error::Exists)) if self.attempts < ATTEMPTS_MAX => {
                self.create(cx)
            }
            (Step::CreatingUnnamed, Ok(Reply::Created(node, open, _))) => {
                self.created(cx, Copy { node, open, temporary: None })
            }
            (Step::Creating(name), Ok(Reply::Created(node, open, _))) => {
                self.created(cx, Copy { node, open, temporary: Some(name) })
            }
            (Step::ReadingAttribute, Ok(Reply::Bytes(value))) => {
                let (node, name) = (self.copy().node, ATTRIBUTE.to_vec());
                let ask = Ask::SetAttr { node, name, value, create: None };
                self.ask(cx, Step::SettingAttribute, ask)
            }
            // The source has none, or nobody may read them, or the other tree has no attributes.
            (Step::ReadingAttribute, Err(_))
            | (Step::SettingAttribute, Ok(_) | Err(Error::Unsupported)) => self.seek(cx),
            (Step::Syncing, Ok(_)) => self.link(cx),
            (Step::Naming, Ok(Reply::Unexpected(present))) => {
                self.attempts += 1;
                let is_file = present.is_none_or(|stat| stat.kind == Kind::File);
                if is_file && self.replace && self.attempts < ATTEMPTS_MAX {
                    return self.link(cx);
                }
                Some(Copied::Occupied)
            }
            (Step::Naming, Ok(_)) => {
                self.take_temporary();
                Some(Copied::Done)
            }
            (Step::Removing(error), _) => Some(Copied::Failed(error)),
            (step, reply) => self.transferred(cx, step, reply),
        }
    }

    /// Handles a reply of the transfer of the data.
    fn transferred(
        &mut self,
        cx: &mut Context,
        step: Step,
        reply: Result<Reply, Error>,
    ) -> Option<Copied> {
        match (step, reply) {
            (Step::Seeking, Ok(Reply::DataAt(Some(at)))) => {
                self.offset = at.max(self.offset);
                self.read(cx)
            }
            (Step::Seeking, Ok(_)) => {
                let node = self.source;
                self.ask(cx, Step::Measuring, Ask::Stat { node })
            }
            (Step::Seeking, Err(Error::Unsupported | Error::Invalid)) => self.read(cx),
            (Step::Reading, Ok(Reply::Data(data))) => self.write(cx, data),
            (Step::Reading, Ok(Reply::Pieces(pieces))) => {
                let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
                self.write(cx, Buf::from(bytes.collect::<Vec<u8>>()))
            }
            (Step::Writing(count, is_zero), Ok(Reply::Written(written)))
                if written as usize == count =>
            {
                self.offset += count as u64;
                if is_zero { self.seek(cx) } else { self.read(cx) }
            }
            (Step::Writing(..), Ok(_)) => self.fail(cx, Error::NoSpace),
            (Step::Measuring, Ok(Reply::Stat(stat))) => {
                let set = SetStat { size: Some(stat.size.max(self.offset)), ..SetStat::default() };
                let Copy { node, open, .. } = *self.copy();
                self.ask(cx, Step::Resizing, Ask::SetStat { node, open: Some(open), set })
            }
            (Step::Resizing, Ok(_)) => self.sync(cx),
            (_, Err(error)) => self.fail(cx, error),
            (step, Ok(reply)) => unreachable!("{reply:?} in {step:?}"),
        }
    }

    /// Copies the dead properties to the new file.
    fn created(&mut self, cx: &mut Context, copy: Copy) -> Option<Copied> {
        self.copy = Some(copy);
        let (node, name) = (self.source, ATTRIBUTE.to_vec());
        self.ask(cx, Step::ReadingAttribute, Ask::GetAttr { node, name })
    }

    fn ask(&mut self, cx: &mut Context, step: Step, ask: Ask) -> Option<Copied> {
        cx.session.outstanding = if let Step::Writing(count, _) = step { count } else { 0 };
        self.step = step;
        cx.ask(ask);
        None
    }

    fn copy(&self) -> &Copy {
        self.copy.as_ref().expect("the new file is open")
    }

    fn create(&mut self, cx: &mut Context) -> Option<Copied> {
        self.attempts += 1;
        let (dir, name, mode) = (self.dir, next_temporary(cx.session), self.mode);
        let access = Access { write: true, ..Access::default() };
        let step = Step::Creating(name.clone());
        self.ask(cx, step, Ask::Create { dir, name, access, exclusive: true, mode, gid: None })
    }

    fn seek(&mut self, cx: &mut Context) -> Option<Copied> {
        let (open, from) = (self.open.expect("it was opened"), self.offset);
        self.ask(cx, Step::Seeking, Ask::NextData { open, from })
    }

    fn read(&mut self, cx: &mut Context) -> Option<Copied> {
        let (open, offset) = (self.open.expect("it was opened"), self.offset);
        let count = u32::try_from(cx.at_most(PIECE as usize)).expect("a piece");
        self.ask(cx, Step::Reading, Ask::Read { open, offset, count, headroom: 0 });
        cx.session.outstanding = count as usize;
        None
    }

    fn write(&mut self, cx: &mut Context, data: Buf) -> Option<Copied> {
        if data.is_empty() {
            return self.sync(cx);
        }
        let (open, offset, count) = (self.copy().open, self.offset, data.len());
        // Offsets of a mounted server are not trusted.
        if offset.checked_add(count as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return self.fail(cx, Error::FileTooLarge);
        }
        let is_zero = data.iter().all(|byte| *byte == 0);
        self.ask(cx, Step::Writing(count, is_zero), Ask::Write { open, offset, data })
    }

    fn sync(&mut self, cx: &mut Context) -> Option<Copied> {
        let open = self.copy().open;
        self.ask(cx, Step::Syncing, Ask::Sync { open, data_only: false })
    }

    /// Gives the copy its name.
    fn link(&mut self, cx: &mut Context) -> Option<Copied> {
        let (dir, name) = (self.dir, self.name.clone());
        let by = match &self.copy().temporary {
            Some(temporary) => Replacement::Entry(dir, temporary.clone()),
            None => Replacement::Unnamed(self.copy().node),
        };
        let expected = if self.replace { Expected::PlainFile } else { Expected::Absent };
        self.ask(cx, Step::Naming, Ask::Replace { dir, name, by, expected })
    }

    /// Tries again to give the copy its name, after what had it was removed.
    pub(super) fn link_again(&mut self, cx: &mut Context) {
        self.attempts = 0;
        self.link(cx);
    }

    /// Removes the temporary file, if there is one, and fails.
    pub(super) fn fail(&mut self, cx: &mut Context, error: Error) -> Option<Copied> {
        match self.take_temporary() {
            Some(name) => {
                let dir = self.dir;
                let ask = Ask::Remove { dir, name, directory: Some(false) };
                self.ask(cx, Step::Removing(error), ask)
            }
            None => Some(Copied::Failed(error)),
        }
    }

    fn take_temporary(&mut self) -> Option<Name> {
        self.copy.as_mut()?.temporary.take()
    }

    /// Releases its nodes and open files. Returns the request to remove the temporary file, if
    /// there is one: the name, in the directory.
    pub(super) fn release(&mut self, cx: &mut Context) -> Option<Ask> {
        cx.close(self.open.take());
        let temporary = self.take_temporary();
        if let Some(copy) = self.copy.take() {
            cx.close(copy.open);
            cx.release(copy.node);
        }
        cx.release(self.source);
        let dir = self.dir;
        temporary.map(|name| Ask::Remove { dir, name, directory: Some(false) })
    }
}
