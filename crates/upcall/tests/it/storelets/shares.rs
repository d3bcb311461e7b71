//! Shares of one client, and its charges.

use super::guests::{self, Guest};
use super::{LONG, Lab};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::time::Instant;

#[test]
fn memory_is_given_to_as_many_as_there_is_for() {
    let lab = Lab::new(&["--storelet-memory", "100"]);
    let both = [0, 1].map(|_| lab.start(&["--memory", "40M", "--time", "2s"], &guests::SLEEP));
    lab.await_state("ready", 1);
    let lines = lab.await_state("running", 1);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for begun in both {
        let ran = begun.end();
        assert_eq!(ran.code, Some(137), "{ran:?}");
        assert!(ran.err.contains("its time is over"), "{ran:?}");
    }
    lab.await_none();
}

/// A wait of more than a second is shown with its cause.
#[test]
fn a_program_that_waits_for_memory_says_so() {
    let lab = Lab::new(&["--storelet-memory", "100"]);
    let first = lab.start(&["--memory", "40M", "--time", "1m"], &guests::SLEEP);
    lab.await_state("running", 1);
    let file = lab.file(&guests::SLEEP);
    let mut second = lab.command(&["--memory", "40M", "--time", "1ms", file.to_str().unwrap()]);
    let mut second = second.spawn().unwrap();
    let mut printed = BufReader::new(second.stderr.take().unwrap()).lines();
    let line = printed.next().unwrap().unwrap();
    assert!(line.contains("waits for memory"), "{line}");
    first.interrupt();
    drop(first);
    let rest: Vec<String> = printed.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("its time is over")), "{rest:?}");
    second.wait().unwrap();
}

#[test]
fn an_order_beyond_the_maxima_is_refused_with_the_flag_that_says_so() {
    let limits = ["--storelet-time-max", "5", "--storelet-cpu-max", "2"];
    let lab = Lab::new(&[&limits[..], &["--storelet-memory-max", "20"]].concat());
    for (option, value, printed) in [
        (
            "--time",
            "99999h",
            "time exceeds this server's maximum of 5s; reduce it, or start the server with a \
             larger --storelet-time-max",
        ),
        ("--cpu", "3s", "exceeds this server's maximum of 2s"),
        ("--memory", "750M", "exceeds this server's maximum of 20M"),
    ] {
        let ran = lab.run(&[option, value], &guests::EXIT);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(printed), "{ran:?}");
    }
    // Defaults are within the maxima: this one would sleep for an hour.
    let begun = Instant::now();
    let ran = lab.run(&[], &guests::SLEEP);
    assert!(ran.code == Some(137) && ran.err.contains("its time is over"), "{ran:?}");
    assert!((5..60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    // A request of exactly the maxima is accepted, in time or not.
    let ran = lab.run(&["--time", "5s", "--cpu", "2s", "--memory", "20M"], &guests::EXIT);
    assert_ne!(ran.code, Some(2), "{ran:?}");
}

/// Clients on the network are one user. One of them takes the maximum of a connection, and sleeps;
/// another one waits for more than is left.
#[test]
fn a_client_that_sleeps_with_all_it_may_have_stops_no_other() {
    let lab = Lab::new(&[]);
    let refused = lab.run(&["--memory", "750M", "--time", "1h"], &guests::SLEEP);
    assert!(refused.code == Some(2) && refused.err.contains("506M"), "{refused:?}");
    let sleeper = lab.start(&["--memory", "506M", "--time", "1h"], &guests::SLEEP);
    lab.await_state("running", 1);
    let waiter = lab.start(&["--memory", "500M", "--time", "1h"], &guests::SLEEP);
    lab.await_state("ready", 1);
    let begun = Instant::now();
    // More than may pass a waiting one when the ends of others are unknown.
    for number in 0..110 {
        let options: &[&str] = if number % 10 == 0 { &[] } else { &["--memory", "8M"] };
        let ran = lab.run(options, &guests::EXIT);
        assert_eq!(ran.code, Some(7), "{number}: {ran:?}");
    }
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    let lines = lab.running();
    assert_eq!(lines.len(), 2, "{lines:?}");
    drop(sleeper);
    lab.await_state("running", 1);
    drop(waiter);
    lab.await_none();
}

/// Returns the CPU time of a server's threads that run storelets, ns.
fn workers_time(lab: &Lab) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", lab.server.pid())).unwrap();
    let time = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap();
        let times = std::fs::read_to_string(path.join("schedstat")).unwrap();
        let time = times.split(' ').next().unwrap().parse::<u64>().unwrap();
        if name.starts_with("worker") { time } else { 0 }
    };
    tasks.map(time).sum()
}

/// The cost of one equals its charge, including turns and system calls between its slices.
#[test]
fn a_program_that_gives_way_all_the_time_is_charged_what_it_costs() {
    let lab = Lab::new(&[]);
    let measure = |guest: &Guest| -> (u64, u64) {
        let before = workers_time(&lab);
        // Storelets have the lowest priority.
        let ran = lab.run(&["--json", "--cpu", "1s", "--time", "10m"], guest);
        let cost = workers_time(&lab) - before;
        let line = ran.err.lines().find(|line| line.starts_with('{')).unwrap();
        let report: Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["reason"], "its processor time is used up", "{report}");
        (report["cpu_ns"].as_u64().unwrap() + report["served_ns"].as_u64().unwrap(), cost)
    };
    for guest in [&guests::SPIN, &guests::YIELD] {
        let (charged, cost) = measure(guest);
        let part = charged as f64 / cost as f64;
        println!("{}: charged {charged} of {cost} ns: {part:.3}", guest.name);
        // On a busy machine the thread also polls whether it may continue.
        assert!((0.85..1.05).contains(&part), "{}: {charged} of {cost} ns", guest.name);
    }
}
