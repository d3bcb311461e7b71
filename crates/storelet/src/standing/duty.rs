//! A duty: a storelet that runs at its time, never twice at once.
//!
//! What was missed while the server was down is done once when it is back. Who fails is run less
//! and less often, until it does not fail any more. Times are those of the wall, ns since 1970.
//!
#![doc = include_str!("duty/states.md")]

use base::{Automaton, Instant};
use std::mem;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// The shortest and the longest period, ns.
const PERIODS: std::ops::Range<u64> = 1_000_000_000..1 << 56;

/// How often a period is doubled at most, for one that fails.
const DOUBLINGS_MAX: u32 = 6;

/// How soon one is tried again that could not be begun, ns.
const BUSY: i64 = 10 * SECOND;

/// When something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// So long after it ran last, ns.
    Every(i64),
    /// So long after midnight (UTC), ns.
    At(i64),
}

impl When {
    /// Understands a period.
    pub(crate) fn every(text: &str) -> Result<When, String> {
        let ns = crate::order::time(text).ok().filter(|ns| PERIODS.contains(ns));
        let why = || "write a time of at least 1s, such as 5m".to_string();
        ns.map(|ns| When::Every(ns.cast_signed())).ok_or_else(why)
    }

    /// Understands a time of the day.
    pub(crate) fn at(text: &str) -> Result<When, String> {
        let number = |digits: &str, most: i64| {
            let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<i64>().ok().filter(|number| plain && *number < most)
        };
        let both = text.split_once(':').and_then(|(hour, minute)| {
            let (hour, minute) = (number(hour, 24)?, number(minute, 60)?);
            Some(When::At((hour * 60 + minute) * 60 * SECOND))
        });
        both.ok_or_else(|| "write a time of the day (UTC), such as 03:00".to_string())
    }

    /// When it is to run after this time, if it has failed so often since it last did not.
    fn after(self, last: i64, failures: u32) -> i64 {
        match self {
            When::Every(period) => {
                last.saturating_add(period.saturating_mul(1 << failures.min(DOUBLINGS_MAX)))
            }
            When::At(of_day) => {
                let today = last.div_euclid(DAY) * DAY + of_day;
                if today > last { today } else { today + DAY }
            }
        }
    }
}

/// What can happen to a duty.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// It is so late now.
    Tick(i64),
    /// It could not be begun now: the server is busy.
    Busy(i64),
    /// It has ended, well or not.
    Ended(bool),
}

/// What a duty can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Run it; [`Input::Ended`] or [`Input::Busy`] follows.
    Run,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For its time.
    Waiting(i64),
    /// For its end; it was begun then.
    Running(i64),
}

/// The duty automaton.
#[derive(Clone, Debug)]
pub(crate) struct Duty {
    state: State,
    when: When,
    /// When it was begun last, or installed.
    last: i64,
    failures: u32,
}

impl Duty {
    /// A duty that was begun last, or installed, at this time, and has failed so often since it
    /// last did not.
    pub(crate) fn new(when: When, last: i64, failures: u32) -> Duty {
        Duty { state: State::Waiting(when.after(last, failures)), when, last, failures }
    }

    /// Another version, installed then, has another time, or no past.
    pub(crate) fn set(&mut self, when: When, since: i64) {
        if self.when == when && (self.failures == 0 || since <= self.last) {
            return;
        }
        (self.when, self.failures) = (when, 0);
        self.state = match self.state {
            State::Waiting(_) => State::Waiting(when.after(since.max(self.last), 0)),
            running @ State::Running(_) => running,
        };
    }

    /// When it is to be looked at; not while it runs.
    pub(crate) fn due(&self) -> Option<i64> {
        match self.state {
            State::Waiting(due) => Some(due),
            State::Running(_) => None,
        }
    }

    /// When it was begun last, or installed; and how often it has failed since it last did not.
    pub(crate) fn past(&self) -> (i64, u32) {
        (self.last, self.failures)
    }
}

impl Automaton for Duty {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Waiting(i64::MAX));
        self.state = match (state, input) {
            (State::Waiting(due), Input::Tick(wall)) if due <= wall => {
                out.push(Output::Run);
                State::Running(wall)
            }
            (state @ (State::Waiting(_) | State::Running(_)), Input::Tick(_)) => state,
            (State::Running(_), Input::Busy(wall)) => State::Waiting(wall.saturating_add(BUSY)),
            (State::Running(since), Input::Ended(well)) => {
                self.failures = if well { 0 } else { self.failures.saturating_add(1) };
                self.last = since;
                State::Waiting(self.when.after(since, self.failures))
            }
            // What was not begun does not end.
            (State::Waiting(_), Input::Busy(_) | Input::Ended(_)) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::drawing::{Drawing, variant};

    #[test]
    fn states_md_is_fresh() {
        let mut drawing = Drawing::default();
        let inputs = [
            ("Tick(early)", Input::Tick(1)),
            ("Tick(due)", Input::Tick(5 * SECOND)),
            ("Busy", Input::Busy(9)),
            ("Ended(well)", Input::Ended(true)),
            ("Ended(badly)", Input::Ended(false)),
        ];
        for (label, input) in inputs {
            for state in [State::Waiting(5 * SECOND), State::Running(7)] {
                let duty = Duty { state, ..Duty::new(When::Every(SECOND), 0, 0) };
                drawing.sample_as(label, duty, input, |duty| variant(&duty.state));
            }
        }
        drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/standing/duty/states.md"));
    }

    fn step(duty: &mut Duty, input: Input) -> bool {
        let mut out = Vec::new();
        duty.step(Instant(0), input, &mut out);
        !out.is_empty()
    }

    #[test]
    fn what_was_missed_is_done_once_and_who_fails_is_run_less_often() {
        let hour = 3600 * SECOND;
        // Down for ten hours.
        let mut duty = Duty::new(When::Every(hour), 0, 0);
        assert!(
            step(&mut duty, Input::Tick(10 * hour)) && !step(&mut duty, Input::Tick(11 * hour))
        );
        step(&mut duty, Input::Ended(true));
        assert_eq!(duty.due(), Some(11 * hour));
        for (failures, wait) in [(1, 2), (2, 4), (3, 8)] {
            let due = duty.due().expect("it waits");
            assert!(step(&mut duty, Input::Tick(due)));
            step(&mut duty, Input::Ended(false));
            assert_eq!((duty.due(), duty.past()), (Some(due + wait * hour), (due, failures)));
        }
        let due = duty.due().expect("it waits");
        assert!(step(&mut duty, Input::Tick(due)));
        step(&mut duty, Input::Ended(true));
        assert_eq!(duty.due(), Some(due + hour));
    }

    #[test]
    fn a_time_of_the_day_comes_once_a_day() {
        let when = When::at("03:30").expect("a time");
        let (early, late) = (DAY * 5 + 3 * 3600 * SECOND, DAY * 5 + 4 * 3600 * SECOND);
        let due = DAY * 5 + 12_600 * SECOND;
        assert_eq!(when.after(early, 0), due);
        assert_eq!((when.after(due, 0), when.after(late, 3)), (due + DAY, due + DAY));
        for wrong in ["3:30", "03:60", "24:00", "0330", "-1:00", "+1:00", "aa:bb"] {
            assert!(When::at(wrong).is_err(), "{wrong}");
        }
    }
}
