//! Fuzzers of the formats.

use super::streams;
use base::rng::Rng;
use wire::dav::{Change, write_property};
use wire::http::{Chunks, Piece, Resolved, parse};
use wire::ninep::{Qid, Reader, Rmessage, Stat, Tmessage, dirents, frame_size, put_dirent};
use wire::subtree::{self, RECORD_MAX, Record};

/// Tests that a decoded message encodes to the same bytes.
pub(super) fn ninep_decode(rng: &mut Rng) {
    let tag = rng.u16(..);
    let requested = rng.bool();
    let mut bytes = if requested { streams::request(rng, tag) } else { streams::answer(rng, tag) };
    let spoilt = rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
        if let Some(size) = bytes.first_chunk_mut::<4>().filter(|_| rng.bool()) {
            *size = [0; 4];
            let length = u32::try_from(bytes.len()).expect("small");
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
    }
    let _ = frame_size(&bytes);
    let mut again = Vec::new();
    let decoded = match requested {
        true => Tmessage::decode(&bytes).map(|(tag, message)| message.encode(tag, &mut again)),
        false => Rmessage::decode(&bytes).map(|(tag, message)| message.encode(tag, &mut again)),
    };
    assert!(decoded.is_ok() || spoilt, "a valid message was refused");
    // Only a name longer than 4 KiB within a stat is truncated.
    assert!(decoded.is_err() || again == bytes || bytes.len() > 4096, "{bytes:?} became {again:?}");
}

pub(super) fn ninep_entries(rng: &mut Rng) {
    let mut bytes = Vec::new();
    let linux = rng.bool();
    for number in 0..rng.u64(..6) {
        let name = vec![b'n'; rng.usize(1..40)];
        match linux {
            true => put_dirent(Qid::default(), number, 4, &name, &mut bytes),
            false => Stat { name: &name, ..Stat::default() }.put_entry(&mut bytes),
        }
    }
    let spoilt = rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
    }
    let mut reader = Reader::new(&bytes);
    let mut good = true;
    match linux {
        true => good = dirents(&bytes).is_ok(),
        false => {
            while good && !reader.is_empty() {
                good = Stat::get_entry(&mut reader).is_ok();
            }
        }
    }
    assert!(good || spoilt, "valid entries were refused");
}

/// Tests that records are decoded one after the other, and encode to the same bytes.
pub(super) fn subtree_records(rng: &mut Rng) {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..6) {
        record(rng, &mut bytes);
    }
    let spoilt = rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
    }
    let mut rest = bytes.as_slice();
    loop {
        match subtree::decode(rest) {
            Ok(Some((record, size))) => {
                assert!(size <= RECORD_MAX, "a record of {size} bytes");
                let mut again = Vec::new();
                record.encode(&mut again);
                assert_eq!(again, rest[..size], "{record:?}");
                rest = &rest[size..];
            }
            Ok(None) => return assert!(spoilt || rest.is_empty(), "a whole record is missing"),
            Err(error) => return assert!(spoilt, "a valid record was refused: {error}"),
        }
    }
}

/// Draws a valid record.
fn record(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let qid = Qid { kind: rng.u8(..), version: rng.u32(..), path: rng.u64(..) };
    let text = vec![b'n'; rng.usize(..40)];
    let record = match rng.u8(..5) {
        0 => Record::Directory { qid, path: &text },
        1 => {
            let stat = base::Stat { size: rng.u64(..), ..base::Stat::default() };
            let attributes = rng.bool().then(|| wire::ninep::attributes(&stat, 0));
            Record::Entry { qid, cookie: rng.u64(..), kind: rng.u8(..), name: &text, attributes }
        }
        2 => Record::End,
        3 => Record::Failed { errno: rng.u32(..) },
        _ => Record::Content { qid, name: b"name", data: &text },
    };
    record.encode(bytes);
}

