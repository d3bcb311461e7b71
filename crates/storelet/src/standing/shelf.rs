//! The shelf: all that is installed, and what came of its last runs.
//!
//! One thing after the other is changed, and each is kept before it counts: who was told that
//! something is installed finds it there after any crash.

use super::book::{Book, Run};
use super::deed::{Deed, Plan};
use super::entry::{By, Entry, VERSIONS_MAX};
use super::{Change, Kept, Key, Stock};
use crate::compile::Hash;
use crate::crossing::DomainId;
use crate::domain::Stage;
use crate::order::{Label, Order, Pick, Wanted};
use base::{Automaton, Caller, Instant};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most names.
const NAMES_MAX: usize = 256;

/// The longest text about a storelet, bytes.
const TEXT_MAX: usize = 16 << 10;

/// What is to be changed, at which desk that was said, and by whom.
#[derive(Debug)]
pub(crate) struct Filing {
    pub(crate) desk: DomainId,
    pub(crate) deed: Deed,
    /// Of what is to be installed: its module, and the bytes of that if they were sent.
    pub(crate) module: Option<(Hash, Option<Vec<u8>>)>,
    pub(crate) caller: Caller,
    /// When, ns since 1970.
    pub(crate) at: i64,
}

/// What came of it, for those at the desk.
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

    /// Nothing came of it: why.
    pub(crate) fn not(end: &'static str, why: String) -> Filed {
        Filed { end, name: None, version: None, reason: Some(why) }
    }
}

/// Why a storelet has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Somebody asked for it.
    Asked,
    /// It was time; when that was, ns since 1970, and how often it has failed since it did not.
    Time(i64, u32),
    /// A file was new.
    File,
}

/// What can happen to the shelf.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something is to be changed.
    File(Box<Filing>),
    /// It is kept, or not.
    Kept(Kept),
    /// A storelet has run. If nobody had asked for it, that is to survive a crash.
    Ran(Label, Run, Cause),
    /// For which files one has run.
    Files(Label, Vec<u8>),
}

/// What the shelf can ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Make this durable; [`Input::Kept`] follows.
    Keep(u64, Vec<Change>),
    /// What came of what was said at a desk.
    Filed(DomainId, Filed),
    /// For which files one has run is kept, or cannot be.
    Saved(Label),
    /// The operator may want to know.
    Tell(String),
}

/// What it waits for.
#[derive(Debug)]
enum State {
    /// For something to change.
    Idle,
    /// For that to be kept, under this ticket.
    Keeping(u64, DomainId, Box<Kind>),
}

impl State {
    /// Whether this one is being removed.
    fn is_going(&self, label: &Label) -> bool {
        match self {
            State::Keeping(_, _, kind) => kind.entry.is_none() && kind.label == *label,
            State::Idle => false,
        }
    }
}

/// A change that is being kept.
#[derive(Debug)]
struct Kind {
    label: Label,
    /// What is there then; `None`: nothing.
    entry: Option<Entry>,
    /// A module that is there then, and those that are not.
    comes: Option<Hash>,
    goes: Vec<Hash>,
    filed: Filed,
}

/// The shelf automaton.
#[derive(Debug)]
pub(crate) struct Shelf {
    state: State,
    entries: BTreeMap<Label, Entry>,
    books: BTreeMap<Label, Book>,
    modules: BTreeSet<Hash>,
    /// What is to be changed next. At most one for each desk.
    queue: VecDeque<Box<Filing>>,
    /// Books that are being kept, and for which files one has run.
    saving: BTreeMap<u64, Option<Label>>,
    /// Books in which more is written than is kept.
    stale: BTreeSet<Label>,
    /// For which files they had run when the server began, or looked last, until somebody wants to
    /// know.
    files: BTreeMap<Label, Vec<u8>>,
    next_ticket: u64,
    /// Something was left out: its modules are not thrown away.
    spares: bool,
    closed: Option<String>,
}

