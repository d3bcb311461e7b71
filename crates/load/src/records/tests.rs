use super::*;

/// Returns a random record.
fn record(rng: &mut fastrand::Rng) -> Record {
    let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
    let outcome = match rng.u8(..3) {
        0 => Outcome::Done(rng.u32(..)),
        1 => Outcome::Failed(rng.u16(..)),
        _ => Outcome::Skipped,
    };
    Record {
        scheduled_ns: rng.u64(..),
        issued_ns: rng.u64(..),
        completed_ns: rng.u64(..),
        witnessed_ns: rng.bool().then(|| rng.u64(..u64::MAX)),
        io: Io { kind, file: rng.u32(..), offset: rng.u64(..), len: rng.u32(..) },
        outcome,
        cause: Cause::ALL[rng.usize(..Cause::ALL.len())],
        filament: rng.u32(..),
    }
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), 77).unwrap();
    records.chunks(100).for_each(|batch| writer.add(batch).unwrap());
    writer.finish().unwrap()
}

#[test]
fn written_values_round_trip() {
    let mut rng = fastrand::Rng::with_seed(1);
    for count in [0, 1, 1022, 1023, 1024, 5000] {
        let records: Vec<Record> = (0..count).map(|_| record(&mut rng)).collect();
        let file = file(&records);
        assert_eq!(file.len(), (count + 2) * BLOCK);
        let reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.start_unix_ns(), 77);
        let read: Vec<Record> = reader.map(Result::unwrap).collect();
        assert_eq!(read, records);
    }
}

#[test]
fn the_bytes_of_a_record_stay_what_they_are() {
    let io = Io { kind: Kind::Write, file: 2, offset: 0x0102_0304, len: 4096 };
    let record = Record {
        scheduled_ns: 1,
        issued_ns: 2,
        completed_ns: 3,
        witnessed_ns: None,
        io,
        outcome: Outcome::Failed(5),
        cause: Cause::Full,
        filament: 9,
    };
    let file = file(&[record]);
    let lines = file.chunks(16).map(|line| {
        line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ") + "\n"
    });
    let golden = expect_test::expect![[r#"
        75 70 63 61 6c 6c 72 63 01 00 40 00 00 00 00 00
        4d 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 aa 05 3b 3a
        01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
        03 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff
        04 03 02 01 00 00 00 00 00 10 00 00 02 00 00 00
        09 00 00 00 05 00 00 00 01 01 03 00 e4 e6 83 bf
        01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 ff 00 00 00 0b 45 03 ec
    "#]];
    golden.assert_eq(&lines.collect::<String>());
}

#[test]
fn a_file_that_is_cut_off_gives_its_whole_records_and_where_it_ends() {
    let mut rng = fastrand::Rng::with_seed(2);
    let records: Vec<Record> = (0..1500).map(|_| record(&mut rng)).collect();
    let file = file(&records);
    for cut in [64, 65, 128, 64 * 1024, 64 * 1024 + 63, file.len() - 64, file.len() - 1] {
        let mut read: Vec<_> = Reader::new(&file[..cut]).unwrap().collect();
        let last = read.pop().unwrap();
        assert!(matches!(last, Err(Error::Truncated { offset }) if offset == cut as u64));
        assert_eq!(read.len(), cut / BLOCK - 1);
    }
    assert!(matches!(Reader::new(&file[..63]), Err(Error::NotRecords)));
    assert!(matches!(Reader::new(&b""[..]), Err(Error::NotRecords)));
}

/// A change of any byte is reported with the offset of its block, and meaningless bytes never cause
/// a panic.
#[test]
fn damage_is_found_where_it_is() {
    let mut rng = fastrand::Rng::with_seed(3);
    let records: Vec<Record> = (0..300).map(|_| record(&mut rng)).collect();
    let whole = file(&records);
    for _ in 0..3_000 {
        let mut file = whole.clone();
        let at = rng.usize(..file.len());
        file[at] ^= 1 << rng.u8(..8);
        let block = (at / BLOCK * BLOCK) as u64;
        let Ok(reader) = Reader::new(&file[..]) else {
            assert_eq!(block, 0, "only a damaged header keeps the file from being opened");
            continue;
        };
        let last = reader.last().unwrap();
        assert!(matches!(last, Err(Error::Damaged { offset }) if offset == block), "{at}");
    }
    for _ in 0..2_000 {
        let mut noise: Vec<u8> = (0..rng.usize(..2_000)).map(|_| rng.u8(..)).collect();
        let head = rng.usize(..=whole.len().min(640)).min(noise.len());
        noise[..head].copy_from_slice(&whole[..head]);
        if let Ok(reader) = Reader::new(&noise[..]) {
            assert!(reader.last().is_some_and(|last| last.is_err()));
        }
    }
}
