//! Files of volumes: transfers of whole blocks, locks, sizes. On both forms.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests of the real world"
)]

mod rig;

use base::op::{BLOCKS_MAX, Done, File, Op, OpId};
use base::{Block, Error, Reactor};
use reactor::VolumeFile;
use rig::{READ_WRITE, Rig, is_root, on_both};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns blocks that differ from each other, and from those of another seed.
fn blocks(seed: usize, count: usize, size: usize) -> Vec<Block> {
    let byte = |block: usize, at: usize| (seed * 131 + block * 31 + at * 7 + at / 509) as u8;
    let block = |number| (0..size).map(|at| byte(number, at)).collect::<Vec<u8>>();
    (0..count).map(|number| Block::from_bytes(&block(number), size)).collect()
}

fn bytes(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().flat_map(|block| block.to_vec()).collect()
}

fn start_read(rig: &mut Rig, file: File, offset: u64, count: usize, size: usize) -> OpId {
    let (count, size) = (u32::try_from(count).unwrap(), u32::try_from(size).unwrap());
    rig.start(|id| Op::ReadBlocks { id, file, offset, count, size })
}

fn finish_read(rig: &mut Rig, id: OpId) -> Result<Vec<Block>, Error> {
    match rig.finish(id) {
        Done::Blocks(result) => result,
        other => panic!("{other:?}"),
    }
}

fn read(rig: &mut Rig, file: File, at: u64, n: usize, size: usize) -> Result<Vec<Block>, Error> {
    let id = start_read(rig, file, at, n, size);
    finish_read(rig, id)
}

fn write(rig: &mut Rig, file: File, offset: u64, blocks: &[Block], durable: bool) {
    let blocks = blocks.to_vec();
    match rig.ask(|id| Op::WriteBlocks { id, file, offset, blocks, durable }) {
        Done::Stored(Ok(())) => {}
        other => panic!("{other:?}"),
    }
}

/// Opens a volume that was closed: a process started by another test releases its inherited
/// descriptors a moment later, and a ring when its thread enters it the next time.
fn soon<T>(rig: &mut Rig, mut open: impl FnMut(&mut Rig) -> io::Result<T>) -> T {
    unlocked(|| {
        let opened = open(rig);
        if opened.is_err() {
            rig.wait_until(rig.world.now() + Duration::from_millis(1));
        }
        opened
    })
}

/// Opens until no other process holds the lock of the file.
fn unlocked<T>(mut open: impl FnMut() -> io::Result<T>) -> T {
    let late = Instant::now() + Duration::from_secs(30);
    loop {
        match open() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < late => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Returns a file with direct I/O, and one through the host's cache.
fn two_files(rig: &mut Rig) -> [(File, PathBuf); 2] {
    let direct = rig.path("direct");
    VolumeFile::create(&direct).unwrap();
    let (file, size) = soon(rig, |rig| rig.world.open_volume(&direct, true));
    assert_eq!(size, 0);
    let cached = rig.create("cached", READ_WRITE, true).unwrap();
    [(file, direct), (cached, rig.path("cached"))]
}

#[test]
fn blocks_of_every_size_come_back_as_they_were_written() {
    on_both(|rig| {
        for (file, path) in two_files(rig) {
            let mut expected = Vec::new();
            for (seed, size) in [512, 4096, 65_536].into_iter().enumerate() {
                let (offset, first) = (expected.len() as u64, blocks(seed, 128, size));
                let second = blocks(seed + 10, 128, size);
                write(rig, file, offset, &first, false);
                write(rig, file, offset + 128 * size as u64, &second, true);
                expected.extend(bytes(&first));
                expected.extend(bytes(&second));
                let middle = read(rig, file, offset + 100 * size as u64, 60, size).unwrap();
                assert!(middle[..28] == first[100..] && middle[28..] == second[..32]);
                assert!(middle.iter().all(Block::is_unshared));
            }
            let synced = rig.ask(|id| Op::Sync { id, file, data_only: true });
            assert!(matches!(synced, Done::Synced(Ok(()))));
            assert!(fs::read(path).unwrap() == expected);
            rig.close(file);
        }
    });
}

#[test]
fn as_many_blocks_as_there_may_be_and_none_at_all() {
    on_both(|rig| {
        for (file, _) in two_files(rig) {
            let all = blocks(1, BLOCKS_MAX, 65_536);
            write(rig, file, 0, &all, true);
            assert!(read(rig, file, 0, BLOCKS_MAX, 65_536).unwrap() == all);
            write(rig, file, 0, &[], true);
            assert!(read(rig, file, 0, 0, 512).unwrap().is_empty());
            rig.close(file);
        }
    });
}

#[test]
fn a_read_that_meets_the_end_of_the_file_fails() {
    on_both(|rig| {
        for (file, path) in two_files(rig) {
            write(rig, file, 0, &blocks(1, 3, 4096), false);
            assert_eq!(read(rig, file, 0, 4, 4096).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 3 * 4096, 1, 4096).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 1 << 40, 1, 4096).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 0, 1, 65_536).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 8192, 1, 4096).unwrap(), blocks(1, 3, 4096)[2..]);
            // A file may end anywhere, regardless of direct I/O.
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192 + 100).unwrap();
            assert_eq!(read(rig, file, 0, 3, 4096).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 8192, 1, 4096).unwrap_err(), Error::Io);
            assert_eq!(read(rig, file, 8192, 1, 512).unwrap_err(), Error::Io);
            rig.close(file);
        }
    });
}

