use crate::module::INTRINSICS;
use crate::support::drive::{self, Session};
use crate::support::ram::Ram;
use crate::{Budget, Ended, Reason};
use sha2::{Digest as _, Sha256};

/// Runs a guest that has text at an address and writes eight words.
fn run(data: &str, pages: u32, body: &str, fuel: u64) -> drive::Run {
    let imports: String = INTRINSICS
        .iter()
        .map(|name| {
            let four = *name == "find";
            let params = if four { "i32 i32 i32 i32" } else { "i32 i32 i32" };
            let result = if *name == "sha256_blocks" { "" } else { "(result i32)" };
            format!(r#"(import "upcall" "{name}" (func ${name} (param {params}) {result}))"#)
        })
        .collect();
    let wat = format!(
        r#"(module {imports}
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") {pages})
  {data}
  (data (i32.const 0) "\20\00\00\00\20\00\00\00")
  (func (export "_start") {body}
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
    );
    let program = drive::program(&drive::by_fuel(), wat);
    let budget = Budget { fuel, ..Budget::default() };
    let session = Session { budget, ..Session::new(&["guest"]) };
    drive::run(&mut Ram::new(&[]), &program, &session)
}

/// Returns these words.
fn words(data: &str, pages: u32, body: &str) -> Result<Vec<u32>, String> {
    let run = run(data, pages, body, u64::MAX);
    match run.ended {
        Ended::Exit(0) => Ok(run
            .output
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("it has four")))
            .collect()),
        other @ (Ended::Exit(_) | Ended::Trap(_) | Ended::Killed(_) | Ended::Refused(_)) => {
            Err(format!("{other:?}"))
        }
    }
}

fn store(place: u32, call: &str) -> String {
    format!("(i32.store (i32.const {}) {call})", 32 + 4 * place)
}

#[test]
fn bytes_and_texts_are_found_also_where_pieces_meet() {
    // Three mebibytes from 65536 on; the needle straddles the end of the first one.
    let across = 65536 + (1 << 20) - 3;
    let data = format!(r#"(data (i32.const {across}) "needle") (data (i32.const 100) "needle")"#);
    let at = "(i32.const 65536) (i32.const 3145728)";
    let body = [
        store(0, &format!("(call $find {at} (i32.const 100) (i32.const 6))")),
        store(1, &format!("(call $find_byte {at} (i32.const 108))")),
        store(2, &format!("(call $find_byte_last {at} (i32.const 101))")),
        store(3, &format!("(call $count_byte {at} (i32.const 101))")),
        store(4, &format!("(call $find_byte {at} (i32.const 120))")),
        store(5, &format!("(call $find {at} (i32.const 101) (i32.const 0))")),
        store(6, &format!("(call $find {at} (i32.const 100) (i32.const 7))")),
        store(7, "(call $find_byte_last (i32.const 65536) (i32.const 0) (i32.const 0))"),
    ];
    let words = words(&data, 64, &body.concat()).expect("it ends well");
    let first = (1 << 20) - 3;
    assert_eq!(words[..4], [first, first + 4, first + 5, 3]);
    assert_eq!(words[4..], [u32::MAX, 0, first, u32::MAX], "a zero byte is behind the needle");
}

#[test]
fn hashes_are_those_of_everybody_else() {
    let body = store(0, "(call $crc32 (i32.const 0) (i32.const 100) (i32.const 9))");
    let crc = words(r#"(data (i32.const 100) "123456789")"#, 2, &body).expect("it ends well");
    assert_eq!(crc[0], 0xcbf4_3926, "the check value of CRC-32");

    // One block with its padding, from the initial state.
    let initial: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let set = (0..8).map(|place| store(place, &format!("(i32.const {})", initial[place as usize])));
    let body = set.collect::<String>()
        + "(call $sha256_blocks (i32.const 32) (i32.const 128) (i32.const 1))";
    let data = r#"(data (i32.const 128) "abc\80") (data (i32.const 191) "\18")"#;
    let state = words(data, 2, &body).expect("it ends well");
    let digest: Vec<u8> = state.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(digest, Sha256::digest(b"abc").to_vec());
}

#[test]
fn an_out_of_bounds_pointer_ends_the_guest() {
    for call in [
        "(drop (call $find_byte (i32.const 65536) (i32.const 65537) (i32.const 0)))",
        "(drop (call $find_byte_last (i32.const -1) (i32.const 2) (i32.const 0)))",
        "(drop (call $count_byte (i32.const 131072) (i32.const 1) (i32.const 0)))",
        "(drop (call $crc32 (i32.const 0) (i32.const 0) (i32.const -1)))",
        "(drop (call $find (i32.const 0) (i32.const 9) (i32.const 131072) (i32.const 1)))",
        "(call $sha256_blocks (i32.const 131050) (i32.const 0) (i32.const 1))",
        "(call $sha256_blocks (i32.const 0) (i32.const 0) (i32.const 67108865))",
    ] {
        let error = words("", 2, call).expect_err(call);
        assert!(error.contains("out of bounds"), "{call}: {error}");
    }
    let call = "(drop (call $find (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 65537)))";
    let error = words("", 2, call).expect_err("it is too long");
    assert!(error.contains("65537 bytes at once"), "{error}");
}

#[test]
fn they_take_fuel_by_how_much_they_have_done() {
    let data = r#"(data (i32.const 65536) "xxxxy")"#;
    let took = |call: &str| {
        let all = run(data, 64, &store(0, call), u64::MAX);
        assert_eq!(all.ended, Ended::Exit(0));
        all.used.fuel
    };
    let plain = took("(i32.const 0)");
    let of = |call: &str| took(call) - plain;
    let at = "(i32.const 65536) (i32.const 3145728)";
    // Part of the fuel is for the call itself.
    let call = of("(call $count_byte (i32.const 65536) (i32.const 0) (i32.const 0))");
    assert!(call < 10);
    let scanned = |bytes: u64| call + bytes.div_ceil(16);
    let three = 3 << 20;
    assert_eq!(of(&format!("(call $count_byte {at} (i32.const 0))")), scanned(three));
    assert_eq!(of(&format!("(call $find_byte {at} (i32.const 33))")), scanned(three));
    assert_eq!(of(&format!("(call $find_byte {at} (i32.const 121))")), scanned(5));
    assert_eq!(of(&format!("(call $find_byte_last {at} (i32.const 121))")), scanned(three - 4));
    assert_eq!(of(&format!("(call $crc32 (i32.const 0) {at})")), call + three);
    // Fuel can run out in the middle, too.
    let half = run(data, 64, &store(0, &format!("(call $crc32 (i32.const 0) {at})")), three / 2);
    assert_eq!((half.ended, half.used.fuel), (Ended::Killed(Reason::Fuel), three / 2));
}
