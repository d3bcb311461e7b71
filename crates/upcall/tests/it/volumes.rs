//! End-to-end tests of volumes: created, served, killed, checked.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::ninep::Client;
use crate::server::{BINARY, Scratch, Server, delete, get, put, upcall, volume};
use serde_json::Value;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PORTS: [&str; 4] = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// Creates a volume of 64 MiB; returns its path.
pub(crate) fn made(dir: &Scratch, args: &[&str]) -> String {
    let path = dir.path().join("v.volume").to_str().unwrap().to_string();
    let (code, text, errors) =
        volume(&[&["create", &path, "--size", "64M", "--sparse"], args].concat());
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.contains(&format!("created {path}, 64 MiB")), "{text}");
    path
}

pub(crate) fn serve(path: &str, args: &[&str]) -> Server {
    let own = String::from_utf8(Command::new("id").arg("-u").output().unwrap().stdout).unwrap();
    let who = ["--as", own.trim(), "--http-write"];
    Server::with(&[&[path][..], &PORTS, &who, args].concat())
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn check(path: &str) {
    let (code, text, errors) = volume(&["check", path]);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.ends_with("nothing is wrong\n"), "{text}");
}

/// Flips one bit in every occurrence of these bytes behind the journal.
pub(crate) fn flip(path: &str, bytes: &[u8]) -> usize {
    let all = std::fs::read(path).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    // Superblocks, a journal of 4 MiB, maps.
    let from = 1066 * 4096;
    let mut found = 0;
    for start in (from..all.len()).step_by(4096) {
        let end = all.len().min(start + 4096 + bytes.len() - 1);
        let block = &all[start..end];
        // Most of a volume is empty.
        if block == &[0; 8192][..block.len()] {
            continue;
        }
        for (at, _) in block.windows(bytes.len()).enumerate().filter(|(_, some)| *some == bytes) {
            file.write_all_at(&[bytes[0] ^ 1], (start + at) as u64).unwrap();
            found += 1;
        }
    }
    found
}

#[test]
fn copied_files_are_served_from_a_volume() {
    for form in ["uring", "threads"] {
        let dir = Scratch::new("served");
        let path = made(&dir, &[]);
        let server = serve(&path, &["--reactor", form]);
        let text = server.greeting().to_string();
        assert!(text.contains(&format!("serving  {path}, read-write")), "{text}");
        assert!(text.contains("volume   64 MiB, "), "{text}");
        assert!(text.contains(" used, 1 file, 0 snapshots, epoch 2\n"), "{text}");
        let answer = put(server.http(), "/hello", b"hello\n").unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        let mut client = Client::connect(server.ninep());
        assert_eq!(client.read("hello").unwrap(), b"hello\n");
        client.make_dir("", "sub").unwrap();
        assert!(get(server.http(), "/.upcall/machines").contains("journal"));
        drop(client);
        assert_eq!(server.end(), Some(0));

        let server = serve(&path, &["--read-only"]);
        assert!(server.greeting().contains("read-only"), "{}", server.greeting());
        assert!(server.greeting().contains("3 files"), "{}", server.greeting());
        assert!(get(server.http(), "/hello").ends_with("\r\n\r\nhello\n"));
        assert_eq!(server.end(), Some(0));
        check(&path);
    }
}

#[test]
fn a_volume_is_made_where_it_is_named_and_found_without_a_word() {
    let dir = Scratch::new("default");
    let command = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.current_dir(dir.path()).arg("serve").args(words).args(PORTS);
        command
    };
    let refused = command(&[]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("nothing to serve; use 'upcall serve DIR'"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
    let server = Server::run(&mut command(&["upcall.volume"]));
    let text = server.greeting();
    assert!(text.starts_with("created  upcall.volume, "), "{text}");
    assert!(text.contains("upcall.volume, read-write\n"), "{text}");
    assert_eq!(server.end(), Some(0));
    let server = Server::run(&mut command(&[]));
    assert!(server.greeting().starts_with("serving  "), "{}", server.greeting());
    assert_eq!(server.end(), Some(0));
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let dir = Scratch::new("killed");
    let path = made(&dir, &["--journal", "1M"]);
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..6usize {
        let server = serve(&path, &["--cache", "8"]);
        for name in acknowledged.iter().step_by(7) {
            let answer = get(server.http(), &format!("/{name}"));
            assert!(answer.ends_with(&contents(name)), "{name}: {answer}");
        }
        let address = server.http().to_string();
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let address = address.clone();
                std::thread::Builder::new().spawn(move || write(&address, round, writer)).unwrap()
            })
            .collect();
        std::thread::sleep(Duration::from_millis(150 + 60 * round as u64));
        server.kill();
        acknowledged.extend(writers.into_iter().flat_map(|writer| writer.join().unwrap()));
    }
    assert!(acknowledged.len() > 20, "{} files", acknowledged.len());
    let (code, text, errors) = volume(&["check", &path]);
    assert_eq!(code, Some(0), "{text}{errors}");
    let server = serve(&path, &[]);
    for name in &acknowledged {
        let answer = get(server.http(), &format!("/{name}"));
        assert!(answer.ends_with(&contents(name)), "{name}: {answer}");
    }
    assert_eq!(server.end(), Some(0));
    check(&path);
}

