//! Products of panel-major matrices.
//!
//! ```text
//! product:  for panel p of c, row r:    c[p][r] = start + Σ_k a[r, k] · b[p][k]
//! outer:    for panel p of c, column j: c[p][j] = c[p][j] + Σ_r a[r, j] · d[p][r]
//!           sixteen columns at once
//! add:      for panel p, row r:         c[p][r] = c[p][r] + d[p][r]
//! ```
//!
//! Departures from these loops, all to keep the multipliers busy:
//!
//! 1. A tile of several rows and one or two panels is summed in registers, over the whole depth; of
//!    few rows more panels, for as many sums in flight.
//! 2. Rows are split evenly into tiles: 32 are 6, 6, 5, 5, 5, 5 and not 6, 6, 6, 6, 6, 2, whose
//!    last would wait for its sums.
//! 3. `outer` takes rows in blocks, of which two panels of d and one of a stay in the first-level
//!    cache, and four rows of a block at a time. Rows may lie in several places.
//! 4. `product` takes the depth in blocks, between which the sums rest in c: a block of 32 rows and
//!    of a panel of b stay in the first-level cache of 32 KiB.
//! 5. `product` asks on its way for what the caller will want next, see
//!    [`prefetch`](super::prefetch).
//!
//! Between blocks the sums rest in c. The order of every sum is that of the loops.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use super::lanes::{Lanes, Words};
use super::prefetch::PrefetchCursor;
use super::{AddedRows, Outer, OuterRows, PANEL, PanelOrder, ProductArguments};

/// Largest depth of a block: (32 rows + 16 columns) · 168 · 4 bytes are 31.5 KiB.
const DEPTH_MAX: usize = 168;

/// Rows of a tile from which it asks for rows ahead at every panel of the depth, and not at once.
const ROWS_MANY: usize = 5;

/// Most rows of a block of `outer`: three panels of them are 24 KiB.
const ROWS_MAX: usize = 128;
/// Rows of it at a time.
const UNROLLED: usize = 4;
/// Most columns of a tile of two panels of it.
const COLUMNS_MAX: usize = 8;

/// The even split of `total` into parts of at most `max`: the start and length of each.
#[inline(always)]
fn parts(total: usize, max: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = total.div_ceil(max);
    (0..count).map(move |i| {
        let (start, end) = (total * i / count, total * (i + 1) / count);
        (start, end - start)
    })
}

/// # Safety
/// The pointers of `p` reach all that its sizes say, see [`ProductArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn product<V: Words>(p: &ProductArguments) {
    let width = panels_of_tile::<V>(p.rows, p.panels);
    let tiles = p.panels.div_ceil(width.max(1)) * p.rows.div_ceil(rows_of_tile::<V>(width));
    let mut prefetch = p.prefetch.cursor(tiles * (p.depth / PANEL));
    // One tile of rows reads a panel of b once: there is nothing to keep in the first-level cache.
    let depth_max = if p.rows <= V::ROWS_TWO_PANELS { usize::MAX } else { DEPTH_MAX };
    let blocks = p.depth.div_ceil(depth_max).max(1);
    let block = p.depth.div_ceil(blocks).next_multiple_of(PANEL);
    let mut done = 0;
    while done < p.depth {
        let depth = block.min(p.depth - done);
        // SAFETY: `done` is a multiple of sixteen below the depth, so that panel done / 16 of a and
        // row `done` of b exist.
        unsafe {
            let part = ProductArguments {
                depth,
                a: p.a.add(done / PANEL * p.a_stride),
                b: p.b.add(done * PANEL),
                start: if done == 0 { p.start } else { std::ptr::null() },
                ..*p
            };
            block_product::<V>(&part, &mut prefetch);
        }
        done += depth;
    }
}

/// Panels of the next tile of `rows` rows where `left` panels are left: 8, 4, 2 or 1.
#[inline(always)]
fn panels_of_tile<V: Words>(rows: usize, left: usize) -> usize {
    let most = if (1..=4).contains(&rows) { V::PANELS_OF_FEW[rows - 1] } else { V::PANELS_OF_MANY };
    let fitting = if left >= 8 { 8 } else { (left + 1).next_power_of_two() / 2 };
    most.min(fitting)
}

