//! Accounting of the limits of a connection.

use super::*;
use crate::ninep::fid::RELEASES_MAX;
use base::SAYING_DEVICES;

/// Returns the bytes that a pending read of a file with these attributes counts; its reply counts
/// when it arrives.
fn counted(stat: &Stat) -> usize {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names: Names::new(&[b"f"]).unwrap() });
    lab.answer(0, walked(&[Kind::File], 5));
    lab.send(3, Tmessage::Lopen { fid: 2, flags: 0 });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat.clone())));
    let before = lab.session.bytes();
    lab.send(4, Tmessage::Read { fid: 2, offset: 0, count: 5000 });
    let counted = lab.session.bytes() - before;
    lab.answer(0, Ok(Reply::Data(Buf::from(&[b'x'; 3000][..]))));
    assert!(lab.session.bytes() >= before + 3000);
    counted
}

#[test]
fn a_read_that_waits_counts_for_what_is_held() {
    let file = stat(Kind::File);
    assert!(counted(&file) > 5000);
    let coming = Stat { device: SAYING_DEVICES | 3, size: 0, ..file };
    assert!(counted(&coming) < 1000, "{}", counted(&coming));
    assert!(counted(&Stat { size: 1, ..coming.clone() }) > 5000, "it is there");
    assert!(counted(&Stat { device: 1, ..coming }) > 5000, "it may be soon");
}

/// Returns the bytes counted for a pending listing, of a connection with this much memory left.
fn listing(spare: usize) -> usize {
    let mut lab = Lab::linux();
    lab.session = Session::new(
        Export { limits: Limits { msize: 1 << 20, ..export().limits }, ..export() },
        Identity::Fixed(Caller::Server),
    );
    lab.send(NO_TAG, Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" });
    lab.attach();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names: Names::new(&[b"d"]).unwrap() });
    lab.answer(0, walked(&[Kind::Directory], 5));
    lab.send(3, Tmessage::Lopen { fid: 2, flags: 0o200_000 });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::Directory))));
    let before = lab.session.bytes();
    lab.session.set_room(Room { spare, ..Room::ALL });
    lab.send(4, Tmessage::Readdir { fid: 2, offset: 0, count: 64_000 });
    assert!(lab.text.contains("List"), "{}", lab.text);
    lab.session.bytes() - before
}

#[test]
fn a_listing_counts_for_its_entries_and_is_shorter_where_memory_is_short() {
    assert!((500_000..600_000).contains(&listing(64 << 20)), "{}", listing(64 << 20));
    assert!((60_000..70_000).contains(&listing(100_000)), "{}", listing(100_000));
    assert!((60_000..70_000).contains(&listing(1000)), "{}", listing(1000));
}

#[test]
fn a_fid_that_is_open_counts_as_two() {
    let mut lab = Lab::linux();
    lab.attach();
    let walk = |lab: &mut Lab, fid: u32| {
        lab.text.clear();
        lab.send(2, Tmessage::Walk { fid: 1, newfid: fid, names: Names::new(&[]).unwrap() });
        if lab.text.contains("ask 0") {
            lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(fid.into())))));
        }
        lab.text.contains("RWalk 2")
    };
    // There are six with the attached one; opening two of them makes eight handles.
    assert!((2..7).all(|fid| walk(&mut lab, fid)));
    for fid in 2..4 {
        lab.send(10 + fid as u16, Tmessage::Lopen { fid, flags: 0 });
        assert!(!lab.text.contains("Rlerror"), "{}", lab.text);
    }
    assert!(!walk(&mut lab, 7) && lab.text.contains("Rlerror 2 (24)"), "{}", lab.text);
    lab.send(4, Tmessage::Lopen { fid: 4, flags: 0 });
    assert!(lab.text.contains("Rlerror 4 (24)"), "{}", lab.text);
    lab.answer(0, Err(Error::NotFound));
    assert!(walk(&mut lab, 7));
    lab.send(5, Tmessage::Clunk { fid: 5 });
    assert!(walk(&mut lab, 8) && !walk(&mut lab, 9));
    lab.session.check();
}

