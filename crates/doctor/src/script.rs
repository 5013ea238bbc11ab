//! The script that repairs a Python environment. A person reads and runs it; nothing here does.

use crate::repair::Repair;

const PROOF: &str = r#"import torch

assert torch.cuda.is_available(), "PyTorch sees no GPU"
values = torch.tensor([1.0, 5.0, 2.0, 4.0], device="cuda")
groups = torch.tensor([0, 0, 1, 1], device="cuda")
"#;
const WITH_SCATTER: &str = "from torch_scatter import scatter_max\nlargest, _ = scatter_max(values, groups, dim=0)\n";
const WITHOUT: &str = "largest = torch.zeros(2, device=\"cuda\").scatter_reduce(0, groups, values, \"amax\")\n";
const VERDICT: &str = r#"assert largest.tolist() == [5.0, 4.0], largest
print("PyTorch", torch.__version__, "computes on", torch.cuda.get_device_name())
"#;

/// A POSIX shell script: uninstalls what does not fit, empties the cache, installs what does, and
/// runs an operation on the GPU.
pub(crate) fn script(repair: &Repair) -> String {
    let commands = repair.commands();
    let (uninstall, install) = commands.split_first().expect("a repair uninstalls first");
    let mut text = String::from(
        "#!/bin/sh\n# Written by `megabatch doctor --fix-script`. Read it before you run it: it changes the Python environment \
         below.\nset -eu\n\n",
    );
    if repair.builds() {
        text += &needs_toolkit(repair);
    }
    let purge = repair.installer.purge();
    text +=
        &format!("# What does not fit goes, and so does what pip has kept of it.\n{uninstall}\n{purge} || true\n\n");
    text += &format!("# What fits comes.\n{}\n\n", install.join("\n"));
    let run = if repair.has_scatter { WITH_SCATTER } else { WITHOUT };
    text += &format!(
        "# The proof: an operation on the GPU.\n{} - <<'PROOF'\n{PROOF}{run}{VERDICT}PROOF\n",
        repair.installer.python()
    );
    text
}

fn needs_toolkit(repair: &Repair) -> String {
    let compiler = crate::quote::quote(&format!("{}/bin/nvcc", repair.toolkit()));
    let message = crate::quote::quote(&format!(
        "There is no {compiler}: install NVIDIA's CUDA toolkit {} first, or change CUDA_HOME below to where it is.",
        repair.cuda
    ));
    format!(
        "# An extension is compiled, which takes NVIDIA's compiler.\nif [ ! -x {compiler} ]; then\n    echo {message} >&2\n    exit \
         1\nfi\n\n"
    )
}
