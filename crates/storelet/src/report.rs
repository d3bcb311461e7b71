//! The report: how a storelet ended, and what it has used.

use crate::budget::{Reason, Used};
use crate::compile::Refused;
use crate::guest::Ended;
use serde::Serialize;

/// How a storelet ended, and what it has used. Times are in ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `exit`, `trap`, `killed`, `refused`, `checked`, or `unknown`: the module has to be sent.
    pub end: &'static str,
    /// The code that it exited with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u32>,
    /// Of a chain that failed: the storelet that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Why it did not end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The name of its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// From its order to its first instruction: compiling, waiting for memory.
    pub waited_ns: u64,
    /// Processor time that compiling its module took.
    pub compile_ns: u64,
    /// From its first instruction to its end.
    pub time_ns: u64,
    /// What it has used.
    #[serde(flatten)]
    pub used: Used,
}

impl Report {
    /// The report of a storelet that ended like this.
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

    /// The report of a storelet that was ended before it began.
    pub fn killed(reason: Reason) -> Report {
        Report::new(&Ended::Killed(reason), Used::default(), 0)
    }

    /// The report of a storelet that cannot be begun: why.
    pub fn refused(why: String) -> Report {
        let report = Report::killed(Reason::Cancelled);
        Report { end: "refused", reason: Some(why), ..report }
    }

    /// The report of a storelet that could be run, and was not to be.
    pub fn checked() -> Report {
        Report { end: "checked", ..Report::refused(String::new()) }.without_reason()
    }

    /// The report of a storelet that is not installed: why.
    pub fn unknown(why: String) -> Report {
        Report { end: "unknown", ..Report::refused(why) }
    }

    fn without_reason(self) -> Report {
        Report { reason: None, ..self }
    }

    /// Whether it went its way to the end, whatever it said there.
    pub fn is_exit(&self) -> bool {
        self.end == "exit"
    }

    /// The report of a storelet whose module cannot be run.
    pub fn of_refusal(refused: &Refused) -> Report {
        let report = Report::refused(refused.to_string());
        let end = if *refused == Refused::Unknown { "unknown" } else { report.end };
        Report { end, ..report }
    }

    /// It, for programs: JSON in one line.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }
}
