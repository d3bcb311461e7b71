//! One test for each protocol violation of a server.

use crate::server::{connect, encode, except, serve};
use std::sync::Arc;
use upcall_client::{Client, Error};
use wire::ninep::{Data, Qid, Rmessage, Tmessage, put_dirent, readdir_header};

/// Client operation that must detect the violation.
type Try = fn(&Client) -> Result<(), Error>;

/// Replaces replies as `lie` says; the operation must fail with a protocol error containing
/// `expected`.
fn reported(
    lie: impl Fn(u16, &Tmessage<'_>) -> Option<Vec<u8>> + Send + Sync + 'static,
    attempt: Try,
    expected: &str,
) {
    let lie = Arc::new(lie);
    let address = serve(move || {
        let lie = lie.clone();
        except(move |tag, message| lie(tag, message))
    });
    let error = connect(&address).and_then(|client| attempt(&client)).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{expected}: {error}");
    assert!(error.to_string().contains(expected), "{expected}: {error}");
}

const READ: Try = |client| client.read_file("file").map(|_| ());
const LOOK: Try = |client| client.metadata("file").map(|_| ());
const LIST: Try = |client| client.read_dir("/")?.try_for_each(|entry| entry.map(|_| ()));
const WRITE: Try = |client| client.write_file("file", &[1; 1000]);

fn entries(tag: u16, entries: &[u8]) -> Vec<u8> {
    [&readdir_header(tag, entries.len())[..], entries].concat()
}

#[test]
fn a_tag_that_nothing_was_asked_with() {
    let lie = |tag: u16, message: &Tmessage<'_>| {
        let other = encode(tag.wrapping_add(77), &Rmessage::Clunk {});
        matches!(message, Tmessage::Getattr { .. }).then_some(other)
    };
    reported(lie, LOOK, "unused tag");
    let twice = |tag: u16, message: &Tmessage<'_>| {
        let reply = encode(tag, &Rmessage::Lopen { qid: Qid::default(), iounit: 0 });
        matches!(message, Tmessage::Lopen { .. }).then(|| [reply.clone(), reply].concat())
    };
    reported(twice, READ, "");
}

#[test]
fn a_reply_of_another_type() {
    let lie = |tag: u16, message: &Tmessage<'_>| {
        matches!(message, Tmessage::Getattr { .. }).then(|| encode(tag, &Rmessage::Clunk {}))
    };
    reported(lie, LOOK, "a reply of type 121, where 25 is due");
}

#[test]
fn sizes_that_no_message_has() {
    for size in [0u32, 6, 1 << 30, u32::MAX] {
        let lie = move |tag: u16, message: &Tmessage<'_>| {
            let mut reply = encode(tag, &Rmessage::Clunk {});
            reply[..4].copy_from_slice(&size.to_le_bytes());
            matches!(message, Tmessage::Getattr { .. }).then_some(reply)
        };
        reported(lie, LOOK, &format!("a message of {size} bytes"));
    }
}

#[test]
fn more_data_than_was_asked_for_or_another_count() {
    let more = |tag: u16, message: &Tmessage<'_>| match message {
        Tmessage::Read { count, .. } => {
            let data = vec![0; *count as usize + 1];
            Some(encode(tag, &Rmessage::Read { data: Data(&data) }))
        }
        _ => None,
    };
    reported(more, READ, "in reply to a");
    let count = |tag: u16, message: &Tmessage<'_>| {
        let mut reply = encode(tag, &Rmessage::Read { data: Data(b"abc") });
        reply[7] = 200;
        matches!(message, Tmessage::Read { .. }).then_some(reply)
    };
    reported(count, READ, "contradicts");
}

#[test]
fn more_or_less_written_than_can_be() {
    for (wrong, reason) in [(1001, "1001 bytes written"), (0, "writes nothing")] {
        let lie = move |tag: u16, message: &Tmessage<'_>| {
            let reply = encode(tag, &Rmessage::Write { count: wrong });
            matches!(message, Tmessage::Write { .. }).then_some(reply)
        };
        reported(lie, WRITE, reason);
    }
}

#[test]
fn a_walk_that_goes_further_than_it_was_sent() {
    let lie = |tag: u16, message: &Tmessage<'_>| {
        let qids = [Qid::default(); 5].into_iter().collect();
        matches!(message, Tmessage::Walk { .. }).then(|| encode(tag, &Rmessage::Walk { qids }))
    };
    reported(lie, LOOK, "a walk of 5 names");
}

#[test]
fn names_that_lead_elsewhere() {
    for name in [&b"../../etc/passwd"[..], b"/etc", b"", b"a\0b"] {
        let lie = move |tag: u16, message: &Tmessage<'_>| {
            let mut data = Vec::new();
            put_dirent(Qid::default(), 1, 8, name, &mut data);
            matches!(message, Tmessage::Readdir { .. }).then(|| entries(tag, &data))
        };
        reported(lie, LIST, "an entry has the name");
    }
}

#[test]
fn directories_that_never_end() {
    let lie = |tag: u16, message: &Tmessage<'_>| {
        let mut data = Vec::new();
        put_dirent(Qid::default(), 7, 8, b"again", &mut data);
        matches!(message, Tmessage::Readdir { .. }).then(|| entries(tag, &data))
    };
    reported(lie, LIST, "goes round in circles");
}

#[test]
fn versions_that_nobody_asked_for() {
    for (msize, version, reason) in [
        (u32::MAX, &b"9P2000.L"[..], "message size of 4294967295 bytes"),
        (1, b"9P2000.L", "message size of 1 bytes"),
        (8192, b"9P3000", "9P3000"),
    ] {
        let lie = move |tag: u16, message: &Tmessage<'_>| {
            let reply = encode(tag, &Rmessage::Version { msize, version });
            matches!(message, Tmessage::Version { .. }).then_some(reply)
        };
        reported(lie, LOOK, reason);
    }
}

#[test]
fn links_that_go_round_in_circles() {
    let address = serve(|| {
        except(|tag, message| match message {
            Tmessage::Walk { names, .. } => {
                let link = Qid { kind: Qid::SYMLINK, ..Qid::default() };
                let qids = names.as_slice().iter().map(|_| link).take(1).collect();
                Some(encode(tag, &Rmessage::Walk { qids }))
            }
            Tmessage::Readlink { .. } => {
                Some(encode(tag, &Rmessage::Readlink { target: b"../file/../file" }))
            }
            _ => None,
        })
    });
    let error = connect(&address).and_then(|client| client.metadata("file/x")).unwrap_err();
    assert!(error.errno() == 40 || matches!(error, Error::BadPath { .. }), "{error}");
}
