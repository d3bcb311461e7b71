//! Canaries of storelets: errors planted on purpose, which the checks must detect.

use base::op::Envelope;
use node::HOME;
use storelet::{Crossing, ToHome, ToWorker};

/// A planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A worker does not release a node.
    LeakNode,
    /// A worker does not close an open file.
    LeakFile,
    /// A worker releases a node twice.
    GiveTwice,
    /// A reply of home is lost.
    LoseAnswer,
    /// Output of a storelet arrives twice.
    SayTwice,
    /// Output of a storelet is lost.
    LoseOutput,
    /// Output of a storelet is changed.
    OtherByte,
    /// A storelet gets a larger budget than requested.
    OtherBudget,
    /// The end of a storelet is not reported.
    LoseEnd,
    /// A storelet's end is reported wrongly.
    OtherEnd,
    /// An installation is reported as stored, and is not.
    LoseKept,
    /// The record that a file was processed is lost.
    ForgetFile,
    /// Half of a storelet's usage is not charged.
    LoseCharge,
    /// A storelet gets more than the server's maximum.
    OverMaximum,
}

impl Mistake {
    /// All planted errors.
    pub const ALL: [Mistake; 14] = [
        Mistake::LeakNode,
        Mistake::LeakFile,
        Mistake::GiveTwice,
        Mistake::LoseAnswer,
        Mistake::SayTwice,
        Mistake::LoseOutput,
        Mistake::OtherByte,
        Mistake::OtherBudget,
        Mistake::LoseEnd,
        Mistake::OtherEnd,
        Mistake::LoseKept,
        Mistake::ForgetFile,
        Mistake::LoseCharge,
        Mistake::OverMaximum,
    ];
}

/// Returns an envelope in transit, or its replacement on every third of the mistake's occasions.
pub(super) fn spoil(
    mistake: Mistake,
    occasions: &mut u32,
    from: usize,
    to: usize,
    mut envelope: Envelope,
) -> Vec<Envelope> {
    let label = node::label(&envelope);
    let of_worker = to == HOME && from > 1;
    let gives = |what: &str| label.starts_with("Names(") && label.contains(&format!(", {what}("));
    let fits = match mistake {
        Mistake::LeakNode | Mistake::GiveTwice => of_worker && gives("Release"),
        Mistake::LeakFile => of_worker && gives("Close"),
        Mistake::LoseAnswer => from == HOME && label.starts_with("Reply"),
        Mistake::SayTwice | Mistake::LoseOutput | Mistake::OtherByte => {
            label.starts_with("Home(Emitted")
        }
        Mistake::OtherBudget | Mistake::OverMaximum => label.starts_with("Worker(Begin"),
        Mistake::LoseEnd | Mistake::OtherEnd | Mistake::LoseCharge => {
            label.starts_with("Home(Ended")
        }
        // These belong to the world of installed storelets.
        Mistake::LoseKept | Mistake::ForgetFile => false,
    };
    *occasions += u32::from(fits);
    if !fits || !occasions.is_multiple_of(3) {
        return vec![envelope];
    }
    match (mistake, envelope.0.downcast_mut::<Crossing>()) {
        (Mistake::SayTwice, Some(Crossing::Home(ToHome::Emitted(id, stream, bytes)))) => {
            let again = Crossing::Home(ToHome::Emitted(*id, *stream, bytes.clone())).envelope();
            vec![envelope, again]
        }
        (Mistake::OtherByte, Some(Crossing::Home(ToHome::Emitted(_, _, bytes)))) => {
            bytes[0] ^= 1;
            vec![envelope]
        }
        (Mistake::OtherBudget, Some(Crossing::Worker(ToWorker::Begin(_, begin)))) => {
            let budget = &mut begin.run_spec.budget;
            (budget.memory, budget.cpu_ns) = (budget.memory * 2, budget.cpu_ns * 2);
            vec![envelope]
        }
        (Mistake::OverMaximum, Some(Crossing::Worker(ToWorker::Begin(_, begin)))) => {
            begin.run_spec.budget.time_ns = u64::MAX;
            vec![envelope]
        }
        (Mistake::LoseCharge, Some(Crossing::Home(ToHome::Ended(_, report)))) => {
            report.used.cpu_ns /= 2;
            vec![envelope]
        }
        (Mistake::OtherEnd, Some(Crossing::Home(ToHome::Ended(_, report)))) => {
            report.reason = Some("its time is over".to_string());
            report.end = if report.end == "killed" { "exit" } else { "killed" };
            vec![envelope]
        }
        (Mistake::GiveTwice, _) => match node::duplicate(&envelope) {
            Some(again) => vec![envelope, again],
            None => vec![envelope],
        },
        _ => Vec::new(),
    }
}
