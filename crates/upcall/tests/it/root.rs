//! A server started by root, as in a container: identity and limits of its clients.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::ninep::Client;
use crate::server::{BINARY, Scratch, Server, get, put, upcall};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Environment variable with the directory of a process that is root in a user namespace of its
/// own.
const INSIDE: &str = "UPCALL_TEST_ROOT";

/// `EPERM`.
const NOT_PERMITTED: u32 = 1;

/// Runs this test as root: in a user namespace, unless it is root already.
fn as_root(this: &str, test: fn(&Path)) {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return test(Path::new(&dir));
    }
    let dir = Scratch::new("root");
    if rustix::process::geteuid().is_root() {
        return test(dir.path());
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", this, "--nocapture"]).env(INSIDE, dir.path());
    assert!(command.status().expect("unshare of util-linux").success());
}

#[test]
fn clients_of_a_directory_of_root_are_its_owner_without_privileges() {
    let this = "root::clients_of_a_directory_of_root_are_its_owner_without_privileges";
    as_root(this, |dir| {
        let server = Server::start(dir, &["--http-write"]);
        let rule = "act as root, the owner of ";
        assert!(server.greeting().contains(rule), "{}", server.greeting());
        let answer = put(server.http(), "/put", b"contents").unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        assert_eq!(dir.join("put").metadata().unwrap().uid(), 0);

        let mut client = Client::connect(server.ninep());
        client.create("made", 0o644).unwrap();
        client.set("made", Some(0o600), None).unwrap();
        // Executing such a file would give root's rights.
        assert_eq!(client.create("set-id", 0o4755), Err(NOT_PERMITTED));
        assert_eq!(client.set("made", Some(0o4755), None), Err(NOT_PERMITTED));
        assert_eq!(client.set("made", Some(0o2755), None), Err(NOT_PERMITTED));
        // Changing the owner requires root's privileges.
        assert_eq!(client.set("made", None, Some(1)), Err(NOT_PERMITTED));
        assert_eq!(dir.join("made").metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(server.end(), Some(0));
    });
}

#[test]
fn a_client_of_9p2000_without_a_name_is_known_by_its_number() {
    let this = "root::a_client_of_9p2000_without_a_name_is_known_by_its_number";
    as_root(this, |dir| {
        std::fs::write(dir.join("file"), "").unwrap();
        let socket = dir.join("socket");
        let server = Server::start(dir, &["--9p", &format!("unix:{}", socket.display())]);
        let ls = |user: Option<&str>| {
            let mut command = Command::new(BINARY);
            command.args(["ls", "--protocol", "9P2000", &format!("unix:{}", socket.display())]);
            // As in most containers.
            command.env_remove("USER").args(user.iter().flat_map(|name| ["--user", *name]));
            command.output().unwrap()
        };
        assert!(String::from_utf8_lossy(&ls(None).stdout).contains("file\n"));
        let refused = ls(Some("nobody-has-this-name"));
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(errors.contains("cannot attach as user nobody-has-this-name: "), "{errors}");
        assert!(errors.contains("; name a user that it knows"), "{errors}");
        assert_eq!((refused.status.code(), server.end()), (Some(1), Some(0)));
    });
}

#[test]
fn clients_let_nobody_else_start_a_file_with_set_id_bits() {
    let this = "root::clients_let_nobody_else_start_a_file_with_set_id_bits";
    as_root(this, |dir| {
        let mode = |name: &str| dir.join(name).metadata().unwrap().mode() & 0o7777;
        for (name, mode) in [("plain", 0o700), ("set-id", 0o4700)] {
            std::fs::write(dir.join(name), "").unwrap();
            std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        let server = Server::start(dir, &[]);
        let mut client = Client::connect(server.ninep());
        // An access control list (acl(5)): version, then tag, permissions and id of the owner, the
        // group and others.
        let entry = |tag: u16| {
            [&tag.to_le_bytes()[..], &7u16.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
        };
        let list = [&2u32.to_le_bytes()[..], &entry(1), &entry(4), &entry(0x20)].concat();
        let mut set = |name: &str| client.set_attribute(name, "system.posix_acl_access", &list);
        assert_eq!(set("plain"), Ok(()));
        assert_eq!(set("set-id"), Err(NOT_PERMITTED));
        assert_eq!((mode("plain"), mode("set-id")), (0o777, 0o4700));
        client.set("set-id", Some(0o711), None).unwrap();
        assert_eq!(mode("set-id"), 0o711);
        assert_eq!(server.end(), Some(0));
    });
}

#[test]
fn a_directory_that_its_clients_may_not_read_is_not_served() {
    let this = "root::a_directory_that_its_clients_may_not_read_is_not_served";
    as_root(this, |dir| {
        let closed = dir.join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o0)).unwrap();
        let (code, text) = upcall(&[closed.to_str().unwrap(), "--9p", "127.0.0.1:0"]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("as user 0: permission denied"), "{text}");
        assert!(text.contains("--as USER"), "{text}");
        let (code, text) = upcall(&["/", "--9p", "127.0.0.1:0"]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("cannot serve / as root: "), "{text}");
        let names = dir.join("names");
        std::fs::write(&names, "mount -c /all host:/\nmount /dir host:/tmp\n").unwrap();
        let names = names.to_str().unwrap();
        let (code, text) = upcall(&["--names", names, "--9p", "127.0.0.1:0"]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("cannot serve / as root: "), "{text}");
    });
}

/// Only root can create files of other users.
#[test]
fn clients_of_a_directory_of_a_user_are_that_user() {
    if !rustix::process::geteuid().is_root() {
        return base::skip("only root can make a directory of another user");
    }
    // A number unknown to the host: its group has the same number.
    let (uid, gid) = (54_321, 54_321);
    let (dir, kept) = (Scratch::new("user"), Scratch::new("kept"));
    chown(dir.path(), Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let ports = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut command = Command::new(BINARY);
    command.arg("serve").arg(dir.path()).args(ports).arg("--http-write");
    command.env("CACHE_DIRECTORY", kept.path().join("cache"));
    command.env("STATE_DIRECTORY", kept.path().join("state"));
    let server = Server::run(&mut command);
    assert!(server.greeting().contains("act as user 54321 "), "{}", server.greeting());
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let answer = put(server.http(), "/put", b"contents").unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(get(server.http(), "/put").ends_with("contents"));
    let made = dir.path().join("put").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (uid, gid));
    for part in ["cache", "state"] {
        let own = kept.path().join(part).join("54321").metadata().unwrap();
        assert_eq!((own.uid(), own.mode() & 0o7777), (uid, 0o700), "{part}");
    }
    assert!(kept.path().join("cache/54321/storelets/key").exists());
    assert_eq!(server.end(), Some(0));
}
