//! Creation, walks, renaming and removal of names.

use super::*;

#[test]
fn created_entries_are_found_and_removed_ones_are_not() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o640).unwrap();
    lab.symlink("/d/l", "f").unwrap();
    lab.make_node("/d/p", Kind::Fifo, 5).unwrap();
    lab.make_node("/d/c", Kind::CharDevice, 0x0103).unwrap();
    assert_eq!(lab.list("/d"), ["c", "f", "l", "p"]);
    let stat = lab.stat("/d/f").unwrap();
    assert_eq!((stat.kind, stat.mode, stat.links, stat.size), (Kind::File, 0o640, 1, 0));
    assert_eq!(lab.stat("/d/c").unwrap().special_device, 0x0103);
    assert_eq!(lab.stat("/d/p").unwrap().special_device, 0);
    assert_eq!(lab.stat("/d").unwrap().links, 2);
    assert_eq!(lab.stat("/").unwrap().links, 3);
    assert_eq!(lab.remove("/d"), Err(Error::NotEmpty));
    for path in ["/d/f", "/d/l", "/d/p", "/d/c", "/d"] {
        lab.remove(path).unwrap();
        assert_eq!(lab.stat(path), Err(Error::NotFound));
    }
    assert_eq!(lab.stat("/").unwrap().links, 2);
    lab.verify();
    assert_eq!(lab.volume.counts().orphans, 0);
}

#[test]
fn names_that_are_taken_or_make_no_sense_are_refused() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.make_dir("/d", 0o755).unwrap();
    assert_eq!(lab.create("/f", 0o644), Err(Error::Exists));
    assert_eq!(lab.make_dir("/f", 0o755), Err(Error::Exists));
    assert_eq!(lab.make_dir("/f/x", 0o755), Err(Error::NotDirectory));
    assert_eq!(lab.make_dir("/.", 0o755), Err(Error::Exists));
    assert_eq!(lab.symlink("/s", ""), Err(Error::NotFound));
    assert_eq!(lab.symlink("/s", &"x".repeat(4096)), Err(Error::NameTooLong));
    assert_eq!(lab.remove("/.."), Err(Error::Invalid));
    assert_eq!(lab.remove_as("/d", Some(false)), Err(Error::IsDirectory));
    assert_eq!(lab.remove_as("/f", Some(true)), Err(Error::NotDirectory));
    assert_eq!(lab.make_node("/n", Kind::Symlink, 0), Err(Error::Invalid));
    assert_eq!(lab.link("/d", "/e"), Err(Error::NotPermitted));
    assert_eq!(lab.rename("/x", "/y"), Err(Error::NotFound));
    assert_eq!(lab.rename("/f", "/."), Err(Error::Busy));
    lab.verify();
}

#[test]
fn a_walk_goes_as_far_as_it_can_and_never_above_the_root() {
    let mut lab = Lab::new();
    lab.make_dir("/a", 0o755).unwrap();
    lab.make_dir("/a/b", 0o755).unwrap();
    let from = lab.volume.root();
    let walk = |lab: &mut Lab, path: &str| lab.ask(Ask::Walk { from, names: names(path) });
    assert!(matches!(walk(&mut lab, "a/x/y"), Ok(Reply::Walked(stats, None)) if stats.len() == 1));
    assert!(matches!(walk(&mut lab, "x/y"), Err(Error::NotFound)));
    let above = lab.walk("a/b/../../..").unwrap();
    assert_eq!(above, lab.volume.root());
    lab.release(above);
    let (b, up) = (lab.stat("/a/b").unwrap(), lab.stat("/a/b/.").unwrap());
    assert!(b.is_same(&up) && lab.stat("a/b/..").unwrap().is_same(&lab.stat("a").unwrap()));
    lab.verify();
}

#[test]
fn a_symbolic_link_says_what_it_was_told() {
    let mut lab = Lab::new();
    for (path, length) in [("/short", 10), ("/middle", 255), ("/long", 256), ("/longest", 4095)] {
        let target = "t".repeat(length);
        lab.symlink(path, &target).unwrap();
        let stat = lab.stat(path).unwrap();
        assert_eq!((stat.kind, stat.mode, stat.size), (Kind::Symlink, 0o777, length as u64));
        let read = lab.at(path, |lab, node| lab.ask(Ask::ReadLink { node })).unwrap();
        assert!(matches!(read, Reply::Bytes(bytes) if bytes == target.as_bytes()));
    }
    lab.verify();
    lab.remove("/longest").unwrap();
    lab.remove("/short").unwrap();
    lab.create("/f", 0o644).unwrap();
    let read = lab.at("/f", |lab, node| lab.ask(Ask::ReadLink { node }));
    assert!(matches!(read, Err(Error::Invalid)));
    lab.verify();
}

