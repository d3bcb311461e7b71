//! Error messages for unreadable traces.

use super::*;
use expect_test::expect;

/// Returns the message of the first error.
fn message(bytes: &[u8], format: Format) -> String {
    let first = reader(bytes, Some(format)).and_then(|mut reader| {
        let error = reader.find_map(Result::err);
        error.map_or(Ok(()), Err)
    });
    first.expect_err("it is wrong").to_string()
}

fn messages(format: Format, wrong: &[&str]) -> String {
    wrong.iter().map(|text| message(text.as_bytes(), format) + "\n").collect()
}

#[test]
fn lines_that_are_wrong() {
    let found = [
        messages(Format::Msr, &["1,hm,0,Read,0,4096", "1,hm,0,Erase,0,1,1", "1x,hm,0,Read,0,1,1"]),
        messages(Format::Spc, &["0,1,2,R", "0,1,5000000000,R,0.1", "0,1,2,R,-1"]),
        messages(Format::Mqsim, &["1 2 3 4 5", "1 2 99999999999999999999 4 1", "a b"]),
        messages(Format::Hfplayer, &["#CMD.S,LBA.I", "#ELAPSED_USECS,CMD,LBA,NBLKS\n1,RD,x,1"]),
        messages(Format::Iolog2, &["/a read 0", "/a erase 0 1", "/a wait x 0"]),
        messages(Format::Iolog3, &["/a read 0 1", "5 /a wait 1 1", "read"]),
        messages(Format::BlkparseText, &["hello", "8,0 1 1 0.0 5 Q R 1 + x [a]"]),
    ];
    expect![[r#"
        t, line 1: "1,hm,0,Read,0,4096" is not of the form
            `TIMESTAMP,HOST,DISK,Read|Write,OFFSET,LENGTH,RESPONSE TIME` (read as msr). Repair the
            file, or name another format with --format FORMAT
        t, line 1: "Erase" is not `Read` or `Write` (read as msr). Repair the file, or name
            another format with --format FORMAT
        t, line 1: "1x" is not a time in 100 ns (read as msr). Repair the file, or name another
            format with --format FORMAT
        t, line 1: "0,1,2,R" is not of the form `ASU,LBA,LENGTH,R|W,SECONDS[,…]` (read as spc).
            Repair the file, or name another format with --format FORMAT
        t, line 1: "5000000000" is not a length below 4 GiB (read as spc). Repair the file, or
            name another format with --format FORMAT
        t, line 1: "-1" is not a time in seconds (read as spc). Repair the file, or name another
            format with --format FORMAT
        t, line 1: "5" is not 1 (read) or 0 (write) (read as mqsim). Repair the file, or name
            another format with --format FORMAT
        t, line 1: "99999999999999999999" is not the number of a sector (read as mqsim). Repair
            the file, or name another format with --format FORMAT
        t, line 1: "a b" is not of the form `NANOSECONDS DEVICE SECTOR SECTORS 0|1` (read as
            mqsim). Repair the file, or name another format with --format FORMAT
        t, line 1: the first line does not name a column ELAPSED_USECS (read as hfplayer). Repair
            the file, or name another format with --format FORMAT
        t, line 2: "x" is not the address of a block (read as hfplayer). Repair the file, or name
            another format with --format FORMAT
        t, line 1: "/a read 0" is not of the form `NAME ACTION [OFFSET LENGTH]` (read as iolog2).
            Repair the file, or name another format with --format FORMAT
        t, line 1: "erase" is not an action of this version (read as iolog2). Repair the file, or
            name another format with --format FORMAT
        t, line 1: "x" is not a time to wait (read as iolog2). Repair the file, or name another
            format with --format FORMAT
        t, line 1: "/a" is not a time in microseconds (read as iolog3). Repair the file, or name
            another format with --format FORMAT
        t, line 1: "wait" is not an action of this version (read as iolog3). Repair the file, or
            name another format with --format FORMAT
        t, line 1: "read" is not a time in microseconds (read as iolog3). Repair the file, or name
            another format with --format FORMAT
        t, line 1: "hello" is not of the form `MAJOR,MINOR CPU SEQUENCE SECONDS PROCESS ACTION
            RWBS [SECTOR + SECTORS]` (read as blkparse). Repair the file, or name another format
            with --format FORMAT
        t, line 1: "x" is not a number of sectors (read as blkparse). Repair the file, or name
            another format with --format FORMAT
    "#]]
    .assert_eq(&folded(&found.concat()));
}

#[test]
fn bytes_that_are_wrong() {
    let cut = |bytes: Vec<u8>, by: usize| bytes[..bytes.len() - by].to_vec();
    let spoilt = |mut bytes: Vec<u8>, at: usize| {
        bytes[at] ^= 0x40;
        bytes
    };
    let found = [
        message(&cut(blktrace(false), 20), Format::BlktraceBinary),
        message(&spoilt(blktrace(false), 61), Format::BlktraceBinary),
        message(&spoilt(blktrace(false), 60), Format::BlktraceBinary),
        message(&cut(vscsi(1), 1), Format::Vscsi),
        message(&cut(vscsi(2), 39), Format::Vscsi),
        message(b"hello", Format::Vscsi),
        message(b"upcall recording 2\n", Format::Recording),
    ];
    expect![[r#"
        t, byte 447: the file ends after 28 of 48 bytes of a record (read as blktrace). Repair the
            file, or name another format with --format FORMAT
        t, byte 60: a record begins with [07, 34, 61, 65], not `eat` (read as blktrace). Repair
            the file, or name another format with --format FORMAT
        t, byte 60: the record has version 71; only 7 is known (read as blktrace). Repair the
            file, or name another format with --format FORMAT
        t, byte 32: the file ends after 31 of 32 bytes of a record (read as vscsi). Repair the
            file, or name another format with --format FORMAT
        t, byte 40: the file ends after 1 of 40 bytes of a record (read as vscsi). Repair the
            file, or name another format with --format FORMAT
        t, byte 0: no record of version 1 or 2 begins here (read as vscsi). Repair the file, or
            name another format with --format FORMAT
        t, byte 0: the header `upcall recording 1` is not here (read as recording). Repair the
            file, or name another format with --format FORMAT
    "#]]
    .assert_eq(&folded(&found.join("\n")));
}

#[test]
fn a_line_that_does_not_end() {
    let found = message(&vec![b'7'; 100_000], Format::Mqsim);
    expect![[r#"
        t, line 1: the line is longer than 65536 bytes (read as mqsim). Repair the file, or name
            another format with --format FORMAT
    "#]]
    .assert_eq(&folded(&found));
}

#[test]
fn records_before_the_error_are_given() {
    let text = drawn(format!("{MSR}oops\n{MSR}").as_bytes(), Options::default());
    expect![[r#"
        msr
        0 +41300 read 0:383496192+32768 by 0
        6100 +0 read 1:0+512 by 1
        7100 +10000 write 2:8192+4096 by 0
        t, line 4: "oops" is not of the form
            `TIMESTAMP,HOST,DISK,Read|Write,OFFSET,LENGTH,RESPONSE TIME` (read as msr). Repair the
            file, or name another format with --format FORMAT
        hm_0 usr_0 hm_1
    "#]]
    .assert_eq(&folded(&text));
}

#[test]
fn late_records_are_counted() {
    let options = Options { window: 0, ..Options::default() };
    expect![[r#"
        msr
        0 +41300 read 0:383496192+32768 by 0
        7100 +10000 write 1:8192+4096 by 0
        7100 +0 read 2:0+512 by 1
        hm_0 hm_1 usr_0
        Notes { late: 1, skipped: 0, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]]
    .assert_eq(&drawn(MSR.as_bytes(), options));
}
