//! Operations on files and directories, on both forms.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{ClientKey, Detail, Done, File, NOBODY, Op, PathDone, PathOp, Replacement, Who};
use base::{Access, Caller, Error, Expected, Kind, Reactor, SetStat, SetTime, Time};
use rig::{READ_WRITE, is_root, mode_of, name, on_both, user};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn a_walk_goes_name_by_name_and_stops_at_what_is_missing() {
    on_both(|rig| {
        fs::create_dir_all(rig.path("a/b")).unwrap();
        fs::write(rig.path("a/b/c"), b"hello").unwrap();
        let (stats, file) = rig.walk(&["a", "b", "c"]);
        assert_eq!(
            stats.iter().map(|s| s.kind).collect::<Vec<_>>(),
            [Kind::Directory, Kind::Directory, Kind::File]
        );
        let stat = rig.stat(file.unwrap());
        assert_eq!((stat.size, stat.inode), (5, fs::metadata(rig.path("a/b/c")).unwrap().ino()));

        let (stats, file) = rig.walk(&["a", "x", "c"]);
        assert_eq!((stats.len(), file), (1, Err(Error::NotFound)));
        let (stats, file) = rig.walk(&["a", "b", "c", "d"]);
        assert_eq!((stats.len(), file), (3, Err(Error::NotDirectory)));
        assert_eq!(rig.walk(&["x"]).1, Err(Error::NotFound));
    });
}

#[test]
fn links_are_not_followed_by_a_walk() {
    on_both(|rig| {
        fs::create_dir(rig.path("d")).unwrap();
        symlink("d", rig.path("l")).unwrap();
        let (stats, file) = rig.walk(&["l"]);
        assert_eq!(stats[0].kind, Kind::Symlink);
        let file = file.unwrap();
        assert!(
            matches!(rig.path_op(PathOp::ReadLink { file }), Ok(PathDone::Bytes(b)) if b == b"d")
        );
        assert_eq!(rig.walk(&["l", "x"]).1, Err(Error::NotDirectory));
        let file = rig.handle(&["d"]);
        assert!(matches!(rig.path_op(PathOp::ReadLink { file }), Err(Error::Invalid)));
    });
}

