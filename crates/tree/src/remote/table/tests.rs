use super::*;
use crate::remote::step::OwnStep;
use crate::request::Request;
use base::Caller;
use base::op::Detail;
use base::rng::seeded;

fn slot(request: u64, open: usize) -> Pending {
    let open = OpenId::new(3, open);
    let ask = Ask::List { open, cookie: 0, bytes_max: 512, detail: Detail::Name };
    Pending::new(RequestId(request), 0, Request { caller: Caller::Server, ask }, None)
}

/// Exactly those that wait for a connection, for time, or for readers are in the indices.
#[test]
fn waiters_are_indexed() {
    let (mut rng, mut pending) = (seeded(1), PendingTable::default());
    for request in 0..300 {
        let number = pending.insert(slot(request, rng.usize(..4)));
        assert_eq!(pending.of(RequestId(request)), Some(number));
        for _ in 0..rng.usize(..4) {
            let numbers = pending.numbers();
            let other = numbers[rng.usize(..numbers.len())];
            match rng.u8(..8) {
                0 => drop(pending.wait(other, Step::Queued)),
                1 => drop(pending.wait(other, Step::Paused(Instant(rng.u64(..100))))),
                2 | 3 => drop(pending.wait(other, Step::Entries(0))),
                4 => drop(pending.wait(other, Step::Own(OwnStep::Last))),
                5 | 6 => drop(pending.wait(other, Step::Behind)),
                _ if numbers.len() > 1 => drop(pending.remove(other)),
                _ => {}
            }
            pending.check();
        }
    }
}

#[test]
fn pauses_end_in_turn() {
    let mut pending = PendingTable::default();
    for (request, until) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
        let number = pending.insert(slot(request, 0));
        pending.wait(number, Step::Paused(Instant(until)));
    }
    assert_eq!(pending.paused_until(), Some(Instant(10)));
    let woken: Vec<usize> = std::iter::from_fn(|| pending.wake(Instant(30))).collect();
    assert_eq!(woken, [1, 2, 0]);
    assert_eq!((pending.paused_until(), pending.queued(9)), (Some(Instant(40)), vec![0, 1, 2]));
}
