//! Workload files in virtual time, and their error messages.

use super::*;
use crate::simulated::{Queueing, run};
use crate::{Outcome, Record};
use expect_test::{ExpectFile, expect_file};

const TARGET: u64 = 4 << 30;

pub(super) const EXAMPLES: [&str; 4] = [
    include_str!("../../../workloads/oltp.toml"),
    include_str!("../../../workloads/web.toml"),
    include_str!("../../../workloads/mail.toml"),
    include_str!("../../../workloads/mixed.toml"),
];

fn records(workload: &Workload) -> Vec<Record> {
    let mut device = Queueing::new(64, Duration::from_micros(200), Duration::from_nanos(500));
    run(workload.filaments(TARGET).expect("it fits"), &mut device).records
}

/// Returns the I/Os per second of each filament, from its first I/O to the end of the run.
fn rates(workload: &Workload, records: &[Record]) -> Vec<String> {
    let seconds = workload.run.seconds.expect("it says so").as_secs_f64();
    let names = workload.names();
    let rate = |filament: usize| {
        let count = records.iter().filter(|r| r.filament as usize == filament).count();
        format!("{} {:.0}/s", names[filament], count as f64 / seconds)
    };
    (0..names.len()).map(rate).collect()
}

fn example(number: usize, expected: ExpectFile) {
    let workload = Workload::parse(EXAMPLES[number]).expect("it is a workload");
    let wants = workload.wants();
    let records = records(&workload);
    let set: Vec<File> = workload.files().collect();
    for record in &records {
        let io = record.io;
        assert!(io.len <= wants.io_max && io.file < wants.files && wants.kinds.contains(&io.kind));
        assert!(matches!(record.outcome, Outcome::Done(_)));
        if let Some(file) = set.iter().find(|file| file.number == io.file) {
            assert_eq!(file.size, io.len);
        } else {
            assert!(io.offset + u64::from(io.len) <= TARGET);
        }
    }
    let rates = rates(&workload, &records).join(", ");
    expected.assert_eq(&format!("{}\n{rates}\n{wants:#?}\n", workload.describe()));
}

#[test]
fn oltp() {
    example(0, expect_file!["tests/oltp.txt"]);
}

#[test]
fn web() {
    example(1, expect_file!["tests/web.txt"]);
}

#[test]
fn mail() {
    example(2, expect_file!["tests/mail.txt"]);
}

#[test]
fn mixed() {
    example(3, expect_file!["tests/mixed.txt"]);
}

#[test]
fn the_same_file_gives_the_same_records() {
    let text = EXAMPLES[3].replace("seconds = 20", "seconds = 2");
    let of = |text: &str| records(&Workload::parse(text).expect("it is a workload"));
    assert_eq!(of(&text), of(&text));
    assert_ne!(of(&text), of(&text.replace("seed = 4", "seed = 5")));
}

#[test]
fn sets_and_pools_have_numbers_of_their_own() {
    let text = "[run]\nseconds = 1\n[[stream]]\nrate = 100\nfiles = 10\n[[postmark]]\nfiles = 5\n\
                [[specweb]]\nyear = 99\ndirectories = 2\nrate = 100\n";
    let workload = Workload::parse(text).expect("it is a workload");
    let files: Vec<File> = workload.files().collect();
    assert_eq!((files[0].number, files[71].number, workload.wants().files), (20, 91, 92));
    let records = records(&workload);
    for (filament, range) in [(0, 0..10), (1, 10..20), (2, 20..92)] {
        let mut own = records.iter().filter(|r| r.filament == filament).peekable();
        assert!(own.peek().is_some());
        assert!(own.all(|r| range.contains(&r.io.file)));
    }
}

#[test]
fn replays_are_described_for_whoever_opens_them() {
    let text = "[[replay]]\nname = \"r\"\ntrace = \"a.trace\"\nspeed = 4\nway = \"fast\"\n\
                depth = 8\nbegin = \"1s\"\ncount = 100\n";
    let workload = Workload::parse(text).expect("it is a workload");
    assert_eq!(workload.filaments(0).expect("none").len(), 0);
    assert_eq!((workload.wants().changes, workload.wants().rate), (true, None));
    let replays = workload.replays();
    let life = Lifetime { begin: Duration::from_secs(1), count: 100, ..Lifetime::default() };
    let (name, trace) = ("r".to_string(), "a.trace".into());
    assert_eq!(
        replays,
        [Replay { name, trace, speed: 4.0, way: ReplayMode::Fast, depth: 8, life }]
    );
}

#[test]
fn each_part_ends_when_it_says() {
    let text = "[run]\nseconds = 2\n[[stream]]\nrate = 1000\nbegin = \"0.5s\"\nseconds = 1\n\
                [[users]]\nusers = 3\nthink = \"1ms\"\nbegin = 1\n\
                [[sessions]]\nrate = 100\neach = 50\nthink = \"10ms\"\ncount = 7\n";
    let records = records(&Workload::parse(text).expect("it is a workload"));
    let of = |filament| records.iter().filter(move |r| r.filament == filament);
    assert_eq!(of(0).count(), 999, "the last one would be at its end");
    assert!(of(0).all(|r| (500_000_000..1_500_000_000).contains(&r.scheduled_ns)));
    assert!(of(1).all(|r| (1_000_000_000..2_000_000_000).contains(&r.scheduled_ns)));
    assert_eq!(of(2).count(), 350);
}

#[test]
fn rates_and_counts_have_units() {
    let with = |rate: &str, count: &str| {
        let text = format!("[[stream]]\nrate = {rate}\ncount = {count}\n");
        Workload::parse(&text).expect("it is a workload").describe()
    };
    assert_eq!(with("\"1.5k\"", "\"2k\""), with("1500.0", "2000"));
}