#[test]
fn a_removal_that_was_acknowledged_survives_a_kill() {
    let dir = Scratch::new("deleted");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    let rounds = 4;
    for round in 0..rounds {
        let answer = put(server.http(), &format!("/file-{round}"), b"contents").unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    assert_eq!(server.end(), Some(0));
    for round in 0..rounds {
        let server = serve(&path, &[]);
        let answer = delete(server.http(), &format!("/file-{round}")).unwrap();
        server.kill();
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        let server = serve(&path, &[]);
        let answer = get(server.http(), &format!("/file-{round}"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{round} is there again: {answer}");
        assert_eq!(server.end(), Some(0));
    }
    check(&path);
}

fn contents(name: &str) -> String {
    format!("{name}\n").repeat(name.len() * 37)
}

/// Puts files until the server is gone; returns the acknowledged ones.
fn write(address: &str, round: usize, writer: usize) -> Vec<String> {
    let mut done = Vec::new();
    for number in 0.. {
        let name = format!("file-{round}-{writer}-{number}");
        match put(address, &format!("/{name}"), contents(&name).as_bytes()) {
            Some(line) if line.starts_with("HTTP/1.1 201 ") => done.push(name),
            _ => break,
        }
    }
    done
}

#[test]
fn a_volume_is_served_once_and_says_so() {
    let dir = Scratch::new("twice");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    let (code, text) = upcall(&[&path]);
    assert_eq!((code, text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("in use by another process"), "{text}");
    let inside = format!("{path}:/e");
    let (code, _, errors) = volume(&["copy", "/etc", &inside]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("look at /.upcall/ in the served tree"), "{errors}");
    let (code, _, errors) = volume(&["snapshot", &path, "create", "s"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("'mkdir /.upcall/snapshots/s'"), "{errors}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn snapshots_are_made_offline_and_over_9p_and_read_over_http() {
    let dir = Scratch::new("snapshots");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    put(server.http(), "/f", b"one\n").unwrap();
    let mut client = Client::connect(server.ninep());
    client.make_dir(".upcall/snapshots", "first").unwrap();
    assert!(client.make_dir(".upcall/snapshots", "first").is_err());
    put(server.http(), "/f", b"two\n").unwrap();
    assert!(get(server.http(), "/.upcall/snapshots/first/f").ends_with("\r\n\r\none\n"));
    assert_eq!(client.read(".upcall/snapshots/first/f").unwrap(), b"one\n");
    assert!(get(server.http(), "/f").ends_with("\r\n\r\ntwo\n"));
    drop(client);
    assert_eq!(server.end(), Some(0));

    assert_eq!(volume(&["snapshot", &path, "create", "second"]).0, Some(0));
    let (code, _, errors) = volume(&["snapshot", &path, "create", "second"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("use another name"), "{errors}");
    let (_, text, errors) = volume(&["snapshot", &path, "list"]);
    assert_eq!(errors, "", "nothing is missing in the list");
    assert!(text.starts_with("first   ") && text.contains("\nsecond  "), "{text}");
    let (_, text, _) = volume(&["snapshot", &path, "list", "--json"]);
    let list = json(&text);
    assert_eq!(list["snapshots"][1]["name"], "second", "{text}");
    assert_eq!(list["served"], Value::Null, "{text}");
    let (_, text, _) = volume(&["info", &path, "--json"]);
    assert_eq!(json(&text)["snapshots"][0]["name"], "first");
    assert_eq!(json(&text)["files"], 2);

    let (code, _, errors) = volume(&["snapshot", &path, "create", &"s".repeat(256)]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("use another, of at most 255 bytes and without '/'"), "{errors}");
    assert_eq!(volume(&["snapshot", &path, "drop", "second"]).0, Some(0));
    let (code, _, errors) = volume(&["snapshot", &path, "drop", "second"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("no such snapshot"), "{errors}");
    let server = serve(&path, &[]);
    let mut client = Client::connect(server.ninep());
    client.remove_dir(".upcall/snapshots", "first").unwrap();
    assert!(get(server.http(), "/.upcall/snapshots/first/f").starts_with("HTTP/1.1 404 "));
    drop(client);
    assert_eq!(server.end(), Some(0));
    check(&path);
}

#[test]
fn clients_without_identity_act_as_owner_or_nobody_on_a_volume() {
    let dir = Scratch::new("owners");
    let path = made(&dir, &["--owner", "1234:77"]);
    let server = Server::with(&[&[&path[..]][..], &PORTS, &["--http-write"]].concat());
    assert!(server.greeting().contains("act as user 1234 "), "{}", server.greeting());
    assert!(put(server.http(), "/f", b"x").unwrap().starts_with("HTTP/1.1 201 "));
    let mut client = Client::connect(server.ninep());
    client.make_dir(".upcall/snapshots", "by-its-owner").unwrap();
    assert_eq!(server.end(), Some(0));
    let who = ["--as", "4321", "--http-write"];
    let server = Server::with(&[&[&path[..]][..], &PORTS, &who].concat());
    assert!(put(server.http(), "/g", b"x").unwrap().starts_with("HTTP/1.1 403 "));
    let mut client = Client::connect(server.ninep());
    assert_eq!(client.make_dir(".upcall/snapshots", "no").unwrap_err(), 1);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_check_names_the_file_whose_contents_are_damaged() {
    let dir = Scratch::new("data");
    let path = made(&dir, &[]);
    let body: Vec<u8> = (0..40_000u32).flat_map(|n| format!("{n:07}\n").into_bytes()).collect();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/numbers"), &body).unwrap();
    let from = dir.path().join("sub");
    let (code, _, errors) = volume(&["copy", from.to_str().unwrap(), &format!("{path}:/sub")]);
    assert_eq!(code, Some(0), "{errors}");
    // The 513th number of eight bytes is in the second block.
    assert_eq!(flip(&path, b"0000600\n"), 1);
    let (code, text, _) = volume(&["check", &path]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("/sub/numbers: block 1 (bytes 4096-8191) is damaged\n"), "{text}");
    assert!(
        text.ends_with("1 finding; 4 KiB of contents lost; restore these files from elsewhere\n")
    );
    let (code, text, _) = volume(&["check", &path, "--json", "--read-only"]);
    assert_eq!((code, &json(&text)["findings"][0]["path"]), (Some(1), &"/sub/numbers".into()));
    let (code, text, _) = volume(&["check", &path, "--quick"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no problems found in the blocks that were read"), "{text}");
    let out = dir.path().join("out");
    let (code, _, errors) = volume(&["copy", &format!("{path}:/sub"), out.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("/numbers: input/output error"), "{errors}");
    assert!(!out.join("numbers").exists());
}

#[test]
fn a_check_names_what_a_damaged_page_takes_with_it() {
    let dir = Scratch::new("page");
    let path = made(&dir, &[]);
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for number in 0..500 {
        std::fs::write(from.join(format!("a-file-with-a-name-{number}")), "x").unwrap();
    }
    let (code, _, errors) = volume(&["copy", from.to_str().unwrap(), &format!("{path}:/from")]);
    assert_eq!(code, Some(0), "{errors}");
    check(&path);
    // The page of a name is unknown. One of them also contains the name of /from, so that entries
    // lost with it have no path any more.
    let mut named = 0;
    for number in (0..500).step_by(50) {
        let name = format!("a-file-with-a-name-{number}");
        assert!(flip(&path, name.as_bytes()) > 0);
        let (code, text, _) = volume(&["check", &path]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("is damaged; entries from "), "{text}");
        if text.contains("entries from the names in it of /from") {
            assert!(text.contains("\n/from: "), "{text}");
            named += 1;
        }
        assert!(flip(&path, name.replacen('a', "`", 1).as_bytes()) > 0);
        check(&path);
    }
    assert!(named > 0);
}

#[test]
fn a_check_applies_the_journal_first_unless_it_must_not() {
    let dir = Scratch::new("journal");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    put(server.http(), "/f", b"one\n").unwrap();
    server.kill();
    let (code, text, _) = volume(&["check", &path, "--read-only"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("in the journal were not applied and not checked"), "{text}");
    let (_, text, _) = volume(&["info", &path]);
    assert!(text.contains("to be applied again"), "{text}");
    let (code, text, _) = volume(&["check", &path]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("it was not closed: recovered "), "{text}");
    let (_, text, _) = volume(&["check", &path, "--json"]);
    assert_eq!(json(&text)["clean"], true);
    assert_eq!(json(&text)["notes"], Value::Array(Vec::new()));
    let server = serve(&path, &[]);
    assert!(!server.greeting().contains("recovered"), "{}", server.greeting());
    assert_eq!(server.end(), Some(0));
}

#[test]
fn invalid_volume_options_are_refused_with_a_next_step() {
    let dir = Scratch::new("nonsense");
    let path = made(&dir, &[]);
    let new = dir.path().join("new").to_str().unwrap().to_string();
    let cases: [(&[&str], &str); 9] = [
        (&["create", &path], "exists: choose another name"),
        (&["create", &new, "--size", "8X"], "write a size like 8G, 512M"),
        (&["create", &new, "--size", "1M"], "use --size 8M or more"),
        (&["create", &new, "--size", "64M", "--block", "1000"], "use 512, 1024, 2048 or 4096"),
        (&["create", &new, "--size", "64M", "--journal", "64M"], "choose another --journal"),
        (&["create", &new, "--owner", "me"], "write two numbers, like 1000:1000"),
        (&["info", &new], "create it with 'upcall volume create"),
        (&["check", "/etc/passwd", "--read-only"], "is not a volume"),
        (&["copy", "/etc", "/tmp"], "write one of them as FILE:/PATH"),
    ];
    for (args, advice) in cases {
        let (code, _, errors) = volume(args);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(advice), "{args:?}: {errors}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing half made is left: {left:?}");
    assert!(Path::new(&path).exists());
}
