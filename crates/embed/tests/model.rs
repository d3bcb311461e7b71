//! Differential test: the tree access method against redb.
#![allow(clippy::unwrap_used, reason = "a test")]

use base::rng::{Rng, seeded};
use redb::{Database, ReadableTable, TableDefinition};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use upcall_embed::{Ask, Durability, Entries, Entry, Local, Options, Session, Transaction, Tree};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.usize(0..5)).map(|_| *rng.choice(b"\0\x01ab\xfe\xff").unwrap()).collect()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let length = match rng.u8(0..20) {
        0 => rng.usize(4000..20_000),
        1..=4 => rng.usize(500..2000),
        _ => rng.usize(0..100),
    };
    vec![rng.u8(..); length]
}

/// Returns redb's entries in a range.
fn model_range(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &[u8],
    to: Option<&[u8]>,
) -> Vec<Entry> {
    if to.is_some_and(|to| to < from) {
        return Vec::new();
    }
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    let range = table.range::<&[u8]>((Bound::Included(from), to)).unwrap();
    range
        .map(|entry| entry.unwrap())
        .map(|(k, v)| (k.value().to_vec(), v.value().to_vec()))
        .collect()
}

/// Draws a bound of a scan: anywhere, at an existing key, or just behind one.
fn bound(model: &impl ReadableTable<&'static [u8], &'static [u8]>, rng: &mut Rng) -> Vec<u8> {
    let one = key(rng);
    let there = model.range::<&[u8]>(&one[..]..).unwrap().next().map(|entry| entry.unwrap());
    match there {
        Some((key, _)) if rng.bool() => key.value().to_vec(),
        Some((key, _)) if rng.bool() => [key.value(), b"\0"].concat(),
        _ => one,
    }
}

/// Returns this many entries, as copies or borrowed.
fn take(mut scan: Entries<'_, impl Ask>, limit: usize, copied: bool) -> Vec<Entry> {
    if copied {
        return scan.take(limit).collect::<Result<_, _>>().unwrap();
    }
    let mut found = Vec::new();
    while found.len() < limit
        && let Some((key, value)) = scan.advance().unwrap()
    {
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

fn check(
    on: &impl Ask,
    tree: Tree,
    model: &impl ReadableTable<&'static [u8], &'static [u8]>,
    rng: &mut Rng,
) {
    let (from, to) = (bound(model, rng), rng.bool().then(|| bound(model, rng)));
    let (expected, scan) = if rng.u8(0..3) == 0 {
        let prefixed = model_range(model, &from, None).into_iter();
        (prefixed.filter(|e| e.0.starts_with(&from)).collect(), tree.prefix(on, &from))
    } else {
        (model_range(model, &from, to.as_deref()), tree.range(on, &from, to.as_deref()))
    };
    let (mut expected, limit): (Vec<Entry>, _) = (expected, rng.usize(1..400));
    let scan = if rng.bool() {
        expected.reverse();
        scan.backwards()
    } else {
        scan
    };
    expected.truncate(limit);
    let found = take(scan, limit, rng.bool());
    assert!(found == expected, "{from:?}..{to:?}: {} and {}", found.len(), expected.len());
    let one = key(rng);
    let expected = model.get(&one[..]).unwrap().map(|value| value.value().to_vec());
    assert_eq!(tree.get(on, &one).unwrap(), expected);
}

/// Runs one transaction on both, committed or rolled back on both.
fn transaction(local: &Local, tree: Tree, database: &Database, rng: &mut Rng) {
    let ours: Transaction<Local> = local.begin().unwrap();
    let theirs = database.begin_write().unwrap();
    {
        let mut table = theirs.open_table(TABLE).unwrap();
        for _ in 0..rng.usize(0..40) {
            let key = key(rng);
            if rng.u8(0..4) == 0 {
                tree.delete(&ours, &key).unwrap();
                table.remove(&key[..]).unwrap();
            } else {
                let value = value(rng);
                tree.put(&ours, &key, &value).unwrap();
                table.insert(&key[..], &value[..]).unwrap();
            }
            if rng.u8(0..8) == 0 {
                check(&ours, tree, &table, rng);
            }
        }
    }
    if rng.u8(0..5) == 0 {
        ours.rollback().unwrap();
        theirs.abort().unwrap();
    } else {
        let durability = if rng.bool() { Durability::Durable } else { Durability::Soon };
        ours.commit(durability).unwrap();
        theirs.commit().unwrap();
    }
}

#[test]
fn a_tree_says_what_redb_says() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut rng = seeded(seed);
        let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("model-{seed}-{}.volume", std::process::id()));
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend).unwrap();
        let theirs = database.begin_write().unwrap();
        theirs.open_table(TABLE).unwrap();
        theirs.commit().unwrap();
        // Too little memory to cache all pages.
        let options = Options { memory: 600 << 10, ..Options::default() };
        let mut local = Local::create(&path, 64 << 20, &options).unwrap();
        let tree = local.tree("t").unwrap();
        for _ in 0..60 {
            transaction(&local, tree, &database, &mut rng);
            use redb::ReadableDatabase;
            let theirs = database.begin_read().unwrap();
            check(&local, tree, &theirs.open_table(TABLE).unwrap(), &mut rng);
            if rng.u8(0..12) == 0 {
                if rng.bool() {
                    local.close().unwrap();
                } else {
                    local.sync().unwrap();
                }
                drop(local);
                local = Local::open(&path, &options).unwrap();
            }
        }
        drop(local);
        std::fs::remove_file(&path).unwrap();
    }
}
