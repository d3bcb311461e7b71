use super::*;
use crate::request::Request;
use base::Caller;
use base::rng::seeded;

fn errand(request: u64, open: usize) -> Errand {
    let open = OpenId::new(3, open);
    let ask = Ask::List { open, cookie: 0, bytes_max: 512, with_stat: false };
    Errand::new(RequestId(request), 0, Request { caller: Caller::Server, ask }, None)
}

/// Exactly those that wait for a connection, for time, or for readers are in the indices.
#[test]
fn who_waits_for_what_is_known_without_looking_through_all() {
    let (mut rng, mut errands) = (seeded(1), Errands::default());
    for request in 0..300 {
        let number = errands.insert(errand(request, rng.usize(..4)));
        assert_eq!(errands.of(RequestId(request)), Some(number));
        for _ in 0..rng.usize(..4) {
            let numbers = errands.numbers();
            let other = numbers[rng.usize(..numbers.len())];
            match rng.u8(..8) {
                0 => drop(errands.wait(other, Step::Queued)),
                1 => drop(errands.wait(other, Step::Paused(Instant(rng.u64(..100))))),
                2 | 3 => drop(errands.wait(other, Step::Entries(0))),
                4 => drop(errands.wait(other, Step::Last)),
                5 | 6 => drop(errands.wait(other, Step::Behind)),
                _ if numbers.len() > 1 => drop(errands.remove(other)),
                _ => {}
            }
            errands.check();
        }
    }
}

#[test]
fn pauses_end_in_turn() {
    let mut errands = Errands::default();
    for (request, until) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
        let number = errands.insert(errand(request, 0));
        errands.wait(number, Step::Paused(Instant(until)));
    }
    assert_eq!(errands.paused_until(), Some(Instant(10)));
    let woken: Vec<usize> = std::iter::from_fn(|| errands.wake(Instant(30))).collect();
    assert_eq!(woken, [1, 2, 0]);
    assert_eq!((errands.paused_until(), errands.queued(9)), (Some(Instant(40)), vec![0, 1, 2]));
}
