//! Watches of changes.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::remote::{run, works};
use crate::server::{Scratch, Server, delete, get, put};
use crate::spaces;
use crate::volumes::{made, serve};
use client::{Client, File, OpenOptions, Options};

/// Watches these lines of text.
fn watch(client: &Client, text: &str) -> File {
    let options = OpenOptions::new().read(true).write(true);
    let file = client.open_with("/.upcall/watch", options).unwrap();
    assert_eq!(file.write_at(text.as_bytes(), 0).unwrap(), text.len());
    file
}

/// Reads once; a read waits for a line.
fn read(file: &File) -> String {
    let mut buf = vec![0; 4096];
    let length = file.read_at(&mut buf, 0).unwrap();
    String::from_utf8(buf[..length].to_vec()).unwrap()
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.ninep().parse().unwrap(), &Options::default()).unwrap()
}

#[test]
fn every_request_to_the_file_of_watches_is_answered() {
    let dir = Scratch::new("watch-file");
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let server = Server::start(dir.path(), &["--http-write"]);
    assert!(get(server.http(), "/.upcall/watch").starts_with("HTTP/1.1 403 "));
    assert!(put(server.http(), "/.upcall/watch", b"x").unwrap().starts_with("HTTP/1.1 403 "));
    assert!(delete(server.http(), "/.upcall/watch").unwrap().starts_with("HTTP/1.1 403 "));
    let listed = works(server.ninep(), "ls", &["-l", "/.upcall"]);
    assert!(listed.contains("watch"), "{listed}");
    let client = connect(&server);
    let mut many = String::from("/\nrelative\n/../x\n/d/**\n");
    many.push_str(&"/missing\n".repeat(100));
    let file = watch(&client, &many);
    let mut outputs = String::new();
    while outputs.matches("\"watching\"").count() < 2 {
        outputs.push_str(&read(&file));
    }
    let long = "x".repeat(5000);
    assert!(file.write_at(long.as_bytes(), 0).is_err(), "a line is too long");
    assert!(put(server.http(), "/d/new", b"1").unwrap().starts_with("HTTP/1.1 201 "));
    assert!(read(&file).contains("\"created\",\"path\":\"/d/new\""));
    drop(file);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn the_command_shows_changes_and_ends_where_there_is_nothing_to_watch() {
    let dir = Scratch::new("watch-command");
    let server = Server::start(dir.path(), &["--http-write"]);
    let missing = run(server.ninep(), "watch", &["/missing", "/neither"]);
    assert_eq!(missing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&missing.stdout).into_owned();
    assert_eq!(text.matches("error ").count(), 2, "{text}");
    let address = server.ninep().to_owned();
    let shown = std::thread::spawn(move || works(&address, "watch", &["/", "--count", "1"]));
    // Until the watch has begun, nothing is shown.
    let mut number = 0;
    while !shown.is_finished() {
        number += 1;
        put(server.http(), &format!("/file-{number}"), b"12345").unwrap();
    }
    let text = shown.join().unwrap();
    assert!(text.contains("created") && text.contains("5 bytes"), "{text}");
}

#[test]
fn all_changes_are_reported_of_a_volume_without_unions() {
    let scratch = Scratch::new("watch-all");
    let first = |server: &Server| {
        let client = connect(server);
        read(&watch(&client, "*\n"))
    };
    let volume = serve(&made(&scratch, &[]), &["--9p", "127.0.0.1:0"]);
    let announced = first(&volume);
    assert!(announced.contains("\"complete\":true,\"unions\":false"), "{announced}");
    let directory = Server::start(scratch.path(), &[]);
    let announced = first(&directory);
    assert!(announced.contains("\"complete\":false,\"unions\":false"), "{announced}");
    let shown = scratch.path().display();
    for name in ["a", "b"] {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
    }
    let lines = format!("mount /u host:{shown}/a\nmount -a /u host:{shown}/b\n");
    let joined = spaces::serve(&scratch, &lines, &[]);
    let announced = first(&joined);
    assert!(announced.contains("\"complete\":false,\"unions\":true"), "{announced}");
}
