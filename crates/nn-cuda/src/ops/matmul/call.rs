//! Launches of products.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Cuda, arguments};
use megabatch_nn::Result;

use super::super::operand::Operand;
use super::super::product_kind::{Arithmetic, Output, Tile, Transpose};
use super::Product;
use super::gemm_plan::GemmPlan;

pub(in super::super) const PTX: &str = megabatch_gpu_core::ptx!("matmul");
pub(super) const PTX_LARGE: &str = megabatch_gpu_core::ptx!("matmul_large");

/// Addresses of the elements of a product; `bias` is 0 for none.
#[derive(Clone, Copy)]
pub(in super::super) struct Operands {
    pub(in super::super) a: u64,
    pub(in super::super) b: u64,
    pub(in super::super) bias: u64,
    pub(in super::super) out: u64,
}

impl Operands {
    /// Call for a product whose output is at an address.
    pub(super) fn new<T: Operand>(product: &Product<'_, T>, out: u64) -> Self {
        Operands {
            a: product.a.address(),
            b: product.b.address(),
            bias: product.bias.map_or(0, |bias| bias.address()),
            out,
        }
    }
}

/// A launch of a product, but for where its operands are.
#[derive(Clone, Debug)]
pub(in super::super) struct Call {
    pub(super) name: String,
    pub(super) shape: [usize; 3],
    pub(super) plan: GemmPlan,
    pub(super) output: Output,
}

impl Call {
    /// A product by the smallest tile that is not split.
    pub(in super::super) fn whole<T: Operand>(shape: [usize; 3], layout: Transpose, output: Output) -> Self {
        Call::new::<T>(shape, layout, Arithmetic::Exact, GemmPlan::whole(shape[2]), output)
    }

    /// A product done in a way of its own.
    pub(super) fn new<T: Operand>(
        shape: [usize; 3],
        layout: Transpose,
        arithmetic: Arithmetic,
        plan: GemmPlan,
        output: Output,
    ) -> Self {
        Call { name: name::<T>(layout, arithmetic, plan.tile), shape, plan, output }
    }

    pub(super) fn launch(&self) -> Option<Launch> {
        let ([rows, columns, _], GemmPlan { tile, splits, .. }) = (self.shape, self.plan);
        let ([tile_rows, tile_columns], threads) = tile.sizes();
        let blocks = rows.div_ceil(tile_rows) * columns.div_ceil(tile_columns) * splits;
        Launch::for_blocks(blocks).map(|launch| launch.with_threads(threads))
    }

    fn kernel(&self) -> Kernel<'_> {
        match self.plan.tile {
            Tile::Square => Kernel { module: "nn/matmul", ptx: PTX, name: &self.name },
            Tile::Tall | Tile::Large => Kernel { module: "nn/matmul_large", ptx: PTX_LARGE, name: &self.name },
        }
    }

    /// # Safety
    /// The memory at the addresses has the operands of the shape, and for each split an output.
    /// Nothing else touches the output meanwhile.
    pub(in super::super) unsafe fn submit(&self, device: &Cuda, operands: Operands) -> Result<()> {
        let ([rows, columns, inner], Operands { a, b, bias, out }) = (self.shape.map(|len| len as u64), operands);
        let (inner_each, adds) = (self.plan.inner_each as u64, u32::from(self.output == Output::Add));
        let arguments = arguments![a, b, bias, out, rows, columns, inner, inner_each, adds];
        // SAFETY: as the caller promised; a block reads within the shape, and writes its own tile
        // of its own split.
        Ok(unsafe { self.kernel().submit(device, self.launch(), &arguments) }?)
    }
}

/// Name of the kernel for a product.
pub(super) fn name<T: Operand>(layout: Transpose, arithmetic: Arithmetic, tile: Tile) -> String {
    let tile = match tile {
        Tile::Square => "",
        Tile::Tall => "128_64_",
        Tile::Large => "128_128_",
    };
    let layout = match layout {
        Transpose::Nt => "",
        Transpose::Nn => "b_turned_",
        Transpose::Tt => "a_turned_",
        Transpose::Tn => "both_turned_",
    };
    let suffix = if arithmetic == Arithmetic::Tf32 && !T::IS_NARROW { "tf32" } else { T::SUFFIX };
    format!("product_{tile}{layout}{suffix}")
}

/// The parts `[splits, len]` of a sum at an address, added in order to the `len` elements at
/// another, or in place of them.
///
/// # Safety
/// There are so many parts and elements, and nothing else touches them meanwhile.
pub(in super::super) unsafe fn add_parts(
    device: &Cuda,
    parts: u64,
    splits: usize,
    to: u64,
    len: usize,
    output: Output,
) -> Result<()> {
    let kernel = Kernel { module: "nn/matmul", ptx: PTX, name: "add_parts" };
    let adds = u32::from(output == Output::Add);
    let arguments = arguments![parts, to, len as u64, splits as u32, adds];
    // SAFETY: a thread reads its number of each part, and writes that of the output, as the caller
    // promised.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
}
