//! Quotas, handles, locks, and a store that has failed.

use super::*;
use crate::request::{LockKind, Owner};
use base::op::Detail;

#[test]
fn files_and_bytes_end_at_their_limits() {
    let chosen = Format { inodes_max: 4, bytes_max: 10 * 4096, ..usual() };
    let mut lab = Lab::made(&chosen, World::new());
    for path in ["/a", "/b", "/c"] {
        lab.create(path, 0o644).unwrap();
    }
    assert_eq!(lab.create("/d", 0o644), Err(Error::NoSpace));
    lab.write("/a", 0, &[1; 8 * 4096]).unwrap();
    assert_eq!(lab.write("/b", 0, &[1; 3 * 4096]), Err(Error::NoSpace));
    // Overwriting takes no more space.
    lab.write("/a", 100, &[2; 4096]).unwrap();
    lab.write("/b", 0, &[1; 2 * 4096]).unwrap();
    assert_eq!(lab.write("/c", 0, b"x"), Err(Error::NoSpace));
    let stat = lab.stat_fs();
    assert_eq!((stat.blocks, stat.blocks_free, stat.files, stat.files_free), (10, 0, 4, 0));
    lab.remove("/a").unwrap();
    lab.create("/d", 0o644).unwrap();
    lab.write("/c", 0, b"x").unwrap();
    assert_eq!(lab.stat_fs().blocks_free, 7);
    assert_eq!(lab.stat_fs().name_max, 255);
    lab.verify();
}

#[test]
fn large_writes_beyond_the_limit_leave_nothing_behind() {
    let chosen = Format { bytes_max: 100 * 4096, ..usual() };
    let mut lab = Lab::made(&chosen, World::new());
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let free = lab.volume.store.space().blocks_free;
    assert_eq!(lab.write_open(open, 0, &vec![1; 500_000]), Err(Error::NoSpace));
    assert_eq!(lab.write_open(open, 0, &vec![1; 400_000]), Ok(400_000));
    lab.close(open);
    // The rest of the used blocks is pages of the store itself.
    let taken = free - lab.volume.store.space().blocks_free;
    assert!((98..105).contains(&taken), "{taken}");
    assert_eq!(lab.blocks(), 98);
    lab.verify();
}

#[test]
fn there_are_only_so_many_handles() {
    let mut lab = Lab::new();
    lab.volume.set_handles_max(5);
    lab.create("/f", 0o644).unwrap();
    lab.create("/g", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let one = lab.walk("/f").unwrap();
    let two = lab.walk("/g").unwrap();
    assert_eq!(lab.walk("/f"), Err(Error::TooManyOpen));
    // Open files stay usable.
    assert_eq!(lab.write_open(open, 0, b"abc"), Ok(3));
    assert_eq!(lab.read_open(open, 0, 9), Ok(b"abc".to_vec()));
    assert_eq!(lab.done(Ask::Sync { open, data_only: false }), Ok(()));
    assert!(matches!(lab.ask(Ask::Stat { node: one }), Ok(Reply::Stat(stat)) if stat.size == 3));
    lab.close(open);
    lab.release(one);
    lab.release(two);
    lab.verify();
}

#[test]
fn a_lock_is_granted_when_its_holder_closes() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let opens: Vec<OpenId> = (0..3).map(|_| lab.open("/f", WRITE).unwrap()).collect();
    let lock = |process: u32, kind| {
        Lock::new(kind, 0, 10, Owner { client: b"c".to_vec(), process }).unwrap()
    };
    let ask = |n: usize, kind, wait| Ask::Lock { open: opens[n], lock: lock(n as u32, kind), wait };
    assert!(matches!(lab.ask(ask(0, LockKind::Exclusive, false)), Ok(Reply::Locked)));
    assert!(matches!(lab.ask(ask(1, LockKind::Shared, false)), Ok(Reply::Blocked)));
    let get = Ask::GetLock { open: opens[1], lock: lock(1, LockKind::Shared) };
    let conflict = lab.ask(get).unwrap();
    assert!(matches!(conflict, Reply::Conflict(Some(lock)) if lock.owner.process == 0));
    let (waits, cancelled) =
        (lab.begin(ask(1, LockKind::Shared, true)), lab.begin(ask(2, LockKind::Shared, true)));
    lab.input(Input::Cancel(cancelled));
    assert!(matches!(lab.answered(cancelled), Some(Err(Error::Cancelled))));
    assert!(lab.answered(waits).is_none());
    lab.close(opens[0]);
    assert!(matches!(lab.answered(waits), Some(Ok(Reply::Locked))));
    lab.close(opens[1]);
    lab.close(opens[2]);
    assert_eq!(lab.volume.counts().locks, (0, 0));
    lab.verify();
}

