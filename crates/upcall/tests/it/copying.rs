//! Trees of files copied into a volume and out of it.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::server::{BINARY, Scratch, volume};
use crate::volumes::made;
use rustix::fs::XattrFlags;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Creates a tree with every kind of file that this user may create.
fn plant(top: &Path) {
    let make = |name: &str, bytes: &[u8]| std::fs::write(top.join(name), bytes).unwrap();
    std::fs::create_dir_all(top.join("sub/deep")).unwrap();
    make("empty", b"");
    make("small", b"small\n");
    make("sub/large", &(0..3 << 20).map(|n: u32| (n / 7) as u8).collect::<Vec<_>>());
    make("sub/deep/odd", &[9; 4097]);
    std::fs::hard_link(top.join("small"), top.join("sub/same")).unwrap();
    symlink("../nowhere", top.join("sub/link")).unwrap();
    symlink("x".repeat(300), top.join("long")).unwrap();
    let sparse = std::fs::File::create(top.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 5 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
    use std::os::unix::ffi::OsStrExt as _;
    std::fs::write(top.join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")), "x").unwrap();
    std::fs::set_permissions(top.join("small"), PermissionsExt::from_mode(0o4751)).unwrap();
    let run = |args: &[&str]| {
        Command::new(args[0]).args(&args[1..]).current_dir(top).stderr(Stdio::null()).status()
    };
    assert!(run(&["mkfifo", "pipe"]).unwrap().success());
    let _ = run(&["mknod", "device", "c", "1", "3"]);
    let small = top.join("small");
    rustix::fs::setxattr(&small, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    let _ = run(&["chown", "1234:77", "sub/deep/odd"]);
    let dates = ["touch", "-hd", "2001-02-03 04:05:06.789012345", "small", "sub/link", "sub/deep"];
    assert!(run(&dates).unwrap().success());
}

/// Describes everything that a copy keeps, a line a file.
fn describe(top: &Path) -> String {
    fn visit(path: &Path, top: &Path, lines: &mut Vec<String>) {
        let meta = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(top).unwrap();
        let size = if meta.is_dir() { 0 } else { meta.size() };
        let same = if meta.is_dir() { 0 } else { meta.nlink() };
        let target = std::fs::read_link(path).ok();
        lines.push(format!(
            "{name:?} {:o} {}:{} {size} {same} {} {}.{:09} {target:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.rdev(),
            meta.mtime(),
            meta.mtime_nsec()
        ));
        if meta.is_file() {
            lines.push(format!(
                "{:?}",
                std::fs::read(path)
                    .unwrap()
                    .iter()
                    .fold(0u64, |sum, b| { sum.wrapping_mul(31).wrapping_add(u64::from(*b)) })
            ));
            let mut value = [0; 64];
            let colour = rustix::fs::getxattr(path, "user.colour", &mut value);
            lines.push(format!("{colour:?} {value:?}"));
        }
        if meta.is_dir() {
            let mut all: Vec<_> =
                std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            all.sort();
            all.iter().for_each(|path| visit(path, top, lines));
        }
    }
    let mut lines = Vec::new();
    visit(top, top, &mut lines);
    lines.join("\n")
}

fn copy(from: &str, to: &str) -> String {
    let (code, text, errors) = volume(&["copy", from, to]);
    assert_eq!(code, Some(0), "{text}{errors}");
    text
}

#[test]
fn a_tree_that_went_in_comes_out_as_it_was() {
    let dir = Scratch::new("in-out");
    for block in ["4096", "512"] {
        let volume_dir = Scratch::new(&format!("in-out-{block}"));
        let path = made(&volume_dir, &["--block", block]);
        let from = dir.path().join(format!("from-{block}"));
        plant(&from);
        let (from, to) = (from.to_str().unwrap(), format!("{path}:/tree"));
        let text = copy(from, &to);
        assert!(text.contains("; 1 further name"), "{text}");
        assert_eq!(volume(&["snapshot", &path, "create", "kept"]).0, Some(0));
        let out = dir.path().join(format!("out-{block}"));
        copy(&to, out.to_str().unwrap());
        assert_eq!(describe(Path::new(from)), describe(&out));
        let blocks = out.join("sparse").metadata().unwrap().blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks} blocks of a file that is a hole");

        let again = copy(from, &to);
        assert!(again.starts_with("copied 0 files, 0 directories, 0 bytes"), "{again}");
        let again = copy(&to, out.to_str().unwrap());
        assert!(again.starts_with("copied 0 files, 0 directories, 0 bytes"), "{again}");

        // Changed files are copied again; the snapshot has the old contents.
        std::fs::write(Path::new(from).join("empty"), "not any more").unwrap();
        let text = copy(from, &to);
        assert!(text.starts_with("copied 1 file, 0 directories, 12 bytes"), "{text}");
        let old = dir.path().join(format!("old-{block}"));
        copy(&format!("{path}:/.upcall/snapshots/kept/tree"), old.to_str().unwrap());
        assert_eq!(std::fs::read(old.join("empty")).unwrap(), b"");
        assert_eq!(volume(&["check", &path]).0, Some(0));
    }
}

#[test]
fn single_files_and_roots_are_copied_too() {
    let dir = Scratch::new("single");
    let path = made(&dir, &[]);
    let file = dir.path().join("one");
    std::fs::write(&file, "one\n").unwrap();
    let file = file.to_str().unwrap();
    copy(file, &format!("{path}:/renamed"));
    copy(file, &format!("{path}:/"));
    let out = dir.path().join("out");
    copy(&format!("{path}:/"), out.to_str().unwrap());
    assert_eq!(std::fs::read(out.join("renamed")).unwrap(), b"one\n");
    assert_eq!(std::fs::read(out.join("one")).unwrap(), b"one\n");
    copy(&format!("{path}:/renamed"), dir.path().join("out2").to_str().unwrap());
    assert_eq!(std::fs::read(dir.path().join("out2")).unwrap(), b"one\n");

    let (code, text, _) = volume(&["copy", file, &format!("{path}:/one"), "--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["skipped"], &report["files"]), (Some(0), &1.into(), &0.into()));
    let cases = [
        (format!("{path}:/no"), "x", "choose an existing path"),
        (file.to_string(), "VOLUME:/no/where", "copy to a directory that exists"),
        (file.to_string(), "VOLUME:/.upcall/x", "/.upcall is read-only"),
        ("/no/such".to_string(), "VOLUME:/x", "choose an existing path"),
        (file.to_string(), "no.volume:/x", "create it with 'upcall volume create no.volume'"),
    ];
    for (from, to, advice) in cases {
        let (code, _, errors) = volume(&["copy", &from, &to.replace("VOLUME", &path)]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(advice), "{errors}");
    }
}

#[test]
fn a_slash_at_the_end_of_a_target_means_a_directory() {
    let dir = Scratch::new("slash");
    let path = made(&dir, &[]);
    let (file, sub) = (dir.path().join("one"), dir.path().join("sub"));
    std::fs::write(&file, "one\n").unwrap();
    std::fs::create_dir(&sub).unwrap();
    let file = file.to_str().unwrap();
    copy(sub.to_str().unwrap(), &format!("{path}:/dir"));
    copy(file, &format!("{path}:/dir/"));
    copy(&format!("{path}:/dir/one"), &format!("{}/", sub.display()));
    assert_eq!(std::fs::read(sub.join("one")).unwrap(), b"one\n");
    copy(&format!("{path}:/dir/"), &format!("{}/", dir.path().join("tree").display()));
    assert!(dir.path().join("tree/one").exists());
    let inside = format!("{path}:/dir/one");
    for (from, to, cause) in [
        (file, format!("{path}:/no/"), "no such directory"),
        (file, format!("{path}:/dir/one/"), "not a directory"),
        (&inside, format!("{}/no/", dir.path().display()), "no such directory"),
        (&inside, format!("{file}/"), "not a directory"),
    ] {
        let (code, _, errors) = volume(&["copy", from, &to]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(&format!("cannot copy a file into {to}: {cause}")), "{errors}");
    }
    assert_eq!(volume(&["check", &path]).0, Some(0));
}

#[test]
fn a_volume_is_not_copied_into_itself() {
    let dir = Scratch::new("itself");
    let path = made(&dir, &[]);
    std::fs::write(dir.path().join("other"), "x").unwrap();
    let (code, text, errors) =
        volume(&["copy", dir.path().to_str().unwrap(), &format!("{path}:/all")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(errors.contains("/v.volume: it is the volume itself"), "{errors}");
    assert!(text.starts_with("copied 1 file, 1 directory"), "{text}");
}

/// Returns the number of bytes that a process has written to files.
fn bytes_written(pid: u32) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    count.unwrap().parse().unwrap()
}

#[test]
fn an_interrupted_copy_goes_on_where_it_ended() {
    const FILES: u64 = 1500;
    const SIZE: u64 = 20_000;
    let dir = Scratch::new("resumed");
    let path = made(&dir, &[]);
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for number in 0..FILES {
        std::fs::write(from.join(format!("f{number}")), vec![number as u8; SIZE as usize]).unwrap();
    }
    let (from_text, to) = (from.to_str().unwrap(), format!("{path}:/copy"));
    // The lowest priority: on a busy machine the copy waits for this test, not the reverse.
    let mut command = Command::new("nice");
    command.args(["-n", "19", BINARY, "volume", "copy", from_text, &to, "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // No other process may open the volume meanwhile. Files are copied one after the other, so
    // the first ones are there once more bytes than those of ten files are written.
    while bytes_written(child.id()) < 10 * SIZE {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it wrote the files");
        std::thread::sleep(Duration::from_micros(500));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let first: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{first}");
    assert_eq!(first["interrupted"], true, "{first}");
    let copied = first["files"].as_u64().unwrap();
    assert!((1..FILES).contains(&copied), "{first}");
    let (code, text, _) = volume(&["copy", from_text, &to, "--json"]);
    let second: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(second["skipped"], copied, "{first} {second}");
    assert_eq!(second["files"], FILES - copied, "{first} {second}");
    let out = dir.path().join("out");
    copy(&to, out.to_str().unwrap());
    assert_eq!(describe(&from), describe(&out));
    assert_eq!(volume(&["check", &path]).0, Some(0));
}

/// Eight tebibytes of holes around a few bytes, in and out: holes are never read.
#[test]
fn a_hole_of_any_length_is_not_read() {
    let dir = Scratch::new("long-holes");
    let path = made(&dir, &[]);
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    let file = std::fs::File::create(from.join("sparse")).unwrap();
    for (at, bytes) in [(0, "start"), (5 << 40, "middle"), ((5 << 40) + (1 << 20), "more")] {
        std::os::unix::fs::FileExt::write_all_at(&file, bytes.as_bytes(), at).unwrap();
    }
    file.set_len(8 << 40).unwrap();
    let (from, inside) = (from.to_str().unwrap(), format!("{path}:/tree"));
    copy(from, &inside);
    let out = dir.path().join("out");
    copy(&inside, out.to_str().unwrap());
    let copied = std::fs::File::open(out.join("sparse")).unwrap();
    let (size, blocks) = (copied.metadata().unwrap().len(), copied.metadata().unwrap().blocks());
    assert!(size == 8 << 40 && blocks * 512 < 1 << 20, "{size} bytes, {blocks} blocks");
    let read = |at: u64| {
        let mut bytes = [9; 8];
        std::os::unix::fs::FileExt::read_exact_at(&copied, &mut bytes, at).unwrap();
        bytes
    };
    assert_eq!(read(0), *b"start\0\0\0");
    assert_eq!(read(5 << 40), *b"middle\0\0");
    assert_eq!(read((5 << 40) + (1 << 20)), *b"more\0\0\0\0");
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let dir = Scratch::new("full");
    let path = dir.path().join("full.volume").to_str().unwrap().to_string();
    assert_eq!(volume(&["create", &path, "--size", "8M", "--journal", "1M"]).0, Some(0));
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for number in 0..12 {
        std::fs::write(from.join(format!("f{number:02}")), vec![1; 1 << 20]).unwrap();
    }
    let (code, _, errors) = volume(&["copy", from.to_str().unwrap(), &format!("{path}:/from")]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("no space left on device: delete something"), "{errors}");
    assert_eq!(volume(&["check", &path]).0, Some(0));
}
