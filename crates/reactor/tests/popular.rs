//! Files that are fetched again and again, whose contents the reactor holds.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests of the real world")]

mod rig;

use base::Reactor as _;
use base::op::{PathDone, PathOp};
use rig::on_both;
use std::fs;
use std::os::unix::fs::FileExt as _;

/// Contents of a file that has not changed for seconds are held, until its attributes change.
#[test]
fn a_fetch_sees_each_change_of_a_popular_file() {
    on_both(|rig| {
        let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
        names.iter().for_each(|name| fs::write(rig.path(name), b"before").unwrap());
        let get = |rig: &mut rig::Rig, name: &str| {
            let (root, path) = (rig.root, name.into());
            match rig.path_op(PathOp::Fetch { root, path, read_max: 4096, headroom: 100 }) {
                Ok(PathDone::Fetched(stat, buf, None)) => (stat.changed, buf.to_vec()),
                other => panic!("{other:?}"),
            }
        };
        let (last, _) = get(rig, "f19");
        while rig.world.wall().secs <= last.secs + 4 {
            std::thread::yield_now();
        }
        for name in &names {
            assert!((0..3).all(|_| get(rig, name).1 == b"before"));
            let file = fs::File::options().write(true).open(rig.path(name)).unwrap();
            file.write_all_at(b"behind", 0).unwrap();
            assert_eq!(get(rig, name).1, b"behind");
        }
    });
}
