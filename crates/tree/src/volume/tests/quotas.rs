//! Quotas of directories and users.

use super::record::{Holder, QUOTAS, Quota};
use super::*;
use base::rng::{Rng, seeded};

const QUOTA: &str = "trusted.upcall.quota";

fn set(lab: &mut Lab, path: &str, attribute: &str, value: &str) -> Result<(), Error> {
    let (name, value) = (attribute.as_bytes().to_vec(), value.as_bytes().to_vec());
    lab.at(path, |lab, node| lab.done(Ask::SetAttr { node, name, value, create: None }))
}

fn get(lab: &mut Lab, path: &str, attribute: &str) -> Result<String, Error> {
    let name = attribute.as_bytes().to_vec();
    match lab.at(path, |lab, node| lab.ask(Ask::GetAttr { node, name }))? {
        Reply::Bytes(bytes) => Ok(String::from_utf8(bytes).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn remove(lab: &mut Lab, path: &str, attribute: &str) -> Result<(), Error> {
    let name = attribute.as_bytes().to_vec();
    lab.at(path, |lab, node| lab.done(Ask::RemoveAttr { node, name }))
}

/// Sets a quota and waits until files are counted.
fn limit(lab: &mut Lab, path: &str, attribute: &str, value: &str) {
    set(lab, path, attribute, value).unwrap();
    lab.idle();
    assert!(get(lab, path, attribute).unwrap().ends_with(" state=enforced"));
}

fn used(lab: &mut Lab, path: &str, attribute: &str) -> (u64, u64) {
    let text = get(lab, path, attribute).unwrap();
    let number = |name: &str| {
        let word = text.split(' ').find_map(|word| word.strip_prefix(name)).unwrap();
        word.parse().unwrap()
    };
    (number("used_bytes="), number("used_inodes="))
}

#[test]
fn a_directory_with_all_beneath_it_ends_at_its_quota() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    limit(&mut lab, "/d", QUOTA, "max_bytes=40960 max_inodes=5");
    lab.make_dir("/d/e", 0o755).unwrap();
    for path in ["/d/a", "/d/e/b", "/d/e/c"] {
        lab.create(path, 0o644).unwrap();
    }
    assert_eq!(lab.create("/d/e/d", 0o644), Err(Error::QuotaExceeded));
    lab.write("/d/a", 0, &[1; 8 * 4096]).unwrap();
    assert_eq!(lab.write("/d/e/b", 0, &[1; 3 * 4096]), Err(Error::QuotaExceeded));
    lab.write("/d/e/b", 0, &[1; 2 * 4096]).unwrap();
    assert_eq!(used(&mut lab, "/d", QUOTA), (10 * 4096, 5));
    // Elsewhere there is space.
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &[1; 20 * 4096]).unwrap();
    // The quota is known after the next opening as well.
    let mut lab = lab.reopen();
    assert_eq!(lab.write("/d/e/c", 0, b"x"), Err(Error::QuotaExceeded));
    lab.remove("/d/a").unwrap();
    lab.write("/d/e/c", 0, b"x").unwrap();
    lab.verify();
    lab.check_disk();
}

#[test]
fn files_that_were_there_before_are_counted() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    for dir in 0..5 {
        lab.make_dir(&format!("/d/{dir}"), 0o755).unwrap();
        for file in 0..30 {
            let path = format!("/d/{dir}/{file}");
            lab.create(&path, 0o644).unwrap();
            lab.write(&path, 0, &[1; 100]).unwrap();
            lab.chown(&path, 7 + file % 2, 7).unwrap();
        }
    }
    set(&mut lab, "/d", QUOTA, "max_inodes=1").unwrap();
    assert!(get(&mut lab, "/d", QUOTA).unwrap().ends_with(" state=counting"));
    // Until then the limit is not enforced, and changed files are counted once.
    lab.create("/d/new", 0o644).unwrap();
    lab.remove("/d/3/3").unwrap();
    lab.write("/d/4/4", 0, &[1; 5000]).unwrap();
    let of_user = "trusted.upcall.quota.user.7";
    set(&mut lab, "/", of_user, "max_inodes=1").unwrap();
    lab.idle();
    assert_eq!(used(&mut lab, "/d", QUOTA), (150 * 4096, 156));
    assert_eq!(lab.create("/d/more", 0o644), Err(Error::QuotaExceeded));
    assert_eq!(used(&mut lab, "/", of_user), (76 * 4096, 75));
    lab.verify();
    lab.check_disk();
}

