#![allow(clippy::wildcard_enum_match_arm, reason = "tests name what they wait for")]

use super::batch::HEAD;
use super::*;
use crate::{Change, Geometry, Superblock, Table};
use base::drawing::Drawing;
use base::rng;
use expect_test::expect;

const LAYOUT: Geometry = Geometry { block: 512, blocks: 400, journal: 16, segment: 64 };

fn journal() -> Journal {
    let head = Position { block: 0, sequence: 1, chain: 9 };
    Journal::new(&LAYOUT.layout().unwrap(), 9, 2, 0, head)
}

fn append(byte: u8, waiter: Option<u64>, flush: bool) -> Input {
    let change = Change::Put { table: Table(256), key: vec![byte], value: vec![byte; 20] };
    let record = record::encode(&[], &[change]);
    Input::Append { record, waiter: waiter.map(Ticket), flush }
}

fn play(journal: &mut Journal, input: Input, out: &mut Vec<Output>) {
    journal.step(Instant(0), input, out);
    journal.check();
}

/// Returns a journal in a state reached by inputs.
fn at(name: &str) -> Journal {
    let (mut journal, mut out) = (journal(), Vec::new());
    let inputs: Vec<Input> = match name {
        "Idle" => vec![],
        "Idle, gathering" => vec![append(1, None, false)],
        "Writing" => vec![append(1, Some(1), false), Input::Tick],
        "Writing, gathering" => {
            vec![append(1, Some(1), false), Input::Tick, append(2, Some(2), false)]
        }
        "Flushing" => vec![append(1, Some(1), true), Input::Tick],
        _broken => vec![append(1, Some(1), false), Input::Tick, Input::Failed],
    };
    inputs.into_iter().for_each(|input| play(&mut journal, input, &mut out));
    journal
}

fn inputs() -> Vec<Input> {
    vec![
        append(3, Some(3), false),
        Input::Sync(Ticket(4)),
        Input::Seal(3),
        Input::Tick,
        Input::Flushed,
        Input::Written,
        Input::Failed,
    ]
}

