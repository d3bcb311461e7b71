//! Host state of one guest.

use crate::abi::{self, Errno};
use crate::budget::{Budget, Pace, Reason};
use crate::host_channel::{Given, HostChannel, Stream};
use crate::listings::{Entries, Seen};
use crate::prefetcher::Prefetcher;
use crate::window::Window;
use base::{Error, Stat};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use std::fmt;
use tree::{NodeId, OpenId};
use wasmtime::{Memory, ResourceLimiter};

/// Maximum amount of data read ahead for a guest, over all its files, bytes.
const WINDOWS_MAX: usize = 2 << 20;

/// Remaining file requests and bytes below which a guest prefetches nothing.
const ASKS_LEFT: u64 = 8;
const BYTES_LEFT: u64 = 128 << 10;

/// Parameters for starting a program.
#[derive(Clone, Debug)]
pub struct Start {
    /// Arguments, beginning with the program name.
    pub args: Vec<Vec<u8>>,
    /// Environment variables: `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Directory visible as `/`. The guest releases this reference.
    pub root: NodeId,
    /// File that serves as standard input: a directory that the guest does not release, a path from
    /// there, and whether links are refused on the path. `None`: input is fed.
    pub stdin: Option<(NodeId, Vec<u8>, bool)>,
    /// Whether the guest may change files.
    pub writes: bool,
    /// Seed of its random numbers; unpredictable.
    pub seed: [u8; 32],
    /// Resource limits.
    pub budget: Budget,
}

/// Reason why a host call fails.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Error returned to the guest.
    Errno(Errno),
    /// End of the guest.
    Ended(Reason),
}

/// Trap that a host call raises to end the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    Own(u32),
    Ended(Reason),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Own(code) => write!(f, "exit code {code}"),
            Exit::Ended(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for Exit {}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Errno(error.into())
    }
}

/// An open file or directory, or a stream.
#[derive(Debug)]
pub(crate) enum Slot {
    Input,
    Output(Stream),
    File(OpenFile),
    Dir(OpenDir),
}

#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The node; `None` until it is needed, when it is resolved by path from the guest's root.
    pub(crate) node: Option<NodeId>,
    pub(crate) path: Vec<u8>,
    /// The open file; `None` if its contents were read completely at open.
    pub(crate) open: Option<OpenId>,
    /// Cached attributes.
    pub(crate) stat: Option<(Stat, Seen)>,
    /// Whether it is open for writing, which disables read-ahead.
    pub(crate) writes: bool,
    /// Data read ahead, if it is open for reading only.
    pub(crate) window: Option<Box<Window>>,
    pub(crate) offset: u64,
    pub(crate) append: bool,
    pub(crate) rights: u64,
}

#[derive(Debug, Default)]
pub(crate) struct OpenDir {
    /// The node; `None` until it is needed, when it is resolved by path.
    pub(crate) node: Option<NodeId>,
    /// Path from the guest's root, if it has no `..` and no links.
    pub(crate) path: Option<Vec<u8>>,
    /// The open directory, once it was listed on its own.
    pub(crate) open: Option<OpenId>,
    /// Name of a preopened directory.
    pub(crate) preopen: Option<&'static [u8]>,
    /// Complete run of entries after the cookie `from`; `is_all` if it extends to the end.
    pub(crate) from: u64,
    pub(crate) entries: Entries,
    pub(crate) is_all: bool,
    /// A cookie handed out last, and the index behind it.
    pub(crate) place: (u64, usize),
}

impl OpenDir {
    /// A directory that was resolved, with its path if that has no `..` and no links.
    pub(crate) fn found(node: NodeId, path: Option<Vec<u8>>) -> OpenDir {
        OpenDir { node: Some(node), path, ..OpenDir::default() }
    }

    /// A directory known from a listing only, without a request.
    pub(crate) fn listed(path: Vec<u8>) -> OpenDir {
        OpenDir { path: Some(path), ..OpenDir::default() }
    }

    /// Returns the index behind a cookie among the cached entries.
    pub(crate) fn place_behind(&self, cookie: u64) -> Option<usize> {
        match cookie {
            cookie if cookie == self.from && !self.entries.is_empty() => Some(0),
            cookie if cookie == self.place.0 => Some(self.place.1),
            cookie => self.entries.iter().position(|it| it.cookie == cookie).map(|at| at + 1),
        }
    }
}

/// Descriptor table.
#[derive(Debug)]
pub(crate) struct Files {
    slots: Vec<Option<Slot>>,
    open: u64,
    open_max: u64,
}

impl Files {
    /// Creates a table with the streams and the root as a preopened directory.
    fn new(root: NodeId, open_max: u64) -> Files {
        let root = OpenDir { preopen: Some(b"/"), ..OpenDir::found(root, Some(Vec::new())) };
        let slots = vec![
            Some(Slot::Input),
            Some(Slot::Output(Stream::Output)),
            Some(Slot::Output(Stream::Error)),
            Some(Slot::Dir(root)),
        ];
        Files { slots, open: 0, open_max }
    }

    /// Makes a file the standard input.
    pub(crate) fn set_input(&mut self, file: OpenFile) {
        self.open += 1;
        self.slots[0] = Some(Slot::File(file));
    }

