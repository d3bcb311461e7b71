use super::*;
use crate::remote::MSIZE_MIN;
use wire::ninep::{NO_TAG, Tmessage};

fn encoded(tag: u16, message: &Rmessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}

/// Returns calls on a connection.
fn calls(calls_max: usize) -> Calls {
    let mut calls = Calls::new(calls_max);
    calls.offer(Dialect::Linux, MSIZE_MIN..=8192);
    let version = Rmessage::Version { msize: 8192, version: b"9P2000.L" };
    calls.receive(&encoded(NO_TAG, &version)).unwrap();
    assert_eq!(calls.take_unsent().len(), 1);
    calls
}

fn begin(calls: &mut Calls, party: Party, slot: usize) {
    calls.begin(party, Owner::Pending(slot, 0), Message::new(&Tmessage::Clunk { fid: 1 }));
}

/// Answers a clunk.
fn answer(calls: &mut Calls, tag: u16) -> Answer<Owner> {
    let bytes = encoded(tag, &Rmessage::Clunk {});
    let (answer, _) = calls.receive(&bytes).unwrap();
    calls.check();
    answer
}

#[test]
fn messages_above_the_limit_are_queued_and_dropped_by_a_flush() {
    let mut calls = calls(2);
    (0..4).for_each(|slot| begin(&mut calls, Party::Requester(0), slot));
    assert_eq!((calls.counts(), calls.take_unsent().len()), ((2, 2), 2));
    assert_eq!(calls.flush(3), 1);
    assert_eq!((calls.counts(), calls.take_unsent().len()), ((2, 1), 0));
    assert_eq!(answer(&mut calls, 1), Answer::Reply(Owner::Pending(1, 0)));
    assert_eq!((calls.counts(), calls.take_unsent().len()), ((2, 0), 1));
    assert_eq!(calls.flush(0), 0);
    assert_eq!((calls.counts(), calls.take_unsent().len()), ((2, 0), 1));
    calls.check();
}

/// A client with many messages, or one that left and whose fids are clunked, delays others by one
/// message each.
#[test]
fn clients_are_served_in_turn() {
    let mut calls = calls(1);
    for slot in 0..100 {
        begin(&mut calls, Party::Requester(7), slot);
        let fid = calls.new_fid();
        calls.clunk(fid);
    }
    begin(&mut calls, Party::Requester(9), 500);
    begin(&mut calls, Party::Recovery, 501);
    let order: Vec<_> = (0..8).map(|_| answer(&mut calls, 0)).collect();
    let of = |slot| Answer::Reply(Owner::Pending(slot, 0));
    assert_eq!(order[..4], [of(0), of(500), Answer::Done, of(501)]);
    assert_eq!(order[4..], [of(1), Answer::Done, of(2), Answer::Done]);
}
