// The same attention on tensor cores: f16 or bf16, depths and widths of up to 128, sm_80 and later.
//
//   Threads. Forward and dQ: 4 warps of 32 queries against tiles of keys; dK and dV: 4 or 8 warps of 16 keys against
//     tiles of 64 queries. A warp's 32 rows read a tile of shared memory once for two products: with 16 the shared
//     memory, not the tensor cores, is what limits. Scores and probabilities never leave the registers: what mma gives
//     as a result it takes as a left factor.
//   Bytes. Tiles come by cp.async, 16 bytes a time, one tile ahead of what is computed. Rows in shared memory are 16
//     bytes longer than they need to be, so that the 8 rows that ldmatrix reads lie in different banks, for every
//     depth.
//   Sums. f32, each in one order: dQ has a kernel of its own, which computes the scores again, and no atomic addition.
//
// Reads: Dao, "FlashAttention-2" (2023); PTX ISA 9.0, "mma.sync.aligned.m16n8k16", "ldmatrix", "cp.async".
//
// Defined before, beside what attention.cuh needs: DEPTH and WIDTH, multiples of 16; OWN_KEYS, keys of a block of dK
// and dV; IS_SCALED: scores are multiplied before they are used, as a program or a scale below zero asks; attention.cuh
// itself, of which the map, delta and the helpers are used.

#if __CUDA_ARCH__ >= 800
constexpr u32 QUERIES = 128, KEYS = 64, GRAD_KEYS = DEPTH > 64 || WIDTH > 64 ? 32 : 64;
constexpr u32 OF_QUERIES = 64;
constexpr float LOG2E = 1.4426950408889634f;

// Rows of a tile in shared memory, in elements.
constexpr u32 DEPTH_ROW = DEPTH + 8, WIDTH_ROW = WIDTH + 8;

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void copy_16(u32 to, u64 from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT)); }

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

// sum += a b, 16 x 16 by 16 x 8.
__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if IS_BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to the type, the first in the low half.
__device__ __forceinline__ u32 pair_of(float first, float second) {
    u32 pair;
#if IS_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
    return pair;
}

// 2^x, 0 for -inf.
__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Begins to copy ROWS rows of a head from `row` on; rows that are not there are zeros.
template <u32 ROWS, u32 COLUMNS, u32 THREADS>
__device__ __forceinline__ void begin_copy(u32 to, const Matrix& m, u64 row) {
    constexpr u32 CHUNKS = COLUMNS / 8;
#pragma unroll
    for (u32 e = threadIdx.x; e < ROWS * CHUNKS; e += THREADS) {
        const u32 r = e / CHUNKS, c = e % CHUNKS;
        const bool is_there = row + r < m.rows;
        const u64 from = m.at + ((is_there ? row + r : 0) * m.row + c * 8) * sizeof(E::Bits);
        copy_16(to + (r * (COLUMNS + 8) + c * 8) * (u32)sizeof(E::Bits), from, is_there);
    }
}

// Where this lane reads a left factor of 16 rows and 16 columns, and right factors of 16 columns that lie as rows, or
// as columns, in shared memory.
template <u32 ROW> __device__ __forceinline__ u32 left_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 16) * ROW + column + lane / 16 * 8) * 2;
}
template <u32 ROW> __device__ __forceinline__ u32 right_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 8 + lane / 16 * 8) * ROW + column + lane / 8 % 2 * 8) * 2;
}
template <u32 ROW> __device__ __forceinline__ u32 transposed_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 8 + lane / 8 % 2 * 8) * ROW + column + lane / 16 * 8) * 2;
}

