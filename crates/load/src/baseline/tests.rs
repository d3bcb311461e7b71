use super::*;
use crate::Kind;
use crate::driver::{Blocking, Null, Opened};
use std::fs::File;

fn trace(count: u64) -> Vec<Traced> {
    let io = |index| Io { kind: Kind::Read, file: 0, offset: index * 4096, len: 4096 };
    let traced = |index| Traced { at_ns: index * 50_000, io: io(index), ..Traced::default() };
    (0..count).map(traced).collect()
}

fn replay(target: &dyn Target, scheme: Scheme, options: &Options) -> (Vec<Record>, RunMetadata) {
    let mut records = Vec::new();
    let metadata = run(target, &trace(200), scheme, options, &mut |batches, _| {
        batches.iter().for_each(|batch| records.extend(&batch.records));
    });
    (records, metadata.expect("it runs"))
}

#[test]
fn every_io_is_issued_once_and_not_before_its_time() {
    let zero = File::open("/dev/zero").expect("it is everywhere");
    let (files, name) = (vec![zero], "zero".to_string());
    let target = Blocking(Opened { files, name, io_max: 4096, aside_from: None });
    for scheme in Scheme::ALL {
        let (mut records, metadata) = replay(&target, scheme, &Options::default());
        assert!(records.is_sorted_by_key(|record| record.completed_ns), "{scheme:?}");
        assert!(records.iter().all(|r| r.scheduled_ns <= r.issued_ns), "{scheme:?}");
        assert!(records.iter().all(|record| record.outcome == Outcome::Done(4096)));
        records.sort_by_key(|record| record.scheduled_ns);
        let offsets: Vec<u64> = records.iter().map(|record| record.io.offset / 4096).collect();
        assert_eq!(offsets, (0..200).collect::<Vec<u64>>(), "{scheme:?}");
        assert_eq!((metadata.stopped, metadata.workers), (None, scheme.threads()));
    }
}

#[test]
fn a_run_that_is_stopped_ends_and_says_so() {
    let options = Options::default();
    options.stop.store(true, Ordering::Relaxed);
    for scheme in Scheme::ALL {
        let (records, metadata) = replay(&Null, scheme, &options);
        assert!(records.len() == 200 || metadata.stopped.is_some(), "{scheme:?}");
    }
}