/// Returns the error message of each file.
fn printed(texts: &[&str]) -> String {
    let printed = texts.iter().map(|text| {
        let error = match Workload::parse(text) {
            Ok(workload) => workload.filaments(1 << 20).err(),
            Err(error) => Some(error),
        };
        error.map_or("nothing is wrong\n".to_string(), |error| format!("{error}\n"))
    });
    printed.collect()
}

#[test]
fn unknown_keys_are_refused() {
    expect_file!["tests/unknown.txt"].assert_eq(&printed(&[
        "",
        "[run",
        "[run]\nseconds = 1\ncolour = 3\n",
        "[[streams]]\nrate = 1\n",
        "[run]\nseconds = 1\n\n[[stream]]\nrate = 1000\nthink = \"5ms\"\n",
        "[run]\nseconds = 1\n[[stream]]\nname = \"a\"\n",
        "[run]\nseconds = 1\n[[stream]]\nrate = \"many\"\n",
        "[[stream]]\nrate = 1\nkinds = { read = 70, wirte = 30 }\n",
        "[[stream]]\nrate = 1\nplace = \"everywhere\"\n",
        "[[stream]]\nrate = 1\nplace = { zip = 1 }\n",
        "[[stream]]\nrate = 1\nplace = [{ place = \"uniform\", weight = 1, height = 2 }]\n",
        "[[stream]]\nrate = 1\narrival = \"sometimes\"\n",
        "[[stream]]\nrate = 1\narrival = { on = \"1ms\", of = \"1ms\" }\n",
        "[[replay]]\ntrace = \"a\"\nway = \"slow\"\n",
    ]));
}

#[test]
fn values_of_another_type_are_refused() {
    expect_file!["tests/types.txt"].assert_eq(&printed(&[
        "[run]\nseed = \"7\"\n",
        "[run]\nseed = -7\n",
        "[run]\ntarget = 7\n",
        "[run]\nseconds = [5]\n",
        "run = 7\n",
        "[stream]\nrate = 1\n",
        "[[users]]\nusers = \"8\"\n",
        "[[users]]\nusers = 5000000000\n",
        "[[users]]\nusers = 1\nfiles = { a = 1 }\n",
        "[[users]]\nusers = 1\nusers = 2\n",
        "[[stream]]\nrate = 1\nsize = true\n",
        "[[stream]]\nrate = 1\nkinds = \"read\"\n",
        "[[stream]]\nrate = 1\nplace = 7\n",
        "[[replay]]\ntrace = 7\n",
        "[[replay]]\ntrace = \"a\"\nspeed = \"twice\"\n",
        "[[specweb]]\nyear = 1999\nload = \"3\"\n",
    ]));
}

#[test]
fn impossible_values_are_refused() {
    expect_file!["tests/impossible.txt"].assert_eq(&printed(&[
        "seconds = 5\n",
        "[run]\nseconds = \"5 parsecs\"\n",
        "[run]\nseconds = 5\nwarm_up = 5\n[[stream]]\nrate = 1\n",
        "[[stream]]\nrate = 1\n",
        "[[stream]]\nrate = -1\ncount = 1\n",
        "[[stream]]\nrate = \"10x\"\ncount = 1\n",
        "[[stream]]\nrate = []\ncount = 1\n",
        "[[stream]]\nrate = 1\ncount = -1\n",
        "[[stream]]\nrate = 1\nsize = \"4kb\"\n",
        "[[stream]]\nrate = 1\nsize = 0\n",
        "[[stream]]\nrate = 1\nsize = {}\n",
        "[[stream]]\nrate = 1\nsize = { min = 5, max = 4 }\n",
        "[[stream]]\nrate = 1\nsize = { min = 5, \"4KiB\" = 4 }\n",
        "[[stream]]\nrate = 1\nkinds = { read = 0 }\n",
        "[[stream]]\nrate = 1\nkinds = { read = -1 }\n",
        "[[stream]]\nrate = 1\nplace = []\n",
        "[[stream]]\nrate = 1\narrival = { on = \"1ms\" }\n",
        "[[stream]]\nrate = 1\ncount = 1\narrival = { on = \"1us\", off = \"1us\" }\n",
        "[[users]]\nusers = 0\ncount = 1\n",
        "[[users]]\nusers = 1\ncount = 1\nthink = { normal = 3 }\n",
        "[[transactions]]\nbranches = 1\n",
        "[[transactions]]\nbranches = 1\nterminals = 1\nrate = 1\n",
        "[[specweb]]\nyear = 2009\nload = 3\n",
        "[[postmark]]\nfiles = 10\nusers = 11\n",
        "[[replay]]\ntrace = \"a\"\ndepth = 3\n",
    ]));
}

#[test]
fn parts_larger_than_the_target_are_refused() {
    expect_file!["tests/unfit.txt"].assert_eq(&printed(&[
        "[run]\nseconds = 1\n[[stream]]\nname = \"big\"\nrate = 1\nsize = \"2MiB\"\n",
        "[[stream]]\nrate = 1\ncount = 1\nfrom = \"2MiB\"\n",
        "[[stream]]\nrate = 1\ncount = 1\nfrom = \"512KiB\"\nspan = \"1MiB\"\n",
        "[[transactions]]\nbranches = 1\nterminals = 1\ncount = 1\n",
        "[[spc1]]\nbsus = 1\ncount = 1\n",
        "[[specweb]]\nyear = 1999\nload = 3\nrate = 1\ncount = 1\n",
    ]));
}
