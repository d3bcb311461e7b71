//! Transactions with conflicting locks.

use super::*;

/// The paper's machine in a readable trace: a deadlock, its victim, and the transaction that
/// continues.
#[test]
fn a_request_that_would_deadlock_is_refused() {
    let mut bench = Bench::new();
    let (one, two) = (bench.begin(), bench.begin());
    assert_eq!(bench.ask(within(one, put(b"a", b"1"))), DONE);
    assert_eq!(bench.ask(within(two, put(b"b", b"2"))), DONE);
    let waits = bench.submit(within(one, put(b"b", b"1")));
    bench.run();
    assert_eq!(bench.answer(waits), None);
    assert_eq!(bench.ask(within(two, get(b"a"))), Err(Error::WouldDeadlock.into()));
    assert_eq!(bench.ask(Request::Rollback { transaction: two }), DONE);
    assert_eq!(bench.answer(waits), Some(DONE));
    assert_eq!(bench.commit(one), DONE);
    assert_eq!(bench.ask(alone(get(b"b"))), value(b"1"));
}

#[test]
fn a_call_outside_of_transactions_is_refused_instead_of_waiting() {
    let mut bench = Bench::new();
    let tx = bench.begin();
    assert_eq!(bench.ask(within(tx, put(b"a", b"1"))), DONE);
    let waits = bench.submit(alone(put(b"a", b"2")));
    let mut out = Vec::new();
    bench.engine.refuse_waiting(bench.now, &mut out);
    bench.take(out);
    assert_eq!(bench.answer(waits), Some(Err(Error::WouldDeadlock.into())));
    assert_eq!(bench.commit(tx), DONE);
}

#[test]
fn a_scanned_range_gets_no_phantoms() {
    let mut bench = Bench::new();
    for key in [b"b", b"d", b"f"] {
        assert_eq!(bench.ask(alone(put(key, b"x"))), DONE);
    }
    let tx = bench.begin();
    let scan = crate::access::tree::Tree(TABLE).range(b"a", Some(b"z")).limited(2);
    let Ok(Reply::Entries { entries, more }) = bench.ask(within(tx, Call::Scan(scan))) else {
        panic!()
    };
    assert_eq!((entries.len(), more), (2, true));
    // Keys behind the range seen can be written.
    assert_eq!(bench.ask(alone(put(b"e", b"y"))), DONE);
    let waits = bench.submit(alone(put(b"c", b"y")));
    bench.run();
    assert_eq!(bench.answer(waits), None);
    assert_eq!(bench.commit(tx), DONE);
    assert_eq!(bench.answer(waits), Some(DONE));
}

#[test]
fn a_request_that_waits_is_answered_when_its_transaction_is_rolled_back() {
    let mut bench = Bench::new();
    let (one, two) = (bench.begin(), bench.begin());
    assert_eq!(bench.ask(within(one, put(b"a", b"1"))), DONE);
    let waits = bench.submit(within(two, get(b"a")));
    assert_eq!(bench.ask(within(two, get(b"b"))), Err(Failure::Busy));
    assert_eq!(bench.ask(Request::Rollback { transaction: two }), DONE);
    assert_eq!(bench.answer(waits), Some(Err(Failure::Over)));
}

/// For any schedule of transfers and refusals: the sum is constant, every request is answered once,
/// and at the end there are no locks.
#[test]
fn money_is_neither_made_nor_lost() {
    // Few accounts, for many conflicts; and more than there is memory for.
    for (seeds, accounts) in [(0..40, 6), (40..43, 3000)] {
        for seed in seeds {
            transfer_at_random(seed, accounts);
        }
    }
}

