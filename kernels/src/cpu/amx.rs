//! Products of bf16 matrices on the matrix unit of x86 processors: Intel's Advanced Matrix Extensions (AMX).
//!
//! The unit has eight tiles of 16 lines of 64 bytes. One instruction adds to a tile of 16 by 16 sums in f32 what 32
//! terms give, all in bf16: 8,192 multiplications and additions in 16 cycles. Factors are copied first into the layout
//! that it reads, panel after panel of 32 rows or columns, filled up with zeros:
//!
//! ```text
//! rows       [panel][32 terms][2 tiles][16 rows][32 terms]             as `a` lies where its terms are side by side
//! columns    [panel][32 terms][2 tiles][16 pairs][16 columns][a pair]  pairs of terms that follow each other
//! ```
//!
//! A pair is 32 bits, so that a tile in one layout is the other's transpose, in words. One call of the kernel takes a
//! panel of each: four tiles of sums stay in the unit, two of rows and two of columns are read for four instructions.
//!
//! The unit takes subnormal factors and sums for zeros, and rounds each multiplication and addition to the nearest f32.
//!
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 (tiles), volume 2
//! (TDPBF16PS); Linux, Documentation/arch/x86/xstate.rst (the permission that a process asks for).

#![allow(unsafe_code)] // instructions that the compiler has no name for

use std::marker::PhantomData;

use super::Vector;
use super::packed_gemm::{Factor, Gemm};
use super::product::{Matrix, Shape};
use super::transpose::{self, Rows};

/// Lines of a tile.
const LINES: usize = 16;

/// 32-bit words of a tile.
const WORDS: usize = 256;

/// Terms of a tile.
const TERMS: usize = 32;

/// Rows, and columns, of a panel.
pub(super) const PANEL: usize = 2 * LINES;

/// Terms of a stretch: a panel takes 32 KiB then, and stays in the first-level cache while the other factor's go by.
const STRETCH: usize = 512;

/// Rows and columns of a block of the result, at most: the left factor's panels and the sums take 1.6 MiB.
pub(super) const BLOCK: (usize, usize) = (384, 768);

/// Whether this process may use the unit.
pub(super) fn is_available() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *AVAILABLE.get_or_init(|| has_instructions() && is_permitted())
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// What the processor says: leaf 7, bits 22 (bf16) and 24 (tiles) of EDX.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_instructions() -> bool {
    use core::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    let (tiles, bf16) = (1 << 24, 1 << 22);
    let features = if __get_cpuid_max(0).0 < 7 { 0 } else { __cpuid_count(7, 0).edx };
    Vector::available().contains(&Vector::Avx512) && features & tiles != 0 && features & bf16 != 0
}

/// Asks the system for the state that tiles are kept in when a thread is interrupted; all threads may use it then.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn is_permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const REQUEST_PERMISSION: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let mut answer = ARCH_PRCTL;
    // SAFETY: a system call that reads no memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") answer,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer == 0
}

/// How many f32 a block of a product takes: the left factor laid out, a panel of the right one, the sums, and a column
/// of the result.
pub(super) fn sizes((m, n): (usize, usize), k: usize) -> [usize; 4] {
    let terms = k.min(STRETCH).next_multiple_of(TERMS);
    let [m, n] = [m, n].map(|size| size.next_multiple_of(PANEL));
    [m * terms / 2, PANEL * terms / 2, m * n, m]
}

/// The product of a block, unscaled, into sums: columns of `m` rows filled up to whole panels.
///
/// # Safety
/// The factors' elements lie behind their addresses, and the unit is [available](is_available).
pub(super) unsafe fn sums(work: &Gemm, [left, right, sums]: [&mut [f32]; 3]) {
    let Shape { m, n, k, .. } = work.shape;
    let stride = m.next_multiple_of(PANEL);
    let tiles = Configured::new();
    for first in (0..k).step_by(STRETCH) {
        let terms = (k - first).min(STRETCH);
        let panel = PANEL * terms.next_multiple_of(TERMS) / 2;
        // SAFETY: the caller's: inside the factors.
        let (a, b) = unsafe { (work.a.from(0, first), work.b.from(first, 0).transposed()) };
        // SAFETY: as above.
        unsafe { lay((a, m), terms, left, Layout::Columns) };
        for (column, to) in (0..n).step_by(PANEL).zip(sums.chunks_mut(PANEL * stride)) {
            // SAFETY: as above.
            unsafe { lay((b.from(column, 0), (n - column).min(PANEL)), terms, right, Layout::Rows) };
            for (i, a) in left.chunks(panel).enumerate().take(stride / PANEL) {
                tiles.multiply(&right[..panel], a, &mut to[i * PANEL..], stride, first > 0);
            }
        }
    }
}

