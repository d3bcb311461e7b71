//! What a record costs the statistics: `cargo run --release -p load --example statistics`.

use load::io::{Cause, Io, Kind, Outcome, Record};
use load::statistics::Statistics;

fn main() {
    let mut rng = fastrand::Rng::with_seed(1);
    let records: Vec<Record> = (0..1_000_000u64).map(|number| record(number, &mut rng)).collect();
    for _ in 0..5 {
        let mut statistics = Statistics::default();
        #[expect(clippy::disallowed_methods, reason = "what is measured is this loop")]
        let start = std::time::Instant::now();
        records.chunks(1024).for_each(|batch| statistics.add(batch));
        let each = start.elapsed().as_nanos() as f64 / records.len() as f64;
        println!("{each:.1} ns a record ({} counted)", statistics.issued_count());
    }
}

/// One of 100,000 I/Os a second that take 100 µs on average.
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
