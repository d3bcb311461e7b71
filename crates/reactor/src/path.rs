//! Several system calls on paths as one operation: straight-line code, the same for both forms.
//!
//! Each operation is tried in one of two modes. `Cached` runs on the node's own thread and never
//! blocks: it resolves names with `RESOLVE_CACHED`, never crosses a mount point, reads with
//! `RWF_NOWAIT`, and otherwise gives up with [`StepError::NotCached`]. `Blocking` runs on a thread
//! of the pool and may take as long as the file system needs. Only handles on local file systems
//! are tried in `Cached` mode: a call on a hung network or FUSE mount would block the node's
//! thread.
//!
//! In neither mode is a mount point crossed unchecked ([`enter`]). If one leads to a file
//! system that may block and that the job was not admitted to, the operation ends with
//! [`StepError::Elsewhere`] before it has changed anything, and the pool starts it again as one
//! that may enter there.

mod attrs;
mod contents;
mod create;
mod enter;
mod extended;
mod fetch;
mod file_handle;
mod list;
mod open;
pub(crate) mod recent;
mod rename;
mod replace;
pub(crate) mod search;
mod set_attrs;
mod source;
pub(crate) mod users;
mod walk;
mod within;

use crate::descriptor;
use crate::errno::StepError;
use crate::host::Host;
use crate::identity::IdentityPart;
use crate::memory::Memory;
use crate::pool::lanes::Lane;
use base::op::{File, PathDone, PathOp, Replacement};
use base::{Caller, Error, Instant, Name};
use recent::Recent;
use rustix::io::Errno;
use std::cell::Cell;
use std::time::Duration;

/// Result of a step.
type Outcome<T> = Result<T, StepError>;

/// Whether a step may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Must not block: data in memory only.
    Cached,
    /// May block.
    Blocking,
}

/// An operation, with its caller and confinement.
#[derive(Debug)]
pub(crate) struct Task {
    /// Identity of the caller.
    pub(crate) caller: Caller,
    /// The connection, or [`base::op::NOBODY`].
    pub(crate) requester: u32,
    /// Directory that it may not leave.
    pub(crate) within: Option<File>,
    /// The operation.
    pub(crate) op: PathOp,
}

/// Environment of an operation.
pub(crate) struct PathContext<'a> {
    /// The host.
    pub(crate) host: &'a Host,
    /// Whether it may block.
    pub(crate) mode: Mode,
    /// Identity of the caller.
    pub(crate) caller: &'a Caller,
    /// File systems that may block and may be entered.
    pub(crate) admitted: &'a [Lane],
    /// Memory for data that is read.
    pub(crate) memory: &'a mut Memory,
    /// Recently opened files, and the time; on the node's own thread only.
    pub(crate) recent: Option<(&'a mut Recent, Instant)>,
    /// Number of name lookups left. `None`: no limit.
    steps: Option<Cell<usize>>,
}

/// Maximum number of name lookups of an operation that is no long job. A message of 9P has up to
/// 16; climbing from a deep directory to the root takes milliseconds.
const STEPS_MAX: usize = 64;

impl PathContext<'_> {
    /// Counts a name lookup.
    fn step(&self) -> Outcome<()> {
        let Some(steps) = &self.steps else { return Ok(()) };
        let left = steps.get().checked_sub(1).ok_or(StepError::Lengthy)?;
        steps.set(left);
        Ok(())
    }

    /// In `Cached` mode, distinguishes the kernel's "would block" and "mount point on the way" from
    /// errors of the operation.
    fn settle<T>(&self, result: rustix::io::Result<T>) -> Outcome<T> {
        match result {
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::XDEV) if self.mode == Mode::Cached => {
                Err(StepError::NotCached)
            }
            other => other.map_err(StepError::Kernel),
        }
    }
}

/// Result of an operation on a thread that may block.
#[derive(Debug)]
pub(crate) enum Performed {
    /// It ended.
    Done(Result<PathDone, Error>),
    /// Nothing was done: it leads to a file system that it was not admitted to.
    Elsewhere(Lane),
    /// Nothing was done: it takes many steps.
    Lengthy,
}

/// Performs an operation on a thread that may block, for local file systems and those that it is
/// `admitted` to. Local operations may take many steps if they are long jobs, or if they change
/// something.
pub(crate) fn perform(
    host: &Host,
    memory: &mut Memory,
    (admitted, is_long): (&[Lane], bool),
    task: &Task,
) -> Performed {
    let Task { caller, op, .. } = task;
    if let Err(error) = host.own.assume(caller, group_of(op), IdentityPart::Changing) {
        return Performed::Done(Err(error));
    }
    let is_short = !is_long && admitted.is_empty() && cacheable(op);
    let steps = is_short.then(|| Cell::new(STEPS_MAX));
    let (mode, recent) = (Mode::Blocking, None);
    let mut context = PathContext { host, mode, caller, admitted, memory, recent, steps };
    match dispatch(&mut context, task) {
        Err(StepError::Elsewhere(lane)) => Performed::Elsewhere(lane),
        Err(StepError::Lengthy) => Performed::Lengthy,
        result => Performed::Done(result.map_err(Error::from)),
    }
}