/// Tests that a parsed head parses equally without the following bytes, and that its components are
/// plain.
pub(super) fn http_head(rng: &mut Rng) {
    let mut bytes = streams::http_request(rng);
    if rng.bool() {
        streams::spoil(rng, &mut bytes);
    }
    if let Ok(Some((request, length))) = parse(&bytes) {
        assert!(length <= bytes.len());
        assert!(request.target.path.iter().all(base::Name::plain), "{:?}", request.target);
        let alone = parse(&bytes[..length]).expect("it was understood").expect("it was whole");
        assert_eq!(alone.0, request);
        assert_ne!(parse(&bytes[..length - 1]).ok().flatten().map(|(_, n)| n), Some(length));
        let _ = request.target.encoded();
        let _ = request.ranges.map(|ranges| ranges.resolve(streams::number(rng)));
        let (tag, date) = ("\"a\"", base::Time::from_secs(rng.i64(..)));
        let _ = request.conditions.judge(request.method, Some((tag, date)));
        let _ = request.conditions.range_applies(tag, date);
    }
}

/// Tests that the properties of a body can be stored, and are the same when they are read.
pub(super) fn dav_bodies(rng: &mut Rng) {
    let mut bytes = streams::dav_body(rng).into_bytes();
    if rng.u8(..4) > 0 {
        streams::spoil(rng, &mut bytes);
    }
    let _ = wire::dav::propfind(&bytes);
    let _ = wire::dav::lock_request(&bytes);
    let Ok(changes) = wire::dav::proppatch(&bytes) else { return };
    assert!(!changes.is_empty() && changes.len() <= wire::dav::PROPERTIES_MAX);
    for change in changes {
        let Change::Set(property) = &change else { continue };
        let mut text = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>".to_string();
        write_property(&property.name, property.lang.as_deref(), &property.value, &mut text);
        text += "</D:prop></D:set></D:propertyupdate>";
        if text.len() <= wire::dav::BODY_MAX {
            assert_eq!(wire::dav::proppatch(text.as_bytes()), Ok(vec![change]), "{text}");
        }
    }
}

/// Tests that a body is decoded unchanged, however it is split.
pub(super) fn http_chunks(rng: &mut Rng) {
    let body = vec![b'x'; rng.usize(..500)];
    let mut bytes = streams::chunked(rng, &body);
    let spoilt = rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
    }
    let (mut place, mut got, mut have, mut at) = (Chunks::default(), 0, 0, 0);
    while have < bytes.len() {
        have = (have + rng.usize(1..60)).min(bytes.len());
        loop {
            let Ok((piece, next)) = place.next(&bytes[at..have]) else {
                return assert!(spoilt, "a valid body was refused");
            };
            place = next;
            match piece {
                Piece::Framing(count) => at += count,
                Piece::Data(count) => {
                    assert!(count > 0, "no progress");
                    (at, got) = (at + count, got + count);
                }
                Piece::Incomplete | Piece::End => break,
            }
            assert!(at <= have, "more was taken than was there");
        }
    }
    assert!(spoilt || (place == Chunks::Done && got == body.len()), "{place:?}, {got} bytes");
}

pub(super) fn http_ranges(rng: &mut Rng) {
    let mut list = Vec::new();
    for _ in 0..rng.usize(1..5) {
        let (first, last) = (streams::number(rng), streams::number(rng));
        list.push(match rng.u8(..3) {
            0 => format!("{first}-"),
            1 => format!("-{last}"),
            _ => format!("{first}-{last}"),
        });
    }
    let text = format!("GET / HTTP/1.1\r\nHost: h\r\nRange: bytes={}\r\n\r\n", list.join(","));
    let (request, _) = parse(text.as_bytes()).expect("valid").expect("whole");
    let length = streams::number(rng);
    match request.ranges.map(|ranges| ranges.resolve(length)) {
        Some(Resolved::Parts(parts)) => {
            assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
            assert!(!parts.is_empty());
        }
        Some(Resolved::Whole | Resolved::Unsatisfiable) | None => {}
    }
}

/// A faulty decoder that every fuzzer of the kind must detect.
pub(super) fn canary(rng: &mut Rng) {
    let mut bytes = streams::request(rng, 1);
    streams::spoil(rng, &mut bytes);
    if let Some(length) = bytes.get(7).copied()
        && bytes[4] == 112
    {
        let _believed = &bytes[8..8 + usize::from(length)];
    }
}

/// A faulty decoder that a fuzzer detects only with feedback about its progress.
pub(super) fn guided_canary(rng: &mut Rng) {
    let mut known = 0;
    for expected in *b"clunk" {
        if rng.u8(..) != expected {
            return;
        }
        known += 1;
    }
    assert!(known < 5, "it knows the word");
}