/// Makes everything durable, then reopens the volume after a power failure while files are being
/// counted.
fn interrupted(mut lab: Lab) -> Lab {
    let root = lab.volume.root();
    let open = lab.open_node(root, Access::READ).unwrap();
    lab.done(Ask::Sync { open, data_only: false }).unwrap();
    lab.world.disk.lose_power();
    let (now, requested) = (lab.now, lab.requested);
    let store = lab.world.open();
    Lab { requested, ..Lab::of(store, lab.world, now) }
}

/// Gives the volume this number of turns.
fn turns(lab: &mut Lab, count: usize) {
    for _ in 0..count {
        while lab.operate() {}
        lab.tick();
    }
}

#[test]
fn counting_goes_on_after_a_crash() {
    let of_user = "trusted.upcall.quota.user.9";
    let mut interruptions = 0;
    for steps in (0..80).step_by(4) {
        let mut lab = Lab::new();
        for dir in ["/d", "/d/e", "/d/f"] {
            lab.make_dir(dir, 0o755).unwrap();
            for file in 0..200 {
                let path = format!("{dir}/{file}");
                lab.create(&path, 0o644).unwrap();
                if file % 2 == 0 {
                    lab.chown(&path, 9, 9).unwrap();
                }
            }
        }
        lab.idle();
        set(&mut lab, "/d", QUOTA, "max_inodes=400").unwrap();
        set(&mut lab, "/", of_user, "max_inodes=1000").unwrap();
        turns(&mut lab, steps);
        // One that is counted already, and one that is not yet.
        lab.chown("/d/0", 8, 8).unwrap();
        lab.chown("/d/f/199", 9, 9).unwrap();
        let counts = lab.volume.counting.name() != "idle";
        interruptions += usize::from(counts);
        let mut lab = interrupted(lab);
        turns(&mut lab, 3);
        let mut lab = interrupted(lab);
        lab.idle();
        assert_eq!(used(&mut lab, "/d", QUOTA), (0, 603), "{steps}");
        assert_eq!(used(&mut lab, "/", of_user), (0, 300), "{steps}");
        assert_eq!(lab.create("/d/more", 0o644), Err(Error::QuotaExceeded));
        lab.verify();
    }
    assert!((3..20).contains(&interruptions), "{interruptions}");
}

#[test]
fn a_user_ends_at_the_quota_wherever_the_files_are() {
    let mut lab = Lab::new();
    let of_user = "trusted.upcall.quota.user.7";
    limit(&mut lab, "/", of_user, "max_bytes=8192 max_inodes=2");
    lab.caller = user(7, &[]);
    lab.create("/a", 0o666).unwrap();
    lab.create("/b", 0o666).unwrap();
    assert_eq!(lab.create("/c", 0o644), Err(Error::QuotaExceeded));
    lab.write("/a", 0, &[1; 4096]).unwrap();
    // The file counts for its owner, whoever writes it.
    lab.caller = user(8, &[]);
    lab.write("/b", 0, &[1; 4096]).unwrap();
    assert_eq!(lab.write("/b", 4096, &[1; 1]), Err(Error::QuotaExceeded));
    lab.create("/c", 0o644).unwrap();
    lab.caller = root();
    assert_eq!(lab.chown("/c", 7, 7), Err(Error::QuotaExceeded));
    lab.chown("/a", 8, 8).unwrap();
    assert_eq!(used(&mut lab, "/", of_user), (4096, 1));
    lab.chown("/c", 7, 7).unwrap();
    assert_eq!(used(&mut lab, "/", of_user), (4096, 2));
    lab.verify();
}

