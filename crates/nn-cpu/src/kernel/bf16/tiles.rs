//! Products by AMX (`tdpbf16ps`): a tile is sixteen rows of a panel, as they lie in memory.
//!
//! ```text
//! for two panels of b:  for 32 rows:
//!     four tiles of c = start
//!     for panel k of the depth:  two tiles of a, two of b;  c += a · b, four times
//! ```
//!
//! 1. Rows that are left over make tiles of fewer rows. Of up to sixteen rows a tile of c is summed
//!    over four panels of b, since few sums in flight wait for one another.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::asm;

use crate::kernel::{PANEL, ProductArguments};

/// Bytes of a row of sixteen words.
const ROW_BYTES: usize = 4 * PANEL;

/// Asks the operating system for the tiles, for all threads of the process.
pub(super) fn request() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_PRCTL: usize = 158;
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        let refused: isize;
        // SAFETY: the system call reads no memory; it changes nothing but what the process may use.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => refused,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        refused == 0
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Operand of `ldtilecfg`, palette 1.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Tiles 0 to 3 are of c and 4 and 5 of a, those of the first and the second sixteen rows; 6
    /// and 7 are of b.
    fn load(rows: [usize; 2]) {
        let [first, second] = rows.map(|rows| rows as u8);
        let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let tile_rows = [first, first, second, second, first, second, PANEL as u8, PANEL as u8];
        for (tile, rows) in tile_rows.into_iter().enumerate() {
            (config.rows[tile], config.row_bytes[tile]) = (rows, if rows == 0 { 0 } else { ROW_BYTES as u16 });
        }
        // SAFETY: the caller's `Bf16Isa` proves that the process has the tiles, and the operand is
        // a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(readonly, nostack)) }
    }

    /// Four panels for one block of up to sixteen rows: tiles 0 to 3 are of c.
    fn load_few(rows: usize) {
        let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let (rows, all) = (rows as u8, PANEL as u8);
        for (tile, rows) in [rows, rows, rows, rows, rows, 0, all, all].into_iter().enumerate() {
            (config.rows[tile], config.row_bytes[tile]) = (rows, if rows == 0 { 0 } else { ROW_BYTES as u16 });
        }
        // SAFETY: as in `load`.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(readonly, nostack)) }
    }
}

/// # Safety
/// As [`product`](crate::kernel::product::product), with whole panels of the depth in a and
/// b; the process has the tiles of AMX.
pub(super) unsafe fn product(p: &ProductArguments) {
    let whole = p.rows / (2 * PANEL) * (2 * PANEL);
    // SAFETY: rows below `p.rows` and panels below `p.panels` lie inside the product.
    unsafe {
        if whole > 0 {
            TileConfig::load([PANEL, PANEL]);
            pairs_of_rows(p, 0..whole);
        }
        match p.rows - whole {
            0 => {}
            left @ ..=PANEL => {
                TileConfig::load_few(left);
                few_rows(p, whole);
            }
            left => {
                TileConfig::load([PANEL, left - PANEL]);
                pairs_of_rows(p, whole..p.rows);
            }
        }
        asm!("tilerelease", options(nomem, nostack));
    }
}

/// Blocks of two tiles of rows.
unsafe fn pairs_of_rows(p: &ProductArguments, rows: std::ops::Range<usize>) {
    let mut panel = 0;
    while panel < p.panels {
        let two = panel + 1 < p.panels;
        for row in rows.clone().step_by(2 * PANEL) {
            // SAFETY: the block's rows and panels lie inside the product.
            unsafe {
                match two {
                    true => two_by_two(p, row, panel),
                    false => two_by_one(p, row, panel),
                }
            }
        }
        panel += 2;
    }
}

/// One block of up to sixteen rows.
unsafe fn few_rows(p: &ProductArguments, row: usize) {
    let mut panel = 0;
    while panel < p.panels {
        // SAFETY: the block's rows and panels lie inside the product.
        unsafe {
            if p.panels - panel >= 4 {
                one_by_four(p, row, panel);
                panel += 4;
            } else {
                one_by_one(p, row, panel);
                panel += 1;
            }
        }
    }
}

