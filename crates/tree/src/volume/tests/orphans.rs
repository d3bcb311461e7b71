//! Files without names.

use super::*;

#[test]
fn a_file_lives_as_long_as_it_is_held() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, b"still here").unwrap();
    let (open, node) = (lab.open("/f", WRITE).unwrap(), lab.walk("/f").unwrap());
    lab.remove("/f").unwrap();
    assert_eq!(lab.read_open(open, 0, 100).unwrap(), b"still here");
    lab.write_open(open, 10, &vec![1; 100_000]).unwrap();
    assert_eq!((lab.stat_node(node).unwrap().links, lab.volume.counts().orphans), (0, 1));
    let ask = Ask::Link { node, dir: lab.volume.root(), name: name("again") };
    assert_eq!(lab.done(ask), Err(Error::NotFound));
    lab.verify();
    lab.close(open);
    lab.verify();
    assert_eq!(lab.volume.counts().orphans, 1);
    lab.release(node);
    lab.verify();
    assert_eq!(lab.volume.counts().orphans, 0);
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn orphans_are_freed_after_a_crash() {
    let mut lab = Lab::new();
    for n in 0..3 {
        let path = format!("/f{n}");
        lab.create(&path, 0o644).unwrap();
        lab.write(&path, 0, &vec![n; 2_000_000]).unwrap();
    }
    let open = lab.open("/f0", WRITE).unwrap();
    lab.remove("/f0").unwrap();
    lab.create("/victim", 0o644).unwrap();
    let dir = lab.walk("/f1").unwrap();
    lab.rename("/victim", "/f1").unwrap();
    lab.verify();
    assert_eq!((lab.volume.counts().orphans, lab.list("/")), (2, vec!["f1".into(), "f2".into()]));
    let _never = (open, dir);
    let mut lab = lab.reopen();
    lab.verify();
    assert_eq!(lab.stat_fs().files - lab.stat_fs().files_free, 3);
    assert_eq!(lab.blocks(), 2_000_000u64.div_ceil(4096));
}

#[test]
fn a_large_file_goes_piece_by_piece() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &vec![5; 30 << 20]).unwrap();
    lab.write("/f", 1 << 45, b"far").unwrap();
    lab.remove("/f").unwrap();
    assert_eq!(lab.volume.counts().reaper.0, "cutting");
    let mut turns = 0;
    while lab.volume.counts().reaper.0 != "idle" {
        turns += u32::from(lab.volume.reaper.task().is_some());
        assert!(lab.operate() || lab.tick());
    }
    assert!((4..100).contains(&turns), "{turns}");
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn holes_cost_the_reaper_nothing_in_a_file_of_any_size() {
    let mut lab = Lab::made(&usual(), World::with(512, 1 << 18));
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let far = |n: u64| n << 56 | n << 20;
    for n in 0..70 {
        lab.write_open(open, far(n), &vec![n as u8; 512 << 10]).unwrap();
    }
    assert!(lab.blocks() > 65_536);
    // First the truncated part of a file that still has a name, then the rest.
    lab.resize("/f", far(35) + 5).unwrap();
    let mut turns = 0;
    for gone in [false, true] {
        while lab.volume.counts().reaper.0 != "idle" {
            if !lab.operate() {
                turns += u32::from(lab.volume.reaper.task().is_some());
                assert!(turns < 2000, "it goes through the holes");
                assert!(lab.tick());
            }
        }
        assert!(gone || (35 * 1024..35 * 1024 + 10).contains(&lab.blocks()), "{}", lab.blocks());
        if !gone {
            lab.close(open);
            lab.remove("/f").unwrap();
        }
    }
    assert!(turns > 35, "a bounded part at a time");
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn a_disk_that_cannot_be_read_for_a_while_keeps_nothing_from_being_freed() {
    let mut lab = Lab::new();
    for n in 0..6u8 {
        let path = format!("/f{n}");
        lab.create(&path, 0o644).unwrap();
        lab.write(&path, 0, &vec![n; 8 << 20]).unwrap();
        lab.remove(&path).unwrap();
        lab.world.unreadable = true;
        for _ in 0..50 {
            lab.tick();
            while lab.operate() {}
        }
        lab.world.unreadable = false;
    }
    lab.idle();
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn orphans_are_found_despite_initial_read_errors() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &vec![5; 8 << 20]).unwrap();
    let _held = lab.open("/f", WRITE).unwrap();
    lab.remove("/f").unwrap();
    // So much that the table of orphans is in no cache after the next opening.
    (0..500).for_each(|n| lab.create(&format!("/n{n}"), 0o644).unwrap());
    let (now, mut out) = (lab.instant(), Vec::new());
    lab.volume.close(now, &mut out);
    lab.perform(out);
    while lab.volume.is_closed().is_none() {
        assert!(lab.operate() || lab.tick());
    }
    let store = lab.world.open();
    lab.world.unreadable = true;
    let mut lab = Lab::of(store, lab.world, 0);
    for _ in 0..20 {
        lab.tick();
        while lab.operate() {}
    }
    assert_eq!(lab.volume.counts().reaper.0, "resting");
    lab.world.unreadable = false;
    lab.idle();
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn a_file_without_a_name_is_cut_and_grows_like_any_other() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &vec![5; 12 << 20]).unwrap();
    let (open, node) = (lab.open("/f", WRITE).unwrap(), lab.walk("/f").unwrap());
    lab.remove("/f").unwrap();
    let size = |size| SetStat { size: Some(size), ..SetStat::default() };
    lab.done(Ask::SetStat { node, open: Some(open), set: size(10) }).unwrap();
    assert_eq!(lab.write_open(open, 100, b"x"), Ok(1));
    let mut model = vec![5; 10];
    model.resize(100, 0);
    model.push(b'x');
    assert_eq!(lab.read_open(open, 0, 200).unwrap(), model);
    lab.verify();
    // Larger than when it lost its name.
    for at in 0..5 {
        lab.write_open(open, (20 + at) << 20, &vec![6; 1 << 20]).unwrap();
    }
    lab.write_open(open, 1 << 40, b"far").unwrap();
    lab.verify();
    lab.close(open);
    lab.release(node);
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

/// Changes that were not synced may be lost, but never in part: after every power failure the
/// records are consistent.
#[test]
fn a_volume_whose_power_failed_at_any_time_fits_together() {
    let mut rng = base::rng::seeded(77);
    let mut lab = Lab::new();
    for round in 0..12u8 {
        for n in 0..rng.u8(1..30) {
            let path = format!("/f{}", rng.u8(..6));
            let size = [10, 5000, 200_000, 3 << 20][rng.usize(..4)];
            match rng.u8(..5) {
                0 => _ = lab.remove(&path),
                1 => _ = lab.rename(&path, &format!("/f{}", rng.u8(..6))),
                2 => _ = lab.resize(&path, size as u64),
                _write => {
                    _ = lab.create(&path, 0o644);
                    lab.write(&path, 0, &vec![n ^ round; size]).unwrap();
                }
            }
            if rng.u8(..4) == 0 {
                lab.operate();
                lab.tick();
            }
        }
        lab.ops.clear();
        lab = lab.crash();
        lab.verify();
    }
    lab.check_disk().verify();
}
