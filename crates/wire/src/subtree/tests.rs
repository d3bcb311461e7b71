use super::*;
use base::rng::{Rng, seeded};

/// Decodes a stream of whole records.
fn decoded(mut bytes: &[u8]) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, size) = decode(bytes).expect("it is valid").expect("it is whole");
        records.push(record);
        bytes = &bytes[size..];
    }
    records
}

fn encoded(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    bytes
}

fn samples() -> Vec<Record<'static>> {
    let qid = Qid { kind: Qid::DIR, version: 7, path: 1 << 40 };
    let stat = base::Stat { inode: 9, size: 1 << 33, mode: 0o644, ..base::Stat::default() };
    let attributes = Some(crate::ninep::attributes(&stat, 0));
    let (cookie, kind) = (u64::MAX, 8);
    vec![
        Record::Directory { qid, path: b"" },
        Record::Directory { qid, path: b"a/b\n" },
        Record::Entry { qid, cookie, kind, name: b"n", attributes: None },
        Record::Entry { qid, cookie, kind, name: &[b'x'; NAME_MAX], attributes },
        Record::End,
        Record::Failed { errno: 13 },
        Record::Content { qid, name: b"n", data: b"" },
        Record::Content { qid, name: &[b'x'; NAME_MAX], data: &[7; CONTENT_MAX] },
    ]
}

#[test]
fn records_are_decoded_one_after_the_other_however_they_are_cut() {
    let bytes = encoded(&samples());
    assert_eq!(decoded(&bytes), samples());
    for record in samples() {
        let bytes = encoded(std::slice::from_ref(&record));
        for end in (0..bytes.len()).filter(|end| *end < 300 || *end + 9 > bytes.len()) {
            assert_eq!(decode(&bytes[..end]), Ok(None), "{end} bytes of {record:?}");
        }
        assert_eq!(decode(&bytes), Ok(Some((record, bytes.len()))));
    }
}

#[test]
fn golden_bytes() {
    let qid = Qid { kind: Qid::DIR, version: 1, path: 2 };
    let bytes = encoded(&[Record::Directory { qid, path: b"ab" }]);
    assert_eq!(bytes, b"\x16\0\0\0\x01\x80\x01\0\0\0\x02\0\0\0\0\0\0\0\x02\0ab");
    let ends = encoded(&[Record::End, Record::Failed { errno: 2 }]);
    assert_eq!(ends, b"\x05\0\0\0\x03\x09\0\0\0\x04\x02\0\0\0");
    let content = encoded(&[Record::Content { qid, name: b"f", data: b"xyz" }]);
    assert_eq!(content[RECORD_HEADER + 13..], *b"\x01\0fxyz");
    // The largest record is one of contents.
    let largest = samples().pop().expect("there are samples");
    assert_eq!(encoded(&[largest]).len(), RECORD_MAX);
}

#[test]
fn wrong_bytes_are_named() {
    assert_eq!(decode(b"\x04\0\0\0\x03"), Err(DecodeError::Size));
    assert_eq!(decode(b"\0\0\x02\0"), Err(DecodeError::Size));
    assert_eq!(decode(b"\x05\0\0\0\x09"), Err(DecodeError::Type(9)));
    assert_eq!(decode(b"\x06\0\0\0\x03\0"), Err(DecodeError::Trailing));
    assert_eq!(decode(b"\x07\0\0\0\x04\0\0"), Err(DecodeError::Short));
    // Attributes are whole or absent.
    let qid = Qid::default();
    let (cookie, kind, name, attributes) = (1, 8, &b"n"[..], None);
    let mut bytes = encoded(&[Record::Entry { qid, cookie, kind, name, attributes }]);
    bytes.push(0);
    bytes[0] += 1;
    assert_eq!(decode(&bytes), Err(DecodeError::Short));
}

/// Any bytes decode to a record that encodes to the same bytes, or to an error.
#[test]
fn decoded_records_encode_to_the_same_bytes() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..20_000, |s: u64| s..s + 1) {
        let bytes = random_record(&mut seeded(seed));
        if let Ok(Some((record, size))) = decode(&bytes) {
            assert_eq!(encoded(&[record]), bytes[..size], "SEED={seed}");
        }
    }
}

/// Returns bytes that are mostly small numbers, so that counts are often valid.
fn random_record(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_HEADER + rng.usize(0..220)];
    for byte in &mut bytes[4..] {
        *byte = if rng.bool() { 0 } else { rng.u8(0..8) };
    }
    let size = u32::try_from(bytes.len() - rng.usize(0..2)).expect("small");
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes
}
