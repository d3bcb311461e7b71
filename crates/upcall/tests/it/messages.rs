//! End-to-end tests of error messages: each names the cause and one next step.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::remote::{fails, run, serve, works};
use crate::server::{BINARY, Scratch, Server, upcall, volume};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::thread;

/// Runs a command that is refused; returns its exit code and error output.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_configuration_file_has_the_formats_of_the_flags() {
    let dir = Scratch::new("formats");
    let config = dir.path().join("upcall.toml");
    let shown = config.to_str().unwrap();
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    let base = format!("dir = {:?}\n9p = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n", dir.path());
    write(&format!(
        "{base}memory-max = \"512M\"\nmsize = \"64K\"\nspin = \"200us\"\nconnections-max = \"1k\"\n\
         storelet-time-max = \"10m\"\nas = {}\n",
        rustix::process::geteuid().as_raw()
    ));
    assert_eq!(Server::with(&["--config", shown]).end(), Some(0));
    write(&format!("{base}memory-max = \"much\"\n"));
    let (code, error) = upcall(&["--config", shown]);
    assert_eq!(code, Some(2));
    assert_eq!(
        error,
        format!(
            "upcall: {shown} line 4: memory-max: write a size in MiB, or one with a unit, like \
             512, 512M or 2G\n"
        )
    );
    write(&format!("dir = {:?}\n9p = []\nhttp = []\n", dir.path()));
    let (code, error) = upcall(&["--config", shown]);
    assert!(code == Some(2) && error.contains("nothing to listen on"), "{error}");
}

#[test]
fn flags_have_units() {
    let dir = Scratch::new("flags");
    let more = ["--msize", "64K", "--spin", "1ms", "--connections-max", "1k"];
    assert_eq!(Server::start(dir.path(), &more).end(), Some(0));
    for (args, format) in [
        (&["serve", ".", "--msize", "x"][..], "write a size in bytes, or one with a unit"),
        (&["serve", ".", "--spin", "x"], "write a time of whole microseconds"),
        (&["serve", ".", "--9p", "unix:"], "'unix:' has no path"),
        (&["load", "--target", "null", "--seed", "1k"], "write a whole number without a unit"),
        (&["watch", ":1", "--count", "x"], "write a number like 250, 1k or 2M"),
        (&["mount", ":1", "/tmp", "-o", "timeout=x"], "a time longer than 0, like 5s"),
        (&["run", ":1", "--limit", "0%", "x.wasm"], "write a share above 0%, like 50%"),
    ] {
        let (code, error) = refused(args);
        assert!(code == Some(2) && error.contains(format), "{args:?}: {error}");
    }
}

#[test]
fn a_taken_port_is_named_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let (_, error) = upcall(&["/tmp", "--9p", &port, "--http", "none"]);
    assert_eq!(
        error,
        format!(
            "upcall: cannot listen on {port}: Address already in use (os error 98); choose \
             another address, with --9p ADDR\n"
        )
    );
}

#[test]
fn unknown_hosts_are_named_with_their_next_step() {
    let dir = Scratch::new("hosts");
    let names = dir.path().join("names");
    std::fs::write(&names, "mount /n 9p://no-such-host.invalid:5640\n").unwrap();
    let load = ["load", "--target", "nfs://no-such-host.invalid/x", "--seconds", "0.1"];
    for args in
        [&["ls", "no-such-host.invalid"][..], &["serve", "--names", names.to_str().unwrap()], &load]
    {
        let (_, error) = refused(args);
        assert!(error.contains("cannot find the host 'no-such-host.invalid'"), "{error}");
        assert!(error.ends_with("; check its name\n"), "{error}");
    }
}

#[test]
fn moves_into_themselves_are_named() {
    let (_dir, server) = serve("mv-itself");
    let error = fails(server.ninep(), "mv", &["/sub", "/sub/e"]);
    assert_eq!(
        error,
        "upcall: cannot move /sub into itself, /sub/e; name a directory outside of it\n"
    );
}

#[test]
fn a_missing_directory_of_this_host_is_named() {
    let (dir, server) = serve("get-missing");
    std::fs::write(dir.path().join("a.txt"), "a").unwrap();
    let to = format!("{}/none/", dir.path().display());
    let error = fails(server.ninep(), "get", &["/a.txt", &to]);
    let expected =
        format!("upcall: cannot write into {to}: no such directory; make it with mkdir\n");
    assert_eq!(error, expected);
}

