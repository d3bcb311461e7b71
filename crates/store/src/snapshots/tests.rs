use super::*;

#[test]
fn the_bytes_of_a_snapshot_and_of_a_dead_list() {
    let snapshot = Snapshot {
        name: b"today".to_vec(),
        id: SnapshotId(5),
        root: Ptr { at: 1, birth: 2, sum: 3 },
        date: Time { secs: 4, nanos: 6 },
    };
    let Change::Put { table, key, value } = snapshot.to_change() else { panic!("a put") };
    assert_eq!((table, &key[..]), (SNAPSHOTS, &b"today"[..]));
    let mut golden = Vec::new();
    for word in [5u64, 1, 2, 3, 4] {
        golden.extend(word.to_le_bytes());
    }
    golden.extend([6, 0, 0, 0]);
    assert_eq!(value, golden);
    assert_eq!(Snapshot::decode(&key, &value), Some(snapshot));
    assert_eq!(Snapshot::decode(&key, &value[1..]), None);

    let runs = [Freed { at: 7, count: 2, birth: 8 }];
    let value = encode_dead(&runs);
    assert_eq!(value, [7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(decode_dead(&value).as_deref(), Some(&runs[..]));
    assert_eq!(decode_dead(&value[1..]), None);
    assert_eq!(dead_key(1, 2, 3), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]);
}

#[test]
fn blocks_older_than_the_previous_snapshot_go_to_its_dead_list() {
    let run = |at, birth| Freed { at, count: 1, birth };
    let key = dead_key(9, 10, 0);
    let changes = reap(&key, &[run(1, 4), run(2, 8)], Some(SnapshotId(5)));
    let kept =
        Change::Put { table: DEAD, key: dead_key(5, 10, 0), value: encode_dead(&[run(1, 4)]) };
    let gone = Change::Delete { table: DEAD, key: key.clone() };
    assert_eq!(changes, [gone.clone(), Change::Free { at: 2, count: 1 }, kept]);
    let changes = reap(&key, &[run(1, 4)], None);
    assert_eq!(changes, [gone, Change::Free { at: 1, count: 1 }]);
}
