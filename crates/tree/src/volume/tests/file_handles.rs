//! Persistent identities of files.

use super::*;
use base::FileHandle;
use base::op::Detail;

fn handle(lab: &mut Lab, node: NodeId) -> FileHandle {
    match lab.ask(Ask::FileHandle { node }) {
        Ok(Reply::FileHandle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

fn resolved(lab: &mut Lab, handle: FileHandle) -> Result<(Stat, NodeId), Error> {
    match lab.ask(Ask::Resolve { handle })? {
        Reply::Walked(mut stats, Some(node)) => Ok((stats.pop().expect("its own"), node)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn handles_survive_renames_and_restarts_until_the_file_is_removed() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    let stat = lab.stat("/d/f").unwrap();
    let node = lab.walk("/d/f").unwrap();
    let file = handle(&mut lab, node);
    lab.release(node);
    let root = lab.volume.root();
    let top = handle(&mut lab, root);
    lab.rename("/d/f", "/g").unwrap();
    let mut lab = lab.reopen();
    let (found, node) = resolved(&mut lab, file).unwrap();
    assert_eq!((found.inode, found.links), (stat.inode, 1));
    assert_eq!(handle(&mut lab, node), file, "the same file has the same handle");
    let (_, again) = resolved(&mut lab, top).unwrap();
    assert_eq!(again, lab.volume.root());
    lab.remove("/g").unwrap();
    // A reference keeps the file.
    let (gone, other) = resolved(&mut lab, file).unwrap();
    assert_eq!(gone.links, 0);
    lab.release(other);
    lab.release(node);
    lab.release(again);
    lab.idle();
    assert_eq!(resolved(&mut lab, file).map(|_| ()), Err(Error::Stale));
    lab.verify();
}

#[test]
fn listed_handles_are_those_of_the_files() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.make_dir("/d", 0o755).unwrap();
    let dir = lab.volume.snapshots_root();
    lab.done(Ask::MakeDir { dir, name: name("monday"), mode: 0o755, gid: None }).unwrap();
    for (from, path, count) in [(lab.volume.root(), "", 2), (dir, "", 1), (dir, "monday", 2)] {
        let node = lab.walk_from(from, path).unwrap();
        let access = Access::READ;
        let Ok(Reply::Opened(open, _)) = lab.ask(Ask::Open { node, access }) else { panic!() };
        let list = Ask::List { open, cookie: 0, bytes_max: 1000, detail: Detail::Handle };
        let Ok(Reply::Entries(entries)) = lab.ask(list) else { panic!() };
        assert_eq!(entries.len(), count);
        for entry in entries {
            let found = lab.walk_from(node, &entry.name.to_string()).unwrap();
            assert_eq!(entry.handle, Some(handle(&mut lab, found)));
            lab.release(found);
        }
        lab.close(open);
        lab.release(node);
    }
    lab.verify();
}

#[test]
fn handles_of_snapshots_are_stale_after_their_removal() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let dir = lab.volume.snapshots_root();
    lab.done(Ask::MakeDir { dir, name: name("monday"), mode: 0o755, gid: None }).unwrap();
    let old = lab.walk_from(dir, "monday/f").unwrap();
    let (file, all) = (handle(&mut lab, old), handle(&mut lab, dir));
    lab.release(old);
    lab.remove("/f").unwrap();
    let (stat, node) = resolved(&mut lab, file).unwrap();
    assert_eq!((stat.links, handle(&mut lab, node)), (1, file));
    lab.release(node);
    let (_, node) = resolved(&mut lab, all).unwrap();
    assert_eq!(node, dir);
    lab.release(node);
    lab.done(Ask::Remove { dir, name: name("monday"), directory: Some(true) }).unwrap();
    assert_eq!(resolved(&mut lab, file).map(|_| ()), Err(Error::Stale));
    // The root's number on another volume, and what is no handle at all.
    let mut foreign = [0; 16];
    foreign[7] = 1;
    for wrong in [&b""[..], b"1234567", &[0; 8], &[0; 16], &foreign, &[0; 17], &[0; 24], &[0; 32]] {
        let wrong = FileHandle::new(wrong).unwrap();
        assert_eq!(resolved(&mut lab, wrong).map(|_| ()), Err(Error::Stale), "{wrong:?}");
    }
}