/// Most rows of a tile of so many panels.
const fn rows_of_tile<V: Words>(panels: usize) -> usize {
    if panels == 1 { V::ROWS_ONE_PANEL } else { V::ROWS_TWO_PANELS }
}

/// True for a tile that a product has: of few rows, it may have more panels.
const fn is_tile<V: Words>(rows: usize, panels: usize) -> bool {
    let is_of_few = rows <= 4 && panels <= V::PANELS_OF_FEW[rows - 1];
    rows <= rows_of_tile::<V>(panels) && (panels <= V::PANELS_OF_MANY || is_of_few)
}

/// Most columns of a tile of `outer`.
const fn columns_of_tile<V: Words>(panels: usize) -> usize {
    if panels == 1 { V::ROWS_ONE_PANEL } else { COLUMNS_MAX }
}

/// One block of the depth: panel after panel, so that each is read once, and all rows for it.
#[inline(always)]
unsafe fn block_product<V: Words>(p: &ProductArguments, prefetch: &mut PrefetchCursor<'_>) {
    let mut done = 0;
    while done < p.panels {
        let width = panels_of_tile::<V>(p.rows, p.panels - done);
        let panel = if p.order == PanelOrder::Ascending { done } else { p.panels - done - width };
        for (row, rows) in parts(p.rows, rows_of_tile::<V>(width)) {
            // SAFETY: `width` panels from `panel` on and rows row..row + rows lie inside the
            // product.
            unsafe {
                match (width, rows) {
                    (8, _) => tile::<V, 1, 8>(p, row, panel, prefetch),
                    (4, 1) => tile::<V, 1, 4>(p, row, panel, prefetch),
                    (4, 2) => tile::<V, 2, 4>(p, row, panel, prefetch),
                    (4, 3) => tile::<V, 3, 4>(p, row, panel, prefetch),
                    (4, _) => tile::<V, 4, 4>(p, row, panel, prefetch),
                    (2, 1) => tile::<V, 1, 2>(p, row, panel, prefetch),
                    (2, 2) => tile::<V, 2, 2>(p, row, panel, prefetch),
                    (2, 3) => tile::<V, 3, 2>(p, row, panel, prefetch),
                    (2, 4) => tile::<V, 4, 2>(p, row, panel, prefetch),
                    (2, 5) => tile::<V, 5, 2>(p, row, panel, prefetch),
                    (2, 6) => tile::<V, 6, 2>(p, row, panel, prefetch),
                    (2, 7) => tile::<V, 7, 2>(p, row, panel, prefetch),
                    (2, 8) => tile::<V, 8, 2>(p, row, panel, prefetch),
                    (2, 9) => tile::<V, 9, 2>(p, row, panel, prefetch),
                    (2, 10) => tile::<V, 10, 2>(p, row, panel, prefetch),
                    (2, 11) => tile::<V, 11, 2>(p, row, panel, prefetch),
                    (2, _) => tile::<V, 12, 2>(p, row, panel, prefetch),
                    (1, 1) => tile::<V, 1, 1>(p, row, panel, prefetch),
                    (1, 2) => tile::<V, 2, 1>(p, row, panel, prefetch),
                    (1, 3) => tile::<V, 3, 1>(p, row, panel, prefetch),
                    (1, 4) => tile::<V, 4, 1>(p, row, panel, prefetch),
                    (1, 5) => tile::<V, 5, 1>(p, row, panel, prefetch),
                    (1, 6) => tile::<V, 6, 1>(p, row, panel, prefetch),
                    (1, 7) => tile::<V, 7, 1>(p, row, panel, prefetch),
                    (1, 8) => tile::<V, 8, 1>(p, row, panel, prefetch),
                    (1, 9) => tile::<V, 9, 1>(p, row, panel, prefetch),
                    (1, 10) => tile::<V, 10, 1>(p, row, panel, prefetch),
                    (1, 11) => tile::<V, 11, 1>(p, row, panel, prefetch),
                    _ => tile::<V, 12, 1>(p, row, panel, prefetch),
                }
            }
        }
        done += width;
    }
}

