use super::*;
use std::sync::mpsc::channel;
use wire::ninep::{Qid, Rmessage};

fn qid(number: u64, is_dir: bool) -> Qid {
    Qid { kind: if is_dir { Qid::DIR } else { 0 }, version: 0, path: number }
}

fn attributes(number: u64, is_dir: bool, size: u64) -> Rmessage<'static> {
    let zero = 0;
    Rmessage::Getattr {
        valid: 0x7ff,
        qid: qid(number, is_dir),
        mode: if is_dir { 0o040_755 } else { 0o100_644 },
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size,
        blksize: 4096,
        blocks: 8,
        atime_sec: zero,
        atime_nsec: zero,
        mtime_sec: zero,
        mtime_nsec: zero,
        ctime_sec: zero,
        ctime_nsec: zero,
        btime_sec: zero,
        btime_nsec: zero,
        generation: zero,
        data_version: zero,
    }
}

fn put_entry(number: u64, is_dir: bool, name: &str, size: u64, out: &mut Vec<u8>) {
    let (qid, kind) = (qid(number, is_dir), if is_dir { 4 } else { 8 });
    let attributes = Some(attributes(number, is_dir, size));
    Record::Entry { qid, cookie: number, kind, name: name.as_bytes(), attributes }.encode(out);
}

/// A directory 1 with file 11, directory 2 and file 12, and then directory 2.
fn tree(contents: bool) -> Vec<u8> {
    let mut out = Vec::new();
    Record::Directory { qid: qid(1, true), path: b"" }.encode(&mut out);
    put_entry(11, false, "a", 3, &mut out);
    put_entry(2, true, "b", 0, &mut out);
    put_entry(12, false, "c", 2, &mut out);
    Record::End.encode(&mut out);
    if contents {
        Record::Content { qid: qid(11, false), name: b"a", data: b"abc" }.encode(&mut out);
        Record::Content { qid: qid(12, false), name: b"c", data: b"de" }.encode(&mut out);
    }
    Record::Directory { qid: qid(2, true), path: b"b" }.encode(&mut out);
    put_entry(21, false, "d", 9, &mut out);
    Record::End.encode(&mut out);
    out
}

fn attr_of(prefetch: &Prefetch, number: u64, now: Instant) -> Attr {
    prefetch.attr(number, now).expect("it was sent")
}

/// Begins a stream with contents at directory 1, for the second file of it.
fn begin_with_contents(prefetch: &Prefetch, now: Instant) -> Begin {
    assert_eq!(prefetch.begin(Wanted::Contents(1, 11), &[1], false, now), None);
    prefetch.begin(Wanted::Contents(1, 12), &[1], false, now).unwrap()
}

