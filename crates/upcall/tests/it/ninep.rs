//! A minimal 9P2000.L client for these tests.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Error number of a refusal.
pub(crate) type Refused = u32;

/// Byte stream in both directions.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A connection with its root as fid 0.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    next: u32,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Client {
        Client::attach(Box::new(TcpStream::connect(address).unwrap()), "test", "")
    }

    /// Connects as the user of this process, to a part of the tree.
    pub(crate) fn connect_unix(socket: &Path, aname: &str) -> Client {
        Client::attach(Box::new(UnixStream::connect(socket).unwrap()), "", aname)
    }

    /// Connects, or returns the server's refusal.
    pub(crate) fn try_connect(address: &str) -> Result<Client, Refused> {
        Client::try_attach(Box::new(TcpStream::connect(address).unwrap()), "test", "")
    }

    fn attach(stream: Box<dyn Stream>, uname: &str, aname: &str) -> Client {
        Client::try_attach(stream, uname, aname).unwrap()
    }

    fn try_attach(stream: Box<dyn Stream>, uname: &str, aname: &str) -> Result<Client, Refused> {
        let mut client = Client { stream, next: 1 };
        client.call(100, &[&(1u32 << 16).to_le_bytes(), &text(b"9P2000.L")]).unwrap();
        let no = u32::MAX.to_le_bytes();
        let root = 0u32.to_le_bytes();
        client.call(104, &[&root, &no, &text(uname.as_bytes()), &text(aname.as_bytes()), &no])?;
        Ok(client)
    }

    /// Opens a file `times` times, or until the server refuses; returns the number of opens.
    pub(crate) fn hold(&mut self, path: &str, times: usize) -> usize {
        let mut open = || self.call_open(path);
        (0..times).take_while(|_| open().is_ok()).count()
    }

    fn call_open(&mut self, path: &str) -> Result<[u8; 4], Refused> {
        let fid = self.walk(path)?;
        self.call(12, &[&fid, &[0; 4]])?;
        Ok(fid)
    }

    /// Sends one message; returns the reply without the header.
    fn call(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Vec<u8>, Refused> {
        let body = parts.concat();
        let size = (7 + body.len() as u32).to_le_bytes();
        let tag = if kind == 100 { u16::MAX } else { 1 }.to_le_bytes();
        self.stream.write_all(&[&size[..], &[kind], &tag, &body].concat()).unwrap();
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).unwrap();
        let mut answer = vec![0; u32::from_le_bytes(head[..4].try_into().unwrap()) as usize - 7];
        self.stream.read_exact(&mut answer).unwrap();
        match head[4] {
            7 => Err(u32::from_le_bytes(answer[..4].try_into().unwrap())),
            other => {
                assert_eq!(other, kind + 1);
                Ok(answer)
            }
        }
    }

    /// Walks to a path; returns the new fid.
    pub(crate) fn walk(&mut self, path: &str) -> Result<[u8; 4], Refused> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let fid = self.next.to_le_bytes();
        self.next += 1;
        let count = (names.len() as u16).to_le_bytes();
        let names: Vec<u8> = names.iter().flat_map(|name| text(name.as_bytes())).collect();
        let answer = self.call(110, &[&[0; 4], &fid, &count, &names])?;
        if answer[..2] == count { Ok(fid) } else { Err(2) }
    }

    pub(crate) fn make_dir(&mut self, above: &str, name: &str) -> Result<(), Refused> {
        let fid = self.walk(above)?;
        let (mode, gid) = (0o755u32.to_le_bytes(), 0u32.to_le_bytes());
        self.call(72, &[&fid, &text(name.as_bytes()), &mode, &gid]).map(|_| ())
    }

    pub(crate) fn remove_dir(&mut self, above: &str, name: &str) -> Result<(), Refused> {
        let fid = self.walk(above)?;
        self.call(76, &[&fid, &text(name.as_bytes()), &0x200u32.to_le_bytes()]).map(|_| ())
    }

    /// Creates an empty file with this mode.
    pub(crate) fn create(&mut self, name: &str, mode: u32) -> Result<(), Refused> {
        let fid = self.walk("")?;
        let (flags, mode, gid) = (2u32.to_le_bytes(), mode.to_le_bytes(), 0u32.to_le_bytes());
        self.call(14, &[&fid, &text(name.as_bytes()), &flags, &mode, &gid]).map(|_| ())
    }

    /// Changes the mode or the owner of a file.
    pub(crate) fn set(
        &mut self,
        path: &str,
        mode: Option<u32>,
        uid: Option<u32>,
    ) -> Result<(), Refused> {
        let fid = self.walk(path)?;
        let valid = u32::from(mode.is_some()) | u32::from(uid.is_some()) << 1;
        let numbers = [valid, mode.unwrap_or(0), uid.unwrap_or(0), 0];
        let numbers = numbers.map(u32::to_le_bytes).concat();
        self.call(26, &[&fid, &numbers, &[0; 40]]).map(|_| ())
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(
        &mut self,
        path: &str,
        name: &str,
        value: &[u8],
    ) -> Result<(), Refused> {
        let fid = self.walk(path)?;
        let size = (value.len() as u64).to_le_bytes();
        self.call(32, &[&fid, &text(name.as_bytes()), &size, &[0; 4]])?;
        let count = (value.len() as u32).to_le_bytes();
        self.call(118, &[&fid, &[0; 8], &count, value])?;
        self.call(120, &[&fid]).map(|_| ())
    }

    /// Writes to the beginning of a file, which stays open.
    pub(crate) fn write(&mut self, path: &str, data: &[u8]) -> Result<(), Refused> {
        let fid = self.walk(path)?;
        self.call(12, &[&fid, &1u32.to_le_bytes()])?;
        let count = (data.len() as u32).to_le_bytes();
        self.call(118, &[&fid, &[0; 8], &count, data]).map(|_| ())
    }

    /// Reads the first bytes of a file.
    pub(crate) fn read(&mut self, path: &str) -> Result<Vec<u8>, Refused> {
        let fid = self.call_open(path)?;
        let answer = self.call(116, &[&fid, &[0; 8], &4096u32.to_le_bytes()])?;
        Ok(answer[4..].to_vec())
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}
