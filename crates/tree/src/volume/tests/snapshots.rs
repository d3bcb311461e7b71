//! Snapshots.

use super::*;

fn make(lab: &mut Lab, text: &str) -> Result<(), Error> {
    let dir = lab.volume.snapshots_root();
    lab.done(Ask::MakeDir { dir, name: name(text), mode: 0o755, gid: None })
}

fn drop_one(lab: &mut Lab, text: &str) -> Result<(), Error> {
    let dir = lab.volume.snapshots_root();
    lab.done(Ask::Remove { dir, name: name(text), directory: Some(true) })
}

fn read_old(lab: &mut Lab, path: &str) -> Result<Vec<u8>, Error> {
    let node = lab.walk_from(lab.volume.snapshots_root(), path)?;
    let open = lab.open_node(node, Access::READ)?;
    let data = lab.read_open(open, 0, 1000)?;
    lab.close(open);
    lab.release(node);
    Ok(data)
}

#[test]
fn a_snapshot_is_a_whole_old_tree() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    lab.write("/d/f", 0, b"old").unwrap();
    make(&mut lab, "monday").unwrap();
    lab.write("/d/f", 0, b"new").unwrap();
    lab.remove("/d/f").unwrap();
    lab.create("/d/g", 0o644).unwrap();
    make(&mut lab, "tuesday").unwrap();
    assert_eq!(make(&mut lab, "monday"), Err(Error::Exists));
    assert_eq!(read_old(&mut lab, "monday/d/f").unwrap(), b"old");
    assert_eq!(read_old(&mut lab, "tuesday/d/f"), Err(Error::NotFound));
    let snapshots = lab.volume.snapshots_root();
    let open = lab.open_node(snapshots, Access::READ).unwrap();
    let entries = lab.list_open(open, 0, 1000);
    let all: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(all, ["monday", "tuesday"]);
    assert_eq!(lab.list_open(open, entries[0].cookie, 1000).len(), 1);
    assert_eq!(lab.list_open(open, 0, 1).len(), 1);
    lab.close(open);
    // The same inode on different devices.
    let node = lab.walk_from(snapshots, "monday").unwrap();
    let (old, present) = (lab.stat_node(node).unwrap(), lab.stat("/").unwrap());
    assert!(old.inode == present.inode && old.device != present.device);
    lab.release(node);
    let up = lab.walk_from(snapshots, "monday/d/../..").unwrap();
    assert_eq!(up, snapshots);
    lab.release(up);
    let stat = lab.stat_node(snapshots).unwrap();
    assert_eq!((stat.mode, stat.links), (0o555, 4));
    lab.verify();
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    let mut lab = Lab::new();
    lab.create("/f", 0o666).unwrap();
    make(&mut lab, "s").unwrap();
    let snapshots = lab.volume.snapshots_root();
    let dir = lab.walk_from(snapshots, "s").unwrap();
    let node = lab.walk_from(snapshots, "s/f").unwrap();
    let (mode, gid) = (0o755, None);
    for ask in [
        Ask::Create { dir, name: name("g"), access: WRITE, exclusive: true, mode, gid },
        Ask::MakeDir { dir, name: name("g"), mode, gid },
        Ask::Remove { dir, name: name("f"), directory: None },
        Ask::RemoveNode { node },
        Ask::SetStat { node, open: None, set: SetStat { mode: Some(0), ..SetStat::default() } },
        Ask::Open { node, access: WRITE },
        Ask::Link { node, dir: lab.volume.root(), name: name("g") },
        Ask::SetAttr { node, name: b"user.a".to_vec(), value: Vec::new(), create: None },
        Ask::Symlink { dir: snapshots, name: name("g"), target: b"f".to_vec(), gid },
        Ask::Create { dir: snapshots, name: name("g"), access: WRITE, exclusive: true, mode, gid },
        Ask::RenameNode { node: dir, to: None, new_name: name("t"), replace: true },
    ] {
        assert!(matches!(lab.ask(ask.clone()), Err(Error::ReadOnly)), "{ask:?}");
    }
    lab.release(dir);
    lab.release(node);
    lab.verify();
}

#[test]
fn a_snapshot_is_dropped_when_nobody_is_in_it() {
    let mut lab = Lab::new();
    make(&mut lab, "s").unwrap();
    let node = lab.walk_from(lab.volume.snapshots_root(), "s").unwrap();
    assert_eq!(drop_one(&mut lab, "s"), Err(Error::Busy));
    let open = lab.open_node(node, Access::READ).unwrap();
    lab.release(node);
    assert_eq!(drop_one(&mut lab, "s"), Err(Error::Busy));
    lab.close(open);
    assert_eq!(drop_one(&mut lab, "x"), Err(Error::NotFound));
    lab.caller = user(10, &[]);
    assert_eq!(drop_one(&mut lab, "s"), Err(Error::NotPermitted));
    assert_eq!(make(&mut lab, "t"), Err(Error::NotPermitted));
    lab.caller = Caller::Server;
    drop_one(&mut lab, "s").unwrap();
    assert_eq!(read_old(&mut lab, "s/f"), Err(Error::NotFound));
    lab.verify();
}

#[test]
fn snapshots_are_fetched_by_paths() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    lab.write("/d/f", 0, b"old").unwrap();
    lab.symlink("/l", "/d/f").unwrap();
    make(&mut lab, "s").unwrap();
    lab.write("/d/f", 0, b"new").unwrap();
    let root = Some(lab.volume.snapshots_root());
    let fetch = |lab: &mut Lab, path: &str| {
        lab.ask(Ask::Fetch { root, path: names(path), read_max: 10, headroom: 0 })
    };
    for path in ["s/d/f", "s/l"] {
        let Ok(Reply::Fetched(_, data, None)) = fetch(&mut lab, path) else { panic!("{path}") };
        assert_eq!(&*data, b"old");
    }
    for path in ["", "s", "s/d"] {
        let Ok(Reply::Fetched(stat, _, Some(open))) = fetch(&mut lab, path) else {
            panic!("{path}")
        };
        assert_eq!(stat.kind, Kind::Directory);
        assert!(!lab.list_open(open, 0, 100).is_empty());
        lab.close(open);
    }
    assert!(matches!(fetch(&mut lab, "x/d"), Err(Error::NotFound)));
    lab.verify();
}
