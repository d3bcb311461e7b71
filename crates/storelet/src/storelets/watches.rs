//! Automatic runs: on schedules, and for new files.

use super::installs::SECOND;
use super::{DOMAINS_MAX, DomainEntry, Named, RunReason, Storelets};
use crate::account::Account;
use crate::admission::user_of;
use crate::crossing::{Crossing, DomainId};
use crate::domain::{self, Domain, Stage};
use crate::run_spec::{Label, Pick};
use crate::standing::entry::Version;
use crate::standing::listing::RunState;
use crate::standing::registry::{self, Cause};
use crate::standing::registry_change::Plan;
use crate::standing::run_schedule::{self, RunSchedule};
use crate::standing::watch::{self, Files, Watch};
use base::op::Op;
use base::{Automaton as _, Caller, Instant, Name};
use std::collections::BTreeMap;
use tree::{Output, Request};

/// A watch, with its storelet and its identity.
#[derive(Debug)]
pub(super) struct Watched {
    label: Label,
    pub(super) watch: Watch,
    /// Identity for file requests.
    caller: Caller,
    /// Whether it is stopping.
    leaves: bool,
}

impl Storelets {
    /// Returns when automatic runs have to be checked next.
    pub(super) fn watch_deadline(&self) -> Option<Instant> {
        if self.closing {
            return None;
        }
        if !self.is_settled {
            return Some(Instant(0));
        }
        let watches = self.watches.values().filter_map(|it| it.watch.deadline());
        let run_schedules = self.run_schedules.values().filter_map(RunSchedule::due);
        let start = self.wall(Instant(0));
        let run_schedules =
            run_schedules.map(|due| Instant(due.saturating_sub(start).max(0).cast_unsigned()));
        watches.chain(run_schedules).min()
    }

    /// Advances schedules and watches to the current time.
    pub(super) fn look_around(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.closing {
            return;
        }
        if !std::mem::replace(&mut self.is_settled, true) {
            self.settle_all(now, out);
        }
        let wall = self.wall(now);
        let due =
            self.run_schedules.iter().filter(|(_, it)| it.due().is_some_and(|due| due <= wall));
        for label in due.map(|(label, _)| label.clone()).collect::<Vec<Label>>() {
            self.step_duty(now, &label, run_schedule::Input::Tick(wall), out);
        }
        let due = |it: &Watched| it.watch.deadline().is_some_and(|at| at <= now);
        let watches = self.watches.iter().filter(|(_, it)| due(it)).map(|(id, _)| *id);
        for id in watches.collect::<Vec<u64>>() {
            self.step_watch(now, id, watch::Input::Tick, out);
        }
    }

    /// Starts and stops schedules and watches according to the registry.
    fn settle_all(&mut self, now: Instant, out: &mut Vec<Output>) {
        let plans = self.registry.entries().filter_map(|(label, entry)| {
            let version = entry.current()?;
            Some((label.clone(), version.clone(), version.plan(label).ok()?))
        });
        let plans: Vec<(Label, Version, Plan)> = plans.collect();
        let timed =
            |label: &Label| plans.iter().any(|(it, _, plan)| it == label && plan.when.is_some());
        self.run_schedules.retain(|label, _| timed(label));
        for id in self.watches.keys().copied().collect::<Vec<u64>>() {
            let Watched { label, watch, caller, .. } = &self.watches[&id];
            let writes = |plan: &Plan| plan.run_spec.writes && self.settings.writes;
            let same = |plan: &Plan| {
                let dir = plan.on.as_ref().map(|on| &on.dir);
                dir == Some(watch.dir()) && writes(plan) == watch.writes()
            };
            let stays = plans.iter().any(|(it, version, plan)| {
                it == label && same(plan) && version.by.caller() == *caller
            });
            if !stays {
                self.leave_watch(now, id, out);
            }
        }
        for (label, version, plan) in plans {
            self.settle_one(now, label, &version, &plan);
        }
    }

