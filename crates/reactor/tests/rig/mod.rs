//! Common parts of the tests: a world, a temporary directory, and functions that submit and wait.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "tests of the real world"
)]

pub(crate) mod fuse;

use base::op::{ClientKey, Done, Event, File, NOBODY, Op, OpId, PathDone, PathOp, Unresponsive};
use base::{Access, Caller, Error, Instant, Name, Reactor, Stat, User};
use reactor::{Config, Form, World};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static NEXT_DIRECTORY: AtomicU64 = AtomicU64::new(0);

/// A world with a served directory.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) dir: PathBuf,
    pub(crate) root: File,
    next: u64,
    kept: BTreeMap<OpId, Done>,
    unresponsive: VecDeque<Vec<Unresponsive>>,
    closing: VecDeque<(ClientKey, bool)>,
}

/// Runs a test on both forms.
pub(crate) fn on_both(test: impl Fn(&mut Rig)) {
    for form in [Form::Threads, Form::Uring] {
        let mut rig = Rig::new(form);
        eprintln!("form {form:?}");
        test(&mut rig);
    }
}

impl Rig {
    pub(crate) fn new(form: Form) -> Rig {
        Rig::with(form, &Config::default())
    }

    pub(crate) fn with(form: Form, config: &Config) -> Rig {
        let number = NEXT_DIRECTORY.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("upcall-reactor-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut world = World::new(form, config).unwrap();
        let root = world.open_root(&dir).unwrap();
        let (kept, unresponsive, closing) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Rig { world, dir, root, next: 0, kept, unresponsive, closing }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn id(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    /// Submits an operation and waits for its completion.
    pub(crate) fn ask(&mut self, make: impl FnOnce(OpId) -> Op) -> Done {
        let id = self.start(make);
        self.finish(id)
    }

    pub(crate) fn start(&mut self, make: impl FnOnce(OpId) -> Op) -> OpId {
        let id = self.id();
        self.world.submit(make(id));
        id
    }

    /// Waits for the completion of `id`; keeps others.
    pub(crate) fn finish(&mut self, id: OpId) -> Done {
        self.finish_within(id, Duration::from_secs(120)).expect("completes in time")
    }

    pub(crate) fn finish_within(&mut self, id: OpId, span: Duration) -> Option<Done> {
        let deadline = self.world.now() + span;
        loop {
            if let Some(done) = self.kept.remove(&id) {
                return Some(done);
            }
            if self.world.now() >= deadline {
                return None;
            }
            self.wait_until(deadline);
        }
    }

    /// Runs one turn of the world, until an operation completes or `deadline` is reached.
    pub(crate) fn wait_until(&mut self, deadline: Instant) {
        let mut events: Vec<Event> = Vec::new();
        self.world.wait(Some(deadline), &mut events);
        for event in events {
            if let Done::Unresponsive(all) = event.done {
                self.unresponsive.push_back(all);
                continue;
            }
            if let Done::Closing { client, begins } = event.done {
                self.closing.push_back((client, begins));
                continue;
            }
            assert!(self.kept.insert(event.id, event.done).is_none(), "completed twice");
        }
    }

    /// Waits for the next report of unresponsive file systems.
    pub(crate) fn next_unresponsive(&mut self) -> Vec<Unresponsive> {
        loop {
            if let Some(all) = self.unresponsive.pop_front() {
                return all;
            }
            let deadline = self.world.now() + Duration::from_secs(120);
            self.wait_until(deadline);
        }
    }

    /// Waits for the next report of a close that takes long: its client, and whether it begins.
    pub(crate) fn next_closing(&mut self) -> (ClientKey, bool) {
        loop {
            if let Some(report) = self.closing.pop_front() {
                return report;
            }
            let deadline = self.world.now() + Duration::from_secs(120);
            self.wait_until(deadline);
        }
    }

    pub(crate) fn done_count(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn path_as(&mut self, caller: Caller, op: PathOp) -> Result<PathDone, Error> {
        self.path_within(None, caller, op)
    }

    /// Performs a path operation confined to a directory.
    pub(crate) fn path_within(
        &mut self,
        within: Option<File>,
        caller: Caller,
        op: PathOp,
    ) -> Result<PathDone, Error> {
        let done = self.ask(|id| Op::Path { id, caller, requester: NOBODY, within, op });
        self.world.be_server().unwrap();
        match done {
            Done::Path(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn path_op(&mut self, op: PathOp) -> Result<PathDone, Error> {
        self.path_as(Caller::Server, op)
    }

    pub(crate) fn walk_from(
        &mut self,
        from: File,
        names: &[&str],
    ) -> (Vec<Stat>, Result<File, Error>) {
        let names = names.iter().map(|n| name(n)).collect();
        match self.path_op(PathOp::Walk { root: self.root, from, names }) {
            Ok(PathDone::Walked(stats, file)) => (stats, file),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn walk(&mut self, names: &[&str]) -> (Vec<Stat>, Result<File, Error>) {
        self.walk_from(self.root, names)
    }

    pub(crate) fn handle(&mut self, names: &[&str]) -> File {
        self.walk(names).1.unwrap()
    }

    pub(crate) fn open(&mut self, names: &[&str], access: Access) -> File {
        let file = self.handle(names);
        let opened = self.path_op(PathOp::Open { file, access });
        self.world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
        match opened {
            Ok(PathDone::Opened(file, _)) => file,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create(
        &mut self,
        name_: &str,
        access: Access,
        exclusive: bool,
    ) -> Result<File, Error> {
        let dir = self.root;
        let op =
            PathOp::Create { dir, name: name(name_), access, exclusive, mode: 0o640, gid: None };
        match self.path_op(op)? {
            PathDone::Created(file, handle, _) => {
                self.world.submit(Op::CloseFile { file: handle, client: ClientKey::NOBODY });
                Ok(file)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn stat(&mut self, file: File) -> Stat {
        match self.path_op(PathOp::Stat { file }) {
            Ok(PathDone::Stat(stat)) => stat,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, file: File, offset: u64, count: u32) -> Result<Vec<u8>, Error> {
        match self.ask(|id| Op::Read { id, file, offset, count, headroom: 32 }) {
            Done::Read(Ok(buf)) => {
                assert_eq!(buf.headroom(), 32);
                Ok(buf.to_vec())
            }
            Done::Read(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write_as(
        &mut self,
        caller: Caller,
        file: File,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, Error> {
        let done = self.ask(|id| Op::Write { id, caller, file, offset, data: data.into() });
        self.world.be_server().unwrap();
        match done {
            Done::Written(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn close(&mut self, file: File) {
        self.world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn user(id: u32) -> Caller {
    Caller::User(Arc::new(User { uid: id, gid: id, groups: vec![id + 1], commands: false }))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) const READ_WRITE: Access =
    Access { read: true, write: true, append: false, truncate: false, sync: false };

pub(crate) fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