#[test]
fn a_fid_may_be_walked_at_the_limit() {
    let mut lab = Lab::linux();
    lab.attach();
    let walk = |lab: &mut Lab, tag: u16, fid: u32, newfid: u32| {
        lab.text.clear();
        lab.send(tag, Tmessage::Walk { fid, newfid, names: Names::new(&[b"f"]).unwrap() });
        !lab.text.contains(&format!("Rlerror {tag} (24)"))
    };
    let walked = |node| walked(&[Kind::Directory], node);
    (2..9).for_each(|fid| {
        assert!(walk(&mut lab, 4, 1, fid));
        lab.answer(0, walked(fid.into()));
    });
    // Now there are eight.
    assert!(walk(&mut lab, 5, 1, 1) && !walk(&mut lab, 6, 2, 2), "one at a time");
    lab.answer(0, walked(30));
    assert!(lab.text.contains("RWalk 5"), "{}", lab.text);
    assert!(walk(&mut lab, 7, 2, 2));
    lab.answer(0, walked(31));
    assert_eq!((lab.session.handles(), lab.session.fids()), (8, 8));
    lab.session.check();
}

#[test]
fn walks_under_way_count_as_fids() {
    let mut lab = Lab::linux();
    lab.attach();
    let walk = |lab: &mut Lab, tag: u16| {
        lab.text.clear();
        let names = Names::new(&[b"f"]).unwrap();
        lab.send(tag, Tmessage::Walk { fid: 1, newfid: tag.into(), names });
        !lab.text.contains(&format!("Rlerror {tag} (24)"))
    };
    // There are eight with the attached one.
    assert!((2..8).all(|tag| walk(&mut lab, tag)));
    assert_eq!(lab.session.handles(), 7);
    assert!(walk(&mut lab, 8) && !walk(&mut lab, 9));
    // Its node arrives nevertheless.
    lab.send(10, Tmessage::Flush { oldtag: 8 });
    assert!(!walk(&mut lab, 9));
    lab.answer(0, Err(Error::NotFound));
    assert_eq!(lab.session.handles(), 7);
    assert!(walk(&mut lab, 9) && !walk(&mut lab, 10));
    lab.session.check();
}

#[test]
fn messages_of_one_receive_are_begun_in_several_turns_while_others_have_some() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.session.set_room(crate::Room { messages: 2, ..crate::Room::ALL });
    lab.text.clear();
    let all: Vec<u8> =
        (2..7).flat_map(|tag| message(tag, Tmessage::Clunk { fid: tag.into() }).to_vec()).collect();
    lab.step("all".to_string(), Input::Received(Buf::from(all)));
    assert!(!lab.session.is_hungry() && lab.session.deadline() == Some(Instant(0)));
    lab.step("tick".to_string(), Input::Tick);
    lab.step("tick".to_string(), Input::Tick);
    assert!(lab.session.is_hungry() && lab.session.deadline().is_none());
    expect![[r#"
        all: Rlerror 2 (22), Rlerror 3 (22)
        tick: Rlerror 4 (22), Rlerror 5 (22)
        tick: Rlerror 6 (22)
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn attributes_that_are_not_whole_count_and_are_few_when_memory_is_short() {
    let mut lab = Lab::linux();
    lab.attach();
    // The client takes everything sent to it.
    let take = |lab: &mut Lab| {
        while lab.session.unsent() > 0 {
            let input = Input::Sent(lab.session.unsent());
            lab.step("taken".to_string(), input);
        }
    };
    let begin = |lab: &mut Lab, fid| {
        take(lab);
        lab.send(2, Tmessage::Walk { fid: 1, newfid: fid, names: Names::new(&[]).unwrap() });
        lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(fid.into())))));
        take(lab);
        lab.text.clear();
        lab.send(3, Tmessage::Xattrcreate { fid, name: b"n", size: 20_000, flags: 0 });
        take(lab);
        lab.text.contains("Rlerror 3 (12)")
    };
    assert!(!begin(&mut lab, 2), "there is memory");
    assert!(lab.session.bytes() == 0 && !lab.session.owes_bytes(), "a few are free");
    assert!(!begin(&mut lab, 3), "there is memory");
    assert_eq!(lab.session.bytes(), 2 * 20_001 - (32 << 10));
    assert!(lab.session.owes_bytes(), "the values, or that the fids are clunked");
    lab.session.set_room(crate::Room { spare: 0, is_first: false, ..crate::Room::ALL });
    assert!(begin(&mut lab, 4), "none is left");
}

