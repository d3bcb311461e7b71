//! Unresponsive mounts inside the served tree, on both forms: they delay only operations on
//! themselves. In a mount namespace of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{Detail, Done, File, NOBODY, Op, OpId, PathDone, PathOp, Replacement};
use base::{Access, Caller, Error, Expected, Reactor};
use reactor::{Config, Form};
use rig::fuse::{CONTENTS, Fuse};
use rig::{Rig, is_root, name};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Set in the process with a mount namespace of its own.
const INSIDE: &str = "UPCALL_TEST_IN_NAMESPACE";

/// Runs a test on both forms, in a process that may mount and whose mounts are private.
fn in_name_space(this: &str, test: impl Fn(&mut Rig)) {
    if std::env::var_os(INSIDE).is_some() {
        for form in [Form::Threads, Form::Uring] {
            let unresponsive_after = Duration::from_millis(100);
            let config = Config { unresponsive_after, ..Config::default() };
            test(&mut Rig::with(form, &config));
        }
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe().unwrap()).args(["--exact", this, "--nocapture"]);
    assert!(command.env(INSIDE, "1").status().expect("unshare of util-linux").success());
}

/// Creates a tree with a mount, and files beside it.
fn mounted(rig: &Rig, at: &str) -> Fuse {
    fs::create_dir(rig.path(at)).unwrap();
    fs::write(rig.path("near"), b"near").unwrap();
    Fuse::mount(&rig.path(at))
}

fn path(op: PathOp) -> impl FnOnce(OpId) -> Op {
    move |id| Op::Path { id, caller: Caller::Server, requester: NOBODY, within: None, op }
}

fn fetch(root: File, path: &str) -> PathOp {
    PathOp::Fetch { root, path: path.into(), read_max: 10, headroom: 0 }
}

/// Checks that all kinds of work of the pool on the local file system are possible.
fn local_work_goes_on(rig: &mut Rig) {
    let root = rig.root;
    for round in 0..8 {
        let made = name(&format!("made-{round}"));
        let file = rig.create(&format!("made-{round}"), rig::READ_WRITE, true).unwrap();
        rig.close(file);
        let dir = name("dir");
        let mode = 0o755;
        rig.path_op(PathOp::MakeDir { dir: root, name: dir.clone(), mode, gid: None }).unwrap();
        rig.path_op(PathOp::Remove { dir: root, name: dir, directory: Some(true) }).unwrap();
        let moved = name("moved");
        rig.path_op(PathOp::Rename {
            from: root,
            name: made,
            to: root,
            new_name: moved.clone(),
            replace: true,
        })
        .unwrap();
        let handle = rig.handle(&["moved"]);
        let by = Replacement::Nothing;
        let expected = Expected::PlainFile;
        rig.path_op(PathOp::Replace { dir: root, name: moved, by, expected }).unwrap();
        rig.close(handle);
        let near = rig.handle(&["near"]);
        rig.path_op(PathOp::StatFs { file: near }).unwrap();
        let to = Some(root);
        let (new_name, replace) = (name("near"), true);
        rig.path_op(PathOp::RenameFile { root, file: near, to, new_name, replace }).unwrap();
        rig.close(near);
        let opened = rig.open(&["near"], Access::READ);
        assert_eq!(rig.read(opened, 0, 10).unwrap(), b"near");
        rig.close(opened);
        match rig.path_op(fetch(root, "near")) {
            Ok(PathDone::Fetched(_, data, None)) => assert_eq!(&*data, b"near"),
            other => panic!("{other:?}"),
        }
        list_with_attributes(rig, "a");
    }
}

/// Lists the root, which includes the mount point without the attributes of the mounted file
/// system.
fn list_with_attributes(rig: &mut Rig, mount_point: &str) {
    let root = rig.root;
    let file = match rig.path_op(PathOp::Open { file: root, access: Access::READ }) {
        Ok(PathDone::Opened(file, _)) => file,
        other => panic!("{other:?}"),
    };
    let (cookie, bytes_max) = (0, 1 << 16);
    match rig.path_op(PathOp::List { file, cookie, bytes_max, detail: Detail::Stat }) {
        Ok(PathDone::Entries(entries)) => {
            let find = |wanted: &str| entries.iter().find(|e| e.name == name(wanted)).unwrap();
            assert!(find("near").stat.is_some());
            assert_eq!(find(mount_point).stat, None);
        }
        other => panic!("{other:?}"),
    }
    rig.close(file);
}

