//! Messages between the automata of a node.

use crate::{changes, connection};
use tree::Input as TreeInput;

/// A message between automata.
#[derive(Debug)]
pub(crate) enum Message {
    Connection(usize, connection::Input),
    Names(names::Input),
    Tree(u16, TreeInput),
    Changes(changes::Input),
}
