//! Calls of NFS: streams of them, and their decoders.

use super::streams::{self, number};
use base::FileHandle;
use base::rng::Rng;
use wire::nfs::{
    Call, CreateHow, FileKind, Handle, MakeNode, Results, SetAttributes, SetTime, Special, Stable,
    Timestamp, mount,
};
use wire::rpc::{self, Credential, Sys};

const NAMES: [&[u8]; 8] = [b"a", b"b", b"..", b".", b"", b"x/y", &[b'n'; 255], &[b'n'; 256]];

/// Draws a handle: mostly one that the tree of [`super::stub`] may give out.
fn handle(rng: &mut Rng) -> Handle {
    let identifier = [rng.u8(..5)];
    match rng.u8(..10) {
        0 => Handle::new(&vec![1; rng.usize(..65)]).expect("handles are short"),
        _ => {
            let handle = FileHandle::new(&identifier).expect("it is short");
            front::nfs::seal(&front::Nfs::default().key, &handle)
        }
    }
}

fn attributes(rng: &mut Rng) -> SetAttributes {
    let some = |rng: &mut Rng| rng.bool().then(|| number(rng) as u32);
    let time = |rng: &mut Rng| match rng.u8(..3) {
        0 => SetTime::Keep,
        1 => SetTime::Server,
        _ => {
            let (seconds, nanoseconds) = (number(rng) as u32, number(rng) as u32);
            SetTime::Client(Timestamp { seconds, nanoseconds })
        }
    };
    SetAttributes {
        mode: some(rng),
        uid: some(rng),
        gid: some(rng),
        size: rng.bool().then(|| number(rng)),
        atime: time(rng),
        mtime: time(rng),
    }
}

fn make_node(rng: &mut Rng) -> MakeNode {
    let special = Special { major: rng.u32(..), minor: rng.u32(..) };
    match rng.u8(..5) {
        0 => MakeNode::CharDevice(attributes(rng), special),
        1 => MakeNode::BlockDevice(attributes(rng), special),
        2 => MakeNode::Socket(attributes(rng)),
        3 => MakeNode::Fifo(attributes(rng)),
        _ => MakeNode::Other(FileKind::Directory),
    }
}

fn how(rng: &mut Rng) -> CreateHow {
    match rng.u8(..3) {
        0 => CreateHow::Unchecked(attributes(rng)),
        1 => CreateHow::Guarded(attributes(rng)),
        _ => CreateHow::Exclusive([rng.u8(..3); 8]),
    }
}

/// Draws a call, which uses `data` in a WRITE.
fn call<'a>(rng: &mut Rng, data: &'a [u8]) -> Call<'a> {
    let (one, two) = (handle(rng), handle(rng));
    let (name, other) = (NAMES[rng.usize(..8)], NAMES[rng.usize(..8)]);
    let (cookie, count) = (number(rng), number(rng) as u32);
    match rng.u8(..30) {
        0 => Call::Null {},
        1 | 2 => Call::GetAttr { object: one },
        3 => {
            let guard = Timestamp { seconds: 0, nanoseconds: 0 };
            let guard = rng.bool().then_some(guard);
            Call::SetAttr { object: one, attributes: attributes(rng), guard }
        }
        4..=6 => Call::Lookup { dir: one, name },
        7 => Call::Access { object: one, access: rng.u32(..64) },
        8 => Call::ReadLink { symlink: one },
        9..=12 => Call::Read { file: one, offset: cookie, count },
        13..=16 => {
            let stable = [Stable::Unstable, Stable::DataSync, Stable::FileSync][rng.usize(..3)];
            let length = u32::try_from(data.len()).expect("it is small");
            let count = if rng.u8(..10) == 0 { count } else { length };
            Call::Write { file: one, offset: cookie, count, stable, data }
        }
        17 | 18 => Call::Create { dir: one, name, how: how(rng) },
        19 => Call::MkDir { dir: one, name, attributes: attributes(rng) },
        20 => Call::SymLink { dir: one, name, attributes: attributes(rng), data: other },
        21 => Call::MkNod { dir: one, name, what: make_node(rng) },
        22 => Call::Remove { dir: one, name },
        23 => Call::RmDir { dir: one, name },
        24 => Call::Rename { from_dir: one, from: name, to_dir: two, to: other },
        25 => Call::Link { file: one, dir: two, name },
        26 => Call::ReadDir { dir: one, cookie: cookie % 4, verifier: [0; 8], count },
        27 => {
            let (dir_count, max_count) = (count, number(rng) as u32);
            let (cookie, verifier) = (cookie % 4, [0; 8]);
            Call::ReadDirPlus { dir: one, cookie, verifier, dir_count, max_count }
        }
        28 => match rng.u8(..3) {
            0 => Call::FsStat { root: one },
            1 => Call::FsInfo { root: one },
            _ => Call::PathConf { object: one },
        },
        _ => Call::Commit { file: one, offset: cookie, count },
    }
}

