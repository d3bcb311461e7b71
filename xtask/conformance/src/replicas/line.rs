//! A TCP relay to a server that can be cut, or silently drop data.

use anyhow::Result;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The relay. Its threads end with the process.
pub(super) struct Line {
    /// Port of the relay.
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

/// Fault of a line.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Weather {
    /// Data is relayed.
    #[default]
    Fair,
    /// Connections are reset, as by a router.
    Cut,
    /// Data is dropped silently.
    Silent,
}

#[derive(Default)]
struct State {
    weather: Weather,
    ends: Vec<TcpStream>,
}

impl Line {
    /// Starts a relay to this port.
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

    /// Sets the fault. A change to cut or fair closes present connections: data in transit, or
    /// dropped, is lost.
    pub(super) fn turn(&self, weather: Weather) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.weather = weather;
        if weather != Weather::Silent {
            state.ends.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }
}

/// Connects a client to the server. The state is checked under the lock that also guards the list
/// of connections to close: none gets through in between.
fn join(shared: &Arc<Mutex<State>>, from: TcpStream, to: u16) -> Result<()> {
    let mut state = shared.lock().expect("nobody panics with it");
    if state.weather == Weather::Cut {
        return Ok(());
    }
    // The relay of a dead server closes connections, too.
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

/// Relays data until either side ends.
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
