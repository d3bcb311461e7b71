//! x
fn main() {
    let seed: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let n: u64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    let show = if std::env::args().nth(3).is_some() { sim::trace::Show::Print } else { sim::trace::Show::Hash };
    for seed in seed..seed + n {
        let params = sim::params::Params::draw(seed);
        if n == 1 {println!("{params:?}");}
        let outcome = std::panic::catch_unwind(|| sim::run::run(params, show));
        if let Ok(o) = outcome { if n==1 {println!("{:?} {:?} {:x}", o.took, o.totals, o.hash);} } else { println!("SEED {seed}"); }
    }
}
