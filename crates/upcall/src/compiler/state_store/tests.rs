//! A directory with foreign changes.

use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

/// A directory of the test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("upcall-state-store-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn put(key: Key, bytes: &[u8]) -> Change {
    Change { key, bytes: Some(bytes.to_vec()) }
}

fn name(text: &str) -> Key {
    Key::Name(text.parse().expect("a name"))
}

#[test]
fn saved_files_are_loaded_and_unknown_ones_left_alone() {
    let scratch = Scratch::new("foreign");
    let mut state_store = StateStore::find(&scratch.0).expect("nothing is there");
    assert!(!scratch.0.exists(), "it is made for the first thing that is kept");
    let hash = Hash::of(b"module");
    let changes =
        vec![put(Key::Module(hash), b"module"), put(name("wc"), b"{}"), put(name("x"), b"")];
    let kept = state_store.keep(ToStateStore { ticket: 7, changes });
    assert_eq!((kept.ticket, kept.result), (7, Ok(())));
    assert_eq!(state_store.module(hash).as_deref(), Some(&b"module"[..]));
    drop(state_store);

    std::fs::write(scratch.0.join("names/.new"), "half").expect("it is ours");
    std::fs::write(scratch.0.join("names/..bad"), "?").expect("it is ours");
    std::fs::remove_file(scratch.0.join("names/x")).expect("it is ours");
    std::os::unix::fs::symlink("/etc/passwd", scratch.0.join("names/x")).expect("a link");
    std::fs::write(scratch.0.join("modules/readme"), "?").expect("it is ours");
    let state_store = StateStore::make(&scratch.0).expect("it is free again");
    let mut informed = Vec::new();
    let stock = state_store.stock(&mut |text| informed.push(text));
    let label = "wc".parse().expect("a name");
    assert_eq!(stock.names, [(label, b"{}".to_vec())]);
    assert_eq!(stock.modules.into_iter().collect::<Vec<_>>(), [hash]);
    assert_eq!(informed.len(), 2, "{informed:?}");
    assert!(!scratch.0.join("names/.new").exists() && scratch.0.join("names/..bad").exists());
    std::fs::write(scratch.0.join("modules").join(hash.to_string()), "other").expect("it is ours");
    assert_eq!(state_store.module(hash), None, "its bytes are not those of its name");
}

#[test]
fn nobody_else_has_it_or_may_write_it() {
    let scratch = Scratch::new("lock");
    let state_store = StateStore::make(&scratch.0).expect("it is made");
    let why = StateStore::find(&scratch.0).err().expect("it is locked");
    assert!(why.contains("another server") && why.contains("--storelet-state"), "{why}");
    drop(state_store);
    std::fs::set_permissions(&scratch.0, Permissions::from_mode(0o777)).expect("it is ours");
    let why = StateStore::make(&scratch.0).err().expect("others may write it");
    assert!(why.contains("must not write"), "{why}");
}

#[test]
fn save_errors_are_reported() {
    let scratch = Scratch::new("full");
    let mut state_store = StateStore::make(&scratch.0).expect("it is made");
    std::fs::remove_dir(scratch.0.join("names")).expect("it is empty");
    let kept = state_store.keep(ToStateStore { ticket: 1, changes: vec![put(name("wc"), b"{}")] });
    let why = kept.result.expect_err("it cannot be written");
    assert!(why.contains("names/wc"), "{why}");
    let gone = Change { key: Key::RunHistory("wc".parse().expect("a name")), bytes: None };
    let kept = state_store.keep(ToStateStore { ticket: 2, changes: vec![gone] });
    assert_eq!(kept.result, Ok(()), "missing entries are gone");
}