#[test]
fn a_stream_is_understood_however_it_is_cut() {
    let (bytes, now) = (tree(true), Instant::now());
    for size in [1, 7, 100, bytes.len()] {
        let prefetch = Prefetch::new(Duration::ZERO);
        let begin = begin_with_contents(&prefetch, now);
        for part in bytes.chunks(size) {
            prefetch.add(begin.number, part, now).unwrap();
        }
        let names = |dir| prefetch.list(dir).unwrap().into_iter().map(|it| it.name);
        assert_eq!(names(1).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(names(2).collect::<Vec<_>>(), [b"d"]);
        assert_eq!(prefetch.find(1, b"x", now), Known::Absent);
        let (a, c) = (attr_of(&prefetch, 11, now), attr_of(&prefetch, 12, now));
        assert_eq!(prefetch.content(&a).unwrap().part(0, 9), b"abc");
        assert_eq!(prefetch.content(&c).unwrap().part(0, 9), b"de");
        assert_eq!(prefetch.begin(Wanted::Listing(2), &[2], true, now), None, "it is here");
    }
}

#[test]
fn what_changes_while_a_stream_lasts_is_not_taken_from_it() {
    let (bytes, now) = (tree(true), Instant::now());
    let report = |what, file| Report { what, file, name: None };
    for change in [What::Contents, What::Attributes, What::Moved] {
        let prefetch = Prefetch::new(Duration::ZERO);
        let begin = begin_with_contents(&prefetch, now);
        prefetch.changed(&report(change, 11));
        prefetch.add(begin.number, &bytes, now).unwrap();
        assert_eq!(prefetch.attr(11, now), None);
        assert_eq!(prefetch.find(1, b"a", now), Known::Unknown);
        assert_eq!(prefetch.has_entries(1), change != What::Moved);
        assert_eq!(prefetch.attr(12, now).is_some(), change != What::Moved);
    }
    let prefetch = Prefetch::new(Duration::ZERO);
    let begin = begin_with_contents(&prefetch, now);
    // The entry has arrived, but not the end of the directory.
    prefetch.add(begin.number, &bytes[..bytes.len() / 3], now).unwrap();
    prefetch.changed(&Report { what: What::Entry, file: 1, name: Some(b"z".to_vec()) });
    prefetch.changed(&report(What::Moved, 2));
    prefetch.add(begin.number, &bytes[bytes.len() / 3..], now).unwrap();
    assert!(!prefetch.has_entries(1) && prefetch.has_entries(2));
}

#[test]
fn what_changes_before_the_end_of_its_directory_is_not_taken() {
    let (bytes, now) = (tree(false), Instant::now());
    let mut listing = Vec::new();
    Record::Directory { qid: qid(1, true), path: b"" }.encode(&mut listing);
    put_entry(11, false, "a", 3, &mut listing);
    for what in [What::Contents, What::Attributes] {
        let prefetch = Prefetch::new(Duration::ZERO);
        let begin = begin_with_contents(&prefetch, now);
        prefetch.add(begin.number, &bytes[..listing.len()], now).unwrap();
        prefetch.changed(&Report { what, file: 11, name: None });
        prefetch.add(begin.number, &bytes[listing.len()..], now).unwrap();
        assert!(prefetch.has_entries(1));
        assert_eq!(prefetch.attr(11, now), None);
        assert!(prefetch.attr(12, now).is_some());
    }
}

#[test]
fn bytes_that_are_no_stream_end_it() {
    let now = Instant::now();
    let records = |list: &[Record<'_>]| {
        let mut out = Vec::new();
        list.iter().for_each(|record| record.encode(&mut out));
        out
    };
    let content = Record::Content { qid: qid(3, false), name: b"x", data: b"" };
    let begins = Record::Directory { qid: qid(1, true), path: b"" };
    for bytes in [
        vec![0; 64],
        records(&[Record::End]),
        records(std::slice::from_ref(&content)),
        records(&[begins.clone(), content.clone()]),
        records(&[begins.clone(), Record::End, content]),
        records(&[begins, Record::End, Record::End]),
    ] {
        let prefetch = Prefetch::new(Duration::ZERO);
        let begin = prefetch.begin(Wanted::Listing(1), &[1], false, now).unwrap();
        assert_eq!(prefetch.add(begin.number, &bytes, now), Err(Ended::Broken));
    }
    let prefetch = Prefetch::new(Duration::ZERO);
    assert_eq!(prefetch.add(3, b"", now), Err(Ended::Dropped));
}

#[test]
fn one_lookup_begins_no_stream_near_the_server() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    assert_eq!(prefetch.begin(Wanted::Name(1), &[1], false, now), None);
    assert_eq!(prefetch.begin(Wanted::Name(2), &[2], false, now), None);
    let begin = prefetch.begin(Wanted::Name(2), &[2], false, now).unwrap();
    assert_eq!(prefetch.begin(Wanted::Name(2), &[2], false, now), None, "it is coming");
    prefetch.end(begin.number, None);
    assert_eq!(prefetch.begin(Wanted::Name(2), &[2], true, now), None, "it has just begun");
    assert!(prefetch.begin(Wanted::Name(2), &[2], true, now + REPEATED).is_some());
    assert!(prefetch.begin(Wanted::Name(3), &[3], true, now).is_some());
    prefetch.end(0, Some(now));
    assert_eq!(prefetch.begin(Wanted::Listing(4), &[4], true, now), None, "the server has refused");
    assert!(prefetch.begin(Wanted::Listing(4), &[4], true, now + REFUSED).is_some());
    prefetch.close();
    assert_eq!(prefetch.begin(Wanted::Listing(5), &[5], true, now + REFUSED), None);
}

#[test]
fn contents_are_sent_for_the_second_file_of_a_directory() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    assert_eq!(prefetch.begin(Wanted::Contents(1, 11), &[1], true, now), None);
    let begin = prefetch.begin(Wanted::Contents(1, 12), &[1], true, now).unwrap();
    assert!(begin.has_contents);
    let bytes = tree(true);
    prefetch.add(begin.number, &bytes, now).unwrap();
    // It has passed them: a file that it has left out is read by itself.
    assert_eq!(prefetch.begin(Wanted::Contents(2, 21), &[2], true, now), None);
    assert_eq!(prefetch.begin(Wanted::Contents(2, 22), &[2], true, now), None);
}

#[test]
fn a_stream_gets_ahead_as_far_as_it_was_used() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    let begin = prefetch.begin(Wanted::Listing(1), &[1], false, now).unwrap();
    assert_eq!(prefetch.room(begin.number), Some(WINDOW.0));
    let mut bytes = Vec::new();
    Record::Directory { qid: qid(1, true), path: b"" }.encode(&mut bytes);
    for number in 0..1000 {
        put_entry(100 + number, false, &format!("file {number}"), 1, &mut bytes);
    }
    Record::End.encode(&mut bytes);
    prefetch.add(begin.number, &bytes, now).unwrap();
    assert_eq!(prefetch.room(begin.number), Some(0));
    prefetch.list(1).unwrap();
    let room = prefetch.room(begin.number).unwrap();
    assert!(room > 4 * WINDOW.0, "{room}");
    prefetch.list(1).unwrap();
    assert_eq!(prefetch.room(begin.number), Some(room), "it counts once");
}

