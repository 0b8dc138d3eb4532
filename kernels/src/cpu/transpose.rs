//! Matrices transposed: rows that lie side by side become columns that do.
//!
//! A tile of 16 by 16 is read and written in whole rows, a cache line of f32 each, and transposed in registers where
//! there are enough of them.

#![allow(unsafe_code)] // vector code: a function compiled for a unit may only be called where there is one

use super::Vector;

/// Rows and columns of a tile.
pub(super) const TILE: usize = 16;

/// Rows in memory: the elements, and how far apart the rows are.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub from: &'a [f32],
    pub stride: usize,
}

/// `to[j * apart + i]` becomes element j of row i, for at most [`TILE`] rows and all columns.
pub(super) fn transpose(
    unit: Vector,
    rows: Rows<'_>,
    (count, columns): (usize, usize),
    to: &mut [f32],
    apart: usize,
) {
    let whole = if count == TILE { columns / TILE * TILE } else { 0 };
    for first in (0..whole).step_by(TILE) {
        tile(unit, Rows { from: &rows.from[first..], ..rows }, &mut to[first * apart..], apart);
    }
    for j in whole..columns {
        for (i, to) in to[j * apart..][..count].iter_mut().enumerate() {
            *to = rows.from[i * rows.stride + j];
        }
    }
}

/// Transposes a whole tile.
fn tile(unit: Vector, rows: Rows<'_>, to: &mut [f32], apart: usize) {
    #[cfg(target_arch = "x86_64")]
    if unit == Vector::Avx512 {
        // SAFETY: the unit is one that `Vector::available` found.
        return unsafe { tile_avx512(rows, to, apart) };
    }
    _ = unit;
    let mut tile = [[0.0; TILE]; TILE];
    for (i, row) in tile.iter_mut().enumerate() {
        row.copy_from_slice(&rows.from[i * rows.stride..][..TILE]);
    }
    for j in 0..TILE {
        let column: [f32; TILE] = std::array::from_fn(|i| tile[i][j]);
        to[j * apart..][..TILE].copy_from_slice(&column);
    }
}

/// Rows i and i + 8 are interleaved, four times: each time an element's number in the tile turns left by a bit, so that
/// in the end its row and its column have changed places.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn tile_avx512(rows: Rows<'_>, to: &mut [f32], apart: usize) {
    use core::arch::x86_64::{
        _mm512_loadu_ps, _mm512_permutex2var_ps, _mm512_setr_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    let mut tile = [_mm512_setzero_ps(); TILE];
    for (i, row) in tile.iter_mut().enumerate() {
        let from = &rows.from[i * rows.stride..][..TILE];
        // SAFETY: 16 elements, as the slice says.
        *row = unsafe { _mm512_loadu_ps(from.as_ptr()) };
    }
    for _ in 0..TILE.ilog2() {
        let mut next = tile;
        for i in 0..TILE / 2 {
            next[2 * i] = _mm512_permutex2var_ps(tile[i], low, tile[i + TILE / 2]);
            next[2 * i + 1] = _mm512_permutex2var_ps(tile[i], high, tile[i + TILE / 2]);
        }
        tile = next;
    }
    for (j, column) in tile.into_iter().enumerate() {
        let to = &mut to[j * apart..][..TILE];
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), column) };
    }
}