/// R rows of P panels from `row` and `panel` on.
#[inline(always)]
unsafe fn tile<V: Words, const R: usize, const P: usize>(
    p: &ProductArguments,
    row: usize,
    panel: usize,
    prefetch: &mut PrefetchCursor<'_>,
) {
    // Known to the compiler, which then compiles no tile that an instruction set does not use.
    if const { !is_tile::<V>(R, P) } {
        unreachable!("a tile of {R} rows and {P} panels");
    }
    // SAFETY: the rows and panels lie inside the product, whose pointers reach them by its
    // contract: a's column k is at k % 16 of panel k / 16, b's row k of a panel at k · 16, both for
    // k below the depth.
    unsafe {
        let c = p.c.add(panel * p.c_stride + row * PANEL);
        let mut sums = [[V::splat(0.0); P]; R];
        for r in 0..R {
            for q in 0..P {
                sums[r][q] = match p.start.is_null() {
                    true => V::load(c.add(q * p.c_stride + r * PANEL)),
                    false => V::load(p.start.add((panel + q) * p.start_stride + (row + r) * p.start_row)),
                };
            }
        }
        let mut a = p.a.add(row * PANEL);
        let mut b = p.b.add(panel * p.b_stride);
        let mut left = p.depth;
        // A column of few rows is less work than to see whether there is something to ask for.
        if R < ROWS_MANY {
            prefetch.take::<V>(p.depth / PANEL);
        }
        while left >= PANEL {
            if R >= ROWS_MANY {
                prefetch.take::<V>(1);
            }
            for k in (0..PANEL).step_by(4) {
                let (a, b) = (a.wrapping_add(k), b.wrapping_add(k * PANEL));
                V::add_columns(&mut sums, a, b, p.b_stride);
            }
            a = a.wrapping_add(p.a_stride);
            b = b.wrapping_add(PANEL * PANEL);
            left -= PANEL;
        }
        for k in 0..left {
            V::add_column::<R, P, PANEL>(&mut sums, a.wrapping_add(k), b.wrapping_add(k * PANEL), p.b_stride);
        }
        for r in 0..R {
            for q in 0..P {
                sums[r][q].store(c.add(q * p.c_stride + r * PANEL));
            }
        }
    }
}

/// # Safety
/// The pointers of `o` reach all that its sizes say, see [`Outer`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn outer<V: Words>(o: &Outer<'_>) {
    let tiles = o.panels.div_ceil(V::PANELS_OF_MANY) * o.columns.div_ceil(COLUMNS_MAX);
    let mut prefetch = PrefetchCursor::over(o.prefetch, tiles * o.rows.len());
    // Parts of the first place that are done: one of more rows than a block is cut evenly.
    let (mut left, mut done) = (o.rows, 0);
    while let Some(first) = left.first() {
        let cuts = first.rows.div_ceil(ROWS_MAX).max(1);
        let (start, end) = (first.rows * done / cuts, first.rows * (done + 1) / cuts);
        let places = if cuts > 1 { 1 } else { places_of_block(left) };
        // SAFETY: the rows are some of the product's.
        unsafe {
            let (a, d) = (first.a.add(start * PANEL), first.d.add(start * PANEL));
            let part = [OuterRows { rows: end - start, a, d, ..*first }];
            let rows = if cuts > 1 { &part } else { &left[..places] };
            block_outer::<V>(&Outer { rows, ..*o }, &mut prefetch);
        }
        done += 1;
        if done == cuts {
            (left, done) = (&left[places..], 0);
        }
    }
}

/// Number of the first places of `rows` that make a block: one at least.
fn places_of_block(rows: &[OuterRows]) -> usize {
    let mut total = 0;
    let fits = |block: &&OuterRows| {
        total += block.rows;
        total <= ROWS_MAX
    };
    rows.iter().take_while(fits).count().max(1)
}

