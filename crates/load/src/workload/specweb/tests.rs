//! File sets and their requests.

use super::*;
use crate::simulated::{Instantly, Queueing, run};
use crate::workload::Arrival;
use crate::workload::users::Think;
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn the_set_grows_with_the_load() {
    let of = |year, load| FileSet::of_load(year, load).directories();
    assert_eq!([0.0, 5.0, 500.0, 2000.0].map(|load| of(Year::Y96, load)), [1, 10, 100, 200]);
    assert_eq!([0.0, 100.0, 1000.0].map(|load| of(Year::Y99, load)), [25, 90, 680]);
    assert_eq!(of(Year::Y99, f64::INFINITY), DIRECTORIES_MAX);
    assert_eq!(of(Year::Y96, f64::NAN), 1);
}

#[test]
fn files_have_the_paths_and_sizes_of_their_numbers() {
    let set = FileSet::new(Year::Y99, 3);
    let files: Vec<File> = set.files().collect();
    assert_eq!((files.len(), set.count()), (108, 108));
    let shows = |number: usize| format!("{} {}", files[number].path, files[number].size);
    assert_eq!(shows(0), "dir00000/class0_0 102");
    assert_eq!(shows(36 + 9), "dir00001/class1_0 1024");
    assert_eq!(shows(107), "dir00002/class3_8 921600");
    assert_eq!(files.iter().map(|file| u64::from(file.size)).sum::<u64>(), set.bytes());
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths.len(), 108);
    assert!((0..).zip(&files).all(|(number, file)| file.number == number));
    assert_eq!(files.iter().map(|file| file.size).max(), Some(IO_MAX));
}

fn shares(year: Year) -> (Vec<f64>, Vec<f64>) {
    let set = FileSet::new(year, 100);
    let life = Lifetime { count: 200_000, ..Lifetime::default() };
    let pace = Pace::Open(Arrival::Poisson { rate: 100_000.0 });
    let records = run(vec![set.filament(pace, 3, life)], &mut Instantly).records;
    let files: Vec<File> = set.files().collect();
    let (mut classes, mut directories) = (vec![0.0; 4], vec![0.0; 100]);
    for record in &records {
        let io = record.io;
        assert_eq!((io.kind, io.offset), (Kind::Read, 0));
        assert_eq!(io.len, files[io.file as usize].size);
        classes[(io.file % FILES / SIZES) as usize] += 1.0 / 200_000.0;
        directories[(io.file / FILES) as usize] += 1.0 / 200_000.0;
    }
    (classes, directories)
}

#[test]
fn classes_and_directories_have_their_shares() {
    for year in [Year::Y96, Year::Y99] {
        let (classes, directories) = shares(year);
        for (found, percent) in classes.iter().zip(CLASSES) {
            assert!((found - percent / 100.0).abs() < 0.005, "{classes:?}");
        }
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [0, 1, 9, 99] {
            let expected = match year {
                Year::Y96 => 0.01,
                Year::Y99 => 1.0 / (rank + 1) as f64 / harmonic,
            };
            let found = directories[rank];
            let slack = 4.0 * (expected / 200_000.0).sqrt();
            assert!((found - expected).abs() < slack, "{year:?} {rank}: {found} {expected}");
        }
    }
}

#[test]
fn within_a_class_the_middle_is_the_most_popular() {
    for year in [Year::Y96, Year::Y99] {
        let weights = popularity(year);
        let most = weights.iter().fold(0.0_f64, |most, weight| most.max(*weight));
        assert!(weights[4] >= most * 0.999 && weights[0] < most / 4.0 && weights[8] < most / 4.0);
    }
}

#[test]
fn connections_ask_one_after_the_other() {
    let pace = Pace::Closed { count: 4, think: Think::Not };
    let life = Lifetime { end: Duration::from_secs(1), ..Lifetime::default() };
    let mut device = Queueing::new(8, Duration::from_millis(1), Duration::ZERO);
    let filament = FileSet::new(Year::Y96, 10).filament(pace, 3, life);
    let records = run(vec![filament], &mut device).records;
    assert_eq!(records.len(), 4000);
}
