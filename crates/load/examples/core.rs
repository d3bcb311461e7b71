//! Issues I/Os at a steady rate, or as fast as possible, and says how well.
//!
//! `core TARGET RATE SECONDS [POLICY [WORKERS]]`; rate 0: 64 I/Os are always under way.

use base::{Automaton, Instant};
use load::core::{Choice, Options, Policy};
use load::driver::{Null, Opened, Ring, Target};
use load::statistics::Statistics;
use load::{Event, Filament, Io, Request};
use std::time::Duration;

struct Steady {
    next: u64,
    gap_ns: u64,
}

impl Automaton for Steady {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        if self.gap_ns == 0 {
            let count = if matches!(event, Event::Started) { 64 } else { 1 };
            for _ in 0..count {
                self.next += 1;
                let io = Io { offset: self.next % 1024 * 4096, len: 4096, ..Io::default() };
                out.push(Request::asked(now, io, 0));
            }
            return;
        }
        while self.next < now.0 + 10_000_000 {
            let io =
                Io { offset: self.next / self.gap_ns % 1024 * 4096, len: 4096, ..Io::default() };
            out.push(Request::io(Instant(self.next), io));
            self.next += self.gap_ns;
        }
        out.push(Request::Timer { at: now + Duration::from_millis(5), tag: 0 });
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rate: u64 = arguments[1].parse().expect("a rate");
    let seconds: u64 = arguments[2].parse().expect("seconds");
    let policy = match arguments.get(3).map(String::as_str) {
        Some("spin") => Choice::Fixed(Policy::Spin),
        Some("nap") => Choice::Fixed(Policy::Nap),
        Some("sleep") => Choice::Fixed(Policy::Sleep),
        _ => Choice::Auto,
    };
    let workers = arguments.get(4).map_or(0, |text| text.parse().expect("workers"));
    let target: Box<dyn Target> = match arguments[0].as_str() {
        "null" => Box::new(Null),
        path => Box::new(Ring(Opened {
            files: vec![std::fs::File::open(path).expect("a file")],
            name: path.to_string(),
            io_max: 4096,
            aside_from: None,
        })),
    };
    let length = Duration::from_secs(seconds);
    let options = Options { policy, workers, length, ..Options::default() };
    let gap_ns = 1_000_000_000_u64.checked_div(rate).unwrap_or(0);
    let steady: Box<dyn Filament> = Box::new(Steady { next: gap_ns, gap_ns });
    let mut statistics = Statistics::default();
    let conduct = load::core::run(&*target, vec![steady], &options, &mut |batches, _| {
        for batch in batches {
            statistics.add(&batch.records);
        }
    });
    let conduct = conduct.expect("it runs");
    let share = |i| statistics.within_share(i) * 100.0;
    println!(
        "{:.0}/s of {rate}; within 1/10/100/1000 us: {:.3} {:.3} {:.3} {:.3} %",
        statistics.rate(),
        share(0),
        share(1),
        share(2),
        share(3)
    );
    for (cause, late) in statistics.causes() {
        println!("  {cause:?} {late:?}");
    }
    let m = &conduct.machine;
    println!(
        "  bare spin {:.2} % before, {:.2} % after; own loss {:.2} % of {:.2} s; {:?}; wake {:?}; hand-overs {}; abandoned {}",
        m.spin_before.unwrap_or_default().share() * 100.0,
        m.spin_after.unwrap_or_default().share() * 100.0,
        m.stolen_share() * 100.0,
        m.watched_ns as f64 / 1e9,
        m.policies,
        conduct.calibration.wake_ns,
        conduct.hand_overs,
        conduct.abandoned
    );
}
