use super::*;
use base::drawing::{self, Drawing};
use base::rng;

const INPUTS: [Input; 6] =
    [Input::Open, Input::Change, Input::Close(0), Input::Close(2), Input::Written, Input::Failed];

#[test]
fn the_drawing_is_fresh() {
    let mut drawing = Drawing::default();
    for state in [
        State::Closed,
        State::Open,
        State::Dirty,
        State::Flushing(1),
        State::Flushing(2),
        State::FlushingDirty(1),
        State::Broken,
    ] {
        for input in INPUTS {
            let label = match input {
                Input::Close(0) => "Close, not dirty".to_string(),
                Input::Close(_) => "Close, dirty".to_string(),
                Input::Written if matches!(state, State::Flushing(2)) => "Written".to_string(),
                Input::Written => "Written, the last".to_string(),
                other @ (Input::Open | Input::Change | Input::Failed) => drawing::variant(&other),
            };
            let name = |segment: &Segment| drawing::variant(&segment.state);
            drawing.sample_as(&label, Segment { state }, input, name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/segment/states.md"));
}

#[test]
fn a_dirty_segment_is_flushed_before_it_is_closed() {
    let (mut segment, mut out) = (Segment::default(), Vec::new());
    for input in [Input::Open, Input::Change, Input::Close(2), Input::Written, Input::Change] {
        segment.step(Instant(0), input, &mut out);
    }
    assert_eq!((segment.state_name(), &out[..]), ("flushing-dirty", &[Output::Flush][..]));
    segment.step(Instant(0), Input::Written, &mut out);
    assert_eq!((segment.state_name(), &out[1..]), ("dirty", &[Output::Closed][..]));
}

/// Every close is answered once: at once, or when all its writes are done or one failed.
#[test]
fn every_close_is_answered_once() {
    let mut rng = rng::seeded(9);
    let (mut segment, mut out, mut left, mut closes) = (Segment::default(), Vec::new(), 0, 0);
    for _ in 0..10_000 {
        let input = match (left, rng.u8(0..4)) {
            (_, 0) => Input::Open,
            (_, 1) => Input::Change,
            (0, _) => {
                left = rng.u32(0..4);
                closes += 1;
                Input::Close(left)
            }
            (_, _) => {
                left -= 1;
                Input::Written
            }
        };
        segment.step(Instant(0), input, &mut out);
        segment.check();
        let answers = out.iter().filter(|output| **output == Output::Closed).count();
        assert_eq!(answers, closes - usize::from(left > 0));
    }
}