impl Shelf {
    /// A shelf with what was kept. What makes no sense is told, and left alone.
    pub(crate) fn new(stock: Stock, out: &mut Vec<Output>) -> Shelf {
        let Stock { names, books, files, modules, closed } = stock;
        let mut shelf = Shelf {
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
            match entry.and_then(|entry| entry.with_modules(&shelf.modules)) {
                Ok(entry) => drop(shelf.entries.insert(label, entry)),
                Err(why) => {
                    shelf.spares = true;
                    let what = "is left out: what was kept of it makes no sense";
                    let text = format!("the storelet '{label}' {what} ({why}); install it again");
                    out.push(Output::Tell(text));
                }
            }
        }
        for (label, bytes) in books {
            if let Ok(book) = Book::read(&bytes)
                && shelf.entries.contains_key(&label)
            {
                shelf.books.insert(label, book);
            }
        }
        shelf
    }

    /// All that is installed.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Label, &Entry)> {
        self.entries.iter()
    }

    /// What came of the last runs of each.
    pub(crate) fn books(&self) -> impl Iterator<Item = (&Label, &Book)> {
        self.books.iter()
    }

    /// Whether the bytes of a module are kept.
    pub(crate) fn has(&self, module: Hash) -> bool {
        self.modules.contains(&module)
    }

    /// Whether nothing is being kept.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle) && self.saving.is_empty()
    }

    /// For which files one had run when the server began; the first who asks is told.
    pub(crate) fn take_files(&mut self, label: &Label) -> Option<Vec<u8>> {
        self.files.remove(label)
    }

    /// For which files one has run that does not look for files any more; it may do so again.
    pub(crate) fn give_files(&mut self, label: &Label, bytes: Vec<u8>) {
        if self.entries.contains_key(label) {
            self.files.insert(label.clone(), bytes);
        }
    }

    /// What is installed under the names of an order, to be run as that says.
    ///
    /// # Errors
    /// Which of them is not there, and what is.
    pub(crate) fn resolve(&self, order: &Order) -> Result<Vec<Stage>, String> {
        let stages = [order].into_iter().chain(&order.then);
        stages.map(|stage| self.stage(stage)).collect()
    }

    fn stage(&self, order: &Order) -> Result<Stage, String> {
        let Wanted::Standing(pick) = &order.module else {
            unreachable!("only names are to be resolved")
        };
        let (called, plan) = self.plan(pick)?;
        let mut order = Order { then: Vec::new(), ..order.clone() };
        order.resolve(&plan.order);
        Ok(Stage { called, order })
    }

    /// What is installed under a name, and what that version is called.
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
            true => "there is none; 'upcall storelet install' installs one".to_string(),
            false => format!("there are {}", names.join(", ")),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Begins with the next change that can be made.
    fn go_on(&mut self, out: &mut Vec<Output>) -> State {
        while let Some(filing) = self.queue.pop_front() {
            let desk = filing.desk;
            match self.change(*filing) {
                Ok((kind, changes)) => {
                    let ticket = self.ticket();
                    out.push(Output::Keep(ticket, changes));
                    return State::Keeping(ticket, desk, Box::new(kind));
                }
                Err(filed) => out.push(Output::Filed(desk, filed)),
            }
        }
        State::Idle
    }

    /// What a deed comes to, and what has to be kept for it.
    fn change(&self, filing: Filing) -> Result<(Kind, Vec<Change>), Filed> {
        if let Some(why) = &self.closed {
            return Err(Filed::not("failed", why.clone()));
        }
        match filing.deed {
            Deed::Install(plan) => {
                let by = By::of(&filing.caller);
                let by = by.ok_or_else(|| refuse("nobody in particular may install nothing"))?;
                let (module, sent) = filing.module.expect("what is installed has a module");
                self.install(&plan, (module, sent), by, filing.at)
            }
            Deed::Use(label, version) => self.switch(label, version),
            Deed::Remove(label) => self.remove(label),
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
            return Err(refuse(&format!("what is said of it is longer than {TEXT_MAX} bytes")));
        }
        let version = entry.install(plan, module, by, at);
        assert!(entry.versions.len() <= VERSIONS_MAX, "the oldest has gone");
        let mut changes = Vec::new();
        // What was sent is kept anew: what is kept may have become unreadable.
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
        let first = [Key::Name(label.clone()), Key::Book(label.clone()), Key::Files(label.clone())];
        let keys = first.into_iter().chain(goes.iter().map(|hash| Key::Module(*hash)));
        let changes = keys.map(|key| Change { key, bytes: None }).collect();
        let filed = Filed::done("removed", &label, None);
        Ok((Kind { label, entry: None, comes: None, goes, filed }, changes))
    }

    /// The modules that nobody needs any more when this is what is installed under a name.
    fn unused(&self, label: &Label, then: Option<&Entry>) -> Vec<Hash> {
        if self.spares {
            return Vec::new();
        }
        let others = self.entries.iter().filter(|(other, _)| *other != label);
        let used = others.map(|(_, entry)| entry).chain(then).flat_map(Entry::modules);
        let used: BTreeSet<Hash> = used.collect();
        self.modules.difference(&used).copied().collect()
    }

    /// A change is durable: it counts from now on.
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
        let book = self.books.entry(label.clone()).or_default();
        book.add(run);
        match cause {
            Cause::Asked => return,
            Cause::Time(last, failures) => book.past = Some((last, failures)),
            Cause::File => {}
        }
        self.stale.insert(label);
        self.save_books(out);
    }

    /// Keeps the book of one that has run, one at a time: meanwhile more is written in it.
    fn save_books(&mut self, out: &mut Vec<Output>) {
        if self.saving.values().any(Option::is_none) {
            return;
        }
        if let Some(label) = self.stale.pop_first()
            && let Some(book) = self.books.get(&label)
        {
            let change = Change { key: Key::Book(label), bytes: Some(book.bytes()) };
            self.save(None, change, out);
        }
    }

    fn save(&mut self, whose: Option<Label>, change: Change, out: &mut Vec<Output>) {
        let ticket = self.ticket();
        self.saving.insert(ticket, whose);
        out.push(Output::Keep(ticket, vec![change]));
    }

    /// Keeps for which files one has run, if it is still installed.
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

