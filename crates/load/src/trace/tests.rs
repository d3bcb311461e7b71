//! Traces small enough to be read by eye.

mod adapting;
mod depending;
mod detecting;
mod errors;
mod formats;
mod recordings;

use super::{Error, Format, Notes, Options, Reader, Traced};
use crate::{Io, Kind};
use std::fmt::Write;
use std::io::Cursor;

pub(super) use detecting::samples;

/// Creates a reader of bytes in memory.
pub(super) fn reader(bytes: &[u8], format: Option<Format>) -> Result<Reader, Error> {
    Reader::from_read("t", Cursor::new(bytes.to_vec()), format, Options::default())
}

/// Returns all records of a valid trace.
fn records(bytes: &[u8]) -> Vec<Traced> {
    let reader = reader(bytes, None).expect("its format is known");
    reader.map(|record| record.expect("it has no error")).collect()
}

/// Formats the records of a trace, one a line, then its names, its notes if any, and its error.
fn drawn(bytes: &[u8], options: Options) -> String {
    let reader = Reader::from_read("t", Cursor::new(bytes.to_vec()), None, options);
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return format!("{error}\n"),
    };
    let mut text = format!("{}\n", reader.format());
    for record in reader.by_ref() {
        match record {
            Ok(record) => text += &(line(&record) + "\n"),
            Err(error) => text += &format!("{error}\n"),
        }
    }
    assert!(reader.next().is_none(), "after the end there is nothing");
    writeln!(text, "{}", reader.names().join(" ")).expect("memory takes all");
    if reader.notes() != Notes::default() {
        writeln!(text, "{:?}", reader.notes()).expect("memory takes all");
    }
    text
}

fn line(record: &Traced) -> String {
    let Io { kind, file, offset, len } = record.io;
    let took = record.took_ns.map_or("?".to_string(), |took_ns| took_ns.to_string());
    format!("{} +{took} {kind} {file}:{offset}+{len} by {}", record.at_ns, record.stream)
}

fn traced(at_ns: u64, took_ns: u64, offset: u64) -> Traced {
    let io = Io { kind: Kind::Read, file: 0, offset, len: 4096 };
    Traced { at_ns, took_ns: Some(took_ns), io, stream: 0 }
}

/// Wraps text at 90 columns, as far as its words permit.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ') {
            if column > 0 && column + word.len() > 90 {
                (folded, column) = (folded + "\n   ", 3);
            }
            let space = if column > 0 { " " } else { "" };
            (folded, column) = (folded + space + word, column + word.len() + 1);
        }
        folded.push('\n');
    }
    folded
}

/// Encodes a blktrace event.
pub(super) fn event(big: bool, at_ns: u64, action: u32, place: (u64, u32), pdu: u16) -> Vec<u8> {
    let (sector, bytes) = place;
    let mut fields: Vec<Vec<u8>> = vec![
        (0x6561_7407_u32).to_le_bytes().to_vec(),
        1_u32.to_le_bytes().to_vec(),
        at_ns.to_le_bytes().to_vec(),
        sector.to_le_bytes().to_vec(),
        bytes.to_le_bytes().to_vec(),
        action.to_le_bytes().to_vec(),
        42_u32.to_le_bytes().to_vec(),
        (8_u32 << 20 | 16).to_le_bytes().to_vec(),
        0_u32.to_le_bytes().to_vec(),
        0_u16.to_le_bytes().to_vec(),
        pdu.to_le_bytes().to_vec(),
    ];
    if big {
        fields.iter_mut().for_each(|field| field.reverse());
    }
    fields.push(vec![0xaa; pdu.into()]);
    fields.concat()
}

/// Actions of blktrace.
pub(super) const Q: u32 = 1;
pub(super) const D: u32 = 7;
pub(super) const C: u32 = 8;
pub(super) const READ: u32 = 1 << 16;
pub(super) const WRITE: u32 = 1 << 17;
pub(super) const FLUSH: u32 = 1 << 18;
pub(super) const NOTIFY: u32 = 1 << 26;
pub(super) const DISCARD: u32 = 1 << 29;

pub(super) const MSR: &str = "128166372003061629,hm,0,Read,383496192,32768,413
128166372003061700,hm,1,Write,8192,4096,100
128166372003061690,usr,0,read,0,512,0\r
";

pub(super) const SPC: &str = "0,20941264,8192,W,0.551706\n1, 16, 512, r, 0.6, more\n";

pub(super) const MQSIM: &str = "938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n";

pub(super) const HFPLAYER: &str = "\
#DUMP_OFFSET.I,ELAPSED_USECS.D,CMD.S,LUN_SSID.I,LBA.I,NBLKS.I,HOST_ID.I,LATENCY_USECS.D
1,100.096,WR_IN,1,2254431928,8,6,56.910
2,149.278,RD,2,16,96,6,144.831
3,149.300,INQUIRY,2,0,0,6,1.0
";

pub(super) const IOLOG2: &str = "fio version 2 iolog
/a add
/a open
/a read 0 4096
/a wait 150 0
/a write 4096 512
/a sync 0 0
/a trim 0 65536
/a close
";

pub(super) const IOLOG3: &str = "fio version 3 iolog
10 /a b add
10 /a b open
153 /a b read 28672 4096
155 /c datasync 0 0
154 /c write 8192 4096
200 /c close
";

pub(super) const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G  WS 223490 + 8 [kjournald]
  8,0    3        3     0.000002000   697  Q   R 100 + 16 [cat]
  8,0    3        4     0.000003000   697  Q FWS [jbd2]
  8,0    3        5     0.000004000   697  D  WS 223490 + 8 [kjournald]
  8,0    3        6     0.000500000     0  C  WS 223490 + 8 [0]
  8,0    3        7     0.000600000     0  C   R 100 + 16 [0]
  8,0    3        8     0.000700000     0  C FWS 0 [0]
  8,0    3        0     0.000800000     0  m   N cfq697 note
  8,0    3        9     0.000900000   697  Q  DS 0 + 2048 [fstrim]
CPU3 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           2,        4KiB
";

/// Encodes a small blktrace.
pub(super) fn blktrace(big: bool) -> Vec<u8> {
    let events = [
        event(big, 0, NOTIFY | 1, (0, 0), 12),
        event(big, 1000, Q | WRITE, (8, 4096), 0),
        event(big, 1500, D | WRITE, (8, 4096), 0),
        event(big, 2000, Q | READ, (1000, 8192), 3),
        event(big, 2500, Q | WRITE | FLUSH, (0, 0), 0),
        event(big, 3000, C | WRITE, (8, 4096), 0),
        event(big, 3500, C | READ, (1000, 8192), 0),
        event(big, 4000, Q | WRITE | DISCARD, (2048, 1 << 20), 0),
        event(big, 5000, C | WRITE | FLUSH, (0, 0), 0),
        event(big, 6000, C | WRITE, (77, 512), 0),
    ];
    events.concat()
}

/// Encodes a small VSCSI trace.
pub(super) fn vscsi(version: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (command, serial, block, micros) in [(0x2a_u16, 1_u32, 8_u64, 100_u64), (0x28, 2, 16, 250)]
    {
        let numbers = [serial, 4096, 1].map(u32::to_le_bytes).concat();
        let command = [command, version << 8].map(u16::to_le_bytes).concat();
        let head = if version == 1 { [numbers, command] } else { [command, numbers] };
        bytes.extend(head.concat());
        bytes.extend([block, micros].map(u64::to_le_bytes).concat());
        if version == 2 {
            bytes.extend(77_u64.to_le_bytes());
        }
    }
    bytes
}