#[test]
fn errors_of_the_store_are_named_by_what_can_be_done() {
    let attr = Ask::SetAttr { node: NodeId(0), name: vec![], value: vec![], create: None };
    let stat = Ask::Stat { node: NodeId(0) };
    assert_eq!(translate(store::Error::TooLarge, Some(&attr)), Error::AttributeTooLarge);
    assert_eq!(translate(store::Error::TooLarge, Some(&stat)), Error::FileTooLarge);
    assert_eq!(translate(store::Error::Damaged, Some(&stat)), Error::Io);
    assert_eq!(translate(store::Error::NoSpace, None), Error::NoSpace);
}

#[test]
fn a_full_disk_below_the_volume_is_reported_as_that() {
    for (error, next) in [(Error::NoSpace, "free space"), (Error::Io, "check the disk")] {
        let mut lab = Lab::new();
        lab.create("/f", 0o644).unwrap();
        let open = lab.open("/f", WRITE).unwrap();
        lab.write_open(open, 0, b"hello").unwrap();
        assert_eq!((lab.volume.next_report(), lab.volume.failure()), (None, None));
        lab.world.failing = Some(error);
        assert_eq!(lab.done(Ask::Sync { open, data_only: true }), Err(error));
        assert_eq!(lab.write_open(open, 0, b"x"), Err(error));
        let report = lab.volume.next_report().expect("a failure is reported");
        assert!(report.contains("cannot ") && report.contains(next), "{report}");
        assert!(lab.volume.failure().is_some(), "the server ends with an error");
    }
}

#[test]
fn after_the_disk_has_failed_nothing_changes_and_reading_goes_on() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, b"here").unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    lab.world.failing = Some(Error::Io);
    lab.write_open(open, 0, b"lost").unwrap();
    assert_eq!(lab.done(Ask::Sync { open, data_only: true }), Err(Error::Io));
    assert_eq!(lab.write_open(open, 0, b"x"), Err(Error::Io));
    assert_eq!(lab.write_open(open, 0, &vec![1; 100_000]), Err(Error::Io));
    assert_eq!(lab.create("/g", 0o644), Err(Error::Io));
    assert_eq!(lab.read_open(open, 0, 10).unwrap(), b"lost");
    lab.close(open);
    lab.verify();
    lab.world.failing = None;
    let mut lab = lab.crash();
    lab.verify();
}

