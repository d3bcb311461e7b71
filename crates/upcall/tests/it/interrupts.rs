//! Signals that arrive together with something else, or while a command cannot notice them; and
//! incomplete files, which are no part of a tree.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::remote::{DIALECTS, works};
use crate::server::{BINARY, Scratch, Server};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

fn signal(process: &Child, signal: &str) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

fn begin(server: &Server, words: &[&str]) -> Child {
    let mut command = Command::new(BINARY);
    command.arg(words[0]).arg(server.ninep()).args(&words[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ctrl-C in a pipeline ends the program that writes standard input, too: its end is not the end of
/// the data.
#[test]
fn the_end_of_standard_input_with_a_signal_replaces_no_file() {
    for (dialect, name) in DIALECTS.into_iter().zip(["-INT", "-TERM"]) {
        let dir = Scratch::new("interrupted-pipeline");
        let server = Server::start(dir.path(), &[]);
        let file = dir.path().join("file");
        std::fs::write(&file, "good").unwrap();
        let mut put = begin(&server, &["put", "--protocol", dialect, "-", "/file"]);
        let mut input = put.stdin.take().unwrap();
        input.write_all(b"small").unwrap();
        // The command holds signals from its connection on.
        while std::fs::read_dir(dir.path()).unwrap().count() == 1 {
            assert!(put.try_wait().unwrap().is_none(), "it ends with its input");
        }
        signal(&put, name);
        drop(input);
        assert_eq!(put.wait().unwrap().code(), Some(130), "{name}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "good");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
    }
}

/// No signal interrupts the open of a FIFO without a partner.
#[test]
fn a_command_that_waits_for_a_fifo_is_ended_by_one_signal() {
    let dir = Scratch::new("fifo");
    let served = dir.path().join("served");
    std::fs::create_dir(&served).unwrap();
    let server = Server::start(&served, &[]);
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.to_str().unwrap();
    let mut put = begin(&server, &["put", fifo, "/x"]);
    // It waits in the open when it has read the metadata of the target.
    let wchan = format!("/proc/{}/wchan", put.id());
    while !std::fs::read_to_string(&wchan).unwrap().contains("wait_for_partner") {
        assert!(put.try_wait().unwrap().is_none(), "it waits for the partner of the FIFO");
        std::thread::yield_now();
    }
    signal(&put, "-TERM");
    assert_eq!(put.wait().unwrap().code(), Some(130));
}

#[test]
fn incomplete_files_of_other_transfers_are_no_part_of_a_tree() {
    let dir = Scratch::new("incomplete");
    let (served, copies) = (dir.path().join("served"), dir.path().join("copies"));
    std::fs::create_dir_all(served.join("tree")).unwrap();
    for name in ["whole", ".upcall-cf5b83de3a6ad7fc-0", ".upcall-notes"] {
        std::fs::write(served.join("tree").join(name), name).unwrap();
    }
    let server = Server::start(&served, &[]);
    let copies = copies.to_str().unwrap();
    works(server.ninep(), "get", &["-r", "/tree", copies]);
    let names = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    assert_eq!(names(copies.as_ref()), [".upcall-notes", "whole"]);
    works(server.ninep(), "cp", &["-r", "/tree", "/copy"]);
    assert_eq!(names(&served.join("copy")), [".upcall-notes", "whole"]);
}
