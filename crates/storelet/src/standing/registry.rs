//! The registry of installed storelets, and their run histories.
//!
//! Changes are made one at a time, and each is durable before it takes effect: an acknowledged
//! installation survives any crash.

use super::entry::{By, Entry, VERSIONS_MAX};
use super::history::{Run, RunHistory};
use super::registry_change::{Plan, RegistryChange};
use super::{Change, Kept, Key, Stock};
use crate::crossing::DomainId;
use crate::domain::Stage;
use crate::run_spec::{Label, Pick, RunSpec, Wanted};
use base::{Automaton, Caller, Instant};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wasi::Hash;

/// Maximum number of entries.
const NAMES_MAX: usize = 256;

/// Maximum length of the text of an installation, bytes.
const TEXT_MAX: usize = 16 << 10;

/// A change request, with its session and its author.
#[derive(Debug)]
pub(crate) struct Filing {
    pub(crate) install_session: DomainId,
    pub(crate) registry_change: RegistryChange,
    /// Module to be installed, and its bytes if they were sent.
    pub(crate) module: Option<(Hash, Option<Vec<u8>>)>,
    pub(crate) caller: Caller,
    /// Time of the request, ns since 1970.
    pub(crate) at: i64,
}

/// Result of a change, as reported in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Filed {
    /// `installed`, `used`, `removed`, `refused`, `unknown` or `failed`.
    pub(crate) end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Filed {
    fn done(end: &'static str, label: &Label, version: Option<u32>) -> Filed {
        Filed { end, name: Some(label.to_string()), version, reason: None }
    }

    /// Creates the result of a change that was not made, with the reason.
    pub(crate) fn not(end: &'static str, why: String) -> Filed {
        Filed { end, name: None, version: None, reason: Some(why) }
    }
}

/// Trigger of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A request.
    Requested,
    /// A schedule: start of the last run, ns since 1970, and number of failures since its last
    /// success.
    Time(i64, u32),
    /// A new file.
    File,
}

/// Inputs of the registry.
#[derive(Debug)]
pub(crate) enum Input {
    /// A change request.
    File(Box<Filing>),
    /// A reply of the state store.
    Kept(Kept),
    /// A finished run. Records of automatic runs are made durable.
    Ran(Label, Run, Cause),
    /// Files processed by the watch of a storelet.
    Files(Label, Vec<u8>),
}

/// Outputs of the registry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Make this durable; [`Input::Kept`] follows.
    Keep(u64, Vec<Change>),
    /// Report the result of a change to its session.
    Filed(DomainId, Filed),
    /// The processed files of a watch were stored, or could not be.
    Saved(Label),
    /// Notify the operator.
    Tell(String),
}

/// State of the registry.
#[derive(Debug)]
enum State {
    /// Waiting for a change request.
    Idle,
    /// Waiting for the change with this ticket to be durable.
    Keeping(u64, DomainId, Box<Kind>),
}

impl State {
    /// Returns whether this storelet is being removed.
    fn is_going(&self, label: &Label) -> bool {
        match self {
            State::Keeping(_, _, kind) => kind.entry.is_none() && kind.label == *label,
            State::Idle => false,
        }
    }
}

/// A change that is being made durable.
#[derive(Debug)]
struct Kind {
    label: Label,
    /// New entry; `None`: removed.
    entry: Option<Entry>,
    /// Module added, and modules deleted.
    comes: Option<Hash>,
    goes: Vec<Hash>,
    filed: Filed,
}

/// The registry automaton.
#[derive(Debug)]
pub(crate) struct InstalledRegistry {
    state: State,
    entries: BTreeMap<Label, Entry>,
    books: BTreeMap<Label, RunHistory>,
    modules: BTreeSet<Hash>,
    /// Queued change requests; at most one for each session.
    queue: VecDeque<Box<Filing>>,
    /// Outstanding writes: of a run history (`None`), or of the processed files of a watch.
    saving: BTreeMap<u64, Option<Label>>,
    /// Run histories that are newer than their stored copies.
    stale: BTreeSet<Label>,
    /// Stored processed files of watches that have not started, or have stopped.
    files: BTreeMap<Label, Vec<u8>>,
    next_ticket: u64,
    /// Whether modules are never deleted, because an unreadable entry may refer to them.
    spares: bool,
    closed: Option<String>,
}

