//! The client library against a server of ours, in both dialects.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{Scratch, Server};
use client::{Client, Dialect, Kind, OpenOptions, Options};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};

const DIALECTS: [Dialect; 2] = [Dialect::Linux, Dialect::Plan9];

fn connect(server: &Server, dialect: Dialect) -> Client {
    let options = Options { dialect: Some(dialect), ..Options::default() };
    let client = Client::connect(&server.ninep().parse().unwrap(), &options).unwrap();
    assert_eq!((client.dialect(), client.msize()), (dialect, 1 << 20));
    client
}

#[test]
fn files_are_made_changed_and_removed() {
    for dialect in DIALECTS {
        let dir = Scratch::new("library");
        let server = Server::start(dir.path(), &[]);
        let client = connect(&server, dialect);
        client.create_dir_all("/a/b/c").unwrap();
        assert!(client.create_dir("/a/b").unwrap_err().is_exists());
        client.write_file("/a/b/file", b"hello world").unwrap();
        assert_eq!(client.read_file("a/./b/../b/file").unwrap(), b"hello world");
        let mut file =
            client.open_with("/a/b/file", OpenOptions::new().read(true).write(true)).unwrap();
        file.seek(SeekFrom::Start(6)).unwrap();
        file.write_all(b"WORLD").unwrap();
        file.sync().unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello WORLD");
        file.close().unwrap();
        client.write_file("/a/b/file", b"short").unwrap();
        assert_eq!(client.metadata("/a/b/file").unwrap().size, 5);
        let new = OpenOptions::new().write(true).create_new(true);
        assert!(client.open_with("/a/b/file", new).unwrap_err().is_exists());
        client.rename("/a/b/file", "/a/b/other").unwrap();
        assert!(client.metadata("/a/b/file").unwrap_err().is_not_found());
        let moved = client.rename("/a/b/other", "/a/moved");
        assert_eq!(moved.is_ok(), dialect == Dialect::Linux);
        assert!(client.remove("/a").is_err());
        assert!(client.remove_all("/a").unwrap() >= 4);
        assert!(client.metadata("/a").unwrap_err().is_not_found());
        assert!(!dir.path().join("a").exists());
    }
}

#[test]
fn modes_below_a_directory_are_set_without_following_links() {
    let dir = Scratch::new("beneath");
    let at = |path: &str| dir.path().join(path);
    let mode = |path: &str| at(path).metadata().unwrap().permissions().mode() & 0o777;
    let server = Server::start(dir.path(), &[]);
    let client = connect(&server, Dialect::Linux);
    client.create_dir_all("/tree/sub").unwrap();
    client.create_dir("/other").unwrap();
    for file in ["/tree/sub/file", "/other/file"] {
        client.write_file(file, b"text").unwrap();
        client.set_mode(file, 0o640).unwrap();
    }
    symlink("../other", at("tree/directory")).unwrap();
    symlink("../other/file", at("tree/link")).unwrap();
    symlink("tree", at("top")).unwrap();
    // A link to the directory is followed; one that replaced an entry of it is not.
    client.set_mode_beneath("/top", "sub/file", 0o600).unwrap();
    assert_eq!(mode("tree/sub/file"), 0o600);
    for below in ["link", "directory/file", "directory", "sub/../link"] {
        assert!(client.set_mode_beneath("/tree", below, 0o777).is_err(), "{below}");
    }
    assert_eq!(mode("other/file"), 0o640);
    client.set_mode("/tree/link", 0o600).unwrap();
    assert_eq!(mode("other/file"), 0o600);
}

#[test]
fn long_paths_and_many_entries_are_walked_and_listed() {
    for dialect in DIALECTS {
        let dir = Scratch::new("long");
        let deep: String = (0..40).map(|number| format!("/level-{number}")).collect();
        let host = dir.path().join(&deep[1..]);
        std::fs::create_dir_all(&host).unwrap();
        std::fs::write(host.join("end"), "end").unwrap();
        std::fs::create_dir(dir.path().join("many")).unwrap();
        for number in 0..5000 {
            std::fs::write(dir.path().join(format!("many/{number:0100}")), "").unwrap();
        }
        let server = Server::start(dir.path(), &[]);
        let client = connect(&server, dialect);
        assert_eq!(client.read_file(format!("{deep}/end")).unwrap(), b"end");
        let error = client.read_file(format!("{deep}/nothing/x")).unwrap_err();
        assert!(error.is_not_found(), "{error}");
        let mut names: Vec<_> =
            client.read_dir("many").unwrap().map(|entry| entry.unwrap().name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5000);
    }
}

#[test]
fn links_are_followed_within_the_tree() {
    let dir = Scratch::new("links");
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    std::fs::write(dir.path().join("a/file"), "found").unwrap();
    for (target, name) in [
        ("a/b", "dir"),
        ("../file", "a/b/up"),
        ("/a/file", "absolute"),
        ("../../../../a/file", "above"),
        ("round", "round"),
        ("dir/../file", "through"),
        ("nowhere", "dangling"),
    ] {
        symlink(target, dir.path().join(name)).unwrap();
    }
    let server = Server::start(dir.path(), &[]);
    let client = connect(&server, Dialect::Linux);
    for path in ["dir/up", "absolute", "above", "through", "dir/../file"] {
        assert_eq!(client.read_file(path).unwrap(), b"found", "{path}");
    }
    assert_eq!(client.metadata("round").unwrap_err().errno(), 40);
    assert!(client.metadata("dangling").unwrap_err().is_not_found());
    assert_eq!(client.symlink_metadata("dangling").unwrap().kind, Kind::Symlink);
    assert_eq!(client.read_link("dir").unwrap().to_str(), Some("a/b"));
    client.symlink("a/file", "new").unwrap();
    assert_eq!(client.read_file("new").unwrap(), b"found");
    client.remove("dir").unwrap();
    assert!(dir.path().join("a/b").exists());
}

#[test]
fn many_threads_transfer_at_once() {
    for dialect in DIALECTS {
        let dir = Scratch::new("threads");
        let server = Server::start(dir.path(), &[]);
        let client = connect(&server, dialect);
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let client = client.clone();
                scope.spawn(move || {
                    let bytes: Vec<u8> =
                        (0..3 << 20).map(|n: u32| (n / 3) as u8 ^ thread).collect();
                    let name = format!("/file-{thread}");
                    client.write_file(&name, &bytes).unwrap();
                    assert!(client.read_file(&name).unwrap() == bytes);
                    client.remove(&name).unwrap();
                });
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn fids_and_tags_are_given_back() {
    let dir = Scratch::new("fids");
    std::fs::write(dir.path().join("file"), "text").unwrap();
    let server = Server::start(dir.path(), &[]);
    let client = connect(&server, Dialect::Linux);
    for _ in 0..200 {
        client.read_file("file").unwrap();
        assert!(client.read_file("nothing").is_err());
        drop(client.read_dir("/").unwrap().next());
        drop(client.open("file").unwrap().stream(0, u64::MAX).unwrap().next_piece());
    }
    let text = String::from_utf8(client.read_file("/.upcall/queues").unwrap()).unwrap();
    let handles = text.lines().find_map(|line| line.strip_prefix("handles "));
    let length: u32 = handles.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(length < 20, "{text}");
}