    fn settle_one(&mut self, now: Instant, label: Label, version: &Version, plan: &Plan) {
        if let Some(when) = plan.when {
            let history = self.registry.books().find(|(it, _)| **it == label);
            let past = history.and_then(|(_, history)| history.past).unwrap_or((version.at, 0));
            let run_schedule = self.run_schedules.entry(label.clone());
            run_schedule
                .or_insert_with(|| RunSchedule::new(when, past.0.max(version.at), past.1))
                .set(when, version.at);
        }
        let there = self.watches.values().any(|it| it.label == label && !it.leaves);
        let Some(on) = plan.on.as_ref().filter(|_| !there) else { return };
        let since = if on.existing { i64::MIN } else { version.at };
        let files = match self.registry.take_files(&label) {
            Some(bytes) => Files::read(&on.dir, since, &bytes),
            None => Files::new(&on.dir, since),
        };
        let writes = plan.run_spec.writes && self.settings.writes;
        let watch = Watch::new(now, (on.dir.clone(), writes), files);
        let caller = version.by.caller();
        self.watches.insert(self.next, Watched { label, watch, caller, leaves: false });
        self.next += 1;
    }

    fn leave_watch(&mut self, now: Instant, id: u64, out: &mut Vec<Output>) {
        if let Some(it) = self.watches.get_mut(&id) {
            it.leaves = true;
            self.registry.give_files(&it.label, it.watch.kept());
            self.step_watch(now, id, watch::Input::Leave, out);
        }
    }

    /// Stops all watches at shutdown.
    pub(super) fn leave_all(&mut self, now: Instant, out: &mut Vec<Output>) {
        for id in self.watches.keys().copied().collect::<Vec<u64>>() {
            self.leave_watch(now, id, out);
        }
    }

    fn step_duty(
        &mut self,
        now: Instant,
        label: &Label,
        input: run_schedule::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(run_schedule) = self.run_schedules.get_mut(label) else { return };
        let mut asks = Vec::new();
        run_schedule.step(now, input, &mut asks);
        for run_schedule::Output::Run in asks {
            if !self.begin_own(now, label, RunReason::Time, None, out) {
                let wall = self.wall(now);
                self.step_duty(now, label, run_schedule::Input::Busy(wall), out);
            }
        }
    }

    pub(super) fn step_watch(
        &mut self,
        now: Instant,
        id: u64,
        input: watch::Input,
        out: &mut Vec<Output>,
    ) {
        let Some(it) = self.watches.get_mut(&id) else { return };
        let mut asks = Vec::new();
        it.watch.step(now, input, &mut asks);
        let (label, caller) = (it.label.clone(), it.caller.clone());
        for ask in asks {
            let crossing = match ask {
                watch::Output::Ask(ask) => {
                    Crossing::Ask(id, Request { caller: caller.clone(), ask })
                }
                watch::Output::Cancel => Crossing::Cancel(id),
                watch::Output::Close(open) => Crossing::Close(open),
                watch::Output::Run(path) => {
                    if !self.begin_own(now, &label, RunReason::File(id), Some(&path), out) {
                        self.step_watch(now, id, watch::Input::Ran(None), out);
                    }
                    continue;
                }
                watch::Output::Keep(bytes) => {
                    self.step_registry(now, registry::Input::Files(label.clone(), bytes), out);
                    continue;
                }
            };
            out.push(Output::Do(Op::Post {
                to: self.settings.home,
                envelope: crossing.envelope(),
            }));
        }
        if self.watches.get(&id).is_some_and(|it| it.watch.is_over()) {
            self.watches.remove(&id);
        }
        self.end(out);
    }

    /// Notifies the watch of a storelet that its processed files were stored.
    pub(super) fn saved(&mut self, now: Instant, label: &Label, out: &mut Vec<Output>) {
        let its = self.watches.iter().find(|(_, it)| it.label == *label && !it.leaves);
        if let Some(id) = its.map(|(id, _)| *id) {
            self.step_watch(now, id, watch::Input::Kept, out);
        }
    }

