//! A session fed with server replies.

use super::*;
use wire::rpc::{self, MARK_SIZE};

const HANDLE: &[u8] = b"handle";

fn session(data_max: u32) -> NfsSession {
    let handles = vec![Handle::new(HANDLE).expect("it is short")];
    let sizes = Sizes { read: data_max, write: data_max };
    NfsSession::new(Calls::new(), handles, sizes, crate::driver::pattern(1 << 16))
}

fn io(kind: Kind, offset: u64, len: u32) -> Io {
    Io { kind, file: 0, offset, len }
}

/// Returns the xids of a session's calls, with one line for each call.
#[allow(clippy::wildcard_enum_match_arm, reason = "transfers are shown with their place")]
fn calls(mut bytes: &[u8]) -> (Vec<u32>, String) {
    let (mut xids, mut lines) = (Vec::new(), String::new());
    while let Some((size, true)) = rpc::fragment(bytes) {
        let (record, rest) = bytes[MARK_SIZE..].split_at(size);
        let (call, arguments) = rpc::Call::decode(record).expect("it is a call");
        assert_eq!((call.program, call.version), (wire::nfs::PROGRAM, wire::nfs::VERSION));
        assert!(matches!(call.credential, rpc::Credential::Sys(_)));
        let decoded = Call::decode(call.procedure, arguments).expect("it is well-formed");
        let decoded = decoded.expect("the procedure exists");
        lines += &match decoded {
            Call::Read { offset, count, .. } => format!("read {count} at {offset}\n"),
            Call::Write { offset, data, .. } => format!("write {} at {offset}\n", data.len()),
            other => format!("procedure {}\n", other.procedure()),
        };
        xids.push(call.xid);
        bytes = rest;
    }
    assert!(bytes.is_empty(), "calls are whole");
    (xids, lines)
}

fn reply(xid: u32, results: &Results<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    rpc::put_reply(xid, rpc::Outcome::Success, &mut bytes);
    results.put(&mut bytes);
    rpc::seal(&mut bytes, 0);
    bytes
}

fn read_reply(xid: u32, data: &[u8]) -> Vec<u8> {
    let count = data.len() as u32;
    reply(xid, &Results::Read { attributes: None, count, eof: false, data })
}

/// Splits a record in one fragment into fragments of at most `size` bytes.
fn cut(record: &[u8], size: usize) -> Vec<u8> {
    let pieces: Vec<&[u8]> = record[MARK_SIZE..].chunks(size).collect();
    let mut bytes = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let mut mark = rpc::mark(piece.len());
        if number + 1 < pieces.len() {
            mark[0] &= 0x7f;
        }
        bytes.extend(mark);
        bytes.extend(*piece);
    }
    bytes
}

