//! A volume in a file on a full disk: a small file system in a mount namespace.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{Scratch, get, put, volume};
use crate::volumes::{check, made, serve};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Environment variable with the file system of the process in its own mount namespace.
const INSIDE: &str = "UPCALL_TEST_FULL_DISK";

/// Writes until no storage is left.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let error = loop {
        if let Err(error) = file.write_all(&[1; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_volume_on_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let Some(mounted) = std::env::var_os(INSIDE) else {
        let dir = Scratch::new("full");
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let this = "full::a_volume_on_a_full_disk_says_so_and_goes_on_when_there_is_room";
        command.arg(std::env::current_exe().unwrap()).args(["--exact", this, "--nocapture"]);
        command.env(INSIDE, dir.path());
        assert!(command.status().expect("unshare of util-linux").success());
        return;
    };
    let mounted = Path::new(&mounted);
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(mounted);
    assert!(mount.status().unwrap().success());
    let dir = Scratch::in_dir(mounted, "volume");
    // Only root may listen on a Unix socket: without one it would become a user unknown to the user
    // namespace.
    let socket = format!("unix:{}/socket", dir.path().display());
    let serve = |path: &str| serve(path, &["--9p", &socket]);
    let path = made(&dir, &[]);
    let server = serve(&path);
    let body = vec![7; 300_000];
    put(server.http(), "/kept", &body).unwrap();
    server.kill();
    let filler = dir.path().join("filler");
    fill(&filler);
    let (code, text, errors) = volume(&["check", &path]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("the disk that holds the volume is full"), "{text}{errors}");

    std::fs::remove_file(&filler).unwrap();
    let server = serve(&path);
    assert!(server.greeting().contains("recovered"), "{}", server.greeting());
    fill(&filler);
    let mut answer = String::new();
    for round in 0..200 {
        answer = put(server.http(), &format!("/{round}"), &body).unwrap();
        if !answer.starts_with("HTTP/1.1 201 ") {
            break;
        }
    }
    assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
    assert!(get(server.http(), "/kept").starts_with("HTTP/1.1 200 OK\r\n"));
    server.kill();

    std::fs::remove_file(&filler).unwrap();
    check(&path);
    let server = serve(&path);
    let answer = put(server.http(), "/late", &body).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(server.end(), Some(0));
}
