//! Streams of subtrees.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test expects one variant")]

use crate::remote::works;
use crate::server::{Scratch, Server, delete, get, put};
use crate::spaces;
use crate::volumes::{made, serve};
use client::{Client, File, Interrupt, OpenOptions, Options, Raw};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::ninep::{Names, Qid, Rmessage, Tmessage, dirents};
use wire::subtree::{CONTENT_MAX, Record, decode};

/// Size of reads and lists.
const COUNT: u32 = 60_000;

/// A record, with attributes as an encoded `Rgetattr` without the time of access.
#[derive(Debug, PartialEq)]
enum Item {
    Directory(Qid, String),
    Entry(Qid, u64, u8, String, Option<Vec<u8>>),
    End,
    Failed(u32),
    Content(Qid, String, Vec<u8>),
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Encodes attributes without the time of access, which lists and reads may change.
fn encoded(mut attributes: Rmessage<'_>) -> Vec<u8> {
    let Rmessage::Getattr { atime_sec, atime_nsec, .. } = &mut attributes else { panic!() };
    (*atime_sec, *atime_nsec) = (0, 0);
    let mut bytes = Vec::new();
    attributes.encode(0, &mut bytes);
    bytes
}

fn items(mut bytes: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (record, size) = decode(bytes).unwrap().unwrap();
        items.push(match record {
            Record::Directory { qid, path } => Item::Directory(qid, string(path)),
            Record::Entry { qid, cookie, kind, name, attributes } => {
                Item::Entry(qid, cookie, kind, string(name), attributes.map(encoded))
            }
            Record::End => Item::End,
            Record::Failed { errno } => Item::Failed(errno),
            Record::Content { qid, name, data } => Item::Content(qid, string(name), data.to_vec()),
        });
        bytes = &bytes[size..];
    }
    items
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.ninep().parse().unwrap(), &Options::default()).unwrap()
}

/// Opens a stream.
fn open(client: &Client, request: &str) -> File {
    let options = OpenOptions::new().read(true).write(true);
    let file = client.open_with("/.upcall/subtree", options).unwrap();
    assert_eq!(file.write_at(request.as_bytes(), 0).unwrap(), request.len());
    file
}

/// Reads a stream to its end, this many bytes at a time.
fn read(client: &Client, request: &str, count: usize) -> Vec<Item> {
    let (file, mut bytes, mut buf) = (open(client, request), Vec::new(), vec![0; count]);
    loop {
        let length = file.read_at(&mut buf, 0).unwrap();
        if length == 0 {
            return items(&bytes);
        }
        bytes.extend_from_slice(&buf[..length]);
    }
}

/// A 9P client that finds the same in single messages.
struct Reference {
    raw: Raw,
    interrupt: Interrupt,
}

impl Reference {
    fn of(client: &Client) -> Reference {
        Reference { raw: client.raw(), interrupt: Interrupt::default() }
    }

