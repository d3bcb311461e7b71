//! Tests of the library against scripted servers: correct, malicious, silent and disconnecting
//! ones.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test waits in real time")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test knows which error it wants")]

mod lies;
mod mutated;
mod server;

use server::{HANG_UP, connect, connect_within, contents, encode, except, honest, serve};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use upcall_client::{Dialect, Error};
use wire::ninep::{Data, Rmessage, Tmessage};

#[test]
fn an_honest_server_is_read_whole_and_in_parts() {
    let client = connect(&serve(honest)).unwrap();
    assert_eq!(client.dialect(), Dialect::Linux);
    assert!(client.read_file("/file").unwrap() == contents());
    let mut file = client.open("file").unwrap();
    file.seek(SeekFrom::End(-10)).unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, &contents()[contents().len() - 10..]);
    let names: Vec<_> = client.read_dir("/").unwrap().map(|entry| entry.unwrap().name).collect();
    assert_eq!(names, ["file"]);
    let error = client.metadata("/nothing").unwrap_err();
    assert!(error.is_not_found() && !error.is_fatal(), "{error}");
    let part: Vec<u8> =
        file.stream(5, 7).unwrap().flat_map(|piece| piece.unwrap().to_vec()).collect();
    assert_eq!(part, &contents()[5..12]);
}

#[test]
fn many_threads_share_one_connection() {
    let client = connect(&serve(honest)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let client = client.clone();
            scope.spawn(move || {
                for _ in 0..3 {
                    assert!(client.read_file("file").unwrap() == contents());
                    assert!(client.metadata("nothing").unwrap_err().is_not_found());
                }
            });
        }
    });
}

#[test]
fn servers_that_know_only_9p2000_are_spoken_to_in_it() {
    let answers: [fn(u16) -> Vec<u8>; 4] = [
        |tag| encode(tag, &Rmessage::Version { msize: 8192, version: b"unknown" }),
        |tag| encode(tag, &Rmessage::Version { msize: 8192, version: b"9P2000.u" }),
        |tag| encode(tag, &Rmessage::Error { ename: b"what?" }),
        |_| HANG_UP.to_vec(),
    ];
    for answer in answers {
        let address = serve(move || {
            except(move |tag, message| match message {
                Tmessage::Version { version: b"9P2000", .. } => {
                    Some(encode(tag, &Rmessage::Version { msize: 8192, version: b"9P2000" }))
                }
                Tmessage::Version { .. } => Some(answer(tag)),
                _ => None,
            })
        });
        let client = connect(&address).unwrap();
        assert_eq!((client.dialect(), client.msize()), (Dialect::Plan9, 8192));
    }
    // A server that proposes its own version immediately.
    let address = serve(|| {
        except(|tag, message| match message {
            Tmessage::Version { .. } => {
                Some(encode(tag, &Rmessage::Version { msize: 512, version: b"9P2000" }))
            }
            _ => None,
        })
    });
    assert_eq!(connect(&address).unwrap().dialect(), Dialect::Plan9);
}

#[test]
fn a_silent_server_is_given_up_by_all_who_wait() {
    let quiet = || except(|_, message| matches!(message, Tmessage::Getattr { .. }).then(Vec::new));
    let client = connect_within(&serve(quiet), Duration::from_secs(2)).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = client.clone();
            scope.spawn(move || {
                let error = client.metadata("file").unwrap_err();
                assert!(matches!(error, Error::Silent { .. }), "{error}");
            });
        }
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(matches!(client.metadata("file").unwrap_err(), Error::Silent { .. }));
}

#[test]
fn a_server_that_goes_away_is_an_error_of_whatever_waits() {
    let gone =
        || except(|_, message| matches!(message, Tmessage::Read { .. }).then(|| HANG_UP.to_vec()));
    let client = connect(&serve(gone)).unwrap();
    let error = client.read_file("file").unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error}");
    assert!(error.to_string().contains("check whether the server still runs"), "{error}");
}

#[test]
fn nobody_at_the_address_is_reported_with_the_address() {
    let error = connect(&"127.0.0.1:1".parse().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("cannot reach 127.0.0.1:1: "), "{error}");
}

#[test]
fn a_cancelled_request_is_flushed_and_the_connection_stays_usable() {
    let (flushes, flushed) = channel();
    let address = serve(move || {
        let flushes = flushes.clone();
        except(move |tag, message| match message {
            // A read that hangs until it is flushed.
            Tmessage::Read { offset: 0, .. } => Some(Vec::new()),
            Tmessage::Flush { oldtag } => {
                flushes.send(*oldtag).unwrap();
                Some(encode(tag, &Rmessage::Flush {}))
            }
            _ => None,
        })
    });
    let client = connect(&address).unwrap();
    client.resume(Duration::from_secs(30));
    std::thread::scope(|scope| {
        let reader = client.clone();
        let waits = scope.spawn(move || reader.read_file("file"));
        std::thread::sleep(Duration::from_millis(100));
        client.cancel();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled)));
    });
    assert!(matches!(client.metadata("file"), Err(Error::Cancelled)));
    client.resume(Duration::from_secs(30));
    assert_eq!(client.metadata("file").unwrap().size, contents().len() as u64);
    assert!(flushed.recv_timeout(Duration::from_secs(60)).is_ok());
}

#[test]
fn short_reads_and_short_writes_are_completed() {
    let address = serve(|| {
        let mut turn = 0u64;
        except(move |tag, message| {
            turn += 1;
            match message {
                Tmessage::Read { offset, count, .. } => {
                    let all = contents();
                    let start = (*offset as usize).min(all.len());
                    let count = (*count as usize).min(1 + (turn * 7919 % 200_000) as usize);
                    let end = (start + count).min(all.len());
                    Some(encode(tag, &Rmessage::Read { data: Data(&all[start..end]) }))
                }
                _ => None,
            }
        })
    });
    assert!(connect(&address).unwrap().read_file("file").unwrap() == contents());
    let (pieces, written) = channel();
    let address = serve(move || {
        let (mut turn, pieces) = (0u64, pieces.clone());
        except(move |tag, message| {
            turn += 1;
            match message {
                Tmessage::Write { offset, data, .. } => {
                    let count = data.0.len().min(1 + (turn * 7919 % 300_000) as usize);
                    pieces.send((*offset, data.0[..count].to_vec())).unwrap();
                    Some(encode(tag, &Rmessage::Write { count: count as u32 }))
                }
                _ => None,
            }
        })
    });
    connect(&address).unwrap().write_file("file", &contents()).unwrap();
    let mut all = vec![0; contents().len()];
    for (offset, piece) in written.try_iter() {
        all[offset as usize..offset as usize + piece.len()].copy_from_slice(&piece);
    }
    assert!(all == contents());
}
