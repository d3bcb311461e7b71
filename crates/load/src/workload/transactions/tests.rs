//! Transactions in virtual time: their order, rate and offsets.

use super::*;
use crate::Record;
use crate::simulated::{Instantly, Queueing, run};
use crate::workload::Arrival;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn records(branches: u32, pace: Pace, count: u64, device: &mut Queueing) -> Vec<Record> {
    let tables = Tables::new(branches, 0, 1 << 30).expect("it fits");
    let life = Lifetime { count, ..Lifetime::default() };
    run(vec![Box::new(Transactions::new(tables, pace, 3, life))], device).records
}

#[test]
fn a_transaction_reads_then_writes_then_syncs() {
    let mut device = Queueing::new(8, MS, Duration::ZERO);
    let pace = Pace::Closed { count: 1, think: Think::Fixed(MS) };
    let records = records(1, pace, 100, &mut device);
    assert_eq!(records.len(), 800);
    for (number, of) in records.chunks(8).enumerate() {
        let kinds: String = of.iter().map(|r| &r.io.kind.name()[..1]).collect();
        assert_eq!(kinds, "rrrwwwws");
        // Three steps of 1 ms and a think time.
        let begin = number as u64 * 4;
        let times: Vec<u64> = of.iter().map(|r| r.scheduled_ns / 1_000_000 - begin).collect();
        assert_eq!(times, [0, 0, 0, 1, 1, 1, 1, 2]);
        let offsets = |range: std::ops::Range<usize>| {
            of[range].iter().map(|r| r.io.offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(0..3), offsets(3..6), "bytes read return");
    }
}

#[test]
fn thousands_of_terminals_keep_their_order_and_their_number() {
    let mut device = Queueing::new(50, MS, Duration::ZERO);
    let pace = Pace::Closed { count: 5000, think: Think::Not };
    let records = records(10, pace, 10_000, &mut device);
    assert_eq!(records.len(), 80_000);
    let of = |kind: Kind| records.iter().filter(move |r| r.io.kind == kind);
    assert_eq!((of(Kind::Read).count(), of(Kind::Sync).count()), (30_000, 10_000));
    let first_write = of(Kind::Write).map(|r| r.issued_ns).min();
    assert!(first_write > Some(0));
}

#[test]
fn those_that_come_by_themselves_have_their_rate_however_slow_the_target_is() {
    let mut device = Queueing::new(1, MS, Duration::ZERO);
    let arrival = Arrival::Poisson { rate: 2000.0 };
    let records = records(1, Pace::Open(arrival), 20_000, &mut device);
    assert_eq!(records.len(), 160_000);
    let reads = records.iter().filter(|r| r.io.kind == Kind::Read);
    let last = reads.map(|r| r.scheduled_ns).max().expect("there are some");
    let rate = 20_000.0 / (last as f64 / 1e9);
    assert!((rate / 2000.0 - 1.0).abs() < 0.03, "{rate}");
}

#[test]
fn pages_lie_in_their_tables_and_tellers_in_their_branches() {
    let tables = Tables::new(200, 1 << 20, 4 << 30).expect("it fits");
    let mut random = fastrand::Rng::with_seed(1);
    let mut home = 0;
    for _ in 0..20_000 {
        let [account, teller, branch] =
            tables.draw(&mut random).map(|at| (at - (1 << 20)) / u64::from(PAGE));
        assert!(account >= tables.accounts && account < tables.history);
        assert!(teller >= tables.tellers && teller < tables.accounts);
        assert!(branch < tables.tellers);
        // The page of an account has rows of at most two branches, that of a teller of nine.
        let first = |page: u64, table: u64, rows: u64| (page - table) * ROWS / rows;
        let (account, teller) =
            (first(account, tables.accounts, ACCOUNTS), first(teller, tables.tellers, TELLERS));
        home += u32::from(account + 1 >= teller && account <= teller + 9);
    }
    // 85 %, and the part of the others that is there by chance.
    assert!((16_700..18_000).contains(&home), "{home}");
}

#[test]
fn accounts_are_drawn_uniformly() {
    let tables = Tables::new(4, 0, 1 << 30).expect("it fits");
    let mut random = fastrand::Rng::with_seed(1);
    let pages = tables.history - tables.accounts;
    let mut counts = [0_u32; 8];
    for _ in 0..80_000 {
        let page = tables.draw(&mut random)[0] / u64::from(PAGE) - tables.accounts;
        counts[(page * 8 / pages) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
}

#[test]
fn the_history_goes_round() {
    let least = Tables::least(1);
    assert_eq!(Tables::new(1, 0, least - 1), None);
    let tables = Tables::new(1, 0, least + u64::from(PAGE)).expect("it fits");
    let page = |row| tables.history(row) / u64::from(PAGE) - tables.history;
    assert_eq!([0, 162, 163, 325, 326].map(page), [0, 0, 1, 1, 0]);
}

#[test]
fn nothing_begins_after_the_end() {
    let tables = Tables::new(1, 0, 1 << 30).expect("it fits");
    for pace in [
        Pace::Open(Arrival::Uniform { rate: 1000.0 }),
        Pace::Closed { count: 1, think: Think::Fixed(MS) },
    ] {
        let life = Lifetime { begin: 5 * MS, end: 10 * MS, count: u64::MAX };
        let transactions = Transactions::new(tables, pace, 3, life);
        let records = run(vec![Box::new(transactions)], &mut Instantly).records;
        let times = || records.iter().map(|r| r.scheduled_ns / 1_000_000);
        assert!(times().min() >= Some(5) && times().max() == Some(9), "{:?}", times().max());
    }
}
