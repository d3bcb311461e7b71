//! Procedures that find or create a file in a directory: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD.

use super::call::{Context, Next, Procedure, optional};
use super::secret;
use super::translate;
use base::{Access, Error, Kind, Name, SetStat, SetTime, Stat, Time};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::nfs::{After, CreateHow, Handle, Results, SetAttributes, Wcc};

/// LOOKUP, CREATE, MKDIR, SYMLINK or MKNOD.
#[derive(Debug)]
pub(super) struct Make {
    dir: Handle,
    name: Name,
    what: Made,
    /// Attributes to set after the creation.
    set: SetStat,
    /// Whether this changes the file.
    is_set: bool,
    state: State,
    found: Found,
}

/// The procedure.
#[derive(Debug)]
enum Made {
    /// LOOKUP.
    Nothing,
    /// CREATE: permission bits, and how.
    File(u32, How),
    /// MKDIR: permission bits.
    Directory(u32),
    /// SYMLINK: target.
    Symlink(Vec<u8>),
    /// MKNOD: kind, permission bits and device number.
    Special(Kind, u32, u64),
}

/// Creation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// An existing file is opened.
    Unchecked,
    /// An existing file is an error.
    Guarded,
    /// An existing file is an error unless it has these times: those of the verifier.
    Exclusive([Time; 2]),
}

/// State of the procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the creation.
    Make,
    /// Waiting for the file of the name.
    Find,
    /// Waiting for the file of the name, which may be one that this client has created before.
    Compare,
    /// Waiting for the file of the name, whose open was denied.
    Existing,
    /// Waiting for it to be open for writing, to be truncated.
    Open,
    /// Waiting for the attributes to be set.
    Set,
    /// Waiting for their durability.
    SyncFile,
    /// Waiting for the attributes after that.
    AttributeQuery,
    /// Waiting for the handle of the file.
    Identify,
    /// Waiting for the durability of the creation.
    Sync,
    /// Waiting for the attributes of the directory after the creation.
    Dir,
}

/// The file found or created so far. Node and open file are released once.
#[derive(Debug, Default)]
struct Found {
    node: Option<NodeId>,
    open: Option<(OpenId, Access)>,
    stat: Stat,
    handle: Option<Handle>,
}

/// Permission bits of a file for which the client gives none.
const MODE_DEFAULT: u32 = 0o644;

/// Permission bits of a file created exclusively, until the client sets its own.
const MODE_EXCLUSIVE: u32 = 0o600;

/// Access of a new file.
const ACCESS: Access =
    Access { read: true, write: true, append: false, truncate: false, sync: false };

impl Make {
    fn new(dir: Handle, name: Name, what: Made, set: SetStat) -> Make {
        let state = if let Made::Nothing = what { State::Find } else { State::Make };
        Make { dir, name, what, set, is_set: false, state, found: Found::default() }
    }

    pub(super) fn lookup(dir: Handle, name: Name) -> Make {
        Make::new(dir, name, Made::Nothing, SetStat::default())
    }

    pub(super) fn create(dir: Handle, name: Name, how: CreateHow) -> Result<Make, Error> {
        let (set, how) = match how {
            CreateHow::Unchecked(set) => (translate::set_stat(&set)?, How::Unchecked),
            CreateHow::Guarded(set) => (translate::set_stat(&set)?, How::Guarded),
            CreateHow::Exclusive(verifier) => {
                let times = times_of(verifier);
                let [accessed, modified] = times.map(|time| Some(SetTime::At(time)));
                let mode = Some(MODE_EXCLUSIVE);
                (SetStat { mode, accessed, modified, ..SetStat::default() }, How::Exclusive(times))
            }
        };
        let mode = set.mode.unwrap_or(MODE_DEFAULT);
        // An existing file keeps all but its size.
        let set = match how {
            How::Unchecked => SetStat { size: set.size, ..SetStat::default() },
            How::Guarded | How::Exclusive(_) => SetStat { mode: None, ..set },
        };
        Ok(Make::new(dir, name, Made::File(mode, how), set))
    }

    pub(super) fn directory(dir: Handle, name: Name, set: &SetAttributes) -> Result<Make, Error> {
        let set = translate::set_stat(set)?;
        let made = Made::Directory(set.mode.unwrap_or(0o755));
        Ok(Make::new(dir, name, made, without_mode(set)))
    }

    pub(super) fn symlink(
        dir: Handle,
        name: Name,
        set: &SetAttributes,
        target: &[u8],
    ) -> Result<Make, Error> {
        let set = without_mode(translate::set_stat(set)?);
        Ok(Make::new(dir, name, Made::Symlink(target.to_vec()), set))
    }

