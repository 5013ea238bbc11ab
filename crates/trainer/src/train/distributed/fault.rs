//! Errors of one rank, as the others hear of them.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// An error as another rank hears of it.
#[derive(Serialize, Deserialize)]
pub(super) enum Fault {
    NotFinite { step: u64, loss_bits: u64, tensor: String, index: usize },
    Interrupted,
    Other { message: String, is_shortage: bool },
}

impl Fault {
    pub(super) fn new(error: &Error) -> Self {
        match error {
            Error::NotFinite { step, loss, tensor, index } => {
                Fault::NotFinite { step: *step, loss_bits: loss.to_bits(), tensor: tensor.clone(), index: *index }
            }
            Error::Interrupted { .. } => Fault::Interrupted,
            other => Fault::Other { message: other.to_string(), is_shortage: other.is_shortage() },
        }
    }

    fn into_error(self, rank: usize) -> Error {
        match self {
            Fault::NotFinite { step, loss_bits, tensor, index } => {
                Error::NotFinite { step, loss: f64::from_bits(loss_bits), tensor, index }
            }
            Fault::Interrupted => Error::Interrupted { work: "the evaluation" },
            Fault::Other { message, is_shortage } => Error::OnRank { rank, message, is_shortage },
        }
    }
}

/// True if this is the fault of a rank that was interrupted.
pub(super) fn is_interruption(fault: &[u8]) -> bool {
    matches!(serde_json::from_slice(fault), Ok(Fault::Interrupted))
}

pub(super) fn encode(fault: &Fault) -> Vec<u8> {
    serde_json::to_vec(fault).expect("a fault has no maps and no unusual numbers")
}

/// The error of rank `failed`, as it is on rank `here`, which has one of its `own` perhaps.
pub(super) fn failure_of(failed: usize, fault: &[u8], here: usize, own: Option<Error>) -> Error {
    match own {
        Some(own) if failed == here => own,
        _ => match serde_json::from_slice::<Fault>(fault) {
            Ok(fault) => fault.into_error(failed),
            Err(error) => Error::OnRank { rank: failed, message: error.to_string(), is_shortage: false },
        },
    }
}
