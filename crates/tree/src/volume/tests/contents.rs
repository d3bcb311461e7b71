//! Reads, writes, holes and lengths.

use super::*;
use base::op::Detail;

/// Returns bytes that depend on their offset.
fn pattern(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 4096) as u8 ^ salt).collect()
}

#[test]
fn written_data_is_read_at_every_size_and_offset() {
    let mut lab = Lab::new();
    let mut model = Vec::new();
    lab.create("/f", 0o644).unwrap();
    let places = [(0, 10), (5, 100), (4000, 200), (8192, 4096), (100, 9000), (20_000, 70_000)];
    for (salt, (offset, count)) in
        (1..).zip(places.into_iter().chain([(12_288, 300_000), (1, 65_536)]))
    {
        let data = pattern(count, salt);
        lab.write("/f", offset as u64, &data).unwrap();
        model.resize(model.len().max(offset + count), 0);
        model[offset..offset + count].copy_from_slice(&data);
        assert!(lab.read("/f").unwrap() == model, "{offset} {count}");
        lab.verify();
    }
    let stat = lab.stat("/f").unwrap();
    assert_eq!((stat.size, stat.blocks), (312_288, 312_288u64.div_ceil(4096) * 8));
}

#[test]
fn large_writes_go_straight_to_their_place_and_small_ones_do_not() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    assert_eq!(lab.write_open(open, 100, &pattern(200_000, 1)), Ok(200_000));
    assert_eq!(lab.read_open(open, 100, 200_000).unwrap(), pattern(200_000, 1));
    assert_eq!(lab.read_open(open, 0, 101).unwrap()[..100], [0; 100]);
    lab.close(open);
    lab.verify();
}

#[test]
fn holes_read_as_zeros_and_take_no_space() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 1 << 40, b"far").unwrap();
    let stat = lab.stat("/f").unwrap();
    assert_eq!((stat.size, stat.blocks), ((1 << 40) + 3, 8));
    let open = lab.open("/f", WRITE).unwrap();
    assert_eq!(lab.read_open(open, 1 << 30, 20_000).unwrap(), vec![0; 20_000]);
    assert_eq!(lab.read_open(open, (1 << 40) - 2, 100).unwrap(), b"\0\0far");
    assert_eq!(lab.read_open(open, 1 << 41, 100).unwrap(), b"");
    assert_eq!(lab.write_open(open, i64::MAX as u64 - 1, b"xx"), Err(Error::FileTooLarge));
    assert_eq!(lab.write_open(open, u64::MAX, b"xx"), Err(Error::FileTooLarge));
    assert_eq!(lab.write_open(open, i64::MAX as u64 - 1, b"x"), Ok(1));
    assert_eq!(lab.write_open(open, u64::MAX, b""), Ok(0));
    lab.close(open);
    assert_eq!(lab.resize("/f", 1 << 63), Err(Error::FileTooLarge));
    lab.resize("/f", 5).unwrap();
    assert_eq!(lab.stat("/f").unwrap().blocks, 0);
    lab.verify();
}

#[test]
fn truncated_data_never_reappears() {
    let mut lab = Lab::new();
    for (size, cut) in [(100, 10), (5000, 4096), (5000, 100), (40_000, 20_001), (40_000, 0)] {
        lab.create("/f", 0o644).unwrap();
        lab.write("/f", 0, &pattern(size, 9)).unwrap();
        lab.resize("/f", cut).unwrap();
        lab.verify();
        lab.resize("/f", size as u64).unwrap();
        let mut model = pattern(size, 9);
        model[cut as usize..].fill(0);
        assert!(lab.read("/f").unwrap() == model, "{size} {cut}");
        lab.write("/f", size as u64 + 10, b"end").unwrap();
        lab.verify();
        lab.remove("/f").unwrap();
    }
    lab.verify();
    assert_eq!(lab.blocks(), 0);
}

#[test]
fn a_large_file_is_cut_piece_by_piece_and_grows_only_then() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let size = 20 << 20;
    lab.write("/f", 0, &pattern(size, 3)).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let set = SetStat { size: Some(1000), ..SetStat::default() };
    let node = lab.walk("/f").unwrap();
    let requested = lab.begin(Ask::SetStat { node, open: None, set });
    assert!(matches!(lab.answered(requested), Some(Ok(Reply::Done))));
    let stat = lab.stat_node(node).unwrap();
    assert!(stat.size == 1000 && stat.blocks > 8, "{stat:?}");
    // Within the file, writes are possible; behind its end they wait.
    assert_eq!(lab.write_open(open, 0, b"head"), Ok(4));
    assert_eq!(lab.volume.counts().reaper.0, "cutting");
    let data = Buf::from(&b"tail"[..]);
    let requested = lab.begin(Ask::Write { open, offset: 2000, data: data.clone() });
    assert!(lab.answered(requested).is_none());
    let given_up = lab.begin(Ask::Write { open, offset: 5000, data });
    lab.input(Input::Cancel(given_up));
    assert!(matches!(lab.answered(given_up), Some(Err(Error::Cancelled))));
    lab.idle();
    assert!(matches!(lab.answered(requested), Some(Ok(Reply::Written(4)))));
    let read = lab.read("/f").unwrap();
    let mut model = pattern(1000, 3);
    model[..4].copy_from_slice(b"head");
    model.resize(2000, 0);
    model.extend(b"tail");
    assert!(read == model);
    assert_eq!(lab.stat_node(node).unwrap().blocks, 8);
    lab.close(open);
    lab.release(node);
    lab.verify();
}