// sums[i][j] += rows of `left` from `row` on, times rows of `right`: LENGTH numbers each.
template <u32 TILES, u32 COLUMNS, u32 LENGTH>
__device__ __forceinline__ void rows_by_rows(float (&sums)[TILES][COLUMNS / 8][4], u32 left, u32 row, u32 right) {
    constexpr u32 ROW = LENGTH + 8;
#pragma unroll
    for (u32 k = 0; k < LENGTH; k += 16) {
        u32 a[TILES][4];
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) load_matrices(a[i], left_at<ROW>(left, row + 16 * i, k));
#pragma unroll
        for (u32 j = 0; j < COLUMNS / 16; ++j) {
            u32 b[4];
            load_matrices(b, right_at<ROW>(right, 16 * j, k));
#pragma unroll
            for (u32 i = 0; i < TILES; ++i) {
                multiply(sums[i][2 * j], a[i], b[0], b[1]);
                multiply(sums[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// sums[i] += weights[i], in registers, times the ROWS rows of a tile: LENGTH numbers each.
template <u32 TILES, u32 ROWS, u32 LENGTH>
__device__ __forceinline__ void weighted_rows(float (&sums)[TILES][LENGTH / 8][4],
                                              const float (&weights)[TILES][ROWS / 8][4], u32 tile) {
#pragma unroll
    for (u32 k = 0; k < ROWS / 16; ++k) {
        u32 a[TILES][4];
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) {
            const float(&low)[4] = weights[i][2 * k], (&high)[4] = weights[i][2 * k + 1];
            a[i][0] = pair_of(low[0], low[1]);
            a[i][1] = pair_of(low[2], low[3]);
            a[i][2] = pair_of(high[0], high[1]);
            a[i][3] = pair_of(high[2], high[3]);
        }
#pragma unroll
        for (u32 j = 0; j < LENGTH / 16; ++j) {
            u32 b[4];
            load_transposed(b, transposed_at<LENGTH + 8>(tile, 16 * k, 16 * j));
#pragma unroll
            for (u32 i = 0; i < TILES; ++i) {
                multiply(sums[i][2 * j], a[i], b[0], b[1]);
                multiply(sums[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// What a mask leaves of so many rows and columns, in whole tiles of the map.
template <u32 ROWS, u32 COLUMNS>
__device__ __forceinline__ u8 seen_of(const PARAMS& p, u64 batch, u64 head, u64 row, u64 column) {
#if HAS_MAP
    bool any = false, every = true;
#pragma unroll
    for (u64 r = 0; r < ROWS; r += TILE) {
#pragma unroll
        for (u64 c = 0; c < COLUMNS; c += TILE) {
            if (row + r >= p.queries || column + c >= p.keys) continue;
            const u8 cell = seen(p, batch, head, row + r, column + c);
            any |= cell != EMPTY;
            every &= cell == FULL;
        }
    }
    return !any ? EMPTY : every ? FULL : PARTIAL;
#else
    return seen(p, batch, head, row, column);
#endif
}

// The tiles in which a mask leaves something, in order, in shared memory: number * 4 + what it leaves. Written by the
// first warp; the block waits for it. The map is read once, before the products, since a read of it takes as long as a
// tile's products.
template <class Seen> __device__ __forceinline__ void list_tiles(u32* list, u32* count, u32 tiles, const Seen& seen) {
    if (threadIdx.x < 32) {
        u32 found = 0;
        for (u32 first = 0; first < tiles; first += 32) {
            const u32 n = first + threadIdx.x;
            const u8 state = n < tiles ? seen(n) : EMPTY;
            const u32 lanes = __ballot_sync(0xffffffffu, state != EMPTY);
            if (state != EMPTY) list[found + __popc(lanes & ((1u << threadIdx.x) - 1))] = n * 4 + state;
            found += __popc(lanes);
        }
        if (threadIdx.x == 0) *count = found;
    }
    __syncthreads();
}

// The score of a lane from q . k; in what units, see FACTOR.
__device__ __forceinline__ float score_of(const PARAMS& p, float product, float scale, u8 tile, u64 batch, u64 head,
                                          u64 query, u64 key) {
#if IS_SCALED
    return scored(p, __fmul_rn(product, scale), tile, batch, head, query, key);
#else
    if (query >= p.queries || key >= p.keys) return NONE;
#if HAS_MASK
    if (tile == PARTIAL && !mask(p, __fmul_rn(product, scale), batch, head, query, key)) return NONE;
#endif
    return product;
#endif
}

// Writes rows of sums, 16 a tile; `factors` are those of a lane's two rows of each.
template <u32 TILES, u32 COLUMNS>
__device__ __forceinline__ void write_rows(const float (&sums)[TILES][COLUMNS / 8][4], const float (&factors)[TILES][2],
                                           const Matrix& to, u64 row) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u64 r = row + 16 * i + 8 * half + lane / 4;
            if (r >= to.rows) continue;
            const u64 at = to.at + (r * to.row + lane % 4 * 2) * sizeof(E::Bits);
#pragma unroll
            for (u32 j = 0; j < COLUMNS / 8; ++j) {
                const float a = __fmul_rn(sums[i][j][2 * half], factors[i][half]);
                const float b = __fmul_rn(sums[i][j][2 * half + 1], factors[i][half]);
                *(u32*)(at + j * 16) = pair_of(a, b);
            }
        }
    }
}

#if IS_SCALED
#define FACTOR(scale) LOG2E
#else
#define FACTOR(scale) __fmul_rn(scale, LOG2E)
#endif

#if FORWARD
extern "C" __global__ void __launch_bounds__(128) NAME(attention_mma)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 K_BYTES = KEYS * DEPTH_ROW * 2, STAGE = K_BYTES + KEYS * WIDTH_ROW * 2;
    const u32 of_q = shared_address(memory), stages = of_q + QUERIES * DEPTH_ROW * 2;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 heads = p.batches * p.heads, rows = (p.queries + QUERIES - 1) / QUERIES;
    const u64 row = (rows - 1 - blockIdx.x / heads) * QUERIES, head = blockIdx.x % heads % p.heads;
    const u64 batch = blockIdx.x % heads / p.heads, group = head / (p.heads / p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth),
                 v = MATRIX(v, batch, group, p.keys, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    u32* list = (u32*)(memory + QUERIES * DEPTH_ROW * 2 + 2 * STAGE);
    __shared__ u32 count;
    const auto load = [&](u32 stage, u64 key) {
        begin_copy<KEYS, DEPTH, 128>(stages + stage * STAGE, k, key);
        begin_copy<KEYS, WIDTH, 128>(stages + stage * STAGE + K_BYTES, v, key);
    };
    float output[2][WIDTH / 8][4] = {}, largest[2][2], total[2][2] = {};
    for (u32 i = 0; i < 4; ++i) largest[i / 2][i % 2] = NONE;
    begin_copy<QUERIES, DEPTH, 128>(of_q, q, row);
    list_tiles(list, &count, (u32)((p.keys + KEYS - 1) / KEYS),
               [&](u32 n) { return seen_of<QUERIES, KEYS>(p, batch, head, row, (u64)n * KEYS); });
    if (count > 0) load(0, list[0] / 4 * KEYS);
    commit();
    for (u32 n = 0; n < count; ++n) {
        const u32 stage = n % 2;
        if (n + 1 < count) load(stage ^ 1, list[n + 1] / 4 * KEYS);
        commit();
        wait<1>();
        __syncthreads();
        const u8 tile = list[n] % 4;
        const u64 key = list[n] / 4 * KEYS;
        float s[2][KEYS / 8][4] = {};
        rows_by_rows<2, KEYS, DEPTH>(s, of_q, warp * 32, stages + stage * STAGE);
        if (IS_SCALED || tile != FULL || key + KEYS > p.keys) {
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) {
                        const u64 query = row + warp * 32 + 16 * i + e / 2 * 8 + lane / 4;
                        const u64 column = key + 8 * j + lane % 4 * 2 + e % 2;
                        s[i][j][e] = score_of(p, s[i][j][e], scale, tile, batch, head, query, column);
                    }
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                float most = largest[i][half];
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) most = fmaxf(most, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                const float base = most == NONE ? 0.0f : __fmul_rn(most, factor);
                const float shrink = power(__fmaf_rn(largest[i][half], factor, -base));
                largest[i][half] = most;
                float sum = 0.0f;
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                    for (u32 e = 2 * half; e < 2 * half + 2; ++e) {
                        s[i][j][e] = power(__fmaf_rn(s[i][j][e], factor, -base));
                        sum = __fadd_rn(sum, s[i][j][e]);
                    }
                }
                total[i][half] = __fmaf_rn(total[i][half], shrink, sum);
#pragma unroll
                for (u32 j = 0; j < WIDTH / 8; ++j) {
                    output[i][j][2 * half] = __fmul_rn(output[i][j][2 * half], shrink);
                    output[i][j][2 * half + 1] = __fmul_rn(output[i][j][2 * half + 1], shrink);
                }
            }
        }
        weighted_rows<2, KEYS, WIDTH>(output, s, stages + stage * STAGE + K_BYTES);
        __syncthreads();
    }
    wait<0>();
    float factors[2][2];
    for (u32 i = 0; i < 2; ++i) {
        for (u32 half = 0; half < 2; ++half) {
            float sum = total[i][half];
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
            factors[i][half] = sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, sum);
#if HAS_LSE
            const u64 query = row + warp * 32 + 16 * i + 8 * half + lane / 4;
            if (lane % 4 == 0 && query < p.queries) {
                const float of_largest = IS_SCALED ? largest[i][half] : __fmul_rn(largest[i][half], scale);
                const u64 at = batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2;
                ((float*)p.lse)[at] = sum == 0.0f ? NONE : __fadd_rn(of_largest, logf(sum));
            }
#endif
        }
    }
    write_rows<2, WIDTH>(output, factors, MATRIX(o, batch, head, p.queries, p.width), row + warp * 32);
}
#else

// From scores to probabilities, and from the gradients of those to the gradients of the scores, of one lane.
__device__ __forceinline__ void differentiate(const PARAMS& p, float& s, float& ds, float scale, float factor, float lse,
                                              float delta, u8 tile, bool is_plain, u64 batch, u64 head, u64 query,
                                              u64 key) {
    const float product = s;
    if (!is_plain) s = score_of(p, s, scale, tile, batch, head, query, key);
    const bool is_seen = s != NONE;
    s = power(__fmaf_rn(s, factor, -lse));
    ds = __fmul_rn(s, __fadd_rn(ds, -delta));
#if HAS_SLOPE
    ds = is_seen ? slope(p, __fmul_rn(product, scale), ds, batch, head, query, key) : 0.0f;
#endif
}

// L in the units of the exponent; a query that sees nothing has only scores of -inf.
__device__ __forceinline__ float lse_of(const PARAMS& p, u64 batch, u64 head, u64 query) {
    if (query >= p.queries) return 0.0f;
    const float lse = ((const float*)p.lse)[batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2];
    return lse == NONE ? 0.0f : __fmul_rn(lse, LOG2E);
}
__device__ __forceinline__ float delta_of(const PARAMS& p, u64 batch, u64 head, u64 query) {
    return query < p.queries ? ((const float*)p.delta)[(batch * p.heads + head) * p.queries + query] : 0.0f;
}

#if HAS_DQ
extern "C" __global__ void __launch_bounds__(128) NAME(attention_mma_dq)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 K_BYTES = GRAD_KEYS * DEPTH_ROW * 2, STAGE = K_BYTES + GRAD_KEYS * WIDTH_ROW * 2;
    const u32 of_q = shared_address(memory), of_g = of_q + QUERIES * DEPTH_ROW * 2;
    const u32 stages = of_g + QUERIES * WIDTH_ROW * 2;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 heads = p.batches * p.heads, rows = (p.queries + QUERIES - 1) / QUERIES;
    const u64 row = (rows - 1 - blockIdx.x / heads) * QUERIES, head = blockIdx.x % heads % p.heads;
    const u64 batch = blockIdx.x % heads / p.heads, group = head / (p.heads / p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth),
                 v = MATRIX(v, batch, group, p.keys, p.width), g = MATRIX(g, batch, head, p.queries, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    u32* list = (u32*)(memory + (stages - of_q) + 2 * STAGE);
    __shared__ u32 count;
    const auto load = [&](u32 stage, u64 key) {
        begin_copy<GRAD_KEYS, DEPTH, 128>(stages + stage * STAGE, k, key);
        begin_copy<GRAD_KEYS, WIDTH, 128>(stages + stage * STAGE + K_BYTES, v, key);
    };
    float sums[2][DEPTH / 8][4] = {}, lse[2][2], delta[2][2];
    for (u32 i = 0; i < 2; ++i) {
        for (u32 half = 0; half < 2; ++half) {
            const u64 query = row + warp * 32 + 16 * i + 8 * half + lane / 4;
            lse[i][half] = lse_of(p, batch, head, query);
            delta[i][half] = delta_of(p, batch, head, query);
        }
    }
    begin_copy<QUERIES, DEPTH, 128>(of_q, q, row);
    begin_copy<QUERIES, WIDTH, 128>(of_g, g, row);
    list_tiles(list, &count, (u32)((p.keys + GRAD_KEYS - 1) / GRAD_KEYS),
               [&](u32 n) { return seen_of<QUERIES, GRAD_KEYS>(p, batch, head, row, (u64)n * GRAD_KEYS); });
    if (count > 0) load(0, list[0] / 4 * GRAD_KEYS);
    commit();
    for (u32 n = 0; n < count; ++n) {
        const u32 stage = n % 2;
        if (n + 1 < count) load(stage ^ 1, list[n + 1] / 4 * GRAD_KEYS);
        commit();
        wait<1>();
        __syncthreads();
        const u8 tile = list[n] % 4;
        const u64 key = list[n] / 4 * GRAD_KEYS;
        const bool is_plain = !IS_SCALED && tile == FULL && key + GRAD_KEYS <= p.keys;
        float s[2][GRAD_KEYS / 8][4] = {}, ds[2][GRAD_KEYS / 8][4] = {};
        rows_by_rows<2, GRAD_KEYS, DEPTH>(s, of_q, warp * 32, stages + stage * STAGE);
        rows_by_rows<2, GRAD_KEYS, WIDTH>(ds, of_g, warp * 32, stages + stage * STAGE + K_BYTES);
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
#pragma unroll
            for (u32 j = 0; j < GRAD_KEYS / 8; ++j) {
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const u64 query = row + warp * 32 + 16 * i + e / 2 * 8 + lane / 4;
                    differentiate(p, s[i][j][e], ds[i][j][e], scale, factor, lse[i][e / 2], delta[i][e / 2], tile,
                                  is_plain, batch, head, query, key + 8 * j + lane % 4 * 2 + e % 2);
                }
            }
        }
        weighted_rows<2, GRAD_KEYS, DEPTH>(sums, ds, stages + stage * STAGE);
        __syncthreads();
    }
    wait<0>();
    const float factors[2][2] = {{scale, scale}, {scale, scale}};
    write_rows<2, DEPTH>(sums, factors, MATRIX(dq, batch, head, p.queries, p.depth), row + warp * 32);
}
#endif

#if HAS_DK || HAS_DV
// A block has 128 keys of one head, or 64 where there are few blocks, and goes along the queries of all heads that they
// serve.
extern "C" __global__ void __launch_bounds__(2 * OWN_KEYS) NAME(attention_mma_dkv)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 Q_BYTES = OF_QUERIES * DEPTH_ROW * 2, STAGE = Q_BYTES + OF_QUERIES * WIDTH_ROW * 2;
    const u32 of_k = shared_address(memory), of_v = of_k + OWN_KEYS * DEPTH_ROW * 2;
    const u32 stages = of_v + OWN_KEYS * WIDTH_ROW * 2;
    float(*rows_of)[2][OF_QUERIES] = (float(*)[2][OF_QUERIES])(memory + (stages - of_k) + 2 * STAGE); // L and delta
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 groups = p.batches * p.groups, share = p.heads / p.groups;
    const u64 key = blockIdx.x / groups * OWN_KEYS; // the first keys take longest
    const u64 group = blockIdx.x % groups % p.groups;
    const u64 batch = blockIdx.x % groups / p.groups;
    const Matrix k = MATRIX(k, batch, group, p.keys, p.depth), v = MATRIX(v, batch, group, p.keys, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    const u32 tiles = (u32)((p.queries + OF_QUERIES - 1) / OF_QUERIES);
    u32* list = (u32*)(rows_of + 2);
    __shared__ u32 count;
    const auto load = [&](u32 stage, u32 n) {
        const u64 head = group * share + n / tiles, row = (u64)(n % tiles) * OF_QUERIES;
        const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), g = MATRIX(g, batch, head, p.queries, p.width);
        begin_copy<OF_QUERIES, DEPTH, 2 * OWN_KEYS>(stages + stage * STAGE, q, row);
        begin_copy<OF_QUERIES, WIDTH, 2 * OWN_KEYS>(stages + stage * STAGE + Q_BYTES, g, row);
        if (threadIdx.x < OF_QUERIES) {
            rows_of[stage][0][threadIdx.x] = lse_of(p, batch, head, row + threadIdx.x);
            rows_of[stage][1][threadIdx.x] = delta_of(p, batch, head, row + threadIdx.x);
        }
    };
    float dk[1][DEPTH / 8][4] = {}, dv[1][WIDTH / 8][4] = {};
    begin_copy<OWN_KEYS, DEPTH, 2 * OWN_KEYS>(of_k, k, key);
    begin_copy<OWN_KEYS, WIDTH, 2 * OWN_KEYS>(of_v, v, key);
    list_tiles(list, &count, (u32)share * tiles, [&](u32 n) {
        return seen_of<OF_QUERIES, OWN_KEYS>(p, batch, group * share + n / tiles, (u64)(n % tiles) * OF_QUERIES, key);
    });
    if (count > 0) load(0, list[0] / 4);
    commit();
    for (u32 n = 0; n < count; ++n) {
        const u32 stage = n % 2, own = list[n] / 4;
        const u64 head = group * share + own / tiles, row = (u64)(own % tiles) * OF_QUERIES;
        if (n + 1 < count) load(stage ^ 1, list[n + 1] / 4);
        commit();
        wait<1>();
        __syncthreads();
        const u8 tile = list[n] % 4;
        const bool is_plain = !IS_SCALED && tile == FULL && key + OWN_KEYS <= p.keys && row + OF_QUERIES <= p.queries;
        const u32 of_q = stages + stage * STAGE, of_g = of_q + Q_BYTES;
        float s[1][OF_QUERIES / 8][4] = {}, ds[1][OF_QUERIES / 8][4] = {}; // transposed: rows are keys
        rows_by_rows<1, OF_QUERIES, DEPTH>(s, of_k, warp * 16, of_q);
        rows_by_rows<1, OF_QUERIES, WIDTH>(ds, of_v, warp * 16, of_g);
#pragma unroll
        for (u32 j = 0; j < OF_QUERIES / 8; ++j) {
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                const u32 column = 8 * j + lane % 4 * 2 + e % 2;
                const float lse = rows_of[stage][0][column], delta = rows_of[stage][1][column];
                differentiate(p, s[0][j][e], ds[0][j][e], scale, factor, lse, delta, tile, is_plain, batch, head,
                              row + column, key + warp * 16 + e / 2 * 8 + lane / 4);
            }
        }
        weighted_rows<1, OF_QUERIES, WIDTH>(dv, s, of_g);
        weighted_rows<1, OF_QUERIES, DEPTH>(dk, ds, of_q);
        __syncthreads();
    }
    wait<0>();
#if HAS_DK
    const float scales[1][2] = {{scale, scale}};
    write_rows<1, DEPTH>(dk, scales, MATRIX(dk, batch, group, p.keys, p.depth), key + warp * 16);
#endif
#if HAS_DV
    const float ones[1][2] = {{1.0f, 1.0f}};
    write_rows<1, WIDTH>(dv, ones, MATRIX(dv, batch, group, p.keys, p.width), key + warp * 16);
#endif
}
#endif
#endif
#endif