#[test]
fn local_work_goes_on_beside_a_hung_mount() {
    in_name_space("local_work_goes_on_beside_a_hung_mount", |rig| {
        let mount = mounted(rig, "a");
        let (root, far) = (rig.root, rig.handle(&["a"]));
        let file = rig.open(&["a", "f"], Access::READ);
        assert_eq!(rig.read(file, 0, 10).unwrap(), CONTENTS);
        mount.hang();
        // Far more of each kind than there are threads.
        let mut ids = Vec::new();
        for _ in 0..40 {
            let exclusive = PathOp::Create {
                dir: root,
                name: name("a"),
                access: rig::READ_WRITE,
                exclusive: false,
                mode: 0o644,
                gid: None,
            };
            let ops = [
                fetch(root, "a/f"),
                PathOp::Walk { root, from: root, names: vec![name("a"), name("g")] },
                PathOp::Walk { root, from: far, names: vec![name("f")] },
                PathOp::Stat { file: far },
                PathOp::StatFs { file: far },
                PathOp::Open { file: far, access: Access::READ },
                exclusive,
            ];
            ids.extend(ops.map(|op| rig.start(path(op))));
            ids.push(rig.start(|id| Op::Read { id, file, offset: 1, count: 10, headroom: 0 }));
            ids.push(rig.start(|id| Op::Sync { id, file, data_only: false }));
        }
        mount.wait_until_reached();
        local_work_goes_on(rig);
        mount.go_on();
        for id in ids {
            match rig.finish(id) {
                Done::Path(result) => drop(result),
                Done::Read(read) => assert_eq!(&*read.unwrap(), &CONTENTS[1..]),
                Done::Synced(_) => {}
                other => panic!("{other:?}"),
            }
        }
        rig.close(far);
        rig.close(file);
    });
}

/// A rename above a mount point changes its path; the kernel does not report that as a change of
/// the mount table.
#[test]
fn a_mount_below_a_renamed_directory_is_recognized() {
    in_name_space("a_mount_below_a_renamed_directory_is_recognized", |rig| {
        fs::create_dir_all(rig.path("d")).unwrap();
        fs::create_dir_all(rig.path("local/a")).unwrap();
        let mount = mounted(rig, "d/a");
        fs::write(rig.path("d/near"), b"near").unwrap();
        let root = rig.root;
        // The table is read before the rename.
        rig.path_op(fetch(root, "d/a/f")).unwrap();
        fs::rename(rig.path("d"), rig.path("e")).unwrap();
        let dir = rig.open(&["e"], Access::READ);
        mount.hang();
        let held: Vec<_> = (0..40).map(|_| rig.start(path(fetch(root, "e/a/f")))).collect();
        mount.wait_until_reached();
        for _ in 0..20 {
            let list =
                PathOp::List { file: dir, cookie: 0, bytes_max: 1 << 16, detail: Detail::Stat };
            match rig.path_op(list) {
                Ok(PathDone::Entries(entries)) => {
                    let find = |wanted: &str| entries.iter().find(|e| e.name == name(wanted));
                    assert!(find("near").unwrap().stat.is_some());
                    assert_eq!(find("a").unwrap().stat, None);
                }
                other => panic!("{other:?}"),
            }
        }
        let local = rig.handle(&["local", "a"]);
        rig.close(local);
        mount.go_on();
        held.into_iter().for_each(|id| drop(rig.finish(id)));
        rig.close(dir);
        drop(mount);
    });
}

