//! Install sessions and the registry.

use super::history::Run;
use super::install::{self, InstallSession};
use super::registry::{Cause, Filed, Filing, Input, InstalledRegistry, Output};
use super::registry_change::RegistryChange;
use super::{Change, Kept, Key, Stock};
use crate::compile::Fresh;
use crate::crossing::DomainId;
use crate::maxima::Maxima;
use crate::report::Report;
use crate::run_spec::{Pick, RunSpec};
use base::drawing::Drawing;
use base::{Automaton as _, Buf, Caller, Instant, User};
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::RequestId;
use wasi::{Hash, Refused};

const ID: RequestId = RequestId(1);

#[test]
fn states_md_is_fresh() {
    let fresh = Fresh::idle();
    let write = |text: &'static [u8]| install::Input::Write(ID, Buf::from(text));
    let begin: [(&str, &[&[u8]], bool); 7] = [
        ("Received", &[], false),
        ("Filling", &[b"name a\nmodule 2\n\nx"], false),
        ("Compiling", &[b"name a\nmodule 2\n\nab"], false),
        ("Filing", &[b"remove a\n\n"], false),
        ("Reported", &[b"nonsense\n\n"], false),
        ("Leaving", &[b"remove a\n\n"], true),
        ("Over", &[], true),
    ];
    let filed = || Filed::not("failed", "the disk is full".to_string());
    let inputs: [(&str, &dyn Fn() -> install::Input); 12] = [
        ("Write(some)", &|| write(b"n")),
        ("Write(all)", &|| write(b"name a\nmodule 2\n\nab")),
        ("Write(change)", &|| write(b"use a@1\n\n")),
        ("Write(nonsense)", &|| write(b"nonsense\n\n")),
        ("Read", &|| install::Input::Read(ID, 10, 0)),
        ("Cancel", &|| install::Input::Cancel(ID)),
        ("Compiled(Ok)", &|| install::Input::Compiled(Ok(fresh.clone()))),
        ("Compiled(Err)", &|| install::Input::Compiled(Err(Refused::Unknown))),
        ("Filed", &|| install::Input::Filed(filed())),
        ("Late", &|| install::Input::Late),
        ("Gone", &|| install::Input::Gone),
        ("Write(rest)", &|| write(b"bc")),
    ];
    let mut drawing = Drawing::default();
    for (label, input) in inputs {
        for (state, emitted, gone) in begin {
            let (mut install_session, mut out) = (InstallSession::new(Maxima::NONE), Vec::new());
            emitted.iter().for_each(|text| install_session.step(Instant(0), write(text), &mut out));
            gone.then(|| install_session.step(Instant(0), install::Input::Gone, &mut out));
            assert_eq!(install_session.state_name(), state);
            drawing.sample_as(label, install_session, input(), InstallSession::state_name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/standing/install/states.md"));
}

fn caller() -> Caller {
    Caller::User(Arc::new(User { uid: 5, gid: 6, groups: vec![7], commands: true }))
}

/// A registry with a simulated state store.
struct Lab {
    registry: InstalledRegistry,
    disk: BTreeMap<Key, Vec<u8>>,
    install_session: u64,
}

impl Lab {
    /// Creates a registry from the contents of a disk.
    fn new(disk: BTreeMap<Key, Vec<u8>>) -> Lab {
        let mut notified = Vec::new();
        let registry = InstalledRegistry::new(stock(&disk), &mut notified);
        assert!(notified.is_empty(), "{notified:?}");
        Lab { registry, disk, install_session: 0 }
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.registry.step(Instant(0), input, &mut out);
        self.registry.check();
        out
    }

    fn change(&mut self, text: &str, module: Option<u8>) -> Vec<Output> {
        self.install_session += 1;
        let registry_change =
            RegistryChange::parse(text.as_bytes(), &Maxima::NONE).expect("it makes sense");
        let module = module.map(|byte| (Hash([byte; 32]), Some(vec![byte])));
        let (install_session, caller) = (DomainId(self.install_session), caller());
        let filing = Filing { install_session, registry_change, module, caller, at: 1000 };
        self.step(Input::File(Box::new(filing)))
    }

    /// Performs or fails the writes; returns the results reported.
    fn keep(&mut self, requested: Vec<Output>, works: bool) -> Vec<Filed> {
        let mut notified = Vec::new();
        for output in requested {
            match output {
                Output::Keep(ticket, changes) if works => {
                    apply(&mut self.disk, changes);
                    let next = self.step(Input::Kept(Kept { ticket, result: Ok(()) }));
                    notified.extend(self.keep(next, works));
                }
                Output::Keep(ticket, _) => {
                    let result = Err("the disk is full".to_string());
                    let next = self.step(Input::Kept(Kept { ticket, result }));
                    notified.extend(self.keep(next, works));
                }
                Output::Filed(_, filed) => notified.push(filed),
                Output::Tell(_) | Output::Saved(_) => {}
            }
        }
        notified
    }

    /// Sends a request and makes its change durable.
    fn done(&mut self, text: &str, module: Option<u8>) -> Filed {
        let requested = self.change(text, module);
        let mut notified = self.keep(requested, true);
        assert_eq!(notified.len(), 1, "{notified:?}");
        notified.remove(0)
    }

    fn install(&mut self, module: u8) -> Option<u32> {
        self.done("name wc\nmodule 1\ncpu 1s", Some(module)).version
    }

    fn resolve(&self, run_spec: &str) -> Result<Vec<String>, String> {
        let stages = self.registry.resolve(&RunSpec::parse(run_spec.as_bytes()).expect("an order"));
        stages.map(|stages| stages.into_iter().map(|stage| stage.called).collect())
    }
}

fn apply(disk: &mut BTreeMap<Key, Vec<u8>>, changes: Vec<Change>) {
    for Change { key, bytes } in changes {
        match bytes {
            Some(bytes) => drop(disk.insert(key, bytes)),
            None => drop(disk.remove(&key)),
        }
    }
}

fn stock(disk: &BTreeMap<Key, Vec<u8>>) -> Stock {
    let mut stock = Stock::default();
    for (key, bytes) in disk {
        stock.take(key.clone(), bytes.clone());
    }
    stock
}

#[test]
fn versions_come_are_used_and_go() {
    let mut lab = Lab::new(BTreeMap::new());
    assert_eq!((lab.install(1), lab.install(2)), (Some(1), Some(2)));
    assert_eq!(lab.resolve("standing wc").expect("it is there"), ["wc@2"]);
    assert_eq!(lab.done("use wc@1", None).end, "used");
    let both = lab.resolve("standing wc\nstanding wc@2").expect("they are there");
    assert_eq!(both, ["wc@1", "wc@2"]);
    for module in 3..=10 {
        assert_eq!(lab.install(module), Some(u32::from(module)));
    }
    let why = lab.resolve("standing wc@2").expect_err("it has gone");
    assert!(why.contains("3, 4, 5"), "{why}");
    let modules = lab.disk.keys().filter(|key| matches!(key, Key::Module(_))).count();
    assert_eq!(modules, 8, "modules of versions that are gone are thrown away");
    assert_eq!(lab.done("use wc@2", None).end, "unknown");
    assert_eq!(lab.done("remove wc", None).end, "removed");
    assert!(lab.disk.is_empty(), "{:?}", lab.disk.keys());
    assert_eq!(lab.done("remove wc", None).end, "unknown");
}

/// From every state of the disk at a crash, the next server restores a registry that existed.
#[test]
fn a_crash_leaves_what_was_told_and_nothing_in_half() {
    let mut lab = Lab::new(BTreeMap::new());
    lab.install(1);
    let requested = lab.change("name wc\nmodule 1", Some(2));
    let [Output::Keep(_, changes)] = &requested[..] else { panic!("{requested:?}") };
    for count in 0..=changes.len() {
        let mut disk = lab.disk.clone();
        apply(&mut disk, changes[..count].to_vec());
        let after = Lab::new(disk);
        let now = after.resolve("standing wc").expect("it is there");
        assert_eq!(now, [if count < changes.len() { "wc@1" } else { "wc@2" }]);
    }
}

#[test]
fn storelets_that_were_not_saved_are_not_installed() {
    let mut lab = Lab::new(BTreeMap::new());
    let requested = lab.change("name wc\nmodule 1", Some(1));
    assert!(lab.resolve("standing wc").is_err(), "it is not durable yet");
    let notified = lab.keep(requested, false);
    assert!(
        notified[0].reason.as_ref().is_some_and(|why| why.contains("disk is full")),
        "{notified:?}"
    );
    assert!(lab.resolve("standing wc").is_err());
    // Concurrent requests are executed one after the other.
    let first = lab.change("name wc\nmodule 1", Some(1));
    assert!(lab.change("name wc\nmodule 1", Some(2)).is_empty());
    let versions: Vec<_> = lab.keep(first, true).iter().map(|filed| filed.version).collect();
    assert_eq!(versions, [Some(1), Some(2)]);
}

#[test]
fn invalid_entries_are_reported_and_left_alone() {
    let mut lab = Lab::new(BTreeMap::new());
    lab.install(1);
    lab.done("name other\nmodule 1", Some(2));
    let label: crate::run_spec::Label = "wc".parse().expect("a name");
    let good = lab.disk[&Key::Name(label.clone())].clone();
    let text = String::from_utf8(good.clone()).expect("JSON");
    let wrong = [
        b"{".to_vec(),
        text.replace("\"format\":1", "\"format\":9").into_bytes(),
        text.replace("\"current\":1", "\"current\":4").into_bytes(),
        text.replace("cpu 1s", "cpu 1q").into_bytes(),
        text.replace("\"name\":\"wc\"", "\"name\":\"../wc\"").into_bytes(),
        text.replace("0101", "0909").into_bytes(),
    ];
    for bytes in wrong {
        let mut disk = lab.disk.clone();
        disk.insert(Key::Name(label.clone()), bytes);
        let mut notified = Vec::new();
        let mut registry = InstalledRegistry::new(stock(&disk), &mut notified);
        assert!(
            matches!(&notified[..], [Output::Tell(text)] if text.contains("'wc'")),
            "{notified:?}"
        );
        assert!(registry.plan(&"other".parse::<Pick>().expect("a name")).is_ok());
        // Nothing of it is deleted.
        let (registry_change, module) =
            (RegistryChange::parse(b"remove other", &Maxima::NONE).expect("one"), None);
        let filing = Filing {
            install_session: DomainId(1),
            registry_change,
            module,
            caller: caller(),
            at: 0,
        };
        let mut out = Vec::new();
        registry.step(Instant(0), Input::File(Box::new(filing)), &mut out);
        let [Output::Keep(_, changes)] = &out[..] else { panic!("{out:?}") };
        assert!(!changes.iter().any(|change| matches!(change.key, Key::Module(_))), "{changes:?}");
    }
}

#[test]
fn the_last_runs_are_known_and_those_that_matter_survive() {
    let mut lab = Lab::new(BTreeMap::new());
    lab.install(1);
    let label: crate::run_spec::Label = "wc".parse().expect("a name");
    let report = Report::refused("no".to_string());
    for at in 0..40 {
        let run = Run::new((at, 1, "request /x"), &caller(), &report, b"hm\n");
        let requested = lab.step(Input::Ran(
            label.clone(),
            run,
            if at == 39 { Cause::Time(7, 2) } else { Cause::Requested },
        ));
        assert_eq!(requested.len(), usize::from(at == 39));
        lab.keep(requested, true);
    }
    let after = Lab::new(lab.disk.clone());
    let (_, history) = after.registry.books().next().expect("it was kept");
    assert_eq!(history.past, Some((7, 2)));
    assert_eq!((history.runs.len(), history.runs[0].at, history.runs[31].at), (32, 8, 39));
    let log = super::listing::log(&after.registry, &|uid| uid == Some(5));
    assert_eq!(String::from_utf8(log).expect("text").lines().count(), 1 + 2 * 32);
    assert_eq!(super::listing::utc(1_763_784_095), "2025-11-22T04:01:35Z");
    assert_eq!(super::listing::utc(951_827_696), "2000-02-29T12:34:56Z");
}
