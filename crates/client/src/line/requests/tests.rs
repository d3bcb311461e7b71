use super::*;
use crate::message::Pool;
use session::{CALLS_MAX, Dialect};
use std::sync::Arc;
use wire::ninep::{NO_TAG, Names, Rmessage, frame_size};

fn message(tag: u16, reply: &Rmessage<'_>) -> Message {
    let mut bytes = Vec::new();
    reply.encode(tag, &mut bytes);
    let mut message = Message::new(&Arc::<Pool>::default(), bytes.len());
    message.bytes_mut().copy_from_slice(&bytes);
    message
}

fn requests() -> Requests {
    let mut session = Session::new(CALLS_MAX);
    session.offer(Dialect::Linux, 512..=8192);
    let version = Rmessage::Version { msize: 8192, version: b"9P2000.L" };
    session.receive(message(NO_TAG, &version).bytes()).unwrap();
    Requests::new(session)
}

/// Begins a walk to a new fid; returns its number, its tag and the fid.
fn walk(requests: &mut Requests) -> (usize, u16, u32) {
    let newfid = requests.new_fid().unwrap();
    let names = Names::new(&[b"a"]).unwrap();
    let walk = Tmessage::Walk { fid: 0, newfid, names };
    let number = requests.post(&walk, Some(newfid)).unwrap();
    (number, requests.slots[number].tag, newfid)
}

/// Returns the queued messages after the last call.
fn sent(requests: &mut Requests) -> Vec<String> {
    let (unsent, mut texts) = (requests.take_unsent(), Vec::new());
    let mut rest = &unsent[..];
    while let Some(size) = frame_size(rest) {
        let (tag, message) = Tmessage::decode(&rest[..size]).unwrap();
        texts.push(format!("{tag} {message:?}"));
        rest = &rest[size..];
    }
    texts
}

const WALKED: fn() -> Rmessage<'static> =
    || Rmessage::Walk { qids: [Default::default()].into_iter().collect() };
const REFUSED: Rmessage<'static> = Rmessage::Lerror { ecode: 2 };

#[test]
fn a_fid_that_an_abandoned_walk_has_created_is_clunked() {
    let mut requests = requests();
    for is_flushed in [true, false] {
        let (number, tag, fid) = walk(&mut requests);
        sent(&mut requests);
        if is_flushed {
            assert!(requests.abandon(number));
            assert_eq!(sent(&mut requests), [format!("1 Flush {{ oldtag: {tag} }}")]);
        }
        requests.deliver(message(tag, &WALKED())).unwrap();
        if is_flushed {
            assert_eq!(sent(&mut requests), [format!("2 Clunk {{ fid: {fid} }}")]);
            requests.deliver(message(1, &Rmessage::Flush {})).unwrap();
            requests.deliver(message(2, &Rmessage::Clunk {})).unwrap();
        } else {
            assert!(requests.abandon(number), "its reply was not taken");
            assert_eq!(sent(&mut requests).len(), 1);
        }
    }
    assert!(requests.slots.is_empty());
}

#[test]
fn a_fid_that_an_abandoned_walk_has_not_created_is_free() {
    for reply in [Some(REFUSED), None] {
        let mut requests = requests();
        let (number, tag, fid) = walk(&mut requests);
        requests.abandon(number);
        sent(&mut requests);
        reply.into_iter().for_each(|reply| requests.deliver(message(tag, &reply)).unwrap());
        requests.deliver(message(1, &Rmessage::Flush {})).unwrap();
        assert!(requests.slots.is_empty() && sent(&mut requests).is_empty());
        assert_eq!(requests.new_fid(), Some(fid));
    }
}

#[test]
fn a_reply_frees_its_tag_before_it_is_taken() {
    let mut requests = requests();
    let (first, tag, _) = walk(&mut requests);
    requests.deliver(message(tag, &REFUSED)).unwrap();
    let (second, same_tag, _) = walk(&mut requests);
    assert!(first != second && tag == same_tag);
    requests.deliver(message(tag, &WALKED())).unwrap();
    for (number, code) in [(first, 7), (second, 111)] {
        assert_eq!(requests.take_arrived(number).unwrap().code(), code);
        assert!(!requests.abandon(number), "the thread handles what it has taken");
    }
    assert!(requests.slots.is_empty());
}

#[test]
fn a_message_that_is_too_large_is_not_queued() {
    let mut requests = requests();
    walk(&mut requests);
    let name = vec![b'x'; 9000];
    let newfid = requests.new_fid().unwrap();
    let walk = Tmessage::Walk { fid: 0, newfid, names: Names::new(&[&name]).unwrap() };
    assert!(requests.post(&walk, Some(newfid)).is_err());
    assert_eq!((sent(&mut requests).len(), requests.slots.len()), (1, 1));
}
