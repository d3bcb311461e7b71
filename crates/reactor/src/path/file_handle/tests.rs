//! Handles of files on this host's file system.

use super::*;
use crate::host::Host;
use crate::memory::Memory;
use crate::path::{Performed, Task, perform};
use crate::pool::lanes::Lane;
use base::Caller;
use base::op::{Detail, NOBODY, PathOp};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::path::{Path, PathBuf};

fn handle_of(done: PathDone) -> FileHandle {
    let PathDone::Handle(handle) = done else { panic!("{done:?} is no handle") };
    handle
}

/// A directory that is removed again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("upcall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs a test in a thread that may not open files by handle.
fn unprivileged(test: fn()) {
    let run = move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        test();
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

/// A served directory.
struct Served {
    dir: Scratch,
    host: Host,
    root: File,
}

impl Served {
    fn new(name: &str) -> Served {
        let host = Host::new().unwrap();
        let dir = Scratch::new(name);
        let root = File(descriptor::release(handle(&dir.0)));
        Served { dir, host, root }
    }

    fn handle(&self, path: &str) -> FileHandle {
        let root = descriptor::file(self.root).unwrap();
        handle_of(get(root, handle(&self.dir.join(path)).as_fd()).unwrap())
    }

    fn perform(&self, handle: FileHandle, lanes: &[Lane]) -> Performed {
        let op = PathOp::OpenHandle { root: self.root, handle };
        let task = Task { caller: Caller::Server, requester: NOBODY, within: None, op };
        perform(&self.host, &mut Memory::default(), (lanes, false), &task)
    }

    /// Returns the lane in which a request for this handle waits, if it must.
    fn lane(&self, handle: FileHandle) -> Option<Lane> {
        match self.perform(handle, &[]) {
            Performed::Elsewhere(lane) => Some(lane),
            Performed::Done(done) => {
                found(done).unwrap();
                None
            }
            Performed::Lengthy => panic!("it has no steps to count"),
        }
    }

    /// Returns the inode number of the file that is found by one who waits in this lane.
    fn wait(&self, handle: FileHandle, lane: &Lane) -> Result<u64, Error> {
        let Performed::Done(done) = self.perform(handle, std::slice::from_ref(lane)) else {
            panic!("it was admitted");
        };
        found(done)
    }

    fn inode(&self, path: &str) -> u64 {
        attrs::stat(handle(&self.dir.join(path)).as_fd()).unwrap().inode
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        descriptor::close(self.root.0);
    }
}

fn handle(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
}

fn found(done: Result<PathDone, Error>) -> Result<u64, Error> {
    let done = done?;
    let PathDone::Walked(stats, Ok(file)) = done else { panic!("{done:?} is no file") };
    descriptor::close(file.0);
    Ok(stats[0].inode)
}

#[test]
fn files_are_found_by_their_handles_after_a_rename() {
    let dir = Scratch::new("found");
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    std::fs::write(dir.join("a/file"), "x").unwrap();
    let root = handle(&dir.0);
    let file = handle_of(get(root.as_fd(), handle(&dir.join("a/file")).as_fd()).unwrap());
    std::fs::rename(dir.join("a/file"), dir.join("a/b/moved")).unwrap();
    let moved = handle(&dir.join("a/b/moved"));
    assert_eq!(handle_of(get(root.as_fd(), moved.as_fd()).unwrap()), file);
    let (host, root) = (Host::new().unwrap(), File(descriptor::release(root)));
    let open = || {
        let op = PathOp::OpenHandle { root, handle: file };
        let task = Task { caller: Caller::Server, requester: NOBODY, within: None, op };
        let lanes = [Lane::Searching(host.searches.begun())];
        let done = perform(&host, &mut Memory::default(), (&lanes, false), &task);
        let Performed::Done(done) = done else { panic!("{done:?} by who may wait") };
        found(done)
    };
    assert_eq!(open(), Ok(attrs::stat(moved.as_fd()).unwrap().inode));
    drop(moved);
    std::fs::remove_file(dir.join("a/b/moved")).unwrap();
    assert_eq!(open(), Err(Error::Stale));
    descriptor::close(root.0);
}

#[test]
fn listed_handles_are_those_of_the_files() {
    let dir = Scratch::new("listed");
    std::fs::create_dir(dir.join("d")).unwrap();
    std::fs::write(dir.join("f"), "x").unwrap();
    std::os::unix::fs::symlink("f", dir.join("l")).unwrap();
    let (host, root) = (Host::new().unwrap(), handle(&dir.0));
    let list = |within| {
        let open = std::fs::File::open(&dir.0).unwrap();
        let file = File(descriptor::release(open.into()));
        let (cookie, bytes_max, detail) = (0, 1000, Detail::Handle);
        let op = PathOp::List { file, cookie, bytes_max, detail };
        let task = Task { caller: Caller::Server, requester: NOBODY, within, op };
        let done = perform(&host, &mut Memory::default(), (&[], true), &task);
        descriptor::close(file.0);
        let Performed::Done(Ok(PathDone::Entries(entries))) = done else { panic!("{done:?}") };
        assert_eq!(entries.len(), 3);
        entries
    };
    let file = File(descriptor::release(root.try_clone().unwrap()));
    for entry in list(Some(file)) {
        let found = handle(&dir.join(&entry.name.to_string()));
        let expected = handle_of(get(root.as_fd(), found.as_fd()).unwrap());
        assert_eq!(entry.handle, Some(expected), "{}", entry.name);
    }
    assert!(list(None).iter().all(|entry| entry.handle.is_none()), "not confined to a root");
    descriptor::close(file.0);
}

#[test]
fn files_moved_out_of_the_served_directory_are_stale() {
    let dir = Scratch::new("moved");
    std::fs::create_dir_all(dir.join("served/d/e")).unwrap();
    for name in ["served/f", "served/linked"] {
        std::fs::write(dir.join(name), "x").unwrap();
    }
    let (host, root) = (Host::new().unwrap(), handle(&dir.join("served")));
    let get = |path: &str| handle_of(get(root.as_fd(), handle(&dir.join(path)).as_fd()).unwrap());
    let names = ["served", "served/d", "served/d/e", "served/f", "served/linked"];
    let handles = names.map(get);
    let file = File(descriptor::release(root.try_clone().unwrap()));
    let open = |handle| {
        let op = PathOp::OpenHandle { root: file, handle };
        let task = Task { caller: Caller::Server, requester: NOBODY, within: None, op };
        let lanes = [Lane::Searching(host.searches.begun())];
        let done = perform(&host, &mut Memory::default(), (&lanes, false), &task);
        let Performed::Done(done) = done else { panic!("{done:?} by who may wait") };
        found(done).map(|_| ())
    };
    assert_eq!(handles.map(open), [Ok(()); 5]);
    std::fs::hard_link(dir.join("served/linked"), dir.join("linked")).unwrap();
    for name in ["d", "f"] {
        std::fs::rename(dir.join("served").join(name), dir.join(name)).unwrap();
    }
    let stale = Err(Error::Stale);
    assert_eq!(handles.map(open), [Ok(()), stale, stale, stale, Ok(())]);
    std::fs::rename(dir.join("d"), dir.join("served/d")).unwrap();
    assert_eq!(handles.map(open), [Ok(()), Ok(()), Ok(()), stale, Ok(())]);
    descriptor::close(file.0);
}

#[test]
fn handles_that_wait_share_one_search() {
    unprivileged(share_one_search);
}

fn share_one_search() {
    let served = Served::new("shared");
    let paths: Vec<String> = (0..300).map(|n| format!("d{}/e/f{n}", n % 7)).collect();
    for path in &paths {
        std::fs::create_dir_all(served.dir.join(path).parent().unwrap()).unwrap();
        std::fs::write(served.dir.join(path), "x").unwrap();
    }
    let all: Vec<(&str, FileHandle)> =
        paths.iter().map(|path| (path.as_str(), served.handle(path))).collect();
    let gone = served.handle("d3/e/f3");
    std::fs::remove_file(served.dir.join("d3/e/f3")).unwrap();
    // A tag in front belongs to the namespace.
    let waiting = all.iter().map(|(path, handle)| (*path, handle.with_tag([128, 1, 2, 3])));
    let waiting: Vec<_> = waiting.map(|(path, it)| (path, it, served.lane(it))).collect();
    for (path, handle, lane) in waiting {
        let found = served.wait(handle, &lane.expect("nothing was searched yet"));
        match path {
            "d3/e/f3" => assert_eq!(found, Err(Error::Stale)),
            path => assert_eq!(found, Ok(served.inode(path))),
        }
    }
    assert_eq!(served.host.searches.begun(), 1);
    // Later requests need none, also in a directory that was renamed within.
    std::fs::rename(served.dir.join("d4"), served.dir.join("d5/d4")).unwrap();
    assert!(served.lane(all[5].1).is_none());
    let lane = served.lane(all[4].1).expect("it is not where it was");
    assert_eq!(served.wait(all[4].1, &lane), Ok(served.inode("d5/d4/e/f4")));
    assert_eq!(served.host.searches.begun(), 2);
    assert!(
        all.iter().filter(|(path, _)| *path != "d3/e/f3").all(|it| served.lane(it.1).is_none())
    );
    // Files made since are searched for, as are those that have gone.
    std::fs::write(served.dir.join("new"), "x").unwrap();
    for (handle, expected) in
        [(served.handle("new"), Ok(served.inode("new"))), (gone, Err(Error::Stale))]
    {
        let lane = served.lane(handle).expect("it was not found by the last search");
        assert_eq!(served.wait(handle, &lane), expected);
    }
    assert_eq!(served.host.searches.begun(), 4);
}

#[test]
fn malformed_handles_are_stale() {
    unprivileged(refuse_malformed);
}

fn refuse_malformed() {
    let served = Served::new("malformed");
    for identifier in [&b""[..], b"short", b"\0\0\0\0\0\0\0\x01", b"\0\0\0\0\0\0\0\x01\x01junk"] {
        let handle = FileHandle::new(identifier).unwrap();
        let lane = Lane::Searching(served.host.searches.begun());
        assert_eq!(served.wait(handle, &lane), Err(Error::Stale), "{identifier:?}");
    }
}
