//! Walks along names that are no entries.

use super::*;

#[test]
fn names_that_lead_nowhere_take_no_stack() {
    // On a thread with the smallest stack.
    let walk = || {
        let mut lab = Lab::up(b"9P2000.L");
        let names = vec![name("."); 100_000];
        lab.ask(1, Ask::Walk { from: lab.remote.root(), names });
        lab.text
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(walk).unwrap();
    assert_eq!(thread.join().unwrap(), "asks Walk\n  reply 1 Walked\n");
}