#[test]
fn ios_are_the_calls_of_rfc_1813() {
    let (mut session, mut out) = (session(1024), Vec::new());
    let kinds = [Kind::Read, Kind::Write, Kind::Sync, Kind::Trim];
    kinds.iter().for_each(|kind| session.ask(1, &io(*kind, 4096, 1500), &mut out));
    expect_test::expect![[r"
        read 1024 at 4096
        read 476 at 5120
        write 1024 at 4096
        write 476 at 5120
        procedure 21
        procedure 0
    "]]
    .assert_eq(&calls(&out).1);
}

#[test]
fn a_large_io_is_several_calls_and_ends_with_the_last() {
    let (mut session, mut out, mut ended) = (session(1024), Vec::new(), Vec::new());
    session.ask(42, &io(Kind::Read, 0, 2500), &mut out);
    let xids = calls(&out).0;
    assert_eq!(xids.len(), 3);
    for (place, size) in [(2, 452), (0, 1024), (1, 1024)] {
        assert_eq!(ended, []);
        let bytes = read_reply(xids[place], &vec![0; size]);
        assert_eq!(session.handle(&bytes, &mut ended), Ok(bytes.len()));
    }
    assert_eq!(ended, [(42, Outcome::Done(2500))]);
}

#[test]
fn replies_may_be_in_fragments_and_come_in_pieces() {
    for size in [1, 5, 24, 100, 4000] {
        let (mut session, mut out, mut ended) = (session(1024), Vec::new(), Vec::new());
        session.ask(1, &io(Kind::Read, 0, 1000), &mut out);
        session.ask(2, &io(Kind::Read, 0, 10), &mut out);
        let xids = calls(&out).0;
        let mut bytes = cut(&read_reply(xids[1], &[7; 10]), size);
        let first = bytes.len();
        bytes.extend(cut(&read_reply(xids[0], &[7; 1000]), size));
        assert_eq!(session.handle(&bytes[..first - 1], &mut ended), Ok(0));
        assert_eq!(session.handle(&bytes[..first + 3], &mut ended), Ok(first));
        assert_eq!(session.handle(&bytes[first..], &mut ended), Ok(bytes.len() - first));
        assert_eq!(ended, [(2, Outcome::Done(10)), (1, Outcome::Done(1000))]);
    }
}

#[test]
fn failures_are_errnos_of_linux() {
    let (mut session, mut out, mut ended) = (session(1024), Vec::new(), Vec::new());
    (0..3).for_each(|name| session.ask(name, &io(Kind::Write, 0, 10), &mut out));
    session.ask(3, &io(Kind::Trim, 0, 10), &mut out);
    let xids = calls(&out).0;
    let mut stale = Vec::new();
    rpc::put_reply(xids[0], rpc::Outcome::Success, &mut stale);
    let nothing = wire::nfs::After::Changed(wire::nfs::Wcc::NONE);
    wire::nfs::put_failure(wire::nfs::Status::Stale, &nothing, &mut stale);
    rpc::seal(&mut stale, 0);
    let mut bytes = stale;
    for (xid, outcome) in [
        (xids[1], rpc::Outcome::Refused(rpc::TOO_WEAK)),
        (xids[2], rpc::Outcome::SystemError),
        (xids[3], rpc::Outcome::Success),
    ] {
        let mut one = Vec::new();
        rpc::put_reply(xid, outcome, &mut one);
        rpc::seal(&mut one, 0);
        bytes.extend(one);
    }
    assert_eq!(session.handle(&bytes, &mut ended), Ok(bytes.len()));
    let failed = [116, 13, 5, ENOTSUP].map(Outcome::Failed);
    assert_eq!(ended, [0, 1, 2, 3].map(|name| (name, failed[name as usize])));
}

#[test]
fn an_xid_is_not_used_again_soon() {
    let (mut session, mut ended) = (session(1024), Vec::new());
    let mut seen = std::collections::BTreeSet::new();
    for name in 0..1000 {
        let mut out = Vec::new();
        session.ask(name, &io(Kind::Read, 0, 4), &mut out);
        let xid = calls(&out).0[0];
        assert!(seen.insert(xid), "a server answers it from its cache");
        let bytes = read_reply(xid, b"data");
        session.handle(&bytes, &mut ended).expect("it is the reply");
        assert!(session.handle(&bytes, &mut ended).is_err(), "it is answered twice");
    }
    assert_eq!(ended.len(), 1000);
}

#[test]
fn whatever_comes_nothing_panics() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..20_000 {
        let (mut session, mut out, mut ended) = (session(4096), Vec::new(), Vec::new());
        (0..4).for_each(|name| session.ask(name, &io(Kind::Read, 0, 512), &mut out));
        let (xids, _) = calls(&out);
        let mut bytes = Vec::new();
        for place in 0..random.usize(..6) {
            let xid = xids.get(place).copied().unwrap_or_else(|| random.u32(..));
            bytes.extend(cut(&read_reply(xid, &[1; 40]), random.usize(1..200)));
        }
        for _ in 0..random.usize(..4) {
            if let Some(byte) = (!bytes.is_empty()).then(|| random.usize(..bytes.len())) {
                bytes[byte] = random.u8(..);
            }
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let arrived = session.handle(&bytes, &mut ended);
        assert!(arrived.is_err() || arrived <= Ok(bytes.len()));
        session.give_up(&mut ended, Outcome::Failed(104));
        assert_eq!(ended.len(), 4, "each ends once");
    }
}
