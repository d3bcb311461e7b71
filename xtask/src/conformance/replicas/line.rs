//! A line to a server that can be cut, or swallow what is said.

use anyhow::Result;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The line. Its threads end with the process.
pub(super) struct Line {
    /// Where it begins.
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

/// What becomes of what is said.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Weather {
    /// It arrives.
    #[default]
    Fair,
    /// Whoever comes is hung up on, as by a router.
    Cut,
    /// It does not arrive, and nobody is told.
    Silent,
}

#[derive(Default)]
struct State {
    weather: Weather,
    ends: Vec<TcpStream>,
}

impl Line {
    /// One that leads to this port.
    pub(super) fn start(to: u16) -> Result<Line> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                if let Err(error) = join(&shared, from, to) {
                    eprintln!("a line to port {port}: {error:#}");
                }
            }
        });
        Ok(Line { port, state })
    }

    /// Whoever talks by it when it becomes cut or fair again is hung up on: what was on its way, or
    /// was swallowed, is lost.
    pub(super) fn turn(&self, weather: Weather) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.weather = weather;
        if weather != Weather::Silent {
            state.ends.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }
}

/// Leads who has come to the server. Whether that can be is looked at together with who is hung up
/// on: nobody gets through meanwhile.
fn join(shared: &Arc<Mutex<State>>, from: TcpStream, to: u16) -> Result<()> {
    let mut state = shared.lock().expect("nobody panics with it");
    if state.weather == Weather::Cut {
        return Ok(());
    }
    // A server that is away hangs up, too.
    let Ok(to) = TcpStream::connect(("127.0.0.1", to)) else { return Ok(()) };
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let pairs = [(from.try_clone()?, to.try_clone()?), (to.try_clone()?, from.try_clone()?)];
    state.ends.extend([from, to]);
    for (from, to) in pairs {
        let shared = shared.clone();
        std::thread::spawn(move || pass(&shared, from, to));
    }
    Ok(())
}

/// Passes on what comes, until either side ends.
fn pass(shared: &Mutex<State>, mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let weather = shared.lock().expect("nobody panics with it").weather;
        if weather != Weather::Silent && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
