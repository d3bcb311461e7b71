//! A schedule: periodic runs of an installed storelet, never two at once.
//!
//! Runs missed while the server was down are made up for by one run after its start. After failures
//! the period grows exponentially, until a run succeeds. Times are wall-clock times, ns since 1970.
//!
#![doc = include_str!("run_schedule/states.md")]

use base::{Automaton, Instant};
use std::mem;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Range of periods, ns.
const PERIODS: std::ops::Range<u64> = 1_000_000_000..1 << 56;

/// Maximum number of doublings of the period after failures.
const DOUBLINGS_MAX: u32 = 6;

/// Delay before the next try if a run could not start, ns.
const BUSY: i64 = 10 * SECOND;

/// Time of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Period, ns.
    Every(i64),
    /// Time of day (UTC), ns since midnight.
    At(i64),
}

impl When {
    /// Parses a period.
    pub(crate) fn every(text: &str) -> Result<When, String> {
        let ns = crate::run_spec::time(text).ok().filter(|ns| PERIODS.contains(ns));
        let why = || "write a time of at least 1s, such as 5m".to_string();
        ns.map(|ns| When::Every(ns.cast_signed())).ok_or_else(why)
    }

    /// Parses a time of day.
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

    /// Returns the time of the next run, given the last one and the number of failures since the
    /// last success.
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

/// Inputs of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input {
    /// The current time.
    Tick(i64),
    /// The run could not start now, because the server is busy.
    Busy(i64),
    /// The run has ended; whether it succeeded.
    Ended(bool),
}

/// Outputs of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Start a run; [`Input::Ended`] or [`Input::Busy`] follows.
    Run,
}

/// State of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the time of the next run.
    Waiting(i64),
    /// Waiting for the end of the run that started at this time.
    Running(i64),
}

/// The schedule automaton.
#[derive(Clone, Debug)]
pub(crate) struct RunSchedule {
    state: State,
    when: When,
    /// Start of the last run, or time of the installation.
    last: i64,
    failures: u32,
}

impl RunSchedule {
    /// Creates a schedule from the start of the last run, or the time of the installation, and the
    /// number of failures since the last success.
    pub(crate) fn new(when: When, last: i64, failures: u32) -> RunSchedule {
        RunSchedule { state: State::Waiting(when.after(last, failures)), when, last, failures }
    }

    /// Adopts the schedule of a version installed at `since`; failures of older versions do not
    /// count.
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

    /// Returns the time of the next run; `None` during a run.
    pub(crate) fn due(&self) -> Option<i64> {
        match self.state {
            State::Waiting(due) => Some(due),
            State::Running(_) => None,
        }
    }

    /// Returns the start of the last run, or the time of the installation; and the number of
    /// failures since the last success.
    pub(crate) fn past(&self) -> (i64, u32) {
        (self.last, self.failures)
    }
}

impl Automaton for RunSchedule {
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
            // Only a started run can end or be rejected.
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
                let run_schedule =
                    RunSchedule { state, ..RunSchedule::new(When::Every(SECOND), 0, 0) };
                drawing.sample_as(label, run_schedule, input, |run_schedule| {
                    variant(&run_schedule.state)
                });
            }
        }
        drawing.assert_fresh(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/standing/run_schedule/states.md"
        ));
    }

    fn step(run_schedule: &mut RunSchedule, input: Input) -> bool {
        let mut out = Vec::new();
        run_schedule.step(Instant(0), input, &mut out);
        !out.is_empty()
    }

    #[test]
    fn missed_runs_happen_once_and_failures_back_off() {
        let hour = 3600 * SECOND;
        // After a downtime of ten hours.
        let mut run_schedule = RunSchedule::new(When::Every(hour), 0, 0);
        assert!(
            step(&mut run_schedule, Input::Tick(10 * hour))
                && !step(&mut run_schedule, Input::Tick(11 * hour))
        );
        step(&mut run_schedule, Input::Ended(true));
        assert_eq!(run_schedule.due(), Some(11 * hour));
        for (failures, wait) in [(1, 2), (2, 4), (3, 8)] {
            let due = run_schedule.due().expect("it waits");
            assert!(step(&mut run_schedule, Input::Tick(due)));
            step(&mut run_schedule, Input::Ended(false));
            assert_eq!(
                (run_schedule.due(), run_schedule.past()),
                (Some(due + wait * hour), (due, failures))
            );
        }
        let due = run_schedule.due().expect("it waits");
        assert!(step(&mut run_schedule, Input::Tick(due)));
        step(&mut run_schedule, Input::Ended(true));
        assert_eq!(run_schedule.due(), Some(due + hour));
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
