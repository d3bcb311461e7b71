//! Listings of installed storelets and their run histories, as text and as JSON.

use super::history::Run;
use super::registry::InstalledRegistry;
use crate::run_spec::Label;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// State of the automatic runs of a storelet.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunState {
    /// Time of the next run, seconds since 1970; `null` during a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Option<i64>>,
    /// Number of failures since the last success.
    pub(crate) failures: u32,
    /// Numbers of files processed, pending, and given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<[usize; 3]>,
    /// Reason why the directory cannot be scanned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// Files given up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed: Vec<String>,
}

impl RunState {
    /// Returns the part that the reader may see: file names are visible only with permission.
    fn notified(&self, is_theirs: bool) -> RunState {
        match is_theirs {
            true => self.clone(),
            false => RunState { trouble: None, failed: Vec::new(), ..self.clone() },
        }
    }

    /// Returns a description.
    fn words(&self) -> String {
        let mut words = Vec::new();
        match self.next {
            Some(Some(next)) => words.push(format!("next {}", utc(next))),
            Some(None) => words.push("runs now".to_string()),
            None => {}
        }
        if self.failures > 0 {
            words.push(format!("failed {} times", self.failures));
        }
        if let Some([done, waiting, failed]) = self.files {
            words.push(format!("files: {done} done, {waiting} waiting, {failed} given up"));
        }
        words.extend(self.trouble.iter().map(|why| format!("cannot look: {why}")));
        words.extend(self.failed.iter().map(|path| format!("given up {}", plain(path))));
        words.join("; ")
    }
}

/// Permission check: whether the reader may see data of this user; `None`: of the server.
pub(crate) type May<'a> = &'a dyn Fn(Option<u32>) -> bool;

/// Returns the lines of an order; the environment may contain secrets.
fn lines_for(run_spec: &str, is_theirs: bool) -> Vec<&str> {
    run_spec.lines().filter(|line| is_theirs || !line.starts_with("env ")).collect()
}

/// Lists installed storelets, one line each, and another one for automatic runs.
pub(crate) fn installed(
    registry: &InstalledRegistry,
    doings: &BTreeMap<Label, RunState>,
    may: May<'_>,
) -> Vec<u8> {
    let mut text = "name                 version kept user  last    program\n".to_string();
    for (label, entry) in registry.entries() {
        let Some(current) = entry.current() else { continue };
        let history = registry.books().find(|(other, _)| *other == label);
        let last = history.and_then(|(_, history)| history.runs.iter().rfind(|run| may(run.uid)));
        let last = last.map_or("-".to_string(), ended);
        let (version, kept, user) = (current.version, entry.versions.len(), current.by.uid);
        let program = lines_for(&current.run_spec, may(Some(current.by.uid))).join(", ");
        let module = &current.module[..12];
        let _ = writeln!(
            text,
            "{label:<20} {version:<7} {kept:<4} {user:<5} {last:<7} {module} {program}"
        );
        if let Some(doing) = doings.get(label) {
            let doing = doing.notified(may(Some(current.by.uid)));
            let _ = writeln!(text, "    {}", doing.words());
        }
    }
    text.into_bytes()
}

/// Lists installed storelets as JSON.
pub(crate) fn installed_json(
    registry: &InstalledRegistry,
    doings: &BTreeMap<Label, RunState>,
    may: May<'_>,
) -> Vec<u8> {
    let all = registry.entries().map(|(label, entry)| {
        let is_theirs = entry.current().is_some_and(|version| may(Some(version.by.uid)));
        let history = registry.books().find(|(other, _)| *other == label);
        let versions = entry.versions.iter().map(|version| {
            json!({
                "version": version.version,
                "module": version.module,
                "order": lines_for(&version.run_spec, may(Some(version.by.uid))),
                "uid": version.by.uid,
                "installed": version.at / 1_000_000_000,
            })
        });
        json!({
            "name": label.as_str(),
            "current": entry.current,
            "versions": versions.collect::<Vec<Value>>(),
            "last": history.and_then(|(_, history)| history.runs.iter().rfind(|run| may(run.uid))),
            "doing": doings.get(label).map(|doing| doing.notified(is_theirs)),
        })
    });
    lines(&Value::Array(all.collect()))
}

/// Lists the runs that the reader may see, one line each.
pub(crate) fn log(registry: &InstalledRegistry, may: May<'_>) -> Vec<u8> {
    let mut text =
        "date                 storelet             user   end     cpu-ms why\n".to_string();
    for (label, history) in registry.books() {
        for run in history.runs.iter().filter(|run| may(run.uid)) {
            let user = run.uid.map_or("server".to_string(), |uid| uid.to_string());
            let (name, ms) = (format!("{label}@{}", run.version), run.cpu_ns as f64 / 1e6);
            let (date, end, trigger) = (utc(run.at), ended(run), plain(&run.trigger));
            let reason = run.reason.iter().map(|why| format!("; {}", plain(why)));
            let fuel = match run.fuel {
                0 => String::new(),
                fuel => format!("; {fuel} of fuel"),
            };
            let more: String = reason.chain([fuel]).collect();
            let _ =
                writeln!(text, "{date} {name:<20} {user:<6} {end:<7} {ms:<6.1} {trigger}{more}");
            run.complaint.lines().for_each(|line| {
                let _ = writeln!(text, "    {}", plain(line));
            });
        }
    }
    text.into_bytes()
}

/// Lists the runs as JSON.
pub(crate) fn log_json(registry: &InstalledRegistry, may: May<'_>) -> Vec<u8> {
    let runs = registry.books().flat_map(|(label, history)| {
        let theirs = history.runs.iter().filter(|run| may(run.uid));
        theirs.map(|run| json!({ "name": label.as_str(), "run": run }))
    });
    lines(&Value::Array(runs.collect()))
}

/// Returns the outcome of a run in a word.
fn ended(run: &Run) -> String {
    match (run.end.as_str(), run.exit) {
        ("exit", Some(code)) => format!("exit {code}"),
        (end, _) => end.to_string(),
    }
}

/// Replaces control characters of untrusted text.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn lines(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("texts and numbers");
    text.push(b'\n');
    text
}

/// Formats a date as `2026-11-22T04:01:35Z`.
pub(crate) fn utc(secs: i64) -> String {
    let (days, of_day) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days to a date, after Howard Hinnant's `civil_from_days`: years begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let moon = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * moon + 2) / 5 + 1, if moon < 10 { moon + 3 } else { moon - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
