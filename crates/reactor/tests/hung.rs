//! A mount inside the served tree that does not answer, on both forms. Needs root and `bindfs`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{Done, Op, PathOp};
use base::{Access, Caller};
use rig::{is_root, name, on_both};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A FUSE file system that can be made to hang.
struct Mount {
    server: Child,
    at: PathBuf,
}

impl Mount {
    fn new(from: &Path, at: &Path) -> Option<Mount> {
        let mut command = Command::new("bindfs");
        command.arg("-f").args([from, at]).stderr(Stdio::null());
        let mut server = command.spawn().ok()?;
        for _ in 0..200 {
            if fs::metadata(at).ok()?.dev() != fs::metadata(from).ok()?.dev() {
                return Some(Mount { server, at: at.into() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = server.kill();
        let _ = server.wait();
        None
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        // Handles that the test left open would keep it alive.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_hung_mount_holds_up_only_who_asks_for_it() {
    if !is_root() {
        eprintln!("only root may mount: not tested");
        return;
    }
    on_both(|rig| {
        fs::create_dir(rig.path("source")).unwrap();
        fs::create_dir(rig.path("mount")).unwrap();
        fs::write(rig.path("source/f"), b"far").unwrap();
        fs::write(rig.path("near"), b"near").unwrap();
        let Some(mount) = Mount::new(&rig.path("source"), &rig.path("mount")) else {
            eprintln!("no bindfs here: not tested");
            return;
        };
        let far = rig.handle(&["mount"]);
        let near = rig.open(&["near"], Access::READ);
        let file = rig.open(&["mount", "f"], Access::READ);
        assert_eq!(rig.read(file, 0, 10).unwrap(), b"far");
        // Long enough for the kernel to forget the attributes it was told.
        std::thread::sleep(Duration::from_millis(1500));
        mount.signal(Signal::STOP);

        let root = rig.root;
        let path = |op| move |id| Op::Path { id, caller: Caller::Server, op };
        let names = vec![name("mount"), name("g")];
        let ids = [
            rig.start(path(PathOp::Walk { root, from: root, names })),
            rig.start(path(PathOp::Walk { root, from: far, names: vec![name("f")] })),
            rig.start(path(PathOp::Stat { file: far })),
            rig.start(path(PathOp::Stat { file })),
            rig.start(path(PathOp::Fetch {
                root,
                path: b"mount/f".to_vec(),
                read_max: 10,
                headroom: 0,
            })),
            rig.start(|id| Op::Read { id, file, offset: 1, count: 10, headroom: 0 }),
            rig.start(|id| Op::Sync { id, file, data_only: false }),
        ];
        let crowd: Vec<_> =
            (0..30).map(|_| rig.start(path(PathOp::StatFs { file: far }))).collect();
        let before = Instant::now();
        for _ in 0..10 {
            // This takes a thread of the pool.
            rig.path_op(PathOp::StatFs { file: near }).unwrap();
            assert_eq!(rig.read(near, 0, 10).unwrap(), b"near");
            let handle = rig.handle(&["near"]);
            rig.close(handle);
        }
        assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
        mount.signal(Signal::CONT);
        for id in ids.into_iter().chain(crowd) {
            match rig.finish(id) {
                Done::Path(result) => drop(result),
                Done::Read(read) => assert_eq!(&*read.unwrap(), b"ar"),
                Done::Synced(_) => {}
                other => panic!("{other:?}"),
            }
        }
        rig.close(far);
        rig.close(file);
    });
}