#[test]
fn names_that_are_not_utf_8_are_also_hexadecimal() {
    let dir = Scratch::new("hex");
    std::fs::write(dir.path().join(OsStr::from_bytes(b"a\xff")), "").unwrap();
    std::fs::write(dir.path().join("b"), "").unwrap();
    let server = Server::start(dir.path(), &[]);
    let listed: Value = serde_json::from_str(&works(server.ninep(), "ls", &["--json"])).unwrap();
    assert_eq!((&listed[0]["path_hex"], &listed[1]["path_hex"]), (&"2f61ff".into(), &Value::Null));
    let mut stat = Command::new(BINARY);
    stat.args(["stat", server.ninep(), "--json"]).arg(OsStr::from_bytes(b"/a\xff"));
    let stat: Value = serde_json::from_slice(&stat.output().unwrap().stdout).unwrap();
    assert_eq!(stat[0]["path_hex"], "2f61ff");
}

#[test]
fn permission_errors_name_the_user() {
    let dir = Scratch::new("denied");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let server = Server::start(dir.path(), &[]);
    let output = run(server.ninep(), "cat", &["--as", "7", "/secret"]);
    let error = String::from_utf8_lossy(&output.stderr);
    // The server acts as the owner of the directory, whom root's rights do not follow.
    assert!(error.contains("cannot open /secret as user 7: Permission denied"), "{error}");
    assert!(error.ends_with("; the server may treat this user as another one\n"), "{error}");
}

#[test]
fn printed_commands_are_quoted_for_the_shell() {
    let dir = Scratch::new("quoted");
    let file = dir.path().join("a b.volume").display().to_string();
    let (code, printed, _) = volume(&["create", &file, "--size", "16M"]);
    assert_eq!(code, Some(0));
    assert!(printed.ends_with(&format!("serve it: upcall serve '{file}'\n")), "{printed}");
    let place = dir.path().join("sp dir").display().to_string();
    std::fs::create_dir(&place).unwrap();
    let mut init = Command::new(BINARY);
    init.args(["replica", "init", "it", "--type", "counter", "--members", "unix:/tmp/a b"]);
    let output = init.args(["--dir", &place, "--size", "16M"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let command = format!("--9p 'unix:/tmp/a b' --replica '{place}/it.1.replica'\n");
    assert!(printed.contains(&command), "{printed}");
}

#[test]
fn a_volume_is_mounted_once() {
    let dir = Scratch::new("twice");
    let names = dir.path().join("names");
    let file = dir.path().join("v.volume").display().to_string();
    assert_eq!(volume(&["create", &file, "--size", "16M"]).0, Some(0));
    std::fs::write(&names, format!("mount /a volume:{file}\nmount /b volume:{file}\n")).unwrap();
    let (code, error) = upcall(&["--names", names.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    let second = format!("names:2: volume:{file} is mounted by line 1 already");
    assert!(error.contains(&second) && error.ends_with("bind /a /b\n"), "{error}");
}

#[test]
fn targets_of_loads_are_checked_before_the_run() {
    let dir = Scratch::new("load-targets");
    let server = Server::start(dir.path(), &["--nfs", "127.0.0.1:0"]);
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let load = |target: &str, more: &[&str]| {
        refused(&[&["load", "--target", target, "--seconds", "0.1"], more].concat())
    };
    for target in [format!("9p://{}/sub", server.ninep()), format!("nfs://{}/sub", server.nfs())] {
        let (code, error) = load(&target, &[]);
        assert!(code == Some(2) && error.contains("is a directory: name a file in it"), "{error}");
    }
    let file = dir.path().join("v.volume").display().to_string();
    let created = volume(&["create", &file, "--size", "16M"]);
    assert_eq!(created.0, Some(0), "{created:?}");
    let other = Server::with(&[&file, "--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let target = format!("file:{file}");
    let (code, error) = load(&target, &["--mix", "write", "--destroy"]);
    assert!(code == Some(2) && error.contains("is in use by another process"), "{error}");
    drop(other);
    let (_, error) = load("null", &["--records", "/dev/full"]);
    assert!(error.contains("\nupcall: cannot write /dev/full: No space left"), "{error}");
    let (_, error) = load("null", &["--users", "2"]);
    assert!(!error.contains("schedule"), "{error}");
}

#[test]
fn a_server_that_is_no_nfs_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = thread::spawn(move || {
        // That of files, and that of the MOUNT protocol.
        let _files = listener.accept().unwrap();
        let (mut mount, _) = listener.accept().unwrap();
        let _ = mount.read(&mut [0; 4096]);
    });
    let target = format!("nfs://{address}/x");
    let (code, error) = refused(&["load", "--target", &target, "--seconds", "0.1"]);
    assert_eq!(code, Some(2));
    let cause = format!("{address} closed the connection without a reply; name the port of an NFS");
    assert!(error.contains(&cause), "{error}");
    other.join().unwrap();
}
