//! Event order, determinism, and a queueing device.

use super::*;
use base::Automaton;
use base::op::Envelope;

/// Keeps one I/O in flight, `left` times, and sends a message to `peer` each time.
struct Chain {
    left: u32,
    peer: Option<FilamentId>,
    arrived: u32,
}

impl Automaton for Chain {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            Event::Message { envelope, .. } => {
                self.arrived += *envelope.0.downcast::<u32>().expect("a count");
            }
            Event::Started | Event::Ended(_) | Event::Timer(_) => {
                if self.left == 0 {
                    return;
                }
                self.left -= 1;
                out.push(Request::with_completion(now, Io { len: 4096, ..Io::default() }, 0));
                if let Some(to) = self.peer {
                    let at = now + Duration::from_micros(1);
                    out.push(Request::Send { to, at, envelope: Envelope(Box::new(1_u32)) });
                }
            }
        }
    }
}

fn chain(left: u32, peer: Option<FilamentId>) -> Box<dyn Filament> {
    Box::new(Chain { left, peer, arrived: 0 })
}

#[test]
fn a_queue_serves_one_after_the_other() {
    let mut device = Queueing::new(1, Duration::from_micros(10), Duration::from_micros(1));
    let run = run(vec![chain(2, None), chain(2, None)], &mut device);
    let times: Vec<_> = run.records.iter().map(|r| (r.filament, r.completed_ns / 1000)).collect();
    assert_eq!(times, [(0, 14), (1, 28), (0, 42), (1, 56)]);
    assert_eq!(run.end, Instant(56_000));
}

#[test]
fn the_same_run_twice_is_the_same() {
    let once = || {
        let mut device = Queueing::new(2, Duration::from_micros(7), Duration::ZERO);
        let filaments = (0..20).map(|i| chain(50, Some((i + 1) % 20))).collect();
        let run = run(filaments, &mut device);
        (run.records, run.calls)
    };
    let (records, calls) = once();
    assert_eq!(calls, 20 + 1000 + 1000);
    assert_eq!((records, calls), once());
}

#[test]
fn behind_the_end_nothing_begins_and_what_began_ends() {
    let mut device = Queueing::new(1, Duration::from_micros(10), Duration::ZERO);
    let run = run_until(vec![chain(100, None)], &mut device, Instant(25_000));
    assert_eq!(run.records.len(), 3);
    assert_eq!(run.records[2].completed_ns, 30_000);
}
