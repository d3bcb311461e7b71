use super::*;
use base::rng;

fn sample() -> Superblock {
    let geometry = Geometry { block: 512, blocks: 1000, journal: 16, segment: 64 };
    Superblock {
        volume: 0x1122_3344_5566_7788,
        epoch: 9,
        layout: geometry.layout().unwrap(),
        created: Time { secs: 1, nanos: 2 },
        map: 1,
        index_sum: 3,
        root: Ptr { at: 4, birth: 5, sum: 6 },
        tail: Position { block: 7, sequence: 8, chain: 9 },
    }
}

#[test]
fn the_bytes_of_a_superblock() {
    let bytes = sample().encode();
    let mut golden = b"upcall\0V\x01\0\0\0\0\x02\0\0\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
    for word in [9u64, 1000, 16, 64, 1, 2, 1, 3, 4, 5, 6, 7, 8, 9] {
        golden.extend(word.to_le_bytes());
    }
    golden.resize(504, 0);
    golden.extend(0xe3f6_27c4_4f07_2fb7_u64.to_le_bytes());
    assert_eq!(sum(&golden[..504]), u64_at(&bytes, 504));
    assert_eq!(bytes[..504], golden[..504]);
    assert_eq!(Superblock::decode(&bytes), Ok(sample()));
    assert_eq!(sample().at(), 8, "the second slot");
}

fn moved() -> Superblock {
    let layout = sample().layout.grown(3000).unwrap();
    Superblock { layout, epoch: 10, ..sample() }
}

#[test]
fn the_bytes_of_a_superblock_whose_maps_have_moved() {
    let bytes = moved().encode();
    let mut golden = b"upcall\0V\x02\0\0\0\0\x02\0\0\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
    for word in [10u64, 3000, 16, 64, 1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 1000, 112] {
        golden.extend(word.to_le_bytes());
    }
    golden.resize(504, 0);
    assert_eq!(bytes[..504], golden[..504]);
    assert_eq!(Superblock::decode(&bytes), Ok(moved()));
    assert_eq!((moved().version(), sample().version()), (2, 1));
}

#[test]
fn a_superblock_of_version_2_counts_when_none_of_version_1_is_left() {
    let mut head = vec![0; HEAD_BYTES];
    for epoch in 2..10 {
        let superblock = Superblock { epoch, ..sample() };
        let at = superblock.at() as usize * 512;
        head[at..at + 512].copy_from_slice(&superblock.encode());
    }
    let (old, new) = (sample(), moved());
    let copies = new.copies(&old);
    assert_eq!(copies.len(), 7);
    assert!(copies.contains(&new.at()) && !copies.contains(&old.at()));
    for at in copies.into_iter().map(|at| at as usize * 512) {
        assert_eq!(Superblock::newest(&head), Ok(old.clone()));
        head[at..at + 512].copy_from_slice(&new.encode());
    }
    assert_eq!(Superblock::newest(&head), Ok(old.clone()));
    let at = old.at() as usize * 512;
    // Torn or whole, it is the end of version 1.
    for bytes in [vec![7; 512], new.encode().to_vec()] {
        head[at..at + 512].copy_from_slice(&bytes);
        assert_eq!(Superblock::newest(&head), Ok(new.clone()));
    }
}

#[test]
fn the_newest_valid_one_wins() {
    let mut head = vec![0; HEAD_BYTES];
    assert_eq!(Superblock::newest(&head), Err(Error::NotAVolume));
    for epoch in 3..9 {
        let superblock = Superblock { epoch, ..sample() };
        let at = superblock.at() as usize * 512;
        head[at..at + 512].copy_from_slice(&superblock.encode());
    }
    assert_eq!(Superblock::newest(&head).map(|found| found.epoch), Ok(8));
    head[100] ^= 1;
    assert_eq!(Superblock::newest(&head).map(|found| found.epoch), Ok(7));
}

#[test]
fn no_bytes_make_it_panic() {
    let mut rng = rng::seeded(5);
    for _ in 0..20_000 {
        let mut bytes = if rng.bool() { sample() } else { moved() }.encode().to_vec();
        for _ in 0..rng.usize(1..4) {
            bytes[rng.usize(0..160)] = rng.u8(..);
        }
        let sum = sum(&bytes[..504]);
        bytes[504..512].copy_from_slice(&sum.to_le_bytes());
        if let Ok(found) = Superblock::decode(&bytes) {
            assert!(found.layout.blocks > found.root.at);
        }
    }
}