/// Result of trying an operation without blocking.
pub(crate) enum Attempt {
    /// It ended.
    Done(Result<PathDone, Error>),
    /// Nothing was done: it would block, or takes many steps.
    Later {
        /// Whether it takes many steps.
        is_long: bool,
    },
}

/// Performs an operation if it does not block.
pub(crate) fn perform_cached(
    host: &Host,
    memory: &mut Memory,
    recent: (&mut Recent, Instant),
    task: &Task,
) -> Attempt {
    let caller = &task.caller;
    if let Err(error) = host.own.assume(caller, None, IdentityPart::Looking) {
        return Attempt::Done(Err(error));
    }
    let (mode, recent, steps) = (Mode::Cached, Some(recent), Some(Cell::new(STEPS_MAX)));
    let mut context = PathContext { host, mode, caller, admitted: &[], memory, recent, steps };
    match dispatch(&mut context, task) {
        Err(StepError::NotCached) => Attempt::Later { is_long: false },
        Err(StepError::Lengthy) => Attempt::Later { is_long: true },
        result => Attempt::Done(result.map_err(Error::from)),
    }
}

/// Returns whether an operation may be tried on the node's own thread.
pub(crate) fn cacheable(op: &PathOp) -> bool {
    match op {
        PathOp::Open { access, .. } => !access.truncate,
        PathOp::Walk { .. }
        | PathOp::Fetch { .. }
        | PathOp::Stat { .. }
        | PathOp::FileHandle { .. }
        | PathOp::ReadLink { .. } => true,
        PathOp::OpenHandle { .. }
        | PathOp::SetStat { .. }
        | PathOp::Create { .. }
        | PathOp::CreateUnnamed { .. }
        | PathOp::Replace { .. }
        | PathOp::MakeDir { .. }
        | PathOp::Symlink { .. }
        | PathOp::MakeNode { .. }
        | PathOp::Link { .. }
        | PathOp::Rename { .. }
        | PathOp::RenameFile { .. }
        | PathOp::Remove { .. }
        | PathOp::RemoveFile { .. }
        | PathOp::List { .. }
        | PathOp::ListAll { .. }
        | PathOp::ReadAll { .. }
        | PathOp::StatFs { .. }
        | PathOp::GetAttr { .. }
        | PathOp::SetAttr { .. }
        | PathOp::ListAttrs { .. }
        | PathOp::RemoveAttr { .. }
        | PathOp::Identify { .. }
        | PathOp::OpenRoot { .. }
        | PathOp::OpenVolume { .. }
        | PathOp::Resolve { .. } => false,
    }
}

/// Returns whether an operation occupies its thread for long.
pub(crate) fn is_long(op: &PathOp) -> bool {
    matches!(op, PathOp::List { .. } | PathOp::ListAll { .. })
}

/// Returns whether an operation climbs from a directory, which may be deep.
pub(crate) fn may_climb(op: &PathOp) -> bool {
    matches!(op, PathOp::Walk { names, .. } if names.iter().any(Name::is_parent))
}

/// Returns the lane of an operation that is independent of its files: absolute paths lead anywhere,
/// and lookups of names use servers.
pub(crate) fn lane(op: &PathOp) -> Option<Lane> {
    match op {
        PathOp::OpenRoot { path } | PathOp::OpenVolume { path, .. } => {
            Some(Lane::Path(path.as_slice().into()))
        }
        PathOp::Resolve { .. } => Some(Lane::Hosts),
        PathOp::Identify { .. } => Some(Lane::Users),
        PathOp::Walk { .. }
        | PathOp::Fetch { .. }
        | PathOp::Stat { .. }
        | PathOp::FileHandle { .. }
        | PathOp::OpenHandle { .. }
        | PathOp::ReadLink { .. }
        | PathOp::Open { .. }
        | PathOp::SetStat { .. }
        | PathOp::Create { .. }
        | PathOp::CreateUnnamed { .. }
        | PathOp::Replace { .. }
        | PathOp::MakeDir { .. }
        | PathOp::Symlink { .. }
        | PathOp::MakeNode { .. }
        | PathOp::Link { .. }
        | PathOp::Rename { .. }
        | PathOp::RenameFile { .. }
        | PathOp::Remove { .. }
        | PathOp::RemoveFile { .. }
        | PathOp::List { .. }
        | PathOp::ListAll { .. }
        | PathOp::ReadAll { .. }
        | PathOp::StatFs { .. }
        | PathOp::GetAttr { .. }
        | PathOp::SetAttr { .. }
        | PathOp::ListAttrs { .. }
        | PathOp::RemoveAttr { .. } => None,
    }
}

