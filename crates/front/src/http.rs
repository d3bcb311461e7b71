//! HTTP/1.1 (being written).
#![allow(missing_docs, clippy::unused_self)]
use crate::{Export, Identity, Input, Output};
use base::{Automaton, Buf, Instant};

#[derive(Debug)]
pub struct Session;

impl Session {
    pub fn new(_export: Export, _identity: Identity, _local: bool) -> Session {
        Session
    }
    pub fn is_hungry(&self) -> bool {
        false
    }
    pub fn receive_into(&mut self) -> Option<Buf> {
        None
    }
    pub fn is_over(&self) -> bool {
        true
    }
    pub fn set_allowance(&mut self, _bytes: usize) {}
    pub fn bytes(&self) -> usize {
        0
    }
    pub fn state_name(&self) -> &'static str {
        "none"
    }
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        std::iter::empty()
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;
    fn step(&mut self, _now: Instant, _input: Input, out: &mut Vec<Output>) {
        out.push(Output::Hangup("not there yet"));
    }
}