#[test]
fn a_full_volume_can_be_emptied_again() {
    let mut lab = Lab::made(&usual(), World::with(4096, 4096));
    let mut files = 0;
    let error = loop {
        let path = format!("/f{files}");
        files += 1;
        match lab.create(&path, 0o644).and_then(|()| lab.write(&path, 0, &vec![1; 300_000])) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    lab.verify();
    // Space reserved for deletions is free, but not available.
    let stat = lab.stat_fs();
    assert_eq!(stat.blocks_free - stat.blocks_available, stat.blocks / 16);
    for n in 0..files {
        match lab.remove(&format!("/f{n}")) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    lab.verify();
    lab.create("/again", 0o644).unwrap();
    lab.write("/again", 0, &vec![1; 300_000]).unwrap();
    lab.verify();
}

/// Writes a record to the store, bypassing the volume.
fn forge(lab: &mut Lab, ino: u64, record: Vec<u8>) {
    let change =
        store::Change::Put { table: INODES, key: ino.to_be_bytes().to_vec(), value: record };
    let (now, mut outputs) = (lab.instant(), Vec::new());
    lab.volume.store.commit(now, LOOSE, &[change], Durability::Soon, &mut outputs).unwrap();
}

#[test]
fn an_inode_has_only_so_many_names() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.make_dir("/d", 0o755).unwrap();
    for path in ["/f", "/d"] {
        let ino = lab.stat(path).unwrap().inode;
        let inode = lab.look(|read_view| read_view.inode(ino));
        forge(&mut lab, ino, Inode { links: write_set::LINKS_MAX, ..inode }.encode());
    }
    assert_eq!(lab.link("/f", "/g"), Err(Error::TooManyLinks));
    assert_eq!(lab.make_dir("/d/e", 0o755), Err(Error::TooManyLinks));
    lab.create("/d/f", 0o644).unwrap();
    assert_eq!(lab.findings().len(), 2);
}

#[test]
fn a_damaged_record_is_an_error_of_its_file_alone() {
    let mut lab = Lab::new();
    for path in ["/a", "/b"] {
        lab.create(path, 0o644).unwrap();
    }
    let ino = lab.stat("/a").unwrap().inode;
    forge(&mut lab, ino, b"nonsense".to_vec());
    assert_eq!(lab.stat("/a"), Err(Error::Io));
    assert_eq!(lab.remove("/a"), Err(Error::Io));
    assert_eq!(lab.list("/"), ["a", "b"]);
    lab.write("/b", 0, b"well").unwrap();
    assert!(lab.findings().contains(&format!("inode {ino}: its record makes no sense")));
}

#[test]
fn a_sync_without_changes_is_answered() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let node = lab.volume.root();
    let request = Request { caller: root(), ask: Ask::Stat { node } };
    lab.volume.pin(Id::Node(node));
    let slot = lab.volume.pending.insert(Pending::new(RequestId(1000), request));
    lab.volume.slots.insert(RequestId(1000), slot);
    let (answer, effects) = (plan::Answer::Reply(Reply::Done), plan::Effects::default());
    let commit = plan::Commit { changes: Vec::new(), durable: true, answer, effects };
    let (now, mut out) = (lab.instant(), Vec::new());
    lab.volume.commit(now, slot, commit, &mut out);
    lab.volume.settle(now, &mut out);
    lab.perform(out);
    assert!(lab.answered(RequestId(1000)).is_none(), "the file is not durable yet");
    while lab.operate() || lab.replies.is_empty() && lab.tick() {}
    assert!(matches!(lab.answered(RequestId(1000)), Some(Ok(Reply::Done))));
    assert!(lab.crash().stat("/f").is_ok());
}

#[test]
fn directories_are_moved_only_as_deep_as_a_plan_climbs() {
    const DEPTH: usize = super::super::read_view::DEPTH_MAX;
    let mut lab = Lab::new();
    lab.make_dir("/moved", 0o755).unwrap();
    lab.create("/file", 0o644).unwrap();
    let (root, mut deep) = (lab.volume.root(), lab.walk("/").unwrap());
    for _ in 0..DEPTH {
        lab.done(Ask::MakeDir { dir: deep, name: name("d"), mode: 0o755, gid: None }).unwrap();
        let next = lab.walk_from(deep, "d").unwrap();
        lab.release(deep);
        deep = next;
    }
    let rename = |lab: &mut Lab, (from, old), (to, new)| {
        let (name, new_name) = (name(old), name(new));
        lab.done(Ask::Rename { from, name, to, new_name, replace: true })
    };
    rename(&mut lab, (root, "moved"), (deep, "moved")).unwrap();
    let circle = rename(&mut lab, (root, "d"), (deep, "d"));
    assert_eq!(circle, Err(Error::Invalid));
    rename(&mut lab, (deep, "moved"), (root, "moved")).unwrap();
    lab.done(Ask::MakeDir { dir: deep, name: name("deeper"), mode: 0o755, gid: None }).unwrap();
    let deeper = lab.walk_from(deep, "deeper").unwrap();
    let moved = rename(&mut lab, (root, "moved"), (deeper, "moved"));
    assert_eq!(moved, Err(Error::NameTooLong));
    // Files move anywhere, and directories within theirs.
    rename(&mut lab, (root, "file"), (deeper, "file")).unwrap();
    rename(&mut lab, (root, "moved"), (root, "renamed")).unwrap();
    lab.release(deep);
    lab.release(deeper);
    lab.verify();
}