    /// Starts a storelet on the server's own account. Returns `false` if it cannot start now.
    fn begin_own(
        &mut self,
        now: Instant,
        label: &Label,
        why: RunReason,
        file: Option<&[Name]>,
        out: &mut Vec<Output>,
    ) -> bool {
        let pick = Pick { label: label.clone(), version: None };
        let entry = self.registry.entries().find(|(it, _)| *it == label);
        let version = entry.and_then(|(_, entry)| entry.current()).cloned();
        let (Some(version), Ok((called, Plan { mut run_spec, .. }))) =
            (version, self.registry.plan(&pick))
        else {
            return false;
        };
        if self.closing || self.here.len() >= DOMAINS_MAX {
            return false;
        }
        let trigger = match file {
            Some(path) => {
                run_spec.stdin = Some(watch::stdin(path));
                run_spec.stdin_straight = true;
                run_spec.args.push(watch::shown(path));
                format!("file {}", String::from_utf8_lossy(&watch::shown(path)))
            }
            None => "schedule".to_string(),
        };
        let all = vec![(label.clone(), version.version)];
        let named = Named { all, at: self.wall(now) / SECOND, trigger, why };
        let id = DomainId(self.next);
        self.next += 1;
        let (domain, caller) = (Domain::new(now, self.settings.maxima), version.by.caller());
        let account = Account { user: user_of(&caller), client: Account::OWN };
        let (runs, name, named) = (None, String::new(), Some(named));
        let here = DomainEntry { domain, caller, account, since: now, runs, name, named };
        self.here.insert(id, here);
        self.step_domain(now, id, domain::Input::Begin(vec![Stage { called, run_spec }]), out);
        true
    }

    /// Returns the record of a finished run; `None` if the shutdown ended it.
    pub(super) fn cause(
        &mut self,
        now: Instant,
        label: &Label,
        why: RunReason,
        well: bool,
    ) -> Option<Cause> {
        match why {
            RunReason::Requested => Some(Cause::Requested),
            RunReason::Time | RunReason::File(_) if self.closing && !well => None,
            RunReason::File(_) => Some(Cause::File),
            RunReason::Time => {
                let run_schedule = self.run_schedules.get_mut(label)?;
                // Reinstalled during the run.
                run_schedule.due().is_none().then_some(())?;
                run_schedule.step(now, run_schedule::Input::Ended(well), &mut Vec::new());
                let (last, failures) = run_schedule.past();
                Some(Cause::Time(last, failures))
            }
        }
    }

    /// Notifies the source of a finished run, and drops a storelet without owner.
    pub(super) fn done_for(
        &mut self,
        now: Instant,
        id: DomainId,
        why: RunReason,
        well: bool,
        out: &mut Vec<Output>,
    ) {
        match why {
            RunReason::Requested => return,
            RunReason::Time => {}
            RunReason::File(watch) => {
                let well = Some(well).filter(|well| *well || !self.closing);
                self.step_watch(now, watch, watch::Input::Ran(well), out);
            }
        }
        self.step_domain(now, id, domain::Input::Gone, out);
    }

    /// Returns the state of all automatic runs.
    pub(super) fn doings(&self) -> BTreeMap<Label, RunState> {
        let mut doings: BTreeMap<Label, RunState> = BTreeMap::new();
        for (label, run_schedule) in &self.run_schedules {
            let doing = doings.entry(label.clone()).or_default();
            doing.next = Some(run_schedule.due().map(|due| due / SECOND));
            doing.failures = run_schedule.past().1;
        }
        for Watched { label, watch, leaves, .. } in self.watches.values() {
            if !leaves {
                let doing = doings.entry(label.clone()).or_default();
                let (counts, trouble) = watch.counts();
                doing.files = Some(counts);
                doing.trouble = trouble.map(str::to_string);
                doing.failed = watch.failed();
            }
        }
        doings
    }
}
