//! Conversion of workload parts to filaments, requirements and descriptions.

use super::Part;
#[cfg(doc)]
use super::Wants;
use super::parts::{Replay, ReplayMode, What};
use crate::workload::specweb::{self, FileSet, Year};
use crate::workload::stream::Stream;
use crate::workload::transactions::{self, Tables, Transactions};
use crate::workload::users::{Sessions, Users};
use crate::workload::{Mix, Pace, postmark::PostMark, spc1};
use crate::{Event, Filament, Kind, Request};
use base::{Automaton, Instant};

/// Filament with renumbered files.
struct Renumbered {
    inner: Box<dyn Filament>,
    /// Number of its file 0.
    first: u32,
}

impl Automaton for Renumbered {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        let before = out.len();
        self.inner.step(now, event, out);
        for request in &mut out[before..] {
            if let Request::Io { io, .. } = request {
                io.file += self.first;
            }
        }
    }
}

fn renumbered(inner: Box<dyn Filament>, first: u32) -> Box<dyn Filament> {
    if first == 0 { inner } else { Box::new(Renumbered { inner, first }) }
}

/// Returns the length of the used part of a target, from `from`; `span` 0 means the rest.
fn used(from: u64, span: u64, target: u64) -> Result<u64, String> {
    let left = target.checked_sub(from);
    let left = left.ok_or(format!("`from` is {from}, but the target has {target} bytes"))?;
    match span {
        0 => Ok(left),
        span if span <= left => Ok(span),
        span => Err(format!("`span` is {span}, but the target has {left} bytes from there on")),
    }
}

/// Fits a mix to this target.
fn placed(mix: &Mix, target: u64) -> Result<Mix, String> {
    let span = used(mix.begin, mix.span, target)?;
    let longest = u64::from(mix.size.max());
    if longest > span {
        return Err(format!("an I/O of {longest} bytes does not fit into {span} bytes"));
    }
    Ok(Mix { span, ..mix.clone() })
}

impl What {
    /// Reports whether it runs forever unless ended.
    pub(super) fn is_endless(&self) -> bool {
        !matches!(self, What::PostMark(_) | What::Replay { .. })
    }
}

impl Part {
    /// Returns its filament on a target of this size in bytes; its own files are numbered from
    /// `first`.
    pub(super) fn filament(
        &self,
        target: u64,
        first: u32,
    ) -> Result<Option<Box<dyn Filament>>, String> {
        let (life, seed) = (self.life, self.seed);
        Ok(Some(match &self.what {
            What::Stream { arrival, mix } => {
                let (arrival, mix) = (arrival.clone(), placed(mix, target)?);
                Box::new(Stream::new(arrival, mix, seed, life.begin, life.count).until(life.end))
            }
            What::Users { users, think, mix } => {
                let (users, mix) = (u64::from(*users), placed(mix, target)?);
                let users = Users::new(users, *think, mix, seed, life.begin, life.count);
                Box::new(users.until(life.end))
            }
            What::Sessions { arrival, each, think, mix } => {
                let (arrival, mix) = (arrival.clone(), placed(mix, target)?);
                let (begin, count) = (life.begin, life.count);
                let sessions = Sessions::new(arrival, *each, *think, mix, seed, begin, count);
                Box::new(sessions.until(life.end))
            }
            What::Transactions { branches, pace, from, span } => {
                let span = used(*from, *span, target)?;
                let tables = Tables::new(*branches, *from, span).ok_or_else(|| {
                    let least = Tables::least(*branches);
                    format!("{branches} branches take {least} bytes, and there are {span}")
                })?;
                Box::new(Transactions::new(tables, pace.clone(), seed, life))
            }
            What::Spc1 { bsus, from, span } => {
                let span = used(*from, *span, target)?;
                if span < spc1::SPAN_MIN {
                    let least = spc1::SPAN_MIN;
                    return Err(format!("it takes {least} bytes at least, and there are {span}"));
                }
                let drawer = spc1::Drawer::new(*bsus, *from, span, seed);
                Box::new(spc1::stream(drawer, life.begin, life.count).until(life.end))
            }
            What::PostMark(setup) => {
                renumbered(Box::new(PostMark::new(setup.clone(), seed, life)), first)
            }
            What::SpecWeb { set, pace, .. } => {
                renumbered(set.filament(pace.clone(), seed, life), first)
            }
            What::Replay { .. } => return Ok(None),
        }))
    }

