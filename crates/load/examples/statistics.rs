//! Measures the cost per record: `cargo run --release -p load --example statistics`.
//!
//! Covers statistics, encoding to memory, decoding, and comparison.

use load::compare::{Tolerance, compare};
use load::io::{Cause, Io, Kind, Outcome, Record};
use load::records::{Reader, Writer};
use load::statistics::Statistics;
use std::convert::Infallible;

const COUNT: u64 = 1_000_000;

fn main() {
    let mut rng = fastrand::Rng::with_seed(1);
    let records: Vec<Record> = (0..COUNT).map(|number| record(number, &mut rng)).collect();
    for _ in 0..3 {
        let mut statistics = Statistics::default();
        measure("counted", || records.chunks(1024).for_each(|batch| statistics.add(batch)));
        let mut file = Vec::with_capacity((COUNT as usize + 2) * 64);
        measure("written", || {
            let mut writer = Writer::new(&mut file, 0).expect("memory takes it");
            writer.add(&records).expect("memory takes it");
            writer.finish().expect("memory takes it");
        });
        let mut read = 0;
        measure("read", || read = Reader::new(&file[..]).expect("it is whole").count());
        let one = |record: &Record| Ok::<_, Infallible>(*record);
        let both =
            || compare(records.iter().map(one), records.iter().map(one), &Tolerance::default());
        measure("compared with itself", || assert!(both().is_ok_and(|both| both.faithful)));
        assert_eq!((statistics.issued_count(), read as u64), (COUNT, COUNT));
    }
}

fn measure(what: &str, work: impl FnOnce()) {
    #[expect(clippy::disallowed_methods, reason = "it reads the clock itself")]
    let start = std::time::Instant::now();
    work();
    println!("{:6.1} ns a record {what}", start.elapsed().as_nanos() as f64 / COUNT as f64);
}

/// Returns a record of 100,000 I/Os per second with a mean service time of 100 µs.
fn record(number: u64, rng: &mut fastrand::Rng) -> Record {
    let scheduled_ns = number * 10_000;
    let issued_ns = scheduled_ns + 80 + rng.u64(..200);
    let service_ns = 20_000.0 - 80_000.0 * (1.0 - rng.f64()).ln();
    let kind = if rng.u8(..4) == 0 { Kind::Write } else { Kind::Read };
    Record {
        scheduled_ns,
        issued_ns,
        completed_ns: issued_ns + service_ns as u64,
        witnessed_ns: None,
        io: Io { kind, file: 0, offset: rng.u64(..1 << 40), len: 4096 },
        outcome: Outcome::Done(4096),
        cause: Cause::None,
        filament: 0,
    }
}
