//! The Markdown table of a benchmark.

use super::{Row, Sample};
use rig::server::Kind;
use std::fmt::Write as _;

/// Renders one line for each kind of work and each build of ours; the peer alone if ours did not
/// run.
pub(crate) fn markdown(rows: &[Row], peer: Kind) -> String {
    let peer_name = peer.name();
    let mut text = format!(
        "| work | server | requests/s | {peer_name} | ratio, median (range) | CPU µs/request \
         | {peer_name} | ratio | calls/request | {peer_name} |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for row in rows {
        let base = samples(row, peer);
        let ours = || row.samples.iter().filter(|(kind, _)| *kind != peer);
        for (kind, own) in ours() {
            line(&mut text, row, (*kind, own), (peer, base));
        }
        if ours().next().is_none() {
            line(&mut text, row, (peer, base), (peer, base));
        }
    }
    text
}

fn line(text: &mut String, row: &Row, own: (Kind, &[Sample]), peer: (Kind, &[Sample])) {
    let rate = |samples: &[Sample]| median(samples.iter().map(|sample| sample.rate));
    let cpu = |samples: &[Sample]| median(samples.iter().map(|sample| sample.cpu_us));
    let pairs = || own.1.iter().zip(peer.1);
    let ratios: Vec<_> = pairs().map(|(own, peer)| own.rate / peer.rate).collect();
    let costs = pairs().map(|(own, peer)| own.cpu_us / peer.cpu_us);
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let range = format!("{:.2} ({low:.2}..{high:.2})", median(ratios.iter().copied()));
    let _ = writeln!(
        text,
        "| {} | {} | {:.0} | {:.0} | {range} | {:.1} | {:.1} | {:.2} | {} | {} |",
        row.work,
        own.0.name(),
        rate(own.1),
        rate(peer.1),
        cpu(own.1),
        cpu(peer.1),
        median(costs),
        calls(row, own.0),
        calls(row, peer.0),
    );
}

fn samples(row: &Row, kind: Kind) -> &[Sample] {
    row.samples.iter().find(|(other, _)| *other == kind).map_or(&[], |(_, samples)| samples)
}

fn calls(row: &Row, kind: Kind) -> String {
    let found = row.calls.iter().find(|(other, _)| *other == kind).and_then(|(_, calls)| *calls);
    found.map_or("–".into(), |calls| format!("{calls:.2}"))
}

/// Returns the median, the lower of two; NaN for no values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_ratio_of_each_round() {
        let sample = |rate| Sample { rate, cpu_us: 10.0 };
        let row = Row {
            work: "read".into(),
            samples: vec![
                (Kind::Diod, vec![sample(10.0), sample(10.0), sample(20.0)]),
                (Kind::Uring, vec![sample(20.0), sample(30.0), sample(20.0)]),
            ],
            calls: vec![(Kind::Diod, Some(2.0)), (Kind::Uring, None)],
        };
        let text = markdown(&[row], Kind::Diod);
        let line = text.lines().last().expect("a table has rows");
        let expected =
            "| read | uring | 20 | 10 | 2.00 (1.00..3.00) | 10.0 | 10.0 | 1.00 | – | 2.00 |";
        assert_eq!(line, expected);
    }
}