#[test]
fn names_cross_only_where_one_inode_is_counted() {
    let mut lab = Lab::new();
    for dir in ["/d", "/d/e", "/f", "/f/g", "/f/empty"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    for path in ["/d/a", "/f/b", "/f/g/c"] {
        lab.create(path, 0o644).unwrap();
        lab.write(path, 0, &[1; 5000]).unwrap();
    }
    limit(&mut lab, "/d", QUOTA, "max_bytes=24576");
    assert_eq!(lab.link("/f/b", "/d/b"), Err(Error::CrossDevice));
    assert_eq!(lab.rename("/f/g", "/d/g"), Err(Error::CrossDevice));
    lab.link("/d/a", "/d/e/a2").unwrap();
    assert_eq!(lab.rename("/d/a", "/f/a"), Err(Error::CrossDevice), "it has two names");
    lab.rename("/f/b", "/d/b").unwrap();
    lab.rename("/f/empty", "/d/empty").unwrap();
    assert_eq!(used(&mut lab, "/d", QUOTA), (4 * 4096, 5));
    lab.rename("/d/b", "/f/g/b").unwrap();
    assert_eq!(used(&mut lab, "/d", QUOTA), (2 * 4096, 4));
    // The directory itself can be moved anywhere, with its quota.
    lab.rename("/d", "/f/d").unwrap();
    lab.write("/f/g/big", 0, &[1; 1]).unwrap_err();
    lab.create("/f/g/big", 0o644).unwrap();
    lab.write("/f/g/big", 0, &[1; 5 * 4096]).unwrap();
    assert_eq!(lab.rename("/f/g/big", "/f/d/big"), Err(Error::QuotaExceeded));
    lab.verify();
    lab.check_disk();
}

#[test]
fn within_a_directory_names_move_while_its_files_are_counted() {
    let dirs = ["/d/a", "/d/b", "/d/c", "/d/a/a", "/d/b/b", "/d/c/c", "/d/a/a/x"];
    for steps in 0..40 {
        let mut lab = Lab::new();
        lab.make_dir("/d", 0o755).unwrap();
        for dir in dirs {
            lab.make_dir(dir, 0o755).unwrap();
        }
        for path in ["/d/a/a/f", "/d/b/b/f", "/d/c/c/f", "/d/a/a/x/f"] {
            lab.create(path, 0o644).unwrap();
        }
        lab.make_dir("/out", 0o755).unwrap();
        set(&mut lab, "/d", QUOTA, "max_inodes=10").unwrap();
        turns(&mut lab, steps);
        for (from, to) in [
            ("/d/a/a", "/d/b/a"),
            ("/d/b/b", "/d/c/b"),
            ("/d/c/c", "/d/a/c"),
            // Renames within one directory.
            ("/d/a", "/d/n"),
            ("/d/b", "/d/a"),
            ("/d/n", "/d/b"),
            ("/d/c", "/d/z"),
        ] {
            lab.rename(from, to).unwrap();
        }
        lab.link("/d/a/a/f", "/d/b/second").unwrap();
        lab.link("/d/b/c/f", "/d/a/a/x/second").unwrap();
        lab.idle();
        assert_eq!(used(&mut lab, "/d", QUOTA), (0, 12), "{steps}");
        assert_eq!(lab.rename("/d/b/c", "/out/c"), Err(Error::CrossDevice));
        lab.verify();
    }
}

#[test]
fn entries_that_leave_during_a_count_are_not_counted() {
    let mut counted = 0;
    for steps in 0..40 {
        let mut lab = Lab::new();
        for dir in ["/d", "/out", "/out/big"] {
            lab.make_dir(dir, 0o755).unwrap();
        }
        lab.create("/out/big/f", 0o644).unwrap();
        for dir in ["/d/x", "/d/u", "/d/m", "/d/m/n"] {
            lab.make_dir(dir, 0o755).unwrap();
        }
        set(&mut lab, "/d", QUOTA, "max_inodes=10").unwrap();
        turns(&mut lab, steps);
        lab.rename("/d/x", "/out/x").unwrap();
        lab.rename("/out/big", "/out/x/big").unwrap();
        lab.rename("/d/m", "/d/u/m").unwrap();
        // While none of it is counted, it can be moved.
        let went = lab.rename("/d/u", "/out/u");
        counted += usize::from(went == Err(Error::CrossDevice));
        lab.idle();
        let left = if went.is_ok() { 1 } else { 4 };
        assert_eq!(used(&mut lab, "/d", QUOTA), (0, left), "{steps}");
        lab.verify();
    }
    assert!((1..40).contains(&counted), "{counted}");
}

#[test]
fn renames_do_not_block_counting() {
    let mut lab = Lab::new();
    for dir in ["/d", "/d/a", "/d/z"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    for file in 0..500 {
        lab.create(&format!("/d/z/{file}"), 0o644).unwrap();
    }
    lab.idle();
    set(&mut lab, "/d", QUOTA, "max_inodes=1").unwrap();
    for round in 0.. {
        let (from, to) = (format!("/d/z/n{round}"), format!("/d/a/n{round}"));
        let made =
            lab.make_dir(&from, 0o755).and_then(|()| lab.create(&format!("{from}/f"), 0o644));
        if made == Err(Error::QuotaExceeded) {
            break;
        }
        made.unwrap();
        lab.rename(&from, &to).unwrap();
        turns(&mut lab, 1);
        assert!(round < 500, "the limit holds some time");
    }
    lab.verify();
}

#[test]
fn limits_are_changed_while_files_are_counted() {
    let mut lab = Lab::new();
    for dir in ["/d", "/d/e"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    for file in 0..200 {
        lab.create(&format!("/d/e/{file}"), 0o644).unwrap();
    }
    lab.idle();
    let mut sets = 0;
    while sets == 0 || get(&mut lab, "/d", QUOTA).unwrap().ends_with(" state=counting") {
        sets += 1;
        set(&mut lab, "/d", QUOTA, &format!("max_inodes={}", 1000 + sets)).unwrap();
        turns(&mut lab, 1);
        assert!(sets < 100, "each adds no work");
    }
    assert_eq!(used(&mut lab, "/d", QUOTA), (0, 202));
    lab.verify();
}

#[test]
fn a_file_with_several_names_counts_for_one_directory() {
    let mut lab = Lab::new();
    for dir in ["/a", "/b"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    lab.create("/a/f", 0o644).unwrap();
    lab.link("/a/f", "/b/f").unwrap();
    limit(&mut lab, "/a", QUOTA, "max_inodes=10");
    limit(&mut lab, "/b", QUOTA, "max_inodes=10");
    assert_eq!(used(&mut lab, "/a", QUOTA), (0, 2));
    assert_eq!(used(&mut lab, "/b", QUOTA), (0, 1));
    lab.verify();
    // It counts for none, until the other quota is set anew.
    remove(&mut lab, "/a", QUOTA).unwrap();
    lab.verify();
    remove(&mut lab, "/b", QUOTA).unwrap();
    limit(&mut lab, "/b", QUOTA, "max_inodes=10");
    assert_eq!(used(&mut lab, "/b", QUOTA), (0, 2));
    lab.verify();
}

#[test]
fn writes_past_a_quota_are_refused_before_they_are_on_the_disk() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    limit(&mut lab, "/d", QUOTA, "max_bytes=100000");
    lab.create("/d/f", 0o644).unwrap();
    let open = lab.open("/d/f", WRITE).unwrap();
    lab.idle();
    let id = lab.begin(Ask::Write { open, offset: 0, data: Buf::from(vec![1; 500_000]) });
    let wrote = lab.ops.iter().any(|op| matches!(op, Op::WriteBlocks { .. }));
    assert!(!wrote && matches!(lab.answered(id), Some(Err(Error::QuotaExceeded))));
    assert_eq!(lab.write_open(open, 0, &vec![1; 90_000]), Ok(90_000));
    lab.close(open);
    lab.verify();
}

/// Records that this program never writes are errors, not panics.
#[test]
fn quotas_that_make_no_sense_are_damage() {
    let good = Quota { bytes_max: 9, inodes_max: 9, ..Quota::default() };
    let project = Quota { directory: 1, ..good };
    for (key, quota) in [
        (Holder::User(7).key(), project),
        (Holder::Project(5).key(), good),
        (Holder::Project(0).key(), project),
        ([9; 9], good),
    ] {
        let mut lab = Lab::new();
        limit(&mut lab, "/", "trusted.upcall.quota.user.8", "max_inodes=5");
        let put = |table, key: &[u8], value| store::Change::Put { table, key: key.to_vec(), value };
        let change = put(QUOTAS, &key, quota.encode());
        let (now, mut outputs) = (lab.instant(), Vec::new());
        lab.volume.store.commit(now, LOOSE, &[change], Durability::Soon, &mut outputs).unwrap();
        let mut lab = lab.reopen();
        assert_eq!(lab.create("/f", 0o644), Err(Error::Io));
        assert_eq!(lab.list("/"), [""; 0]);
        assert!(lab.findings().iter().any(|found| found.contains("a quota that makes no sense")));
    }
}

#[test]
fn at_the_limit_names_are_replaced() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    limit(&mut lab, "/d", QUOTA, "max_inodes=2");
    lab.create("/d/a", 0o644).unwrap();
    lab.create("/x", 0o644).unwrap();
    lab.rename("/x", "/d/a").unwrap();
    assert_eq!(used(&mut lab, "/d", QUOTA), (0, 2));
    lab.create("/x", 0o644).unwrap();
    assert_eq!(lab.rename("/x", "/d/b"), Err(Error::QuotaExceeded));
    lab.verify();
}

#[test]
fn the_quota_of_a_directory_is_its_free_space() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    limit(&mut lab, "/d", QUOTA, "max_bytes=40960 max_inodes=4");
    lab.create("/d/a", 0o644).unwrap();
    lab.write("/d/a", 0, &[1; 3 * 4096]).unwrap();
    for path in ["/d", "/d/a"] {
        let stat = lab.at(path, |lab, node| match lab.ask(Ask::StatFs { node })? {
            Reply::StatFs(stat) => Ok(stat),
            other => panic!("{other:?}"),
        });
        let stat = stat.unwrap();
        assert_eq!((stat.blocks, stat.blocks_free, stat.blocks_available), (10, 7, 7));
        assert_eq!((stat.files, stat.files_free), (4, 2));
    }
    assert!(lab.stat_fs().blocks > 1000);
}

#[test]
fn quotas_are_for_root_and_are_not_listed() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o777).unwrap();
    lab.make_dir("/d/e", 0o777).unwrap();
    lab.create("/f", 0o666).unwrap();
    limit(&mut lab, "/d", QUOTA, "max_bytes=none max_inodes=100");
    let of_user = "trusted.upcall.quota.user.7";
    limit(&mut lab, "/", of_user, "max_bytes=5");
    let ino = lab.stat("/d").unwrap().inode;
    let all = get(&mut lab, "/", "trusted.upcall.quotas").unwrap();
    let lines = format!(
        "user=7 max_bytes=5 max_inodes=none used_bytes=0 used_inodes=0 state=enforced\n\
         inode={ino} max_bytes=none max_inodes=100 used_bytes=0 used_inodes=2 state=enforced\n"
    );
    assert_eq!(all, lines);
    let listed = lab.at("/d", |lab, node| lab.ask(Ask::ListAttrs { node }));
    assert!(matches!(listed, Ok(Reply::Bytes(names)) if names.is_empty()));
    for (path, attribute, value, error) in [
        ("/f", QUOTA, "", Error::NotDirectory),
        ("/d/e", QUOTA, "", Error::Invalid),
        ("/d", QUOTA, "max_bytes=x", Error::Invalid),
        ("/d", QUOTA, "bytes=1", Error::Invalid),
        ("/d", of_user, "", Error::Invalid),
        ("/", "trusted.upcall.quota.user.bob", "", Error::Invalid),
        ("/", "trusted.upcall.quota.user.07", "", Error::Invalid),
        ("/", "trusted.upcall.quota.user.4294967295", "", Error::Invalid),
        ("/", "trusted.upcall.quotas", "", Error::Invalid),
        ("/d", "trusted.upcall.other", "", Error::Invalid),
    ] {
        assert_eq!(set(&mut lab, path, attribute, value), Err(error), "{path} {attribute}");
    }
    assert_eq!(get(&mut lab, "/", "trusted.upcall.quotas.1").unwrap(), "");
    for (path, create, error) in [("/d", true, Error::Exists), ("/", false, Error::NoAttribute)] {
        let (name, value) = (QUOTA.as_bytes().to_vec(), Vec::new());
        let create = Some(create);
        let set = lab.at(path, |lab, node| lab.done(Ask::SetAttr { node, name, value, create }));
        assert_eq!(set, Err(error), "{path}");
    }
    assert_eq!(get(&mut lab, "/d/e", QUOTA), Err(Error::NoAttribute));
    assert_eq!(remove(&mut lab, "/d/e", QUOTA), Err(Error::NoAttribute));
    lab.caller = user(7, &[]);
    assert_eq!(set(&mut lab, "/d", QUOTA, ""), Err(Error::NotPermitted));
    assert_eq!(get(&mut lab, "/d", QUOTA), Err(Error::NoAttribute));
    lab.caller = root();
    lab.verify();
}