    fn call<T>(
        &self,
        message: &Tmessage<'_>,
        makes: Option<u32>,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> T {
        let call = self.raw.post(message, makes).unwrap();
        self.raw.push().unwrap();
        call.wait(&self.interrupt).unwrap().read(wanted).unwrap()
    }

    /// Runs a function on a fid of a file in the directory with another one.
    fn at<T>(&self, fid: u32, names: &[&[u8]], then: impl FnOnce(u32) -> T) -> T {
        let newfid = self.raw.new_fid().unwrap();
        let names = Names::new(names).unwrap();
        let walk = Tmessage::Walk { fid, newfid, names };
        self.call(&walk, Some(newfid), |reply| {
            matches!(reply, Rmessage::Walk { .. }).then_some(())
        });
        let result = then(newfid);
        self.raw.clunk(newfid);
        result
    }

    fn open(&self, fid: u32) -> Qid {
        self.call(&Tmessage::Lopen { fid, flags: 0 }, None, |reply| match reply {
            Rmessage::Lopen { qid, .. } => Some(qid),
            _ => None,
        })
    }

    fn data(&self, message: &Tmessage<'_>) -> Vec<u8> {
        self.call(message, None, |reply| match reply {
            Rmessage::Read { data } | Rmessage::Readdir { data } => Some(data.0.to_vec()),
            _ => None,
        })
    }

    /// Returns qid, size and encoded attributes of a file.
    fn attributes(&self, fid: u32) -> (Qid, u64, Vec<u8>) {
        self.call(&Tmessage::Getattr { fid, mask: u64::MAX }, None, |reply| match reply {
            Rmessage::Getattr { qid, size, .. } => Some((qid, size, encoded(reply))),
            _ => None,
        })
    }

    /// Appends what a stream says of the directory of a fid.
    fn directory(&self, fid: u32, path: &str, has_contents: bool, items: &mut Vec<Item>) {
        let (mut entries, mut offset) = (Vec::new(), 0);
        self.at(fid, &[], |fid| {
            items.push(Item::Directory(self.open(fid), path.to_string()));
            loop {
                let data = self.data(&Tmessage::Readdir { fid, offset, count: COUNT });
                let part = dirents(&data).unwrap();
                let Some((_, cookie, ..)) = part.last() else { return };
                offset = *cookie;
                let part = part.into_iter();
                entries.extend(
                    part.map(|(qid, cookie, kind, name)| (qid, cookie, kind, string(name))),
                );
            }
        });
        let mut contents = Vec::new();
        for (qid, cookie, kind, name) in &entries {
            self.at(fid, &[name.as_bytes()], |fid| {
                let (of, size, attributes) = self.attributes(fid);
                items.push(Item::Entry(*qid, *cookie, *kind, name.clone(), Some(attributes)));
                if has_contents && *kind == 8 && (1..=CONTENT_MAX as u64).contains(&size) {
                    self.open(fid);
                    let mut data = Vec::new();
                    while (data.len() as u64) < size {
                        let offset = data.len() as u64;
                        data.extend(self.data(&Tmessage::Read { fid, offset, count: COUNT }));
                    }
                    contents.push(Item::Content(of, name.clone(), data));
                }
            });
        }
        items.push(Item::End);
        items.extend(contents);
        for (_, _, _, name) in entries.iter().filter(|(_, _, kind, _)| *kind == 4) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            self.at(fid, &[name.as_bytes()], |fid| {
                self.directory(fid, &path, has_contents, items);
            });
        }
    }
}

/// Creates files of all sizes, a wide and a deep directory.
fn populate(client: &Client) {
    client.create_dir_all("/d/wide").unwrap();
    client.create_dir_all(format!("/{}", "deep/".repeat(20))).unwrap();
    for (name, size) in
        [("empty", 0), ("one", 1), ("full", CONTENT_MAX), ("large", CONTENT_MAX + 1)]
    {
        client.write_file(format!("/d/{name}"), &vec![b'x'; size]).unwrap();
    }
    client.symlink("one", "/d/link").unwrap();
    for number in 0..1500 {
        client.write_file(format!("/d/wide/file-{number}"), b"contents").unwrap();
    }
    client.write_file("/last", b"last").unwrap();
}

fn check_streams(server: &Server) {
    let client = connect(server);
    populate(&client);
    let reference = Reference::of(&client);
    let (root, _) = reference.raw.root();
    for (word, count) in [("attributes", 1 << 20), ("contents", 777)] {
        let mut expected = Vec::new();
        reference.directory(root, "", word == "contents", &mut expected);
        let found = read(&client, &format!("{word} /"), count);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{word}");
        }
        assert_eq!(found.len(), expected.len());
    }
    let mut expected = Vec::new();
    reference.at(root, &[b"d"], |fid| reference.directory(fid, "", true, &mut expected));
    assert_eq!(read(&client, "contents /d", 100_000), expected);
    for (path, errno) in [("missing", 2), ("last", 20), ("d/link", 20), (".upcall", 18)] {
        let failed = [Item::Directory(Qid::default(), String::new()), Item::Failed(errno)];
        assert_eq!(read(&client, &format!("attributes /{path}"), 1000), failed, "{path}");
    }
}

