//! Directories that are moved out of the served one while a client holds them, on both forms.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{Detail, File, PathDone, PathOp, Replacement};
use base::{Access, Caller, Error};
use rig::{READ_WRITE, Rig, name, on_both};
use std::fs;

/// Returns every operation that accesses a name through the directory `dir`, which has the file
/// `inside`.
fn reaching(root: File, dir: File, file: File) -> Vec<PathOp> {
    let (access, mode, gid, names) = (READ_WRITE, 0o700, None, vec![name("inside")]);
    vec![
        PathOp::Walk { root, from: dir, names },
        PathOp::Fetch { root: dir, path: b"inside".to_vec(), read_max: 100, headroom: 0 },
        PathOp::Create { dir, name: name("c"), access, exclusive: true, mode, gid },
        PathOp::CreateUnnamed { dir, access, mode },
        PathOp::MakeDir { dir, name: name("d"), mode, gid },
        PathOp::Symlink { dir, name: name("s"), target: b"inside".to_vec(), gid },
        PathOp::Link { file, dir, name: name("l") },
        PathOp::Rename {
            from: dir,
            name: name("inside"),
            to: root,
            new_name: name("r"),
            replace: false,
        },
        PathOp::Replace {
            dir: root,
            name: name("e"),
            by: Replacement::Entry(dir, name("inside")),
            expected: base::Expected::Absent,
        },
        PathOp::ListAll { from: dir, paths: vec![Vec::new()], bytes_max: 1 << 16 },
        PathOp::ReadAll { from: dir, paths: vec![b"inside".to_vec()], size_max: 99, bytes_max: 99 },
        PathOp::RenameFile { root, file, to: Some(dir), new_name: name("f"), replace: false },
        PathOp::Remove { dir, name: name("inside"), directory: Some(false) },
    ]
}

fn within(rig: &mut Rig, root: File, op: PathOp) -> Result<PathDone, Error> {
    rig.path_within(Some(root), Caller::Server, op)
}

#[test]
fn nothing_is_reached_through_a_directory_that_was_moved_out() {
    on_both(|rig| {
        let (outer, served) = (rig.dir.clone(), rig.dir.join("served"));
        fs::create_dir_all(served.join("a/b")).unwrap();
        fs::write(served.join("a/b/inside"), b"inside").unwrap();
        fs::write(served.join("file"), b"file").unwrap();
        let root = rig.world.open_root(&served).unwrap();
        let walk = |rig: &mut Rig, names: &[&str]| {
            let names = names.iter().map(|it| name(it)).collect();
            match within(rig, root, PathOp::Walk { root, from: root, names }) {
                Ok(PathDone::Walked(_, Ok(file))) => file,
                other => panic!("{other:?}"),
            }
        };
        let (dir, inside) = (walk(rig, &["a", "b"]), walk(rig, &["a", "b", "inside"]));
        let file = walk(rig, &["file"]);
        let open = |rig: &mut Rig, file: File, access: Access| match within(
            rig,
            root,
            PathOp::Open { file, access },
        ) {
            Ok(PathDone::Opened(file, _)) => file,
            other => panic!("{other:?}"),
        };
        let (listed, read) = (open(rig, dir, Access::READ), open(rig, inside, READ_WRITE));
        let list =
            PathOp::List { file: listed, cookie: 0, bytes_max: 1 << 16, detail: Detail::Stat };

        // Moved within the served directory, together with its parents: no effect.
        fs::rename(served.join("a"), served.join("moved")).unwrap();
        assert!(matches!(within(rig, root, list.clone()), Ok(PathDone::Entries(_))));
        // Also if the served directory itself is moved.
        fs::rename(&served, outer.join("served elsewhere")).unwrap();
        assert!(matches!(within(rig, root, list.clone()), Ok(PathDone::Entries(_))));
        let served = outer.join("served elsewhere");

        fs::rename(served.join("moved"), outer.join("outside")).unwrap();
        for op in reaching(root, dir, file).into_iter().chain([list.clone()]) {
            let shown = format!("{op:?}");
            match within(rig, root, op) {
                Err(Error::Stale) => {}
                other => panic!("{shown}: {other:?}"),
            }
        }
        let left = fs::read_dir(outer.join("outside/b")).unwrap().count();
        assert_eq!(left, 1, "nothing was made");
        assert_eq!(rig.read(read, 0, 100).unwrap(), b"inside", "an open file stays");

        fs::rename(outer.join("outside"), served.join("back")).unwrap();
        assert!(matches!(within(rig, root, list), Ok(PathDone::Entries(_))));
        for op in reaching(root, dir, file).into_iter().take(7) {
            let shown = format!("{op:?}");
            assert!(within(rig, root, op).is_ok(), "{shown}: it is back");
        }
    });
}

/// The kernel does not report paths of 4,096 bytes or more.
#[test]
fn a_directory_whose_path_is_longer_than_the_kernel_tells_is_within() {
    on_both(|rig| {
        let (root, long) = (rig.root, "d".repeat(200));
        let mut dirs = vec![root];
        for _ in 0..25 {
            let dir = *dirs.last().unwrap();
            let make = PathOp::MakeDir { dir, name: name(&long), mode: 0o700, gid: None };
            assert!(matches!(within(rig, root, make), Ok(PathDone::Stat(_))));
            let walk = PathOp::Walk { root, from: dir, names: vec![name(&long)] };
            match within(rig, root, walk) {
                Ok(PathDone::Walked(_, Ok(file))) => dirs.push(file),
                other => panic!("{other:?}"),
            }
        }
        let deep = dirs[23];
        fs::rename(rig.path(&long), rig.dir.with_extension("moved")).unwrap();
        let walk = PathOp::Walk { root, from: deep, names: vec![name(&long)] };
        let found = within(rig, root, walk);
        fs::rename(rig.dir.with_extension("moved"), rig.path(&long)).unwrap();
        assert!(matches!(found, Err(Error::Stale)), "{found:?}");
        for dir in dirs.iter().rev().skip(1) {
            let remove = PathOp::Remove { dir: *dir, name: name(&long), directory: Some(true) };
            within(rig, root, remove).unwrap();
        }
    });
}
