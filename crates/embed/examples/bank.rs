//! A bank: accounts, transfers by many threads, a snapshot, and a journal of the transfers.
//!
//! `cargo run -p upcall-embed --example bank`

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use upcall_embed::{Ask, Durability, Error, Records, Session, Tree, Volume};

const NAMES: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "frank"];
const THREADS: usize = 8;
const TRANSFERS: usize = 100;

fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).map_or_else(default_path, PathBuf::from);
    let volume = Volume::create(&path, 64 << 20)?;
    let accounts = volume.tree("accounts")?;
    let book = volume.records("book")?;

    let opening = volume.begin()?;
    for name in NAMES {
        accounts.put(&opening, name.as_bytes(), &100u64.to_be_bytes())?;
    }
    opening.commit(Durability::Durable)?;
    let morning = volume.snapshot("morning")?;

    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, refused) = (volume.clone(), &refused);
            scope.spawn(move || work(&volume, accounts, book, thread, refused));
        }
    });

    println!("{:<8} {:>8} {:>8}", "account", "morning", "evening");
    let mut sums = [0, 0];
    let mut evening = accounts.iter(&volume);
    while let Some((name, money)) = evening.advance()? {
        let before = accounts.get(&morning, name)?.map_or(0, |bytes| number(&bytes));
        sums = [sums[0] + before, sums[1] + number(money)];
        println!("{:<8} {before:>8} {:>8}", String::from_utf8_lossy(name), number(money));
    }
    println!("{:<8} {:>8} {:>8}", "sum", sums[0], sums[1]);
    assert_eq!(sums[0], sums[1], "money is neither made nor lost");

    let written = book.iter(&volume, 0).count();
    println!("{written} transfers are in the book; the last ones:");
    let all: Vec<_> = book.iter(&volume, 0).collect::<Result<_, _>>()?;
    for (id, line) in all.iter().rev().take(3) {
        println!("  {id:>5}: {}", String::from_utf8_lossy(line));
    }
    println!("{} transfers were refused: too little money", refused.into_inner());

    volume.drop_snapshot("morning")?;
    volume.close()?;
    match accounts.get(&volume, b"alice") {
        Err(error) => println!("after closing: {error}"),
        Ok(_) => unreachable!("the volume is closed"),
    }
    drop(volume);
    let again = Volume::open(&path)?;
    println!("opened again: {} accounts", accounts.iter(&again).count());
    drop(again);
    std::fs::remove_file(&path).map_err(|cause| Error::File { doing: "remove", path, cause })
}

/// Moves money from one account to the next, repeatedly.
fn work(volume: &Volume, accounts: Tree, book: Records, thread: usize, refused: &AtomicU64) {
    for turn in 0..TRANSFERS {
        let (from, to) = (NAMES[(thread + turn) % 6], NAMES[(thread + turn * 5 + 1) % 6]);
        let amount = (thread * 7 + turn * 3) as u64 % 40;
        if from == to {
            continue;
        }
        // A transaction rolled back because of a deadlock is retried from the start.
        let done = volume.transact(|transfer| {
            let money = accounts.get_for_update(transfer, from.as_bytes())?;
            let money = money.map_or(0, |bytes| number(&bytes));
            if money < amount {
                return Ok(false);
            }
            let other = accounts.get_for_update(transfer, to.as_bytes())?;
            let other = other.map_or(0, |bytes| number(&bytes));
            transfer.put(accounts, from.as_bytes(), &(money - amount).to_be_bytes())?;
            transfer.put(accounts, to.as_bytes(), &(other + amount).to_be_bytes())?;
            book.insert(transfer, format!("{from} gives {to} {amount}").as_bytes())?;
            Ok(true)
        });
        match done {
            Ok(true) => {}
            Ok(false) => drop(refused.fetch_add(1, Ordering::Relaxed)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn default_path() -> PathBuf {
    std::env::temp_dir().join(format!("bank-{}.volume", std::process::id()))
}
