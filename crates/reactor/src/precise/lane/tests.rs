//! A lane on files, sockets, and its waker.

use super::*;
use rustix::fd::AsFd;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn wait_for(lane: &mut Lane, count: usize) -> Vec<Finished> {
    let mut finished = Vec::new();
    lane.flush();
    while finished.len() < count {
        lane.wait(Duration::from_secs(1));
        lane.take(&mut finished);
    }
    finished
}

#[test]
fn files_are_read_and_written_by_name() {
    let path = std::env::temp_dir().join(format!("upcall-lane-{}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    let mut lane = Lane::new(&[file.as_fd()], 8192, Waker::new().unwrap()).expect("a ring");
    lane.write(1, 0, 4096, 8192, false);
    lane.sync(2, 0);
    let mut done: Vec<_> = wait_for(&mut lane, 2).iter().map(|f| (f.name, f.result)).collect();
    done.sort_unstable();
    assert_eq!(done, [(1, Ok(8192)), (2, Ok(0))]);
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).expect("it is read");
    assert_eq!(bytes.len(), 12288);
    assert!(bytes[..4096].iter().all(|b| *b == 0) && bytes[4096..].iter().any(|b| *b != 0));
    lane.read(3, 0, 8192, 8192, true);
    let finished = wait_for(&mut lane, 1);
    assert_eq!((finished[0].name, finished[0].result), (3, Ok(4096)), "the file ends there");
    lane.read(4, 0, u64::MAX / 2 + 1, 16, false);
    assert_eq!(wait_for(&mut lane, 1)[0].result, Err(libc::EINVAL as u16));
    assert_eq!(lane.in_flight(), 0);
}

#[test]
fn sockets_give_their_buffers_back() {
    let (here, mut there) = UnixStream::pair().expect("a pair");
    let mut lane = Lane::new(&[], 1, Waker::new().unwrap()).expect("a ring");
    lane.send(7, here.as_fd(), b"question".to_vec());
    assert_eq!(wait_for(&mut lane, 1)[0].result, Ok(8));
    let mut question = [0; 8];
    there.read_exact(&mut question).expect("it was sent");
    there.write_all(b"answer").expect("it is read");
    let mut buffer = Vec::with_capacity(64);
    buffer.extend_from_slice(b"the ");
    lane.receive(8, here.as_fd(), buffer);
    let finished = wait_for(&mut lane, 1);
    assert_eq!(finished[0].buffer.as_deref(), Some(&b"the answer"[..]));
    lane.receive(9, here.as_fd(), Vec::with_capacity(64));
    lane.flush();
    drop(lane);
}

#[test]
fn a_waiting_lane_is_woken_repeatedly() {
    let waker = Waker::new().unwrap();
    let mut lane = Lane::new(&[], 1, waker.clone()).expect("a ring");
    let mut finished = Vec::new();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            lane.wait(Duration::from_secs(60));
            lane.take(&mut finished);
        });
    }
    assert!(finished.is_empty());
}
