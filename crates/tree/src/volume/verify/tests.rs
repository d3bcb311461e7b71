use super::super::record::{key, pair};
use super::*;
use base::Name;

/// The records of a small tree: `/d/f`, also named `/g`, with one attribute and two blocks.
fn records() -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let (inodes_max, bytes_max) = (u64::MAX, u64::MAX);
    let settings = Settings { quotas: false, seed: 7, inodes_max, bytes_max };
    let counters = Counters { next: 10, inodes: 3, blocks: 2 };
    let dir = |parent, entries, links| Inode {
        kind: Kind::Directory,
        parent,
        entries,
        links,
        ..Inode::default()
    };
    let file = Inode { links: 2, size: 5000, blocks: 2, attrs: 1, ..Inode::default() };
    let mut entries = vec![
        (1, entry(1, 2, Kind::Directory, "d")),
        (1, entry(1, 3, Kind::File, "g")),
        (2, entry(2, 3, Kind::File, "f")),
    ];
    entries.sort_by(|a, b| a.1.1.cmp(&b.1.1));
    let attr = Attr { name: b"user.a", value: b"v" };
    let mut all = vec![
        (SETTINGS, SETTINGS_KEY.to_vec(), settings.encode()),
        (SETTINGS, COUNTERS_KEY.to_vec(), counters.encode()),
        (INODES, key(1).to_vec(), dir(1, 2, 3).encode()),
        (INODES, key(2).to_vec(), dir(1, 1, 2).encode()),
        (INODES, key(3).to_vec(), file.encode()),
    ];
    all.extend(entries.into_iter().map(|(_, record)| record));
    all.push((ATTRS, pair(3, first_cookie(7, b"user.a")).to_vec(), attr.encode()));
    all
}

fn entry(dir: u64, ino: u64, kind: Kind, name: &str) -> (Table, Vec<u8>, Vec<u8>) {
    let name = Name::new(name.as_bytes()).unwrap();
    let place = pair(dir, first_cookie(7, name.as_bytes())).to_vec();
    (ENTRIES, place, Entry { ino, kind, name }.encode())
}

fn verify(records: &[(Table, Vec<u8>, Vec<u8>)], blocks: u64) -> Vec<String> {
    let mut verifier = Verifier::new(4096);
    records.iter().for_each(|(table, key, value)| verifier.record(*table, key, value));
    verifier.data(3, 0, blocks);
    verifier.finish().iter().map(ToString::to_string).collect()
}

/// Changes the record of an inode.
fn with(ino: u64, change: impl Fn(&mut Inode)) -> Vec<String> {
    let mut all = records();
    let found = all.iter_mut().find(|(table, at, _)| *table == INODES && *at == key(ino)).unwrap();
    let mut inode = Inode::decode(&found.2).unwrap();
    change(&mut inode);
    found.2 = inode.encode();
    verify(&all, 2)
}

#[test]
fn a_sound_tree_gives_no_findings() {
    assert_eq!(verify(&records(), 2), Vec::<String>::new());
}

#[test]
fn every_number_is_compared() {
    assert_eq!(with(3, |inode| inode.links = 3), ["/g: 2 names, but its record counts 3"]);
    assert_eq!(with(2, |inode| inode.links = 3), ["/d: 2 links, but its record counts 3"]);
    assert_eq!(with(2, |inode| inode.entries = 4), ["/d: 1 entries, but its record counts 4"]);
    assert_eq!(with(3, |inode| inode.attrs = 0), ["/g: 1 attributes, but its record counts 0"]);
    assert_eq!(
        with(3, |inode| inode.blocks = 5),
        [
            "volume: 5 blocks of contents, but its record counts 2",
            "/g: 2 blocks, but its record counts 5"
        ]
    );
    assert_eq!(
        with(3, |inode| inode.size = 100),
        ["/g: contents up to byte 8192, its size is 100"]
    );
    assert_eq!(
        with(3, |inode| inode.trimming = true),
        ["/g: has contents beyond its end that are not marked for removal"]
    );
    assert_eq!(
        with(2, |inode| inode.parent = 2),
        ["/d: is in inode 1, but its inode names 2", "/d: cannot be reached from the root"]
    );
}

#[test]
fn names_must_lead_somewhere_and_stand_where_they_belong() {
    let mut all = records();
    all.retain(|(table, at, _)| *table != INODES || *at != key(3));
    let found = verify(&all, 0);
    assert!(found.contains(&"/d: f leads to inode 3, which is not there".to_string()), "{found:?}");
    assert!(found.contains(&"inode 3: attributes without an inode".to_string()), "{found:?}");
    let mut all = records();
    let place = all.iter_mut().find(|(table, ..)| *table == ENTRIES).unwrap();
    place.1[15] ^= 0xff;
    place.1[8] ^= 1;
    let found = verify(&all, 2);
    assert!(found[0].contains("does not belong at"), "{found:?}");
    let mut all = records();
    let (table, mut place, value) = entry(2, 3, Kind::File, "f");
    place[15] += 1;
    all.insert(8, (table, place, value));
    assert!(verify(&all, 2).contains(&"/d: f is there twice".to_string()));
    let mut all = records();
    all.push((ORPHANS, key(3).to_vec(), vec![0; 9]));
    assert_eq!(verify(&all, 2), ["/g: waits to be freed without a reason"]);
}

#[test]
fn records_that_make_no_sense_are_reported_and_no_bytes_make_it_panic() {
    let mut rng = base::rng::seeded(3);
    for _ in 0..3000 {
        let mut all = records();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..all.len());
            let (_, place, value) = &mut all[at];
            let bytes = if rng.bool() { place } else { value };
            let byte = rng.usize(..bytes.len().max(1));
            bytes.get_mut(byte).into_iter().for_each(|byte| *byte = rng.u8(..));
            if rng.u8(..8) == 0 {
                bytes.truncate(byte);
            }
        }
        verify(&all, 2);
    }
    let mut all = records();
    all[2].2.truncate(5);
    let found = verify(&all, 2);
    assert!(found.contains(&"/: its record makes no sense".to_string()), "{found:?}");
    assert!(found.contains(&"/: the root directory is missing".to_string()), "{found:?}");
}
