//! A session fed with server replies.

use super::*;
use wire::ninep::{NO_TAG, frame_size};

/// Returns a session that has agreed on 9P2000.L with this message size.
fn agreed(msize: u32) -> NinepSession {
    let mut calls = Calls::new(CALLS_MAX);
    calls.offer(Dialect::Linux, 0..=msize);
    let version = reply(NO_TAG, &Rmessage::Version { msize, version: b"9P2000.L" });
    calls.receive(&version).expect("it is well-formed");
    NinepSession::new(calls, 1, crate::driver::pattern(1 << 16))
}

fn io(kind: Kind, offset: u64, len: u32) -> Io {
    Io { kind, file: 0, offset, len }
}

fn reply(tag: u16, message: &Rmessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}

/// Returns the tags of a session's messages.
fn tags(mut bytes: &[u8]) -> Vec<u16> {
    let mut tags = Vec::new();
    while let Some(size) = frame_size(bytes) {
        tags.push(Tmessage::decode(&bytes[..size]).expect("it is well-formed").0);
        bytes = &bytes[size..];
    }
    tags
}

#[test]
fn a_large_io_is_several_messages_and_ends_with_the_last() {
    let mut session = agreed(1024 + OVERHEAD);
    let mut out = Vec::new();
    session.ask(42, &io(Kind::Read, 0, 2500), &mut out);
    let tags = tags(&out);
    assert_eq!(tags.len(), 3);
    let mut ended = Vec::new();
    for (place, size) in [(2, 452), (0, 1024), (1, 1024)] {
        assert_eq!(ended, []);
        let data = vec![0; size];
        let bytes = reply(tags[place], &Rmessage::Read { data: Data(&data) });
        assert_eq!(session.handle(&bytes, &mut ended), Ok(bytes.len()));
    }
    assert_eq!(ended, [(42, Outcome::Done(2500))]);
}

#[test]
fn half_a_message_waits_for_the_rest() {
    let mut session = agreed(8192);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    session.ask(1, &io(Kind::Write, 0, 100), &mut out);
    session.ask(2, &io(Kind::Sync, 0, 0), &mut out);
    let tags = tags(&out);
    let mut bytes = reply(tags[0], &Rmessage::Write { count: 100 });
    let first = bytes.len();
    bytes.extend(reply(tags[1], &Rmessage::Lerror { ecode: 28 }));
    assert_eq!(session.handle(&bytes[..first + 3], &mut ended), Ok(first));
    assert_eq!(session.handle(&bytes[first..], &mut ended), Ok(bytes.len() - first));
    assert_eq!(ended, [(1, Outcome::Done(100)), (2, Outcome::Failed(28))]);
}

#[test]
fn an_unexpected_tag_ends_the_connection() {
    let mut session = agreed(8192);
    let mut ended = Vec::new();
    let bytes = reply(7, &Rmessage::Clunk {});
    assert!(session.handle(&bytes, &mut ended).is_err());
    assert!(session.handle(&[3, 0, 0, 0, 1], &mut ended).is_err());
    assert!(session.handle(&[0xff; 64], &mut ended).is_err());
}

#[test]
fn a_reply_of_another_type_ends_the_connection() {
    let mut session = agreed(8192);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    session.ask(1, &io(Kind::Read, 0, 100), &mut out);
    let bytes = reply(tags(&out)[0], &Rmessage::Write { count: 100 });
    assert!(session.handle(&bytes, &mut ended).is_err());
    session.give_up(&mut ended, Outcome::Failed(104));
    assert_eq!(ended, [(1, Outcome::Failed(104))]);
}

#[test]
fn whatever_comes_nothing_panics() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..20_000 {
        let mut session = agreed(4096);
        let (mut out, mut ended) = (Vec::new(), Vec::new());
        (0..4).for_each(|name| session.ask(name, &io(Kind::Read, 0, 512), &mut out));
        let mut bytes = Vec::new();
        for tag in 0..random.u16(..6) {
            bytes.extend(reply(tag, &Rmessage::Read { data: Data(&[1; 40]) }));
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
