//! The embedded library on a real file, from many threads.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use upcall_embed::{
    Ask, Call, Durability, Error, Failure, Local, Options, Reply, Request, Service, Session,
    Ticket, Tree, Volume,
};

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("{name}-{}.volume", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const SIZE: u64 = 32 << 20;

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

fn balance(on: &impl Ask, tree: Tree, account: u64) -> Result<u64, Error> {
    Ok(number(&tree.get(on, &account.to_be_bytes())?.unwrap()))
}

/// Threads transfer in opposite directions and read before they write, which causes deadlocks; the
/// sum is invariant, also for concurrent readers.
#[test]
fn money_stays_while_many_threads_transfer() {
    const ACCOUNTS: u64 = 8;
    let scratch = Scratch::new("bank");
    let volume = Volume::create(&scratch.0, SIZE).unwrap();
    let tree = volume.tree("accounts").unwrap();
    for account in 0..ACCOUNTS {
        tree.put(&volume.soon(), &account.to_be_bytes(), &100u64.to_be_bytes()).unwrap();
    }
    let victims = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (volume, victims) = (volume.clone(), &victims);
            scope.spawn(move || {
                let mut rng = base::rng::seeded(thread);
                for _ in 0..60 {
                    let (from, to) = (rng.u64(0..ACCOUNTS), rng.u64(0..ACCOUNTS));
                    transfer(&volume, tree, (from, to), rng.u64(0..30), victims);
                    let look = volume.begin_read().unwrap();
                    match tree.iter(&look).collect::<Result<Vec<_>, _>>() {
                        Ok(all) => {
                            let sum: u64 = all.iter().map(|(_, money)| number(money)).sum();
                            assert_eq!(sum, 100 * ACCOUNTS);
                        }
                        Err(error) => assert!(error.is_deadlock(), "{error}"),
                    }
                }
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS).map(|account| balance(&volume, tree, account).unwrap()).sum();
    assert_eq!(sum, 100 * ACCOUNTS);
    println!("{} were chosen to go", victims.into_inner());
}

fn transfer(volume: &Volume, tree: Tree, (from, to): (u64, u64), amount: u64, victims: &AtomicU64) {
    let tried = AtomicU64::new(0);
    let attempt = || {
        volume.transact(|tx| {
            tried.fetch_add(1, Ordering::Relaxed);
            let (one, other) = (balance(tx, tree, from)?, balance(tx, tree, to)?);
            if from != to && one >= amount {
                tree.put(tx, &to.to_be_bytes(), &(other + amount).to_be_bytes())?;
                tree.put(tx, &from.to_be_bytes(), &(one - amount).to_be_bytes())?;
            }
            Ok(())
        })
    };
    // A transaction that was chosen too often fails, and may be repeated.
    while let Err(error) = attempt() {
        assert!(error.is_deadlock(), "{error}");
    }
    victims.fetch_add(tried.into_inner() - 1, Ordering::Relaxed);
}

#[test]
fn durable_data_survives_a_drop_without_close() {
    let scratch = Scratch::new("drop");
    let options = Options::default();
    let local = Local::create(&scratch.0, SIZE, &options).unwrap();
    let tree = local.tree("t").unwrap();
    for round in 0..20u64 {
        let tx = local.begin().unwrap();
        tree.put(&tx, &round.to_be_bytes(), &[round as u8; 3000]).unwrap();
        tx.commit(Durability::Durable).unwrap();
    }
    let open = local.begin().unwrap();
    tree.put(&open, b"never", b"committed").unwrap();
    drop(local);
    // An open transaction keeps the volume open.
    let error = Local::open(&scratch.0, &options).unwrap_err();
    assert!(error.to_string().contains("another process has the volume open"), "{error}");
    drop(open);
    let local = Local::open(&scratch.0, &options).unwrap();
    for round in 0..20u64 {
        let found = tree.get(&local, &round.to_be_bytes()).unwrap();
        assert_eq!(found, Some(vec![round as u8; 3000]));
    }
    assert_eq!(tree.get(&local, b"never").unwrap(), None);
}

#[test]
fn a_volume_is_found_as_it_was_left() {
    let scratch = Scratch::new("left");
    let options = Options { memory: 4 << 20, ..Options::default() };
    let local = Local::create(&scratch.0, SIZE, &options).unwrap();
    let (tree, records) = (local.tree("t").unwrap(), local.records("r").unwrap());
    let (hash, raw) = (local.table("h").unwrap(), local.raw("raw").unwrap());
    tree.put(&local, b"key", b"value").unwrap();
    let id = records.insert(&local, b"record").unwrap();
    hash.put(&local, &[7; 9000], b"value of a long key").unwrap();
    raw.write(&local, 5, 1 << 20, b"bytes").unwrap();
    raw.cut(&local, 5, (1 << 20) + 1, (1 << 20) + 3).unwrap();
    tree.put(&local.soon(), b"soon", b"lost, perhaps").unwrap();
    drop(local);

    let volume = Volume::open_with(&scratch.0, &options).unwrap();
    assert_eq!(volume.tree("t").unwrap(), tree);
    assert_eq!(tree.get(&volume, b"key").unwrap().unwrap(), b"value");
    assert_eq!(records.get(&volume, id).unwrap().unwrap(), b"record");
    assert_eq!(hash.get(&volume, &[7; 9000]).unwrap().unwrap(), b"value of a long key");
    assert_eq!(hash.iter(&volume).count(), 1);
    assert_eq!(raw.read(&volume, 5, (1 << 20) - 1, 7).unwrap(), b"\0b\0\0es\0");
    assert!(records.insert(&volume, b"another").unwrap() > id);
    let soon = volume.soon();
    tree.put(&soon, b"soon", b"not lost").unwrap();
    drop((volume, soon));

    let volume = Volume::open_with(&scratch.0, &Options { read_only: true, ..options }).unwrap();
    assert_eq!(tree.get(&volume, b"soon").unwrap().unwrap(), b"not lost");
    let error = tree.put(&volume, b"key", b"x").unwrap_err();
    assert!(matches!(error, Error::Refused(Failure::Store(store::Error::ReadOnly))), "{error}");
}

#[test]
fn snapshots_stay_as_they_were() {
    let scratch = Scratch::new("snapshots");
    let volume = Volume::create(&scratch.0, SIZE).unwrap();
    let tree = volume.tree("t").unwrap();
    for key in 0..500u32 {
        tree.put(&volume.soon(), &key.to_be_bytes(), b"old").unwrap();
    }
    let snapshot = volume.snapshot("monday").unwrap();
    for key in (0..500u32).step_by(2) {
        tree.delete(&volume.soon(), &key.to_be_bytes()).unwrap();
    }
    assert_eq!((tree.iter(&snapshot).count(), tree.iter(&volume).count()), (500, 250));
    let last = tree.iter(&volume).backwards().next().unwrap().unwrap();
    assert_eq!(last.0, 499u32.to_be_bytes());
    assert!(matches!(volume.snapshot("monday"), Err(Error::Refused(_))));
    drop(volume);
    drop(snapshot);
    let volume = Volume::open(&scratch.0).unwrap();
    let snapshot = volume.at("monday").unwrap();
    assert!(snapshot.date().secs > 0);
    assert_eq!(tree.iter(&snapshot).count(), 500);
    volume.drop_snapshot("monday").unwrap();
    assert!(tree.get(&snapshot, b"x").is_err() && volume.at("monday").is_err());
}

/// A client with a port: many outstanding requests, each completed once, in any order.
#[test]
fn completions_come_to_the_port_of_who_asked() {
    let scratch = Scratch::new("ports");
    let volume = Volume::create(&scratch.0, SIZE).unwrap();
    let tree = volume.tree("t").unwrap();
    tree.put(&volume, b"key", b"value").unwrap();
    let Reply::Tables(tables) = volume.call(Call::Tables).unwrap() else { panic!() };
    let table = tables[0].1;
    drop(volume);
    let service = Service::open(&scratch.0, &Options::default()).unwrap();
    let clients = [service.client(), service.client()];
    let on = engine::On::Once(store::View::Present, Durability::Durable);
    for ticket in 0..500u64 {
        let client = &clients[(ticket % 2) as usize];
        let call = if ticket % 5 == 0 {
            Call::Put { table, key: ticket.to_be_bytes().to_vec(), value: vec![1; 10] }
        } else {
            Call::Get { table, key: b"key".to_vec() }
        };
        client.submit(Ticket(ticket), Request::Call(on, call)).unwrap();
    }
    for (client, first) in clients.iter().zip(0..) {
        let mut seen: Vec<u64> = (0..250).map(|_| client.wait()).map(|done| done.0.0).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq((first..500).step_by(2)));
        assert!(client.try_next().is_none());
    }
    drop(service);
    assert!(matches!(clients[0].submit(Ticket(0), Request::Sync), Err(Error::Closed)));
}

#[test]
fn errors_say_what_can_be_done() {
    let scratch = Scratch::new("errors");
    let text = |error: Error| error.to_string();
    assert!(text(Volume::open(&scratch.0).unwrap_err()).contains("create a volume there"));
    std::fs::write(&scratch.0, vec![0; 100_000]).unwrap();
    assert!(text(Volume::open(&scratch.0).unwrap_err()).contains("not a volume"));
    assert!(text(Volume::create(&scratch.0, SIZE).unwrap_err()).contains("open it, or"));
    std::fs::remove_file(&scratch.0).unwrap();
    let volume = Volume::create(&scratch.0, SIZE).unwrap();
    assert!(text(Volume::open(&scratch.0).unwrap_err()).contains("close it there"));
    let tree = volume.tree("t").unwrap();
    assert!(text(volume.records("t").unwrap_err()).contains("use another name"));
    volume.close().unwrap();
    assert!(text(tree.put(&volume, b"k", b"v").unwrap_err()).contains("open the volume again"));
    assert!(text(volume.begin().unwrap_err()).contains("open the volume again"));
    // It is closed for all users, so it can be opened again.
    assert_eq!(tree.get(&Volume::open(&scratch.0).unwrap(), b"k").unwrap(), None);
}

/// A single thread cannot wait for itself.
#[test]
fn a_local_volume_refuses_what_would_wait() {
    let scratch = Scratch::new("alone");
    let local = Local::create(&scratch.0, SIZE, &Options::default()).unwrap();
    let tree = local.tree("t").unwrap();
    let open = local.begin().unwrap();
    tree.put(&open, b"key", b"one").unwrap();
    assert!(tree.put(&local, b"key", b"two").unwrap_err().is_deadlock());
    let again = local.transact(|tx| tree.put(tx, b"key", b"three"));
    assert!(again.unwrap_err().is_deadlock());
    open.commit(Durability::Durable).unwrap();
    tree.put(&local, b"key", b"two").unwrap();
    assert_eq!(local.get_with(tree, b"key", |v| v.map(<[u8]>::to_vec)).unwrap().unwrap(), b"two");
    local.close().unwrap();
    assert!(matches!(tree.get(&local, b"key"), Err(Error::Closed)));
    let again = Local::open(&scratch.0, &Options::default()).unwrap();
    assert_eq!(tree.get(&again, b"key").unwrap().unwrap(), b"two");
}

/// A full volume can be emptied by dropping a table, and reused; also if it was closed before the
/// space was freed.
#[test]
fn a_table_that_is_dropped_gives_its_space_back() {
    let scratch = Scratch::new("dropped-table");
    let volume = Volume::create(&scratch.0, SIZE).unwrap();
    let fill = |volume: &Volume, name: &str| {
        let tree = volume.tree(name)?;
        let put = |key: u32| tree.put(&volume.soon(), &key.to_be_bytes(), &[7; 900]);
        Ok::<_, Error>((tree, (0..).take_while(|key| put(*key).is_ok()).count()))
    };
    let (tree, count) = fill(&volume, "first").unwrap();
    assert!(count > 10_000, "{count} fit");
    assert!(volume.drop_table("first").unwrap() && !volume.drop_table("first").unwrap());
    let refused = tree.get(&volume, b"key").unwrap_err();
    assert!(matches!(refused, Error::Refused(Failure::Dropped)), "{refused}");
    drop(volume);
    let local = Local::open(&scratch.0, &Options::default()).unwrap();
    local.close().unwrap();
    let volume = Volume::open(&scratch.0).unwrap();
    // The space of a dropped table is freed in the background.
    let again = (0_u64..).find_map(|_| {
        volume.sync().unwrap();
        volume.drop_table("again").unwrap();
        // There may be no room for its name yet.
        let found = fill(&volume, "again").map_or(0, |(_, count)| count);
        (found >= count * 9 / 10).then_some(found)
    });
    let again = again.expect("it is tried until there is room");
    let tx = volume.begin().unwrap();
    assert!(tx.drop_table("again").unwrap());
    tx.rollback().unwrap();
    assert_eq!(volume.tree("again").unwrap().iter(&volume).count(), again);
    drop(volume);
    let local = Local::open(&scratch.0, &Options::default()).unwrap();
    let tree = local.tree("again").unwrap();
    assert!(local.drop_table("again").unwrap());
    assert!(matches!(tree.get(&local, b"key"), Err(Error::Refused(Failure::Dropped))));
}

#[test]
fn a_volume_that_is_given_back_in_a_moment_is_waited_for() {
    let scratch = Scratch::new("moment");
    let holder = Local::create(&scratch.0, SIZE, &Options::default()).unwrap();
    let (sender, opened) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(Volume::open(&scratch.0).map(drop)).unwrap());
        let early = opened.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "somebody has it");
        holder.close().unwrap();
        opened.recv().unwrap().unwrap();
    });
}
