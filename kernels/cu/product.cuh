// A product of matrices whose elements lie anywhere: to = scale a b, or to += scale a b, summed in f32 and rounded
// once. The way of a product that the library has no form for: strides in both directions, factors of two types.
//
//   Threads. A block of 256 owns 64 x 64 elements of the result, a thread 4 x 4 of them, 16 apart, so that the lanes of
//     a warp read neighbouring words of shared memory.
//   Bytes. A factor is read once for each 64 rows, or columns, of the other: 16 operations a byte of f32.
//
// Defined before: KERNEL, its struct of words, and the types A, B and TO.

extern "C" __global__ void __launch_bounds__(256) KERNEL(const __grid_constant__ KERNEL_params p) {
    constexpr u32 TILE = 64, STEP = 16;
    __shared__ float a[STEP][TILE + 1], b[STEP][TILE + 1];
    const u32 t = threadIdx.x, x = t % 16, y = t / 16;
    u64 rest = blockIdx.x;
    const u64 column = rest % p.columns * TILE;
    rest /= p.columns;
    const u64 row = rest % p.rows * TILE;
    rest /= p.rows;
    u64 at_a = 0, at_b = 0, at_to = 0;
    BATCH                                      // moves all three to the block's matrix
    float sum[4][4] = {};
    for (u64 first = 0; first < p.k; first += STEP) {
        for (u32 e = t; e < TILE * STEP; e += 256) {
            // The direction in which a factor's elements are nearer goes along the lanes.
            const u32 ai = p.a_row < p.a_k ? e % TILE : e / STEP, ak = p.a_row < p.a_k ? e / TILE : e % STEP;
            const u32 bj = p.b_column <= p.b_k ? e % TILE : e / STEP, bk = p.b_column <= p.b_k ? e / TILE : e % STEP;
            const bool in_a = row + ai < p.m && first + ak < p.k, in_b = column + bj < p.n && first + bk < p.k;
            a[ak][ai] = in_a ? fetch<A>(p.a, at_a + (row + ai) * p.a_row + (first + ak) * p.a_k) : 0.0f;
            b[bk][bj] = in_b ? fetch<B>(p.b, at_b + (first + bk) * p.b_k + (column + bj) * p.b_column) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < STEP; ++k) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                for (u32 j = 0; j < 4; ++j) sum[i][j] = __fmaf_rn(a[k][y + 16 * i], b[k][x + 16 * j], sum[i][j]);
            }
        }
        __syncthreads();
    }
    for (u32 i = 0; i < 4; ++i) {
        for (u32 j = 0; j < 4; ++j) {
            const u64 m = row + y + 16 * i, n = column + x + 16 * j;
            if (m >= p.m || n >= p.n) continue;
            TO::Bits* to = (TO::Bits*)p.to + at_to + m * p.to_row + n * p.to_column;
            const float scaled = __fmul_rn(sum[i][j], __uint_as_float((u32)p.scale));
            *to = TO::write(p.add != 0 ? __fadd_rn(TO::read(*to), scaled) : scaled);
        }
    }
}