/// Which of the two layouts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Rows,
    Columns,
}

/// Copies `count` rows of a factor into panels, with zeros where there is nothing.
///
/// Tiles are copied in the order in which they lie in memory: where terms lie side by side, all of 16 rows before the
/// next 16, else all rows of 32 terms before the next 32.
unsafe fn lay((factor, count): (Factor, usize), terms: usize, to: &mut [f32], layout: Layout) {
    let (steps, groups) = (terms.div_ceil(TERMS), count.next_multiple_of(PANEL) / LINES);
    for i in 0..steps * groups {
        let (step, group) =
            if factor.matrix.row == 1 { (i / groups, i % groups) } else { (i % steps, i / steps) };
        let at = (group / 2 * steps + step) * 2 + group % 2;
        let (row, term) = (group * LINES, step * TERMS);
        let there = (count.saturating_sub(row).min(LINES), (terms - term).min(TERMS));
        let to = to[at * WORDS..][..WORDS].as_mut_array().expect("as long as a tile");
        // SAFETY: the caller's: inside the factor.
        unsafe { tile(factor.from(row.min(count - 1), term), there, to, layout) };
    }
}

/// Copies a tile of the factor's first rows and terms.
unsafe fn tile(from: Factor, (rows, terms): (usize, usize), to: &mut [f32; WORDS], layout: Layout) {
    let is_whole = (rows, terms) == (LINES, TERMS);
    // SAFETY: the caller's: inside the factor; lines of 16 rows or of 32 terms are there.
    unsafe {
        match (layout, from.matrix) {
            (Layout::Rows, Matrix { column: 1, .. }) if is_whole => copy_lines(from, to),
            (Layout::Columns, Matrix { row: 1, .. }) if is_whole => copy_pairs(from, to),
            (Layout::Columns, Matrix { column: 1, .. }) if is_whole => {
                let mut lines = [0.0; WORDS];
                copy_lines(from, &mut lines);
                transpose(&lines, to);
            }
            (Layout::Rows, Matrix { row: 1, .. }) if is_whole => {
                let mut pairs = [0.0; WORDS];
                copy_pairs(from, &mut pairs);
                transpose(&pairs, to);
            }
            (Layout::Rows, _) => copy_part(from, (rows, terms), to),
            (Layout::Columns, _) => {
                let mut lines = [0.0; WORDS];
                copy_part(from, (rows, terms), &mut lines);
                transpose(&lines, to);
            }
        }
    }
}

/// 32-bit words of a tile, transposed: rows of terms become columns of pairs, and these rows.
fn transpose(from: &[f32; WORDS], to: &mut [f32; WORDS]) {
    transpose::transpose(Vector::Avx512, Rows { from, stride: LINES }, (LINES, LINES), to, LINES);
}

/// Some of 16 rows and some of 32 terms, element by element, and zeros.
unsafe fn copy_part(from: Factor, (rows, terms): (usize, usize), to: &mut [f32; WORDS]) {
    to.fill(0.0);
    let to = to.as_mut_ptr().cast::<u16>();
    for i in 0..rows {
        for j in 0..terms {
            // SAFETY: the caller's: inside the factor; 32 terms are a line.
            unsafe { to.add(i * TERMS + j).write(from.from(i, j).matrix.at.cast::<u16>().read()) };
        }
    }
}

/// The terms of 16 rows, which lie side by side.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl"))]
unsafe fn copy_lines(from: Factor, to: &mut [f32; WORDS]) {
    let to = to.as_mut_ptr().cast::<[u16; TERMS]>();
    for i in 0..LINES {
        // SAFETY: the caller's: inside the factor; a tile has 16 lines.
        unsafe { to.add(i).write(from.from(i, 0).matrix.at.cast::<[u16; TERMS]>().read_unaligned()) };
    }
}

