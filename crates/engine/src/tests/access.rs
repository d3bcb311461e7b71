//! The access methods, each against a model.

use super::*;
use crate::access::hash::{self, Hash};
use crate::access::raw::Raw;
use crate::access::record::{self, Records};
use crate::access::tree::{Tree, after_prefix};
use crate::access::{Kind, catalog::TABLES_FROM};
use base::Time;

fn open(bench: &mut Bench, name: &str, kind: Kind) -> Result<Table, Failure> {
    let reply = bench.ask(alone(Call::OpenTable { name: name.as_bytes().to_vec(), kind }))?;
    let Reply::Table(table) = reply else { panic!("{reply:?}") };
    Ok(table)
}

fn entries(reply: Result<Reply, Failure>) -> Vec<Entry> {
    match reply {
        Ok(Reply::Entries { entries, .. }) => entries.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tables_have_names_and_kinds() {
    let mut bench = Bench::new();
    let accounts = open(&mut bench, "accounts", Kind::Tree).unwrap();
    let people = open(&mut bench, "people", Kind::Records).unwrap();
    assert_eq!((accounts, people), (Table(TABLES_FROM), Table(TABLES_FROM + 1)));
    assert_eq!(open(&mut bench, "accounts", Kind::Hash), Err(Failure::OtherKind));
    assert_eq!(open(&mut bench, "", Kind::Hash), Err(Failure::Invalid));
    let mut bench = bench.crash();
    assert_eq!(open(&mut bench, "accounts", Kind::Tree), Ok(accounts));
    let Ok(Reply::Tables(tables)) = bench.ask(alone(Call::Tables)) else { panic!() };
    let expected =
        [(b"accounts".to_vec(), accounts, Kind::Tree), (b"people".to_vec(), people, Kind::Records)];
    assert_eq!(tables, expected);
}

#[test]
fn a_prefix_scan_ends_at_the_next_prefix() {
    assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!((after_prefix(b"\xff"), after_prefix(b"")), (None, None));
}

/// Scans of every kind return the store merged with the transaction's writes.
#[test]
fn scans_both_ways_agree_with_a_model() {
    for seed in 0..30 {
        let mut rng = seeded(seed);
        let mut bench = Bench::new();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let key = |rng: &mut base::rng::Rng| -> Vec<u8> {
            (0..rng.usize(0..4)).map(|_| *rng.choice(&[0, 1, 7, 0xff]).unwrap()).collect()
        };
        let mut tx = bench.begin();
        for step in 0..300 {
            if rng.u8(0..30) == 0 {
                assert_eq!(bench.commit(tx), DONE);
                tx = bench.begin();
            }
            let one = key(&mut rng);
            if rng.u8(0..3) > 0 {
                let value = vec![step as u8; rng.usize(0..200)];
                assert_eq!(bench.ask(within(tx, put(&one, &value))), DONE);
                model.insert(one, value);
            } else {
                assert_eq!(bench.ask(within(tx, Tree(TABLE).delete(&one))), DONE);
                model.remove(&one);
            }
            let (from, to) = (key(&mut rng), rng.bool().then(|| key(&mut rng)));
            let limit = rng.usize(1..8);
            let mut scan = Tree(TABLE).range(&from, to.as_deref()).limited(limit);
            let inside = |key: &Vec<u8>| *key >= from && to.as_ref().is_none_or(|to| key < to);
            let mut expected: Vec<Entry> = model
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .filter(|e| inside(&e.0))
                .collect();
            if rng.bool() {
                scan = scan.reversed();
                expected.reverse();
            }
            expected.truncate(limit);
            let found = entries(bench.ask(within(tx, Call::Scan(scan))));
            assert_eq!(found, expected, "seed {seed} step {step}");
        }
    }
}

/// Entries of the store and writes of the transaction alternate in every way at the edges of
/// leaves, and some values have an extent.
#[test]
fn scans_from_each_key_to_each_other_agree_with_a_model() {
    let mut rng = seeded(11);
    let mut bench = Bench::new();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let write = |bench: &mut Bench, tx, rng: &mut Rng, model: &mut BTreeMap<_, _>| {
        let key = vec![rng.u8(0..60)];
        if rng.u8(0..3) == 0 {
            assert_eq!(bench.ask(within(tx, Tree(TABLE).delete(&key))), DONE);
            model.remove(&key);
        } else {
            let large = rng.u8(0..10) == 0;
            let value = vec![rng.u8(..); if large { 700 } else { rng.usize(0..60) }];
            assert_eq!(bench.ask(within(tx, put(&key, &value))), DONE);
            model.insert(key, value);
        }
    };
    for own in [0, 5, 50] {
        let tx = bench.begin();
        (0..60).for_each(|_| write(&mut bench, tx, &mut rng, &mut model));
        assert_eq!(bench.commit(tx), DONE);
        let tx = bench.begin();
        (0..own).for_each(|_| write(&mut bench, tx, &mut rng, &mut model));
        for (from, to) in (0..=60).flat_map(|from| (from..=60).map(move |to| (from, to))) {
            let mut scan = Tree(TABLE).range(&[from], Some(&[to])).limited(rng.usize(1..70));
            let range = model.range(vec![from]..vec![to]);
            let mut expected: Vec<Entry> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
            if rng.bool() {
                scan = scan.reversed();
                expected.reverse();
            }
            expected.truncate(scan.limit);
            let mut reply = bench.ask(within(tx, Call::Scan(scan)));
            assert!(entries(reply.clone()) == expected, "{from} to {to}, own {own}");
            let Ok(Reply::Entries { entries, .. }) = &mut reply else { unreachable!() };
            let last = expected.last().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!((entries.len(), entries.last()), (expected.len(), last));
            for (at, (key, value)) in expected.iter().enumerate() {
                assert!(entries.advance() == Some((&key[..], &value[..])), "{from} to {to}");
                assert!(
                    entries.len() == expected.len() - at - 1
                        && entries.iter().count() == entries.len()
                );
            }
            assert!(entries.advance().is_none() && entries.is_empty());
        }
        assert_eq!(bench.commit(tx), DONE);
    }
}

/// A page that is changed while a scan's result is held is copied first.
#[test]
fn scanned_entries_are_locked_against_changes() {
    let mut bench = Bench::new();
    for key in 0..50u8 {
        assert_eq!(bench.ask(alone(put(&[key], &[key; 20]))), DONE);
    }
    let before = bench.ask(alone(Call::Scan(Tree(TABLE).range(b"", None))));
    for key in 0..50u8 {
        assert_eq!(bench.ask(alone(put(&[key], &[0; 20]))), DONE);
        assert_eq!(bench.ask(alone(Tree(TABLE).delete(&[key / 2]))), DONE);
    }
    let expected: Vec<Entry> = (0..50u8).map(|key| (vec![key], vec![key; 20])).collect();
    assert!(entries(before) == expected);
}

#[test]
fn a_scan_goes_on_behind_its_last_entry() {
    let mut bench = Bench::new();
    for key in 0..100u8 {
        assert_eq!(bench.ask(alone(put(&[key], &[key; 100]))), DONE);
    }
    for reverse in [false, true] {
        let mut scan = Tree(TABLE).range(&[10], Some(&[90])).limited(7);
        scan.reverse = reverse;
        let mut found = Vec::new();
        loop {
            let part = entries(bench.ask(alone(Call::Scan(scan.clone()))));
            let Some((last, _)) = part.last() else { break };
            scan = scan.after(last);
            found.extend(part.into_iter().map(|(key, _)| key[0]));
        }
        if reverse {
            found.reverse();
        }
        assert!(found.into_iter().eq(10..90));
    }
}

#[test]
fn record_numbers_are_never_used_again() {
    let mut bench = Bench::new();
    let records = Records(open(&mut bench, "r", Kind::Records).unwrap());
    let mut last = 0;
    for round in 0..4 {
        let tx = bench.begin();
        let other = bench.begin();
        for _ in 0..200 {
            // Two transactions insert without waiting for each other.
            for tx in [tx, other] {
                let Ok(Reply::Id(id)) = bench.ask(within(tx, records.insert(b"x"))) else {
                    panic!()
                };
                assert!(id > last);
                last = id;
            }
        }
        assert_eq!(bench.ask(within(tx, records.update(last + 1, b"y"))), Ok(Reply::Found(false)));
        assert_eq!(bench.ask(Request::Rollback { transaction: tx }), DONE);
        assert_eq!(bench.ask(within(other, records.update(last, b"y"))), Ok(Reply::Found(true)));
        assert_eq!(bench.commit(other), DONE);
        assert_eq!(bench.ask(alone(records.get(last))), value(b"y"));
        let mut found = Vec::new();
        let mut scan = records.scan(0);
        while let Some((key, _)) = {
            let part = entries(bench.ask(alone(Call::Scan(scan.clone()))));
            found.extend(part.iter().map(|(key, _)| record::id(key).unwrap()));
            part.last().cloned()
        } {
            scan = scan.after(&key);
        }
        assert_eq!(found.len(), 200 * (round + 1));
        assert_eq!(bench.ask(alone(records.delete(u64::MAX))), DONE);
        bench = bench.crash();
    }
}

/// There are sixteen hashes in tests, so nearly all keys collide.
#[test]
fn a_hash_table_agrees_with_a_model() {
    let mut rng = seeded(3);
    let mut bench = Bench::new();
    let table = Hash(open(&mut bench, "h", Kind::Hash).unwrap());
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..2000 {
        let key = vec![b'k'; rng.usize(0..60) * 5];
        match rng.u8(0..3) {
            0 => {
                let found = model.remove(&key).is_some();
                assert_eq!(bench.ask(alone(table.delete(&key))), Ok(Reply::Found(found)));
            }
            1 => {
                let value = vec![step as u8; rng.usize(0..100)];
                assert_eq!(bench.ask(alone(table.put(&key, &value))), DONE);
                model.insert(key, value);
            }
            _ => {
                let expected = model.get(&key).cloned();
                assert_eq!(bench.ask(alone(table.get(&key))), Ok(Reply::Value(expected)));
            }
        }
        if step % 500 == 0 {
            bench = bench.crash();
        }
    }
    let stored = entries(bench.ask(alone(Call::Scan(table.scan()))));
    let found: BTreeMap<_, _> =
        stored.iter().map(|(_, stored)| hash::decode(stored).unwrap()).collect();
    assert_eq!((found.len(), found), (stored.len(), model));
}

#[test]
fn raw_bytes_agree_with_a_model() {
    let mut rng = seeded(5);
    let mut bench = Bench::new();
    let raw = Raw(open(&mut bench, "raw", Kind::Raw).unwrap());
    let mut model = vec![0u8; 20_000];
    let mut tx = bench.begin();
    for step in 0..600 {
        let from = rng.usize(0..model.len());
        let to = rng.usize(from..model.len().min(from + 3000));
        match rng.u8(0..3) {
            0 => {
                let cut = raw.cut(7, from as u64, to as u64);
                assert_eq!(bench.ask(within(tx, cut)), DONE);
                model[from..to].fill(0);
            }
            1 => {
                let data = vec![step as u8; to - from];
                assert_eq!(bench.ask(within(tx, raw.write(7, from as u64, &data))), DONE);
                model[from..to].copy_from_slice(&data);
            }
            _ => {
                let read = raw.read(7, from as u64, to - from);
                let bytes = bench.ask(within(tx, read));
                assert_eq!(bytes, Ok(Reply::Bytes(model[from..to].to_vec())), "step {step}");
            }
        }
        if rng.u8(0..6) == 0 {
            assert_eq!(bench.commit(tx), DONE);
            if rng.u8(0..10) == 0 {
                bench = bench.crash();
            }
            tx = bench.begin();
        }
    }
    let large = Call::RawRead { table: raw.0, object: 7, offset: 0, count: ANSWER_MAX + 1 };
    assert_eq!(bench.ask(within(tx, large)), Err(Failure::Invalid));
}

/// The storage of a dropped table of any kind is free again, even after crashes meanwhile; other
/// tables keep theirs, and a snapshot keeps all.
#[test]
fn a_table_that_was_dropped_leaves_nothing_behind() {
    for crashes in [false, true] {
        let mut bench = Bench::new();
        let kept = Tree(open(&mut bench, "kept", Kind::Tree).unwrap());
        assert_eq!(bench.ask(alone(kept.put(b"k", b"v"))), DONE);
        let tree = Tree(open(&mut bench, "tree", Kind::Tree).unwrap());
        let raw = Raw(open(&mut bench, "raw", Kind::Raw).unwrap());
        let free = free_blocks(&mut bench);
        for key in 0..1000u16 {
            let value = vec![1; if key.is_multiple_of(50) { 1500 } else { 20 }];
            assert_eq!(bench.ask(alone(tree.put(&key.to_be_bytes(), &value))), DONE);
        }
        for object in 0..20 {
            assert_eq!(bench.ask(alone(raw.write(object, 100, &[2; 3000]))), DONE);
        }
        assert!(free_blocks(&mut bench) + 200 < free);
        for name in ["tree", "raw"] {
            let drop = Call::DropTable { name: name.as_bytes().to_vec() };
            assert_eq!(bench.ask(alone(drop.clone())), Ok(Reply::Found(true)));
            assert_eq!(bench.ask(alone(drop)), Ok(Reply::Found(false)));
        }
        assert_eq!(bench.ask(alone(tree.get(b"k"))), Err(Failure::Dropped));
        for turn in 0..2000 {
            bench.now = bench.now + Duration::from_millis(5);
            bench.run();
            if crashes && turn % 300 == 299 {
                bench = bench.crash();
            }
        }
        // Freed blocks count from the next checkpoint on.
        bench.now = bench.now + Duration::from_secs(60);
        bench.run();
        let now_free = free_blocks(&mut bench);
        assert!(now_free + 10 >= free, "{now_free} of {free} blocks");
        let left = entries(bench.ask(alone(Call::Scan(tree.range(b"", None)))).or_else(|error| {
            assert_eq!((error, crashes), (Failure::Dropped, false));
            Ok(Reply::Entries { entries: ScanBatch::default(), more: false })
        }));
        assert!(left.is_empty(), "{} entries are left", left.len());
        assert_eq!(bench.ask(alone(kept.get(b"k"))), value(b"v"));
        let again = open(&mut bench, "tree", Kind::Hash).unwrap();
        assert!(again > raw.0, "numbers are not used again");
    }
}

fn free_blocks(bench: &mut Bench) -> u64 {
    assert_eq!(bench.ask(Request::Sync), DONE);
    let Ok(Reply::Space(space)) = bench.ask(Request::Space) else { panic!() };
    space.blocks_free
}

#[test]
fn dropping_a_table_waits_for_its_users_and_refuses_new_ones() {
    let mut bench = Bench::new();
    let tree = Tree(open(&mut bench, "t", Kind::Tree).unwrap());
    assert_eq!(bench.ask(alone(tree.put(b"a", b"1"))), DONE);
    let name = b"before".to_vec();
    assert_eq!(bench.ask(Request::Snapshot { name, date: Time::default() }), DONE);
    let (user, dropper, late) = (bench.begin(), bench.begin(), bench.begin());
    assert_eq!(bench.ask(within(user, tree.put(b"b", b"2"))), DONE);
    let drop = Call::DropTable { name: b"t".to_vec() };
    let drops = bench.submit(within(dropper, drop.clone()));
    bench.run();
    assert_eq!(bench.answer(drops), None);
    assert_eq!(bench.commit(user), DONE);
    bench.run();
    assert_eq!(bench.answer(drops), Some(Ok(Reply::Found(true))));
    let waits = bench.submit(within(late, tree.get(b"a")));
    bench.run();
    assert_eq!(bench.answer(waits), None);
    // Others see the table until then, and if it is rolled back also afterwards.
    assert_eq!(bench.ask(alone(tree.get(b"b"))), value(b"2"));
    assert_eq!(bench.ask(Request::Rollback { transaction: dropper }), DONE);
    bench.run();
    assert_eq!(bench.answer(waits), Some(value(b"1")));
    assert_eq!(bench.commit(late), DONE);
    let dropper = bench.begin();
    assert_eq!(bench.ask(within(dropper, drop)), Ok(Reply::Found(true)));
    // In the same transaction another table may take its name.
    let call = Call::OpenTable { name: b"t".to_vec(), kind: Kind::Tree };
    let Ok(Reply::Table(new)) = bench.ask(within(dropper, call)) else { panic!() };
    assert_eq!(bench.ask(within(dropper, Tree(new).put(b"a", b"new"))), DONE);
    assert_eq!(bench.commit(dropper), DONE);
    let apply = Change::Put { table: tree.0, key: b"a".to_vec(), value: b"3".to_vec() };
    for call in [tree.get(b"a"), tree.put(b"a", b"3"), Call::Apply(vec![apply])] {
        assert_eq!(bench.ask(alone(call)), Err(Failure::Dropped));
    }
    assert_eq!(bench.ask(alone(Tree(new).get(b"a"))), value(b"new"));
    let Ok(Reply::Snapshots(all)) = bench.ask(Request::Snapshots) else { panic!() };
    let old = On::Once(View::Snapshot(all[0].1), Durability::Soon);
    assert_eq!(bench.ask(Request::Call(old, tree.get(b"a"))), value(b"1"));
}