impl InstalledRegistry {
    /// Creates a registry from stored data. Unreadable entries are reported and left alone.
    pub(crate) fn new(stock: Stock, out: &mut Vec<Output>) -> InstalledRegistry {
        let Stock { names, books, files, modules, closed } = stock;
        let mut registry = InstalledRegistry {
            state: State::Idle,
            entries: BTreeMap::new(),
            books: BTreeMap::new(),
            modules,
            queue: VecDeque::new(),
            saving: BTreeMap::new(),
            stale: BTreeSet::new(),
            files: files.into_iter().collect(),
            next_ticket: 1,
            spares: false,
            closed,
        };
        for (label, bytes) in names {
            let entry = Entry::read(&label, &bytes);
            match entry.and_then(|entry| entry.with_modules(&registry.modules)) {
                Ok(entry) => drop(registry.entries.insert(label, entry)),
                Err(why) => {
                    registry.spares = true;
                    let what = "is left out: its saved state is invalid";
                    let text = format!("the storelet '{label}' {what} ({why}); install it again");
                    out.push(Output::Tell(text));
                }
            }
        }
        for (label, bytes) in books {
            if let Ok(history) = RunHistory::read(&bytes)
                && registry.entries.contains_key(&label)
            {
                registry.books.insert(label, history);
            }
        }
        registry
    }