#[test]
fn hard_links_are_the_same_file() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.make_dir("/d", 0o755).unwrap();
    lab.link("/f", "/d/g").unwrap();
    lab.write("/d/g", 0, b"same").unwrap();
    assert_eq!(lab.read("/f").unwrap(), b"same");
    assert!(lab.stat("/f").unwrap().is_same(&lab.stat("/d/g").unwrap()));
    assert_eq!(lab.stat("/f").unwrap().links, 2);
    assert_eq!(lab.link("/f", "/d/g"), Err(Error::Exists));
    // Onto another name of itself: no effect.
    lab.rename("/f", "/d/g").unwrap();
    assert_eq!((lab.list("/"), lab.list("/d")), (vec!["d".into(), "f".into()], vec!["g".into()]));
    lab.remove("/f").unwrap();
    assert_eq!((lab.stat("/d/g").unwrap().links, lab.read("/d/g").unwrap()), (1, b"same".to_vec()));
    lab.verify();
}

#[test]
fn renames_follow_the_rules() {
    let mut lab = Lab::new();
    for dir in ["/a", "/a/b", "/a/b/c", "/e", "/n", "/n/x"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    lab.create("/f", 0o644).unwrap();
    lab.create("/g", 0o600).unwrap();
    assert_eq!(lab.rename("/a", "/a/b/c/a"), Err(Error::Invalid));
    assert_eq!(lab.rename("/a", "/a/a"), Err(Error::Invalid));
    assert_eq!(lab.rename("/a/b", "/a"), Err(Error::NotEmpty));
    assert_eq!(lab.rename("/f", "/e"), Err(Error::IsDirectory));
    assert_eq!(lab.rename("/e", "/f"), Err(Error::NotDirectory));
    assert_eq!(lab.rename("/e", "/n"), Err(Error::NotEmpty));
    lab.rename("/a", "/a").unwrap();
    lab.rename("/f", "/g").unwrap();
    assert_eq!(lab.stat("/g").unwrap().mode, 0o644);
    lab.rename("/a/b", "/e").unwrap();
    assert_eq!(lab.list("/e"), ["c"]);
    assert_eq!(lab.stat("/a").unwrap().links, 2);
    assert_eq!(lab.stat("/e/..").unwrap().inode, lab.stat("/").unwrap().inode);
    lab.rename("/e/c", "/n/x").unwrap();
    assert_eq!(lab.stat("/n/x/..").unwrap().inode, lab.stat("/n").unwrap().inode);
    assert_eq!(lab.list("/"), ["a", "e", "g", "n"]);
    let from = lab.volume.root();
    let (name, new_name) = (name("a"), name("e"));
    let ask = Ask::Rename { from, name, to: from, new_name, replace: false };
    assert_eq!(lab.done(ask), Err(Error::Exists));
    lab.verify();
}

#[test]
fn a_node_keeps_its_name_through_renames() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    let node = lab.walk("/d/f").unwrap();
    lab.rename("/d/f", "/d/g").unwrap();
    lab.rename("/d", "/e").unwrap();
    let new_name = name("h");
    lab.done(Ask::RenameNode { node, to: None, new_name, replace: true }).unwrap();
    assert_eq!(lab.list("/e"), ["h"]);
    let (to, new_name) = (Some(lab.volume.root()), name("top"));
    lab.done(Ask::RenameNode { node, to, new_name, replace: true }).unwrap();
    assert_eq!(lab.list("/"), ["e", "top"]);
    lab.done(Ask::RemoveNode { node }).unwrap();
    assert_eq!(lab.done(Ask::RemoveNode { node }), Err(Error::NotFound));
    assert_eq!(lab.stat_node(node).unwrap().links, 0);
    lab.release(node);
    let root = lab.volume.root();
    assert_eq!(lab.done(Ask::RemoveNode { node: root }), Err(Error::NotPermitted));
    // Reached by `..` from a subdirectory.
    lab.make_dir("/e/i", 0o755).unwrap();
    let node = lab.walk("/e/i/..").unwrap();
    lab.done(Ask::RenameNode { node, to: None, new_name: name("j"), replace: true }).unwrap();
    assert_eq!(lab.list("/"), ["j"]);
    lab.release(node);
    lab.verify();
}