    pub(crate) fn get(&mut self, fd: u32) -> Result<&mut Slot, Errno> {
        self.slots.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::Badf)
    }

    pub(crate) fn file(&mut self, fd: u32) -> Result<&mut OpenFile, Errno> {
        match self.get(fd)? {
            Slot::File(file) => Ok(file),
            Slot::Dir(_) => Err(Errno::Isdir),
            Slot::Input | Slot::Output(_) => Err(Errno::Spipe),
        }
    }

    pub(crate) fn dir(&mut self, fd: u32) -> Result<&mut OpenDir, Errno> {
        match self.get(fd)? {
            Slot::Dir(dir) => Ok(dir),
            Slot::File(_) | Slot::Input | Slot::Output(_) => Err(Errno::Notdir),
        }
    }

    /// Returns whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.open < self.open_max
    }

    /// Adds a descriptor under the lowest free number.
    pub(crate) fn add(&mut self, slot: Slot) -> u32 {
        self.open += 1;
        let free = self.slots.iter().position(Option::is_none);
        let fd = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[fd] = Some(slot);
        fd as u32
    }

    pub(crate) fn take(&mut self, fd: u32) -> Result<Slot, Errno> {
        let slot = self.slots.get_mut(fd as usize).and_then(Option::take).ok_or(Errno::Badf)?;
        if matches!(slot, Slot::File(_) | Slot::Dir(OpenDir { preopen: None, .. })) {
            self.open -= 1;
        }
        Ok(slot)
    }

    /// Moves a descriptor to another number and returns the replaced one.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Result<Option<Slot>, Errno> {
        if from == to {
            return self.get(from).map(|_| None);
        }
        self.get(to)?;
        self.get(from)?;
        let replaced = self.take(to)?;
        self.slots[to as usize] = self.slots[from as usize].take();
        Ok(Some(replaced))
    }
}

/// Host state of one guest.
pub(crate) struct Host {
    pub(crate) channel: HostChannel,
    /// The guest's memory, once instantiated.
    pub(crate) memory: Option<Memory>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) files: Files,
    /// Directory visible as `/`.
    pub(crate) root: NodeId,
    /// Prefetch state.
    pub(crate) prefetcher: Prefetcher,
    /// Time of its last input or wait: absent files may exist since.
    pub(crate) received: Option<u64>,
    /// Number of changes that the guest has made; cached data from before is stale.
    pub(crate) changes: u64,
    /// Whether the guest may change files.
    pub(crate) writes: bool,
    /// Trigger of slice ends, and whether fuel is metered.
    pub(crate) pace: Pace,
    pub(crate) random: ChaCha20Rng,
    pub(crate) budget: Budget,
}

impl Host {
    pub(crate) fn new(start: &Start, channel: HostChannel, pace: Pace) -> Host {
        Host {
            channel,
            memory: None,
            args: start.args.clone(),
            env: start.env.clone(),
            files: Files::new(start.root, start.budget.files),
            root: start.root,
            prefetcher: Prefetcher::default(),
            received: None,
            changes: 0,
            writes: start.writes,
            pace,
            random: ChaCha20Rng::from_seed(start.seed),
            budget: start.budget,
        }
    }

    /// Releases the resources of a descriptor; the root is retained until the end.
    pub(crate) fn close(&self, slot: &Slot) {
        let (open, node) = match slot {
            Slot::File(file) => (file.open, file.node),
            Slot::Dir(dir) => (dir.open, dir.node.filter(|_| dir.preopen.is_none())),
            Slot::Input | Slot::Output(_) => (None, None),
        };
        let mut state = self.channel.state();
        state.given.extend(open.map(Given::Open));
        state.given.extend(node.map(Given::Node));
    }

    /// Records that the guest has received input or waited.
    pub(crate) fn hear(&mut self) {
        self.received = Some(self.channel.state().times.monotonic);
    }

    /// Returns the cache stamp of data seen now.
    pub(crate) fn seen(&self) -> Seen {
        Seen { at: self.channel.state().times.monotonic, changes: self.changes }
    }

    /// Returns the bytes that the guest may still read; `None` if it is close to its limits.
    pub(crate) fn left_to_ask(&self) -> Option<u64> {
        let used = self.channel.state().used;
        let operations = self.budget.operations.saturating_sub(used.operations);
        let bytes = self.budget.bytes.saturating_sub(used.read.saturating_add(used.written));
        (operations > ASKS_LEFT && bytes > BYTES_LEFT).then_some(bytes)
    }

    /// Stores the reply of a prefetch, if it has arrived.
    pub(crate) fn absorb(&mut self) {
        self.prefetcher.absorb(&mut self.channel.state());
    }

    /// Adds an opened file or directory, possibly with data read ahead.
    pub(crate) fn add(&mut self, slot: Slot) -> u32 {
        let fd = self.files.add(slot);
        self.shrink();
        fd
    }

    /// Drops the data read ahead, of all files, if it exceeds the limit.
    pub(crate) fn shrink(&mut self) {
        let windows = || {
            self.files.slots.iter().flatten().filter_map(|slot| match slot {
                Slot::File(file) => file.window.as_ref(),
                Slot::Dir(_) | Slot::Input | Slot::Output(_) => None,
            })
        };
        if windows().map(|window| window.bytes()).sum::<usize>() > WINDOWS_MAX {
            self.files.slots.iter_mut().flatten().for_each(|slot| {
                if let Slot::File(file) = slot
                    && let Some(window) = &mut file.window
                {
                    **window = Window::default();
                }
            });
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let slots = std::mem::take(&mut self.files.slots);
        slots.iter().flatten().for_each(|slot| self.close(slot));
        self.channel.state().given.push(Given::Node(self.root));
    }
}

impl ResourceLimiter for Host {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let allowed = desired as u64 <= self.budget.memory;
        if allowed {
            let used = &mut self.channel.state().used;
            used.memory = used.memory.max(desired as u64);
        }
        Ok(allowed)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= self.budget.table)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        16
    }

    fn memories(&self) -> usize {
        1
    }
}

/// Flags of an open file.
impl OpenFile {
    pub(crate) fn flags(&self) -> u16 {
        if self.append { abi::APPEND } else { 0 }
    }
}
