use super::*;
use crate::rpc;
use base::rng::{Rng, seeded};

const HANDLE: &[u8] = b"\x01\x02\x03";

fn handle() -> Handle {
    Handle::new(HANDLE).expect("it is short")
}

#[test]
fn golden_bytes() {
    let mut out = Vec::new();
    Call::Lookup { dir: handle(), name: b"abcde" }.put(&mut out);
    assert_eq!(out, b"\0\0\0\x03\x01\x02\x03\0\0\0\0\x05abcde\0\0\0");
    out.clear();
    let credential = rpc::Credential::Sys(rpc::Sys {
        stamp: 1,
        machine: b"host",
        uid: 2,
        gid: 3,
        gids: vec![4],
    });
    let call = rpc::Call { xid: 9, program: PROGRAM, version: VERSION, procedure: 3, credential };
    call.put(&mut out);
    assert_eq!(
        out,
        b"\0\0\0\x09\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x03\
          \0\0\0\x01\0\0\0\x1c\0\0\0\x01\0\0\0\x04host\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\0\0\x04\
          \0\0\0\0\0\0\0\0"
    );
    out.extend(b"arguments");
    assert_eq!(rpc::Call::decode(&out), Ok((call, &b"arguments"[..])));
}

#[test]
fn read_header_has_the_declared_size() {
    let attributes = Attributes {
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 3,
        used: 512,
        rdev: Special::default(),
        fsid: 1,
        fileid: 2,
        atime: Timestamp { seconds: 1, nanoseconds: 2 },
        mtime: Timestamp { seconds: 3, nanoseconds: 4 },
        ctime: Timestamp { seconds: 5, nanoseconds: 6 },
    };
    let mut out = Vec::new();
    rpc::put_reply(7, rpc::Outcome::Success, &mut out);
    assert_eq!(out.len(), rpc::REPLY_SIZE);
    Results::Read { attributes: Some(attributes), count: 0, eof: true, data: b"" }.put(&mut out);
    assert_eq!(out.len(), READ_HEADER_SIZE);
    rpc::seal(&mut out, 0);
    assert_eq!(rpc::fragment(&out), Some((READ_HEADER_SIZE - rpc::MARK_SIZE, true)));
}

#[test]
fn undecodable_calls_have_their_own_errors() {
    assert_eq!(Call::decode(22, b""), Ok(None));
    assert_eq!(Call::decode(1, b"\0\0\0\x41"), Err(DecodeError::Long));
    assert_eq!(Call::decode(1, b"\0\0\0\x04\0\0"), Err(DecodeError::Short));
    assert_eq!(Call::decode(0, b"\0\0\0\0"), Err(DecodeError::Trailing));
    let mut how = Vec::new();
    Call::Create { dir: handle(), name: b"a", how: CreateHow::Exclusive([7; 8]) }.put(&mut how);
    how[19] = 3;
    assert_eq!(Call::decode(8, &how), Err(DecodeError::Value(3)));
    let reply = b"\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x03";
    assert_eq!(rpc::decode_reply(reply), Ok((7, rpc::Outcome::VersionMismatch(3, 3), &b""[..])));
    assert_eq!(rpc::Call::decode(reply), Err(rpc::CallError::NoCall));
}

#[test]
fn outcomes_of_calls_decode_to_themselves() {
    use rpc::Outcome;
    let all = [
        Outcome::Success,
        Outcome::NoProgram,
        Outcome::VersionMismatch(3, 4),
        Outcome::NoProcedure,
        Outcome::GarbageArguments,
        Outcome::SystemError,
        Outcome::RpcMismatch,
        Outcome::Refused(rpc::TOO_WEAK),
    ];
    for outcome in all {
        let mut out = Vec::new();
        rpc::put_reply(5, outcome, &mut out);
        assert_eq!(rpc::decode_reply(&out[rpc::MARK_SIZE..]), Ok((5, outcome, &b""[..])));
    }
}

/// Any bytes decode to a call or results that encode to bytes which decode to the same, or to an
/// error.
#[test]
fn decoded_messages_encode_to_the_same_message() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let mut calls = 0;
    for seed in first.map_or(0..40_000, |s: u64| s..s + 1) {
        let rng = &mut seeded(seed);
        let (procedure, bytes) = (rng.u32(0..23), random_items(rng));
        let mut again = Vec::new();
        if let Ok(Some(call)) = Call::decode(procedure, &bytes) {
            calls += 1;
            call.put(&mut again);
            assert_eq!(Call::decode(procedure, &again), Ok(Some(call)), "SEED={seed}");
        }
        again.clear();
        match Results::decode(procedure, &bytes) {
            Ok(Ok(results)) => {
                results.put(&mut again);
                assert_eq!(Results::decode(procedure, &again), Ok(Ok(results)), "SEED={seed}");
            }
            Ok(Err((status, after))) => {
                put_failure(status, &after, &mut again);
                let failure = Ok(Err((status, after)));
                assert_eq!(Results::decode(procedure, &again), failure, "SEED={seed}");
            }
            Err(_) => {}
        }
        if let Ok(Some(call)) = mount::Call::decode(procedure, &bytes) {
            again.clear();
            call.put(&mut again);
            assert_eq!(mount::Call::decode(procedure, &again), Ok(Some(call)), "SEED={seed}");
        }
    }
    assert!(first.is_some() || calls > 500, "{calls} of 40,000 are calls");
}

/// Returns items that are mostly small numbers, so that lengths are often valid.
fn random_items(rng: &mut Rng) -> Vec<u8> {
    let items = rng.usize(0..30);
    let item = |rng: &mut Rng| match rng.u8(0..8) {
        0 => rng.u32(..).to_be_bytes(),
        1 => *b"name",
        2 => 4u32.to_be_bytes(),
        _ => rng.u32(0..3).to_be_bytes(),
    };
    let handle: &[u8] = if rng.bool() { b"\0\0\0\x04name" } else { b"" };
    let items = (0..items).flat_map(|_| item(rng));
    handle.iter().copied().chain(items).collect()
}
