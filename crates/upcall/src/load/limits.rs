//! Limits of the verdict, from the command line.

use crate::units::{count, time};
use load::verdict::Thresholds;
use std::time::Duration;

/// A limit that replaces the default one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Near(f64),
    Tail(u64),
    Drift(u64),
    Rate(f64),
    Skipped(u64),
    Errors(u64),
    Witness(u64),
}

impl Limit {
    /// Parses `near=90%`, `tail=1ms`, `skipped=10` and the like.
    ///
    /// # Errors
    /// A message with the known limits.
    pub(crate) fn parse(text: &str) -> Result<Limit, String> {
        let known = "write near=95%, tail=100us, drift=100us, rate=1%, skipped=0, errors=0 or \
                     witness=50us, each with a limit of your own";
        let (rule, limit) = text.split_once('=').ok_or(known)?;
        Ok(match rule {
            "near" => Limit::Near(share(limit)?),
            "tail" => Limit::Tail(nanos(limit)?),
            "drift" => Limit::Drift(nanos(limit)?),
            "rate" => Limit::Rate(share(limit)?),
            "skipped" => Limit::Skipped(count(limit)?),
            "errors" => Limit::Errors(count(limit)?),
            "witness" => Limit::Witness(nanos(limit)?),
            _ => return Err(known.to_string()),
        })
    }

    fn apply(self, to: &mut Thresholds) {
        match self {
            Limit::Near(share) => to.near_share = Some(share),
            Limit::Tail(nanos) => to.p99_ns = Some(nanos),
            Limit::Drift(nanos) => to.drift_ns = Some(nanos),
            Limit::Rate(share) => to.rate_share = Some(share),
            Limit::Skipped(most) => to.skipped = most,
            Limit::Errors(most) => to.errors = most,
            Limit::Witness(nanos) => to.witness_ns = nanos,
        }
    }
}

/// Returns the limits of a run: in a closed loop I/Os follow completions, so lateness and rate are
/// judged only with an explicit limit.
pub(crate) fn thresholds(is_open: bool, limits: &[Limit]) -> Thresholds {
    let usual = Thresholds::default();
    let mut thresholds = match is_open {
        true => usual,
        false => {
            Thresholds { near_share: None, p99_ns: None, drift_ns: None, rate_share: None, ..usual }
        }
    };
    limits.iter().for_each(|limit| limit.apply(&mut thresholds));
    thresholds
}

fn nanos(text: &str) -> Result<u64, String> {
    let long: Duration = time(text)?;
    u64::try_from(long.as_nanos()).map_err(|_| "write a shorter time".to_string())
}

/// Parses a share in percent.
fn share(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    let share = number.filter(|percent| (0.0..=100.0).contains(percent));
    share.map(|percent| percent / 100.0).ok_or_else(|| "write a share like 95%".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_their_units() {
        assert_eq!(Limit::parse("near=90%"), Ok(Limit::Near(0.9)));
        assert_eq!(Limit::parse("rate=2.5"), Ok(Limit::Rate(0.025)));
        assert_eq!(Limit::parse("tail=1ms"), Ok(Limit::Tail(1_000_000)));
        assert_eq!(Limit::parse("errors=1k"), Ok(Limit::Errors(1000)));
        for text in ["near", "near=", "near=101%", "near=-1", "tail=x", "skipped=1.5", "other=1"] {
            assert!(Limit::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lateness_of_a_closed_loop_is_judged_only_on_demand() {
        let thresholds = super::thresholds;
        assert_eq!(thresholds(true, &[]), Thresholds::default());
        let closed = thresholds(false, &[Limit::Tail(7), Limit::Skipped(2)]);
        assert_eq!((closed.near_share, closed.p99_ns, closed.skipped), (None, Some(7), 2));
        assert_eq!(closed.rate_share, None, "it has no schedule");
    }
}
