//! NFS clients by their addresses.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{BINARY, Scratch, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Calls MOUNT version 3 without a credential; returns the words of the reply behind the call's
/// number.
fn mount_call(address: &str, procedure: u32, arguments: &[u8]) -> Vec<u32> {
    let header = [7, 0, 2, 100_005, 3, procedure, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let call = [&header, arguments].concat();
    let mark = 1 << 31 | u32::try_from(call.len()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    let words = reply.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    words.skip(1).collect()
}

#[test]
fn only_allowed_networks_are_served() {
    const NULL: u32 = 0;
    const MNT: u32 = 1;
    let root = [&1_u32.to_be_bytes()[..], b"/\0\0\0"].concat();
    let dir = Scratch::new("nfs-allow");
    let serve = |networks: &[&str]| {
        let allow: Vec<&str> = networks.iter().flat_map(|it| ["--nfs-allow", *it]).collect();
        Server::start(dir.path(), &[&["--nfs", "127.0.0.1:0"], &allow[..]].concat())
    };
    // Accepted, no verifier, success, and the status of MNT.
    for networks in [&[][..], &["192.0.2.0/24", "127.0.0.0/8"]] {
        let reply = mount_call(serve(networks).nfs(), MNT, &root);
        assert_eq!(reply[..6], [1, 0, 0, 0, 0, 0], "{networks:?}");
    }
    let server = serve(&["192.0.2.0/24"]);
    // Denied: AUTH_ERROR, AUTH_TOOWEAK (RFC 5531, section 9).
    assert_eq!(mount_call(server.nfs(), MNT, &root), [1, 1, 1, 5]);
    assert_eq!(mount_call(server.nfs(), NULL, &[]), [1, 0, 0, 0, 0]);
    let mut command = Command::new(BINARY);
    command.args(["serve", "--http", "none", "--nfs", "127.0.0.1:0"]);
    command.args(["--nfs-allow", "192.0.2.0/33"]);
    let output = command.arg(dir.path()).output().unwrap();
    let outputs = String::from_utf8(output.stderr).unwrap();
    assert!(
        outputs.contains("--nfs-allow 192.0.2.0/33: give an address or a network"),
        "{outputs}"
    );
    assert_eq!(output.status.code(), Some(2));
}
