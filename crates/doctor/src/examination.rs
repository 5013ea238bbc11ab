//! The whole: look, judge, and what comes of it.

mod text;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::diagnosis::{Case, diagnose};
use crate::finding::{Finding, Severity};
use crate::management::{Management, Trial};
use crate::probe::Machine;
use crate::python::{self, Python};
use crate::repair::Repair;
use crate::system::System;

/// Scope of an examination.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The machine.
    pub system: &'a System,
    /// The interpreter of the environment to look at; without it the active one, or the first on
    /// the path.
    pub python: Option<&'a Path>,
    /// Time limit for the interpreter's answer: importing PyTorch off a slow disk takes a minute.
    pub limit: Duration,
    /// Answers of NVIDIA's management library.
    pub management: Management,
    /// Trials on the GPUs.
    pub trials: Vec<Trial>,
}

/// Observations and findings.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// True if nothing keeps a GPU from being used for training: no finding is a problem.
    pub is_healthy: bool,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// The commands that mend the Python environment, where something in it needs mending.
    pub repair: Option<Repair>,
    /// The machine.
    pub machine: Machine,
    /// Answers of NVIDIA's management library.
    pub management: Management,
    /// Trials on the GPUs.
    pub trials: Vec<Trial>,
    /// The Python environment.
    pub python: Option<Python>,
}

/// Looks at a machine and its Python, and says what is wrong. Nothing is changed: files are read,
/// and the interpreter is run without writing compiled modules.
pub fn examine(request: Request<'_>) -> Examination {
    let machine = Machine::of(request.system);
    let python = python::look(request.system, request.python, request.limit);
    let case =
        Case { machine: &machine, management: &request.management, python: python.as_ref(), trials: &request.trials };
    let (findings, repair) = diagnose(&case);
    Examination {
        is_healthy: findings.iter().all(|finding| finding.severity != Severity::Problem),
        findings,
        repair,
        machine,
        management: request.management,
        trials: request.trials,
        python,
    }
}

impl Examination {
    /// The script that mends the Python environment and then proves it; `None` where nothing in it
    /// needs mending.
    pub fn script(&self) -> Option<String> {
        self.repair.as_ref().map(crate::script::script)
    }

    /// Everything for people to read.
    pub fn to_text(&self) -> String {
        text::text(self)
    }
}
