//! Closed loop: users that wait for a completion, think, and continue; and sessions of users with
//! independent arrivals (partly open; Schroeder et al., NSDI 2006).

use super::arrival::{Arrivals, exponential};
use super::{Arrival, Draw, Drawer, Mix};
use crate::{Event, Request};
use base::{Automaton, Instant};
use std::time::Duration;

/// Think time between a completion and the next I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Think {
    /// None.
    #[default]
    Not,
    /// Constant.
    Fixed(Duration),
    /// Exponential, with this mean.
    Exponential(Duration),
}

impl Think {
    /// Draws the next think time.
    pub fn draw(&self, random: &mut fastrand::Rng) -> Duration {
        match self {
            Think::Not => Duration::ZERO,
            Think::Fixed(span) => *span,
            Think::Exponential(mean) => {
                Duration::from_secs_f64(exponential(mean.as_secs_f64(), random))
            }
        }
    }
}

/// Users with one outstanding I/O each.
#[derive(Clone, Debug)]
pub struct Users<D = Drawer> {
    count: u64,
    think: Think,
    drawer: D,
    begin: Duration,
    end: Instant,
    left: u64,
}

impl Users {
    /// Creates `count` users that start at `begin` and issue `total` I/Os together.
    pub fn new(
        count: u64,
        think: Think,
        mix: Mix,
        seed: u64,
        begin: Duration,
        total: u64,
    ) -> Users {
        Users::of(count, think, Drawer::new(mix, seed), begin, total)
    }
}

impl<D: Draw> Users<D> {
    /// Creates users with I/Os of another source.
    pub fn of(count: u64, think: Think, drawer: D, begin: Duration, total: u64) -> Users<D> {
        Users { count, think, drawer, begin, end: Instant(u64::MAX), left: total }
    }

    /// Ends the users' activity at `end`.
    pub fn until(mut self, end: Duration) -> Users<D> {
        self.end = Instant::default() + end;
        self
    }

    fn ask(&mut self, at: Instant, out: &mut Vec<Request>) {
        if self.left > 0 && at < self.end {
            self.left -= 1;
            out.push(Request::with_completion(at, self.drawer.draw(), 0));
        }
    }
}

impl<D: Draw> Automaton for Users<D> {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            Event::Started => (0..self.count).for_each(|_| self.ask(now + self.begin, out)),
            Event::Ended(_) => {
                let at = now + self.think.draw(self.drawer.random());
                self.ask(at, out);
            }
            Event::Timer(_) | Event::Message { .. } => {}
        }
    }
}

/// Sessions with independent arrivals; each issues several I/Os, one after the other.
#[derive(Clone, Debug)]
pub struct Sessions {
    arrivals: Arrivals,
    each: u32,
    think: Think,
    drawer: Drawer,
    begin: Duration,
    end: Instant,
    left: u64,
}

impl Sessions {
    /// Creates `total` sessions from `begin` on, each with `each` I/Os.
    pub fn new(
        arrival: Arrival,
        each: u32,
        think: Think,
        mix: Mix,
        seed: u64,
        begin: Duration,
        total: u64,
    ) -> Sessions {
        let (arrivals, drawer) = (Arrivals::new(arrival), Drawer::new(mix, seed));
        Sessions { arrivals, each, think, drawer, begin, end: Instant(u64::MAX), left: total }
    }

    /// Ends arrivals and activity at `end`.
    pub fn until(mut self, end: Duration) -> Sessions {
        self.end = Instant::default() + end;
        self
    }

    /// Requests the next session's first I/O, and a call for the following session.
    fn come(&mut self, out: &mut Vec<Request>) {
        if self.left == 0 || self.each == 0 {
            return;
        }
        self.left -= 1;
        let at = Instant(self.arrivals.draw(self.drawer.random())) + self.begin;
        if at < self.end {
            out.push(Request::with_completion(at, self.drawer.draw(), u64::from(self.each - 1)));
            out.push(Request::Timer { at, tag: 0 });
        }
    }

    /// Requests the next I/O of a session with `left` I/Os left.
    fn go_on(&mut self, now: Instant, left: u64, out: &mut Vec<Request>) {
        let at = now + self.think.draw(self.drawer.random());
        if at < self.end {
            out.push(Request::with_completion(at, self.drawer.draw(), left - 1));
        }
    }
}

impl Automaton for Sessions {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            Event::Started | Event::Timer(_) => self.come(out),
            Event::Ended(ended) if ended.tag > 0 => self.go_on(now, ended.tag, out),
            Event::Ended(_) | Event::Message { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Queueing, run};

    #[test]
    fn users_ask_again_when_they_were_answered_and_have_thought() {
        let think = Think::Fixed(Duration::from_micros(90));
        let users = Users::new(2, think, Mix::default(), 1, Duration::ZERO, 6);
        let mut device = Queueing::new(2, Duration::from_micros(10), Duration::ZERO);
        let run = run(vec![Box::new(users)], &mut device);
        let times: Vec<u64> = run.records.iter().map(|r| r.scheduled_ns / 1000).collect();
        assert_eq!(times, [0, 0, 100, 100, 200, 200]);
    }

    #[test]
    fn sessions_come_by_themselves_and_are_closed_inside() {
        let arrival = Arrival::Uniform { rate: 1000.0 };
        let think = Think::Fixed(Duration::from_millis(2));
        let mix = Mix::default();
        let sessions = Sessions::new(arrival, 3, think, mix, 1, Duration::ZERO, 2);
        let mut device = Queueing::new(1, Duration::from_millis(1), Duration::ZERO);
        let run = run(vec![Box::new(sessions)], &mut device);
        let times: Vec<u64> = run.records.iter().map(|r| r.scheduled_ns / 1_000_000).collect();
        assert_eq!(times, [1, 2, 4, 5, 7, 8]);
    }
}
