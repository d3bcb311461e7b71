//! Client commands with a server whose replies make no sense.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{BINARY, Scratch};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// Runs a 9P2000.L server of one file of any name: it accepts all writes, and returns `contents`
/// once for each open.
fn serve(mut stream: TcpStream, contents: &[u8]) {
    let (mut head, mut left) = ([0; 7], Vec::new());
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let mut body = vec![0; length - head.len()];
        stream.read_exact(&mut body).unwrap();
        let reply = match head[4] {
            // Tversion: the proposed one; Tattach; Twalk; Tlopen; Tread; Twrite; Tclunk.
            100 => body,
            104 => vec![0; 13],
            110 => {
                let names = &body[8..10];
                [names, &vec![0; 13 * usize::from(names[0])]].concat()
            }
            12 => {
                left = contents.to_vec();
                vec![0; 17]
            }
            116 => {
                let count = u32::try_from(left.len()).unwrap();
                [&count.to_le_bytes()[..], &std::mem::take(&mut left)].concat()
            }
            118 => body[12..16].to_vec(),
            120 => Vec::new(),
            // Rlerror: not supported.
            _ => 95u32.to_le_bytes().to_vec(),
        };
        let known = matches!(head[4], 12 | 100 | 104 | 110 | 116 | 118 | 120);
        let kind = if known { head[4] + 1 } else { 7 };
        let length = u32::try_from(7 + reply.len()).unwrap();
        let reply = [&length.to_le_bytes()[..], &[kind], &head[5..], &reply].concat();
        stream.write_all(&reply).unwrap();
    }
}

#[test]
fn a_server_that_forgets_the_program_at_once_is_reported() {
    let dir = Scratch::new("strange");
    let module = dir.path().join("empty.wasm");
    std::fs::write(&module, b"\0asm\x01\0\0\0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let report = br#"{"end": "unknown", "reason": "no such program"}"#;
    let length = u32::try_from(report.len()).unwrap();
    let contents = [&[3], &length.to_le_bytes()[..], report].concat();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0, &contents));
    let mut command = Command::new(BINARY);
    command.arg("run").arg(address).arg(module).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("lost the program it was sent (no such program)"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(output.status.code().is_some_and(|code| code > 0), "{:?}", output.status);
    server.join().unwrap();
}