/// Returns the length of the queue of streams.
fn streams(server: &Server) -> usize {
    let queues = get(server.http(), "/.upcall/queues");
    let line = queues.lines().find_map(|line| line.strip_prefix("subtrees ")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_stream_is_what_single_messages_say() {
    for args in [&[][..], &["--reactor", "threads"], &["--threads", "3"]] {
        let scratch = Scratch::new("subtree");
        let server = Server::start(scratch.path(), args);
        check_streams(&server);
        assert_eq!(server.end(), Some(0));
    }
    let scratch = Scratch::new("subtree-volume");
    let server = serve(&made(&scratch, &[]), &[]);
    check_streams(&server);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn every_request_to_the_file_of_subtrees_is_answered() {
    let scratch = Scratch::new("subtree-file");
    let server = Server::start(scratch.path(), &["--http-write"]);
    assert!(get(server.http(), "/.upcall/subtree").starts_with("HTTP/1.1 403 "));
    assert!(put(server.http(), "/.upcall/subtree", b"x").unwrap().starts_with("HTTP/1.1 403 "));
    assert!(delete(server.http(), "/.upcall/subtree").unwrap().starts_with("HTTP/1.1 403 "));
    let listed = works(server.ninep(), "ls", &["-l", "/.upcall"]);
    assert!(listed.contains("subtree"), "{listed}");
    let client = connect(&server);
    let file = open(&client, "attributes /");
    assert!(file.write_at(b"attributes /", 0).is_err(), "it has one request");
    // Streams are closed before they are read, and clients leave.
    for number in 0..40 {
        let dir = scratch.path().join(format!("d{}", number % 7));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{number}")), vec![b'x'; 10_000]).unwrap();
    }
    for _ in 0..30 {
        drop(open(&client, "contents /"));
    }
    let others: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    let opened: Vec<File> = others.iter().map(|other| open(other, "contents /")).collect();
    assert_eq!(streams(&server), 4);
    let refused = (0..9).filter(|_| {
        let options = OpenOptions::new().read(true).write(true);
        client.open_with("/.upcall/subtree", options).is_err()
    });
    assert_eq!(refused.count(), 0, "those of one client are few, but closed again");
    drop((opened, others, file));
    let begun = Instant::now();
    while streams(&server) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(300), "streams are left");
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn mounted_trees_are_not_entered() {
    let scratch = Scratch::new("subtree-mounts");
    for name in ["files/far", "files/bound", "files/near/inside"] {
        std::fs::create_dir_all(scratch.path().join(name)).unwrap();
    }
    let (files, volume) = (scratch.path().join("files"), made(&scratch, &[]));
    let files = files.display();
    let lines = format!("mount / host:{files}\nmount /far volume:{volume}\nbind /near /bound\n");
    let server = spaces::serve(&scratch, &lines, &["--http-write"]);
    let client = connect(&server);
    client.write_file("/far/file", b"text").unwrap();
    let whole = read(&client, "attributes /", 1000);
    let known: BTreeMap<&str, bool> = whole
        .iter()
        .filter_map(|item| match item {
            Item::Entry(.., name, attributes) => Some((&**name, attributes.is_some())),
            _ => None,
        })
        .collect();
    // Attributes at a mount point are those of another file.
    let expected = [("bound", false), ("far", false), ("inside", true), ("near", true)];
    assert_eq!(known, BTreeMap::from(expected));
    let entered = whole.iter().filter_map(|item| match item {
        Item::Directory(_, path) => Some(&**path),
        _ => None,
    });
    assert_eq!(entered.collect::<Vec<_>>(), ["", "near", "near/inside"]);
    let failed = [Item::Directory(Qid::default(), String::new()), Item::Failed(18)];
    assert_eq!(read(&client, "attributes /far", 1000), failed);
    let bound = read(&client, "attributes /bound", 1000);
    assert_eq!(bound, read(&client, "attributes /near", 1000));
}
