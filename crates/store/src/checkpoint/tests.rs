use super::*;
use base::drawing::{self, Drawing};

const INPUTS: [Input; 8] = [
    Input::Begin,
    Input::Prepared,
    Input::Frozen(0),
    Input::Frozen(2),
    Input::Written,
    Input::Flushed,
    Input::Sealed,
    Input::Failed,
];

#[test]
fn the_drawing_is_fresh() {
    let mut drawing = Drawing::default();
    for state in [
        State::Idle,
        State::Preparing,
        State::Freezing,
        State::Writing(2),
        State::Writing(1),
        State::Flushing,
        State::Sealing,
        State::Broken,
    ] {
        for input in INPUTS {
            let label = match (state, input) {
                (_, Input::Frozen(0)) => "Frozen, nothing changed".to_string(),
                (State::Writing(1), Input::Written) => "Written, the last".to_string(),
                (_, input) => drawing::variant(&input),
            };
            let name = |checkpoint: &Checkpoint| drawing::variant(&checkpoint.state);
            drawing.sample_as(&label, Checkpoint { state }, input, name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/checkpoint/states.md"));
}

#[test]
fn the_superblock_comes_after_the_flush_and_release_after_it() {
    let (mut checkpoint, mut out) = (Checkpoint::default(), Vec::new());
    for input in [
        Input::Begin,
        Input::Prepared,
        Input::Frozen(2),
        Input::Written,
        Input::Written,
        Input::Flushed,
        Input::Sealed,
    ] {
        checkpoint.step(Instant(0), input, &mut out);
        checkpoint.check();
    }
    let order = [Output::Prepare, Output::Freeze, Output::Flush, Output::Seal, Output::Release];
    assert_eq!(out, order);
    assert!(checkpoint.is_idle());
}

#[test]
fn after_a_failure_nothing_is_sealed() {
    for failed_after in 0..7 {
        let (mut checkpoint, mut out) = (Checkpoint::default(), Vec::new());
        let steps = [
            Input::Begin,
            Input::Prepared,
            Input::Frozen(1),
            Input::Written,
            Input::Flushed,
            Input::Sealed,
        ];
        for (index, input) in steps.into_iter().enumerate() {
            if index == failed_after {
                checkpoint.step(Instant(0), Input::Failed, &mut out);
                out.clear();
            }
            checkpoint.step(Instant(0), input, &mut out);
        }
        let broken = failed_after < steps.len();
        assert_eq!(out.is_empty(), broken);
        assert_eq!(checkpoint.state_name() == "broken", broken);
    }
}
