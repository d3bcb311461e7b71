use super::*;
use base::drawing::{Drawing, variant};
use std::iter;

#[test]
fn states_md_is_fresh() {
    let states = [
        State::Free,
        State::Resting,
        State::Negotiating { others: vec![1, 2], granted: 0 },
        State::Negotiating { others: vec![1, 2], granted: 1 },
        State::Retreating { requested: 2, held: vec![1] },
        State::Holding { others: vec![1, 2] },
        State::Engaged { dismiss: vec![], missing: vec![1] },
        State::Engaged { dismiss: vec![1, 2], missing: vec![1] },
        State::Engaged { dismiss: vec![1, 2], missing: vec![1, 2] },
        State::Joined { by: 1 },
        State::Reserved { by: 1 },
    ];
    let inputs = [
        Input::Want(vec![1, 2]),
        Input::Rested,
        Input::Granted(1),
        Input::Refused(1),
        Input::Performed,
        Input::Withdrawn,
        Input::Done(1),
        Input::Requested(1),
        Input::Joined { by: 1, alone: true },
        Input::Joined { by: 1, alone: false },
        Input::Over(1),
        Input::Granted(2),
        Input::Refused(2),
        Input::Released(1),
        Input::Lost(1),
        Input::Lost(2),
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs.clone() {
            let machine = Reservation { state: state.clone(), refusals: 0 };
            drawing.sample(machine, input, |machine| variant(&machine.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ioa/reservation/states.md"));
}

/// Feeds a script to a free process; returns its outputs, one line for each input.
fn trace(script: &[Input]) -> String {
    let (mut machine, mut text) = (Reservation::new(), String::new());
    for input in script {
        let mut out = Vec::new();
        machine.step(Instant(0), input.clone(), &mut out);
        machine.check();
        text.push_str(&format!("{input:?}: {out:?} {:?}\n", machine.state));
    }
    text
}

#[test]
fn a_refused_part_releases_and_backs_off() {
    let attempt = [Input::Want(vec![1, 2]), Input::Granted(1), Input::Refused(2), Input::Rested];
    let text = trace(&[attempt.clone(), attempt].concat());
    let expected = "\
Want([1, 2]): [Ask(1)] Negotiating { others: [1, 2], granted: 0 }
Granted(1): [Ask(2)] Negotiating { others: [1, 2], granted: 1 }
Refused(2): [Release(1), Rest(0)] Resting
Rested: [] Free
Want([1, 2]): [Ask(1)] Negotiating { others: [1, 2], granted: 0 }
Granted(1): [Ask(2)] Negotiating { others: [1, 2], granted: 1 }
Refused(2): [Release(1), Rest(1)] Resting
Rested: [] Free
";
    assert_eq!(text, expected);
}

#[test]
fn rests_have_a_longest_and_begin_anew_after_a_success() {
    let refused = [Input::Want(vec![1]), Input::Refused(1), Input::Rested];
    let done = [Input::Want(vec![1]), Input::Granted(1), Input::Performed, Input::Done(1)];
    let often: Vec<Input> = iter::repeat_n(refused.clone(), 9).flatten().collect();
    let script = [often, done.to_vec(), refused.to_vec()].concat();
    let text = trace(&script);
    let rests: Vec<&str> = text.lines().filter(|line| line.starts_with("Refused")).collect();
    let doublings = |line: &&str| line.split(['(', ')']).nth(3).map(str::to_owned);
    let doublings: Vec<_> = rests.iter().filter_map(doublings).collect();
    assert_eq!(doublings, ["0", "1", "2", "3", "4", "5", "6", "6", "6", "0"]);
}

#[test]
fn a_crashed_part_releases_its_reservations() {
    let text = trace(&[
        Input::Requested(1),
        Input::Requested(2),
        Input::Lost(1),
        Input::Want(vec![1, 2]),
        Input::Granted(1),
        Input::Lost(1),
        Input::Granted(2),
    ]);
    let expected = "\
Requested(1): [Grant(1)] Reserved { by: 1 }
Requested(2): [Refuse(2)] Reserved { by: 1 }
Lost(1): [] Free
Want([1, 2]): [Ask(1)] Negotiating { others: [1, 2], granted: 0 }
Granted(1): [Ask(2)] Negotiating { others: [1, 2], granted: 1 }
Lost(1): [] Retreating { requested: 2, held: [] }
Granted(2): [Release(2), Rest(0)] Resting
";
    assert_eq!(text, expected);
}
