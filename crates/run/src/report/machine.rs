//! The machine that a run was computed on.

use megabatch_trainer::{self as trainer, Arithmetic};

use super::html::{Section, Table};
use crate::text::bytes;
use crate::usage::peak_rss_bytes;

/// Facts of the machine and its use.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    rows: Vec<(&'static str, String)>,
}

impl Machine {
    /// This machine, computing on `device` as `training` says.
    pub(crate) fn describe(device: &megabatch_gpu_core::Device, training: &trainer::Config) -> Self {
        let cores = std::thread::available_parallelism().map_or("-".to_owned(), |cores| cores.to_string());
        let mut rows = vec![
            ("device", device.to_string()),
            ("cores", cores),
            ("threads", training.threads.to_string()),
            ("instruction set", Arithmetic::here(training.precision).instruction_set),
            ("system", format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH)),
        ];
        rows.extend(processor().map(|name| ("processor", name)));
        rows.extend(peak_rss_bytes().map(|peak| ("largest resident set of the process", bytes(peak as usize))));
        Machine { rows }
    }

    pub(crate) fn section(&self) -> Section {
        let rows = self.rows.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]);
        let table = Table::new("Of the session that wrote this page", ["", ""], rows);
        Section { id: "machine", title: "Machine", body: table.to_html() }
    }
}

/// The CPU's name, if the system has it in a file.
fn processor() -> Option<String> {
    value_of(&std::fs::read_to_string("/proc/cpuinfo").ok()?, "model name")
}

/// The value of the first line `KEY : VALUE`.
fn value_of(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_keys() {
        let text = "processor\t: 0\nmodel name\t: A: B\ncache size\t:  123 KB\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(value_of(text, "cache size").as_deref(), Some("123 KB"));
        assert_eq!(value_of(text, "cache"), None);
    }
}