#[test]
fn without_its_quota_a_directory_is_like_others() {
    let mut lab = Lab::new();
    for dir in ["/d", "/d/e", "/f"] {
        lab.make_dir(dir, 0o755).unwrap();
    }
    lab.create("/d/e/a", 0o644).unwrap();
    limit(&mut lab, "/d/e", QUOTA, "max_inodes=2");
    limit(&mut lab, "/d", QUOTA, "max_inodes=2");
    assert_eq!(used(&mut lab, "/d", QUOTA), (0, 1), "the one beneath counts for itself");
    assert_eq!(lab.create("/d/e/b", 0o644), Err(Error::QuotaExceeded));
    remove(&mut lab, "/d/e", QUOTA).unwrap();
    // The limit above is enforced while these are counted for it.
    assert_eq!(lab.create("/d/more", 0o644), Err(Error::QuotaExceeded));
    lab.idle();
    assert_eq!(used(&mut lab, "/d", QUOTA), (0, 3));
    assert_eq!(lab.create("/d/e/b", 0o644), Err(Error::QuotaExceeded));
    remove(&mut lab, "/d", QUOTA).unwrap();
    lab.create("/d/e/b", 0o644).unwrap();
    lab.rename("/d/e", "/f/e").unwrap();
    // The removal of a directory removes its quota.
    limit(&mut lab, "/d", QUOTA, "max_inodes=2");
    lab.remove("/d").unwrap();
    assert_eq!(get(&mut lab, "/", "trusted.upcall.quotas").unwrap(), "");
    lab.verify();
    lab.check_disk();
}

