//! A directory with foreign changes.

use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use wasi::{Engine, Pace};

/// A directory of the test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("upcall-cache-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn open(&self) -> Result<Cache, String> {
        Cache::open(&self.0)
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let path = self.0.join(name);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    fn refused(&self) -> String {
        self.open().err().expect("it is refused")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o777
}

/// Artifacts under names of their own, for one engine.
struct Forge(Engine);

impl Forge {
    fn new() -> Forge {
        Forge(Engine::compiler(Pace::Ticks).expect("an engine"))
    }

    fn make(&self, name: u8) -> Artifact {
        let empty = b"\0asm\x01\0\0\0";
        self.0.precompile(Hash([name; 32]), empty).expect("it compiles")
    }

    fn find(&self, cache: &Cache, name: u8) -> Option<Artifact> {
        cache.find(Hash([name; 32]), self.0.compatibility())
    }

    fn path(&self, cache: &Cache, name: u8) -> PathBuf {
        cache.path(Hash([name; 32]), self.0.compatibility())
    }
}

#[test]
fn cached_artifacts_are_found_after_a_restart() {
    let (scratch, forge) = (Scratch::new("kept"), Forge::new());
    let cache = scratch.open().expect("it opens");
    assert!(forge.find(&cache, 3).is_none());
    cache.keep(forge.make(3));
    for cache in [cache, scratch.open().expect("it opens")] {
        let found = forge.find(&cache, 3).expect("it was kept");
        assert_eq!(found.name(), Hash([3; 32]));
        assert!(forge.0.load(&found).is_ok());
    }
    assert_eq!((mode(&scratch.0), mode(&scratch.0.join(KEY))), (0o700, 0o600));
    // For another engine it does not exist.
    let other = scratch.open().expect("it opens").find(Hash([3; 32]), Hash([1; 32]));
    assert!(other.is_none());
}

#[test]
fn altered_artifacts_are_replaced() {
    let (scratch, forge) = (Scratch::new("changed"), Forge::new());
    let cache = scratch.open().expect("it opens");
    cache.keep(forge.make(3));
    let path = forge.path(&cache, 3);
    let whole = std::fs::read(&path).expect("it was kept");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for bytes in [&changed[..], &whole[..whole.len() - 1], b""] {
        std::fs::write(&path, bytes).expect("it is ours");
        assert!(forge.find(&cache, 3).is_none());
    }
    cache.keep(forge.make(3));
    assert!(forge.find(&cache, 3).is_some());
    std::fs::copy(&path, forge.path(&cache, 4)).expect("it is ours");
    assert!(forge.find(&cache, 4).is_none());
    // The target of a link may belong to anyone.
    std::fs::rename(&path, scratch.0.join("elsewhere")).expect("it is ours");
    std::os::unix::fs::symlink("elsewhere", &path).expect("it is ours");
    assert!(forge.find(&cache, 3).is_none());
}

#[test]
fn artifacts_of_another_directory_are_not_believed() {
    let forge = Forge::new();
    let (one, two) = (Scratch::new("one"), Scratch::new("two"));
    let (from, to) = (one.open().expect("it opens"), two.open().expect("it opens"));
    from.keep(forge.make(3));
    std::fs::copy(forge.path(&from, 3), forge.path(&to, 3)).expect("it is ours");
    assert!(forge.find(&to, 3).is_none());
}

#[test]
fn a_directory_that_others_write_is_refused() {
    let scratch = Scratch::new("refused");
    scratch.open().expect("it is made");
    scratch.set_mode("", 0o770);
    assert!(scratch.refused().contains("others must not write to it; name a directory"));
    scratch.set_mode("", 0o755);
    scratch.open().expect("others may look");
    scratch.set_mode(KEY, 0o640);
    assert!(scratch.refused().contains("others may read its file key: remove the directory"));
    scratch.set_mode(KEY, 0o600);
    std::fs::write(scratch.0.join(KEY), "short").expect("it is ours");
    assert!(scratch.refused().contains("its file key is broken: remove it"));
    std::fs::remove_file(scratch.0.join(KEY)).expect("it is ours");
    scratch.open().expect("it gets a new one");
}

#[test]
fn the_least_recently_used_artifact_is_evicted() {
    let (scratch, forge) = (Scratch::new("room"), Forge::new());
    let mut cache = scratch.open().expect("it opens");
    let one = forge.make(1).seal(&cache.key).len() as u64;
    cache.bytes_max = 3 * one;
    let age = |name: u8, secs: i64| {
        let file = File::open(forge.path(&cache, name)).expect("it was kept");
        let at = Timespec { tv_sec: secs, tv_nsec: 0 };
        let times = Timestamps { last_access: at, last_modification: at };
        rustix::fs::futimens(file, &times).expect("it is ours");
    };
    for name in 1..=3 {
        cache.keep(forge.make(name));
        age(name, name.into());
    }
    assert!(forge.find(&cache, 1).is_some(), "which makes it the last one used");
    cache.keep(forge.make(4));
    let there = [1, 2, 3, 4].map(|name| forge.find(&cache, name).is_some());
    assert_eq!(there, [true, false, true, true]);
}
