//! Volumes inspected and checked while a server uses them.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::ninep::Client;
use crate::server::{Scratch, put, volume};
use crate::volumes::{check, flip, json, made, serve};

#[test]
fn a_served_volume_shows_its_newest_checkpoint_and_who_serves_it() {
    for form in ["uring", "threads"] {
        let dir = Scratch::new("shown");
        let path = made(&dir, &[]);
        let server = serve(&path, &["--reactor", form]);
        put(server.http(), "/early", b"early\n").unwrap();
        let mut client = Client::connect(server.ninep());
        client.make_dir(".upcall/snapshots", "kept").unwrap();
        put(server.http(), "/late", b"late\n").unwrap();

        let (code, text, errors) = volume(&["info", &path]);
        assert_eq!(code, Some(0), "{errors}");
        let who = format!("upcall (process {})", server.pid());
        assert!(text.contains(&format!("served     by {who}; this is the state of ")), "{text}");
        assert!(text.contains("\nfiles      2\n"), "the root and the early one: {text}");
        assert!(text.contains(", in use\n"), "{text}");
        let (_, text, _) = volume(&["info", &path, "--json"]);
        let facts = json(&text);
        assert_eq!(facts["served"]["pid"], server.pid());
        assert_eq!(facts["journal_used_bytes"], serde_json::Value::Null);
        // The snapshot is in the journal, but not yet in a checkpoint.
        assert_eq!(facts["snapshots"], serde_json::json!([]), "{text}");
        let (code, text, errors) = volume(&["snapshot", &path, "list"]);
        assert_eq!((code, &text[..]), (Some(0), "no snapshots\n"), "{errors}");
        let note = format!("served by {who}: this is the list of checkpoint {}; ", facts["epoch"]);
        assert!(errors.contains(&note), "{errors}");
        let (_, text, errors) = volume(&["snapshot", &path, "list", "--json"]);
        assert_eq!(errors, "", "JSON has it all");
        for field in ["path", "served", "epoch", "snapshots"] {
            assert_eq!(json(&text)[field], facts[field], "{text}");
        }
        client.make_dir(".upcall/snapshots", "second").unwrap();
        let (code, text, errors) = volume(&["snapshot", &path, "list"]);
        assert_eq!(code, Some(0), "{errors}");
        assert!(text.starts_with("kept  "), "{text}");

        let (code, text, errors) = volume(&["check", &path]);
        assert_eq!(code, Some(0), "{text}{errors}");
        assert!(text.contains(&format!("served by {who}: checkpoint ")), "{text}");
        assert!(text.ends_with("no problems found in the blocks that were read\n"), "{text}");
        drop(client);
        assert_eq!(server.end(), Some(0));
        let (_, text, _) = volume(&["info", &path, "--json"]);
        assert_eq!(json(&text)["served"], serde_json::Value::Null);
        check(&path);
    }
}

#[test]
fn a_check_during_writes_finds_no_damage_that_is_none() {
    let dir = Scratch::new("busy");
    let path = made(&dir, &["--journal", "1M"]);
    let server = serve(&path, &["--cache", "8"]);
    let address = server.http().to_string();
    // A checkpoint is due after about a dozen of these: larger ones hardly use the journal.
    let body = vec![7; 60_000];
    let writer = std::thread::Builder::new().spawn(move || {
        let mut number = 0;
        while put(&address, &format!("/f{}", number % 50), &body).is_some() {
            number += 1;
        }
        number
    });
    let (mut first, mut last) = (None, 0);
    for round in 0..40 {
        let args = [&["check", &path, "--json"][..], &["--quick"][..round % 2]].concat();
        let (code, text, errors) = volume(&args);
        assert_eq!(code, Some(0), "round {round}: {text}{errors}");
        last = json(&text)["epoch"].as_u64().unwrap();
        first.get_or_insert(last);
        assert_eq!(volume(&["info", &path]).0, Some(0), "round {round}");
    }
    assert!(last > first.unwrap() + 10, "checkpoints came in between: {first:?} to {last}");
    assert_eq!(server.end(), Some(0));
    assert!(writer.unwrap().join().unwrap() > 40);
    check(&path);
}

#[test]
fn damage_is_found_while_the_volume_is_served() {
    let dir = Scratch::new("rotten");
    let path = made(&dir, &[]);
    let server = serve(&path, &[]);
    let mark = b"a mark that stands in no other file";
    put(server.http(), "/spoilt", &mark.repeat(1000)).unwrap();
    put(server.http(), "/good", &[5; 20_000]).unwrap();
    let mut client = Client::connect(server.ninep());
    client.make_dir(".upcall/snapshots", "now").unwrap();
    assert!(flip(&path, mark) > 0);
    let (code, text, errors) = volume(&["check", &path]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("/spoilt: blocks 0-8 "), "{text}");
    assert!(!text.contains("/good"), "{text}");
    drop(client);
    drop(server);
}
