//! Corrupt workload files: parsing and starting them never panics, and memory stays bounded.

use super::Workload;
use super::tests::EXAMPLES;
use crate::Event;
use base::Instant;

/// Meaningful words, and extreme numbers.
const WORDS: [&str; 36] = [
    "0",
    "1",
    "-1",
    "1e308",
    "nan",
    "inf",
    "18446744073709551615",
    "9223372036854775807",
    "\"4KiB\"",
    "\"1TiB\"",
    "\"1ns\"",
    "\"99h\"",
    "{}",
    "[]",
    "\"\"",
    "true",
    "2020-01-01",
    "\"uniform\"",
    "\"sequential\"",
    "{ zipf = 1 }",
    "{ zipf = 10 }",
    "{ stride = 1 }",
    "{ min = 1, max = 9, step = 0 }",
    "{ read = 1, sync = 1, remove = 1 }",
    "{ hyper = { share = 0, factor = 1 } }",
    "{ on = \"1us\", off = \"99h\" }",
    "\nrate = 1e9\n",
    "\nusers = 1000\n",
    "\ncount = 18446744073709551615\n",
    "\nalign = 1\n",
    "\nfiles = 16777216\n",
    "\n[[spc1]]\nbsus = 3\n",
    "\n[[postmark]]\n",
    "\n[[stream]]\n",
    "\nspan = 1\n",
    "\nfrom = 9223372036854775807\n",
];

fn garble(text: &str, random: &mut fastrand::Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len());
        let end = (at + random.usize(..12)).min(bytes.len());
        match random.u32(..7) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.insert(at, random.u8(..)),
            2 => bytes.extend_from_within(at..end),
            3 => drop(bytes.splice(at..at, random.choice(WORDS).unwrap_or("").bytes())),
            // Changes of values are the most productive.
            _ => value(&mut bytes, at, random),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Replaces the value after the next equals sign.
fn value(bytes: &mut Vec<u8>, at: usize, random: &mut fastrand::Rng) {
    let Some(equals) = bytes[at..].iter().position(|byte| *byte == b'=') else {
        return;
    };
    let begin = at + equals + 1;
    let long = bytes[begin..].iter().position(|byte| *byte == b'\n' || *byte == b',');
    let end = long.map_or(bytes.len(), |long| begin + long);
    let word = random.choice(WORDS).expect("there are words");
    drop(bytes.splice(begin..end, format!(" {word}").into_bytes()));
}

/// Every file is rejected, or its filaments start.
#[test]
fn whatever_a_workload_file_says() {
    let mut random = fastrand::Rng::with_seed(0x10ad);
    let (mut good, mut ran) = (0, 0);
    for round in 0..8000 {
        let text = garble(EXAMPLES[round % EXAMPLES.len()], &mut random);
        let Ok(workload) = Workload::parse(&text) else {
            continue;
        };
        good += 1;
        let _ = (workload.wants(), workload.describe(), workload.replays());
        assert!(workload.names().len() <= super::PARTS_MAX);
        let span = [0, 4096, 1 << 30, 4 << 30, 1 << 50, u64::MAX][random.usize(..6)];
        let Ok(filaments) = workload.filaments(span) else {
            continue;
        };
        ran += 1;
        for mut filament in filaments {
            let mut out = Vec::new();
            filament.step(Instant::default(), Event::Started, &mut out);
            assert!(out.len() <= 1_000_001, "{} requests of {text}", out.len());
            for second in [1, 2, 1000] {
                out.clear();
                let now = Instant(second * 1_000_000_000);
                filament.step(now, Event::Timer(0), &mut out);
                assert!(out.len() <= 10_000, "{} requests of {text}", out.len());
            }
        }
    }
    assert!(good > 500 && ran > 200, "{good} {ran}");
}