#[test]
fn the_attributes_that_fids_hold_are_bounded() {
    let mut lab = Lab::linux();
    lab.session = Session::new(
        Export { limits: Limits { fids: 100, ..export().limits }, ..export() },
        Identity::Fixed(Caller::Server),
    );
    lab.send(NO_TAG, Tmessage::Version { msize: 8192, version: b"9P2000.L" });
    lab.attach();
    for fid in 2..19 {
        lab.send(2, Tmessage::Walk { fid: 1, newfid: fid, names: Names::new(&[]).unwrap() });
        lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(fid.into())))));
        lab.text.clear();
        lab.send(3, Tmessage::Xattrcreate { fid, name: b"n", size: 65_536, flags: 0 });
        assert_eq!(lab.text.contains("Rlerror 3 (12)"), fid >= 17, "{fid}: {}", lab.text);
    }
    lab.send(4, Tmessage::Clunk { fid: 2 });
    lab.text.clear();
    lab.send(5, Tmessage::Xattrwalk { fid: 1, newfid: 40, name: b"n" });
    lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(40)))));
    lab.answer(0, Ok(Reply::Bytes(vec![0; 65_536])));
    lab.send(6, Tmessage::Xattrwalk { fid: 1, newfid: 41, name: b"n" });
    lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(41)))));
    lab.answer(0, Ok(Reply::Bytes(vec![0; 65_536])));
    expect![[r#"
        TXattrwalk 5: ask 0 Walk
        <- 0 Walked: ask 0 GetAttr
        <- 0 Bytes: RXattrwalk 5
        TXattrwalk 6: ask 0 Walk
        <- 0 Walked: ask 0 GetAttr
        <- 0 Bytes: release 41, Rlerror 6 (12)
    "#]]
    .assert_eq(&lab.text);
}

/// A session with this many fids besides the one of the root.
fn with_fids(count: u32) -> Lab {
    let mut lab = Lab::linux();
    let limits = Limits { fids: 10_000, handles: 10_000, ..export().limits };
    lab.session = Session::new(Export { limits, ..export() }, Identity::Fixed(Caller::Server));
    lab.send(NO_TAG, Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" });
    lab.attach();
    for fid in 2..2 + count {
        lab.send(2, Tmessage::Walk { fid: 1, newfid: fid, names: Names::new(&[]).unwrap() });
        lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(fid.into())))));
    }
    lab.text.clear();
    lab
}

/// Returns the number of nodes released since the last call.
fn released(lab: &mut Lab) -> usize {
    std::mem::take(&mut lab.text).matches("release ").count()
}

#[test]
fn fids_of_a_client_that_left_are_given_back_in_many_steps() {
    let mut lab = with_fids(999);
    lab.step("lost".to_owned(), Input::Lost);
    let mut sum = released(&mut lab);
    assert!((1..=RELEASES_MAX).contains(&sum), "{sum} in one step");
    while let Some(at) = lab.session.deadline() {
        assert!(!lab.session.is_over() && at == Instant(0));
        assert_eq!(lab.session.handles(), 1000 - sum, "they count until they are given back");
        lab.step("tick".to_owned(), Input::Tick);
        let more = released(&mut lab);
        assert!((1..=RELEASES_MAX).contains(&more), "{more} in one step");
        sum += more;
    }
    assert_eq!((sum, lab.session.handles(), lab.session.is_over()), (1000, 0, true));
}

#[test]
fn messages_wait_until_fids_of_the_version_before_are_given_back() {
    let mut lab = with_fids(3 * RELEASES_MAX as u32 + 7);
    let version = || Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" };
    lab.send(NO_TAG, version());
    assert!(lab.text.contains("RVersion"), "{}", lab.text);
    let (uname, aname) = (&b"me"[..], &b""[..]);
    lab.send(1, Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid: Some(5) });
    assert!(!lab.text.contains("ask") && released(&mut lab) == 2 * RELEASES_MAX);
    lab.step("tick".to_owned(), Input::Tick);
    assert!(!lab.text.contains("ask") && released(&mut lab) == RELEASES_MAX);
    lab.step("tick".to_owned(), Input::Tick);
    assert!(lab.text.contains("ask 0"), "{}", lab.text);
    assert_eq!((released(&mut lab), lab.session.handles()), (8, 1));
    lab.send(NO_TAG, version());
    assert_eq!((lab.session.fids(), lab.session.deadline()), (0, None));
}