#[test]
fn a_directory_reached_from_below_is_renamed_if_its_name_is_soon_found() {
    let mut lab = Lab::new();
    for number in 0..10_001 {
        lab.make_dir(&format!("/{number}"), 0o755).unwrap();
    }
    let open = lab.open("/", Access::READ).unwrap();
    let mut all: Vec<Entry> = Vec::new();
    while let more = lab.list_open(open, all.last().map_or(0, |last| last.cookie), 1 << 20)
        && !more.is_empty()
    {
        all.extend(more);
    }
    lab.close(open);
    let all: Vec<String> = all.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(all.len(), 10_001);
    let mut rename = |dir: &str| {
        lab.make_dir(&format!("/{dir}/below"), 0o755).unwrap();
        let below = lab.walk(&format!("/{dir}/below")).unwrap();
        let node = lab.walk_from(below, "..").unwrap();
        let (to, new_name) = (None, name("renamed"));
        let renamed = lab.done(Ask::RenameNode { node, to, new_name, replace: true });
        lab.release(node);
        lab.release(below);
        renamed
    };
    assert_eq!(rename(&all[10_000]), Err(Error::Unsupported));
    assert_eq!(rename(&all[0]), Ok(()));
}

/// A rename changes the nodes that were reached by the old name: one, however many references there
/// are.
#[test]
fn references_by_one_name_share_a_node() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    lab.link("/d/f", "/d/g").unwrap();
    let before = lab.volume.nodes.len();
    let by_f: Vec<NodeId> = (0..100).map(|_| lab.walk("/d/f").unwrap()).collect();
    let by_g = lab.walk("/d/g").unwrap();
    assert_eq!(lab.volume.nodes.len(), before + 2, "the directory is given back");
    lab.rename("/d/f", "/d/h").unwrap();
    lab.remove("/d/g").unwrap();
    assert_eq!(lab.volume.nodes.len(), before + 2);
    let names: Vec<Option<Vec<u8>>> = [by_f[0], by_f[99], by_g]
        .map(|node| lab.volume.place(node).map(|(_, name)| name.as_bytes().to_vec()))
        .to_vec();
    assert_eq!(names, [Some(b"h".to_vec()), Some(b"h".to_vec()), None]);
    let again = lab.walk("/d/h").unwrap();
    assert_eq!(again, by_f[0]);
    lab.remove("/d/h").unwrap();
    by_f.into_iter().chain([again, by_g]).for_each(|node| lab.release(node));
    lab.idle();
    assert_eq!(lab.volume.nodes.len(), before);
    lab.verify();
}

/// No plan looks at a whole directory: a listing is shorter than a client may ask for.
#[test]
fn a_listing_of_many_entries_is_short() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    for n in 0..600 {
        lab.create(&format!("/d/{n:0>200}"), 0o644).unwrap();
    }
    let access = Access { read: true, ..Access::default() };
    let open = lab.open("/d", access).unwrap();
    let listed = lab.list_open(open, 0, 1 << 20).len();
    assert_eq!(listed, (64 << 10) / (200 + 24));
    let ask = Ask::List { open, cookie: 0, bytes_max: 1 << 20, detail: Detail::Stat };
    let Ok(Reply::Entries(entries)) = lab.ask(ask) else { panic!("it is a directory") };
    assert_eq!(entries.len(), 256);
    assert!(entries.iter().all(|entry| entry.stat.is_some()));
    lab.close(open);
}
