//! Recordings: written, truncated, damaged, appended to, converted and anonymized.

use super::super::{
    Converted, Files, Plan, Write, anonymize, convert, iolog, msr, recording, writer,
};
use super::*;
use expect_test::expect;

/// Returns a small recording: two runs of a server, with names of several slots.
pub(in super::super) fn sample() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = recording::Writer::new();
    writer.start(1_000_000, &mut out);
    let long = "/srv/a b/longer than one slot";
    for (number, name) in [(7, long), (9, ""), (3, "/srv/b")] {
        writer.name(number, name, &mut out);
    }
    let io = Io { kind: Kind::Write, file: 7, offset: 1 << 40, len: 4096 };
    let record = Traced { at_ns: 500, took_ns: Some(70), io, stream: 3 };
    writer.record(&record, &mut out);
    let io = Io { kind: Kind::Sync, file: 3, offset: 0, len: 0 };
    writer.record(&Traced { at_ns: 450, took_ns: None, io, stream: 4 }, &mut out);
    let mut again = recording::Writer::append();
    again.start(2_000_000, &mut out);
    again.name(0, "/srv/b", &mut out);
    let io = Io { kind: Kind::Create, file: 0, offset: 0, len: u32::MAX };
    again.record(&Traced { at_ns: 8, took_ns: Some(9), io, stream: u32::MAX }, &mut out);
    out
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    expect![[r#"
        recording
        0 +? sync 0:0+0 by 4
        50 +70 write 1:1099511627776+4096 by 3
        999558 +9 create 0:0+4294967295 by 4294967295
        /srv/b /srv/a b/longer than one slot
    "#]]
    .assert_eq(&drawn(&sample(), Options::default()));
}

#[test]
fn the_bytes_of_a_recording_stay_what_they_are() {
    let bytes = sample();
    let hex = |slot: &[u8]| slot.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let slots: Vec<_> = bytes.chunks(recording::SLOT).map(hex).collect();
    expect![[r#"
        757063616c6c207265636f7264696e6720310a20202020202020202020202020202020202020200a
        40420f00000000000000000000000000000000000000000000000000000000000000000081006477
        0700000000001d002f7372762f6120622f6c6f6e676572207468616e206f6e6520736c6f8000c59e
        0700000001001d00740000000000000000000000000000000000000000000000000000008000b87f
        09000000000000000000000000000000000000000000000000000000000000000000000080000ca5
        03000000000006002f7372762f62000000000000000000000000000000000000000000008000bbf3
        f4010000000000004600000000000000000000000001000000100000070000000300000001001438
        c201000000000000ffffffffffffffff00000000000000000000000003000000040000000200d7a2
        80841e0000000000000000000000000000000000000000000000000000000000000000008100d0a4
        00000000000006002f7372762f620000000000000000000000000000000000000000000080008557
        080000000000000009000000000000000000000000000000ffffffff00000000ffffffff04004309"#]]
    .assert_eq(&slots.join("\n"));
}

#[test]
fn a_recording_cut_anywhere_gives_what_is_before_the_cut() {
    let whole = sample();
    let all = records(&whole).len();
    for end in 0..whole.len() {
        let format = Some(Format::Recording).filter(|_| end < recording::SLOT);
        let mut reader = reader(&whole[..end], format).expect("a cut header is one, too");
        let count = reader.by_ref().filter(|record| record.is_ok()).count();
        assert!(count <= all);
        assert_eq!(reader.notes().cut_bytes, (end % recording::SLOT) as u64);
    }
}

#[test]
fn a_damaged_slot_costs_only_itself() {
    let mut bytes = sample();
    let begin = 6 * recording::SLOT;
    bytes[begin + 3] ^= 1;
    bytes[2 * recording::SLOT..3 * recording::SLOT].fill(0);
    expect![[r#"
        recording
        0 +? sync 0:0+0 by 4
        999558 +9 create 0:0+4294967295 by 4294967295
        /srv/b
        Notes { late: 0, skipped: 0, unmatched: 0, damaged: 2, cut_bytes: 0 }
    "#]]
    .assert_eq(&drawn(&bytes, Options::default()));
}

fn converted(bytes: &[u8], mut writer: impl Write) -> (Vec<u8>, Converted) {
    let mut out = Vec::new();
    let mut reader = reader(bytes, None).expect("its format is known");
    let converted = convert(&mut reader, &mut writer, &mut out).expect("it has no error");
    (out, converted)
}

#[test]
fn msr_to_a_recording_and_back() {
    let (recorded, _) = converted(MSR.as_bytes(), recording::Writer::new());
    assert_eq!(records(&recorded), records(MSR.as_bytes()));
    let (text, printed) = converted(&recorded, msr::Writer::new());
    assert_eq!(printed, Converted { written: 3, left_out: 0 });
    assert_eq!(records(&text), records(MSR.as_bytes()));
    expect![[r#"
        128166372000000000,hm,0,Read,383496192,32768,413
        128166372000000061,usr,0,Read,0,512,0
        128166372000000071,hm,1,Write,8192,4096,100
    "#]]
    .assert_eq(&String::from_utf8_lossy(&text));
}

#[test]
fn a_part_of_a_trace_is_written_in_any_format_that_is_written() {
    let plan = Plan { skip: 1, files: Files::One { file: 0, apart: 0 }, ..Plan::default() };
    let mut found = String::new();
    for format in [Format::Msr, Format::Iolog3, Format::Spc] {
        let mut reader = reader(MSR.as_bytes(), None).expect("its format is known");
        let mut out = Vec::new();
        let printed = writer(format)
            .and_then(|mut writer| convert(&mut plan.of(&mut reader), &mut writer, &mut out));
        match printed {
            Ok(_) => found += &String::from_utf8_lossy(&out),
            Err(error) => found += &format!("{error}\n"),
        }
    }
    expect![[r#"
        128166372000000000,file0,0,Read,0,512,0
        128166372000000010,file0,0,Write,8192,4096,100
        fio version 3 iolog
        0 file0 add
        0 file0 open
        0 file0 read 0 512
        1 file0 write 8192 4096
        spc is read only; iolog3, msr and recording are written
    "#]]
    .assert_eq(&found);
}

#[test]
fn an_iolog_is_written_as_fio_reads_it() {
    let (text, printed) = converted(&sample(), iolog::Writer::new());
    expect![[r#"
        fio version 3 iolog
        0 /srv/b add
        0 /srv/b open
        0 /srv/b sync 0 0
        0 /srv/a%20b/longer%20than%20one%20slot add
        0 /srv/a%20b/longer%20than%20one%20slot open
        0 /srv/a%20b/longer%20than%20one%20slot write 1099511627776 4096
        Converted { written: 2, left_out: 1 }"#]]
    .assert_eq(&format!("{}{printed:?}", String::from_utf8_lossy(&text)));
    let (again, _) = converted(IOLOG3.as_bytes(), iolog::Writer::new());
    assert_eq!(records(&again), records(IOLOG3.as_bytes()));
}

#[test]
fn an_anonymous_recording_has_the_same_times_and_places() {
    let mut reader = reader(&sample(), None).expect("its format is known");
    let mut out = Vec::new();
    anonymize(&mut reader, &mut out, 1).expect("it has no error");
    assert!(!out.windows(4).any(|part| part == b"/srv"));
    expect![[r#"
        recording
        0 +? sync 0:0+0 by 0
        50 +70 write 1:1099511627776+4096 by 1
        999558 +9 create 0:0+4294967295 by 2
        /6c9ff01f91431ec8/99009138a3452320 /6c9ff01f91431ec8/a7282d32b59616e3/8a82c32682202800
    "#]]
    .assert_eq(&drawn(&out, Options::default()));
}
