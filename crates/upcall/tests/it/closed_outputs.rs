//! Commands and servers whose standard output or standard error has no reader, or no room.

use crate::server::{Scratch, Server, get};
use std::fs::OpenOptions;
use std::net::TcpStream;
use std::process::{Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_upcall");

/// Returns the writing end of a pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Returns a file without room.
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("it is there").into()
}

#[test]
fn commands_end_without_a_reader_and_fail_without_room() {
    let scratch = Scratch::new("closed-outputs");
    std::fs::write(scratch.path().join("file"), "contents\n").unwrap();
    let empty =
        wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"_start\")))");
    let empty = empty.unwrap();
    std::fs::write(scratch.path().join("empty.wasm"), empty).unwrap();
    std::fs::write(scratch.path().join("broken.wasm"), b"\0asm\x01\0\0\0\xff\x01\0").unwrap();
    let text = |name: &str| scratch.path().join(name).display().to_string();
    let (volume, module, new) = (text("volume"), text("broken.wasm"), text("new"));
    let done = text("empty.wasm");
    let server = Server::start(scratch.path(), &[]);
    let (ninep, nobody) = (server.ninep(), "127.0.0.1:1");
    let upcall = |words: &[&str], out: Stdio, error: Stdio| {
        let mut command = Command::new("timeout");
        command.args(["60", BINARY]).args(words).stdin(Stdio::null()).stdout(out).stderr(error);
        command.status().unwrap().code()
    };
    let create = ["volume", "create", &volume, "--size", "16M"];
    assert_eq!(upcall(&create, unread(), unread()), Some(0));
    // Each with its exit code without a reader, and whether it has a result to print.
    let (json, report) = (["run", ninep, "--json", &done], ["run", ninep, "--report", &done]);
    let cases: [(&[&str], i32, bool); 16] = [
        (&["--help"], 0, true),
        (&["--version"], 0, true),
        (&json, 0, true),
        (&report, 0, true),
        (&["volume", "info", &volume], 0, true),
        (&["volume", "info", &volume, "--json"], 0, true),
        (&["volume", "check", &volume], 0, true),
        (&["volume", "snapshot", &volume, "create", "made"], 0, true),
        (&["volume", "snapshot", &volume, "list"], 0, true),
        (&["volume", "create", &new, "--size", "1"], 2, false),
        (&["completions", "bash"], 0, true),
        (&["cat", ninep, "/file"], 0, true),
        (&["ls", ninep, "/"], 0, true),
        (&["ls", ninep, "/missing"], 1, false),
        (&["ls", nobody, "/"], 1, false),
        (&["run", ninep, &module], 2, false),
    ];
    for (words, code, prints) in cases {
        assert_eq!(upcall(words, unread(), unread()), Some(code), "{words:?}");
        // It exists the second time.
        if !words.contains(&"made") {
            let code = if prints { 1 } else { code };
            assert_eq!(upcall(words, full(), full()), Some(code), "{words:?}");
        }
    }
    let info = Command::new(BINARY).args(["volume", "info", &volume]).stdout(full()).output();
    let printed = String::from_utf8(info.unwrap().stderr).unwrap();
    let cause = "upcall: cannot write to standard output: No space left on device";
    assert!(printed.starts_with(cause) && printed.lines().count() == 1, "{printed}");
}

#[test]
fn a_server_serves_without_a_reader_of_its_log() {
    let scratch = Scratch::new("unread-log");
    std::fs::write(scratch.path().join("file"), "contents\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let server = Server::run(command.arg(scratch.path()).stderr(unread()));
    assert!(get(server.http(), "/file").ends_with("contents\n"));
    // Its end waits for a connection, which it logs.
    let _connection = TcpStream::connect(server.ninep()).unwrap();
    assert!(get(server.http(), "/file").ends_with("contents\n"));
    assert_eq!(server.end(), Some(0));
}
