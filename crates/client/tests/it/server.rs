//! Scripted server on a socket of its own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use upcall_client::{Address, Client, Error, Options};
use wire::ninep::{Qid, Rmessage, Tmessage, put_dirent, readdir_header};

/// Contents of its only file.
pub(crate) fn contents() -> Vec<u8> {
    (0..3_000_000u32).map(|number| (number / 5) as u8).collect()
}

/// Returns the reply bytes to a request: no message, one, or several.
pub(crate) type Script = Box<dyn FnMut(u16, &Tmessage<'_>) -> Vec<u8> + Send>;

/// Serves connections one at a time, each with a script created by `make`.
pub(crate) fn serve(mut make: impl FnMut() -> Script + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that disconnects is not an error.
            let _ = exchange(stream.unwrap(), &mut make());
        }
    });
    Address::Tcp { host: "127.0.0.1".to_string(), port }
}

fn exchange(mut stream: TcpStream, script: &mut Script) -> std::io::Result<()> {
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut message = size.to_vec();
        message.resize(u32::from_le_bytes(size) as usize, 0);
        stream.read_exact(&mut message[4..])?;
        let (tag, message) = Tmessage::decode(&message).expect("a client that is right");
        let reason = script(tag, &message);
        if reason == HANG_UP {
            return Ok(());
        }
        stream.write_all(&reason)?;
    }
}

/// Reply of a script that closes the connection.
pub(crate) const HANG_UP: &[u8] = b"hang up";

pub(crate) fn encode(tag: u16, message: &Rmessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}

fn refuse(tag: u16, plan9: bool, ecode: u32) -> Vec<u8> {
    let ename = b"file does not exist";
    match plan9 {
        true => encode(tag, &Rmessage::Error { ename }),
        false => encode(tag, &Rmessage::Lerror { ecode }),
    }
}

/// Returns the script of a correct server: a directory with one `file`.
pub(crate) fn honest() -> Script {
    let mut plan9 = false;
    let mut at_file = std::collections::BTreeMap::new();
    Box::new(move |tag, message| {
        if let Tmessage::Version { version, .. } = message {
            plan9 = *version == b"9P2000";
        }
        if let Tmessage::Walk { fid, newfid, names } = message {
            let from = at_file.get(fid).copied().unwrap_or(false);
            let file = if names.as_slice().is_empty() { from } else { true };
            if names.as_slice().iter().all(|name| *name == b"file") && names.as_slice().len() < 2 {
                at_file.insert(*newfid, file);
            } else {
                return refuse(tag, plan9, 2);
            }
        }
        truth(tag, message, plan9, &at_file).unwrap_or_else(|| refuse(tag, plan9, 95))
    })
}

type AtFile = std::collections::BTreeMap<u32, bool>;

fn truth(tag: u16, message: &Tmessage<'_>, plan9: bool, at_file: &AtFile) -> Option<Vec<u8>> {
    let qid = |file: bool| Qid { kind: if file { 0 } else { Qid::DIR }, version: 0, path: 1 };
    let is_file = |fid: &u32| at_file.get(fid).copied().unwrap_or(false);
    if let Tmessage::Version { msize, version } = message {
        return Some(encode(tag, &Rmessage::Version { msize: *msize, version }));
    }
    if let Tmessage::Attach { .. } = message {
        return Some(encode(tag, &Rmessage::Attach { qid: qid(false) }));
    }
    if let Tmessage::Walk { names, newfid, .. } = message {
        let qids = names.as_slice().iter().map(|_| qid(is_file(newfid))).collect();
        return Some(encode(tag, &Rmessage::Walk { qids }));
    }
    if let (Tmessage::Lopen { fid, .. }, false) = (message, plan9) {
        return Some(encode(tag, &Rmessage::Lopen { qid: qid(is_file(fid)), iounit: 0 }));
    }
    if let (Tmessage::Getattr { fid, .. }, false) = (message, plan9) {
        return Some(attributes(tag, qid(is_file(fid)), is_file(fid)));
    }
    if let (Tmessage::Readdir { offset, .. }, false) = (message, plan9) {
        let mut entries = Vec::new();
        if *offset == 0 {
            put_dirent(qid(true), 1, 8, b"file", &mut entries);
        }
        return Some([&readdir_header(tag, entries.len())[..], &entries].concat());
    }
    if let Tmessage::Read { offset, count, .. } = message {
        let all = contents();
        let start = usize::try_from(*offset).unwrap().min(all.len());
        let end = (start + *count as usize).min(all.len());
        return Some(encode(tag, &Rmessage::Read { data: wire::ninep::Data(&all[start..end]) }));
    }
    if let Tmessage::Write { data, .. } = message {
        return Some(encode(tag, &Rmessage::Write { count: data.0.len() as u32 }));
    }
    if let Tmessage::Clunk { .. } = message {
        return Some(encode(tag, &Rmessage::Clunk {}));
    }
    if let Tmessage::Flush { .. } = message {
        return Some(encode(tag, &Rmessage::Flush {}));
    }
    None
}

fn attributes(tag: u16, qid: Qid, file: bool) -> Vec<u8> {
    let (mode, size) = if file { (0o100_644, contents().len() as u64) } else { (0o040_755, 0) };
    let date = (1, 0);
    let all = Rmessage::Getattr {
        valid: 0x7ff,
        qid,
        mode,
        uid: 1,
        gid: 1,
        nlink: 1,
        rdev: 0,
        size,
        blksize: 4096,
        blocks: 1,
        atime_sec: date.0,
        atime_nsec: date.1,
        mtime_sec: date.0,
        mtime_nsec: date.1,
        ctime_sec: date.0,
        ctime_nsec: date.1,
        btime_sec: 0,
        btime_nsec: 0,
        generation: 0,
        data_version: 0,
    };
    encode(tag, &all)
}

/// Returns the script of a correct server, except for replies of `lie`.
pub(crate) fn except(
    mut lie: impl FnMut(u16, &Tmessage<'_>) -> Option<Vec<u8>> + Send + 'static,
) -> Script {
    let mut truth = honest();
    Box::new(move |tag, message| match lie(tag, message) {
        Some(reason) => reason,
        None => truth(tag, message),
    })
}

/// Connects with a deadline that suffices for any machine.
pub(crate) fn connect(address: &Address) -> Result<Client, Error> {
    connect_within(address, Duration::from_secs(60))
}

pub(crate) fn connect_within(address: &Address, deadline: Duration) -> Result<Client, Error> {
    Client::connect(address, &Options { deadline, ..Options::default() })
}
