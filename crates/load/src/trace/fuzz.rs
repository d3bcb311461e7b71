//! Corrupt traces: reading terminates, and records are in order.

use super::adapt::{Files, Fold, Ratio};
use super::tests::{reader, samples};
use super::{Dependence, Error, Format, Options, Plan, Reader, Summary, Traced};
use super::{anonymize, convert, iolog, msr};
use base::rng::{Rng, seeded};
use std::io::{Cursor, sink};

const RUNS: u64 = 4000;

/// Bytes with a meaning in some format.
const TELLING: &[u8] = b"0123456789,. \n\r+-#RWrwQDC_/\x00\x07\x80\x81\xff";

fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..=bytes.len());
        let to = (at + rng.usize(..48)).min(bytes.len());
        match rng.u8(..6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => bytes.insert(at, TELLING[rng.usize(..TELLING.len())]),
            3 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            4 => bytes.extend_from_within(at..to),
            _ => bytes[at..to].iter_mut().for_each(|byte| *byte = rng.u8(..)),
        }
    }
}

/// Returns a corrupt trace, and the format to read it in.
fn trace(rng: &mut Rng) -> (Vec<u8>, Option<Format>) {
    let samples = samples();
    let (format, mut bytes) = samples[rng.usize(..samples.len())].clone();
    for _ in 0..rng.usize(..3) {
        let more = bytes.clone();
        bytes.extend(more);
    }
    match rng.u8(..8) {
        0 => bytes = (0..rng.usize(..500)).map(|_| rng.u8(..)).collect(),
        1 => bytes = (0..rng.usize(..500)).map(|_| TELLING[rng.usize(..TELLING.len())]).collect(),
        2 => {}
        _ => spoil(rng, &mut bytes),
    }
    let other = Format::ALL[rng.usize(..Format::ALL.len())];
    (bytes, [None, Some(format), Some(other)][rng.usize(..3)])
}

/// Collects and checks all results of a reader; the last may be an error.
fn all(mut reader: Reader, most: usize) -> Vec<Result<Traced, Error>> {
    let mut items: Vec<Result<Traced, Error>> = Vec::new();
    while let Some(item) = reader.next() {
        assert!(items.len() <= most, "there are more records than bytes");
        match (items.last(), &item) {
            (Some(Err(error)), _) => panic!("something after {error}"),
            (Some(Ok(last)), Ok(record)) => assert!(last.at_ns <= record.at_ns, "out of order"),
            (None, Ok(record)) => assert_eq!(record.at_ns, 0, "the first is at 0"),
            (_, Err(error)) => assert!(!error.to_string().is_empty()),
        }
        if let Ok(record) = &item {
            assert!(usize::try_from(record.io.file).is_ok_and(|file| file < reader.names().len()));
        }
        items.push(item);
    }
    assert!(reader.next().is_none(), "the end is the end");
    items
}

fn plan(rng: &mut Rng) -> Plan {
    Plan {
        skip: rng.u64(..3),
        read_only: rng.bool(),
        len_max: Some(1 << 16),
        files: Files::One { file: 0, apart: rng.u64(..) },
        scale: Ratio::new(rng.u64(..), rng.u64(1..)).expect("it is not 0"),
        fold: Some(Fold { size: rng.u64(..1 << 40), block: rng.u64(..1 << 20) }),
        time: Ratio::new(rng.u64(..), rng.u64(1..)).expect("it is not 0"),
        ..Plan::default()
    }
}

fn run(seed: u64) {
    let mut rng = seeded(seed);
    let (bytes, format) = trace(&mut rng);
    let (window, pending) = (rng.usize(..9), rng.usize(..9));
    let options = Options { window, pending, ..Options::default() };
    let Ok(first) = Reader::from_read("t", Cursor::new(bytes.clone()), format, options) else {
        return;
    };
    let items = all(first, bytes.len());
    let good: Vec<_> = items.into_iter().filter(Result::is_ok).collect();
    for record in Dependence::default().of(good.clone().into_iter()).flatten() {
        assert!(record.parents.len() <= good.len());
    }
    let adapted: Vec<_> = plan(&mut rng).of(good.into_iter()).collect();
    Summary::of(adapted).expect("there is no error among them");
    let again = || reader(&bytes, format).expect("it could be read before");
    let _ = convert(&mut again(), &mut iolog::Writer::new(), &mut sink());
    let _ = convert(&mut again(), &mut msr::Writer::new(), &mut sink());
    let mut recorded = Vec::new();
    if let Ok(converted) = anonymize(&mut again(), &mut recorded, seed) {
        let records = reader(&recorded, None).expect("it is a recording");
        assert_eq!(records.count() as u64, converted.written, "seed {seed}");
    }
}

#[test]
fn whatever_a_trace_holds() {
    for seed in 0..RUNS {
        run(seed);
    }
}