/// Returns whether an operation links or renames a file, which no file system can do across a
/// boundary: trying it would occupy threads of both.
pub(crate) fn joins_files(op: &PathOp) -> bool {
    matches!(
        op,
        PathOp::Link { .. }
            | PathOp::Rename { .. }
            | PathOp::RenameFile { to: Some(_), .. }
            | PathOp::Replace { by: Replacement::Entry(..) | Replacement::Unnamed(_), .. }
    )
}

/// Returns the lanes of the files handed out by an operation.
pub(crate) fn lanes_of(host: &Host, done: &PathDone) -> Vec<(File, Lane)> {
    let lane = |file: File| Some((file, host.lane_of(descriptor::file(file).ok()?)?));
    handed_out(done).into_iter().flatten().filter_map(lane).collect()
}

/// Returns the files handed out by a completion.
fn handed_out(done: &PathDone) -> [Option<File>; 2] {
    match done {
        PathDone::Walked(_, Ok(file))
        | PathDone::Fetched(_, _, Some(file))
        | PathDone::Opened(file, _)
        | PathDone::Root(file, _)
        | PathDone::Volume(file, ..) => [Some(*file), None],
        PathDone::Created(file, handle, _) => [Some(*file), Some(*handle)],
        PathDone::Walked(_, Err(_))
        | PathDone::Fetched(_, _, None)
        | PathDone::Ok
        | PathDone::Handle(_)
        | PathDone::Stat(_)
        | PathDone::Bytes(_)
        | PathDone::Entries(_)
        | PathDone::Listings(..)
        | PathDone::Contents(..)
        | PathDone::StatFs(_)
        | PathDone::User(_)
        | PathDone::Unexpected(_)
        | PathDone::Addresses(_) => [None, None],
    }
}

/// Returns the files that an operation starts from: of one given by its handle, not the root, which
/// only confines it.
pub(crate) fn files(op: &PathOp) -> [Option<File>; 2] {
    let confined = matches!(op, PathOp::RenameFile { .. } | PathOp::RemoveFile { .. });
    let mut files = op.files().skip(usize::from(confined));
    [files.next(), files.next()]
}

