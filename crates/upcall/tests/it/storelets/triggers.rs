//! Storelets that run without a request: at their time, and for new files.

use super::LONG;
use super::guests;
use super::standing::Shop;
use serde_json::Value;
use std::time::{Duration, Instant};

impl Shop {
    /// Returns the runs of a storelet: trigger and end of each.
    fn runs(&self, name: &str) -> Vec<(String, String)> {
        let ran = self.storelet(&["log", name, "--json"]);
        let all: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        let text = |it: &Value| it.as_str().unwrap_or_default().to_string();
        all.iter().map(|it| (text(&it["run"]["trigger"]), text(&it["run"]["end"]))).collect()
    }

    /// Waits for this number of runs.
    fn await_runs(&self, name: &str, count: usize) -> Vec<(String, String)> {
        let begun = Instant::now();
        loop {
            let runs = self.runs(name);
            if runs.len() >= count {
                return runs;
            }
            assert!(begun.elapsed() < LONG, "{count} runs: {runs:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the triggers of a storelet from the list.
    fn doing(&self, name: &str) -> Value {
        let ran = self.storelet(&["list", "--json"]);
        let all: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        all.iter().find(|it| it["name"] == name).unwrap()["doing"].clone()
    }

    /// Waits until the triggers satisfy a condition; returns them.
    fn await_doing(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let doing = self.doing(name);
            if fits(&doing) {
                return doing;
            }
            assert!(begun.elapsed() < LONG, "{doing}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a file of the state store satisfies a condition.
    fn await_stored(&self, file: &str, fits: impl Fn(&str) -> bool) {
        let path = self.state.path().join("kept").join(file);
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if fits(&text) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{file}: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::write(self.lab.served.path().join(path), text).unwrap();
    }
}

/// Long enough to detect unexpected events.
const LOOKS: Duration = Duration::from_secs(4);

#[test]
fn scheduled_runs_happen_on_time_and_once_after_a_pause() {
    let installed = Shop::new(&[]);
    installed.install("tick", &guests::CAT, &["--every", "1s"]);
    installed.install("fail", &guests::EXIT, &["--every", "1s"]);
    installed.install("night", &guests::CAT, &["--at", "03:00"]);
    let runs = installed.await_runs("tick", 3);
    assert!(runs.iter().all(|run| *run == ("schedule".into(), "exit".into())), "{runs:?}");
    // The interval grows after failures.
    let doing = installed.await_doing("fail", |doing| doing["failures"].as_u64() >= Some(2));
    assert!(doing["next"].as_u64().is_some(), "{doing}");
    assert!(installed.runs("fail").len() < 5);
    let next = installed.doing("night")["next"].as_i64().unwrap();
    assert_eq!(next.rem_euclid(86_400), 3 * 3600);
    assert!(installed.runs("night").is_empty());
    let ran = installed.storelet(&["list"]);
    assert!(ran.out.contains("    next 20") && ran.out.contains("failed "), "{ran:?}");
    // Its runs are remembered across a crash, and missed ones are made up for once.
    installed.install("slow", &guests::CAT, &["--every", "30s"]);
    let installed = installed.crash(&[]);
    assert!(installed.runs("tick").len() >= 3);
    assert!(installed.doing("fail")["failures"].as_u64() >= Some(2));
    assert!(installed.runs("slow").is_empty());
    installed.storelet(&["remove", "tick"]);
    std::thread::sleep(Duration::from_secs(2));
    let ran = installed.storelet(&["log", "tick", "--json"]);
    assert!(ran.code == Some(1) && ran.err.contains("no storelet 'tick'"), "{ran:?}");
    assert_eq!(installed.doing("slow")["failures"], 0);
}

#[test]
fn two_of_the_same_never_run_at_once_and_another_version_has_its_own_time() {
    let installed = Shop::new(&[]);
    installed.install("long", &guests::SLEEP, &["--every", "1s"]);
    installed.lab.await_client_state(&installed.socket(), "running", 1);
    std::thread::sleep(LOOKS);
    assert_eq!(installed.doing("long")["next"], Value::Null);
    assert!(installed.runs("long").is_empty());
    let running = || installed.lab.running_at(&installed.socket()).len();
    assert_eq!(running(), 1);
    // A running one continues; the version in use now does not run by itself.
    installed.install("long", &guests::EXIT, &[]);
    assert_eq!(installed.doing("long"), Value::Null);
    assert_eq!(running(), 1);
    assert_eq!(installed.lab.server.end(), Some(0), "the end of the server is its end too");
}

#[test]
fn each_new_file_is_run_for_once() {
    let installed = Shop::new(&[]);
    installed.put("sub/old", "old");
    // A file is new if its timestamp may be that of the installation: timestamps have the
    // resolution of the kernel's tick.
    std::thread::sleep(Duration::from_millis(50));
    installed.install("see", &guests::ARGS, &["--on", "/sub"]);
    installed.install("all", &guests::CAT, &["--on", "/sub", "--existing"]);
    std::fs::create_dir_all(installed.lab.served.path().join("sub/deep/er")).unwrap();
    installed.put("sub/a", "a");
    installed.put("sub/deep/er/b c", "b");
    let sorted = |mut runs: Vec<(String, String)>| {
        runs.sort();
        runs.into_iter().map(|(trigger, end)| format!("{trigger}: {end}")).collect::<Vec<_>>()
    };
    let new = ["file /sub/a: exit", "file /sub/deep/er/b c: exit"];
    assert_eq!(sorted(installed.await_runs("see", 2)), new);
    let all = sorted(installed.await_runs("all", 4));
    assert_eq!(all[2..], ["file /sub/old: exit", "file /sub/y: exit"]);
    // Its argument is the path: its output is that and its name.
    let ran = installed.storelet(&["log", "see", "--json"]);
    let runs: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let printed = |at: usize| runs[at]["run"]["output"].as_u64().unwrap() as usize;
    let mut lengths = [printed(0), printed(1)];
    lengths.sort_unstable();
    assert_eq!(lengths, ["see\0/sub/a\0".len(), "see\0/sub/deep/er/b c\0".len()]);
    let doing = installed.await_doing("see", |doing| doing["files"][1] == 0);
    assert_eq!(doing["files"], serde_json::json!([4, 0, 0]), "{doing}");
    // Once, even after a crash, when that is on the disk; and files added meanwhile are not missed.
    let paths = [r#""path":"sub/a""#, r#""path":"sub/deep/er/b%20c""#];
    installed.await_stored("files/see", |text| paths.iter().all(|path| text.contains(path)));
    let Shop { lab, state } = installed;
    std::fs::write(lab.served.path().join("sub/meanwhile"), "x").unwrap();
    let installed = Shop { lab, state }.crash(&[]);
    let runs = sorted(installed.await_runs("see", 3));
    assert_eq!(runs, [new[0], new[1], "file /sub/meanwhile: exit"]);
    std::thread::sleep(LOOKS);
    assert_eq!(installed.runs("see").len(), 3);
    // Another file of the same name is another file.
    installed.put("sub/a.tmp", "new");
    std::fs::rename(
        installed.lab.served.path().join("sub/a.tmp"),
        installed.lab.served.path().join("sub/a"),
    )
    .unwrap();
    assert_eq!(installed.await_runs("see", 4)[3].0, "file /sub/a");
}

#[test]
fn a_file_that_cannot_be_done_is_given_up_and_named() {
    let installed = Shop::new(&[]);
    installed.install("bad", &guests::TRAP, &["--on", "/sub"]);
    installed.put("sub/a", "a");
    let doing = installed.await_doing("bad", |doing| doing["files"][2] == 1);
    assert_eq!(doing["failed"], serde_json::json!(["/sub/a"]), "{doing}");
    let runs = installed.runs("bad");
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(runs.iter().all(|run| *run == ("file /sub/a".into(), "trap".into())), "{runs:?}");
    // Both are on the disk shortly after they are shown.
    installed.await_stored("files/bad", |text| text.contains(r#""failed":true"#));
    installed.await_stored("books/bad", |text| text.matches(r#""end":"trap""#).count() == 4);
    let installed = installed.crash(&[]);
    std::thread::sleep(LOOKS);
    assert_eq!(installed.runs("bad").len(), 4);
    // A missing directory is reported, and awaited.
    installed.install("far", &guests::CAT, &["--on", "/nowhere"]);
    let doing = installed.await_doing("far", |doing| !doing["trouble"].is_null());
    assert_eq!(doing["files"], serde_json::json!([0, 0, 0]), "{doing}");
}