    pub(super) fn special(
        dir: Handle,
        name: Name,
        (kind, device, set): (Kind, u64, &SetAttributes),
    ) -> Result<Make, Error> {
        let set = translate::set_stat(set)?;
        let made = Made::Special(kind, set.mode.unwrap_or(MODE_DEFAULT), device);
        Ok(Make::new(dir, name, made, without_mode(set)))
    }

    fn find(&mut self, state: State, context: &Context<'_>) -> Next {
        self.state = state;
        Next::Ask(Ask::Walk { from: context.node(), names: vec![self.name.clone()] })
    }

    /// Sets the attributes that remain, or continues without.
    fn set(&mut self, context: &Context<'_>) -> Next {
        let node = self.found.node.expect("it was found");
        let mut set = std::mem::take(&mut self.set);
        if !context.may_choose_owner() {
            (set.uid, set.gid) = (None, None);
        }
        if set == SetStat::default() {
            return self.identify();
        }
        // A file that was empty before loses nothing.
        self.is_set = set != SetStat { size: Some(self.found.stat.size), ..SetStat::default() };
        self.state = State::Set;
        let open = self.found.open.map(|(open, _)| open).filter(|_| set.size.is_some());
        Next::Ask(Ask::SetStat { node, open, set })
    }

    /// Makes the attributes durable, if the file is open: else they are with the directory's entry.
    fn was_set(&mut self, context: &Context<'_>) -> Next {
        match self.found.open.filter(|_| self.is_set && !context.export.nfs.is_async) {
            Some((open, _)) => {
                self.state = State::SyncFile;
                Next::Ask(Ask::Sync { open, data_only: false })
            }
            None => self.look(),
        }
    }

    fn look(&mut self) -> Next {
        self.state = State::AttributeQuery;
        Next::Ask(Ask::Stat { node: self.found.node.expect("it was found") })
    }

    /// Continues with an existing file that its caller may not read and write: that is an error
    /// only if the file is to be truncated.
    fn existing(&mut self, reply: Reply) -> Next {
        match (self.walked(reply), self.set.size) {
            (Ok(Stat { kind: Kind::File, .. }), None) => self.identify(),
            (Ok(Stat { kind: Kind::File, .. }), Some(_)) => {
                self.state = State::Open;
                let node = self.found.node.expect("it was found");
                Next::Ask(Ask::Open { node, access: super::io::WRITE })
            }
            (Ok(Stat { kind: Kind::Directory, .. }), _) => Next::Fail(Error::IsDirectory),
            (Ok(_), _) => Next::Fail(Error::Exists),
            (Err(_), _) => Next::Fail(Error::Denied),
        }
    }

    fn identify(&mut self) -> Next {
        self.state = State::Identify;
        Next::Ask(Ask::FileHandle { node: self.found.node.expect("it was found") })
    }

    fn made(&mut self, reply: Reply, context: &Context<'_>) -> Next {
        let Reply::Created(node, open, stat) = reply else {
            return self.find(State::Find, context);
        };
        self.found = Found { node: Some(node), open: Some((open, ACCESS)), stat, handle: None };
        self.set(context)
    }

    fn walked(&mut self, reply: Reply) -> Result<Stat, Error> {
        let Reply::Walked(mut stats, node) = reply else { unreachable!("{reply:?} is no walk") };
        self.found.node = node;
        let stat = stats.pop().filter(|_| node.is_some()).ok_or(Error::NotFound)?;
        self.found.stat = stat.clone();
        Ok(stat)
    }

    /// Keeps the file and its handle; ends a LOOKUP.
    fn identified(&mut self, reply: Reply, context: &mut Context<'_>) -> Next {
        let Reply::FileHandle(handle) = reply else { unreachable!("{reply:?} is no handle") };
        let handle = secret::seal(&context.export.nfs.key, &handle);
        let node = self.found.node.take().expect("it was found");
        let pin = context.keep(handle, self.found.stat.kind, node);
        context.files.see(pin, &self.found.stat);
        if self.name.plain() {
            context.files.set_place(pin, (self.dir, self.name.clone()));
        }
        if let Some((open, access)) = self.found.open.take() {
            let caller = context.caller.clone();
            context.files.add_open(pin, caller, access, open, context.out);
        }
        if let Made::Nothing = self.what {
            let attributes = context.attributes(&self.found.stat);
            Results::Lookup { object: handle, attributes, dir: None }.put(context.body);
            return Next::Reply;
        }
        self.found.handle = Some(handle);
        match context.sync {
            Some(open) => {
                self.state = State::Sync;
                Next::Ask(Ask::Sync { open, data_only: false })
            }
            None => self.look_at_dir(context),
        }
    }

