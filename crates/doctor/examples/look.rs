//! Looks at this machine and its active Python, without NVIDIA's management library and without
//! trying the GPUs: `megabatch doctor` does both.

use std::path::Path;
use std::time::Duration;

use megabatch_doctor::{ExaminationRequest, Management, System, examine};

fn main() {
    let system = System::new("/", std::env::vars(), std::env::consts::ARCH);
    let python = std::env::args().nth(1);
    let found = examine(ExaminationRequest {
        system: &system,
        python: python.as_deref().map(Path::new),
        limit: Duration::from_secs(120),
        management: Management::default(),
        trials: Vec::new(),
    });
    print!("{}", found.to_text());
}