    /// Returns the trace to replay, for a replay.
    pub(super) fn replay(&self) -> Option<Replay> {
        match &self.what {
            What::Replay { trace, speed, way, depth } => Some(Replay {
                name: self.name.clone(),
                trace: trace.clone(),
                speed: *speed,
                way: *way,
                depth: *depth,
                life: self.life,
            }),
            What::Stream { .. }
            | What::Users { .. }
            | What::Sessions { .. }
            | What::Transactions { .. }
            | What::Spc1 { .. }
            | What::PostMark(_)
            | What::SpecWeb { .. } => None,
        }
    }

    /// Returns the file set that must exist, if it has one.
    pub(super) fn set(&self) -> Option<FileSet> {
        if let What::SpecWeb { set, .. } = &self.what { Some(*set) } else { None }
    }

    /// Returns the mix, if it has one.
    fn mix(&self) -> Option<&Mix> {
        match &self.what {
            What::Stream { mix, .. } | What::Users { mix, .. } | What::Sessions { mix, .. } => {
                Some(mix)
            }
            What::Transactions { .. }
            | What::Spc1 { .. }
            | What::PostMark(_)
            | What::SpecWeb { .. }
            | What::Replay { .. } => None,
        }
    }

    /// Number of shared files used.
    pub(super) fn shared_files(&self) -> u32 {
        match &self.what {
            What::Stream { mix, .. } | What::Users { mix, .. } | What::Sessions { mix, .. } => {
                mix.files
            }
            What::Transactions { .. } | What::Spc1 { .. } => 1,
            What::PostMark(_) | What::SpecWeb { .. } | What::Replay { .. } => 0,
        }
    }

    /// Number of files of its own.
    pub(super) fn own_files(&self) -> u32 {
        match &self.what {
            What::PostMark(setup) => setup.numbers(),
            What::SpecWeb { set, .. } => set.count(),
            What::Stream { .. }
            | What::Users { .. }
            | What::Sessions { .. }
            | What::Transactions { .. }
            | What::Spc1 { .. }
            | What::Replay { .. } => 0,
        }
    }

    /// See [`Wants::io_max`].
    pub(super) fn io_max(&self) -> u32 {
        match &self.what {
            What::Stream { mix, .. } | What::Users { mix, .. } | What::Sessions { mix, .. } => {
                mix.size.max()
            }
            What::Transactions { .. } => transactions::PAGE,
            What::Spc1 { .. } => spc1::IO_MAX,
            What::PostMark(setup) => setup.max,
            What::SpecWeb { .. } => specweb::IO_MAX,
            What::Replay { .. } => 0,
        }
    }

    /// See [`Wants::kinds`].
    pub(super) fn kinds(&self) -> Vec<Kind> {
        if let Some(mix) = self.mix() {
            let drawn = mix.kinds.iter().filter(|(_, weight)| *weight > 0.0);
            return drawn.map(|(kind, _)| *kind).collect();
        }
        match &self.what {
            What::Transactions { .. } => vec![Kind::Read, Kind::Write, Kind::Sync],
            What::Spc1 { .. } => vec![Kind::Read, Kind::Write],
            What::PostMark(_) => vec![Kind::Read, Kind::Write, Kind::Create, Kind::Remove],
            What::SpecWeb { .. } => vec![Kind::Read],
            What::Stream { .. }
            | What::Users { .. }
            | What::Sessions { .. }
            | What::Replay { .. } => Vec::new(),
        }
    }