/// Draws the record of a call, in one or several fragments.
pub(super) fn record(rng: &mut Rng, xid: u32) -> Vec<u8> {
    let credential = match rng.u8(..4) {
        0 => Credential::None,
        1 => Credential::Other(6),
        _ => {
            let (uid, gid, gids) = (rng.u32(..3), rng.u32(..3), vec![0; rng.usize(..17)]);
            Credential::Sys(Sys { stamp: 0, machine: b"fuzz", uid, gid, gids })
        }
    };
    let data = vec![7; rng.usize(..300) * if rng.u8(..8) == 0 { 60 } else { 1 }];
    let (mut body, mut arguments) = (Vec::new(), Vec::new());
    let (program, procedure) = match rng.u8(..12) {
        0 => {
            let call = mount::Call::Mount([&b"/"[..], b"/srv/a/b", b"x"][rng.usize(..3)]);
            call.put(&mut arguments);
            (mount::PROGRAM, call.procedure())
        }
        1 => (rng.u32(99_999..100_010), rng.u32(..25)),
        _ => {
            let call = call(rng, &data);
            call.put(&mut arguments);
            (wire::nfs::PROGRAM, call.procedure())
        }
    };
    let version = if rng.u8(..20) == 0 { 2 } else { 3 };
    rpc::Call { xid, program, version, procedure, credential }.put(&mut body);
    body.extend(arguments);
    if rng.u8(..10) > 0 {
        return [&rpc::mark(body.len())[..], &body].concat();
    }
    let (first, second) = body.split_at(rng.usize(..body.len()));
    let size = u32::try_from(first.len()).expect("it is small").to_be_bytes();
    [&size[..], first, &rpc::mark(second.len()), second].concat()
}

/// Tests that a decoded call or result encodes to the same message again.
pub(super) fn decode(rng: &mut Rng) {
    let data = vec![7; rng.usize(..40)];
    let call = call(rng, &data);
    let procedure = if rng.u8(..4) == 0 { rng.u32(..22) } else { call.procedure() };
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    call.put(&mut bytes);
    let spoilt = procedure != call.procedure() || rng.bool();
    if spoilt {
        streams::spoil(rng, &mut bytes);
    }
    match Call::decode(procedure, &bytes) {
        Ok(Some(decoded)) => {
            decoded.put(&mut again);
            assert_eq!(Call::decode(procedure, &again), Ok(Some(decoded)));
        }
        Ok(None) | Err(_) => assert!(spoilt, "a valid call was refused: {call:?}"),
    }
    again.clear();
    if let Ok(Ok(results)) = Results::decode(procedure, &bytes) {
        results.put(&mut again);
        assert_eq!(Results::decode(procedure, &again), Ok(Ok(results)));
    }
    let _ = (rpc::Call::decode(&bytes), rpc::decode_reply(&bytes), mount::decode_mounted(&bytes));
}