fn somewhere(rng: &mut Rng) -> String {
    let depth = rng.usize(1..4);
    (0..depth).map(|_| format!("/{}", ["a", "b", "c"][rng.usize(..3)])).collect()
}

/// Performs a random request; many fail, which is just as good a test.
fn step(lab: &mut Lab, rng: &mut Rng) -> Result<(), Error> {
    let (one, two) = (somewhere(rng), somewhere(rng));
    let count = rng.usize(..3);
    turns(lab, count);
    match rng.u8(..16) {
        0..3 => lab.make_dir(&one, 0o777),
        3..5 => lab.create(&one, 0o666),
        5..7 => lab.write(&one, rng.u64(..100_000), &vec![1; rng.usize(1..60_000)]),
        7 => lab.resize(&one, rng.u64(..2_000_000)),
        8 => lab.remove(&one),
        9..11 => lab.rename(&one, &two),
        11 => lab.link(&one, &two),
        12 => lab.chown(&one, rng.u32(7..10), 7),
        13 => {
            let limit = format!("max_bytes={} max_inodes={}", rng.u64(..500_000), rng.u64(..20));
            set(lab, &one, QUOTA, &limit)
        }
        14 => remove(lab, &one, QUOTA),
        _rest => {
            let name = format!("trusted.upcall.quota.user.{}", rng.u32(7..10));
            match rng.bool() {
                true => set(lab, "/", &name, &format!("max_inodes={}", rng.u64(..20))),
                false => remove(lab, "/", &name),
            }
        }
    }
}

#[test]
fn in_any_order_all_that_is_used_is_counted() {
    let (mut done, mut exceeded) = (0, 0);
    for seed in 0..30 {
        let (mut rng, mut lab) = (seeded(seed), Lab::new());
        for round in 0..4 {
            for _ in 0..100 {
                match step(&mut lab, &mut rng) {
                    Ok(()) => done += 1,
                    Err(Error::QuotaExceeded) => exceeded += 1,
                    Err(_other) => {}
                }
            }
            match round % 2 {
                0 => lab.verify(),
                _odd => lab = interrupted(lab),
            }
        }
        lab.verify();
        lab.check_disk();
    }
    assert!(done > 2000 && exceeded > 30, "{done} {exceeded}");
}
