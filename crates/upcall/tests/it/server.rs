//! A server of the test's own, and a directory for it.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_upcall");

/// A directory accessible to everybody, removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch::in_dir(&std::env::temp_dir(), name)
    }

    pub(crate) fn in_dir(dir: &Path, name: &str) -> Scratch {
        use std::os::unix::fs::PermissionsExt;
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = dir.join(format!("upcall-it-{pid}-{count}-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    greeting: String,
    http: String,
    ninep: String,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Serves a directory on free ports.
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Server {
        let dir = dir.to_str().unwrap();
        let ports = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        Server::with(&[&[dir][..], &ports, args].concat())
    }

    /// Runs `upcall serve` with `args`; reads the greeting to its last line.
    pub(crate) fn with(args: &[&str]) -> Server {
        let mut command = Command::new(BINARY);
        Server::run(command.arg("serve").args(args))
    }

    /// Runs a command that starts a server.
    pub(crate) fn run(command: &mut Command) -> Server {
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("Ctrl-C ends it") {
            assert!(output.read_line(&mut greeting).unwrap() > 0, "it ended early: {greeting}");
        }
        let line = greeting.lines().find_map(|line| line.strip_prefix("http     http://"));
        let http = line.unwrap().trim_end_matches('/').to_string();
        let line = greeting.lines().find_map(|line| line.strip_prefix("9p       "));
        let ninep = line.unwrap().to_string();
        Server { child, greeting, http, ninep, _output: output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ninep(&self) -> &str {
        &self.ninep
    }

    /// Kills it, as a power failure would end the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn greeting(&self) -> &str {
        &self.greeting
    }

    pub(crate) fn http(&self) -> &str {
        &self.http
    }

    /// Returns its NFS address.
    pub(crate) fn nfs(&self) -> &str {
        let line = self.greeting.lines().find_map(|line| line.strip_prefix("nfs      "));
        line.expect("it was started with --nfs")
    }

    pub(crate) fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    /// Waits for its end; returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Interrupts it and waits; returns its exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.interrupt();
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the whole response to a `GET`, head and body.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Puts a file over HTTP; returns the first line of the response, if there was one.
pub(crate) fn put(address: &str, path: &str, body: &[u8]) -> Option<String> {
    change(address, "PUT", path, body)
}

/// Deletes a file over HTTP; returns the first line of the response, if there was one.
pub(crate) fn delete(address: &str, path: &str) -> Option<String> {
    change(address, "DELETE", path, b"")
}

fn change(address: &str, method: &str, path: &str, body: &[u8]) -> Option<String> {
    let mut client = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    client.write_all(&[head.as_bytes(), body].concat()).ok()?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).ok()?;
    answer.lines().next().map(str::to_string)
}

/// Runs `upcall volume`; returns exit code, output and error output.
pub(crate) fn volume(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(BINARY).arg("volume").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs `upcall serve` with arguments that it should refuse; returns exit code and error output.
pub(crate) fn upcall(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).arg("serve").args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
