//! Tables of figures of several contestants for the same work, ours first.

use super::table::median;
use std::fmt::Write as _;

/// One kind of work: for each contestant, one figure a round.
pub(crate) struct Figures {
    pub(crate) work: String,
    pub(crate) samples: Vec<Vec<f64>>,
}

impl Figures {
    /// Returns an empty row.
    pub(crate) fn new(work: &str, contestants: usize) -> Figures {
        Figures { work: work.to_owned(), samples: vec![Vec::new(); contestants] }
    }
}

/// Renders one line for each kind of work; `names[0]` is compared with each of the others, round by
/// round.
pub(crate) fn markdown(rows: &[Figures], names: &[&str]) -> String {
    let (own, peers) = names.split_first().expect("somebody is compared");
    let mut text = format!("| work | {own} |");
    peers.iter().for_each(|peer| text += &format!(" {peer} | ratio, median (range) |"));
    text += &format!("\n|---|--:|{}\n", "--:|--:|".repeat(peers.len()));
    for row in rows {
        let Some((own, peers)) = row.samples.split_first() else { continue };
        let _ = write!(text, "| {} | {} |", row.work, figure(own));
        for peer in peers {
            let _ = write!(text, " {} | {} |", figure(peer), ratio(own, peer));
        }
        text.push('\n');
    }
    text
}

/// Formats the median with at least three digits.
fn figure(samples: &[f64]) -> String {
    match median(samples.iter().copied()) {
        none if none.is_nan() => "–".into(),
        small if small < 10.0 => format!("{small:.2}"),
        small if small < 100.0 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Formats the ratio of ours to a peer's over the rounds: median and range.
pub(crate) fn ratio(own: &[f64], peer: &[f64]) -> String {
    let ratios: Vec<_> = own.iter().zip(peer).map(|(own, peer)| own / peer).collect();
    if ratios.is_empty() {
        return "–".into();
    }
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({low:.2}..{high:.2})", median(ratios.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_compared_with_each_peer_round_by_round() {
        let row = Figures {
            work: "gets".into(),
            samples: vec![vec![200.0, 300.0, 400.0], vec![100.0, 100.0, 100.0], vec![]],
        };
        let text = markdown(&[row], &["upcall", "redb", "fjall"]);
        let line = text.lines().last().expect("a table has rows");
        assert_eq!(line, "| gets | 300 | 100 | 3.00 (2.00..4.00) | – | – |");
    }
}