    /// Returns all entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Label, &Entry)> {
        self.entries.iter()
    }

    /// Returns the run histories.
    pub(crate) fn books(&self) -> impl Iterator<Item = (&Label, &RunHistory)> {
        self.books.iter()
    }

    /// Returns whether the bytes of a module are stored.
    pub(crate) fn has(&self, module: Hash) -> bool {
        self.modules.contains(&module)
    }

    /// Returns whether no write is outstanding.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.saving.is_empty()
    }

    /// Takes the stored processed files of a watch.
    pub(crate) fn take_files(&mut self, label: &Label) -> Option<Vec<u8>> {
        self.files.remove(label)
    }

    /// Returns the processed files of a watch that has stopped; it may start again.
    pub(crate) fn give_files(&mut self, label: &Label, bytes: Vec<u8>) {
        if self.entries.contains_key(label) {
            self.files.insert(label.clone(), bytes);
        }
    }

    /// Looks up the installed storelets of an order and combines them with it.
    ///
    /// # Errors
    /// The name that is missing, and those that exist.
    pub(crate) fn resolve(&self, run_spec: &RunSpec) -> Result<Vec<Stage>, String> {
        let stages = [run_spec].into_iter().chain(&run_spec.then);
        stages.map(|stage| self.stage(stage)).collect()
    }

    fn stage(&self, run_spec: &RunSpec) -> Result<Stage, String> {
        let Wanted::Standing(pick) = &run_spec.module else {
            unreachable!("only names are to be resolved")
        };
        let (called, plan) = self.plan(pick)?;
        let mut run_spec = RunSpec { then: Vec::new(), ..run_spec.clone() };
        run_spec.resolve(&plan.run_spec);
        Ok(Stage { called, run_spec })
    }

    /// Looks up an installed storelet: its name with version, and its installation.
    pub(crate) fn plan(&self, pick: &Pick) -> Result<(String, Plan), String> {
        let Some(entry) = self.entries.get(&pick.label) else {
            let why = format!("no storelet '{}' is installed here: {}", pick.label, self.known());
            return Err(why);
        };
        let number = pick.version.unwrap_or(entry.current);
        let Some(version) = entry.version(number) else {
            let there = entry.versions.iter().map(|it| it.version.to_string());
            let there = there.collect::<Vec<String>>().join(", ");
            let why = format!("'{}' has no version {number}; there are {there}", pick.label);
            return Err(why);
        };
        let plan = version.plan(&pick.label).expect("it was understood when it came here");
        Ok((format!("{}@{number}", pick.label), plan))
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.entries.keys().take(20).map(Label::as_str).collect();
        match names.is_empty() {
            true => "none is installed; 'upcall storelet install' installs one".to_string(),
            false => format!("there are {}", names.join(", ")),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Starts the next valid change.
    fn go_on(&mut self, out: &mut Vec<Output>) -> State {
        while let Some(filing) = self.queue.pop_front() {
            let install_session = filing.install_session;
            match self.change(*filing) {
                Ok((kind, changes)) => {
                    let ticket = self.ticket();
                    out.push(Output::Keep(ticket, changes));
                    return State::Keeping(ticket, install_session, Box::new(kind));
                }
                Err(filed) => out.push(Output::Filed(install_session, filed)),
            }
        }
        State::Idle
    }

    /// Computes a change: the new entry, and the items to store.
    fn change(&self, filing: Filing) -> Result<(Kind, Vec<Change>), Filed> {
        if let Some(why) = &self.closed {
            return Err(Filed::not("failed", why.clone()));
        }
        match filing.registry_change {
            RegistryChange::Install(plan) => {
                let by = By::of(&filing.caller);
                let by = by.ok_or_else(|| refuse("nobody in particular may install nothing"))?;
                let (module, sent) = filing.module.expect("an installed program has a module");
                self.install(&plan, (module, sent), by, filing.at)
            }
            RegistryChange::Use(label, version) => self.switch(label, version),
            RegistryChange::Remove(label) => self.remove(label),
        }
    }

    fn install(
        &self,
        plan: &Plan,
        (module, sent): (Hash, Option<Vec<u8>>),
        by: By,
        at: i64,
    ) -> Result<(Kind, Vec<Change>), Filed> {
        let label = plan.label.clone();
        let mut entry = self.entries.get(&label).cloned().unwrap_or_else(|| Entry::new(&label));
        if entry.versions.is_empty() && self.entries.len() >= NAMES_MAX {
            return Err(refuse(&format!("{NAMES_MAX} storelets are installed: remove one")));
        }
        if plan.text.len() > TEXT_MAX {
            return Err(refuse(&format!("its description is longer than {TEXT_MAX} bytes")));
        }
        let version = entry.install(plan, module, by, at);
        assert!(entry.versions.len() <= VERSIONS_MAX, "the oldest has gone");
        let mut changes = Vec::new();
        // Modules that were sent are stored again, in case the stored copy is unreadable.
        match sent {
            Some(bytes) => changes.push(Change { key: Key::Module(module), bytes: Some(bytes) }),
            None if self.has(module) => {}
            None => {
                return Err(Filed::not("unknown", "the server has no such module: send it".into()));
            }
        }
        if plan.on.is_none() {
            changes.push(Change { key: Key::Files(label.clone()), bytes: None });
        }
        changes.push(Change { key: Key::Name(label.clone()), bytes: Some(entry.bytes()) });
        let goes = self.unused(&label, Some(&entry));
        changes.extend(goes.iter().map(|hash| Change { key: Key::Module(*hash), bytes: None }));
        let filed = Filed::done("installed", &label, Some(version));
        Ok((Kind { label, entry: Some(entry), comes: Some(module), goes, filed }, changes))
    }

    fn switch(&self, label: Label, version: u32) -> Result<(Kind, Vec<Change>), Filed> {
        let pick = Pick { label: label.clone(), version: Some(version) };
        let known = self.plan(&pick);
        known.map_err(|why| Filed::not("unknown", why))?;
        let mut entry = self.entries[&label].clone();
        entry.current = version;
        let changes = vec![Change { key: Key::Name(label.clone()), bytes: Some(entry.bytes()) }];
        let filed = Filed::done("used", &label, Some(version));
        Ok((Kind { label, entry: Some(entry), comes: None, goes: Vec::new(), filed }, changes))
    }

    fn remove(&self, label: Label) -> Result<(Kind, Vec<Change>), Filed> {
        let pick = Pick { label: label.clone(), version: None };
        let known = self.plan(&pick);
        known.map_err(|why| Filed::not("unknown", why))?;
        let goes = self.unused(&label, None);
        let first =
            [Key::Name(label.clone()), Key::RunHistory(label.clone()), Key::Files(label.clone())];
        let keys = first.into_iter().chain(goes.iter().map(|hash| Key::Module(*hash)));
        let changes = keys.map(|key| Change { key, bytes: None }).collect();
        let filed = Filed::done("removed", &label, None);
        Ok((Kind { label, entry: None, comes: None, goes, filed }, changes))
    }

    /// Returns the modules that nothing refers to after this change.
    fn unused(&self, label: &Label, then: Option<&Entry>) -> Vec<Hash> {
        if self.spares {
            return Vec::new();
        }
        let others = self.entries.iter().filter(|(other, _)| *other != label);
        let used = others.map(|(_, entry)| entry).chain(then).flat_map(Entry::modules);
        let used: BTreeSet<Hash> = used.collect();
        self.modules.difference(&used).copied().collect()
    }

    /// Applies a durable change.
    fn settle(&mut self, kind: Kind) -> Filed {
        let Kind { label, entry, comes, goes, filed } = kind;
        match entry {
            Some(entry) => drop(self.entries.insert(label, entry)),
            None => {
                self.entries.remove(&label);
                self.books.remove(&label);
                self.files.remove(&label);
            }
        }
        self.modules.extend(comes);
        self.modules.retain(|hash| !goes.contains(hash));
        filed
    }

    fn ran(&mut self, label: Label, run: Run, cause: Cause, out: &mut Vec<Output>) {
        if !self.entries.contains_key(&label) {
            return;
        }
        let history = self.books.entry(label.clone()).or_default();
        history.add(run);
        match cause {
            Cause::Requested => return,
            Cause::Time(last, failures) => history.past = Some((last, failures)),
            Cause::File => {}
        }
        self.stale.insert(label);
        self.save_books(out);
    }

    /// Stores one updated run history at a time; further runs accumulate meanwhile.
    fn save_books(&mut self, out: &mut Vec<Output>) {
        if self.saving.values().any(Option::is_none) {
            return;
        }
        if let Some(label) = self.stale.pop_first()
            && let Some(history) = self.books.get(&label)
        {
            let change = Change { key: Key::RunHistory(label), bytes: Some(history.bytes()) };
            self.save(None, change, out);
        }
    }

    fn save(&mut self, whose: Option<Label>, change: Change, out: &mut Vec<Output>) {
        let ticket = self.ticket();
        self.saving.insert(ticket, whose);
        out.push(Output::Keep(ticket, vec![change]));
    }

    /// Stores the processed files of a watch, if the storelet is still installed.
    fn files(&mut self, label: Label, bytes: Vec<u8>, out: &mut Vec<Output>) {
        if !self.entries.contains_key(&label) {
            return out.push(Output::Saved(label));
        }
        let change = Change { key: Key::Files(label.clone()), bytes: Some(bytes) };
        self.save(Some(label), change, out);
    }
}

fn refuse(why: &str) -> Filed {
    Filed::not("refused", why.to_string())
}

impl Automaton for InstalledRegistry {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.state = match (state, input) {
            (State::Idle, Input::File(filing)) => {
                self.queue.push_back(filing);
                self.go_on(out)
            }
            (state @ State::Keeping(..), Input::File(filing)) => {
                self.queue.push_back(filing);
                state
            }
            // Discard results of a storelet that is being removed.
            (state, Input::Ran(label, ..)) if state.is_going(&label) => state,
            (state, Input::Files(label, _)) if state.is_going(&label) => {
                out.push(Output::Saved(label));
                state
            }
            (state, Input::Ran(label, run, cause)) => {
                self.ran(label, run, cause, out);
                state
            }
            (state, Input::Files(label, bytes)) => {
                self.files(label, bytes, out);
                state
            }
            (State::Keeping(ticket, install_session, kind), Input::Kept(kept))
                if kept.ticket == ticket =>
            {
                let filed = match kept.result {
                    Ok(()) => self.settle(*kind),
                    Err(why) => Filed::not("failed", format!("it could not be kept: {why}")),
                };
                out.push(Output::Filed(install_session, filed));
                self.go_on(out)
            }
            (state @ (State::Idle | State::Keeping(..)), Input::Kept(kept)) => {
                let whose = self.saving.remove(&kept.ticket).expect("it was requested");
                let lost = kept.result.err();
                let tell = |why| format!("cannot save the results of storelets: {why}");
                out.extend(lost.map(|why| Output::Tell(tell(why))));
                out.extend(whose.map(Output::Saved));
                self.save_books(out);
                state
            }
        };
    }

    fn check(&self) {
        let issued = self.saving.keys().all(|ticket| *ticket <= self.next_ticket);
        assert!(issued, "changes being stored have a ticket");
        if let State::Keeping(ticket, _, kind) = &self.state {
            assert!(*ticket <= self.next_ticket, "a change has a ticket of ours");
            assert!(!self.saving.contains_key(ticket), "a ticket is for one thing");
            let stays = |hash: &Hash| kind.entry.iter().all(|it| it.modules().all(|m| m != *hash));
            assert!(kind.goes.iter().all(stays), "modules in use are kept");
        }
        let install_sessions: BTreeSet<DomainId> =
            self.queue.iter().map(|filing| filing.install_session).collect();
        assert_eq!(install_sessions.len(), self.queue.len(), "an install session has one change");
        assert!(self.entries.len() <= NAMES_MAX);
        assert!(self.queue.is_empty() || matches!(self.state, State::Keeping(..)));
        let kept = |entry: &Entry| entry.modules().all(|hash| self.has(hash));
        assert!(self.entries.values().all(kept), "a module was thrown away that is needed");
        assert!(self.books.keys().all(|label| self.entries.contains_key(label)));
    }
}