#[test]
fn many_are_under_way_at_once() {
    on_both(|rig| {
        for (file, _) in two_files(rig) {
            let all = blocks(3, 600, 4096);
            let writes: Vec<OpId> = all
                .chunks(3)
                .enumerate()
                .map(|(at, blocks)| {
                    let (offset, blocks) = (at as u64 * 3 * 4096, blocks.to_vec());
                    let durable = at.is_multiple_of(50);
                    rig.start(|id| Op::WriteBlocks { id, file, offset, blocks, durable })
                })
                .collect();
            for id in writes {
                assert!(matches!(rig.finish(id), Done::Stored(Ok(()))));
            }
            assert!(all.iter().all(Block::is_unshared));
            let reads: Vec<OpId> =
                (0..300).map(|at| start_read(rig, file, at * 2 * 4096, 2, 4096)).collect();
            for (at, id) in reads.into_iter().enumerate() {
                assert!(finish_read(rig, id).unwrap() == all[at * 2..at * 2 + 2]);
            }
            rig.close(file);
        }
    });
}

#[test]
fn a_block_changed_during_a_write_is_written_unchanged() {
    on_both(|rig| {
        for (file, _) in two_files(rig) {
            let old = blocks(1, 64, 65_536);
            let mut new = old.clone();
            let blocks = old.clone();
            let id = rig.start(|id| Op::WriteBlocks { id, file, offset: 0, blocks, durable: true });
            new.iter_mut().for_each(|block| block.bytes_mut().fill(9));
            assert!(matches!(rig.finish(id), Done::Stored(Ok(()))));
            assert!(read(rig, file, 0, 64, 65_536).unwrap() == old);
            rig.close(file);
        }
    });
}

#[test]
fn errors_are_reported_and_a_cancelled_operation_completes() {
    on_both(|rig| {
        let path = rig.path("volume");
        VolumeFile::create(&path).unwrap().write_blocks(0, &blocks(1, 8, 4096), true).unwrap();
        let (file, size) = soon(rig, |rig| rig.world.open_volume(&path, false));
        assert_eq!(size, 8 * 4096);
        let blocks = blocks(2, 1, 4096);
        let done = rig.ask(|id| Op::WriteBlocks { id, file, offset: 0, blocks, durable: true });
        assert!(matches!(done, Done::Stored(Err(Error::Invalid))));
        for _ in 0..20 {
            let id = start_read(rig, file, 0, 8, 4096);
            rig.world.submit(Op::Cancel { id });
            let result = finish_read(rig, id);
            assert!(matches!(result, Ok(_) | Err(Error::Cancelled)), "{result:?}");
        }
        rig.close(file);
    });
}

#[test]
fn a_volume_has_one_server() {
    on_both(|rig| {
        let path = rig.path("volume");
        let mut world = |writable| rig.world.open_volume(&path, writable);
        assert_eq!(world(true).unwrap_err().kind(), ErrorKind::NotFound);
        let made = VolumeFile::create(&path).unwrap();
        assert_eq!(VolumeFile::create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(world(true).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(world(false).unwrap_err().kind(), ErrorKind::WouldBlock);
        let file = rig.world.adopt_volume(made);
        assert_eq!(VolumeFile::open(&path, false).unwrap_err().kind(), ErrorKind::WouldBlock);
        write(rig, file, 0, &blocks(1, 1, 4096), true);
        rig.close(file);
        assert_eq!(soon(rig, |_| VolumeFile::open(&path, false)).size().unwrap(), 4096);
        let directory = rig.dir.clone();
        let refused = rig.world.open_volume(&directory, false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn tools_do_without_a_reactor() {
    let path = std::env::temp_dir().join(format!("upcall-volume-{}", std::process::id()));
    let volume = VolumeFile::create(&path).unwrap();
    volume.allocate(1 << 20).unwrap();
    assert_eq!(volume.size().unwrap(), 1 << 20);
    volume.allocate(4096).unwrap();
    assert_eq!(volume.size().unwrap(), 1 << 20);
    let all = blocks(5, 2 * BLOCKS_MAX + 1, 512);
    volume.write_blocks(1024, &all, false).unwrap();
    volume.sync().unwrap();
    assert!(volume.read_blocks(1024, all.len(), 512).unwrap() == all);
    assert!(volume.read_blocks(0, 2, 512).unwrap().iter().all(|b| b.iter().all(|b| *b == 0)));
    assert_eq!(volume.read_blocks(1 << 20, 1, 512).unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(volume);
    let volume = unlocked(|| VolumeFile::open(&path, false));
    assert!(volume.read_blocks(1024, 1, 512).unwrap() == all[..1]);
    assert!(volume.write_blocks(0, &all[..1], false).is_err());
    fs::remove_file(path).unwrap();
}

/// Returns a block device backed by a file, if this host supports it.
fn loop_device(file: &Path) -> Option<PathBuf> {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(name.trim()))
}

#[test]
fn a_block_device_is_a_volume_too() {
    if !is_root() {
        return base::skip("only root has block devices");
    }
    on_both(|rig| {
        let backing = rig.path("backing");
        VolumeFile::create(&backing).unwrap().allocate(1 << 20).unwrap();
        let Some(device) = loop_device(&backing) else {
            return base::skip("no loop device here");
        };
        let (file, size) = rig.world.open_volume(&device, true).unwrap();
        assert_eq!(size, 1 << 20);
        let busy = VolumeFile::open(&device, false).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::WouldBlock);
        let all = blocks(7, 16, 65_536);
        write(rig, file, 0, &all, true);
        assert!(read(rig, file, 0, 16, 65_536).unwrap() == all);
        assert_eq!(read(rig, file, 1 << 20, 1, 4096).unwrap_err(), Error::Io);
        rig.close(file);
        let volume = VolumeFile::open(&device, true).unwrap();
        volume.allocate(1 << 20).unwrap();
        assert_eq!(volume.allocate(2 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
        drop(volume);
        assert!(Command::new("losetup").arg("-d").arg(device).status().unwrap().success());
    });
}