#[test]
fn the_drawing_is_fresh() {
    let mut drawing = Drawing::default();
    let states = ["Idle", "Idle, gathering", "Flushing", "Writing", "Writing, gathering", "Broken"];
    for state in states {
        for input in inputs() {
            let name = |journal: &Journal| {
                let state = base::drawing::variant(&journal.state);
                let more = !journal.is_empty() && state != "Flushing";
                if more { format!("{state}, gathering") } else { state }
            };
            drawing.sample(at(state), input, name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/journal/states.md"));
}

#[test]
fn records_during_a_write_share_the_next() {
    let (mut journal, mut out) = (journal(), Vec::new());
    play(&mut journal, append(1, Some(1), false), &mut out);
    play(&mut journal, Input::Tick, &mut out);
    for number in 2..5 {
        play(&mut journal, append(number, Some(number.into()), false), &mut out);
    }
    play(&mut journal, Input::Sync(Ticket(9)), &mut out);
    play(&mut journal, Input::Written, &mut out);
    play(&mut journal, Input::Written, &mut out);
    let outputs: Vec<String> = out
        .iter()
        .map(|output| match output {
            Output::Write(at, blocks) => format!("write {} at {at}", blocks.len()),
            other => format!("{other:?}"),
        })
        .collect();
    expect![[r#"
        write 1 at 0
        Durable(Ticket(1))
        write 1 at 1
        Durable(Ticket(2))
        Durable(Ticket(3))
        Durable(Ticket(4))
        Durable(Ticket(9))"#]]
    .assert_eq(&outputs.join("\n"));
}

#[test]
fn a_transaction_that_nobody_waits_for_is_written_soon() {
    let (mut journal, mut out) = (journal(), Vec::new());
    play(&mut journal, append(1, None, false), &mut out);
    assert_eq!(journal.deadline(), Some(Instant(0) + SOON));
    play(&mut journal, Input::Tick, &mut out);
    assert_eq!(out, []);
    journal.step(Instant(0) + SOON, Input::Tick, &mut out);
    assert!(matches!(out[..], [Output::Write(0, _)]));
}

#[test]
fn the_bytes_of_a_batch() {
    let head = Head { volume: 1, sequence: 2, chain: 3, epoch: 4, records: 1 };
    let (blocks, chain) = batch::encode(&head, b"payload", 512);
    let mut golden = b"upcall\0J".to_vec();
    for word in [1u64, 2, 3] {
        golden.extend(word.to_le_bytes());
    }
    golden.extend([7, 0, 0, 0, 1, 0, 0, 0]);
    golden.extend(crate::sum::sum(b"payload").to_le_bytes());
    golden.extend(4u64.to_le_bytes());
    golden.extend(crate::sum::sum(&golden).to_le_bytes());
    golden.extend(b"payload");
    assert_eq!(blocks[0][..golden.len()], golden);
    assert_eq!(batch::decode(&blocks[0]), Some((head, &b"payload"[..], chain)));
}

#[test]
fn a_batch_does_not_depend_on_how_its_records_are_divided() {
    let head = Head { volume: 1, sequence: 2, chain: 3, epoch: 4, records: 3 };
    let payload: Vec<u8> = (0..2000_u32).map(|n| n as u8).collect();
    for length in [0, 1, 447, 448, 449, 960, 2000] {
        let (whole, chain) = batch::encode(&head, &payload[..length], 512);
        assert_eq!(whole.len() as u64, batch::blocks(length, 512));
        let bytes: Vec<u8> = whole.iter().flat_map(|block| block.to_vec()).collect();
        assert_eq!(bytes[HEAD..HEAD + length], payload[..length]);
        assert!(bytes[HEAD + length..].iter().all(|byte| *byte == 0), "padded with zeros");
        for part in [1, 7, 448, 512, 1999] {
            // Memory of earlier blocks must not show through.
            drop(Block::from_bytes(&[0xff; 512], 512));
            let mut encoder = Encoder::new(512);
            payload[..length].chunks(part).for_each(|record| encoder.push(record));
            assert_eq!(encoder.len(), length);
            assert_eq!(encoder.end(&head), (whole.clone(), chain), "{length} in parts of {part}");
        }
    }
}

#[test]
fn the_bytes_of_a_record() {
    let changes = [
        Change::Put { table: Table(258), key: b"k".to_vec(), value: b"v".to_vec() },
        Change::Cut { table: Table(1), object: 2, from: 3, to: 4 },
    ];
    let bytes = record::encode(&[crate::space::Run { at: 7, count: 2 }], &changes);
    let mut golden = vec![58, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
    golden.extend([1, 2, 1, 0, 0, 1, 0, 1, 0, 0, 0, b'k', b'v', 5, 1, 0, 0, 0]);
    for word in [2u64, 3, 4] {
        golden.extend(word.to_le_bytes());
    }
    assert_eq!(bytes, golden);
    let decoded = record::decode_all(&bytes).unwrap();
    assert_eq!(decoded[0].changes, changes);
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut rng = rng::seeded(8);
    let changes = [
        Change::Put { table: Table(258), key: b"key".to_vec(), value: b"value".to_vec() },
        Change::Delete { table: Table(1), key: b"key".to_vec() },
        Change::Write { table: Table(1), object: 2, offset: 3, data: vec![4; 5] },
        Change::Attach {
            table: Table(1),
            object: 2,
            offset: 512,
            extent: crate::Extent { at: 3, birth: 4, sums: vec![5, 6] },
        },
        Change::Free { at: 1, count: 2 },
    ];
    let whole = record::encode(&[], &changes);
    assert_eq!(record::decode_all(&whole).unwrap()[0].changes, changes);
    for _ in 0..50_000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(0..=bytes.len()));
        let _ = record::decode_all(&bytes);
        let _ = batch::decode(&bytes);
    }
}

/// Every waiter is notified exactly once, in order, and the batches written can be followed again,
/// through any number of rounds of the ring.
#[test]
fn the_ring_goes_round_and_can_be_followed() {
    let layout = LAYOUT.layout().unwrap();
    let mut rng = rng::seeded(7);
    let (mut journal, mut out) = (journal(), Vec::new());
    let mut ring = vec![0; 16 * 512];
    let mut superblock = Superblock {
        volume: 9,
        epoch: 1,
        layout,
        created: base::Time::default(),
        map: 0,
        index_sum: 0,
        root: crate::page::Ptr::default(),
        tail: Position { block: 0, sequence: 1, chain: 9 },
    };
    let (mut reported, mut requested, mut since) = (0, 0, 0);
    for _ in 0..5000 {
        let change =
            Change::Put { table: Table(1), key: vec![1], value: vec![2; rng.usize(0..1500)] };
        let record = record::encode(&[], &[change]);
        if journal.has_room(record.len()) && rng.bool() {
            requested += 1;
            since += 1;
            let waiter = Some(Ticket(requested));
            play(&mut journal, Input::Append { record, waiter, flush: false }, &mut out);
        }
        play(&mut journal, Input::Tick, &mut out);
        if !journal.has_room(2000) && journal.is_quiet() {
            play(&mut journal, Input::Seal(3), &mut out);
            (superblock.tail, since) = (journal.head(), 0);
            journal.release(journal.written());
        }
        let mut writes = 0;
        for output in std::mem::take(&mut out) {
            match output {
                Output::Write(at, blocks) => {
                    writes += 1;
                    for (at, block) in (at as usize..).zip(blocks) {
                        ring[at * 512..(at + 1) * 512].copy_from_slice(&block);
                    }
                }
                Output::Durable(ticket) => {
                    reported += 1;
                    assert_eq!(ticket.0, reported);
                }
                other => panic!("{other:?}"),
            }
        }
        (0..writes).for_each(|_| play(&mut journal, Input::Written, &mut out));
        let (mut place, mut found) = (superblock.tail, 0);
        while let Some((at, head, payload, sum)) = batch::follow(&superblock, &ring, place) {
            found += head.records;
            let blocks = batch::blocks(payload.len(), 512);
            let block = (at + blocks) % 16;
            place = Position { block, sequence: place.sequence + 1, chain: sum };
        }
        let gathered = journal.gathering.records;
        let under_way: u32 =
            out.iter().map(|output| u32::from(matches!(output, Output::Write(..)))).sum();
        assert!(found + gathered + 20 * under_way >= since, "{found} of {since}");
    }
    assert!(reported > 500, "{reported}");
}