#[test]
fn mounts_do_not_hold_up_one_another() {
    in_name_space("mounts_do_not_hold_up_one_another", |rig| {
        let (a, _b) = (mounted(rig, "a"), mounted(rig, "b"));
        // A link leads to one as well as its name does.
        std::os::unix::fs::symlink("b", rig.path("link")).unwrap();
        let root = rig.root;
        a.hang();
        let held: Vec<_> = (0..40).map(|_| rig.start(path(fetch(root, "a/f")))).collect();
        a.wait_until_reached();
        for way in ["b/f", "link/f", "link/../b/f"] {
            match rig.path_op(fetch(root, way)) {
                Ok(PathDone::Fetched(_, data, None)) => assert_eq!(&*data, CONTENTS),
                other => panic!("{way}: {other:?}"),
            }
        }
        let file = rig.open(&["b", "f"], Access::READ);
        assert_eq!(rig.read(file, 0, 10).unwrap(), CONTENTS);
        rig.close(file);
        a.go_on();
        held.into_iter().for_each(|id| drop(rig.finish(id)));
    });
}

#[test]
fn operations_queued_behind_a_hung_mount_can_be_cancelled() {
    in_name_space("what_waits_for_a_hung_mount_can_be_cancelled", |rig| {
        let mount = mounted(rig, "a");
        let root = rig.root;
        mount.hang();
        let ids: Vec<_> = (0..40).map(|_| rig.start(path(fetch(root, "a/f")))).collect();
        mount.wait_until_reached();
        // Some occupy a thread, some wait, some are still being moved to that queue.
        ids.iter().for_each(|id| rig.world.submit(Op::Cancel { id: *id }));
        while rig.done_count() < 36 {
            let deadline = rig.world.now() + Duration::from_secs(120);
            rig.wait_until(deadline);
        }
        mount.go_on();
        let ends: Vec<_> = ids.into_iter().map(|id| rig.finish(id)).collect();
        let is_cancelled = |done: &&Done| matches!(done, Done::Path(Err(Error::Cancelled)));
        assert!(ends.iter().filter(is_cancelled).count() >= 36);
    });
}

#[test]
fn an_unresponsive_mount_is_named_until_it_responds() {
    in_name_space("an_unresponsive_mount_is_named_until_it_responds", |rig| {
        let mount = mounted(rig, "a");
        let root = rig.root;
        mount.hang();
        let ids: Vec<_> = (0..9).map(|_| rig.start(path(fetch(root, "a/f")))).collect();
        let reported = rig.next_unresponsive();
        let expected = format!("{} (fuse.hang)", rig.path("a").display());
        assert_eq!(reported.len(), 1);
        assert_eq!((&reported[0].name, reported[0].running), (&expected, 4));
        mount.go_on();
        ids.into_iter().for_each(|id| drop(rig.finish(id)));
        assert_eq!(rig.next_unresponsive(), []);
    });
}

/// A path may enter and leave mounts, and each is entered only by admitted jobs.
#[test]
fn local_mounts_below_a_responsive_one_are_reached() {
    in_name_space("local_mounts_below_a_responsive_one_are_reached", |rig| {
        fs::create_dir_all(rig.path("inner")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("test", rig.path("inner"), "tmpfs", flags, None).unwrap();
        fs::create_dir(rig.path("inner/d")).unwrap();
        fs::write(rig.path("inner/d/g"), b"inner").unwrap();
        let root = rig.root;
        match rig.path_op(fetch(root, "inner/d/../d/g")) {
            Ok(PathDone::Fetched(_, data, None)) => assert_eq!(&*data, b"inner"),
            other => panic!("{other:?}"),
        }
        let inside = rig.handle(&["inner", "d"]);
        let (stats, up) = rig.walk_from(inside, &["..", "..", "inner", "d", "g"]);
        assert_eq!(stats.len(), 5);
        rig.close(up.unwrap());
        match rig.path_op(fetch(root, "inner/../../out")) {
            Err(Error::CrossDevice) => {}
            other => panic!("{other:?}"),
        }
        rig.path_op(PathOp::RemoveFile { root, file: inside }).unwrap_err();
        let file = rig.handle(&["inner", "d", "g"]);
        rig.path_op(PathOp::RemoveFile { root, file }).unwrap();
        rig.path_op(PathOp::RemoveFile { root, file: inside }).unwrap();
        rig.close(file);
        rig.close(inside);
        let _ = rustix::mount::unmount(rig.path("inner"), rustix::mount::UnmountFlags::DETACH);
    });
}
