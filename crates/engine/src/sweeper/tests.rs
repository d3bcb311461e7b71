use super::*;
use base::drawing::{self, Drawing};
use base::rng;

const INPUTS: [Input; 7] = [
    Input::Dropped,
    Input::Tick,
    Input::Swept,
    Input::Clean,
    Input::Missing,
    Input::Fetched,
    Input::Failed,
];

#[test]
fn the_drawing_is_fresh() {
    let mut drawing = Drawing::default();
    let name = |sweeper: &Sweeper| drawing::variant(&sweeper.state);
    for state in [State::Clean, State::Due(Instant(0)), State::Sweeping, State::Waiting] {
        for input in INPUTS {
            drawing.sample(Sweeper { state }, input, name);
        }
    }
    let later = State::Due(Instant(u64::MAX));
    drawing.sample_as("Tick, too early", Sweeper { state: later }, Input::Tick, name);
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sweeper/states.md"));
}

#[test]
fn pieces_go_one_after_the_other_until_nothing_is_left() {
    let (mut sweeper, mut out) = (Sweeper::default(), Vec::new());
    let (start, next) = (Instant(5), Instant(5) + PAUSE);
    let mut step = |sweeper: &mut Sweeper, now, input| {
        sweeper.step(now, input, &mut out);
        std::mem::take(&mut out).len()
    };
    assert_eq!(sweeper.deadline(), None);
    step(&mut sweeper, start, Input::Dropped);
    assert_eq!(sweeper.deadline(), Some(start));
    assert_eq!(step(&mut sweeper, start, Input::Tick), 1);
    step(&mut sweeper, start, Input::Missing);
    assert_eq!((step(&mut sweeper, next, Input::Tick), sweeper.deadline()), (0, None));
    step(&mut sweeper, start, Input::Fetched);
    assert_eq!(step(&mut sweeper, start, Input::Tick), 1);
    step(&mut sweeper, start, Input::Swept);
    assert_eq!((step(&mut sweeper, start, Input::Tick), sweeper.deadline()), (0, Some(next)));
    assert_eq!(step(&mut sweeper, next, Input::Tick), 1);
    step(&mut sweeper, next, Input::Clean);
    assert_eq!(sweeper.deadline(), None);
}

/// For any sequence of inputs, dropped tables are swept until nothing is left.
#[test]
fn nothing_that_was_dropped_is_forgotten() {
    let mut rng = rng::seeded(4);
    let (mut sweeper, mut out, mut now, mut left) = (Sweeper::default(), Vec::new(), 0, 0);
    let mut waits = false;
    for _ in 0..10_000 {
        now += rng.u64(0..2_000_000_000);
        let input = match rng.u8(0..4) {
            0 => {
                left += 3;
                Input::Dropped
            }
            1 if waits => {
                waits = false;
                if rng.bool() { Input::Fetched } else { Input::Failed }
            }
            _ => Input::Tick,
        };
        sweeper.step(Instant(now), input, &mut out);
        if out.pop().is_some() {
            let ends = match rng.u8(0..4) {
                0 => Input::Failed,
                1 => Input::Missing,
                _ if left == 0 => Input::Clean,
                _ => {
                    left -= 1;
                    Input::Swept
                }
            };
            waits = ends == Input::Missing;
            sweeper.step(Instant(now), ends, &mut out);
        }
        assert!(left == 0 || waits || sweeper.deadline().is_some());
    }
}