    fn look_at_dir(&mut self, context: &Context<'_>) -> Next {
        self.state = State::Dir;
        Next::Ask(Ask::Stat { node: context.node() })
    }

    fn results(&self, dir: Wcc, context: &mut Context<'_>) {
        let (object, attributes) = (self.found.handle, context.attributes(&self.found.stat));
        let results = match self.what {
            Made::File(..) => Results::Create { object, attributes, dir },
            Made::Directory(_) => Results::MkDir { object, attributes, dir },
            Made::Symlink(_) => Results::SymLink { object, attributes, dir },
            Made::Special(..) => Results::MkNod { object, attributes, dir },
            Made::Nothing => unreachable!("a lookup has ended"),
        };
        results.put(context.body);
    }
}

fn without_mode(set: SetStat) -> SetStat {
    SetStat { mode: None, ..set }
}

/// Returns the times of access and modification that represent the verifier of an exclusive
/// creation. The highest bit is left out: not all file systems store times after 2038.
fn times_of(verifier: [u8; 8]) -> [Time; 2] {
    let (first, second) = verifier.split_at(4);
    [first, second].map(|half| {
        let half = u32::from_be_bytes(half.try_into().expect("four bytes"));
        Time::from_secs((half & 0x7fff_ffff).into())
    })
}

impl Procedure for Make {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.dir), None]
    }

    fn is_change(&self) -> bool {
        !matches!(self.what, Made::Nothing)
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        let (dir, name, gid) = (context.node(), self.name.clone(), None);
        Next::Ask(match &self.what {
            Made::Nothing => return self.find(State::Find, context),
            Made::File(mode, how) => Ask::Create {
                dir,
                name,
                access: ACCESS,
                exclusive: *how != How::Unchecked,
                mode: *mode,
                gid,
            },
            Made::Directory(mode) => Ask::MakeDir { dir, name, mode: *mode, gid },
            Made::Symlink(target) => Ask::Symlink { dir, name, target: target.clone(), gid },
            Made::Special(kind, mode, device) => {
                Ask::MakeNode { dir, name, kind: *kind, mode: *mode, device: *device, gid }
            }
        })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        let reply = match (self.state, reply) {
            (State::AttributeQuery, reply) => {
                self.found.stat = optional(reply).unwrap_or_else(|| self.found.stat.clone());
                return self.identify();
            }
            (State::Dir, reply) => {
                let dir = context.changed(optional(reply).as_ref());
                self.results(dir, context);
                return Next::Reply;
            }
            (State::Make, Err(Error::Exists))
                if matches!(self.what, Made::File(_, How::Exclusive(_))) =>
            {
                return self.find(State::Compare, context);
            }
            (State::Make, Err(Error::Denied))
                if matches!(self.what, Made::File(_, How::Unchecked)) =>
            {
                return self.find(State::Existing, context);
            }
            (State::Existing, Err(_)) => return Next::Fail(Error::Denied),
            (_, Ok(reply)) => reply,
            (_, Err(error)) => return Next::Fail(error),
        };
        match self.state {
            State::Make => self.made(reply, context),
            State::Find => match self.walked(reply) {
                Ok(_) => self.set(context),
                Err(error) => Next::Fail(error),
            },
            State::Compare => match (self.walked(reply), &self.what) {
                (Ok(stat), Made::File(_, How::Exclusive(times)))
                    if [stat.accessed, stat.modified] == *times =>
                {
                    self.identify()
                }
                (Ok(_) | Err(_), _) => Next::Fail(Error::Exists),
            },
            State::Existing => self.existing(reply),
            State::Open => {
                let open = reply.handed_out().1.expect("it was opened");
                self.found.open = Some((open, super::io::WRITE));
                self.set(context)
            }
            State::Set => self.was_set(context),
            State::SyncFile => self.look(),
            State::Identify => self.identified(reply, context),
            State::Sync => self.look_at_dir(context),
            State::AttributeQuery | State::Dir => unreachable!("handled above"),
        }
    }

    fn failure(&self) -> After {
        match self.what {
            Made::Nothing => After::Attributes(None),
            Made::File(..) | Made::Directory(_) | Made::Symlink(_) | Made::Special(..) => {
                After::Changed(Wcc::NONE)
            }
        }
    }

    fn held(&mut self) -> (Option<NodeId>, Option<OpenId>) {
        (self.found.node.take(), self.found.open.take().map(|(open, _)| open))
    }
}