#[test]
fn a_name_that_leads_elsewhere_now_is_not_the_nodes() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let node = lab.walk("/f").unwrap();
    lab.create("/g", 0o644).unwrap();
    lab.rename("/g", "/f").unwrap();
    assert_eq!(lab.done(Ask::RemoveNode { node }), Err(Error::NotFound));
    assert_eq!(lab.list("/"), ["f"]);
    lab.release(node);
    lab.verify();
}

#[test]
fn nothing_is_made_in_a_directory_that_is_gone() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/f", 0o644).unwrap();
    let dir = lab.walk("/d").unwrap();
    lab.remove("/d").unwrap();
    assert_eq!(lab.stat_node(dir).unwrap().links, 0);
    let ask = Ask::MakeDir { dir, name: name("x"), mode: 0o755, gid: None };
    assert_eq!(lab.done(ask), Err(Error::NotFound));
    let ask = Ask::Rename {
        from: lab.volume.root(),
        name: name("f"),
        to: dir,
        new_name: name("f"),
        replace: true,
    };
    assert_eq!(lab.done(ask), Err(Error::NotFound));
    lab.release(dir);
    lab.verify();
    assert_eq!(lab.volume.counts().orphans, 0);
}

#[test]
fn fetch_follows_links_within_the_tree() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    lab.write("/d/f", 0, b"contents").unwrap();
    lab.symlink("/abs", "/d/f").unwrap();
    lab.symlink("/d/up", "../../../abs").unwrap();
    lab.symlink("/dir", "d").unwrap();
    lab.symlink("/circle", "circle").unwrap();
    lab.symlink("/gone", "nowhere").unwrap();
    let fetch = |lab: &mut Lab, path: &str, read_max| {
        lab.ask(Ask::Fetch { root: None, path: names(path), read_max, headroom: 5 })
    };
    for path in ["d/f", "abs", "d/up", "dir/up", "dir/f"] {
        let Ok(Reply::Fetched(stat, data, None)) = fetch(&mut lab, path, 100) else {
            panic!("{path}")
        };
        assert_eq!((stat.size, &*data, data.headroom()), (8, &b"contents"[..], 5));
    }
    let Ok(Reply::Fetched(_, data, Some(open))) = fetch(&mut lab, "abs", 3) else { panic!() };
    assert_eq!(&*data, b"con");
    assert_eq!(lab.read_open(open, 3, 100).unwrap(), b"tents");
    lab.close(open);
    let Ok(Reply::Fetched(stat, _, Some(open))) = fetch(&mut lab, "dir", 3) else { panic!() };
    assert_eq!(stat.kind, Kind::Directory);
    assert_eq!(lab.list_open(open, 0, 1000).len(), 2);
    lab.close(open);
    // From another directory no path leads out of that.
    let root = lab.walk("/d").unwrap();
    lab.symlink("/d/in", "./x/../f").unwrap();
    lab.symlink("/d/out", "../d/f").unwrap();
    lab.symlink("/d/top", "/d/f").unwrap();
    lab.make_dir("/d/x", 0o755).unwrap();
    let mut from = |path: &str| {
        let ask = Ask::Fetch { root: Some(root), path: names(path), read_max: 100, headroom: 0 };
        lab.ask(ask).map(drop)
    };
    assert_eq!((from("f"), from("in")), (Ok(()), Ok(())));
    for path in ["up", "out", "top"] {
        assert_eq!(from(path), Err(Error::CrossDevice), "{path}");
    }
    lab.release(root);
    assert!(matches!(fetch(&mut lab, "circle", 1), Err(Error::Loop)));
    assert!(matches!(fetch(&mut lab, "gone", 1), Err(Error::NotFound)));
    assert!(matches!(fetch(&mut lab, "d/f/x", 1), Err(Error::NotDirectory)));
    lab.make_node("/p", Kind::Fifo, 0).unwrap();
    assert!(matches!(fetch(&mut lab, "p", 1), Err(Error::Unsupported)));
    lab.verify();
}

#[test]
fn users_are_looked_up_on_the_host() {
    let mut lab = Lab::new();
    let reply = lab.ask(Ask::Identify { who: Who::Uid(5) }).unwrap();
    assert!(matches!(reply, Reply::User(User { uid: 5, .. })));
    let reply = lab.ask(Ask::Identify { who: Who::Name(b"nobody".to_vec()) });
    assert!(matches!(reply, Err(Error::NotFound)));
    lab.verify();
}
