//! Rollback of volumes to snapshots.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::ninep::Client;
use crate::server::{BINARY, Scratch, Server, delete, get, put, volume};
use crate::volumes::{check, json, made, serve};
use std::process::Command;
use std::time::{Duration, Instant};

/// Timeout of a server, and polling interval.
const LONG: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

/// Returns the names of a volume's snapshots.
fn snapshots(path: &str) -> Vec<String> {
    let (code, text, errors) = volume(&["info", path, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let name = |one: &serde_json::Value| one["name"].as_str().unwrap().to_string();
    json(&text)["snapshots"].as_array().unwrap().iter().map(name).collect()
}

/// Returns the bytes used in a served volume; a 16th of the space for files is reserved for
/// deletions.
fn used(server: &Server) -> u64 {
    let metrics = get(server.http(), "/.upcall/metrics");
    let value = |family: &str| -> u64 {
        let row = metrics.lines().find(|line| line.starts_with(family)).expect(family);
        row.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let size = value("upcall_volume_size_bytes{");
    (size - size / 16).saturating_sub(value("upcall_volume_free_bytes{"))
}

/// Returns a number from `info`.
fn fact(path: &str, name: &str) -> u64 {
    let (code, text, errors) = volume(&["info", path, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    json(&text)[name].as_u64().unwrap()
}

#[test]
fn a_volume_is_rolled_back_and_the_state_before_is_kept() {
    let dir = Scratch::new("rolled");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    put(server.http(), "/both", b"one\n").unwrap();
    put(server.http(), "/old", &vec![1; 300_000]).unwrap();
    let mut client = Client::connect(server.ninep());
    client.make_dir(".upcall/snapshots", "monday").unwrap();
    put(server.http(), "/both", b"two\n").unwrap();
    put(server.http(), "/new", &vec![2; 300_000]).unwrap();
    delete(server.http(), "/old").unwrap();
    let (code, _, errors) = volume(&["rollback", &path, "monday"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("stop the server first"), "{errors}");
    drop(client);
    assert_eq!(server.end(), Some(0));

    let (code, _, errors) = volume(&["rollback", &path, "tuesday"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("no such snapshot"), "{errors}");
    let (code, text, errors) = volume(&["rollback", &path, "monday"]);
    assert_eq!(code, Some(0), "{errors}");
    let before = text.trim_end().rsplit_once("snapshot ").unwrap().1.to_string();
    assert!(text.starts_with(&format!("rolled {path} back to snapshot monday\n")), "{text}");
    assert!(before.starts_with("before-monday-20"), "{text}");
    check(&path);

    let server = serve(&path, &[]);
    assert!(get(server.http(), "/both").ends_with("\r\n\r\none\n"));
    assert!(get(server.http(), "/old").len() > 300_000);
    assert!(get(server.http(), "/new").starts_with("HTTP/1.1 404 "));
    let kept = format!("/.upcall/snapshots/{before}");
    assert!(get(server.http(), &format!("{kept}/both")).ends_with("\r\n\r\ntwo\n"));
    assert!(get(server.http(), &format!("{kept}/old")).starts_with("HTTP/1.1 404 "));
    put(server.http(), "/both", b"three\n").unwrap();
    assert!(get(server.http(), "/.upcall/snapshots/monday/both").ends_with("\r\n\r\none\n"));
    assert_eq!(server.end(), Some(0));
    check(&path);

    // Back to the state before, which is a snapshot like any other.
    let (code, text, errors) = volume(&["rollback", &path, &before, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let third = json(&text)["before"].as_str().unwrap().to_string();
    let server = serve(&path, &[]);
    assert!(get(server.http(), "/both").ends_with("\r\n\r\ntwo\n"));
    assert!(get(server.http(), &format!("/.upcall/snapshots/{third}/both")).ends_with("three\n"));
    assert_eq!(server.end(), Some(0));
    for name in ["monday", &before, &third] {
        assert_eq!(volume(&["snapshot", &path, "drop", name]).0, Some(0), "{name}");
        check(&path);
    }
}

#[test]
fn a_rollback_of_a_replica_is_refused_and_leaves_no_snapshot() {
    let dir = Scratch::new("rolled-replica");
    let place = dir.path().to_str().unwrap();
    let args = ["replica", "init", "it", "--type", "log", "--members", "127.0.0.1:1"];
    let mut command = Command::new(BINARY);
    command.args(args).args(["--dir", place, "--size", "12M"]);
    assert!(command.output().unwrap().status.success());
    let path = format!("{place}/it.1.replica");
    let (code, _, errors) = volume(&["snapshot", &path, "create", "monday"]);
    assert_eq!(code, Some(0), "{errors}");
    let (code, text, errors) = volume(&["rollback", &path, "monday"]);
    assert_eq!((code, &text[..]), (Some(2), ""));
    assert!(errors.contains("has a replica of a service, which must not forget"), "{errors}");
    assert!(!errors.contains("before-"), "{errors}");
    let (code, text, errors) = volume(&["snapshot", &path, "list"]);
    assert_eq!((code, text.lines().count()), (Some(0), 1), "{text}{errors}");
    assert!(text.starts_with("monday  "), "{text}");
    check(&path);
}

#[test]
fn a_rollback_without_room_leaves_no_snapshot() {
    let dir = Scratch::new("rolled-full");
    let path = dir.path().join("v.volume").to_str().unwrap().to_string();
    let args = ["create", &path, "--size", "8M", "--journal", "512K", "--sparse"];
    assert_eq!(volume(&args).0, Some(0));
    let server = serve(&path, &[]);
    let mut number = 0;
    for length in [100_000, 9_000, 4_000] {
        let body = vec![7; length];
        while put(server.http(), &format!("/f{number}"), &body).unwrap().contains(" 201 ") {
            number += 1;
        }
    }
    assert_eq!(server.end(), Some(0));
    // Each snapshot takes some of the space reserved for deletions.
    let mut names = Vec::new();
    while fact(&path, "free_bytes") > 50 * 4096 {
        let name = format!("s{}", names.len());
        let (code, _, errors) = volume(&["snapshot", &path, "create", &name]);
        assert_eq!(code, Some(0), "{errors}");
        names.push(name);
    }
    let (code, text, errors) = volume(&["rollback", &path, "s0"]);
    assert_eq!((code, &text[..]), (Some(2), ""), "{errors}");
    assert!(errors.contains(" is full: delete something, or drop a snapshot"), "{errors}");
    assert!(!errors.contains("before-"), "{errors}");
    assert_eq!(snapshots(&path), names);
    check(&path);
}

#[test]
fn a_volume_grows_and_is_rolled_back_while_a_dropped_snapshot_is_worked_off() {
    let dir = Scratch::new("rolled-dropped");
    let path = dir.path().join("v.volume").to_str().unwrap().to_string();
    let args = ["create", &path, "--size", "16M", "--block", "512", "--sparse"];
    assert_eq!(volume(&args).0, Some(0));
    let server = serve(&path, &[]);
    let mut client = Client::connect(server.ninep());
    put(server.http(), "/stays", b"one\n").unwrap();
    client.make_dir(".upcall/snapshots", "stays").unwrap();
    let body = vec![7; 8000];
    for round in 0..2 {
        for number in 0..300 {
            put(server.http(), &format!("/f{number}"), &body).unwrap();
        }
        client.make_dir(".upcall/snapshots", &format!("dropped-{round}")).unwrap();
        for number in 0..300 {
            delete(server.http(), &format!("/f{number}")).unwrap();
        }
    }
    put(server.http(), "/stays", b"two\n").unwrap();
    drop(client);
    assert_eq!(server.end(), Some(0));

    // Small blocks have short keys.
    let (code, _, errors) = volume(&["snapshot", &path, "create", &"s".repeat(61)]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("is too long for the name of a snapshot there"), "{errors}");

    // Space of a snapshot is freed in steps, most of it when the volume is served again.
    let all = 300 * 8000;
    assert_eq!(volume(&["snapshot", &path, "drop", "dropped-0"]).0, Some(0));
    assert!(fact(&path, "used_bytes") > all, "{}", fact(&path, "used_bytes"));
    let (code, _, errors) = volume(&["grow", &path, "32M", "--sparse"]);
    assert_eq!(code, Some(0), "{errors}");
    check(&path);
    assert_eq!(volume(&["snapshot", &path, "drop", "dropped-1"]).0, Some(0));
    assert!(fact(&path, "used_bytes") > all, "{}", fact(&path, "used_bytes"));
    let (code, _, errors) = volume(&["rollback", &path, "stays"]);
    assert_eq!(code, Some(0), "{errors}");
    check(&path);

    let server = serve(&path, &[]);
    assert!(get(server.http(), "/stays").ends_with("\r\n\r\none\n"));
    // Freed space counts from the next checkpoint on; a snapshot does not wait for its regular
    // time.
    let (begun, mut client) = (Instant::now(), Client::connect(server.ninep()));
    for number in 0.. {
        if used(&server) <= all / 4 {
            break;
        }
        assert!(begun.elapsed() < LONG, "{} are used", used(&server));
        std::thread::sleep(LOOK);
        client.make_dir(".upcall/snapshots", &format!("look-{number}")).unwrap();
    }
    drop(client);
    assert_eq!(server.end(), Some(0));
    assert!(fact(&path, "used_bytes") <= all / 4, "{}", fact(&path, "used_bytes"));
    check(&path);
}