/// Two terms each of 16 rows, which lie side by side.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl"))]
unsafe fn copy_pairs(from: Factor, to: &mut [f32; WORDS]) {
    let to = to.as_mut_ptr().cast::<[u32; LINES]>();
    for pair in 0..LINES {
        // SAFETY: the caller's: inside the factor; a tile has 16 lines.
        unsafe {
            let term = |j: usize| from.from(0, j).matrix.at.cast::<[u16; LINES]>().read_unaligned();
            let (low, high) = (term(2 * pair), term(2 * pair + 1));
            let line: [u32; LINES] = std::array::from_fn(|i| u32::from(low[i]) | u32::from(high[i]) << 16);
            to.add(pair).write(line);
        }
    }
}

/// Asks for the lines at some offsets from the columns: the next two tiles, while these are multiplied. (A step of a
/// Llama of 1B took a twentieth less time for it, on two cores of an Intel Xeon with AMX.)
macro_rules! prefetch {
    ($($offset:literal)*) => { concat!($("prefetcht0 [{columns} + ", $offset, "]\n"),*) };
}

/// Tiles of this thread, and of no other, all of 16 lines of 64 bytes, until it is dropped.
struct Configured(PhantomData<*const ()>);

impl Configured {
    fn new() -> Self {
        #[repr(align(64))]
        struct Configuration([u8; 64]);
        let mut all = Configuration([0; 64]);
        all.0[0] = 1; // the palette
        for tile in 0..8 {
            all.0[16 + 2 * tile] = 64; // bytes a line, of two bytes
            all.0[48 + tile] = LINES as u8;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads 64 bytes; the unit is available.
        unsafe {
            std::arch::asm!("ldtilecfg [{}]", in(reg) all.0.as_ptr(), options(nostack, readonly));
        }
        Self(PhantomData)
    }

    /// The sums of a panel of rows and one of columns, added to what is there or not. A row's sums lie side by side,
    /// and rows `stride` apart.
    #[allow(clippy::unused_self)] // it stands for the configuration
    fn multiply(&self, rows: &[f32], columns: &[f32], to: &mut [f32], stride: usize, add: bool) {
        let steps = rows.len() / (2 * WORDS);
        assert!(steps > 0 && rows.len() == columns.len() && to.len() >= (PANEL - 1) * stride + PANEL);
        let (below, bytes) = (to[LINES * stride..].as_mut_ptr(), stride * size_of::<f32>());
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `steps` pairs of tiles lie behind either address, as the lengths say; so do two by two tiles of sums.
        unsafe {
            std::arch::asm!(
                "test {add:e}, {add:e}",
                "jz 2f",
                "tileloadd tmm0, [{to} + {stride}*1]",
                "tileloadd tmm1, [{to} + {stride}*1 + 64]",
                "tileloadd tmm2, [{below} + {stride}*1]",
                "tileloadd tmm3, [{below} + {stride}*1 + 64]",
                "jmp 3f",
                "2:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "3:",
                "tileloadd tmm4, [{rows} + {line}*1]",
                "tileloadd tmm6, [{columns} + {line}*1]",
                "tileloadd tmm5, [{rows} + {line}*1 + 1024]",
                "tileloadd tmm7, [{columns} + {line}*1 + 1024]",
                prefetch!(2048 2112 2176 2240 2304 2368 2432 2496 2560 2624 2688 2752 2816 2880 2944 3008),
                prefetch!(3072 3136 3200 3264 3328 3392 3456 3520 3584 3648 3712 3776 3840 3904 3968 4032),
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {rows}, 2048",
                "add {columns}, 2048",
                "dec {steps}",
                "jnz 3b",
                "tilestored [{to} + {stride}*1], tmm0",
                "tilestored [{to} + {stride}*1 + 64], tmm1",
                "tilestored [{below} + {stride}*1], tmm2",
                "tilestored [{below} + {stride}*1 + 64], tmm3",
                add = in(reg) u32::from(add),
                to = in(reg) to.as_mut_ptr(),
                below = in(reg) below,
                stride = in(reg) bytes,
                line = in(reg) 64_usize,
                rows = inout(reg) rows.as_ptr() => _,
                columns = inout(reg) columns.as_ptr() => _,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (steps, below, bytes, add, columns);
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: gives the tiles back, so that the system need not keep them any more.
        unsafe {
            std::arch::asm!("tilerelease", options(nostack, nomem));
        }
    }
}
