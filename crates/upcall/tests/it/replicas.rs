//! Replicas as a person meets them: made, filled, put into larger files.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{BINARY, Scratch, Server};
use std::process::Command;

/// Runs a command; whether it was well, and all that it says.
fn say(args: &[&str]) -> (bool, String) {
    let output = Command::new(BINARY).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// The files of the replicas of a new service.
fn made(dir: &Scratch, kind: &str, members: &[&str], size: &str) -> Vec<String> {
    let place = dir.path().to_str().unwrap();
    let args = ["replica", "init", "it", "--type", kind, "--members", &members.join(",")];
    let (well, said) = say(&[&args[..], &["--dir", place, "--size", size]].concat());
    assert!(well, "{said}");
    (1..=members.len()).map(|id| format!("{place}/it.{id}.replica")).collect()
}

/// Serves a replica beside an empty directory.
fn serve(dir: &Scratch, file: &str) -> Server {
    Server::start(dir.path(), &["--replica", file])
}

/// Does an operation at a server.
fn op(server: &Server, words: &[&str]) -> (bool, String) {
    say(&[&["op", "--at", server.ninep(), "it"], words].concat())
}

#[test]
fn a_full_replica_goes_on_in_a_larger_file() {
    let dir = Scratch::new("growing");
    let file = &made(&dir, "log", &["127.0.0.1:1"], "12M")[0];
    let server = serve(&dir, file);
    let record = "x".repeat(60_000);
    let (mut count, mut said) = (0, String::new());
    while !said.contains("the volume of this replica is full") {
        let (well, text) = op(&server, &["append", &record]);
        assert_eq!(well, !text.contains("full"), "{text}");
        count += u32::from(well);
        said = text;
    }
    assert!(said.contains("upcall replica grow FILE"), "{said}");
    assert!(count > 20, "{count}");
    let grow = |size| say(&["replica", "grow", file, "--size", size]);
    let (well, said) = grow("64M");
    assert!(!well && said.contains("in use by another process"), "{said}");
    assert_eq!(server.end(), Some(0));
    let (well, said) = grow("8M");
    assert!(!well && said.contains("say a larger --size"), "{said}");
    let (well, said) = grow("64M");
    assert!(well && said.contains("64 MiB now"), "{said}");
    let server = serve(&dir, file);
    assert_eq!(op(&server, &["size"]).1.split_whitespace().next(), Some(&*count.to_string()));
    assert!(op(&server, &["append", &record]).0);
    // Nothing is left beside it.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
