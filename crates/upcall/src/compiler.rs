//! STUB until the compile service is merged.
use reactor::{Form, Mailbox, World};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use base::Reactor as _;
use base::op::{Done, Op, Parcel};
use storelet::compile::*;
use storelet::{Crossing, Engine};

pub(crate) struct Compiler { mailbox: Mailbox, all: Sender<Vec<Mailbox>>, thread: std::thread::JoinHandle<()> }
impl Compiler {
    pub(crate) fn start(engine: Arc<Engine>, _cache: Option<PathBuf>) -> Result<Compiler, String> {
        let (told, tells) = channel();
        let (all, gets) = channel::<Vec<Mailbox>>();
        let thread = std::thread::spawn(move || {
            let mut world = World::new(Form::Threads, &reactor::Config::default()).unwrap();
            told.send(world.mailbox()).unwrap();
            world.set_mailboxes(gets.recv().unwrap());
            let mut known = std::collections::BTreeMap::new();
            let mut events = Vec::new();
            loop {
                world.wait(None, &mut events);
                for event in events.drain(..) {
                    let Done::Parcel(parcel) = event.done else { continue };
                    match *parcel.0.downcast::<ToCompiler>().unwrap() {
                        ToCompiler::End => return,
                        ToCompiler::Cancel(_) => {}
                        ToCompiler::Compile { ticket, module } => {
                            let result = match module {
                                Module::Known(hash) => known.get(&hash).cloned().ok_or(Refused::Unknown),
                                Module::Sent(parts) => {
                                    let bytes: Vec<u8> = parts.iter().flat_map(|p| p.to_vec()).collect();
                                    let hash = Hash(sha2::Sha256::digest(&bytes).into());
                                    use sha2::Digest as _;
                                    engine.compile(&bytes).map(|program| { let f = Fresh { hash, program, was_there: false, cpu_ns: 0 }; known.insert(hash, f.clone()); f }).map_err(|e| Refused::Malformed(format!("{e:#}")))
                                }
                            };
                            use base::Reactor as _;
                            world.submit(Op::Post { to: node::HOME, parcel: Crossing::Compiled(Compiled { ticket, result }).parcel() });
                        }
                    }
                }
            }
        });
        Ok(Compiler { mailbox: tells.recv().unwrap(), all, thread })
    }
    pub(crate) fn mailbox(&self) -> Mailbox { self.mailbox.clone() }
    pub(crate) fn set_mailboxes(&self, all: Vec<Mailbox>) { let _ = self.all.send(all); }
    pub(crate) fn join(self) -> Result<(), String> { drop(self.all); self.thread.join().map_err(|_| "panicked".to_string()) }
}