impl Automaton for Shelf {
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
            // What comes of one that is being removed goes with it.
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
            (State::Keeping(ticket, desk, kind), Input::Kept(kept)) if kept.ticket == ticket => {
                let filed = match kept.result {
                    Ok(()) => self.settle(*kind),
                    Err(why) => Filed::not("failed", format!("it could not be kept: {why}")),
                };
                out.push(Output::Filed(desk, filed));
                self.go_on(out)
            }
            (state @ (State::Idle | State::Keeping(..)), Input::Kept(kept)) => {
                let whose = self.saving.remove(&kept.ticket).expect("it was asked for");
                let lost = kept.result.err();
                let tell = |why| format!("what came of storelets is not kept: {why}");
                out.extend(lost.map(|why| Output::Tell(tell(why))));
                out.extend(whose.map(Output::Saved));
                self.save_books(out);
                state
            }
        };
    }

    fn check(&self) {
        let issued = self.saving.keys().all(|ticket| *ticket <= self.next_ticket);
        assert!(issued, "what is being kept has a ticket of ours");
        if let State::Keeping(ticket, _, kind) = &self.state {
            assert!(*ticket <= self.next_ticket, "a change has a ticket of ours");
            assert!(!self.saving.contains_key(ticket), "a ticket is for one thing");
            let stays = |hash: &Hash| kind.entry.iter().all(|it| it.modules().all(|m| m != *hash));
            assert!(kind.goes.iter().all(stays), "what is needed does not go");
        }
        let desks: BTreeSet<DomainId> = self.queue.iter().map(|filing| filing.desk).collect();
        assert_eq!(desks.len(), self.queue.len(), "a desk says one thing");
        assert!(self.entries.len() <= NAMES_MAX);
        assert!(self.queue.is_empty() || matches!(self.state, State::Keeping(..)));
        let kept = |entry: &Entry| entry.modules().all(|hash| self.has(hash));
        assert!(self.entries.values().all(kept), "a module was thrown away that is needed");
        assert!(self.books.keys().all(|label| self.entries.contains_key(label)));
    }
}
