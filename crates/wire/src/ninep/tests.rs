use super::*;
use base::rng::{Rng, seeded};

#[test]
fn golden_bytes() {
    let mut out = Vec::new();
    Tmessage::Version { msize: 8192, version: b"9P2000.L" }.encode(NO_TAG, &mut out);
    assert_eq!(out, b"\x15\0\0\0\x64\xff\xff\0\x20\0\0\x08\x009P2000.L");
    out.clear();
    let names = Names::new(&[b"a", b"bc"]).unwrap();
    Tmessage::Walk { fid: 1, newfid: 2, names }.encode(7, &mut out);
    assert_eq!(out, b"\x18\0\0\0\x6e\x07\0\x01\0\0\0\x02\0\0\0\x02\0\x01\0a\x02\0bc");
    out.clear();
    Rmessage::Read { data: Data(b"xyz") }.encode(9, &mut out);
    assert_eq!(out[..READ_HEADER_SIZE], read_header(9, 3));
}

#[test]
fn a_stat_has_two_counts_in_a_message_and_one_in_a_directory() {
    let stat = Stat { name: b"f", uid: b"0", ..Stat::unchanged() };
    let mut entry = Vec::new();
    stat.put_entry(&mut entry);
    assert_eq!(Stat::get_entry(&mut Reader::new(&entry)), Ok(stat.clone()));
    let mut message = Vec::new();
    Rmessage::Stat { stat: stat.clone() }.encode(1, &mut message);
    assert_eq!(message.len(), HEADER_SIZE + 2 + entry.len());
    assert_eq!(Rmessage::decode(&message), Ok((1, Rmessage::Stat { stat })));
}

#[test]
fn wrong_bytes_are_named() {
    assert_eq!(Tmessage::decode(b"\x07\0\0\0\xff\0\0"), Err(DecodeError::Type(255)));
    assert_eq!(Tmessage::decode(b"\x08\0\0\0\x78\0\0"), Err(DecodeError::Size));
    assert_eq!(Tmessage::decode(b"\x08\0\0\0\x78\0\0\0"), Err(DecodeError::Short));
    assert_eq!(Tmessage::decode(b"\x0c\0\0\0\x78\0\0\0\0\0\0\0"), Err(DecodeError::Trailing));
    let many = [&b"x"[..]; 17];
    assert_eq!(Names::new(&many), Err(DecodeError::List));
}

/// Any bytes decode to a message that encodes to the same bytes, or to an error.
#[test]
fn decoded_messages_encode_to_the_same_bytes() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..20_000, |s: u64| s..s + 1) {
        let bytes = random_message(&mut seeded(seed));
        round_trip(&bytes, seed);
    }
}

fn round_trip(bytes: &[u8], seed: u64) {
    let mut again = Vec::new();
    if let Ok((tag, message)) = Tmessage::decode(bytes) {
        message.encode(tag, &mut again);
        assert_eq!(again, bytes, "SEED={seed} cargo test what_decodes_encodes_back");
    }
    again.clear();
    if let Ok((tag, message)) = Rmessage::decode(bytes) {
        message.encode(tag, &mut again);
        assert_eq!(again, bytes, "SEED={seed} cargo test what_decodes_encodes_back");
    }
}

/// Returns bytes that are mostly small numbers, so that counts are often valid.
fn random_message(rng: &mut Rng) -> Vec<u8> {
    let length = rng.usize(0..60);
    let mut bytes = vec![0; HEADER_SIZE + length];
    for byte in &mut bytes[4..] {
        *byte = if rng.bool() { 0 } else { rng.u8(0..8) };
    }
    bytes[4] = rng.u8(0..130);
    let size = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes
}

#[test]
fn a_file_that_comes_through_many_servers_has_a_number_of_its_own_at_each() {
    let far = 0xfffe_0000_0000_0002;
    let moved = |inode| qid(&base::Stat { device: far, inode, ..base::Stat::default() }, 1).path;
    for inode in [2, 720, u64::MAX] {
        let numbers: Vec<u64> =
            std::iter::successors(Some(inode), |inode| Some(moved(*inode))).take(20).collect();
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{inode} after {index} servers");
        }
    }
}

#[test]
fn an_entry_and_its_attributes_are_of_one_file() {
    let file = base::Stat { device: 1, inode: 5, size: 9, ..base::Stat::default() };
    let name = base::Name::new(b"f").unwrap();
    let (inode, kind, stat, handle) = (5, file.kind, None, None);
    let entry = base::op::Entry { cookie: 1, inode, device: None, kind, name, stat, handle };
    for device in [1, 2] {
        let found = entry_qid(&entry, 1, device);
        assert_eq!(found, Qid { version: 0, ..qid(&file, device) });
        let Rmessage::Getattr { qid: of, size, .. } = attributes(&file, device) else { panic!() };
        assert_eq!((of, size), (qid(&file, device), 9));
        assert_eq!(found.path == 5, device == 1);
    }
}
