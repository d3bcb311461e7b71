use super::*;
use base::drawing::{Drawing, variant};

#[test]
fn states_md_is_fresh() {
    let states =
        [State::Idle, State::Accepting, State::Pausing(Instant(0)), State::Closing, State::Closed];
    let failed = Input::Failed(Error::TooManyOpen);
    let inputs = [Input::Room(2), Input::Full, Input::Accepted, failed, Input::Close];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs {
            let listener = Listener { port: Port(0), state };
            drawing.sample(listener, input, |l| variant(&l.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/listener/states.md"));
}

#[test]
fn without_a_descriptor_left_it_waits_and_tries_again() {
    let (mut listener, mut out) = (Listener::new(Port(3)), Vec::new());
    listener.step(Instant(0), Input::Room(2), &mut out);
    listener.step(Instant(0), Input::Failed(Error::TooManyOpen), &mut out);
    listener.step(Instant(1), Input::Room(2), &mut out);
    assert_eq!(out, [Output::Accept(Port(3), 2)]);
    let later = listener.deadline().unwrap();
    assert_eq!(later, Instant(0) + PAUSE);
    listener.step(later, Input::Room(2), &mut out);
    assert_eq!(out, [Output::Accept(Port(3), 2); 2]);
}

/// Under random inputs, at most one accept is in flight.
#[test]
fn one_accept_at_a_time() {
    for seed in 0..500 {
        let mut rng = base::rng::seeded(seed);
        let (mut listener, mut under_way) = (Listener::new(Port(0)), 0);
        for tick in 0..100 {
            let input = match rng.u8(0..10) {
                0..4 => Input::Room(2),
                4 => Input::Full,
                5 if seed % 5 == 0 => Input::Close,
                6..8 if under_way > 0 => Input::Failed(Error::TooManyOpen),
                8.. if under_way > 0 => Input::Accepted,
                _otherwise => Input::Room(2),
            };
            under_way -= i32::from(matches!(input, Input::Failed(_) | Input::Accepted));
            let mut out = Vec::new();
            listener.step(Instant(tick * 10_000_000), input, &mut out);
            under_way += i32::from(matches!(out[..], [Output::Accept(..)]));
            assert!((0..=1).contains(&under_way), "seed {seed}");
        }
    }
}