#[test]
fn a_directory_that_is_too_large_is_not_sent_again() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    let begin = prefetch.begin(Wanted::Listing(1), &[1], false, now).unwrap();
    let mut bytes = Vec::new();
    Record::Directory { qid: qid(1, true), path: b"" }.encode(&mut bytes);
    for number in 0..=ENTRIES_MAX as u64 {
        let name = number.to_string();
        let (qid, name) = (qid(100 + number, false), name.as_bytes());
        Record::Entry { qid, cookie: 1 + number, kind: 8, name, attributes: None }
            .encode(&mut bytes);
    }
    assert_eq!(prefetch.add(begin.number, &bytes, now), Err(Ended::Dropped));
    assert_eq!(prefetch.begin(Wanted::Listing(1), &[1], true, now), None);
    assert!(prefetch.begin(Wanted::Listing(1), &[1], true, now + LARGE).is_some());
}

#[test]
fn the_least_used_of_too_many_streams_ends() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    let begin = |dir| prefetch.begin(Wanted::Listing(dir), &[dir], false, now).unwrap().number;
    let numbers: Vec<u64> = (1..=STREAMS_MAX as u64).map(|dir| begin(10 * dir)).collect();
    begin(1000);
    assert_eq!(prefetch.room(numbers[0]), None);
    assert!(numbers[1..].iter().all(|number| prefetch.room(*number).is_some()));
}

#[test]
fn a_request_waits_for_what_comes_next_and_no_longer() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    let begin = prefetch.begin(Wanted::Listing(1), &[1], false, now).unwrap();
    let (ended, ends) = channel();
    let interrupt = Interrupt::default();
    std::thread::scope(|scope| {
        for wanted in [Wanted::Listing(1), Wanted::Name(1)] {
            let (prefetch, ended) = (&prefetch, ended.clone());
            scope.spawn(move || {
                prefetch.wait(wanted, &Interrupt::default());
                ended.send(prefetch.has_entries(1)).unwrap();
            });
        }
        prefetch.add(begin.number, &tree(false), now).unwrap();
        assert!(ends.recv().unwrap() && ends.recv().unwrap());
        // Nothing of these is about to come.
        for wanted in [Wanted::Listing(7), Wanted::Contents(1, 11)] {
            prefetch.wait(wanted, &Interrupt::default());
        }
        prefetch.begin(Wanted::Listing(8), &[8], false, now).unwrap();
        let (waiting, waits) = (&prefetch, &interrupt);
        let waiter = scope.spawn(move || waiting.wait(Wanted::Listing(8), waits));
        interrupt.set();
        prefetch.wake();
        waiter.join().unwrap();
        prefetch.close();
    });
}

#[test]
fn the_next_directory_continues_the_last_stream_from_what_they_have_in_common() {
    let (prefetch, now) = (Prefetch::new(Duration::ZERO), Instant::now());
    let begin = |wanted, way: &[u64]| prefetch.begin(wanted, way, true, now).unwrap();
    let first = begin(Wanted::Listing(1), &[1]);
    prefetch.add(first.number, &tree(false), now).unwrap();
    prefetch.end(first.number, None);
    let second = begin(Wanted::Listing(20), &[1, 2, 20]);
    assert_eq!(second.above, 2, "all of what they have in common is here");
    prefetch.end(second.number, None);
    let third = begin(Wanted::Listing(30), &[1, 2, 30]);
    assert_eq!(third.above, 1);
    // It waits for it from the beginning, until another directory comes in its place.
    let outlook = |number| {
        let state = lock(&prefetch.state);
        state.streams[&third.number].outlook(Wanted::Listing(number))
    };
    let mut bytes = Vec::new();
    Record::Directory { qid: qid(2, true), path: b"" }.encode(&mut bytes);
    for number in [29, 30, 31] {
        put_entry(number, true, &number.to_string(), 0, &mut bytes);
    }
    Record::End.encode(&mut bytes);
    assert_eq!(outlook(30), Outlook::Coming);
    prefetch.add(third.number, &bytes, now).unwrap();
    assert_eq!([30, 31].map(outlook), [Outlook::Coming, Outlook::Later]);
    let mut bytes = Vec::new();
    Record::Directory { qid: qid(31, true), path: b"31" }.encode(&mut bytes);
    prefetch.add(third.number, &bytes, now).unwrap();
    assert_eq!([29, 30, 31].map(outlook), [Outlook::No, Outlook::No, Outlook::Coming]);
    let unknown = begin(Wanted::Listing(50), &[1, 40, 50]);
    assert_eq!(unknown.above, 0, "the entries of 40 may be many");
}