/// Returns the processor time used by this thread since `begun`, ns, so that the cost of large jobs
/// can be charged.
fn spent_since(begun: Duration) -> u64 {
    u64::try_from((crate::thread_time() - begun).as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the group requested for a new file.
fn group_of(op: &PathOp) -> Option<u32> {
    if let PathOp::Create { gid, .. }
    | PathOp::MakeDir { gid, .. }
    | PathOp::Symlink { gid, .. }
    | PathOp::MakeNode { gid, .. } = op
    {
        *gid
    } else {
        None
    }
}

/// Returns the directories in which an operation looks up, creates or removes names, or that it
/// lists.
fn directories(op: &PathOp) -> [Option<File>; 2] {
    match op {
        PathOp::Walk { from: dir, .. }
        | PathOp::Fetch { root: dir, .. }
        | PathOp::Create { dir, .. }
        | PathOp::CreateUnnamed { dir, .. }
        | PathOp::MakeDir { dir, .. }
        | PathOp::Symlink { dir, .. }
        | PathOp::MakeNode { dir, .. }
        | PathOp::Link { dir, .. }
        | PathOp::Remove { dir, .. }
        | PathOp::List { file: dir, .. }
        | PathOp::ListAll { from: dir, .. }
        | PathOp::ReadAll { from: dir, .. } => [Some(*dir), None],
        PathOp::Replace { dir, by, .. } => match by {
            Replacement::Entry(other, _) => [Some(*dir), Some(*other)],
            Replacement::Nothing | Replacement::Unnamed(_) => [Some(*dir), None],
        },
        PathOp::Rename { from, to, .. } => [Some(*from), Some(*to)],
        PathOp::RenameFile { to, .. } => [*to, None],
        PathOp::Stat { .. }
        | PathOp::FileHandle { .. }
        | PathOp::OpenHandle { .. }
        | PathOp::SetStat { .. }
        | PathOp::Open { .. }
        | PathOp::ReadLink { .. }
        | PathOp::RemoveFile { .. }
        | PathOp::StatFs { .. }
        | PathOp::GetAttr { .. }
        | PathOp::SetAttr { .. }
        | PathOp::ListAttrs { .. }
        | PathOp::RemoveAttr { .. }
        | PathOp::Identify { .. }
        | PathOp::OpenRoot { .. }
        | PathOp::OpenVolume { .. }
        | PathOp::Resolve { .. } => [None, None],
    }
}

/// Refuses an operation in a directory that is not within its confinement.
fn expect_within(context: &PathContext<'_>, Task { within, op, .. }: &Task) -> Outcome<()> {
    let Some(root) = within else { return Ok(()) };
    for dir in directories(op).into_iter().flatten().filter(|dir| dir != root) {
        within::expect_within(context, descriptor::file(*root)?, descriptor::file(dir)?)?;
    }
    Ok(())
}

fn dispatch(context: &mut PathContext<'_>, task: &Task) -> Outcome<PathDone> {
    expect_within(context, task)?;
    let (fd, Task { caller, op, .. }) = (descriptor::file, task);
    match op {
        PathOp::Walk { root, from, names } => walk::walk(context, fd(*root)?, fd(*from)?, names),
        PathOp::Fetch { root, path, read_max, headroom } => {
            fetch::fetch(context, caller, (*root, path), *read_max, *headroom)
        }
        PathOp::Stat { file } => attrs::stat(fd(*file)?).map(PathDone::Stat),
        PathOp::FileHandle { root, file } => file_handle::get(fd(*root)?, fd(*file)?),
        PathOp::OpenHandle { root, handle } => file_handle::open(context, fd(*root)?, handle),
        PathOp::SetStat { file, open, set } => set_attrs::set(context, fd(*file)?, *open, set),
        PathOp::Open { file, access } => open::open(context, fd(*file)?, *access),
        PathOp::Create { dir, name, access, exclusive, mode, gid: _ } => {
            create::create(context, fd(*dir)?, name, *access, *exclusive, *mode)
        }
        PathOp::CreateUnnamed { dir, access, mode } => {
            replace::create_unnamed(context, fd(*dir)?, *access, *mode)
        }
        PathOp::Replace { dir, name, by, expected } => {
            replace::replace(context, fd(*dir)?, name, by, *expected)
        }
        PathOp::MakeDir { dir, name, mode, gid: _ } => {
            create::make_dir(context, fd(*dir)?, name, *mode)
        }
        PathOp::Symlink { dir, name, target, gid: _ } => {
            create::symlink(context, fd(*dir)?, name, target)
        }
        PathOp::MakeNode { dir, name, kind, mode, device, gid: _ } => {
            create::make_node(context, fd(*dir)?, name, *kind, *mode, *device)
        }
        PathOp::ReadLink { file } => open::read_link(context, fd(*file)?),
        PathOp::Link { file, dir, name } => create::link(context, fd(*file)?, fd(*dir)?, name),
        PathOp::Rename { from, name, to, new_name, replace } => {
            rename::rename(fd(*from)?, name, fd(*to)?, new_name, *replace)
        }
        PathOp::RenameFile { root, file, to, new_name, replace } => {
            let place = rename::locate(context, caller, fd(*root)?, fd(*file)?)?;
            rename::rename_file(&place, to.map(fd).transpose()?, new_name, *replace)
        }
        PathOp::Remove { dir, name, directory } => rename::remove(fd(*dir)?, name, *directory),
        PathOp::RemoveFile { root, file } => {
            rename::remove_file(context, caller, fd(*root)?, fd(*file)?)
        }
        PathOp::ListAll { from, paths, bytes_max } => {
            list::list_all(context, *from, paths, *bytes_max)
        }
        PathOp::ReadAll { from, paths, size_max, bytes_max } => {
            contents::read_all(context, *from, paths, *size_max, *bytes_max)
        }
        PathOp::List { file, cookie, bytes_max, detail } => {
            let root = task.within.filter(|_| detail.has_handle()).map(fd).transpose()?;
            list::list(context, *file, (*cookie, *bytes_max), (*detail, root))
        }
        PathOp::StatFs { file } => attrs::stat_fs(fd(*file)?),
        PathOp::GetAttr { file, name } => extended::get(fd(*file)?, name),
        PathOp::SetAttr { file, name, value, create } => {
            extended::set(context, fd(*file)?, name, value, *create)
        }
        PathOp::ListAttrs { file } => extended::list(fd(*file)?),
        PathOp::RemoveAttr { file, name } => extended::remove(context, fd(*file)?, name),
        PathOp::Identify { who } => users::identify(who).map(PathDone::User),
        PathOp::OpenRoot { path } => source::open_root(context, path),
        PathOp::OpenVolume { path, writable, head } => {
            source::open_volume(path, *writable, *head as usize)
        }
        PathOp::Resolve { address } => source::resolve(address),
    }
}