/// One block of the rows: panel after panel of d, which stays in the first-level cache while all
/// columns take it.
#[inline(always)]
unsafe fn block_outer<V: Words>(o: &Outer<'_>, prefetch: &mut PrefetchCursor<'_>) {
    let mut panel = 0;
    while panel < o.panels {
        let two = V::PANELS_OF_MANY == 2 && o.panels - panel >= 2;
        let max = columns_of_tile::<V>(if two { 2 } else { 1 });
        for column in (0..o.columns).step_by(PANEL) {
            for (first, columns) in parts(PANEL.min(o.columns - column), max) {
                let column = column + first;
                // SAFETY: the columns lie in one panel of a and, with `panel`, inside the product.
                unsafe {
                    match (two, columns) {
                        (true, 1) => outer_tile::<V, 1, 2>(o, column, panel, prefetch),
                        (true, 2) => outer_tile::<V, 2, 2>(o, column, panel, prefetch),
                        (true, 3) => outer_tile::<V, 3, 2>(o, column, panel, prefetch),
                        (true, 4) => outer_tile::<V, 4, 2>(o, column, panel, prefetch),
                        (true, 5) => outer_tile::<V, 5, 2>(o, column, panel, prefetch),
                        (true, 6) => outer_tile::<V, 6, 2>(o, column, panel, prefetch),
                        (true, 7) => outer_tile::<V, 7, 2>(o, column, panel, prefetch),
                        (true, _) => outer_tile::<V, 8, 2>(o, column, panel, prefetch),
                        (false, 1) => outer_tile::<V, 1, 1>(o, column, panel, prefetch),
                        (false, 2) => outer_tile::<V, 2, 1>(o, column, panel, prefetch),
                        (false, 3) => outer_tile::<V, 3, 1>(o, column, panel, prefetch),
                        (false, 4) => outer_tile::<V, 4, 1>(o, column, panel, prefetch),
                        (false, 5) => outer_tile::<V, 5, 1>(o, column, panel, prefetch),
                        (false, 6) => outer_tile::<V, 6, 1>(o, column, panel, prefetch),
                        (false, 7) => outer_tile::<V, 7, 1>(o, column, panel, prefetch),
                        (false, 8) => outer_tile::<V, 8, 1>(o, column, panel, prefetch),
                        (false, 9) => outer_tile::<V, 9, 1>(o, column, panel, prefetch),
                        (false, 10) => outer_tile::<V, 10, 1>(o, column, panel, prefetch),
                        (false, 11) => outer_tile::<V, 11, 1>(o, column, panel, prefetch),
                        (false, _) => outer_tile::<V, 12, 1>(o, column, panel, prefetch),
                    }
                }
            }
        }
        panel += if two { 2 } else { 1 };
    }
}

/// J columns of a, all in one of its panels, times P panels of d.
#[inline(always)]
unsafe fn outer_tile<V: Words, const J: usize, const P: usize>(
    o: &Outer<'_>,
    column: usize,
    panel: usize,
    prefetch: &mut PrefetchCursor<'_>,
) {
    // As in `tile`.
    if const { J > columns_of_tile::<V>(P) || P > V::PANELS_OF_MANY } {
        unreachable!("a tile of {J} columns and {P} panels");
    }
    // SAFETY: columns and panels lie inside the product, whose pointers reach them by its contract.
    unsafe {
        let c = o.c.add(panel * o.c_stride + column * PANEL);
        let mut sums = [[V::splat(0.0); P]; J];
        for j in 0..J {
            for q in 0..P {
                sums[j][q] = V::load(c.add(q * o.c_stride + j * PANEL));
            }
        }
        for block in o.rows {
            prefetch.take::<V>(1);
            let mut a = block.a.add(column / PANEL * block.a_stride + column % PANEL);
            let mut d = block.d.add(panel * block.d_stride);
            let mut left = block.rows;
            while left >= UNROLLED {
                for r in 0..UNROLLED {
                    let (a, d) = (a.wrapping_add(r * PANEL), d.wrapping_add(r * PANEL));
                    V::add_row(&mut sums, a, d, block.d_stride);
                }
                a = a.wrapping_add(UNROLLED * PANEL);
                d = d.wrapping_add(UNROLLED * PANEL);
                left -= UNROLLED;
            }
            for r in 0..left {
                V::add_row(&mut sums, a.wrapping_add(r * PANEL), d.wrapping_add(r * PANEL), block.d_stride);
            }
        }
        for j in 0..J {
            for q in 0..P {
                sums[j][q].store(c.add(q * o.c_stride + j * PANEL));
            }
        }
    }
}

/// # Safety
/// The pointers of `of` reach all that its sizes say, see [`AddedRows`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn add<V: Lanes>(added: &AddedRows) {
    for (panel, row) in (0..added.panels).flat_map(|panel| (0..added.rows).map(move |row| (panel, row))) {
        // SAFETY: the row lies inside both matrices.
        unsafe {
            let sum = added.c.add(panel * added.c_stride + row * PANEL);
            V::load(sum).add(V::load(added.d.add(panel * added.d_stride + row * PANEL))).store(sum);
        }
    }
}