fn transfer_at_random(seed: u64, accounts: u16) {
    let mut rng = seeded(seed);
    let mut bench = Bench::new();
    bench.rng = seeded(seed + 1000);
    for account in 0..accounts {
        let soon = On::Once(View::Present, Durability::Soon);
        let call = put(&account.to_be_bytes(), &money(100));
        assert_eq!(bench.ask(Request::Call(soon, call)), DONE);
    }
    let mut clients: Vec<Client> = (0..8).map(|_| Client::Idle).collect();
    for _ in 0..1000 {
        let client = rng.usize(0..clients.len());
        let old = std::mem::replace(&mut clients[client], Client::Idle);
        clients[client] = old.step(&mut bench, &mut rng, accounts);
        if rng.bool() {
            bench.step();
        }
    }
    for mut client in clients {
        bench.run();
        while !matches!(client, Client::Idle) {
            client = client.end(&mut bench);
            bench.run();
        }
    }
    assert_eq!(bench.engine.counts(), (0, 0, BTreeMap::new()), "seed {seed}");
    assert!(bench.replies.is_empty(), "seed {seed}");
    let mut bench = if seed.is_multiple_of(2) { bench } else { bench.crash() };
    let mut all = crate::access::tree::Tree(TABLE).range(b"", None);
    let (mut count, mut sum) = (0, 0);
    loop {
        let Ok(Reply::Entries { entries, .. }) = bench.ask(alone(Call::Scan(all.clone()))) else {
            panic!()
        };
        let Some((last, _)) = entries.last() else { break };
        all = all.after(last);
        count += entries.len();
        sum += entries.iter().map(|(_, value)| number(value)).sum::<u64>();
    }
    assert_eq!((count, sum), (usize::from(accounts), 100 * u64::from(accounts)), "seed {seed}");
}

/// Returns an amount, padded to a larger value.
fn money(amount: u64) -> Vec<u8> {
    let mut bytes = amount.to_be_bytes().to_vec();
    bytes.resize(100, 0);
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// State of a client; each waits for one reply.
enum Client {
    Idle,
    Reads(TransactionId, Ticket, [u16; 2], Vec<(u16, u64)>),
    Writes(TransactionId, Ticket, Vec<(u16, u64)>),
    Ends(Ticket),
}

impl Client {
    fn step(self, bench: &mut Bench, rng: &mut Rng, accounts: u16) -> Client {
        match self {
            Client::Idle => {
                let ticket = bench.submit(Request::Begin { view: View::Present, writable: true });
                let Some(Ok(Reply::Begun(id))) = bench.answer(ticket) else { panic!() };
                let from = rng.u16(0..accounts);
                let to = (from + rng.u16(1..accounts)) % accounts;
                let ticket = bench.submit(within(id, get(&from.to_be_bytes())));
                Client::Reads(id, ticket, [from, to], Vec::new())
            }
            Client::Reads(id, ticket, of, mut found) => match bench.answer(ticket) {
                None => Client::Reads(id, ticket, of, found),
                Some(Ok(Reply::Value(value))) => {
                    found.push((of[found.len()], number(&value.unwrap())));
                    if found.len() < of.len() {
                        let ticket = bench.submit(within(id, get(&of[found.len()].to_be_bytes())));
                        return Client::Reads(id, ticket, of, found);
                    }
                    let amount = rng.u64(0..=found[0].1);
                    let left =
                        vec![(found[1].0, found[1].1 + amount), (found[0].0, found[0].1 - amount)];
                    Client::write(bench, id, left)
                }
                Some(_) => Client::Ends(bench.submit(Request::Rollback { transaction: id })),
            },
            Client::Writes(id, ticket, left) => match bench.answer(ticket) {
                None => Client::Writes(id, ticket, left),
                Some(Ok(_)) => Client::write(bench, id, left),
                Some(Err(failure)) => {
                    assert_eq!(failure, Error::WouldDeadlock.into());
                    Client::Ends(bench.submit(Request::Rollback { transaction: id }))
                }
            },
            Client::Ends(ticket) => match bench.answer(ticket) {
                None => Client::Ends(ticket),
                Some(answer) => {
                    assert_eq!(answer, DONE);
                    Client::Idle
                }
            },
        }
    }

    fn write(bench: &mut Bench, id: TransactionId, mut left: Vec<(u16, u64)>) -> Client {
        match left.pop() {
            Some((account, amount)) => {
                let put = put(&account.to_be_bytes(), &money(amount));
                Client::Writes(id, bench.submit(within(id, put)), left)
            }
            None => {
                let durability = Durability::Durable;
                Client::Ends(bench.submit(Request::Commit { transaction: id, durability }))
            }
        }
    }

    /// Rolls back its transaction.
    fn end(self, bench: &mut Bench) -> Client {
        let (id, ticket) = match self {
            Client::Idle => return Client::Idle,
            Client::Reads(id, ticket, ..) | Client::Writes(id, ticket, _) => (id, ticket),
            Client::Ends(ticket) => {
                assert_eq!(bench.answer(ticket), Some(DONE));
                return Client::Idle;
            }
        };
        let over = bench.submit(Request::Rollback { transaction: id });
        assert!(bench.answer(ticket).is_some());
        Client::Ends(over)
    }
}