    /// See [`super::Workload::scaled`].
    pub(super) fn scale(&mut self, factor: f64) {
        match &mut self.what {
            What::Stream { arrival, .. } | What::Sessions { arrival, .. } => {
                *arrival = arrival.clone().scaled(factor);
            }
            What::Transactions { pace, .. } | What::SpecWeb { pace, .. } => {
                if let Pace::Open(arrival) = pace {
                    *arrival = arrival.clone().scaled(factor);
                }
            }
            What::Spc1 { bsus, .. } => *bsus = (f64::from(*bsus) * factor).round().max(1.0) as u32,
            What::Replay { speed, .. } => *speed *= factor,
            What::Users { .. } | What::PostMark(_) => {}
        }
    }

    /// See [`Wants::rate`].
    pub(super) fn rate(&self) -> Option<f64> {
        match &self.what {
            What::Stream { arrival, .. } => Some(arrival.rate()),
            What::Sessions { arrival, each, .. } => Some(arrival.rate() * f64::from(*each)),
            What::Transactions { pace, .. } => {
                pace.rate().map(|rate| rate * f64::from(transactions::IOS))
            }
            What::Spc1 { bsus, .. } => Some(spc1::RATE * f64::from(*bsus)),
            What::SpecWeb { pace, .. } => pace.rate(),
            What::Users { .. } | What::PostMark(_) | What::Replay { .. } => None,
        }
    }

    /// Describes the part, for people.
    pub(super) fn describe(&self) -> String {
        let what = match &self.what {
            What::Stream { arrival, mix } => format!("{}/s {}", arrival.rate(), words(mix)),
            What::Users { users, mix, .. } => format!("{} {}", people(*users), words(mix)),
            What::Sessions { arrival, each, mix, .. } => {
                format!("{}/s sessions of {each} {}", arrival.rate(), words(mix))
            }
            What::Transactions { branches, pace, .. } => {
                format!("{} TPC-B-like on {branches} branches", paced(pace, "terminals"))
            }
            What::Spc1 { bsus, .. } => format!("SPC-1-like, {bsus} BSUs"),
            What::PostMark(setup) => format!(
                "PostMark-like, {} files, {} transactions, {}",
                setup.files,
                setup.transactions,
                people(setup.users)
            ),
            What::SpecWeb { year, set, pace } => {
                let year = match year {
                    Year::Y96 => "SPECweb96",
                    Year::Y99 => "SPECweb99",
                };
                format!("{} {year}-like on {} files", paced(pace, "connections"), set.count())
            }
            What::Replay { trace, speed, way, .. } => {
                let way = match way {
                    ReplayMode::Timed => "timed",
                    ReplayMode::Fast => "fast",
                    ReplayMode::Loaded => "loaded",
                    ReplayMode::Dependent => "dependent",
                };
                format!("replay of {} at {speed}x, {way}", trace.display())
            }
        };
        format!("`{}` {what}", self.name)
    }
}

/// Formats a number of users.
fn people(users: u32) -> String {
    format!("{users} {}", if users == 1 { "user" } else { "users" })
}

/// Describes a pace.
fn paced(pace: &Pace, count: &str) -> String {
    match pace {
        Pace::Open(arrival) => format!("{}/s", arrival.rate()),
        Pace::Closed { count: number, .. } => format!("{number} {count}"),
    }
}

/// Describes a mix.
fn words(mix: &Mix) -> String {
    let total: f64 = mix.kinds.iter().map(|(_, weight)| weight).sum();
    let kinds: Vec<String> = mix
        .kinds
        .iter()
        .map(|(kind, weight)| format!("{:.0} % {kind}", weight / total * 100.0))
        .collect();
    format!("{} of up to {} bytes", kinds.join(", "), mix.size.max())
}