#[test]
fn cutting_goes_on_after_a_crash() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &pattern(12 << 20, 3)).unwrap();
    lab.write("/f", 1 << 50, b"far").unwrap();
    let node = lab.walk("/f").unwrap();
    let set = SetStat { size: Some(5), ..SetStat::default() };
    let open = lab.open("/f", WRITE).unwrap();
    lab.begin(Ask::SetStat { node, open: None, set });
    lab.begin(Ask::Sync { open, data_only: false });
    // The reaper has no turn before the power failure.
    lab.replies.clear();
    while lab.replies.is_empty() {
        if !lab.operate() {
            let (now, mut out) = (lab.instant(), Vec::new());
            lab.volume.store.tick(now, &mut lab.volume.inbox);
            lab.volume.settle(now, &mut out);
            lab.perform(out);
        }
    }
    let mut lab = lab.crash();
    lab.verify();
    assert_eq!(lab.stat("/f").unwrap().blocks, 8);
    assert_eq!(lab.read("/f").unwrap(), pattern(5, 3));
}

#[test]
fn appends_go_to_the_end_whatever_their_offset() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let (one, two) = (lab.open("/f", APPEND).unwrap(), lab.open("/f", APPEND).unwrap());
    for (open, text) in [(one, b"a"), (two, b"b"), (one, b"c")] {
        assert_eq!(lab.write_open(open, 1000, text), Ok(1));
    }
    assert_eq!(lab.read_open(one, 0, 10), Err(Error::Invalid));
    lab.close(one);
    let large = pattern(100_000, 5);
    assert_eq!(lab.write_open(two, 0, &large), Ok(100_000));
    lab.close(two);
    assert!(lab.read("/f").unwrap() == [&b"abc"[..], &large].concat());
    lab.verify();
}

#[test]
fn opening_to_truncate_takes_the_contents_away() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &pattern(10_000, 1)).unwrap();
    let open = lab.open("/f", TRUNCATE).unwrap();
    assert_eq!(lab.read_open(open, 0, 10).unwrap(), b"");
    lab.write_open(open, 0, b"new").unwrap();
    lab.close(open);
    let (node, open) = lab.create_with("/f", TRUNCATE, false, 0o600).unwrap();
    assert_eq!((lab.stat("/f").unwrap().size, lab.stat("/f").unwrap().mode), (0, 0o644));
    lab.close(open);
    lab.release(node);
    lab.verify();
}

#[test]
fn an_open_file_does_only_what_it_was_opened_for() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.make_dir("/d", 0o755).unwrap();
    lab.symlink("/l", "f").unwrap();
    let reader = lab.open("/f", Access::READ).unwrap();
    assert_eq!(lab.write_open(reader, 0, b"x"), Err(Error::Invalid));
    let ask = Ask::List { open: reader, cookie: 0, bytes_max: 100, detail: Detail::Name };
    assert!(matches!(lab.ask(ask), Err(Error::NotDirectory)));
    lab.close(reader);
    assert_eq!(lab.open("/d", WRITE), Err(Error::IsDirectory));
    assert_eq!(lab.open("/l", Access::READ), Err(Error::Loop));
    let dir = lab.open("/d", Access::READ).unwrap();
    assert_eq!(lab.read_open(dir, 0, 10), Err(Error::IsDirectory));
    lab.close(dir);
    lab.verify();
}

#[test]
fn synchronous_writes_and_syncs_are_answered_when_durable() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", Access { sync: true, ..WRITE }).unwrap();
    assert_eq!(lab.write_open(open, 0, b"now"), Ok(3));
    assert_eq!(lab.write_open(open, 0, &pattern(100_000, 2)), Ok(100_000));
    assert_eq!(lab.done(Ask::Sync { open, data_only: true }), Ok(()));
    lab.close(open);
    lab.verify();
}

#[test]
fn sequential_readers_get_read_ahead() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, &pattern(3 << 20, 2)).unwrap();
    let open = lab.open("/f", Access::READ).unwrap();
    for at in (0..3 << 20).step_by(50_000) {
        let got = lab.read_open(open, at as u64, 50_000).unwrap();
        assert!(got == pattern(3 << 20, 2)[at..at + got.len()]);
    }
    lab.close(open);
    lab.verify();
}

#[test]
fn large_appends_at_the_same_time_follow_each_other() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let opens: Vec<OpenId> = (0..3).map(|_| lab.open("/f", APPEND).unwrap()).collect();
    let ids: Vec<RequestId> = (0..3u8)
        .map(|n| {
            let data = Buf::from(vec![n; 100_000]);
            lab.begin(Ask::Write { open: opens[usize::from(n)], offset: 0, data })
        })
        .collect();
    while lab.replies.len() < 3 {
        assert!(lab.operate() || lab.tick());
    }
    for id in ids {
        assert!(matches!(lab.answered(id), Some(Ok(Reply::Written(100_000)))));
    }
    opens.into_iter().for_each(|open| lab.close(open));
    let read = lab.read("/f").unwrap();
    assert_eq!(read.len(), 300_000);
    assert!(read.chunks(100_000).all(|part| part.iter().all(|byte| *byte == part[0])));
    lab.verify();
}
