//! A line to a server that can be cut.

use anyhow::Result;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The line. Its threads end with the process.
pub(super) struct Line {
    /// Where it begins.
    pub(super) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cut: AtomicBool,
    ends: Mutex<Vec<TcpStream>>,
}

impl Line {
    /// One that leads to this port.
    pub(super) fn start(to: u16) -> Result<Line> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Whoever comes while it is cut is hung up on, as by a router.
                if shared.cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(to) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                if let Err(error) = shared.join(from, to) {
                    eprintln!("a line to port {port}: {error:#}");
                }
            }
        });
        Ok(Line { port, state })
    }

    /// Cuts it, or mends it. What is on its way when it is cut is lost.
    pub(super) fn cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::SeqCst);
        let ends = std::mem::take(&mut *self.state.ends.lock().expect("nobody panics with it"));
        ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

impl State {
    fn join(&self, from: TcpStream, to: TcpStream) -> Result<()> {
        from.set_nodelay(true)?;
        to.set_nodelay(true)?;
        let ends = [from.try_clone()?, to.try_clone()?];
        self.ends.lock().expect("nobody panics with it").extend(ends);
        let (back_from, back_to) = (to.try_clone()?, from.try_clone()?);
        std::thread::spawn(move || pass(from, to));
        std::thread::spawn(move || pass(back_from, back_to));
        Ok(())
    }
}

/// Passes on what comes, until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
