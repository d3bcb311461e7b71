use super::*;
use base::drawing::{Drawing, variant};
use tree::NodeId;

fn ask() -> Ask {
    Ask::ListAll { from: NodeId(1), paths: vec![Vec::new()], bytes_max: 1 }
}

/// Name and constructor of an input.
type Sample = (&'static str, fn() -> Input);

const INPUTS: [Sample; 4] = [
    ("Foreseen", || Input::Foreseen(ask())),
    ("Admitted", || Input::Admitted),
    ("Answered", || Input::Answered(Ok(Reply::Listings(Vec::new(), 0)))),
    ("Leave", || Input::Leave),
];

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    for (label, input) in INPUTS {
        let states = [State::Free, State::Queued(Box::new(ask())), State::Asking, State::Leaving];
        for state in states {
            drawing
                .sample_as(label, Prefetch { state }, input(), |prefetch| variant(&prefetch.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/prefetch/states.md"));
}

/// At whatever point the guest ends, a request has one reply, and it is not delivered.
#[test]
fn nothing_arrives_for_a_guest_that_has_ended() {
    for leaves_at in 0..4 {
        let (mut prefetch, mut requested, mut arrived) = (Prefetch::default(), 0, 0);
        for (place, input) in [0, 1, 2].into_iter().enumerate() {
            let mut out = Vec::new();
            if place == leaves_at {
                prefetch.step(Instant(0), Input::Leave, &mut out);
                break;
            }
            prefetch.step(Instant(0), (INPUTS[input].1)(), &mut out);
            requested += out.iter().filter(|it| matches!(it, Output::Ask(_))).count();
            arrived += out.iter().filter(|it| matches!(it, Output::Arrived(_))).count();
        }
        if matches!(prefetch.state, State::Leaving) {
            prefetch.step(Instant(0), Input::Answered(Err(Error::Cancelled)), &mut Vec::new());
        }
        assert!(prefetch.is_free());
        assert_eq!((requested, arrived), (usize::from(leaves_at > 1), usize::from(leaves_at > 2)));
    }
}
