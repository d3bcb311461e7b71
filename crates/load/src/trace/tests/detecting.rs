//! Format detection.

use super::super::{blkparse, detect, hfplayer, mqsim, msr, recording, spc};
use super::*;
use crate::{Outcome, Record, records};
use expect_test::expect;
use std::path::Path;

/// Returns a small trace of each format.
pub(in super::super) fn samples() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::BlktraceBinary, blktrace(false)),
        (Format::BlktraceBinary, blktrace(true)),
        (Format::BlkparseText, BLKPARSE.into()),
        (Format::Iolog2, IOLOG2.into()),
        (Format::Iolog3, IOLOG3.into()),
        (Format::Msr, MSR.into()),
        (Format::Spc, SPC.into()),
        (Format::Vscsi, vscsi(1)),
        (Format::Vscsi, vscsi(2)),
        (Format::Mqsim, MQSIM.into()),
        (Format::Hfplayer, HFPLAYER.into()),
        (Format::Recording, recordings::sample()),
        (Format::Run, run()),
    ]
}

/// Returns records of a run, with a skipped I/O.
pub(super) fn run() -> Vec<u8> {
    let record = |issued_ns, outcome| Record {
        issued_ns,
        completed_ns: issued_ns + 700,
        io: Io { kind: Kind::Write, file: 3, offset: 4096, len: 512 },
        outcome,
        filament: 2,
        ..Record::default()
    };
    let records = [
        record(2000, Outcome::Done(512)),
        record(1500, Outcome::Failed(5)),
        record(1800, Outcome::Skipped),
    ];
    let mut writer = records::Writer::new(Vec::new(), 1).expect("memory takes all");
    writer.add(&records).expect("memory takes all");
    writer.finish().expect("memory takes all")
}

#[test]
fn by_content() {
    for (format, bytes) in samples() {
        assert_eq!(detect(&bytes, Path::new("t.spc")), Ok(format));
    }
    let lines = [BLKPARSE, MSR, SPC, MQSIM, HFPLAYER].map(|text| {
        let line = text.lines().next().expect("it has one").trim().as_bytes();
        let fits = [blkparse::fits, msr::fits, spc::fits, mqsim::fits, hfplayer::fits];
        fits.map(|fits| fits(line)).into_iter().filter(|fits| *fits).count()
    });
    assert_eq!(lines, [1; 5], "a line is of one format only");
    assert!(recordings::sample().starts_with(recording::HEADER));
}

#[test]
fn by_name_and_not_at_all() {
    let printed = |bytes: &[u8], name: &str| match detect(bytes, Path::new(name)) {
        Ok(format) => format!("{name}: {format}\n"),
        Err(error) => format!("{error}\n"),
    };
    let found = [
        printed(b"what", "Financial1.spc"),
        printed(b"what", "a.csv"),
        printed(b"\x1f\x8b\x08", "web_0.csv.gz"),
        printed(b"", "empty.spc"),
    ];
    expect![[r#"
        Financial1.spc: spc
        a.csv: no known format begins with "what"; tried recording, records, blktrace, iolog2,
            iolog3, hfplayer, vscsi, msr, spc, mqsim, blkparse. Name the format with --format
            FORMAT
        web_0.csv.gz: the file is compressed; decompress it with `zcat` first; tried recording,
            records, blktrace, iolog2, iolog3, hfplayer, vscsi, msr, spc, mqsim, blkparse. Name the
            format with --format FORMAT
        empty.spc: the file is empty; tried recording, records, blktrace, iolog2, iolog3,
            hfplayer, vscsi, msr, spc, mqsim, blkparse. Name the format with --format FORMAT
    "#]]
    .assert_eq(&folded(&found.concat()));
    let unknown = "pcap".parse::<Format>().expect_err("there is none");
    expect![[r#"
        there is no format "pcap"; there are recording, records, blktrace, iolog2, iolog3,
            hfplayer, vscsi, msr, spc, mqsim, blkparse
    "#]]
    .assert_eq(&folded(&unknown));
}