/// Where the sums of a block start from, and how many bytes on those of the next row do.
fn start_of(p: &ProductArguments, row: usize, panel: usize) -> (*const f32, usize, usize) {
    match p.start.is_null() {
        true => (p.c.wrapping_add(panel * p.c_stride + row * PANEL).cast_const(), p.c_stride, ROW_BYTES),
        false => (p.start.wrapping_add(panel * p.start_stride + row * p.start_row), p.start_stride, 4 * p.start_row),
    }
}

/// Two tiles of rows from `row` on, two panels from `panel` on.
unsafe fn two_by_two(p: &ProductArguments, row: usize, panel: usize) {
    let (start, start_stride, start_bytes) = start_of(p, row, panel);
    let c = p.c.wrapping_add(panel * p.c_stride + row * PANEL);
    // SAFETY: the rows and panels lie inside the product, whose pointers reach them by its
    // contract.
    unsafe {
        asm!(
            "tileloadd tmm0, [{start} + {start_bytes}]",
            "tileloadd tmm1, [{start_right} + {start_bytes}]",
            "shl {start_bytes}, 4",
            "add {start}, {start_bytes}",
            "add {start_right}, {start_bytes}",
            "shr {start_bytes}, 4",
            "tileloadd tmm2, [{start} + {start_bytes}]",
            "tileloadd tmm3, [{start_right} + {start_bytes}]",
            "2:",
            "tileloadd tmm4, [{a} + {row_bytes}]",
            "tileloadd tmm6, [{b} + {row_bytes}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b_right} + {row_bytes}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a} + {row_bytes} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, {a_stride}",
            "add {b}, 1024",
            "add {b_right}, 1024",
            "dec {panels}",
            "jnz 2b",
            "tilestored [{c} + {row_bytes}], tmm0",
            "tilestored [{c_right} + {row_bytes}], tmm1",
            "tilestored [{c} + {row_bytes} + 1024], tmm2",
            "tilestored [{c_right} + {row_bytes} + 1024], tmm3",
            start = inout(reg) start => _,
            start_right = inout(reg) start.wrapping_add(start_stride) => _,
            start_bytes = inout(reg) start_bytes => _,
            a = inout(reg) p.a.wrapping_add(row * PANEL) => _,
            a_stride = in(reg) 4 * p.a_stride,
            b = inout(reg) p.b.wrapping_add(panel * p.b_stride) => _,
            b_right = inout(reg) p.b.wrapping_add((panel + 1) * p.b_stride) => _,
            c = in(reg) c,
            c_right = in(reg) c.wrapping_add(p.c_stride),
            panels = inout(reg) p.depth.div_ceil(PANEL) => _,
            row_bytes = in(reg) ROW_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Two tiles of rows from `row` on, one panel.
unsafe fn two_by_one(p: &ProductArguments, row: usize, panel: usize) {
    let (start, _, start_bytes) = start_of(p, row, panel);
    // SAFETY: as in `two_by_two`.
    unsafe {
        asm!(
            "tileloadd tmm0, [{start} + {start_bytes}]",
            "shl {start_bytes}, 4",
            "add {start}, {start_bytes}",
            "shr {start_bytes}, 4",
            "tileloadd tmm2, [{start} + {start_bytes}]",
            "2:",
            "tileloadd tmm4, [{a} + {row_bytes}]",
            "tileloadd tmm6, [{b} + {row_bytes}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a} + {row_bytes} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "add {a}, {a_stride}",
            "add {b}, 1024",
            "dec {panels}",
            "jnz 2b",
            "tilestored [{c} + {row_bytes}], tmm0",
            "tilestored [{c} + {row_bytes} + 1024], tmm2",
            start = inout(reg) start => _,
            start_bytes = inout(reg) start_bytes => _,
            a = inout(reg) p.a.wrapping_add(row * PANEL) => _,
            a_stride = in(reg) 4 * p.a_stride,
            b = inout(reg) p.b.wrapping_add(panel * p.b_stride) => _,
            c = in(reg) p.c.wrapping_add(panel * p.c_stride + row * PANEL),
            panels = inout(reg) p.depth.div_ceil(PANEL) => _,
            row_bytes = in(reg) ROW_BYTES,
            out("tmm0") _, out("tmm2") _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
            options(nostack),
        );
    }
}

/// One tile of rows from `row` on, four panels from `panel` on.
unsafe fn one_by_four(p: &ProductArguments, row: usize, panel: usize) {
    let (start, start_stride, start_bytes) = start_of(p, row, panel);
    let (b, c) = (p.b.wrapping_add(panel * p.b_stride), p.c.wrapping_add(panel * p.c_stride + row * PANEL));
    // SAFETY: as in `two_by_two`.
    unsafe {
        asm!(
            "tileloadd tmm0, [{start} + {start_bytes}]",
            "add {start}, {start_stride}",
            "tileloadd tmm1, [{start} + {start_bytes}]",
            "add {start}, {start_stride}",
            "tileloadd tmm2, [{start} + {start_bytes}]",
            "add {start}, {start_stride}",
            "tileloadd tmm3, [{start} + {start_bytes}]",
            "2:",
            "tileloadd tmm4, [{a} + {row_bytes}]",
            "mov {at}, {b}",
            "tileloadd tmm6, [{at} + {row_bytes}]",
            "add {at}, {b_stride}",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{at} + {row_bytes}]",
            "add {at}, {b_stride}",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm6, [{at} + {row_bytes}]",
            "add {at}, {b_stride}",
            "tdpbf16ps tmm2, tmm4, tmm6",
            "tileloadd tmm7, [{at} + {row_bytes}]",
            "tdpbf16ps tmm3, tmm4, tmm7",
            "add {a}, {a_stride}",
            "add {b}, 1024",
            "dec {panels}",
            "jnz 2b",
            "tilestored [{c} + {row_bytes}], tmm0",
            "add {c}, {c_stride}",
            "tilestored [{c} + {row_bytes}], tmm1",
            "add {c}, {c_stride}",
            "tilestored [{c} + {row_bytes}], tmm2",
            "add {c}, {c_stride}",
            "tilestored [{c} + {row_bytes}], tmm3",
            start = inout(reg) start => _,
            start_stride = in(reg) 4 * start_stride,
            start_bytes = in(reg) start_bytes,
            a = inout(reg) p.a.wrapping_add(row * PANEL) => _,
            a_stride = in(reg) 4 * p.a_stride,
            b = inout(reg) b => _,
            b_stride = in(reg) 4 * p.b_stride,
            at = out(reg) _,
            c = inout(reg) c => _,
            c_stride = in(reg) 4 * p.c_stride,
            panels = inout(reg) p.depth.div_ceil(PANEL) => _,
            row_bytes = in(reg) ROW_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// One tile of rows from `row` on, one panel.
unsafe fn one_by_one(p: &ProductArguments, row: usize, panel: usize) {
    let (start, _, start_bytes) = start_of(p, row, panel);
    // SAFETY: as in `two_by_two`.
    unsafe {
        asm!(
            "tileloadd tmm0, [{start} + {start_bytes}]",
            "2:",
            "tileloadd tmm4, [{a} + {row_bytes}]",
            "tileloadd tmm6, [{b} + {row_bytes}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "add {a}, {a_stride}",
            "add {b}, 1024",
            "dec {panels}",
            "jnz 2b",
            "tilestored [{c} + {row_bytes}], tmm0",
            start = in(reg) start,
            start_bytes = in(reg) start_bytes,
            a = inout(reg) p.a.wrapping_add(row * PANEL) => _,
            a_stride = in(reg) 4 * p.a_stride,
            b = inout(reg) p.b.wrapping_add(panel * p.b_stride) => _,
            c = in(reg) p.c.wrapping_add(panel * p.c_stride + row * PANEL),
            panels = inout(reg) p.depth.div_ceil(PANEL) => _,
            row_bytes = in(reg) ROW_BYTES,
            out("tmm0") _, out("tmm4") _, out("tmm6") _,
            options(nostack),
        );
    }
}
