use super::*;
use base::rng::seeded;

/// Requests that are executed at once have the same answers and records as queued ones.
#[test]
fn requests_are_executed_at_once_as_if_they_had_waited() {
    for seed in 0..100 {
        let mut rng = seeded(seed);
        let mut both = [replica(A, &[A, B]), replica(A, &[A, B])];
        let mut records = 0;
        for ticket in 1..100 {
            let mut input = add(ticket, rng.i64(-9..9), rng.usize(0..6) == 0, &Vector::new());
            if let Input::Request { after, operator, .. } = &mut input {
                match rng.usize(0..5) {
                    0 | 1 => *operator = Operator::Read,
                    2 => *operator = Operator::AddBlind(1),
                    3 => after.raise(A, both[0].done().get(A) + rng.u64(0..2)),
                    _as_it_is => {}
                }
            }
            let persists = rng.usize(0..3) == 0;
            let mut outputs = [u64::MAX, 0].into_iter().zip(&mut both).map(|(allowance, it)| {
                it.set_allowance(allowance);
                let mut out = step(it, input.clone());
                it.set_allowance(u64::MAX);
                // The second one is for requests that waited for this one.
                (0..2).for_each(|_| out.extend(step(it, Input::Tick)));
                if persists {
                    out.extend(step(it, Input::Persisted(records)));
                }
                out.retain(|output| matches!(output, Output::Answer { .. } | Output::Persist(..)));
                out
            });
            let (at_once, queued) = (outputs.next().unwrap(), outputs.next().unwrap());
            assert_eq!(at_once, queued, "seed {seed}");
            let last = at_once.iter().filter_map(|output| {
                let Output::Persist(number, _) = output else { return None };
                Some(*number)
            });
            records = last.max().unwrap_or(records);
        }
        let [at_once, queued] = &mut both;
        assert_eq!(at_once.current(), queued.current(), "seed {seed}");
    }
}
