//! Report on the outcome and the resource usage of a storelet.

use serde::Serialize;
use wasi::{Ended, Reason, Refused, Used};

/// Outcome and resource usage of a storelet. Times are in ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `exit`, `trap`, `killed`, `refused`, `checked`, or `unknown` if the module has to be sent.
    pub end: &'static str,
    /// Exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u32>,
    /// Name of the failed storelet, for chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Reason, unless it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Hash of the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// From the start of the domain to the first instruction: order, compilation, admission.
    pub waited_ns: u64,
    /// Processor time of compiling the module.
    pub compile_ns: u64,
    /// From the first instruction to the end.
    pub time_ns: u64,
    /// Resource usage.
    #[serde(flatten)]
    pub used: Used,
}

impl Report {
    /// Creates the report for this outcome.
    pub fn new(ended: &Ended, used: Used, time_ns: u64) -> Report {
        let (end, exit, reason) = match ended {
            Ended::Exit(code) => ("exit", Some(*code), None),
            Ended::Trap(what) => ("trap", None, Some(what.clone())),
            Ended::Killed(reason) => ("killed", None, Some(reason.to_string())),
            Ended::Refused(cause) => ("refused", None, Some(cause.clone())),
        };
        let (module, waited_ns, compile_ns) = (None, 0, 0);
        let stage = None;
        Report { end, exit, stage, reason, module, waited_ns, compile_ns, time_ns, used }
    }

    /// Creates the report of a storelet that was killed before its start.
    pub fn killed(reason: Reason) -> Report {
        Report::new(&Ended::Killed(reason), Used::default(), 0)
    }

    /// Creates the report of a storelet that cannot start, with the reason.
    pub fn refused(why: String) -> Report {
        let report = Report::killed(Reason::Cancelled);
        Report { end: "refused", reason: Some(why), ..report }
    }

    /// Creates the report of a successful check.
    pub fn checked() -> Report {
        Report { end: "checked", ..Report::refused(String::new()) }.without_reason()
    }

    /// Creates the report of a storelet that is not installed, with the reason.
    pub fn unknown(why: String) -> Report {
        Report { end: "unknown", ..Report::refused(why) }
    }

    fn without_reason(self) -> Report {
        Report { reason: None, ..self }
    }

    /// Returns whether it exited by itself, with any code.
    pub fn is_exit(&self) -> bool {
        self.end == "exit"
    }

    /// Creates the report of a storelet whose module cannot be run.
    pub fn of_refusal(refused: &Refused) -> Report {
        let report = Report::refused(refused.to_string());
        let end = if *refused == Refused::Unknown { "unknown" } else { report.end };
        Report { end, ..report }
    }

    /// Returns the report as one line of JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }
}
