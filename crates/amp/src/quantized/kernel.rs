//! Dot products of bytes: the packed layout of weights, and the portable form.

#![forbid(unsafe_code)]

use super::Scaled;
use megabatch_gpu_core::isa::{Isa, Loops};

/// Outputs that are computed side by side.
pub(super) const PANEL: usize = 16;

/// Inputs of one dot-product instruction.
pub(super) const GROUP: usize = 4;

/// Offset of quantised activations, which makes them non-negative.
pub(super) const BIAS: u8 = 128;

/// Quantised weights as kernels read them: `[panels][groups][16 outputs][4 inputs]`, with zeros
/// where there is no output or input.
#[derive(Clone, Debug)]
pub(super) struct PackedWeights {
    pub(super) weights: Vec<i8>,
    /// 128 · the sum of an output's weights: what the bias of the activations adds to its sum. One
    /// an output, zeros after the last, whole panels.
    pub(super) bias_sums: Vec<[i32; PANEL]>,
    /// Outputs, inputs.
    pub(super) shape: [usize; 2],
}

impl PackedWeights {
    /// Packs rows of an output each.
    pub(super) fn new(rows: &[i8], outputs: usize, inputs: usize) -> Self {
        let (panels, groups) = (outputs.div_ceil(PANEL), inputs.div_ceil(GROUP));
        let mut packed = PackedWeights {
            weights: vec![0; panels * groups * PANEL * GROUP],
            bias_sums: vec![[0; PANEL]; panels],
            shape: [outputs, inputs],
        };
        for (n, row) in rows.chunks_exact(inputs.max(1)).enumerate() {
            for (k, &q) in row.iter().enumerate() {
                let place = packed.place(n, k);
                packed.weights[place] = q;
                packed.bias_sums[n / PANEL][n % PANEL] += i32::from(BIAS) * i32::from(q);
            }
        }
        packed
    }

    fn place(&self, n: usize, k: usize) -> usize {
        ((n / PANEL * self.groups() + k / GROUP) * PANEL + n % PANEL) * GROUP + k % GROUP
    }

    pub(super) fn at(&self, n: usize, k: usize) -> i8 {
        self.weights[self.place(n, k)]
    }

    pub(super) fn groups(&self) -> usize {
        self.shape[1].div_ceil(GROUP)
    }

    /// Inputs with those that fill the last group.
    pub(super) fn padded_inputs(&self) -> usize {
        self.groups() * GROUP
    }

    /// The weights of a panel.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> &[[i8; PANEL * GROUP]] {
        let groups = self.groups();
        &self.weights.as_chunks().0[panel * groups..][..groups]
    }
}

/// A form of the kernel, which exists only where the CPU has its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelForm {
    Portable(Isa),
    #[cfg(target_arch = "x86_64")]
    Avx2(super::avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Vnni(super::vnni::Vnni),
}

impl KernelForm {
    /// Forms that this CPU supports, the best last.
    pub(super) fn all() -> impl Iterator<Item = KernelForm> {
        let all = [Some(KernelForm::Portable(Isa::best()))];
        #[cfg(target_arch = "x86_64")]
        let all = [
            all[0],
            super::avx2::Avx2::detect().map(KernelForm::Avx2),
            super::vnni::Vnni::detect().map(KernelForm::Vnni),
        ];
        all.into_iter().flatten()
    }

    pub(super) fn best() -> KernelForm {
        KernelForm::all().last().expect("there is a portable form")
    }

    /// Multiplies rows of biased activations, `[B, padded inputs]`.
    pub(super) fn multiply(self, packed: &PackedWeights, activations: &[u8], out: &mut Scaled<'_>) {
        match self {
            KernelForm::Portable(isa) => isa.run(Portable { packed, activations, out }),
            #[cfg(target_arch = "x86_64")]
            KernelForm::Avx2(proof) => proof.multiply(packed, activations, out),
            #[cfg(target_arch = "x86_64")]
            KernelForm::Vnni(proof) => proof.multiply(packed, activations, out),
        }
    }
}

/// One row and one panel after another.
struct Portable<'a, 'b> {
    packed: &'a PackedWeights,
    activations: &'a [u8],
    out: &'a mut Scaled<'b>,
}

impl Loops for Portable<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (panel, bias_sums) in self.packed.bias_sums.iter().enumerate() {
            let weights = self.packed.panel(panel);
            for (row, x) in self.activations.chunks_exact(self.packed.padded_inputs()).enumerate() {
                let mut sums = bias_sums.map(|sum| -sum);
                for (x, weights) in x.as_chunks::<GROUP>().0.iter().zip(weights) {
                    let x = x.map(i32::from);
                    for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<GROUP>().0) {
                        *sum += (0..GROUP).map(|k| x[k] * i32::from(weights[k])).sum::<i32>();
                    }
                }
                self.out.take(row, panel, &sums);
            }
        }
    }
}
