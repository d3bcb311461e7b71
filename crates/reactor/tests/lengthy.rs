//! Work that takes the kernel long within one call: not on the node's thread, on both forms.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{ClientKey, Op, PathDone, PathOp};
use base::{Access, Error, Reactor};
use rig::on_both;
use std::fs;

/// A large file that has lost its last name is freed on the pool: that may take long.
#[test]
fn closing_the_last_reference_of_a_removed_file_frees_it_on_the_pool() {
    on_both(|rig| {
        for (size, is_removed, jobs) in
            [(200 << 10, true, 1), (200 << 10, false, 0), (4 << 10, true, 0)]
        {
            fs::write(rig.path("f"), vec![1; size]).unwrap();
            let file = rig.open(&["f"], Access::READ);
            if is_removed {
                fs::remove_file(rig.path("f")).unwrap();
            }
            let jobs_of = |rig: &rig::Rig| {
                let pool = rig.world.statistics().pool;
                pool.started + pool.queued as u64
            };
            let before = jobs_of(rig);
            rig.world.submit(Op::CloseFile { file, client: ClientKey::NOBODY });
            assert_eq!(jobs_of(rig) - before, jobs, "{size} bytes, removed: {is_removed}");
        }
    });
}

/// Until then the descriptor is in use, for the client whose file it was.
#[test]
fn a_close_on_the_pool_is_reported_until_the_descriptor_is_free() {
    on_both(|rig| {
        for client in [ClientKey(7), ClientKey(8)] {
            fs::write(rig.path("f"), vec![1; 200 << 10]).unwrap();
            let file = rig.open(&["f"], Access::READ);
            fs::remove_file(rig.path("f")).unwrap();
            rig.world.submit(Op::CloseFile { file, client });
            assert_eq!(rig.next_closing(), (client, true));
            assert_eq!(rig.next_closing(), (client, false));
            let link = format!("/proc/self/fd/{}", file.0);
            let target = fs::read_link(link);
            assert!(target.is_err() || !target.unwrap().starts_with(&rig.dir), "it is closed");
        }
    });
}

/// The kernel follows 40 links of 4,000 bytes at once, which takes milliseconds: not on the node's
/// thread.
#[test]
fn paths_through_long_links_are_long_jobs() {
    on_both(|rig| {
        fs::create_dir(rig.path("d")).unwrap();
        fs::write(rig.path("d/f"), b"contents").unwrap();
        std::os::unix::fs::symlink("d", rig.path("short")).unwrap();
        std::os::unix::fs::symlink("short/", rig.path("other")).unwrap();
        let long = format!("{}d", "d/../".repeat(100));
        std::os::unix::fs::symlink(long, rig.path("long")).unwrap();
        let many = format!("{}d", "d/../".repeat(40));
        std::os::unix::fs::symlink(many, rig.path("many")).unwrap();
        let root = rig.root;
        for (path, is_inline) in
            [("d/f", 1), ("short/f", 1), ("other/f", 1), ("long/f", 0), ("many/f", 0)]
        {
            let before = rig.world.statistics().paths_inline;
            let path = path.as_bytes().to_vec();
            let op = PathOp::Fetch { root, path: path.clone(), read_max: 100, headroom: 0 };
            match rig.path_op(op) {
                Ok(PathDone::Fetched(_, buf, _)) => assert_eq!(&*buf, b"contents"),
                other => panic!("{other:?}"),
            }
            let inline = rig.world.statistics().paths_inline - before;
            assert_eq!(inline, is_inline, "{}", String::from_utf8_lossy(&path));
        }
        // A loop is the kernel's to find.
        std::os::unix::fs::symlink("loop", rig.path("loop")).unwrap();
        let op = PathOp::Fetch { root, path: b"loop".to_vec(), read_max: 9, headroom: 0 };
        assert_eq!(rig.path_op(op).unwrap_err(), Error::Loop);
    });
}