#[test]
fn dot_dot_stops_at_the_root_and_refuses_what_was_moved_out() {
    on_both(|rig| {
        let outside = rig.dir.with_extension("outside");
        fs::create_dir_all(rig.path("a/b")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        let root = rig.stat(rig.root);
        let a = rig.handle(&["a"]);
        let b = rig.handle(&["a", "b"]);
        let (stats, _) = rig.walk(&["..", "..", "a", ".", ".."]);
        assert!(stats[0].is_same(&root) && stats[4].is_same(&root));
        let above = rig.walk_from(b, &[".."]);
        assert!(above.0[0].is_same(&rig.stat(a)));

        fs::rename(rig.path("a"), outside.join("a")).unwrap();
        assert_eq!(rig.walk_from(b, &[".."]).1, Err(Error::CrossDevice));
        assert_eq!(rig.walk_from(a, &[".."]).1, Err(Error::CrossDevice));
        fs::remove_dir_all(outside).unwrap();
    });
}

#[test]
fn climbing_from_deep_directories_is_left_to_the_pool() {
    on_both(|rig| {
        let mut dir = rig.root;
        for _ in 0..100 {
            let path = PathOp::MakeDir { dir, name: name("d"), mode: 0o700, gid: None };
            rig.path_op(path).unwrap();
            dir = rig.walk_from(dir, &["d"]).1.unwrap();
        }
        let inline = |rig: &rig::Rig| rig.world.statistics().paths_inline;
        let before = inline(rig);
        let (stats, top) = rig.walk_from(dir, &[".."; 99]);
        assert_eq!((stats.len(), inline(rig)), (99, before));
        let first = rig.walk(&["d"]).1.unwrap();
        let top = top.unwrap();
        assert!(rig.stat(top).is_same(&rig.stat(first)));
        let (stats, root) = rig.walk_from(dir, &[".."; 200]);
        assert_eq!(stats.len(), 200);
        let root = root.unwrap();
        assert!(rig.stat(root).is_same(&rig.stat(rig.root)));
        // From a directory near the root it is done at once, unless the kernel would block.
        let before = inline(rig);
        while inline(rig) == before {
            assert_eq!(rig.walk_from(first, &[".."]).0.len(), 1);
        }
        assert_eq!(inline(rig), before + 1);
    });
}

fn fetch(rig: &mut rig::Rig, path: &str, read_max: u32) -> Result<PathDone, Error> {
    let root = rig.root;
    rig.path_op(PathOp::Fetch { root, path: path.into(), read_max, headroom: 100 })
}

/// Listings and reads ahead of a traversal: links are not followed, no path leads out of the tree,
/// and pipes do not block.
#[test]
fn trees_are_listed_and_small_files_read_many_at_a_time() {
    on_both(|rig| {
        fs::create_dir_all(rig.path("a/b")).unwrap();
        fs::create_dir(rig.path("c")).unwrap();
        for (path, len) in [("a/one", 1), ("a/b/two", 200), ("a/large", 5000), ("a/empty", 0)] {
            fs::write(rig.path(path), vec![7; len]).unwrap();
        }
        symlink("one", rig.path("a/link")).unwrap();
        symlink("/etc", rig.path("c/out")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, rig.path("a/pipe"), 0o600.into()).unwrap();
        let from = rig.root;
        let bytes = |path: &str| path.as_bytes().to_vec();
        let list = |rig: &mut rig::Rig, paths: &[&str], bytes_max| {
            let paths = paths.iter().map(|path| bytes(path)).collect();
            let done = rig.path_op(PathOp::ListAll { from, paths, bytes_max }).unwrap();
            let PathDone::Listings(listings, _) = done else { panic!("{done:?}") };
            let named = listings.iter().map(|it| (it.path.clone(), it.entries.len()));
            named.collect::<Vec<_>>()
        };
        let listed = list(rig, &["a", "c/out", "../..", "c"], 10_000);
        assert_eq!(listed, [(bytes("a"), 6), (bytes("a/b"), 1), (bytes("c"), 1)]);
        assert_eq!(list(rig, &["a", "c"], 250), [(bytes("a"), 6), (bytes("a/b"), 1)]);

        let read = |rig: &mut rig::Rig, paths: &[&str], bytes_max| {
            let paths = paths.iter().map(|path| bytes(path)).collect();
            let op = PathOp::ReadAll { from, paths, size_max: 1000, bytes_max };
            let done = rig.path_op(op).unwrap();
            let PathDone::Contents(contents, _) = done else { panic!("{done:?}") };
            contents.iter().all(|it| it.data.len() as u64 == it.stat.size).then_some(()).unwrap();
            contents.into_iter().map(|it| String::from_utf8(it.path).unwrap()).collect::<Vec<_>>()
        };
        let all = ["a/one", "a/link", "a/pipe", "a/large", "a/empty", "a/b", "no", "a/b/two"];
        assert_eq!(read(rig, &all, 10_000), ["a/one", "a/b/two"]);
        assert_eq!(read(rig, &all, 200), ["a/one"], "there is no room for the other");
        assert_eq!(read(rig, &["c/out/passwd", "../x", "/etc/passwd"], 10_000), [""; 0]);
    });
}

#[test]
fn a_fetch_reads_small_files_whole_and_keeps_large_ones_open() {
    on_both(|rig| {
        let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("d/large"), &data).unwrap();
        fs::write(rig.path("small"), b"small").unwrap();
        fs::write(rig.path("empty"), b"").unwrap();
        symlink("../small", rig.path("d/link")).unwrap();
        for _ in 0..3 {
            match fetch(rig, "d/link", 4096) {
                Ok(PathDone::Fetched(stat, buf, None)) => {
                    assert_eq!((&*buf, buf.headroom(), stat.size), (&b"small"[..], 100, 5));
                }
                other => panic!("{other:?}"),
            }
            match fetch(rig, "d/large", 4096) {
                Ok(PathDone::Fetched(_, buf, Some(file))) => {
                    assert_eq!(&*buf, &data[..4096]);
                    assert_eq!(rig.read(file, 4096, 8192).unwrap(), data[4096..]);
                    rig.close(file);
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(fetch(rig, "d/large", 10_000),
                    Ok(PathDone::Fetched(_, b, None)) if *b == data));
            assert!(matches!(fetch(rig, "empty", 4096),
                    Ok(PathDone::Fetched(_, b, None)) if b.is_empty()));
            for path in ["", ".", "d/.."] {
                assert!(matches!(fetch(rig, path, 4096),
                    Ok(PathDone::Fetched(stat, b, Some(_)))
                        if stat.kind == Kind::Directory && b.is_empty()));
            }
        }
    });
}

#[test]
fn a_fetch_never_leaves_the_root_and_opens_nothing_special() {
    on_both(|rig| {
        fs::create_dir(rig.path("d")).unwrap();
        symlink("/etc/passwd", rig.path("out")).unwrap();
        symlink("loop", rig.path("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            rig.path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        for _ in 0..2 {
            assert_eq!(fetch(rig, "out", 10).unwrap_err(), Error::CrossDevice);
            assert_eq!(fetch(rig, "../x", 10).unwrap_err(), Error::CrossDevice);
            assert_eq!(fetch(rig, "/etc", 10).unwrap_err(), Error::CrossDevice);
            assert_eq!(fetch(rig, "loop", 10).unwrap_err(), Error::Loop);
            assert_eq!(fetch(rig, "pipe", 10).unwrap_err(), Error::Unsupported);
            assert_eq!(fetch(rig, "none", 10).unwrap_err(), Error::NotFound);
        }
        // A remembered path is checked again.
        fs::write(rig.path("p"), b"x").unwrap();
        assert!(fetch(rig, "p", 10).is_ok());
        fs::rename(rig.path("pipe"), rig.path("p")).unwrap();
        assert_eq!(fetch(rig, "p", 10).unwrap_err(), Error::Unsupported);
        assert_eq!(fetch(rig, "p", 10).unwrap_err(), Error::Unsupported);
    });
}

#[test]
fn create_write_read_sync() {
    on_both(|rig| {
        let file = rig.create("f", READ_WRITE, true).unwrap();
        assert_eq!(mode_of(&rig.path("f")), 0o640);
        assert_eq!(rig.write_as(Caller::Server, file, 0, b"hello world"), Ok(11));
        assert_eq!(rig.write_as(Caller::Server, file, 6, b"there"), Ok(5));
        for data_only in [false, true] {
            let done = rig.ask(|id| Op::Sync { id, file, data_only });
            assert!(matches!(done, Done::Synced(Ok(()))));
        }
        assert_eq!(rig.read(file, 0, 100).unwrap(), b"hello there");
        assert_eq!(rig.read(file, 6, 3).unwrap(), b"the");
        assert_eq!(rig.read(file, 11, 3).unwrap(), b"");
        assert_eq!(rig.read(file, 1 << 40, 3).unwrap(), b"");
        assert_eq!(rig.create("f", READ_WRITE, true), Err(Error::Exists));
        let again = rig.create("f", Access { truncate: true, ..READ_WRITE }, false).unwrap();
        assert_eq!(rig.stat(again).size, 0);
        let read_only = rig.open(&["f"], Access::READ);
        assert_eq!(rig.write_as(Caller::Server, read_only, 0, b"x"), Err(Error::Invalid));
        let append = rig.open(&["f"], Access { write: true, append: true, ..Access::default() });
        rig.write_as(Caller::Server, append, 0, b"one").unwrap();
        rig.write_as(Caller::Server, append, 0, b"two").unwrap();
        assert_eq!(fs::read(rig.path("f")).unwrap(), b"onetwo");
        let missing = File(999_999);
        assert_eq!(rig.read(missing, 0, 1), Err(Error::Invalid));
    });
}

#[test]
fn create_opens_nothing_special() {
    on_both(|rig| {
        symlink("target", rig.path("l")).unwrap();
        fs::create_dir(rig.path("d")).unwrap();
        let dir = rig.root;
        let fifo = PathOp::MakeNode {
            dir,
            name: name("p"),
            kind: Kind::Fifo,
            mode: 0o600,
            device: 0,
            gid: None,
        };
        assert!(matches!(rig.path_op(fifo),
                Ok(PathDone::Stat(s)) if s.kind == Kind::Fifo && s.mode == 0o600));
        assert_eq!(rig.create("l", READ_WRITE, false), Err(Error::Loop));
        assert_eq!(rig.create("d", READ_WRITE, false), Err(Error::IsDirectory));
        assert_eq!(rig.create("p", READ_WRITE, false), Err(Error::Unsupported));
        assert!(rig.create("..", READ_WRITE, false).is_err());
        let file = rig.handle(&["p"]);
        assert_eq!(
            rig.path_op(PathOp::Open { file, access: Access::READ }).unwrap_err(),
            Error::Unsupported
        );
    });
}

#[test]
fn large_reads_have_all_that_was_asked_for() {
    on_both(|rig| {
        let data: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        fs::write(rig.path("f"), &data).unwrap();
        let file = rig.open(&["f"], Access::READ);
        assert_eq!(rig.read(file, 0, 1 << 20).unwrap(), data[..1 << 20]);
        rustix::fs::fadvise(
            fs::File::open(rig.path("f")).unwrap(),
            0,
            None,
            rustix::fs::Advice::DontNeed,
        )
        .unwrap();
        assert_eq!(rig.read(file, 2_500_000, 1 << 20).unwrap(), data[2_500_000..]);
        let ids: Vec<_> = (0..64u64)
            .map(|i| {
                rig.start(|id| Op::Read { id, file, offset: i * 4096, count: 4096, headroom: 0 })
            })
            .collect();
        for (i, id) in ids.into_iter().enumerate() {
            let Done::Read(Ok(buf)) = rig.finish(id) else { panic!() };
            assert_eq!(*buf, data[i * 4096..(i + 1) * 4096]);
        }
    });
}

#[test]
fn attributes_are_changed_on_handles() {
    on_both(|rig| {
        fs::write(rig.path("f"), b"0123456789").unwrap();
        symlink("f", rig.path("l")).unwrap();
        let file = rig.handle(&["f"]);
        let date = Time { secs: 1_000_000_000, nanos: 5 };
        let set = SetStat {
            mode: Some(0o4711),
            size: Some(4),
            accessed: Some(SetTime::At(date)),
            modified: Some(SetTime::At(Time { secs: -5, nanos: 7 })),
            ..SetStat::default()
        };
        assert!(matches!(
            rig.path_op(PathOp::SetStat { file, open: false, set }),
            Ok(PathDone::Ok)
        ));
        let stat = rig.stat(file);
        assert_eq!((stat.mode, stat.size, stat.accessed), (0o4711, 4, date));
        assert_eq!(stat.modified, Time { secs: -5, nanos: 7 });
        assert_eq!(fs::read(rig.path("f")).unwrap(), b"0123");

        let link = rig.handle(&["l"]);
        let set = SetStat { mode: Some(0o600), ..SetStat::default() };
        assert_eq!(
            rig.path_op(PathOp::SetStat { file: link, open: false, set }).unwrap_err(),
            Error::Unsupported
        );
        let set = SetStat { modified: Some(SetTime::At(date)), ..SetStat::default() };
        rig.path_op(PathOp::SetStat { file: link, open: false, set }).unwrap();
        assert_eq!(rig.stat(link).modified, date);
        assert_eq!(rig.stat(file).modified.secs, -5);
        let open = rig.open(&["f"], READ_WRITE);
        let set = SetStat { size: Some(100), ..SetStat::default() };
        rig.path_op(PathOp::SetStat { file: open, open: true, set }).unwrap();
        assert_eq!(rig.stat(file).size, 100);
        if is_root() {
            let set = SetStat {
                uid: Some(1234),
                gid: Some(4321),
                mode: Some(0o2755),
                ..SetStat::default()
            };
            rig.path_op(PathOp::SetStat { file, open: false, set }).unwrap();
            let stat = rig.stat(file);
            assert_eq!((stat.uid, stat.gid, stat.mode), (1234, 4321, 0o2755));
            let set = SetStat { uid: Some(77), ..SetStat::default() };
            rig.path_op(PathOp::SetStat { file: link, open: false, set }).unwrap();
            assert_eq!((rig.stat(link).uid, rig.stat(file).uid), (77, 1234));
        }
    });
}

#[test]
fn entries_are_made_linked_moved_and_removed() {
    on_both(|rig| {
        let dir = rig.root;
        let make = PathOp::MakeDir { dir, name: name("d"), mode: 0o750, gid: None };
        assert!(
            matches!(rig.path_op(make.clone()), Ok(PathDone::Stat(s)) if s.kind == Kind::Directory)
        );
        assert_eq!(rig.path_op(make).unwrap_err(), Error::Exists);
        let make = PathOp::Symlink { dir, name: name("l"), target: b"nowhere".to_vec(), gid: None };
        assert!(matches!(rig.path_op(make), Ok(PathDone::Stat(s)) if s.kind == Kind::Symlink));
        fs::write(rig.path("f"), b"f").unwrap();
        let (d, f, l) = (rig.handle(&["d"]), rig.handle(&["f"]), rig.handle(&["l"]));
        for (file, name_) in [(f, "f2"), (l, "l2")] {
            rig.path_op(PathOp::Link { file, dir: d, name: name(name_) }).unwrap();
        }
        assert_eq!(rig.stat(f).links, 2);
        assert_eq!(fs::read_link(rig.path("d/l2")).unwrap().to_str(), Some("nowhere"));
        let link = PathOp::Link { file: d, dir, name: name("d2") };
        assert_eq!(rig.path_op(link).unwrap_err(), Error::NotPermitted);

        let rename = PathOp::Rename {
            from: d,
            name: name("l2"),
            to: dir,
            new_name: name("f"),
            replace: true,
        };
        rig.path_op(rename).unwrap();
        assert!(fs::symlink_metadata(rig.path("f")).unwrap().is_symlink());
        let remove = |name_: &str, directory| PathOp::Remove { dir, name: name(name_), directory };
        assert_eq!(rig.path_op(remove("d", Some(false))).unwrap_err(), Error::IsDirectory);
        assert_eq!(rig.path_op(remove("f", Some(true))).unwrap_err(), Error::NotDirectory);
        assert_eq!(rig.path_op(remove("d", None)).unwrap_err(), Error::NotEmpty);
        fs::remove_file(rig.path("d/f2")).unwrap();
        rig.path_op(remove("d", None)).unwrap();
        rig.path_op(remove("f", None)).unwrap();
        assert_eq!(rig.path_op(remove("f", None)).unwrap_err(), Error::NotFound);
        assert_eq!(rig.path_op(remove("..", None)).unwrap_err(), Error::Invalid);
    });
}

#[test]
fn a_file_known_by_its_handle_is_moved_and_removed() {
    on_both(|rig| {
        let root = rig.root;
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("f"), b"f").unwrap();
        let (d, file) = (rig.handle(&["d"]), rig.handle(&["f"]));
        fs::rename(rig.path("f"), rig.path("g")).unwrap();
        let op = PathOp::RenameFile { root, file, to: Some(d), new_name: name("h"), replace: true };
        rig.path_op(op).unwrap();
        assert!(rig.path("d/h").exists());
        rig.path_op(PathOp::RenameFile {
            root,
            file,
            to: None,
            new_name: name("i (deleted)"),
            replace: true,
        })
        .unwrap();
        assert!(rig.path("d/i (deleted)").exists());
        rig.path_op(PathOp::RemoveFile { root, file }).unwrap();
        assert!(!rig.path("d/i (deleted)").exists());
        assert_eq!(rig.path_op(PathOp::RemoveFile { root, file }).unwrap_err(), Error::NotFound);
        assert_eq!(
            rig.path_op(PathOp::RemoveFile { root, file: root }).unwrap_err(),
            Error::NotPermitted
        );
        rig.path_op(PathOp::RemoveFile { root, file: d }).unwrap();

        let outside = rig.dir.with_extension("out");
        fs::write(rig.path("f"), b"f").unwrap();
        let file = rig.handle(&["f"]);
        fs::rename(rig.path("f"), &outside).unwrap();
        assert_eq!(rig.path_op(PathOp::RemoveFile { root, file }).unwrap_err(), Error::CrossDevice);
        fs::remove_file(outside).unwrap();
    });
}

#[test]
fn a_directory_is_listed_in_pieces() {
    on_both(|rig| {
        fs::create_dir(rig.path("d")).unwrap();
        for i in 0..500 {
            fs::write(rig.path(&format!("d/entry-{i:04}")), b"").unwrap();
        }
        let file = rig.open(&["d"], Access::READ);
        for (bytes_max, detail) in
            [(1, Detail::Name), (1000, Detail::Stat), (1 << 20, Detail::Name)]
        {
            let (mut cookie, mut names, mut calls) = (0, Vec::new(), 0);
            loop {
                calls += 1;
                let op = PathOp::List { file, cookie, bytes_max, detail };
                let Ok(PathDone::Entries(entries)) = rig.path_op(op) else { panic!() };
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                assert!(
                    entries
                        .iter()
                        .all(|e| e.kind == Kind::File && e.stat.is_some() == detail.has_stat())
                );
                names.extend(entries.into_iter().map(|e| e.name.to_string()));
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 500);
            assert!(calls <= 502, "{calls}");
        }
    });
}

#[test]
fn extended_attributes_and_file_system() {
    on_both(|rig| {
        fs::write(rig.path("f"), b"").unwrap();
        let file = rig.handle(&["f"]);
        let key = b"user.test".to_vec();
        let set = |value: &[u8], create| PathOp::SetAttr {
            file,
            name: b"user.test".to_vec(),
            value: value.into(),
            create,
        };
        assert_eq!(rig.path_op(set(b"v", Some(false))).unwrap_err(), Error::NoAttribute);
        rig.path_op(set(b"v", Some(true))).unwrap();
        assert_eq!(rig.path_op(set(b"v", Some(true))).unwrap_err(), Error::Exists);
        rig.path_op(set(&[7; 2000], None)).unwrap();
        assert!(matches!(rig.path_op(PathOp::GetAttr { file, name: key.clone() }),
                Ok(PathDone::Bytes(b)) if b == [7; 2000]));
        assert!(matches!(rig.path_op(PathOp::ListAttrs { file }),
                Ok(PathDone::Bytes(b)) if b == b"user.test\0"));
        rig.path_op(PathOp::RemoveAttr { file, name: key.clone() }).unwrap();
        assert_eq!(
            rig.path_op(PathOp::GetAttr { file, name: key }).unwrap_err(),
            Error::NoAttribute
        );
        assert!(matches!(rig.path_op(PathOp::StatFs { file }),
                Ok(PathDone::StatFs(s)) if s.blocks > 0 && s.name_max == 255));
    });
}

#[test]
fn users_are_identified() {
    on_both(|rig| {
        let who = |rig: &mut rig::Rig, who| rig.path_op(PathOp::Identify { who });
        assert!(
            matches!(who(rig, Who::Name(b"root".to_vec())), Ok(PathDone::User(u)) if u.uid == 0)
        );
        assert!(
            matches!(who(rig, Who::Uid(3_999_999)), Ok(PathDone::User(u)) if u.gid == 3_999_999)
        );
        assert_eq!(who(rig, Who::Name(b"no such".to_vec())).unwrap_err(), Error::NotFound);
    });
}

#[test]
fn users_may_do_what_the_kernel_lets_them() {
    if !is_root() {
        return base::skip("only root acts as other users");
    }
    on_both(|rig| {
        let dir = rig.root;
        fs::set_permissions(&rig.dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(rig.path("secret"), b"s").unwrap();
        fs::set_permissions(rig.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let make = PathOp::MakeDir { dir, name: name("d"), mode: 0o700, gid: None };
        assert_eq!(rig.path_as(user(5000), make.clone()).unwrap_err(), Error::Denied);
        let file = rig.handle(&["secret"]);
        let open = PathOp::Open { file, access: Access::READ };
        assert_eq!(rig.path_as(user(5000), open.clone()).unwrap_err(), Error::Denied);
        assert!(rig.path_op(open).is_ok());
        let fetch = PathOp::Fetch { root: dir, path: b"secret".to_vec(), read_max: 9, headroom: 0 };
        assert!(rig.path_op(fetch.clone()).is_ok());
        assert_eq!(rig.path_as(user(5000), fetch).unwrap_err(), Error::Denied);

        fs::set_permissions(&rig.dir, fs::Permissions::from_mode(0o777)).unwrap();
        rig.path_as(user(5000), make).unwrap();
        let Ok(PathDone::Created(f, h, stat)) = rig.path_as(
            user(5000),
            PathOp::Create {
                dir,
                name: name("f"),
                access: READ_WRITE,
                exclusive: true,
                mode: 0o2755,
                gid: Some(5001),
            },
        ) else {
            panic!()
        };
        assert_eq!((stat.uid, stat.gid), (5000, 5001));
        // A group that the user is not in is not assigned.
        let stat = rig.path_as(
            user(5000),
            PathOp::MakeDir { dir, name: name("e"), mode: 0o700, gid: Some(0) },
        );
        assert!(matches!(stat, Ok(PathDone::Stat(s)) if s.gid == 5000));
        let (names, found) = rig.walk(&["d"]);
        assert_eq!((names[0].uid, names[0].mode), (5000, 0o700));
        let d = found.unwrap();
        let inside = PathOp::MakeDir { dir: d, name: name("x"), mode: 0o700, gid: None };
        assert_eq!(rig.path_as(user(6000), inside).unwrap_err(), Error::Denied);
        let trusted =
            PathOp::SetAttr { file: f, name: b"trusted.x".to_vec(), value: vec![1], create: None };
        assert!(rig.path_as(user(5000), trusted).is_err());
        let capability = PathOp::SetAttr {
            file: f,
            name: b"security.capability".to_vec(),
            value: [&[0u8, 0, 0, 2][..], &[0xff; 4], &[0; 12]].concat(),
            create: None,
        };
        assert_eq!(rig.path_as(user(5000), capability).unwrap_err(), Error::NotPermitted);
        rig.close(f);
        rig.close(h);
    });
}

#[test]
fn a_users_write_takes_set_id_bits_away_and_the_servers_does_not() {
    if !is_root() {
        return base::skip("only root acts as other users");
    }
    on_both(|rig| {
        fs::write(rig.path("f"), b"x").unwrap();
        let bits = |rig: &rig::Rig| {
            fs::set_permissions(rig.path("f"), fs::Permissions::from_mode(0o6755)).unwrap()
        };
        let file = rig.open(&["f"], READ_WRITE);
        bits(rig);
        assert_eq!(rig.write_as(Caller::Server, file, 0, b"y"), Ok(1));
        assert_eq!(mode_of(&rig.path("f")), 0o6755);
        assert_eq!(rig.write_as(user(5000), file, 0, b"y"), Ok(1));
        assert_eq!(mode_of(&rig.path("f")), 0o755);
        bits(rig);
        assert_eq!(rig.write_as(Caller::Server, file, 0, b"y"), Ok(1));
        assert_eq!(mode_of(&rig.path("f")), 0o6755);
        // An operation as a user has no effect on the next one as the server.
        rig.path_as(user(5000), PathOp::Stat { file }).unwrap();
        assert_eq!(rig.write_as(Caller::Server, file, 0, b"z"), Ok(1));
        assert_eq!(mode_of(&rig.path("f")), 0o6755);
        for uid in 7000..7100 {
            assert_eq!(rig.write_as(user(uid), file, 0, b"z"), Ok(1));
        }
    });
}

#[test]
fn queued_work_is_cancelled_and_everything_completes_once() {
    on_both(|rig| {
        let file = rig.create("f", READ_WRITE, true).unwrap();
        let ids: Vec<_> = (0..200)
            .map(|_| {
                rig.start(|id| Op::Path {
                    id,
                    caller: Caller::Server,
                    requester: NOBODY,
                    within: None,
                    op: PathOp::StatFs { file },
                })
            })
            .collect();
        let (mut ok, mut cancelled) = (0, 0);
        for id in &ids {
            rig.world.submit(Op::Cancel { id: *id });
        }
        for id in ids {
            match rig.finish(id) {
                Done::Path(Ok(_)) => ok += 1,
                Done::Path(Err(Error::Cancelled)) => cancelled += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((ok + cancelled, rig.done_count()), (200, 0));
        // Cancelling a completed operation has no effect.
        rig.world.submit(Op::Cancel { id: base::op::OpId(1) });
        assert_eq!(rig.write_as(Caller::Server, file, 0, b"z"), Ok(1));
    });
}

#[test]
fn cached_reads_use_no_thread() {
    on_both(|rig| {
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("d/f"), b"x").unwrap();
        symlink("f", rig.path("d/l")).unwrap();
        let everything = |rig: &mut rig::Rig| {
            let file = rig.handle(&["d", "..", "d", "f"]);
            rig.stat(file);
            rig.open(&["d", "f"], READ_WRITE);
            fetch(rig, "d/l", 10).unwrap();
            assert_eq!(rig.walk(&["d", "none"]).1, Err(Error::NotFound));
        };
        // Renames anywhere on the machine make the kernel abandon a cached walk now and then.
        let inline = (0..100).any(|_| {
            let before = rig.world.statistics();
            everything(rig);
            let after = rig.world.statistics();
            after.pool.started == before.pool.started
                && after.paths_inline == before.paths_inline + 6
        });
        assert!(inline);
    });
}

#[test]
fn users_take_turns_on_the_nodes_thread() {
    if !is_root() {
        return base::skip("only root acts as other users");
    }
    on_both(|rig| {
        fs::set_permissions(&rig.dir, fs::Permissions::from_mode(0o755)).unwrap();
        let root = rig.root;
        let fetch_as = |rig: &mut rig::Rig, caller: &Caller, name_: String| {
            let path = name_.into_bytes();
            let op = PathOp::Fetch { root, path, read_max: 9, headroom: 0 };
            let done = rig.ask(|id| Op::Path {
                id,
                caller: caller.clone(),
                requester: NOBODY,
                within: None,
                op,
            });
            matches!(done, Done::Path(Ok(_)))
        };
        let users: Vec<Caller> = (0..5).map(|i| user(8000 + 10 * i)).collect();
        for i in 0..5 {
            let path = rig.path(&format!("f{i}"));
            fs::write(&path, b"x").unwrap();
            // Even ones belong to the user, odd ones to the second group.
            let (uid, gid) = if i % 2 == 0 { (8000 + 10 * i, 0) } else { (0, 8001 + 10 * i) };
            std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        }
        for _ in 0..3 {
            for (i, caller) in users.iter().enumerate() {
                for j in 0..5 {
                    assert_eq!(fetch_as(rig, caller, format!("f{j}")), i == j, "{i} {j}");
                }
                // In between, changes on the pool as the same user, and work as the server.
                let dir = root;
                let make = PathOp::MakeDir { dir, name: name("x"), mode: 0o700, gid: None };
                let id = rig.start(|id| Op::Path {
                    id,
                    caller: caller.clone(),
                    requester: NOBODY,
                    within: None,
                    op: make,
                });
                assert!(matches!(rig.finish(id), Done::Path(Err(Error::Denied))));
                assert!(fetch_as(rig, &Caller::Server, "f1".into()));
            }
        }
    });
}

#[test]
fn closing_frees_the_descriptor() {
    on_both(|rig| {
        fs::write(rig.path("f"), b"").unwrap();
        let file = rig.open(&["f"], Access::READ);
        rig.world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
        assert_ne!(fs::read_link(format!("/proc/self/fd/{}", file.0)).ok(), Some(rig.path("f")));
    });
}

#[test]
fn proc_files_that_call_themselves_empty_are_read() {
    on_both(|rig| {
        let root = rig.world.open_root("/proc/self".as_ref()).unwrap();
        let before = rig.world.statistics();
        let op = PathOp::Fetch { root, path: b"status".to_vec(), read_max: 100_000, headroom: 0 };
        match rig.path_op(op) {
            Ok(PathDone::Fetched(_, buf, _)) => assert!(buf.starts_with(b"Name:")),
            other => panic!("{other:?}"),
        }
        // The file system is not local, so the pool did it.
        assert_eq!(rig.world.statistics().paths_inline, before.paths_inline);
        assert!(rig.world.statistics().pool.started > before.pool.started);
    });
}

#[test]
fn an_entry_is_replaced_or_removed_only_if_it_is_what_is_expected() {
    on_both(|rig| {
        let dir = rig.root;
        let replace = |rig: &mut rig::Rig, by, expected| {
            rig.path_op(PathOp::Replace { dir, name: name("f"), by, expected })
        };
        let mut versions = Vec::new();
        for (round, expected) in [Expected::Absent, Expected::PlainFile].into_iter().enumerate() {
            let access = Access { write: true, ..Access::READ };
            let made = rig.path_op(PathOp::CreateUnnamed { dir, access, mode: 0o640 });
            let Ok(PathDone::Created(file, handle, stat)) = made else { panic!("{made:?}") };
            assert_eq!(stat.links, 0);
            assert_eq!(fs::read_dir(&rig.dir).unwrap().count(), round);
            rig.write_as(user(0), file, 0, b"same").unwrap();
            let by = Replacement::Unnamed(handle);
            if round > 0 {
                let wrong = replace(rig, by.clone(), Expected::Absent);
                assert!(matches!(wrong, Ok(PathDone::Unexpected(Some(_)))), "{wrong:?}");
            }
            let done = replace(rig, by, expected);
            let Ok(PathDone::Stat(after)) = done else { panic!("{done:?}") };
            let f = rig.handle(&["f"]);
            assert_eq!(rig.stat(f).file_version(), after.file_version());
            versions.push(after.file_version());
            [file, handle, f].into_iter().for_each(|file| rig.close(file));
        }
        assert_ne!(versions[0], versions[1]);
        assert_ne!(versions[0].change, versions[1].change, "a date of its own");
        assert_eq!(fs::read_dir(&rig.dir).unwrap().count(), 1, "nothing temporary");
        fs::write(rig.path("t"), b"named").unwrap();
        let by = Replacement::Entry(dir, name("t"));
        let old = replace(rig, by.clone(), Expected::Version(versions[0]));
        assert!(matches!(old, Ok(PathDone::Unexpected(Some(_)))), "{old:?}");
        let new = replace(rig, by, Expected::Version(versions[1]));
        assert!(matches!(new, Ok(PathDone::Stat(stat)) if stat.size == 5));
        symlink("x", rig.path("l")).unwrap();
        let op =
            |expected| PathOp::Replace { dir, name: name("l"), by: Replacement::Nothing, expected };
        let link = rig.path_op(op(Expected::PlainFile));
        assert!(matches!(link, Ok(PathDone::Unexpected(Some(_)))), "{link:?}");
        let gone = replace(rig, Replacement::Nothing, Expected::PlainFile);
        assert!(matches!(gone, Ok(PathDone::Ok)), "{gone:?}");
        assert!(!rig.path("f").exists());
    });
}
