//! Reading of each format.

use super::*;
use expect_test::{Expect, expect};

fn check(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&drawn(bytes, Options::default()));
}

#[test]
fn msr() {
    check(
        MSR.as_bytes(),
        expect![[r#"
            msr
            0 +41300 read 0:383496192+32768 by 0
            6100 +0 read 1:0+512 by 1
            7100 +10000 write 2:8192+4096 by 0
            hm_0 usr_0 hm_1
        "#]],
    );
}

#[test]
fn spc() {
    check(
        SPC.as_bytes(),
        expect![[r#"
        spc
        0 +? write 0:10721927168+8192 by 0
        48294000 +? read 1:8192+512 by 1
        asu0 asu1
    "#]],
    );
}

#[test]
fn mqsim() {
    check(
        MQSIM.as_bytes(),
        expect![[r#"
        mqsim
        0 +? write 0:135536145408+8192 by 0
        315000 +? read 1:101156131840+8192 by 0
        device4 device3
    "#]],
    );
}

#[test]
fn hfplayer() {
    check(
        HFPLAYER.as_bytes(),
        expect![[r#"
        hfplayer
        0 +56910 write 0:1154269147136+4096 by 6
        49182 +144831 read 1:8192+49152 by 6
        lun1 lun2
        Notes { late: 0, skipped: 1, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]],
    );
}

#[test]
fn vscsi_of_both_versions() {
    check(
        &vscsi(1),
        expect![[r#"
        vscsi
        0 +? write 0:4096+4096 by 0
        150000 +? read 0:8192+4096 by 0
        disk
    "#]],
    );
    check(
        &vscsi(2),
        expect![[r#"
        vscsi
        0 +77000 write 0:4096+4096 by 0
        150000 +77000 read 0:8192+4096 by 0
        disk
    "#]],
    );
}

#[test]
fn iolog_of_both_versions() {
    check(
        IOLOG2.as_bytes(),
        expect![[r#"
        iolog2
        0 +? read 0:0+4096 by 0
        150000 +? write 0:4096+512 by 0
        150000 +? sync 0:0+0 by 0
        150000 +? trim 0:0+65536 by 0
        /a
        Notes { late: 0, skipped: 3, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]],
    );
    check(
        IOLOG3.as_bytes(),
        expect![[r#"
        iolog3
        0 +? read 0:28672+4096 by 0
        1000 +? write 1:8192+4096 by 0
        2000 +? sync 1:0+0 by 0
        /a b /c
        Notes { late: 0, skipped: 3, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]],
    );
}

#[test]
fn a_wait_can_be_what_fio_does() {
    let options = Options { wait: super::super::Wait::Millis, ..Options::default() };
    let log = "fio version 2 iolog\nf read 0 1\nf wait 5 0\nf read 0 1\nf wait 7 0\nf read 0 1\n";
    expect![[r#"
        iolog2
        0 +? read 0:0+1 by 0
        5000000 +? read 0:0+1 by 0
        7000000 +? read 0:0+1 by 0
        f
    "#]]
    .assert_eq(&drawn(log.as_bytes(), options));
}

#[test]
fn blkparse() {
    check(
        BLKPARSE.as_bytes(),
        expect![[r#"
        blkparse
        0 +500000 write 0:114426880+4096 by 697
        2000 +598000 read 0:51200+8192 by 697
        3000 +697000 sync 0:0+0 by 697
        900000 +? trim 0:0+1048576 by 697
        8,0
        Notes { late: 0, skipped: 4, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]],
    );
}

#[test]
fn blktrace_of_both_byte_orders() {
    check(
        &blktrace(false),
        expect![[r#"
        blktrace
        0 +2000 write 0:4096+4096 by 42
        1000 +1500 read 0:512000+8192 by 42
        1500 +2500 sync 0:0+0 by 42
        3000 +? trim 0:1048576+1048576 by 42
        8,16
        Notes { late: 0, skipped: 1, unmatched: 1, damaged: 0, cut_bytes: 0 }
    "#]],
    );
    let options = Options::default();
    assert_eq!(drawn(&blktrace(true), options), drawn(&blktrace(false), options));
}

#[test]
fn the_driver_can_be_the_issuer() {
    let options = Options { issue: super::super::Issue::Driver, ..Options::default() };
    expect![[r#"
        blktrace
        0 +1500 write 0:4096+4096 by 42
        8,16
        Notes { late: 0, skipped: 1, unmatched: 3, damaged: 0, cut_bytes: 0 }
    "#]]
    .assert_eq(&drawn(&blktrace(false), options));
    let only_d = [event(false, 5, D | READ, (8, 512), 0), event(false, 9, C | READ, (8, 512), 0)];
    check(
        &only_d.concat(),
        expect![[r#"
        blktrace
        0 +4 read 0:4096+512 by 42
        8,16
    "#]],
    );
}

#[test]
fn merged_and_split_requests_complete_with_their_parts() {
    let events = [
        event(false, 1, Q | READ, (0, 4096), 0),
        event(false, 2, Q | READ, (8, 4096), 0),
        event(false, 3, Q | READ, (100, 8192), 0),
        event(false, 4, Q | READ, (200, 512), 0),
        event(false, 5, Q | READ, (200, 512), 0),
        event(false, 11, C | READ, (0, 8192), 0),
        event(false, 12, C | READ, (100, 4096), 0),
        event(false, 13, C | READ, (200, 512), 0),
        event(false, 14, C | READ, (108, 4096), 0),
        event(false, 15, C | READ, (200, 512), 0),
    ];
    check(
        &events.concat(),
        expect![[r#"
        blktrace
        0 +10 read 0:0+4096 by 42
        1 +9 read 0:4096+4096 by 42
        2 +11 read 0:51200+8192 by 42
        3 +9 read 0:102400+512 by 42
        4 +10 read 0:102400+512 by 42
        8,16
    "#]],
    );
}

#[test]
fn an_issue_that_never_completes_holds_up_only_so_many() {
    let mut events = event(false, 0, Q | READ, (0, 512), 0);
    for number in 1..10 {
        events.extend(event(false, number * 10, Q | READ, (number * 8, 512), 0));
        events.extend(event(false, number * 10 + 1, C | READ, (number * 8, 512), 0));
    }
    events.extend(event(false, 500, C | READ, (0, 512), 0));
    let options = Options { pending: 3, window: 0, ..Options::default() };
    let text = drawn(&events, options);
    assert!(text.contains("0 +? read 0:0+512 by 42\n10 +1 read"), "{text}");
    assert!(text.contains("unmatched: 1"), "{text}");
}

#[test]
fn files_of_several_processors_are_one_trace() {
    let directory = std::env::temp_dir().join(format!("upcall-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("there is a place for it");
    let part = |number: u32| directory.join(format!("sda.blktrace.{number}"));
    let one = [event(false, 10, Q | READ, (0, 512), 0), event(false, 40, C | READ, (8, 512), 0)];
    let two = [event(false, 20, Q | READ, (8, 512), 0), event(false, 30, C | READ, (0, 512), 0)];
    for (number, events) in [(0, one), (10, two)] {
        std::fs::write(part(number), events.concat()).expect("there is space for it");
    }
    for name in [directory.join("sda"), part(0), part(10)] {
        let reader = Reader::open(&name, None, Options::default()).expect("it is there");
        let lines: Vec<_> = reader.map(|record| line(&record.expect("it is whole"))).collect();
        assert_eq!(lines, ["0 +20 read 0:0+512 by 42", "10 +20 read 0:4096+512 by 42"]);
    }
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn run() {
    check(
        &detecting::run(),
        expect![[r#"
        records
        0 +700 write 0:4096+512 by 2
        500 +700 write 0:4096+512 by 2
        file3
        Notes { late: 0, skipped: 1, unmatched: 0, damaged: 0, cut_bytes: 0 }
    "#]],
    );
    let cut = drawn(&detecting::run()[..150], Options::default());
    expect![[r#"
        records
        0 +700 write 0:4096+512 by 2
        t, byte 128: the file was cut off at byte 150 (read as records). Repair the file, or name
            another format with --format FORMAT
        file3
    "#]]
    .assert_eq(&folded(&cut));
}
